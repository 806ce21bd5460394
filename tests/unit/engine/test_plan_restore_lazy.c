/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_plan_restore_lazy.c - The lazy restore through every fault and every end of the daemon
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

#define WITH_UNDOS 1	/* case that is walked in full */

static struct plan_case lazy[] = {
	{ .model = { .name = "lazy" }, .kind = "restore", .lazy = true },
	{ .model = { .name = "7.2, lazy, stays paused" }, .kind = "restore", .old = true, .stay = true, .lazy = true },
	{ .model = { .name = "lazy, whole at once" }, .kind = "restore", .lazy = true, .whole = 0.004 },
	{ .model = { .name = "lazy, saved paused, whole late" }, .kind = "restore", .paused = true, .lazy = true,
	  .whole = 1000 },
};

static void test_walk_lazy(void **state)
{
	(void)state;
	plan_walk(lazy, TP_N(lazy), WITH_UNDOS);
}

static void test_recover_lazy(void **state)
{
	(void)state;
	plan_recover(lazy, 3, WITH_UNDOS);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_walk_lazy), cmocka_unit_test(test_recover_lazy) };

	return cmocka_run_group_tests(tests, plan_world_open, plan_world_close);
}
