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
	(void)state;
	plan_walk(cases, TP_N(cases), WITH_UNDOS);
}

static void test_recover(void **state)
{
	(void)state;
	plan_recover(cases, TP_N(cases), WITH_UNDOS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk), cmocka_unit_test(test_recover),
	};

	return cmocka_run_group_tests(tests, plan_world_open, plan_world_close);
}
