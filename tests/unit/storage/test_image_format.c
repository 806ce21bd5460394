/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_image_format.c - The bytes of an image are those of docs/image-format.md
 *
 * Offsets are written out here, apart from image_format.h, so that neither can
 * change alone. The golden file was written by the first release of the format:
 * it must be readable for ever.
 */
#include "image_test.h"

#include <fcntl.h>
#include <xxhash.h>
#include <zstd.h>

static void header(void **state)
{
	struct small_image t;
	uint8_t *p;
	size_t n;

	(void)state;
	small_image_make(&t);
	p = file_bytes(t.fd, &n);
	assert_int_equal(tp_le32(p), 0x184D2A5D);
	assert_int_equal(tp_le32(p + 4), 4088);
	assert_memory_equal(p + 8, "TORPORH1", 8);
	assert_int_equal(tp_le16(p + 16), 1);
	assert_int_equal(tp_le16(p + 18), 0);
	assert_int_equal(tp_le32(p + 20), 4096);
	assert_memory_equal(p + 24, "0123456789abcdef", 16);
	assert_int_equal(tp_le64(p + 40), 0);
	assert_int_equal(tp_le64(p + 48), 0);
	assert_int_equal(tp_le32(p + 56), 1);
	assert_int_equal(tp_le32(p + 60), 262144);
	assert_int_equal(tp_le64(p + 64), 1234567);
	assert_int_equal(tp_le64(p + 72), n);
	for (size_t i = 80; i < 504; i++)
		assert_int_equal(p[i], 0);
	assert_int_equal(tp_le64(p + 504), XXH64(p, 504, 0));
	for (size_t i = 512; i < 4096; i++)
		assert_int_equal(p[i], 0);
	assert_int_equal(tp_le32(p + 4096), 0xFD2FB528);
	free(p);
	small_image_free(&t);
}

static void footer(void **state)
{
	struct small_image t;
	uint8_t *p, *f;
	uint64_t index;
	size_t n;

	(void)state;
	small_image_make(&t);
	p = file_bytes(t.fd, &n);
	f = p + n - 128;
	assert_int_equal(tp_le32(f), 0x184D2A5D);
	assert_int_equal(tp_le32(f + 4), 120);
	assert_memory_equal(f + 8, "TORPORF1", 8);
	assert_memory_equal(f + 16, "0123456789abcdef", 16);
	index = tp_le64(f + 32);
	assert_int_equal(index + tp_le64(f + 40), n - 128);
	assert_int_equal(tp_le64(f + 48), 3);
	assert_int_equal(tp_le64(f + 56), t.raw.len);
	assert_int_equal(tp_le64(f + 64), 8);
	assert_int_equal(tp_le64(f + 72), 4);
	assert_int_equal(tp_le64(f + 80), 3);
	assert_int_equal(f[88], 12);
	assert_int_equal(f[89], 1);
	assert_int_equal(tp_le16(f + 90), 2);
	assert_int_equal(tp_le32(f + 92), 0);
	assert_int_equal(tp_le64(f + 96), XXH64(p + index + 40, tp_le64(f + 40) - 40, 0));
	assert_int_equal(tp_le64(f + 112), 0);
	assert_int_equal(tp_le64(f + 120), XXH64(f, 120, 0));
	assert_int_equal(t.sealed.footer_checksum, tp_le64(f + 120));
	assert_int_equal(tp_le32(p + index), 0x184D2A5D);
	assert_int_equal(tp_le32(p + index + 4), tp_le64(f + 40) - 8);
	assert_memory_equal(p + index + 8, "TORPORX1", 8);
	assert_int_equal(tp_le64(p + index + 24), tp_le64(f + 40) - 40);
	assert_int_equal(tp_le64(p + index + 32), tp_le64(f + 96));
	free(p);
	small_image_free(&t);
}

static void frames_sum(void **state)
{
	struct small_image t;
	struct image_decoder *d = image_decoder_new(NULL);
	struct image *img;
	uint8_t *p, raw[65536], sums[24];
	size_t n;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, NULL);
	assert_non_null(img);
	for (unsigned i = 0; i < 3; i++) {
		uint32_t sum;

		assert_true(image_frame_read(img, d, i, raw, &sum, NULL));
		tp_put_le32(sums + 8 * i, image_frame_raw(img, i));
		tp_put_le32(sums + 8 * i + 4, sum);
		assert_int_equal(sum, (uint32_t)XXH64(raw, image_frame_raw(img, i), 0));
	}
	p = file_bytes(t.fd, &n);
	assert_int_equal(tp_le64(p + n - 128 + 104), XXH64(sums, 24, 0));
	free(p);
	image_decoder_free(d);
	image_close(img);
	small_image_free(&t);
}

static uint8_t *body_of(const uint8_t *p, size_t n, size_t *length)
{
	uint64_t index = tp_le64(p + n - 128 + 32), stored = tp_le64(p + index + 24);
	uint8_t *body;

	*length = tp_le64(p + index + 16);
	body = malloc(*length);
	assert_non_null(body);
	assert_int_equal(ZSTD_decompress(body, *length, p + index + 40, stored), *length);
	return body;
}

static const uint8_t *chunk(const uint8_t **at, uint32_t type, uint64_t length)
{
	const uint8_t *p = *at;

	assert_int_equal(tp_le32(p), type);
	assert_int_equal(tp_le32(p + 4), 1);
	assert_int_equal(tp_le64(p + 8), length);
	*at = p + 16 + (length + 7) / 8 * 8;
	return p + 16;
}

static void check_body(const struct small_image *t, const uint8_t *body, size_t n)
{
	static const uint8_t extents[] = { 3, 0, 5, 2 };	/* pages 0..2 frame 0, 3..7 frame 1 */
	const uint8_t *at = body, *p = chunk(&at, 2, 8 + 2 * (1 + 3 + 32));

	assert_int_equal(tp_le32(p), 2);
	assert_int_equal(tp_le32(p + 4), 12);
	assert_memory_equal(p + 8, "\3ram", 4);
	assert_int_equal(tp_le64(p + 12), 6 * 4096);
	assert_int_equal(tp_le64(p + 20), 4096);
	assert_true(tp_le64(p + 28) == UINT64_MAX);
	assert_int_equal(tp_le64(p + 36), 0);
	assert_memory_equal(p + 44, "\3rom", 4);
	p = chunk(&at, 3, 3 * 12);
	assert_int_equal(tp_le32(p + 12), t->frame_end[0]);
	assert_int_equal(tp_le32(p + 16), t->frame_end[1] - t->frame_end[0]);
	assert_memory_equal(p + 24, "\xff\xff\0\0\1\0", 6);
	assert_memory_equal(p + 30, "\1\0\5\0\2\0", 6);
	p = chunk(&at, 4, 2);
	assert_int_equal(p[0], 2 | 1 << 2 | 1 << 4 | 2 << 6);
	assert_int_equal(p[1], 2 | 0 << 2 | 1 << 4 | 2 << 6);
	p = chunk(&at, 5, sizeof(extents));
	assert_memory_equal(p, extents, sizeof(extents));
	p = chunk(&at, 6, 4 * 24);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(tp_le32(p + 24 * i), t->spans[i].kind);
		assert_int_equal(tp_le64(p + 24 * i + 8), t->spans[i].offset);
		assert_int_equal(tp_le64(p + 24 * i + 16), t->spans[i].length);
	}
	assert_int_equal(at - body, n);
}

static void index_body(void **state)
{
	struct small_image t;
	uint8_t *p, *body;
	size_t n, length;

	(void)state;
	small_image_make(&t);
	p = file_bytes(t.fd, &n);
	body = body_of(p, n, &length);
	check_body(&t, body, length);
	free(body);
	free(p);
	small_image_free(&t);
}

static void reads_back(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	const struct image_info *i;
	struct small_image t;
	struct image *img;
	uint64_t offset, length;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, &err);
	if (!img)
		fail_msg("%s", err.text);
	i = image_info(img);
	assert_int_equal(i->frames, 3);
	assert_int_equal(i->raw_bytes, t.raw.len);
	assert_int_equal(i->created_us, 1234567);
	assert_int_equal(i->footer_checksum, t.sealed.footer_checksum);
	assert_int_equal(i->blocks, 2);
	assert_string_equal(image_block(img, 1)->id, "rom");
	assert_int_equal(image_block(img, 1)->first_page, 6);
	assert_true(image_range(img, IMAGE_RANGE_VMDESC, 0, &offset, &length));
	assert_int_equal(offset + length, t.raw.len);
	assert_false(image_range(img, IMAGE_RANGE_EARLY, 0, &offset, &length));
	if (!image_verify(img, 3, NULL, NULL, NULL, &err))
		fail_msg("%s", err.text);
	image_close(img);
	small_image_free(&t);
}

/* Made by `test_image_format FILE` when format 1.0 was defined; never to be made again. */
static void golden_file(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	int fd = open("tests/data/images/v1.0.img", O_RDONLY | O_CLOEXEC);
	struct image_decoder *d = image_decoder_new(NULL);
	struct small_image t;
	struct image *img;
	uint8_t raw[65536];
	size_t n = 0;

	(void)state;
	assert_true(fd >= 0);
	img = image_open(fd, &err);
	if (!img || !image_verify(img, 1, NULL, NULL, NULL, &err))
		fail_msg("%s", err.text);
	small_image_make(&t);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(image_frame_read(img, d, i, raw + n, NULL, NULL));
		n += image_frame_raw(img, i);
	}
	assert_int_equal(n, t.raw.len);
	assert_memory_equal(raw, t.raw.data, n);
	assert_memory_equal(image_info(img)->uuid, "0123456789abcdef", 16);
	image_decoder_free(d);
	image_close(img);
	close(fd);
	small_image_free(&t);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header),
		cmocka_unit_test(footer),
		cmocka_unit_test(frames_sum),
		cmocka_unit_test(index_body),
		cmocka_unit_test(reads_back),
		cmocka_unit_test(golden_file),
	};

	/* `test_image_format FILE` writes the golden image. */
	if (argc > 1) {
		struct small_image t;
		uint8_t *p;
		size_t n;
		FILE *f = fopen(argv[1], "wx");

		small_image_make(&t);
		p = file_bytes(t.fd, &n);
		return f && fwrite(p, 1, n, f) == n && !fclose(f) ? 0 : 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
