/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_image_damage.c - Every byte flipped, every length cut: refused or the same content, never a crash
 */
#include "image_test.h"

#include <jansson.h>
#include <xxhash.h>

#include "storage/image_damage.h"

/* Opens, verifies and compares. false: refused, with a sentence. */
static bool same_content(int fd, const struct tp_buf *raw, struct tp_error *err)
{
	struct image *img = image_open(fd, err);
	struct image_decoder *d = image_decoder_new(NULL);
	uint8_t *buf = malloc(raw->len + 1);
	size_t n = 0;
	bool ok = img && image_verify(img, 1, NULL, NULL, NULL, err);

	for (uint64_t i = 0; ok && i < image_info(img)->frames; i++) {
		assert_true(n + image_frame_raw(img, i) <= raw->len);
		assert_true(image_frame_read(img, d, i, buf + n, NULL, NULL));
		n += image_frame_raw(img, i);
	}
	if (ok) {
		assert_int_equal(n, raw->len);
		assert_memory_equal(buf, raw->data, n);
	} else {
		assert_true(err->code == TP_ECORRUPT || err->code == TP_EUNSUPPORTED);
		assert_true(strlen(err->text) > 10);
	}
	free(buf);
	image_decoder_free(d);
	image_close(img);
	return ok;
}

static void every_byte_flipped(void **state)
{
	struct small_image t;
	uint64_t index;
	uint8_t *p;
	size_t n;

	(void)state;
	small_image_make(&t);
	p = file_bytes(t.fd, &n);
	index = tp_le64(p + n - 128 + 32);
	for (size_t i = 0; i < n; i++) {
		/* The header's rest is all alike. */
		if (i > 520 && i < IMAGE_HEADER_SIZE - 8)
			continue;
		for (unsigned flip = 1; flip < 256; flip = flip == 1 ? 0x80 : flip == 0x80 ? 0xff : 256) {
			struct tp_error err = TP_ERROR_INIT;
			uint8_t byte = (uint8_t)(p[i] ^ flip);

			assert_int_equal(pwrite(t.fd, &byte, 1, (off_t)i), 1);
			/*
			 * zstd's entropy coding has bits that do not matter: the frame's checksum is over
			 * what comes out.
			 */
			if (same_content(t.fd, &t.raw, &err))
				assert_true(i >= IMAGE_HEADER_SIZE && i < index);
		}
		assert_int_equal(pwrite(t.fd, p + i, 1, (off_t)i), 1);
	}
	free(p);
	small_image_free(&t);
}

static void every_length_cut(void **state)
{
	struct small_image t;
	uint8_t *p;
	size_t n;

	(void)state;
	small_image_make(&t);
	p = file_bytes(t.fd, &n);
	for (size_t i = 0; i < n; i += i > 600 && i < 4000 ? 100 : 1) {
		struct tp_error err = TP_ERROR_INIT;

		file_replace(t.fd, p, i);
		assert_false(same_content(t.fd, &t.raw, &err));
	}
	file_replace(t.fd, p, n);
	assert_int_equal(pwrite(t.fd, "", 1, (off_t)n), 1);
	{
		struct tp_error err = TP_ERROR_INIT;

		assert_false(same_content(t.fd, &t.raw, &err));
		assert_non_null(strstr(err.text, "behind its end"));
	}
	free(p);
	small_image_free(&t);
}

static void reseal(uint8_t *h)
{
	tp_put_le64(h + 504, XXH64(h, 504, 0));
}

static void sentences(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
		enum tp_code code;
		const char *text;
	} cases[] = {
		{ 16, 2, TP_EUNSUPPORTED, "newer format 2.0" },
		{ 40, 1, TP_EUNSUPPORTED, "encrypted" },
		{ 40, 2, TP_EUNSUPPORTED, "incremental" },
		{ 40, 4, TP_EUNSUPPORTED, "raw files" },
		{ 40, 16, TP_EUNSUPPORTED, "features 0x10" },
		{ 56, 2, TP_EUNSUPPORTED, "codec 2" },
		{ 0, 0, TP_ECORRUPT, "no torpor memory image" },
		{ 8, 'X', TP_ECORRUPT, "no torpor memory image" },
		{ 24, 'X', TP_ECORRUPT, "belongs to another image" },
	};
	struct small_image t;
	uint8_t *p, copy[512];
	size_t n;

	(void)state;
	small_image_make(&t);
	p = file_bytes(t.fd, &n);
	for (size_t i = 0; i < TP_N(cases); i++) {
		struct tp_error err = TP_ERROR_INIT;

		memcpy(copy, p, sizeof(copy));
		copy[cases[i].at] = cases[i].value;
		reseal(copy);
		assert_int_equal(pwrite(t.fd, copy, sizeof(copy), 0), sizeof(copy));
		assert_null(image_open(t.fd, &err));
		assert_int_equal(err.code, cases[i].code);
		if (!strstr(err.text, cases[i].text))
			fail_msg("\"%s\" lacks \"%s\"", err.text, cases[i].text);
	}
	/* A newer minor version and compatible features are read. */
	memcpy(copy, p, sizeof(copy));
	copy[18] = 7;
	copy[48] = 0xff;
	reseal(copy);
	assert_int_equal(pwrite(t.fd, copy, sizeof(copy), 0), sizeof(copy));
	{
		struct tp_error err = TP_ERROR_INIT;

		assert_true(same_content(t.fd, &t.raw, &err));
	}
	free(p);
	small_image_free(&t);
}

static void never_sealed(void **state)
{
	struct image_writer_options o = { .threads = 1 };
	struct tp_error err = TP_ERROR_INIT;
	struct image_writer *w;

	(void)state;
	o.fd = memfd_create("image", MFD_CLOEXEC);
	w = image_writer_new(&o, &err);
	assert_non_null(w);
	image_writer_free(w);
	assert_null(image_open(o.fd, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "never completed"));
	close(o.fd);
}

static void damage_names_the_place(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct small_image t;
	struct image *img;
	uint8_t byte;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, NULL);
	assert_non_null(img);
	/* The second frame's checksum. */
	assert_int_equal(pread(t.fd, &byte, 1, (off_t)(4096 + image_frame_stored(img, 0) +
						       image_frame_stored(img, 1) - 1)), 1);
	byte ^= 1;
	assert_int_equal(pwrite(t.fd, &byte, 1, (off_t)(4096 + image_frame_stored(img, 0) +
							image_frame_stored(img, 1) - 1)), 1);
	assert_false(image_verify(img, 2, NULL, NULL, NULL, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "frame 1 at offset"));
	assert_non_null(strstr(err.text, "(ram, pages 3 to 4, and more)"));
	image_close(img);
	small_image_free(&t);
}

static void flip(int fd, uint64_t at)
{
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 0x55;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
}

/* Two frames are lost: each is one entry, and the pages in them are in no other. */
static void all_damages_are_listed(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image_damages damages;
	struct small_image t;
	struct image *img;
	json_t *list, *o;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, NULL);
	assert_non_null(img);
	flip(t.fd, 4096 + image_frame_stored(img, 0) - 1);
	flip(t.fd, 4096 + image_frame_stored(img, 0));
	assert_false(image_verify(img, 2, NULL, NULL, &damages, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "2 places are damaged, first frame 0 at offset 4096 (ram, pages 0 "
					 "to 0)"));
	assert_int_equal(damages.total, 2);
	assert_int_equal(damages.n, 2);
	assert_int_equal(damages.list[0].lost, 1);
	assert_int_equal(damages.list[1].frame, 1);
	assert_int_equal(damages.list[1].offset, 4096 + image_frame_stored(img, 0));
	assert_int_equal(damages.list[1].length, image_frame_stored(img, 1));
	assert_string_equal(damages.list[1].what, "it is no zstd frame");
	assert_int_equal(damages.list[1].nranges, 2);
	assert_int_equal(damages.list[1].lost, 3);
	list = image_damages_json(img, &damages, 4096);
	o = json_array_get(list, 1);
	assert_int_equal(json_integer_value(json_object_get(o, "first-page")), 3);
	assert_int_equal(json_integer_value(json_object_get(o, "pages")), 2);
	assert_int_equal(json_array_size(json_object_get(o, "ranges")), 2);
	o = json_array_get(json_object_get(o, "ranges"), 1);
	assert_string_equal(json_string_value(json_object_get(o, "block")), "rom");
	json_decref(list);
	/* With little room rather the ranges go than a damage, at last all but one. */
	list = image_damages_json(img, &damages, 300);
	assert_int_equal(json_array_size(list), 2);
	assert_null(json_object_get(json_array_get(list, 1), "ranges"));
	json_decref(list);
	list = image_damages_json(img, &damages, 10);
	assert_int_equal(json_array_size(list), 1);
	json_decref(list);
	image_close(img);
	small_image_free(&t);
}

/* Where a frame is bad, a page that is zero by the index need not be found zero elsewhere. */
static void a_bad_frame_explains_what_it_may_have_held(void **state)
{
	struct image_damages damages;
	struct small_image t;
	struct image *img;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, NULL);
	assert_non_null(img);
	/* Page 2 is data in frame 0 and zero in frame 1. */
	flip(t.fd, 4096 + image_frame_stored(img, 0) + image_frame_stored(img, 1) - 1);
	assert_false(image_verify(img, 1, NULL, NULL, &damages, NULL));
	assert_int_equal(damages.total, 1);
	image_close(img);
	small_image_free(&t);
}

/* Many frames of one page each. */
static void many_make(struct small_image *t, unsigned frames)
{
	struct image_writer_options o = { .created_us = 1, .threads = 2 };
	struct image_writer *w;
	uint64_t *ends = calloc(frames + 2, sizeof(*ends));
	bool done;

	memset(t, 0, sizeof(*t));
	t->fd = o.fd = memfd_create("image", MFD_CLOEXEC);
	t->map.page_bits = 12;
	t_add(t, "QEVM\0\0\0\3\2\0\0\0\2", 13);
	t->spans[0] = (struct image_span){ IMAGE_RANGE_PROLOGUE, 0, 8 };
	assert_true(image_map_add(&t->map, "ram", 3, (uint64_t)frames * T_PAGE, NULL));
	assert_true(image_map_alloc(&t->map, NULL));
	for (unsigned i = 0; i < frames; i++) {
		t_record(t, (uint64_t)i * T_PAGE | 8, i ? NULL : "ram", (uint8_t)(i + 1));
		image_map_set(&t->map, i, IMAGE_DATA, i);
		ends[i + 1] = t->raw.len;
	}
	w = image_writer_new(&o, NULL);
	assert_non_null(w);
	for (unsigned i = 0; i < frames; i++)
		t_submit(image_writer_pool(w), &t->raw, ends[i], ends[i + 1], i ? 0 : IMAGE_NO_BLOCK,
			 IMAGE_FRAME_DATA | (i ? IMAGE_FRAME_IN_RAM : 0));
	assert_true(frame_pool_finish(image_writer_pool(w), 10000, &done, NULL));
	assert_true(image_writer_seal(w, &t->map, t->spans, 1, IMAGE_STOPPED, &t->sealed, NULL));
	image_writer_free(w);
	free(ends);
}

static void the_list_is_bounded_and_in_order(void **state)
{
	const unsigned frames = 3 * IMAGE_DAMAGES_MAX;
	struct image_damages damages;
	struct small_image t;
	struct image *img;
	uint64_t at = 4096;

	(void)state;
	many_make(&t, frames);
	img = image_open(t.fd, NULL);
	assert_non_null(img);
	assert_true(image_verify(img, 3, NULL, NULL, &damages, NULL));
	assert_int_equal(damages.total, 0);
	for (unsigned i = 0; i < frames; i++) {
		at += image_frame_stored(img, i);
		if (i != 1)
			flip(t.fd, at - 1);
	}
	assert_false(image_verify(img, 3, NULL, NULL, &damages, NULL));
	assert_int_equal(damages.total, frames - 1);
	assert_int_equal(damages.n, IMAGE_DAMAGES_MAX);
	for (unsigned i = 0; i < damages.n; i++) {
		assert_int_equal(damages.list[i].frame, i ? i + 1 : 0);
		assert_int_equal(damages.list[i].ranges[0].first, i ? i + 1 : 0);
	}
	image_close(img);
	small_image_free(&t);
}

static bool stop_at_once(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)done;
	(void)total;
	return false;
}

static void verify_can_be_cancelled(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct small_image t;
	struct image *img;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, NULL);
	assert_non_null(img);
	/* It may be through before it is asked. */
	if (!image_verify(img, 1, stop_at_once, NULL, NULL, &err))
		assert_int_equal(err.code, TP_ECANCELLED);
	image_close(img);
	small_image_free(&t);
}

enum { W_CLASS, W_FRAME, W_ABSENT, W_BLOCK, W_IN_RAM, W_N };

/* The index is whole by its checksums, but does not say what the frames hold. */
static void index_that_lies(void **state)
{
	static const char *const text[] = {
		"(ram, pages 2 to 2) is damaged: it says data, by the pages' last records they are zero",
		"(ram, pages 3 to 3) is damaged: it says frame 0, the pages' last records are in frame 1",
		"(ram, pages 5 to 5) is damaged: it says zero, by the pages' last records they are not sent",
		"does not continue", "malformed",
	};

	(void)state;
	for (unsigned i = 0; i < W_N; i++) {
		struct tp_error err = TP_ERROR_INIT;
		struct small_image t;
		struct image *img;

		memset(&t, 0, sizeof(t));
		t.fd = memfd_create("image", MFD_CLOEXEC);
		t_stream(&t);
		t_map(&t);
		if (i == W_CLASS)
			image_map_set(&t.map, 2, IMAGE_DATA, 0);
		if (i == W_FRAME)
			image_map_set(&t.map, 3, IMAGE_DATA, 0);
		if (i == W_ABSENT)
			image_map_set(&t.map, 5, IMAGE_ZERO, 0);
		/* The frame is cut a byte early, or the block list's range covers a record. */
		if (i == W_BLOCK)
			t.spans[1].length += 5;
		if (i == W_IN_RAM)
			t.frame_end[0] -= 1;
		small_image_seal(&t);
		img = image_open(t.fd, &err);
		assert_non_null(img);
		assert_false(image_verify(img, 2, NULL, NULL, NULL, &err));
		assert_int_equal(err.code, TP_ECORRUPT);
		if (i != W_BLOCK && !strstr(err.text, text[i]))
			fail_msg("\"%s\" lacks \"%s\"", err.text, text[i]);
		image_close(img);
		small_image_free(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_flipped),
		cmocka_unit_test(every_length_cut),
		cmocka_unit_test(sentences),
		cmocka_unit_test(never_sealed),
		cmocka_unit_test(damage_names_the_place),
		cmocka_unit_test(all_damages_are_listed),
		cmocka_unit_test(a_bad_frame_explains_what_it_may_have_held),
		cmocka_unit_test(the_list_is_bounded_and_in_order),
		cmocka_unit_test(verify_can_be_cancelled),
		cmocka_unit_test(index_that_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
