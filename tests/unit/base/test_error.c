/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_error.c - Errors as values, and text that may be foreign */
#include "base_test.h"

#include <errno.h>

#include "base/tp_text.h"

static void first_error_wins(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_false(tp_fail(&err, TP_ELIMIT, "vm %s", "web1"));
	assert_false(tp_fail(&err, TP_ESYS, "cleanup"));
	assert_false(tp_fail_sys(&err, EIO, "cleanup"));
	assert_false(tp_fail_class(&err, TP_EARG, "Busy", "cleanup"));
	assert_false(tp_fail_nomem(&err));
	assert_int_equal(err.code, TP_ELIMIT);
	assert_int_equal(err.sys, 0);
	assert_string_equal(err.class_, "");
	assert_string_equal(err.text, "vm web1");
	tp_error_clear(&err);
	assert_int_equal(err.code, TP_OK);
	assert_string_equal(err.text, "");
	tp_error_clear(NULL);
}

static void null_is_allowed(void **state)
{
	(void)state;
	assert_false(tp_fail(NULL, TP_ESYS, "x"));
	assert_false(tp_fail_sys(NULL, EIO, "x"));
	assert_false(tp_fail_class(NULL, TP_ESYS, "Busy", "x"));
	assert_false(tp_fail_nomem(NULL));
	assert_false(tp_prefix(NULL, "x"));
}

static void sys_tells_reason(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	tp_fail_sys(&err, ENOSPC, "write %s", "op.log");
	assert_int_equal(err.code, TP_ESYS);
	assert_int_equal(err.sys, ENOSPC);
	assert_string_equal(err.text, "write op.log: No space left on device");
	tp_error_clear(&err);
	tp_fail_sys(&err, ENOMEM, "start");
	assert_int_equal(err.code, TP_ENOMEM);
	tp_error_clear(&err);
	tp_fail_nomem(&err);
	assert_int_equal(err.code, TP_ENOMEM);
	assert_int_equal(err.sys, ENOMEM);
}

static void long_text_keeps_reason(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	char name[2 * TP_TEXT_SIZE];

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	tp_fail_sys(&err, ENOENT, "open %s", name);
	assert_int_equal(strlen(err.text), TP_TEXT_SIZE - 1);
	assert_contains(err.text, "n: No such file or directory");
}

static void prefix_goes_in_front(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	char name[2 * TP_TEXT_SIZE];

	(void)state;
	tp_prefix(&err, "nothing to prefix");
	assert_int_equal(err.code, TP_OK);
	assert_string_equal(err.text, "");
	tp_fail(&err, TP_ECORRUPT, "bad footer");
	assert_false(tp_prefix(&err, "image %s", "a"));
	tp_prefix(&err, "resume web1");
	assert_string_equal(err.text, "resume web1: image a: bad footer");
	assert_int_equal(err.code, TP_ECORRUPT);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	tp_prefix(&err, "%s", name);
	assert_true(strlen(err.text) < TP_TEXT_SIZE);
	assert_int_equal(err.text[0], 'n');
}

static void classes(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	int code;

	(void)state;
	assert_string_equal(tp_error_class(&err), "");
	for (code = TP_ESYS; code <= TP_EARG; code++) {
		tp_error_clear(&err);
		tp_fail(&err, (enum tp_code)code, "x");
		assert_true(tp_error_class(&err)[0]);
	}
	tp_error_clear(&err);
	tp_fail(&err, TP_ESYS, "x");
	assert_string_equal(tp_error_class(&err), "IOError");
	err.code = (enum tp_code)99;
	assert_string_equal(tp_error_class(&err), "GenericError");
	tp_error_clear(&err);
	tp_fail_class(&err, TP_ESTATE, "NotFound", "no VM is named \"x\"");
	assert_string_equal(tp_error_class(&err), "NotFound");
	tp_error_clear(&err);
	tp_fail_class(&err, TP_EARG, "AClassNameThatIsLongerThanItsRoomAllows", "x");
	assert_int_equal(strlen(tp_error_class(&err)), TP_CLASS_SIZE - 1);
	tp_error_clear(&err);
	tp_fail_class(&err, TP_ESTATE, NULL, "x");
	assert_string_equal(tp_error_class(&err), "InvalidState");
}

static void foreign_text_is_one_line(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	tp_fail(&err, TP_EQMP, "said \"%s\"", "a\nb\033[2J\177c");
	assert_string_equal(err.text, "said \"a b [2J c\"");
}

static void clean_utf8(void **state)
{
	static const char *const cases[][2] = {
		{ "", "" },
		{ "plain", "plain" },
		{ "\xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\xb4", "\xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\xb4" },
		{ "cut \xe2\x82", "cut" },		/* end of a snprintf */
		{ "cut \xf0\x9f\x98", "cut" },
		{ "bad \xff byte", "bad ? byte" },
		{ "\x80\xbf", "??" },
		{ "over\xc0\xaflong", "over??long" },
		{ "\xe0\x80\xaf", "???" },		/* overlong */
		{ "\xed\xa0\x80", "???" },		/* surrogate */
		{ "\xf4\x90\x80\x80", "????" },	/* above U+10FFFF */
		{ "\xe2\x28\xa1", "?(?" },
		{ "c1 \xc2\x9b" "31m", "c1  31m" },	/* CSI */
		{ "nbsp\xc2\xa0.", "nbsp\xc2\xa0." },
		{ "trail \r\n", "trail" },
		{ "\n\n", "" },
	};
	char text[64];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "%s", cases[i][0]);
		tp_text_clean(text);
		assert_string_equal(text, cases[i][1]);
	}
}

/* Every pair of bytes: the result is valid, and cleaning it again changes nothing. */
static void clean_is_idempotent(void **state)
{
	unsigned a, b, c;

	(void)state;
	for (a = 1; a < 256; a++) {
		for (b = 1; b < 256; b++) {
			for (c = 1; c < 256; c += 31) {
				char text[5] = { (char)a, (char)b, (char)c, 'x', 0 }, again[5];
				size_t i, n;
				int len;

				tp_text_clean(text);
				n = strlen(text);
				for (i = 0; i < n; i += (size_t)len) {
					len = tp_utf8_len((const unsigned char *)text + i, n - i);
					assert_true(len > 0);
				}
				memcpy(again, text, sizeof(again));
				tp_text_clean(again);
				assert_string_equal(again, text);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_error_wins),
		cmocka_unit_test(null_is_allowed),
		cmocka_unit_test(sys_tells_reason),
		cmocka_unit_test(long_text_keeps_reason),
		cmocka_unit_test(prefix_goes_in_front),
		cmocka_unit_test(classes),
		cmocka_unit_test(foreign_text_is_one_line),
		cmocka_unit_test(clean_utf8),
		cmocka_unit_test(clean_is_idempotent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
