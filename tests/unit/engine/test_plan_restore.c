/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_plan_restore.c - The real restore through every fault and every end of the daemon
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

#define WITH_UNDOS 2	/* cases that are walked in full */

static struct plan_case cases[] = {
	{ .model = { .name = "running" }, .kind = "restore" },
	{ .model = { .name = "stays paused" }, .kind = "restore", .stay = true },
	{ .model = { .name = "7.2, stays paused" }, .kind = "restore", .old = true, .stay = true },
	{ .model = { .name = "7.2, running, keep" }, .kind = "restore", .old = true, .keep = true },
	{ .model = { .name = "saved paused" }, .kind = "restore", .paused = true },
	{ .model = { .name = "no disk, keep" }, .kind = "restore", .diskless = true, .keep = true },
};

static struct plan_case fallen_back[] = {
	{ .model = { .name = "7.2, server refuses, stays paused" }, .kind = "restore", .old = true, .stay = true,
	  .lazy = true, .fallback = PLAN_SERVER_REFUSES },
	{ .model = { .name = "server ends" }, .kind = "restore", .lazy = true, .fallback = PLAN_SERVER_ENDS },
	{ .model = { .name = "capability refused" }, .kind = "restore", .lazy = true,
	  .fallback = PLAN_CAPABILITY_REFUSED },
	{ .model = { .name = "huge pages" }, .kind = "restore", .lazy = true, .fallback = PLAN_HUGE_PAGES },
	{ .model = { .name = "no right" }, .kind = "restore", .lazy = true, .fallback = PLAN_NO_RIGHT },
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

static void test_fall_back(void **state)
{
	(void)state;
	plan_walk(fallen_back, TP_N(fallen_back), 0);
	plan_recover(fallen_back, 2, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk), cmocka_unit_test(test_recover), cmocka_unit_test(test_fall_back),
	};

	return cmocka_run_group_tests(tests, plan_world_open, plan_world_close);
}
