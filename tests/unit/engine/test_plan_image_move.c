/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_plan_image_move.c - The real image-move through every fault and every end of the daemon */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "fake/plan_world.h"

static struct plan_case cases[] = {
	{ .model = { .name = "move, hibernated" }, .kind = "image-move" },
	{ .model = { .name = "move, kept, VM runs" }, .kind = "image-move", .keep = true },
};

static void test_walk(void **state)
{
	(void)state;
	plan_walk(cases, TP_N(cases), TP_N(cases));
}

static void test_recover(void **state)
{
	(void)state;
	plan_recover(cases, TP_N(cases), TP_N(cases));
}

/* A new engine, from the files alone. */
static void test_recover_really(void **state)
{
	struct op_model_count count = { 0 };

	(void)state;
	plan_recover_really(&cases[0], &count);
	print_message("%u recoveries\n", count.runs);
	assert_true(count.runs > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk), cmocka_unit_test(test_recover), cmocka_unit_test(test_recover_really),
	};

	return cmocka_run_group_tests(tests, plan_world_open, plan_world_close);
}
