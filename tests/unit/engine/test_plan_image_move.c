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
	struct op_model_count count = { 0 };

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++)
		plan_walk(&cases[i], true, &count);
	print_message("%u runs: %u succeeded, %u failed, %u cancelled, %u of them stuck first\n",
		      count.runs, count.succeeded, count.failed, count.cancelled, count.stuck_first);
	assert_true(count.succeeded > 50 && count.failed > 50 && count.cancelled > 10);
}

static void test_recover(void **state)
{
	struct op_model_count count = { 0 };

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++)
		plan_recover(&cases[i], true, &count);
	print_message("%u runs: %u succeeded, %u failed, %u cancelled\n", count.runs, count.succeeded, count.failed,
		      count.cancelled);
	assert_true(count.runs > 100 && count.succeeded > 5 && count.failed > 10);
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
