/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* base_test.h - What the tests of the base layer share */
#ifndef BASE_TEST_H
#define BASE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/tp_error.h"

static inline unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Whether a system call is lacking: in an old kernel, or under an old valgrind. */
static inline bool lacks_call(long number)
{
	return syscall(number, -1L, 0L, 0L, 0L, 0L, 0L) == -1 && errno == ENOSYS;
}

#define need_call(name) \
	do { \
		if (lacks_call(SYS_##name)) { \
			print_message("# there is no " #name "\n"); \
			skip(); \
		} \
	} while (0)

#define assert_contains(text, part) \
	do { \
		const char *text_ = (text); \
		if (!strstr(text_, part)) \
			fail_msg("\"%s\" lacks \"%s\"", text_, part); \
	} while (0)

#define assert_failed(err, code_, part) \
	do { \
		assert_int_equal((err)->code, code_); \
		assert_contains((err)->text, part); \
		tp_error_clear(err); \
	} while (0)

#endif
