/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_op.c - The runner's rules one by one: walk, limits, answers, cancel, deadline, stuck */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "fake/op_bench.h"

static void test_straight(void **state)
{
	tp_autojson json_t *record = NULL;
	const char *text;
	uint64_t us;

	(void)state;
	bench_start(60);
	bench_assert(OP_SUCCEEDED, "Hibernated", "none");
	assert_int_equal(bench.ends, 1);
	assert_int_equal(bench.plan_ends, 1);
	record = op_record(bench.op);
	assert_string_equal(tp_json_str(record, "id"), "op-7");
	assert_string_equal(tp_json_str(record, "vm"), "web1");
	assert_string_equal(tp_json_str(record, "kind"), "hibernate");
	assert_string_equal(tp_json_str(record, "status"), "succeeded");
	assert_true(tp_json_bool(record, "committed", false));
	assert_null(json_object_get(record, "error"));
	assert_null(json_object_get(record, "parent"));
	assert_string_equal(tp_json_str(json_object_get(record, "result"), "state"), "hibernated");
	text = tp_json_str(record, "started");
	assert_true(tp_time_parse(text, &us));
	assert_true(tp_time_parse(tp_json_str(record, "deadline"), &us));
	assert_true(tp_time_parse(tp_json_str(record, "ended"), &us));
	assert_int_equal(json_array_size(json_object_get(record, "timeline")), 5);
	text = tp_json_str(json_array_get(json_object_get(record, "timeline"), 1), "phase");
	assert_string_equal(text, "Preparing");
	assert_non_null(bench_logged("begin"));
	assert_string_equal(tp_json_str(bench_logged("commit"), "step"), "commit");
	assert_null(bench_logged("back"));
}

static void test_step_fails(void **state)
{
	(void)state;
	bench.on_enter[1] = OP_FAIL;
	bench_start(60);
	bench_assert(OP_FAILED, "Failed", "done");
	assert_string_equal(tp_error_class(op_error(bench.op)), "Blocked");
	assert_string_equal(op_error(bench.op)->text, "step 1 is blocked");
	/* The failed step's own undo first; what was not entered is not undone. */
	assert_int_equal(bench.undos[1], 1);
	assert_int_equal(bench.undos[0], 1);
	assert_int_equal(bench.undos[2], 0);
	assert_string_equal(tp_json_str(json_object_get(bench_logged("back"), "error"), "class"), "Blocked");
}

static void test_limit(void **state)
{
	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench_start(60);
	assert_true(bench.timers[OP_TIMER_LIMIT] == 10);
	bench.timers[OP_TIMER_LIMIT] = 3;
	assert_int_equal(op_progress(bench.op), OP_WAIT);
	assert_true(bench.timers[OP_TIMER_LIMIT] == 10);
	bench_fire(OP_TIMER_LIMIT);
	bench_go();
	bench_assert(OP_FAILED, "Failed", "done");
	assert_string_equal(tp_error_class(op_error(bench.op)), "Timeout");
	assert_int_equal(op_error(bench.op)->code, TP_ETIMEOUT);
}

static void test_limit_names_what_is_missing(void **state)
{
	static const char *const names[] = { "QEMU", "the mover" };

	(void)state;
	bench.on_enter[1] = OP_WAIT;
	bench_start(0);
	assert_true(bench.timers[OP_TIMER_LIMIT] == 60);
	assert_true(bench.timers[OP_TIMER_DEADLINE] == 0);
	op_want(bench.op, 3, names);
	assert_int_equal(op_got(bench.op, 1), OP_WAIT);
	assert_int_equal(op_got(bench.op, 1), OP_WAIT);
	bench_fire(OP_TIMER_LIMIT);
	assert_non_null(strstr(op_error(bench.op)->text, "waiting for the mover"));
	assert_int_equal(op_got(bench.op, 2), OP_NEXT);	/* the set was cleared */
}

static void test_answers(void **state)
{
	struct tp_error refused = TP_ERROR_INIT;
	struct op_event ev = { .type = OP_REPLY, .cmd = QMP_STOP };

	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench.on_enter[1] = OP_WAIT;
	bench_start(0);
	assert_int_equal(op_qmp(bench.op, QMP_STOP, NULL), OP_WAIT);
	assert_int_equal(op_qmp(bench.op, QMP_CONT, NULL), OP_WAIT);
	ev.token = 99;
	op_deliver(bench.op, &ev);			/* nobody asked */
	ev.token = 1;
	ev.type = OP_AGENT;
	op_deliver(bench.op, &ev);			/* not that one */
	assert_string_equal(op_step_name(bench.op), "first");
	ev.type = OP_REPLY;
	op_deliver(bench.op, &ev);
	assert_int_equal(bench.forgotten, 2);	/* moving on drops the other one */
	bench_go();
	assert_string_equal(op_step_name(bench.op), "second");
	ev.token = 2;
	op_deliver(bench.op, &ev);
	assert_string_equal(op_step_name(bench.op), "second");

	/* A refusal is shown to who wants it, and fails the step otherwise. */
	tp_fail_class(&refused, TP_EQMP, "QemuError", "not now");
	ev.err = &refused;
	assert_int_equal(op_qmp_full(bench.op, QMP_STOP, NULL, NULL, 0, OPQ_SHOW), OP_WAIT);
	ev.token = 3;
	bench.called = false;
	bench.on_enter[2] = OP_WAIT;
	op_deliver(bench.op, &ev);
	assert_true(bench.called);
	assert_false(op_replied(&ev, QMP_STOP));
	bench_go();
	assert_int_equal(op_qmp(bench.op, QMP_STOP, NULL), OP_WAIT);
	ev.token = 4;
	op_deliver(bench.op, &ev);
	bench_go();
	bench_assert(OP_FAILED, "Failed", "done");
	assert_string_equal(op_error(bench.op)->text, "not now");
}

static void test_sleep(void **state)
{
	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench_start(0);
	op_deliver_timer(bench.op, OP_TIMER_TICK);	/* nobody sleeps */
	assert_string_equal(op_step_name(bench.op), "first");
	assert_int_equal(op_sleep(bench.op, 2), OP_WAIT);
	bench_fire(OP_TIMER_TICK);
	bench_go();
	bench_assert(OP_SUCCEEDED, "Hibernated", "none");
}

static void test_cancel(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	bench.on_enter[1] = OP_WAIT;
	bench_start(60);
	assert_true(op_cancel(bench.op, &err));
	assert_int_equal(bench.undos[1], 0);		/* from the loop only */
	assert_true(op_cancel(bench.op, &err));	/* being cancelled already */
	bench_go();
	bench_assert(OP_CANCELLED, "Failed", "done");
	assert_string_equal(tp_error_class(op_error(bench.op)), "Cancelled");
	assert_int_equal(op_error(bench.op)->code, TP_ECANCELLED);
	assert_false(op_cancel(bench.op, &err));
	assert_string_equal(err.class_, "InvalidState");
}

static void test_cancel_before_start(void **state)
{
	(void)state;
	bench_make(0);
	assert_true(op_cancel(bench.op, NULL));
	assert_int_equal(bench.ends, 0);
	bench_go();
	assert_int_equal(bench.ends, 1);
	assert_int_equal(json_array_size(bench.log), 0);
	bench_assert(OP_CANCELLED, "Failed", "none");
}

static void test_cancel_at_the_commit(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	bench.on_enter[2] = OP_WAIT;
	bench.on_enter[3] = OP_WAIT;
	bench_start(60);
	bench_tick();
	/* The record is on its way to the platter: its answer decides. */
	assert_int_equal(bench.syncs, 1);
	assert_false(op_cancel(bench.op, &err));
	bench_fire(OP_TIMER_DEADLINE);
	assert_false(op_going_back(bench.op));
	bench_go();
	assert_true(op_committed(bench.op));
	assert_false(op_cancel(bench.op, NULL));
	assert_false(op_late(bench.op));
	assert_true(bench.timers[OP_TIMER_DEADLINE] == 60);
	bench_fire(OP_TIMER_DEADLINE);
	assert_true(op_late(bench.op));
	bench_tick();
	bench_go();
	bench_assert(OP_SUCCEEDED, "Hibernated", "none");
	{
		tp_autojson json_t *record = op_record(bench.op);
		json_t *warnings = json_object_get(record, "warnings");

		assert_string_equal(json_string_value(json_array_get(warnings, 0)), "late");
	}
}

static void test_commit_cannot_be_synced(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	bench.on_enter[2] = OP_WAIT;
	bench_start(0);
	bench_tick();
	assert_non_null(bench_logged("commit"));
	tp_fail_sys(&err, 5, "sync the journal");
	bench.syncs = 0;
	op_deliver_journal(bench.op, &err);
	/* The record may be there all the same: it is taken back, durably, before the first undo. */
	assert_true(op_going_back(bench.op));
	assert_non_null(bench_logged("back"));
	assert_int_equal(bench.syncs, 1);
	assert_true(bench.timers[OP_TIMER_ENTER] == 0);
	assert_int_equal(bench.undos[2], 0);
	bench_go();
	bench_assert(OP_FAILED, "Failed", "done");
	assert_int_equal(bench.undos[2], 1);
}

static void test_deadline_reserve(void **state)
{
	static const struct { double timeout, turn; } cases[] = {
		{ 1000, 990 }, { 60, 54 }, { 5, 4 }, { 1, 0.5 },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++) {
		bench_reset(NULL);
		bench.on_enter[0] = OP_WAIT;
		bench_start(cases[i].timeout);
		assert_true(bench.timers[OP_TIMER_DEADLINE] > cases[i].turn - 0.001 &&
			    bench.timers[OP_TIMER_DEADLINE] < cases[i].turn + 0.001);
		bench_fire(OP_TIMER_DEADLINE);
		bench_go();
		bench_assert(OP_FAILED, "Failed", "done");
		assert_string_equal(tp_error_class(op_error(bench.op)), "Timeout");
	}
}

static void test_undo_fails(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	bench.on_enter[2] = OP_FAIL;
	bench.on_undo[1] = OP_FAIL;
	bench_start(60);
	/* Noted, the others were undone all the same. */
	bench_assert(OP_STUCK, "RollingBack", "failed");
	assert_int_equal(bench.undos[0], 1);
	assert_true(bench.timers[OP_TIMER_ENTER] == 1);
	bench_fire(OP_TIMER_ENTER);
	bench_go();
	assert_int_equal(bench.undos[1], 2);
	assert_int_equal(bench.undos[0], 1);
	assert_true(bench.timers[OP_TIMER_ENTER] == 2);
	for (int i = 0; i < 8; i++) {
		bench_fire(OP_TIMER_ENTER);
		bench_go();
	}
	assert_true(bench.timers[OP_TIMER_ENTER] == 60);
	assert_true(op_retry(bench.op, &err));
	bench.on_undo[1] = OP_NEXT;
	bench_go();
	bench_assert(OP_FAILED, "Failed", "done");
	assert_string_equal(tp_error_class(op_error(bench.op)), "Blocked");
	assert_false(op_retry(bench.op, &err));
	assert_string_equal(err.class_, "InvalidState");
}

static void test_stuck_past_the_commit(void **state)
{
	tp_autojson json_t *record = NULL;

	(void)state;
	bench.on_enter[3] = OP_FAIL;
	bench_start(60);
	bench_assert(OP_STUCK, "Terminating", "none");
	assert_true(op_committed(bench.op));
	assert_string_equal(op_error(bench.op)->text, "step 3 is blocked");
	bench_fire(OP_TIMER_ENTER);
	bench_go();
	assert_int_equal(bench.runs[3], 2);
	assert_true(bench.timers[OP_TIMER_ENTER] == 2);
	bench.on_enter[3] = OP_WAIT;
	bench_fire(OP_TIMER_ENTER);
	assert_int_equal(op_status(bench.op), OP_RUNNING);
	bench_tick();
	bench_go();
	bench_assert(OP_SUCCEEDED, "Hibernated", "none");
	assert_null(op_error(bench.op));
	record = op_record(bench.op);
	assert_int_equal(json_array_size(json_object_get(record, "warnings")), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BENCH_TEST(test_straight),
		BENCH_TEST(test_step_fails),
		BENCH_TEST(test_limit),
		BENCH_TEST(test_limit_names_what_is_missing),
		BENCH_TEST(test_answers),
		BENCH_TEST(test_sleep),
		BENCH_TEST(test_cancel),
		BENCH_TEST(test_cancel_before_start),
		BENCH_TEST(test_cancel_at_the_commit),
		BENCH_TEST(test_commit_cannot_be_synced),
		BENCH_TEST(test_deadline_reserve),
		BENCH_TEST(test_undo_fails),
		BENCH_TEST(test_stuck_past_the_commit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
