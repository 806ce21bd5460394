/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qcow2.c - qcow2 headers, sound and hostile */
#include "pool_test.h"

#include <sys/mman.h>

#include "storage/qcow2.h"

#define CLUSTER 4096
#define SIZE (4 * CLUSTER)
#define EXT_FORMAT 0xe2792acau
#define EXT_BITMAPS 0x23852875u
#define EXT_DATA 0x44415441u

/* A version 3 image: backing name at 1024, a table of two snapshots at 4096, bitmaps at 8192. */
static size_t put_ext(uint8_t *image, size_t at_, uint32_t type, const void *data, uint32_t n)
{
	tp_put_be32(image + at_, type);
	tp_put_be32(image + at_ + 4, n);
	memcpy(image + at_ + 8, data, n);
	return at_ + 8 + ((n + 7) & ~7u);
}

static size_t put_snapshot(uint8_t *image, size_t at_, const char *id, const char *name)
{
	tp_put_be16(image + at_ + 12, (uint16_t)strlen(id));
	tp_put_be16(image + at_ + 14, (uint16_t)strlen(name));
	tp_put_be32(image + at_ + 36, 24);
	memcpy(image + at_ + 64, id, strlen(id));
	memcpy(image + at_ + 64 + strlen(id), name, strlen(name));
	return (at_ + 64 + strlen(id) + strlen(name) + 7) & ~(size_t)7;
}

static void make_image(uint8_t image[SIZE])
{
	uint8_t bitmaps[24] = { 0 };
	size_t end;

	memset(image, 0, SIZE);
	tp_put_be32(image, 0x514649fb);
	tp_put_be32(image + 4, 3);
	tp_put_be64(image + 8, 1024);
	tp_put_be32(image + 16, 9);
	tp_put_be32(image + 20, 12);
	tp_put_be64(image + 24, 1 << 30);
	tp_put_be32(image + 60, 2);
	tp_put_be64(image + 64, 4096);
	tp_put_be64(image + 72, QCOW2_INCOMPAT_DATA_FILE);
	tp_put_be32(image + 100, 104);
	tp_put_be32(bitmaps, 1);
	tp_put_be64(bitmaps + 8, 64);
	tp_put_be64(bitmaps + 16, 8192);
	end = put_ext(image, 104, EXT_FORMAT, "raw", 3);
	end = put_ext(image, end, 0x6803f857, "feature table", 13);
	end = put_ext(image, end, EXT_DATA, "data.raw", 8);
	put_ext(image, end, EXT_BITMAPS, bitmaps, 24);
	memcpy(image + 1024, "base.disk", 9);
	end = put_snapshot(image, 4096, "1", "before");
	put_snapshot(image, end, "2", "after the update");
	memset(image + 8192, 7, 64);
}

static int open_image(const uint8_t *image, size_t n)
{
	int fd = memfd_create("qcow2", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, image, n), (ssize_t)n);
	return fd;
}

static void header_is_understood(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct qcow2_sums sums, again;
	uint8_t image[SIZE];
	struct qcow2 q;
	int fd;

	(void)state;
	make_image(image);
	fd = open_image(image, SIZE);
	assert_true(qcow2_probe(fd));
	assert_ok(qcow2_read(fd, &q, &err), &err);
	assert_int_equal(q.version, 3);
	assert_int_equal(q.cluster_bits, 12);
	assert_int_equal(q.virtual_size, 1 << 30);
	assert_int_equal(q.snapshots, 2);
	assert_int_equal(q.bitmaps, 1);
	assert_int_equal(q.bitmaps_size, 64);
	assert_string_equal(q.backing, "base.disk");
	assert_string_equal(q.backing_format, "raw");
	assert_string_equal(q.data_file, "data.raw");
	assert_ok(qcow2_sums(fd, &q, &sums, &err), &err);
	/* Each sum sees its own part only. */
	assert_int_equal(pwrite(fd, "B", 1, 4096 + 65), 1);
	assert_ok(qcow2_sums(fd, &q, &again, &err), &err);
	assert_true(again.snapshots != sums.snapshots);
	assert_true(again.header == sums.header && again.bitmaps == sums.bitmaps);
	assert_int_equal(pwrite(fd, "B", 1, 8192 + 63), 1);
	assert_ok(qcow2_sums(fd, &q, &sums, &err), &err);
	assert_true(again.bitmaps != sums.bitmaps && again.snapshots == sums.snapshots);
	assert_int_equal(pwrite(fd, "B", 1, 1024), 1);
	assert_ok(qcow2_sums(fd, &q, &again, &err), &err);
	assert_true(again.header != sums.header && again.bitmaps == sums.bitmaps);
	assert_int_equal(pwrite(fd, "B", 1, 12288), 1);
	assert_ok(qcow2_sums(fd, &q, &sums, &err), &err);
	assert_memory_equal(&sums, &again, sizeof(sums));
	close(fd);
}

static void version_2_has_a_short_header(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct qcow2_sums sums;
	uint8_t image[SIZE];
	struct qcow2 q;
	int fd;

	(void)state;
	make_image(image);
	tp_put_be32(image + 4, 2);
	memset(image + 60, 0, 512);
	fd = open_image(image, 2000);
	assert_ok(qcow2_read(fd, &q, &err), &err);
	assert_int_equal(q.version, 2);
	assert_int_equal(q.header_length, 72);
	assert_int_equal(q.incompatible, 0);
	assert_string_equal(q.backing, "base.disk");
	assert_string_equal(q.backing_format, "");
	assert_ok(qcow2_sums(fd, &q, &sums, &err), &err);
	assert_int_equal(sums.snapshots, 0);
	assert_int_equal(sums.bitmaps, 0);
	close(fd);
}

static const struct { size_t at; unsigned bits; uint64_t value; const char *class_, *part; } bad[] = {
	{ 0, 32, 0x12345678, "Corrupt", "magic" },
	{ 4, 32, 4, "Unsupported", "version 4" },
	{ 20, 32, 8, "Corrupt", "2^8" },
	{ 20, 32, 22, "Corrupt", "2^22" },
	{ 20, 32, 0xffffffff, "Corrupt", "cluster size" },
	{ 24, 64, 1ull << 63, "Corrupt", "virtual size" },
	{ 60, 32, 65537, "Corrupt", "65537 snapshots" },
	{ 100, 32, 103, "Corrupt", "header of 103" },
	{ 100, 32, 4097, "Corrupt", "header of 4097" },
	{ 16, 32, 1024, "Corrupt", "backing file name" },
	{ 8, 64, 5000, "Corrupt", "backing file name" },
	{ 8, 64, 90, "Corrupt", "backing file name" },
	{ 8, 64, UINT64_MAX, "Corrupt", "backing file name" },
	{ 8, 64, 4090, "Corrupt", "backing file name" },
	{ 108, 32, 0xffffffff, "Corrupt", "runs over" },
	{ 108, 32, 920, "Corrupt", "runs over" },
	{ 108, 32, 33, "Corrupt", "backing format" },
};

static void hostile_headers_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++) {
		struct tp_error err = TP_ERROR_INIT;
		uint8_t image[SIZE];
		struct qcow2 q;
		int fd;

		make_image(image);
		if (bad[i].bits == 32)
			tp_put_be32(image + bad[i].at, (uint32_t)bad[i].value);
		else
			tp_put_be64(image + bad[i].at, bad[i].value);
		fd = open_image(image, SIZE);
		if (qcow2_read(fd, &q, &err))
			fail_msg("row %zu was accepted", i);
		assert_failed(&err, bad[i].class_, bad[i].part);
		close(fd);
	}
}

static void hostile_tables_are_refused(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct qcow2_sums sums;
	uint8_t image[SIZE];
	struct qcow2 q, changed;
	int fd;

	(void)state;
	make_image(image);
	fd = open_image(image, SIZE);
	assert_ok(qcow2_read(fd, &q, &err), &err);
	changed = q;
	changed.snapshots_offset = UINT64_MAX - 8;
	assert_false(qcow2_sums(fd, &changed, &sums, &err));
	assert_failed(&err, "Corrupt", "out of range");
	changed.snapshots_offset = SIZE - 16;
	assert_false(qcow2_sums(fd, &changed, &sums, &err));
	assert_failed(&err, "Corrupt", "ends inside its snapshot table");
	changed = q;
	changed.bitmaps_offset = SIZE - 32;
	assert_false(qcow2_sums(fd, &changed, &sums, &err));
	assert_failed(&err, "Corrupt", "ends inside its bitmap directory");
	changed = q;
	changed.snapshots = 65536;
	assert_false(qcow2_sums(fd, &changed, &sums, &err));
	assert_failed(&err, "Corrupt", "snapshot table");
	tp_put_be32(image + 4096 + 36, 1025);
	assert_int_equal(pwrite(fd, image, SIZE, 0), SIZE);
	assert_false(qcow2_sums(fd, &q, &sums, &err));
	assert_failed(&err, "Corrupt", "entry 0");
	close(fd);
	/* Bitmaps: none of them, too many, in no or too many bytes, an extension of another length. */
	for (int i = 0; i < 5; i++) {
		size_t ext = 104 + 16 + 24 + 16;	/* behind three others */

		make_image(image);
		assert_int_equal(tp_be32(image + ext), EXT_BITMAPS);
		if (i == 0)
			tp_put_be32(image + ext + 8, 0);
		else if (i == 1)
			tp_put_be32(image + ext + 8, 65536);
		else if (i == 2)
			tp_put_be64(image + ext + 16, 0);
		else if (i == 3)
			tp_put_be64(image + ext + 16, QCOW2_TABLE_MAX + 1);
		else
			tp_put_be32(image + ext + 4, 16);
		fd = open_image(image, SIZE);
		assert_false(qcow2_read(fd, &q, &err));
		assert_failed(&err, "Corrupt", "bitmap");
		close(fd);
	}
}

static void names_with_nul_are_refused(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	uint8_t image[SIZE];
	struct qcow2 q;
	int fd;

	(void)state;
	make_image(image);
	image[1026] = 0;
	fd = open_image(image, SIZE);
	assert_false(qcow2_read(fd, &q, &err));
	assert_failed(&err, "Corrupt", "backing file name");
	close(fd);
}

static void cut_anywhere(void **state)
{
	uint8_t image[SIZE];

	(void)state;
	make_image(image);
	for (size_t n = 0; n < SIZE; n += n < 1100 ? 1 : 61) {
		struct tp_error err = TP_ERROR_INIT;
		int fd = open_image(image, n);
		struct qcow2_sums sums;
		struct qcow2 q;

		/* The last byte that is looked at is the bitmap directory's. */
		if (qcow2_read(fd, &q, &err) && qcow2_sums(fd, &q, &sums, &err))
			assert_true(n >= 8192 + 64);
		else
			assert_failed(&err, "Corrupt", "qcow2");
		assert_int_equal(qcow2_probe(fd), n >= 4);
		close(fd);
	}
}

/* Any byte changed to anything gives an answer: sound or Corrupt or Unsupported. */
static void flipped_anywhere(void **state)
{
	static const uint8_t values[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	uint8_t image[SIZE];
	int fd;

	(void)state;
	make_image(image);
	fd = open_image(image, SIZE);
	for (size_t i = 0; i < 4096 + 200; i = i == 200 ? 1024 : i == 1040 ? 4096 : i + 1) {
		for (size_t v = 0; v < TP_N(values); v++) {
			struct tp_error err = TP_ERROR_INIT;
			struct qcow2_sums sums;
			struct qcow2 q;

			assert_int_equal(pwrite(fd, &values[v], 1, (off_t)i), 1);
			if (!qcow2_read(fd, &q, &err) || !qcow2_sums(fd, &q, &sums, &err))
				assert_true(err.code == TP_ECORRUPT || err.code == TP_EUNSUPPORTED);
		}
		assert_int_equal(pwrite(fd, &image[i], 1, (off_t)i), 1);
	}
	close(fd);
}

static void what_cannot_be_read_is_no_qcow2(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct qcow2 q;

	(void)state;
	assert_false(qcow2_probe(-1));
	assert_false(qcow2_read(-1, &q, &err));
	assert_failed(&err, "IOError", "Bad file descriptor");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_is_understood),
		cmocka_unit_test(version_2_has_a_short_header),
		cmocka_unit_test(hostile_headers_are_refused),
		cmocka_unit_test(hostile_tables_are_refused),
		cmocka_unit_test(names_with_nul_are_refused),
		cmocka_unit_test(cut_anywhere),
		cmocka_unit_test(flipped_anywhere),
		cmocka_unit_test(what_cannot_be_read_is_no_qcow2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
