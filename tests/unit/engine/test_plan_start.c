/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_plan_start.c - The real start and powerdown through every fault and every end of the daemon */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "fake/plan_world.h"

static struct plan_case cases[] = {
	{ .model = { .name = "start" }, .kind = "start" },
	{ .model = { .name = "start paused" }, .kind = "start", .paused = true },
	{ .model = { .name = "powerdown" }, .kind = "powerdown" },
	{ .model = { .name = "powerdown, deaf guest" }, .kind = "powerdown", .ignores = true, .quits = true },
	{ .model = { .name = "7.2, start" }, .kind = "start", .old = true },
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk), cmocka_unit_test(test_recover),
	};

	return cmocka_run_group_tests(tests, plan_world_open, plan_world_close);
}
