/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_selector.c - Selectors: what is one, and what it selects */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/selector.h"

static void test_check(void **state)
{
	static const char *const good[] = { "a", "a=b", "a!=b", "a=", "a=b=c", "a,b!=c,d=e" };
	static const char *const bad[] = { "", ",", "=", "=b", "!=b", "a,", ",a", "a,,b", "a=b,=,c" };
	char text[SELECTOR_TERM_MAX + 3];

	(void)state;
	for (size_t i = 0; i < TP_N(good); i++)
		assert_true(selector_check(good[i], NULL));
	for (size_t i = 0; i < TP_N(bad); i++) {
		struct tp_error err = TP_ERROR_INIT;

		assert_false(selector_check(bad[i], &err));
		assert_string_equal(tp_error_class(&err), "GenericError");
	}
	memset(text, 'k', sizeof(text));
	text[SELECTOR_TERM_MAX] = '\0';
	assert_true(selector_check(text, NULL));
	text[SELECTOR_TERM_MAX] = 'k';
	text[SELECTOR_TERM_MAX + 1] = '\0';
	assert_false(selector_check(text, NULL));
}

static void test_matches(void **state)
{
	static const struct {
		const char *selector;
		bool matches;
	} rows[] = {
		{ NULL, true }, { "tier", true }, { "owner", false }, { "tier=web", true }, { "tier=db", false },
		{ "tier!=db", true }, { "tier!=web", false }, { "owner!=ann", true }, { "zone=", true },
		{ "zone!=", false }, { "tier=web,zone", true }, { "tier=web,owner", false }, { "expr=a=b", true },
		{ "tie", false }, { "tier=we", false },
	};
	tp_autojson json_t *labels = json_pack("{s:s, s:s, s:s}", "tier", "web", "zone", "", "expr", "a=b");

	(void)state;
	for (size_t i = 0; i < TP_N(rows); i++)
		assert_int_equal(selector_matches(rows[i].selector, labels), rows[i].matches);
	assert_true(selector_matches("a!=b", NULL));
	assert_false(selector_matches("a", NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_check), cmocka_unit_test(test_matches) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
