/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_page_cache.c - An image does not stay in the page cache, neither written nor read */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "fake/fake_stream.h"
#include "migration/save_pump.h"
#include "storage/image_read.h"

#define MIB 48			/* more than what lies between writing and dropping */
#define TMPFS 0x01021994	/* a page cache is all that it is */
#define FEW 0.05		/* pages at the ends of ranges, and what is just being written */

static double resident(int fd)
{
	size_t n = (size_t)lseek(fd, 0, SEEK_END), pages = (n + 4095) / 4096, there = 0;
	tp_autofree unsigned char *seen = calloc(pages, 1);
	void *at = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(mincore(at, n, seen), 0);
	munmap(at, n);
	for (size_t i = 0; i < pages; i++)
		there += seen[i] & 1;
	return (double)there / (double)pages;
}

static void save(int fd)
{
	struct save_pump_options o = { .image_fd = fd, .threads = 2 };
	struct tp_error err = TP_ERROR_INIT;
	struct fake_stream s = { 0 };
	struct save_result r;
	pid_t pid;

	assert_true(fake_stream_make(&s, MIB, FAKE_RANDOM));
	pid = fake_stream_feed(&s, &o.stream_fd);
	assert_true(pid > 0);
	assert_true(save_pump_run(&o, &r, &err));
	save_result_free(&r);
	close(o.stream_fd);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	free(s.data);
}

static void read_all(int fd)
{
	tp_autofree char *buf = malloc(1 << 20);

	for (off_t at = 0; pread(fd, buf, 1 << 20, at) > 0; at += 1 << 20)
		;
}

static void it_goes_as_it_came(void **state)
{
	char path[] = "/var/tmp/torpor-test-XXXXXX";
	tp_autoclose int fd = mkostemp(path, O_CLOEXEC);
	struct tp_error err = TP_ERROR_INIT;
	struct image *img;
	struct statfs fs;

	(void)state;
	assert_true(fd >= 0);
	unlink(path);
	if (fstatfs(fd, &fs) || fs.f_type == TMPFS)
		skip();
	save(fd);
	assert_true(resident(fd) < FEW);

	img = image_open(fd, &err);
	assert_non_null(img);
	read_all(fd);
	assert_true(resident(fd) > 0.9);
	image_frames_forget(img, 0, image_info(img)->frames / 2);
	assert_true(resident(fd) < 0.5 + FEW && resident(fd) > 0.5 - FEW);
	image_frames_forget(img, image_info(img)->frames / 2, image_info(img)->frames);
	assert_true(resident(fd) < FEW);
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(it_goes_as_it_came) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
