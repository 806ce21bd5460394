/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_image_copy.c - A copy of an image: whole, gone on with, damaged on either side */
#include <fcntl.h>

#include "fake/fake_image.h"
#include "image_test.h"
#include "storage/image_copy.h"

#define FRAMES 40u
#define FRAME 50000u

struct fixture {
	struct fake_image source;
	int copy;
	uint64_t footer, told;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct tp_error err = TP_ERROR_INIT;
	struct image *img;

	assert_non_null(f);
	fake_image_make(&f->source, FRAMES, FRAME);
	img = image_open(f->source.fd, &err);
	assert_non_null(img);
	f->footer = image_info(img)->footer_checksum;
	image_close(img);
	f->copy = memfd_create("copy", MFD_CLOEXEC);
	assert_true(f->copy >= 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	close(f->copy);
	fake_image_free(&f->source);
	free(f);
	return 0;
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct fixture *f = arg;

	assert_true(done >= f->told && done <= total);
	f->told = done;
}

static bool copy(struct fixture *f, struct image_copy_result *r, struct tp_error *err)
{
	const struct image_copy_options o = { .source_fd = f->source.fd, .copy_fd = f->copy, .footer = f->footer,
					      .progress = on_progress, .arg = f };

	f->told = 0;
	return image_copy(&o, r, err);
}

static void assert_equal_files(const struct fixture *f)
{
	size_t n, m;
	uint8_t *a = file_bytes(f->source.fd, &n), *b = file_bytes(f->copy, &m);

	assert_int_equal(n, m);
	assert_memory_equal(a, b, n);
	free(a);
	free(b);
}

static void assert_copied(struct fixture *f, uint64_t kept)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image_copy_result r;

	if (!copy(f, &r, &err))
		fail_msg("%s", err.text);
	assert_int_equal(r.kept, kept);
	assert_int_equal(r.kept + r.copied, r.file_bytes);
	assert_int_equal(f->told, r.file_bytes);
	assert_equal_files(f);
}

static void whole(void **state)
{
	assert_copied(*state, 0);
}

static uint64_t frame_end(const struct fixture *f, unsigned frames)
{
	return f->source.first_frame + frames * f->source.frame_bytes;
}

/* Cut in every frame and at its ends: what is whole is kept. */
static void goes_on(void **state)
{
	struct fixture *f = *state;

	assert_copied(f, 0);
	for (unsigned n = 0; n <= FRAMES; n += 5) {
		assert_int_equal(ftruncate(f->copy, (off_t)frame_end(f, n)), 0);
		assert_copied(f, n * f->source.frame_bytes);
		assert_int_equal(ftruncate(f->copy, (off_t)frame_end(f, n) + 100), 0);
		assert_copied(f, n * f->source.frame_bytes);
	}
}

/* What a power cut leaves: zeros in the middle, then good frames; an older copy that is longer. */
static void trusts_nothing_that_is_there(void **state)
{
	struct fixture *f = *state;
	static const char zeros[100];

	assert_copied(f, 0);
	assert_int_equal(pwrite(f->copy, zeros, sizeof(zeros), (off_t)frame_end(f, 7) + 1000), sizeof(zeros));
	assert_copied(f, 7 * f->source.frame_bytes);
	assert_int_equal(pwrite(f->copy, "x", 1, (off_t)f->told + 5000), 1);
	assert_int_equal(pwrite(f->copy, zeros, sizeof(zeros), 0), sizeof(zeros));
	{
		struct tp_error err = TP_ERROR_INIT;
		struct image_copy_result r;

		assert_true(copy(f, &r, &err));
		assert_equal_files(f);
	}
}

static void damaged_source(void **state)
{
	struct fixture *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct image_copy_result r;
	uint8_t header[IMAGE_HEADER_SIZE], zeros[IMAGE_HEADER_SIZE] = { 0 };

	fake_image_flip(&f->source, frame_end(f, 12) + 4000);
	assert_false(copy(f, &r, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "frame 12 at offset"));
	/* It is no image: its header was not written. */
	assert_int_equal(pread(f->copy, header, sizeof(header), 0), sizeof(header));
	assert_memory_equal(header, zeros, sizeof(header));
	fake_image_flip(&f->source, frame_end(f, 12) + 4000);
	assert_copied(f, 12 * f->source.frame_bytes);
}

/* Each frame good by itself, in another order: the footer's sum tells. */
static void exchanged_frames(void **state)
{
	struct fixture *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct image_copy_result r;

	fake_image_swap(&f->source, 3, 9);
	assert_false(copy(f, &r, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
}

static void another_image(void **state)
{
	struct fixture *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct image_copy_result r;

	f->footer ^= 1;
	assert_false(copy(f, &r, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "manifest names"));
}

static void copy_cannot_be_written(void **state)
{
	struct fixture *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct image_copy_result r;
	int full = open("/dev/full", O_RDWR | O_CLOEXEC);

	assert_true(full >= 0);
	close(f->copy);
	f->copy = full;
	assert_false(copy(f, &r, &err));
	assert_string_equal(tp_error_class(&err), "InsufficientSpace");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(whole, setup, teardown),
		cmocka_unit_test_setup_teardown(goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(trusts_nothing_that_is_there, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged_source, setup, teardown),
		cmocka_unit_test_setup_teardown(exchanged_frames, setup, teardown),
		cmocka_unit_test_setup_teardown(another_image, setup, teardown),
		cmocka_unit_test_setup_teardown(copy_cannot_be_written, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
