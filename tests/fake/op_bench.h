/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_bench.h - The runner on a bench: ports that only note what they were asked, a plan of four steps
 * that do what the test says; the test delivers answers and timers by hand
 *
 * Steps: "first" (phase Preparing, limit 10), "second" (OPF_QEMU), "commit" (Committing, the commit
 * point), "after" (Terminating, OPF_QEMU, expects QEMU's end). A step that waits goes on at the first
 * answer, result or tick.
 */
#ifndef OP_BENCH_H
#define OP_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/op.h"

struct op_bench {
	struct op *op;
	const struct op_plan *plan;		/* bench_plan, unless the test says otherwise */
	double now, timers[OP_TIMER_N];		/* seconds from now; 0: stopped */
	json_t *log;
	uint64_t tokens, forgotten;		/* the last ones */
	unsigned syncs;				/* not answered yet */
	unsigned ends, plan_ends, progress;	/* calls of ended(), of the plan's, of changed() */
	unsigned runs[4], undos[4];		/* entries by step */
	enum op_verdict on_enter[4], on_undo[4];
	char last_event[64];			/* name of what a step was told last */
	bool qemu, called;			/* called: set when a step is */
};

extern struct op_bench bench;
extern const struct op_plan bench_plan;
extern const struct op_ports bench_ports;

int bench_reset(void **state);		/* setup and teardown of each test */
int bench_drop(void **state);
#define BENCH_TEST(name) cmocka_unit_test_setup_teardown(name, bench_reset, bench_drop)

struct op *bench_make(double timeout);
void bench_start(double timeout);
void bench_fire(enum op_timer which);	/* it must be set */
void bench_tick(void);			/* lets the step that waits go on */
void bench_go(void);			/* entries and syncs until the operation waits or is over */
json_t *bench_logged(const char *record);	/* the first such record, or NULL */
void bench_assert(enum op_status status, const char *phase, const char *rollback);

#endif
