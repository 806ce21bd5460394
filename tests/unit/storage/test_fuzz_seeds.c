/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_fuzz_seeds.c - The seeds of fuzz_container are whole images
 *
 * A seed that is refused at the door would leave the fuzzer before it, and nobody would notice. The
 * maker of images is compiled in here, as it belongs to no layer.
 */
#include "image_test.h"

#include <fcntl.h>

#include "fuzz/container.c"	/* NOLINT(bugprone-suspicious-include) */

/* In the first frame of v1.0: the byte of a run of sixteen in a guest page. */
#define RUN 404

static int image_of(const char *seed, unsigned *options, size_t damage)
{
	uint8_t data[65536], *file;
	int fd = open(seed, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	size_t length;

	assert_true(fd >= 0);
	n = read(fd, data, sizeof(data));
	close(fd);
	assert_true(n > 0);
	if (damage)
		data[damage] ^= 1;
	file = container_make(data, (size_t)n, &length, options);
	fd = memfd_create("image", MFD_CLOEXEC);
	assert_int_equal(write(fd, file, length), (ssize_t)length);
	free(file);
	return fd;
}

static void seeds_are_whole_images(void **state)
{
	static const struct { const char *path; unsigned options; } seeds[] = {
		{ "tests/fuzz/corpus/fuzz_container/v1.0", 0 },
		{ "tests/fuzz/corpus/fuzz_container/v1.0-salvage", CONTAINER_SALVAGE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
		struct tp_error err = TP_ERROR_INIT;
		unsigned options;
		int fd = image_of(seeds[i].path, &options, 0);
		struct image *img = image_open(fd, &err);

		if (!img || !image_verify(img, 1, NULL, NULL, NULL, &err))
			fail_msg("%s: %s", seeds[i].path, err.text);
		assert_int_equal(options, seeds[i].options);
		assert_int_equal(image_info(img)->frames, 3);
		image_close(img);
		close(fd);
	}
}

/* A byte of a guest page: all sums are made anew, and the image is another whole one. */
static void a_changed_page_is_behind_the_checksums(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	uint64_t before, after;
	unsigned options;
	struct image *img;
	int fd;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		fd = image_of("tests/fuzz/corpus/fuzz_container/v1.0", &options, i ? RUN : 0);
		img = image_open(fd, &err);
		if (!img || !image_verify(img, 1, NULL, NULL, NULL, &err))
			fail_msg("%s", err.text);
		*(i ? &after : &before) = image_info(img)->footer_checksum;
		image_close(img);
		close(fd);
	}
	assert_true(before != after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeds_are_whole_images),
		cmocka_unit_test(a_changed_page_is_behind_the_checksums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
