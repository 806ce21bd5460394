/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_image_bound.c - No image is larger than its bound: random order, nothing compresses
 *
 * Frames are submitted as the stream parser would cut them: records of whole
 * pages up to the target, or one record a frame where pages are large.
 */
#include "image_test.h"

#include "storage/image_bound.h"

#define MIB (1ull << 20)

static uint64_t random64(void)
{
	static uint64_t s = 88172645463325252ull;

	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return s;
}

static void shuffle(uint64_t *v, uint64_t n)
{
	for (uint64_t i = n - 1; i > 0; i--) {
		uint64_t k = random64() % (i + 1), x = v[i];

		v[i] = v[k];
		v[k] = x;
	}
}

struct filler {
	struct frame_pool *pool;
	struct frame_buf *b;
	size_t fill;
	uint32_t frame;
};

static void flush(struct filler *f)
{
	bool failed;

	if (f->fill) {
		frame_pool_submit(f->pool, (uint32_t)f->fill, 0, IMAGE_FRAME_DATA);
		f->frame++;
	}
	f->b = frame_pool_get(f->pool, 10000, &failed);
	assert_non_null(f->b);
	f->fill = 0;
}

static void record(struct filler *f, size_t n)
{
	if (f->fill && f->fill + n > IMAGE_FRAME_TARGET)
		flush(f);
	assert_true(frame_buf_grow(f->b, f->fill + n, f->fill, NULL));
	for (size_t i = 0; i + 8 <= n; i += 8)
		tp_put_le64(f->b->data + f->fill + i, random64());
	f->fill += n;
}

/* What is saved: pages in `blocks` RAM blocks, of which every `holes`-th is zero (0: none is). */
struct shape {
	uint64_t pages;
	unsigned bits, blocks, holes;
	uint64_t devices;
};

static void add_blocks(struct image_map *map, const struct shape *k)
{
	uint64_t left = k->pages;
	char name[16];

	for (unsigned b = 0; b < k->blocks; b++) {
		uint64_t n = b + 1 == k->blocks ? left : 1 + random64() % (left - (k->blocks - b - 1));
		int length = snprintf(name, sizeof(name), "block%u", b);

		assert_true(image_map_add(map, name, (size_t)length, n << k->bits, NULL));
		left -= n;
	}
	assert_true(image_map_alloc(map, NULL));
}

/* In random order, so that each page's frame is another one than that of the page before. */
static void put_pages(struct filler *f, struct image_map *map, const struct shape *k)
{
	uint64_t *order = malloc(k->pages * sizeof(*order));

	assert_non_null(order);
	for (uint64_t i = 0; i < k->pages; i++)
		order[i] = i;
	shuffle(order, k->pages);
	for (uint64_t i = 0; i < k->pages; i++) {
		if (k->holes && order[i] % k->holes == 0) {
			image_map_set(map, order[i], IMAGE_ZERO, 0);
			continue;
		}
		record(f, 8 + ((size_t)1 << k->bits));
		image_map_set(map, order[i], IMAGE_DATA, f->frame);
	}
	free(order);
}

static uint64_t worst_image(const struct shape *k)
{
	struct image_writer_options o = { .threads = 2 };
	struct image_map map = { .page_bits = k->bits };
	struct image_span span = { IMAGE_RANGE_PROLOGUE, 0, 8 };
	struct image_sealed sealed;
	struct filler f = { 0 };
	struct image_writer *w;
	bool done;

	o.fd = memfd_create("image", MFD_CLOEXEC);
	w = image_writer_new(&o, NULL);
	assert_non_null(w);
	add_blocks(&map, k);
	f.pool = image_writer_pool(w);
	flush(&f);
	put_pages(&f, &map, k);
	for (uint64_t left = k->devices; left >= 4096; left -= 4096)
		record(&f, 4096);
	flush(&f);
	assert_true(frame_pool_finish(f.pool, 60000, &done, NULL) && done);
	assert_true(image_writer_seal(w, &map, &span, 1, IMAGE_STOPPED, &sealed, NULL));
	image_writer_free(w);
	image_map_free(&map);
	close(o.fd);
	return sealed.file_bytes;
}

static void check_shape(const struct shape *k)
{
	uint64_t bound, real = worst_image(k);

	assert_true(image_bound(k->pages << k->bits, 1u << k->bits, k->blocks, k->devices, &bound));
	if (real > bound)
		fail_msg("%llu pages of 2^%u, %u blocks, holes %u, %llu bytes of devices: %llu > %llu",
			 (unsigned long long)k->pages, k->bits, k->blocks, k->holes,
			 (unsigned long long)k->devices, (unsigned long long)real, (unsigned long long)bound);
}

static void never_larger(void **state)
{
	static const struct shape cases[] = {
		{ 1, 12, 1, 0, MIB }, { 1000, 12, 1, 0, MIB }, { 12000, 12, 1, 0, MIB }, { 600, 16, 1, 0, MIB },
		{ 70, 18, 1, 0, MIB }, { 30, 20, 1, 0, MIB },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++)
		check_shape(&cases[i]);
}

/* The same sequence each time: a failure names its shape. */
static void never_larger_at_random(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		struct shape k = { .bits = 12 + (unsigned)(random64() % 5) };

		k.pages = 40 + random64() % ((16 * MIB >> k.bits) + 1);
		k.blocks = 1 + (unsigned)(random64() % 20);
		k.holes = random64() % 3 == 0 ? 2 + (unsigned)(random64() % 5) : 0;
		k.devices = 4096 + random64() % (2 * MIB);
		check_shape(&k);
	}
}

/* About the RAM: 0.5 % and the fixed margins over it at most. */
static void not_wasteful(void **state)
{
	uint64_t bound;

	(void)state;
	assert_true(image_bound(64ull << 30, 4096, 10, 0, &bound));
	assert_true(bound > 64ull << 30);
	assert_true(bound < (64ull << 30) + (64ull << 30) / 200 + (70ull << 20));
}

static void overflow(void **state)
{
	uint64_t bound = 7;

	(void)state;
	assert_false(image_bound(UINT64_MAX, 4096, 1, 0, &bound));
	assert_false(image_bound(UINT64_MAX - 4095, 4096, 1, 0, &bound));
	assert_false(image_bound(1 << 20, 4096, 1, UINT64_MAX, &bound));
	assert_false(image_bound(1 << 20, 0, 1, 0, &bound));
	assert_false(image_bound(1 << 20, 4096, 100000, 0, &bound));
	assert_int_equal(bound, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(never_larger),
		cmocka_unit_test(never_larger_at_random),
		cmocka_unit_test(not_wasteful),
		cmocka_unit_test(overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
