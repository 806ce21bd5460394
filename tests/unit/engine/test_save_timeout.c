/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_save_timeout.c - The default deadline of a hibernation follows RAM and compression level */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/ops.h"
#include "engine/save_rate.h"
#include "engine/vm.h"

#define GIB (1ull << 30)

static double timeout_of(const char *memory, const char *hibernate, const char *arguments)
{
	struct vm vm = { .spec = json_pack("{s:{s:[s, s]}, s:o}", "launch", "args", "-m", memory, "hibernate",
					   json_loads(hibernate, 0, NULL)) };
	tp_autojson json_t *args = json_loads(arguments, 0, NULL);
	double seconds;

	assert_non_null(vm.spec);
	seconds = ops_save_timeout(&vm, args);
	json_decref(vm.spec);
	return seconds;
}

static void fast_levels_have_the_usual(void **state)
{
	(void)state;
	assert_true(timeout_of("1G", "{}", "{}") == 135);
	assert_true(timeout_of("4096", "{\"level\": 3}", "{}") == 180);
	assert_true(timeout_of("1G", "{\"level\": 19}", "{\"level\": 1}") == 135);
}

static void slow_levels_have_more(void **state)
{
	double before = 0;

	(void)state;
	for (int level = 1; level <= 19; level++) {
		tp_autojson json_t *args = json_pack("{s:i}", "level", level);
		tp_autofree char *text = tp_json_text(args);
		double seconds = timeout_of("16G", "{}", text);

		assert_true(seconds >= before);
		/* The estimate fits in, with time to spare. */
		assert_true(seconds > 2 * 16 * GIB / save_rate(level));
		before = seconds;
	}
	assert_true(timeout_of("16G", "{\"level\": 19}", "{}") == before);
}

static void the_spec_says_for_sure(void **state)
{
	(void)state;
	assert_true(timeout_of("1G", "{\"level\": 19, \"timeout\": 7.5}", "{}") == 7.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fast_levels_have_the_usual), cmocka_unit_test(slow_levels_have_more),
		cmocka_unit_test(the_spec_says_for_sure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
