/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_plan_hibernate.c - The real hibernation through every fault and every end of the daemon */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "fake/plan_world.h"

#define WITH_UNDOS 2	/* cases that are walked in full */

static struct plan_case cases[] = {
	{ .model = { .name = "running" }, .kind = "hibernate" },
	{ .model = { .name = "7.2, paused" }, .kind = "hibernate", .old = true, .paused = true },
	{ .model = { .name = "paused" }, .kind = "hibernate", .paused = true, .hasty = true },
	{ .model = { .name = "7.2, running" }, .kind = "hibernate", .old = true, .hasty = true },
	{ .model = { .name = "no disk, keep" }, .kind = "hibernate", .diskless = true, .keep = true },
};

static void test_walk(void **state)
{
	struct op_model_count count = { 0 };

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++)
		plan_walk(&cases[i], i < WITH_UNDOS, &count);
	print_message("%u runs: %u succeeded, %u failed, %u cancelled, %u of them stuck first\n",
		      count.runs, count.succeeded, count.failed, count.cancelled, count.stuck_first);
	assert_true(count.succeeded > 50 && count.failed > 50 && count.cancelled > 10);
}

static void test_recover(void **state)
{
	struct op_model_count count = { 0 };

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++)
		plan_recover(&cases[i], i < WITH_UNDOS, &count);
	print_message("%u runs: %u succeeded, %u failed, %u cancelled\n", count.runs,
		      count.succeeded, count.failed, count.cancelled);
	assert_true(count.runs > 100 && count.succeeded > 10 && count.failed > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk), cmocka_unit_test(test_recover),
	};

	return cmocka_run_group_tests(tests, plan_world_open, plan_world_close);
}
