/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_image_page.c - Pages of an image: class, frame, winning record, against a small image */
#include "image_test.h"

#include "storage/image_page.h"
#include "storage/image_raw.h"

static struct image *open_small(struct small_image *t)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image *img = image_open(t->fd, &err);

	if (!img)
		fail_msg("%s", err.text);
	return img;
}

static void every_page_has_its_class_and_frame(void **state)
{
	static const struct { enum image_class class_; uint64_t frame; } want[] = {
		{ IMAGE_DATA, 0 }, { IMAGE_ZERO, 0 }, { IMAGE_ZERO, 0 }, { IMAGE_DATA, 1 },
		{ IMAGE_DATA, 1 }, { IMAGE_ABSENT, 0 }, { IMAGE_ZERO, 0 }, { IMAGE_DATA, 1 },
	};
	struct small_image t;
	struct image *img;

	(void)state;
	small_image_make(&t);
	img = open_small(&t);
	for (uint64_t page = 0; page < 8; page++) {
		uint64_t frame = 99;

		assert_int_equal(image_page_find(img, page, &frame), want[page].class_);
		assert_int_equal(frame, want[page].class_ == IMAGE_DATA ? want[page].frame : 99);
	}
	assert_int_equal(image_page_next_data(img, 0, 8), 0);
	assert_int_equal(image_page_next_data(img, 1, 8), 3);
	assert_int_equal(image_page_next_data(img, 5, 8), 7);
	assert_int_equal(image_page_next_data(img, 5, 6), 6);
	assert_int_equal(image_page_next_data(img, 8, 8), 8);
	assert_int_equal(image_page_block(img, 5), 0);
	assert_int_equal(image_page_block(img, 6), 1);
	assert_int_equal(image_block_find(img, "rom", 3), 1);
	assert_int_equal(image_block_find(img, "ro", 2), -1);
	assert_int_equal(image_block_find(img, "", 0), -1);
	image_close(img);
	small_image_free(&t);
}

/* Decodes a frame and compares its pages with what t_record() wrote. */
static void assert_frame(struct image *img, uint64_t frame, const uint64_t *pages,
			 const uint8_t *seeds, size_t n)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image_decoder *d = image_decoder_new(&err);
	uint8_t *raw = malloc(image_frame_raw(img, frame));
	struct image_page *list = NULL;
	size_t got = 0;

	assert_true(d && raw);
	assert_true(image_frame_read(img, d, frame, raw, NULL, &err));
	if (!image_frame_pages(img, frame, raw, &list, &got, &err))
		fail_msg("%s", err.text);
	assert_int_equal(got, n);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(list[i].page, pages[i]);
		for (unsigned k = 0; k < T_PAGE; k++)
			assert_int_equal(list[i].data[k], (uint8_t)(seeds[i] * 31 + k / 16));
	}
	free(list);
	free(raw);
	image_decoder_free(d);
}

static void a_frame_holds_what_was_not_overwritten(void **state)
{
	struct small_image t;
	struct image *img;

	(void)state;
	small_image_make(&t);
	img = open_small(&t);
	/* Page 2 has a data record in frame 0, but a zero record later. */
	assert_frame(img, 0, (uint64_t[]){ 0 }, (uint8_t[]){ 1 }, 1);
	assert_frame(img, 1, (uint64_t[]){ 3, 4, 7 }, (uint8_t[]){ 3, 4, 5 }, 3);
	assert_frame(img, 2, NULL, NULL, 0);
	image_close(img);
	small_image_free(&t);
}

/* The stream is as in t_stream(), but frame 1 tells page 3 anew, or to be zero, after page 4. */
static void remake(struct small_image *t, unsigned flag, uint8_t seed)
{
	struct tp_buf rest = TP_BUF_INIT(0);
	uint64_t at = t->frame_end[0] + (8 + T_PAGE) + 9 + (8 + T_PAGE);
	uint64_t more;

	assert_true(tp_buf_add(&rest, t->raw.data + at, t->raw.len - at));
	t->raw.len = at;
	t_record(t, 3 * T_PAGE | flag, NULL, seed);
	more = t->raw.len - at;
	t_add(t, rest.data, rest.len);
	t->frame_end[1] += more;
	t->frame_end[2] += more;
	t->spans[2].offset += more;
	t->spans[3].offset += more;
	tp_buf_free(&rest);
	assert_int_equal(ftruncate(t->fd, 0), 0);
	small_image_seal(t);
}

static void the_last_record_of_a_page_wins(void **state)
{
	struct small_image t;
	struct image *img;

	(void)state;
	small_image_make(&t);
	remake(&t, 8, 9);
	img = open_small(&t);
	assert_frame(img, 1, (uint64_t[]){ 3, 4, 7 }, (uint8_t[]){ 9, 4, 5 }, 3);
	image_close(img);
	small_image_free(&t);
}

static void a_last_record_that_contradicts_the_index_is_damage(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image_decoder *d = image_decoder_new(&err);
	struct image_page *list = NULL;
	struct small_image t;
	struct image *img;
	uint8_t *raw;
	size_t n;

	(void)state;
	small_image_make(&t);
	remake(&t, 2, 0);
	img = open_small(&t);
	raw = malloc(image_frame_raw(img, 1));
	assert_true(d && raw);
	assert_true(image_frame_read(img, d, 1, raw, NULL, &err));
	assert_false(image_frame_pages(img, 1, raw, &list, &n, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "page 3"));
	assert_null(list);
	free(raw);
	image_decoder_free(d);
	image_close(img);
	small_image_free(&t);
}

static void ranges_of_the_raw_stream(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct small_image t;
	struct image *img;

	(void)state;
	small_image_make(&t);
	img = open_small(&t);
	/* Within a frame, over all frames, at the borders of one, nothing. */
	for (unsigned i = 0; i < 4; i++) {
		const uint64_t ranges[][2] = { { 15, 62 }, { 3, t.raw.len - 5 }, { t.frame_end[0], 25 },
					       { t.raw.len, 0 } };
		tp_autobuf struct tp_buf out = TP_BUF_INIT(1 << 20);

		if (!image_raw_read(img, ranges[i][0], ranges[i][1], &out, &err))
			fail_msg("%s", err.text);
		assert_int_equal(out.len, ranges[i][1]);
		if (out.len > 0)
			assert_memory_equal(out.data, t.raw.data + ranges[i][0], out.len);
	}
	image_close(img);
	small_image_free(&t);
}

static void ranges_are_bounded(void **state)
{
	tp_autobuf struct tp_buf out = TP_BUF_INIT(100);
	struct tp_error err = TP_ERROR_INIT, limit = TP_ERROR_INIT;
	struct small_image t;
	struct image *img;

	(void)state;
	small_image_make(&t);
	img = open_small(&t);
	assert_false(image_raw_read(img, t.raw.len - 10, 11, &out, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_false(image_raw_read(img, UINT64_MAX, 2, &out, NULL));
	assert_false(image_raw_read(img, 0, 101, &out, &limit));
	assert_int_equal(limit.code, TP_ELIMIT);
	assert_int_equal(out.len, 0);
	image_close(img);
	small_image_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_page_has_its_class_and_frame),
		cmocka_unit_test(a_frame_holds_what_was_not_overwritten),
		cmocka_unit_test(the_last_record_of_a_page_wins),
		cmocka_unit_test(ranges_of_the_raw_stream),
		cmocka_unit_test(ranges_are_bounded),
		cmocka_unit_test(a_last_record_that_contradicts_the_index_is_damage),
	};

	return cmocka_run_group_tests_name("image_page", tests, NULL, NULL);
}
