/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* op_bench.c - The runner on a bench; see op_bench.h */
#include "fake/op_bench.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"

struct op_bench bench;

/* --- ports --- */

static uint64_t port_qmp(struct op *op, enum qmp_cmd cmd, json_t *args, int *fd, double limit,
			 struct tp_error *err)
{
	(void)op, (void)cmd, (void)fd;
	json_decref(args);
	assert_true(limit > 0);
	if (bench.qemu)
		return ++bench.tokens;
	tp_fail_class(err, TP_ESYS, "IOError", "no monitor");
	return 0;
}

static bool port_qemu_alive(struct op *op)
{
	(void)op;
	return bench.qemu;
}

static bool port_mover_start(struct op *op, json_t *request, int *fds, size_t nfds,
			     struct tp_error *err)
{
	(void)op, (void)fds, (void)nfds, (void)err;
	json_decref(request);
	return true;
}

static bool port_journal(struct op *op, const char *record, json_t *fields, bool sync,
			 struct tp_error *err)
{
	json_t *entry = json_pack("{s:s}", "record", record);

	(void)op, (void)err;
	json_object_update(entry, fields);
	json_decref(fields);
	json_array_append_new(bench.log, entry);
	bench.syncs += sync;
	return true;
}

static void port_forget(struct op *op, uint64_t token)
{
	(void)op;
	bench.forgotten = token;
}

static void port_timer(struct op *op, enum op_timer which, double after)
{
	(void)op;
	bench.timers[which] = after;
}

static double port_now(struct op *op)
{
	(void)op;
	return bench.now;
}

static void port_changed(struct op *op, bool phase)
{
	(void)op;
	bench.progress += !phase;
}

static void port_ended(struct op *op)
{
	(void)op;
	bench.ends++;
}

const struct op_ports bench_ports = {
	.qmp = port_qmp, .mover_start = port_mover_start, .qemu_alive = port_qemu_alive,
	.journal = port_journal, .forget = port_forget, .timer = port_timer, .now = port_now,
	.changed = port_changed, .ended = port_ended,
};

/* --- a plan whose steps do what the test says --- */

static enum op_verdict step(struct op *op, const struct op_event *ev, unsigned n)
{
	bench.called = true;
	snprintf(bench.last_event, sizeof(bench.last_event), "%s", ev->name ? ev->name : "");
	if (ev->type == OP_ENTER) {
		bench.runs[n]++;
		if (bench.on_enter[n] == OP_FAIL)
			return op_fail(op, TP_ESTATE, "Blocked", "step %u is blocked", n);
		return bench.on_enter[n];
	}
	if (ev->type == OP_REPLY || ev->type == OP_IO || ev->type == OP_TICK)
		return OP_NEXT;
	return OP_WAIT;
}

static enum op_verdict undo(struct op *op, const struct op_event *ev, unsigned n)
{
	if (ev->type == OP_ENTER)
		bench.undos[n]++;
	if (ev->type == OP_ENTER && bench.on_undo[n] == OP_FAIL)
		return op_fail(op, TP_ESYS, NULL, "undo %u fails", n);
	return ev->type == OP_ENTER ? bench.on_undo[n] : OP_WAIT;
}

#define RUN(n) \
	static enum op_verdict run_##n(struct op *op, const struct op_event *ev) \
	{ \
		return step(op, ev, n); \
	}
#define UNDO(n) \
	static enum op_verdict undo_##n(struct op *op, const struct op_event *ev) \
	{ \
		return undo(op, ev, n); \
	}
RUN(0)
UNDO(0)
RUN(1)
UNDO(1)
RUN(2)
UNDO(2)
RUN(3)

static const struct op_step steps[] = {
	{ "first", "Preparing", run_0, undo_0, 10, 5, 0, 0 },
	{ "second", NULL, run_1, undo_1, 0, 0, OPF_QEMU, 0 },
	{ "commit", "Committing", run_2, undo_2, 10, 5, OPF_COMMIT, 0 },
	{ "after", "Terminating", run_3, NULL, 10, 0, OPF_QEMU, OP_RES_QEMU },
};

static void plan_ended(struct op *op)
{
	bench.plan_ends++;
	if (op_status(op) == OP_SUCCEEDED)
		op_result(op, "state", json_string("hibernated"));
}

const struct op_plan bench_plan = {
	.kind = "hibernate", .version = 2, .steps = steps, .nsteps = 4, .done_phase = "Hibernated",
	.data_size = 64, .ended = plan_ended,
};

/* --- driving --- */

struct op *bench_make(double timeout)
{
	tp_autojson json_t *was = json_pack("{s:b}", "running", 1);
	struct op_options o = { .id = "op-7", .vm = "web1", .was = was, .timeout = timeout };
	struct tp_error err = TP_ERROR_INIT;

	bench.op = op_new(bench.plan, &bench_ports, &bench, &o, &err);
	assert_non_null(bench.op);
	return bench.op;
}

int bench_drop(void **state)
{
	(void)state;
	op_free(bench.op);
	json_decref(bench.log);
	bench.op = NULL;
	bench.log = NULL;
	return 0;
}

int bench_reset(void **state)
{
	(void)state;
	bench_drop(NULL);
	memset(&bench, 0, sizeof(bench));
	for (size_t i = 0; i < TP_N(bench.on_enter); i++)
		bench.on_enter[i] = bench.on_undo[i] = OP_NEXT;
	bench.log = json_array();
	bench.now = 100;
	bench.qemu = true;
	bench.plan = &bench_plan;
	return 0;
}

void bench_fire(enum op_timer which)
{
	assert_true(bench.timers[which] > 0);
	bench.timers[which] = 0;
	op_deliver_timer(bench.op, which);
}

void bench_go(void)
{
	for (int i = 0; i < 100 && !bench.ends; i++) {
		if (bench.syncs) {
			bench.syncs--;
			op_deliver_journal(bench.op, NULL);
		} else if (bench.timers[OP_TIMER_ENTER] > 0 && bench.timers[OP_TIMER_ENTER] < 0.5) {
			bench_fire(OP_TIMER_ENTER);
		} else {
			return;
		}
	}
}

void bench_start(double timeout)
{
	struct tp_error err = TP_ERROR_INIT;

	assert_true(op_start(bench_make(timeout), &err));
	assert_int_equal(bench.runs[0], 0);
	bench_go();
}

void bench_assert(enum op_status status, const char *phase, const char *rollback)
{
	tp_autojson json_t *record = op_record(bench.op);

	assert_int_equal(op_status(bench.op), status);
	assert_string_equal(op_phase_name(bench.op), phase);
	assert_string_equal(tp_json_str(record, "rollback"), rollback);
}

json_t *bench_logged(const char *record)
{
	json_t *entry;
	size_t i;

	json_array_foreach(bench.log, i, entry) {
		if (strcmp(tp_json_str(entry, "record"), record) == 0)
			return entry;
	}
	return NULL;
}

void bench_tick(void)
{
	assert_int_equal(op_sleep(bench.op, 1), OP_WAIT);
	bench_fire(OP_TIMER_TICK);
}
