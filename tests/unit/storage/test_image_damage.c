/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_image_damage.c - Every byte flipped, every length cut: refused or the same content, never a crash
 */
#include "image_test.h"

#include <xxhash.h>

/* Opens, verifies and compares. false: refused, with a sentence. */
static bool same_content(int fd, const struct tp_buf *raw, struct tp_error *err)
{
	struct image *img = image_open(fd, err);
	struct image_decoder *d = image_decoder_new(NULL);
	uint8_t *buf = malloc(raw->len + 1);
	size_t n = 0;
	bool ok = img && image_verify(img, 1, NULL, NULL, err);

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
		/* The header's rest is not looked at but for a few places. */
		if (i > 520 && i < IMAGE_HEADER_SIZE - 8)
			continue;
		for (unsigned flip = 1; flip < 256; flip = flip == 1 ? 0x80 : flip == 0x80 ? 0xff : 256) {
			struct tp_error err = TP_ERROR_INIT;
			uint8_t byte = (uint8_t)(p[i] ^ flip);

			assert_int_equal(pwrite(t.fd, &byte, 1, (off_t)i), 1);
			/*
			 * No checksum watches the header's rest; and zstd's entropy coding has bits that
			 * do not matter: the frame's checksum is over what comes out.
			 */
			if (same_content(t.fd, &t.raw, &err))
				assert_true(i >= 512 && i < index);
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
	assert_false(image_verify(img, 2, NULL, NULL, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "frame 1 at offset"));
	assert_non_null(strstr(err.text, "(ram, pages 3 to "));
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
	if (!image_verify(img, 1, stop_at_once, NULL, &err))
		assert_int_equal(err.code, TP_ECANCELLED);
	image_close(img);
	small_image_free(&t);
}

enum { W_CLASS, W_FRAME, W_ABSENT, W_BLOCK, W_IN_RAM, W_N };

/* The index is whole by its checksums, but does not say what the frames hold. */
static void index_that_lies(void **state)
{
	static const char *const text[] = {
		"page 2: the index gives it class 2", "page 3: the index says frame 0",
		"page 5: the index gives it class 1", "does not continue", "malformed",
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
		assert_false(image_verify(img, 2, NULL, NULL, &err));
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
		cmocka_unit_test(verify_can_be_cancelled),
		cmocka_unit_test(index_that_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
