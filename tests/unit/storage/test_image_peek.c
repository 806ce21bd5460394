/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_image_peek.c - Header and footer alone tell a sealed image from all else */
#include "pool_test.h"

#include <sys/mman.h>

#include "storage/image_peek.h"

static int sealed(uint64_t *sum)
{
	int fd = memfd_create("image", MFD_CLOEXEC);

	assert_true(fd >= 0);
	*sum = seal_image(fd, 1);
	return fd;
}

static void put_header(int fd, struct image_header *h)
{
	tp_put_le64(&h->checksum, XXH64(h, offsetof(struct image_header, checksum), 0));
	assert_int_equal(pwrite(fd, h, sizeof(*h), 0), sizeof(*h));
}

static void sealed_image_is_known(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	uint64_t sum, found = 0;
	uint8_t uuid[16];
	int fd = sealed(&sum);

	(void)state;
	assert_ok(image_footer_peek(fd, &found, uuid, &err), &err);
	assert_true(found == sum);
	for (uint8_t i = 0; i < 16; i++)
		assert_int_equal(uuid[i], i);
	close(fd);
}

static void any_flipped_bit_shows(void **state)
{
	uint64_t sum, found = 7;
	uint8_t uuid[16] = { 99 };
	int fd = sealed(&sum);

	(void)state;
	for (size_t i = 0; i < sizeof(struct image_header) + sizeof(struct image_footer); i++) {
		off_t at_ = i < sizeof(struct image_header) ? (off_t)i :
			    8192 - (off_t)(sizeof(struct image_header) + sizeof(struct image_footer) - i);
		struct tp_error err = TP_ERROR_INIT;
		uint8_t was, changed;

		assert_int_equal(pread(fd, &was, 1, at_), 1);
		changed = was ^ (uint8_t)(1u << i % 8);
		assert_int_equal(pwrite(fd, &changed, 1, at_), 1);
		if (image_footer_peek(fd, &found, uuid, &err))
			fail_msg("flip at %lld was not noticed", (long long)at_);
		assert_int_equal(err.code, TP_ECORRUPT);
		assert_int_equal(pwrite(fd, &was, 1, at_), 1);
	}
	assert_int_equal(found, 7);
	assert_int_equal(uuid[0], 99);
	close(fd);
}

static void what_is_not_whole_or_newer(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image_header h, changed;
	uint64_t sum;
	uint8_t uuid[16];
	int fd = sealed(&sum);

	(void)state;
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	changed = h;
	tp_put_le64(&changed.sealed_size, 0);
	put_header(fd, &changed);
	assert_false(image_footer_peek(fd, &sum, uuid, &err));
	assert_failed(&err, "Corrupt", "never completed");
	changed = h;
	tp_put_le16(&changed.major, 2);
	put_header(fd, &changed);
	assert_false(image_footer_peek(fd, &sum, uuid, &err));
	assert_failed(&err, "Unsupported", "newer format");
	changed = h;
	tp_put_le64(&changed.incompatible, 1u << 9);
	put_header(fd, &changed);
	assert_false(image_footer_peek(fd, &sum, uuid, &err));
	assert_failed(&err, "Unsupported", "features 0x200");
	changed = h;
	changed.uuid[3] ^= 1;
	put_header(fd, &changed);
	assert_false(image_footer_peek(fd, &sum, uuid, &err));
	assert_failed(&err, "Corrupt", "another image");
	put_header(fd, &h);
	/* One byte more, one less, hardly any, none. */
	assert_int_equal(ftruncate(fd, 8193), 0);
	assert_false(image_footer_peek(fd, &sum, uuid, &err));
	assert_failed(&err, "Corrupt", "8192 bytes expected");
	assert_int_equal(ftruncate(fd, 8191), 0);
	assert_false(image_footer_peek(fd, &sum, uuid, &err));
	assert_failed(&err, "Corrupt", "8192 bytes expected");
	assert_int_equal(ftruncate(fd, 4223), 0);
	assert_false(image_footer_peek(fd, &sum, uuid, &err));
	assert_failed(&err, "Corrupt", "no whole image");
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_false(image_footer_peek(fd, &sum, uuid, &err));
	assert_failed(&err, "Corrupt", "no whole image");
	close(fd);
	assert_false(image_footer_peek(-1, &sum, uuid, &err));
	assert_failed(&err, "IOError", "Bad file descriptor");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sealed_image_is_known),
		cmocka_unit_test(any_flipped_bit_shows),
		cmocka_unit_test(what_is_not_whole_or_newer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
