/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_recover_plans.c - A new engine recovers each plan, cut at each effect, from the files alone
 *
 * link: -Wl,--wrap=uffd_host_read
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "fake/plan_world.h"

static struct plan_case cases[] = {
	{ .model = { .name = "hibernate" }, .kind = "hibernate" },
	{ .model = { .name = "restore" }, .kind = "restore" },
	{ .model = { .name = "restore, stays paused" }, .kind = "restore", .stay = true },
	{ .model = { .name = "7.2, restore, stays paused" }, .kind = "restore", .old = true, .stay = true },
	{ .model = { .name = "lazy restore" }, .kind = "restore", .lazy = true },
	{ .model = { .name = "7.2, lazy restore, stays paused" }, .kind = "restore", .old = true, .stay = true,
	  .lazy = true },
	{ .model = { .name = "start" }, .kind = "start" },
	{ .model = { .name = "powerdown" }, .kind = "powerdown" },
};

static void test_recover(void **state)
{
	struct op_model_count count = { 0 };

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++)
		plan_recover_really(&cases[i], &count);
	print_message("%u recoveries\n", count.runs);
	assert_true(count.runs > 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_recover) };

	return cmocka_run_group_tests(tests, plan_world_open, plan_world_close);
}
