/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_buf.c - The growable buffer and its limit, scope cleanup */
/*
 * link: -Wl,--wrap=realloc
 */
#include "base_test.h"

#include <errno.h>
#include <fcntl.h>

#include "base/tp_buf.h"

static bool no_memory;

void *__wrap_realloc(void *p, size_t n);
void *__real_realloc(void *p, size_t n);

void *__wrap_realloc(void *p, size_t n)
{
	return no_memory ? NULL : __real_realloc(p, n);
}

static void grows_and_terminates(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	int i;

	(void)state;
	for (i = 0; i < 10000; i++)
		assert_true(tp_buf_printf(&b, "%d,", i % 10));
	assert_int_equal(b.len, 20000);
	assert_int_equal(strlen(b.data), 20000);
	assert_true(tp_buf_add(&b, "\0x", 2));
	assert_int_equal(b.len, 20002);
	assert_int_equal(b.data[20002], 0);
	assert_memory_equal(b.data + 20000, "\0x", 2);
}

static void empty_adds(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

	(void)state;
	assert_true(tp_buf_add(&b, NULL, 0));
	assert_true(tp_buf_adds(&b, ""));
	assert_string_equal(b.data, "");
	assert_int_equal(b.len, 0);
}

static void limit_is_exact(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(5);

	(void)state;
	assert_true(tp_buf_adds(&b, "abc"));
	assert_false(tp_buf_adds(&b, "def"));
	assert_string_equal(b.data, "abc");
	assert_false(tp_buf_printf(&b, "%d", 123));
	assert_string_equal(b.data, "abc");
	assert_true(tp_buf_adds(&b, "de"));
	assert_string_equal(b.data, "abcde");
	assert_false(tp_buf_adds(&b, "f"));
	assert_false(tp_buf_reserve(&b, 1));
	assert_true(tp_buf_reserve(&b, 0));
	assert_int_equal(b.len, 5);
}

static void capacity_respects_limit(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(1000);

	(void)state;
	assert_true(tp_buf_reserve(&b, 600));
	assert_true(tp_buf_reserve(&b, 900));
	assert_true(b.cap <= 1001);
	b.limit = SIZE_MAX;
	assert_true(tp_buf_reserve(&b, 2000));
}

static void sizes_overflow(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

	(void)state;
	assert_true(tp_buf_adds(&b, "abc"));
	assert_false(tp_buf_reserve(&b, SIZE_MAX));
	assert_false(tp_buf_reserve(&b, SIZE_MAX - 3));
	assert_false(tp_buf_reserve(&b, SIZE_MAX / 2));
	assert_string_equal(b.data, "abc");
}

static void out_of_memory_changes_nothing(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	char big[500];

	(void)state;
	assert_true(tp_buf_adds(&b, "abc"));
	memset(big, 'x', sizeof(big));
	no_memory = true;
	assert_false(tp_buf_add(&b, big, sizeof(big)));
	assert_false(tp_buf_printf(&b, "%.*s", (int)sizeof(big), big));
	no_memory = false;
	assert_string_equal(b.data, "abc");
	assert_int_equal(b.len, 3);
	assert_true(tp_buf_add(&b, big, sizeof(big)));
}

static void drop_from_front(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

	(void)state;
	tp_buf_drop(&b, 3);
	assert_true(tp_buf_adds(&b, "abcdef"));
	tp_buf_drop(&b, 0);
	tp_buf_drop(&b, 2);
	assert_string_equal(b.data, "cdef");
	tp_buf_drop(&b, 100);
	assert_string_equal(b.data, "");
	assert_int_equal(b.len, 0);
}

static void steal_and_reuse(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(10);
	char *text;

	(void)state;
	text = tp_buf_steal(&b);
	assert_string_equal(text, "");
	free(text);
	assert_true(tp_buf_adds(&b, "abc"));
	text = tp_buf_steal(&b);
	assert_string_equal(text, "abc");
	free(text);
	assert_null(b.data);
	assert_true(tp_buf_adds(&b, "0123456789"));
	tp_buf_free(&b);
	tp_buf_free(&b);
	assert_true(tp_buf_adds(&b, "again"));
	assert_string_equal(b.data, "again");
}

static int opened_in_scope(void)
{
	tp_autoclose int a = open("/dev/null", O_RDONLY | O_CLOEXEC);
	tp_autoclose int b = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(a >= 0 && b >= 0);
	return TP_STEAL_FD(b);
}

static void scope_cleanup(void **state)
{
	unsigned before = open_fds();
	tp_autofree char *p = NULL;
	char *q = malloc(1);
	int fd;

	(void)state;
	fd = opened_in_scope();
	assert_int_equal(open_fds(), before + 1);
	assert_int_not_equal(fcntl(fd, F_GETFD), -1);
	errno = ENOSPC;
	tp_close(&fd);
	assert_int_equal(fd, -1);
	tp_close(&fd);
	fd = 1000000;	/* not open: EBADF stays inside */
	tp_close(&fd);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(open_fds(), before);
	p = TP_STEAL(q);
	assert_null(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grows_and_terminates),
		cmocka_unit_test(empty_adds),
		cmocka_unit_test(limit_is_exact),
		cmocka_unit_test(capacity_respects_limit),
		cmocka_unit_test(sizes_overflow),
		cmocka_unit_test(out_of_memory_changes_nothing),
		cmocka_unit_test(drop_from_front),
		cmocka_unit_test(steal_and_reuse),
		cmocka_unit_test(scope_cleanup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
