/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_op_lost.c - The runner loses QEMU or its mover, at and between steps */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "fake/op_bench.h"

static struct tp_error loss(const char *text)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_fail(&err, TP_ESYS, "%s", text);
	return err;
}

static void test_lost_between_steps(void **state)
{
	struct tp_error why = loss("QEMU was killed");
	tp_autojson json_t *data = json_pack("{s:i}", "signal", 9);

	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench_start(0);
	op_hold(bench.op, OP_RES_QEMU);
	bench_tick();			/* the next step is due */
	bench.qemu = false;
	op_lost(bench.op, OP_RES_QEMU, &why, data);
	bench_go();
	assert_int_equal(bench.runs[1], 0);
	bench_assert(OP_FAILED, "Failed", "done");
	assert_string_equal(tp_error_class(op_error(bench.op)), "QemuExited");
	assert_int_equal(tp_json_int(op_error_data(bench.op), "signal", 0), 9);
	assert_int_equal(bench.undos[0], 1);
}

static void test_lost_but_not_held(void **state)
{
	struct tp_error why = loss("QEMU was killed");

	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench_start(0);
	op_lost(bench.op, OP_RES_QEMU, &why, NULL);
	assert_string_equal(bench.last_event, "QEMU_GONE");
	assert_false(op_going_back(bench.op));
}

static void test_lost_on_the_way_back(void **state)
{
	struct tp_error why = loss("QEMU was killed");

	(void)state;
	bench.on_enter[1] = OP_WAIT;
	bench.on_undo[1] = OP_WAIT;
	bench_start(0);
	op_hold(bench.op, OP_RES_QEMU);
	op_cancel(bench.op, NULL);
	bench_go();
	assert_int_equal(bench.undos[1], 1);
	op_lost(bench.op, OP_RES_QEMU, &why, NULL);	/* its undo has lost its meaning */
	bench_go();
	bench_assert(OP_CANCELLED, "Failed", "done");
	assert_int_equal(bench.undos[0], 1);
}

/* A command fails with the connection, then one hears why. */
static void test_lost_explains(void **state)
{
	struct tp_error why = loss("QEMU was killed"), link = TP_ERROR_INIT;
	struct op_event ev = { .type = OP_REPLY, .cmd = QMP_STOP, .token = 1, .err = &link };

	(void)state;
	bench.on_enter[1] = OP_WAIT;
	bench_start(0);
	op_hold(bench.op, OP_RES_QEMU);
	op_qmp(bench.op, QMP_STOP, NULL);
	tp_fail_class(&link, TP_ESYS, "IOError", "connection ended");
	op_deliver(bench.op, &ev);
	assert_string_equal(op_error(bench.op)->text, "connection ended");
	op_lost(bench.op, OP_RES_QEMU, &why, NULL);
	assert_string_equal(op_error(bench.op)->text, "QEMU was killed");
	assert_string_equal(tp_error_class(op_error(bench.op)), "QemuExited");
}

static void test_lost_past_the_commit(void **state)
{
	struct tp_error why = loss("QEMU was killed");

	(void)state;
	bench.on_enter[3] = OP_WAIT;
	bench_start(0);
	op_hold(bench.op, OP_RES_QEMU);
	op_lost(bench.op, OP_RES_QEMU, &why, NULL);	/* expected there: told */
	assert_string_equal(bench.last_event, "QEMU_GONE");
	bench_tick();
	bench_go();
	bench_assert(OP_SUCCEEDED, "Hibernated", "none");
}

static void test_mover(void **state)
{
	tp_autojson json_t *error = json_pack("{s:s, s:s, s:i}", "class", "InsufficientSpace",
					      "desc", "the pool is full", "available", 0);
	tp_autojson json_t *end = json_pack("{s:i, s:s}", "status", 256, "stderr", "");
	struct op_event ev = { .type = OP_MOVER, .name = "hello" };

	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench.on_enter[1] = OP_WAIT;
	bench_start(0);
	op_mover_start(bench.op, json_object(), NULL, 0);
	op_hold(bench.op, OP_RES_MOVER);
	op_deliver(bench.op, &ev);
	assert_non_null(op_mover_said(bench.op, "hello"));
	bench_tick();
	/* Between two steps: kept for the next one. */
	ev.name = "sealed";
	op_deliver(bench.op, &ev);
	assert_string_not_equal(bench.last_event, "sealed");
	bench_go();
	assert_string_equal(bench.last_event, "sealed");
	ev.name = "error";
	ev.data = error;
	op_deliver(bench.op, &ev);
	bench_go();
	bench_assert(OP_FAILED, "Failed", "done");
	assert_string_equal(tp_error_class(op_error(bench.op)), "InsufficientSpace");
	assert_string_equal(op_error(bench.op)->text, "the pool is full");
	assert_int_equal(tp_json_int(op_error_data(bench.op), "available", -1), 0);
	ev.name = "end";
	ev.data = end;
	op_deliver(bench.op, &ev);			/* nobody is there any more */
}

static void test_mover_done_is_no_loss(void **state)
{
	tp_autojson json_t *data = json_object();
	struct op_event ev = { .type = OP_MOVER, .name = "done", .data = data };

	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench_start(0);
	op_mover_start(bench.op, json_object(), NULL, 0);
	op_hold(bench.op, OP_RES_MOVER);
	op_deliver(bench.op, &ev);
	ev.name = "end";
	op_deliver(bench.op, &ev);
	assert_string_equal(bench.last_event, "end");
	assert_false(op_going_back(bench.op));
	op_mover_start(bench.op, json_object(), NULL, 0);
	op_deliver(bench.op, &ev);			/* this one has said nothing */
	assert_true(op_going_back(bench.op));
}

/* Past the commit, in a step that needs QEMU and does not expect its end. */
static void test_lost_unexpectedly_past_the_commit(void **state)
{
	struct tp_error why = loss("QEMU was killed");
	struct op_plan plan = bench_plan;
	struct op_step steps[4];
	tp_autojson json_t *record = NULL;

	(void)state;
	memcpy(steps, bench_plan.steps, sizeof(steps));
	steps[3].expects = 0;
	plan.steps = steps;
	bench.plan = &plan;
	bench.on_enter[3] = OP_WAIT;
	bench_start(0);
	op_hold(bench.op, OP_RES_QEMU);
	op_lost(bench.op, OP_RES_QEMU, &why, NULL);
	bench_go();
	/* What was committed stands; trying again would not bring it back. */
	bench_assert(OP_FAILED, "Failed", "none");
	assert_string_equal(op_error(bench.op)->text, "QEMU was killed");
	record = op_record(bench.op);
	assert_true(tp_json_bool(record, "committed", false));
	assert_int_equal(bench.runs[3], 1);
	assert_int_equal(bench.undos[0] + bench.undos[1] + bench.undos[2], 0);
	bench_drop(NULL);
}

/* A loss is told once: the second try of the step is not failed by it again. */
static void test_lost_is_told_once(void **state)
{
	tp_autojson json_t *end = json_pack("{s:i, s:s}", "status", 9, "stderr", "");
	struct op_event ev = { .type = OP_MOVER, .name = "end", .data = end };

	(void)state;
	bench.on_enter[3] = OP_WAIT;
	bench_start(0);
	op_mover_start(bench.op, json_object(), NULL, 0);
	op_hold(bench.op, OP_RES_MOVER);
	op_deliver(bench.op, &ev);
	bench_assert(OP_STUCK, "Terminating", "none");
	bench_fire(OP_TIMER_ENTER);
	assert_int_equal(op_status(bench.op), OP_RUNNING);
	assert_int_equal(bench.runs[3], 2);
	bench_tick();
	bench_go();
	bench_assert(OP_SUCCEEDED, "Hibernated", "none");
}

/* What the mover said of itself is the reason, not that it ended then. */
static void test_movers_own_words(void **state)
{
	tp_autojson json_t *error = json_pack("{s:s, s:s}", "class", "IOError", "desc", "disk broke");
	struct op_event ev = { .type = OP_MOVER, .name = "error", .data = error };

	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench_start(0);
	op_mover_start(bench.op, json_object(), NULL, 0);
	op_hold(bench.op, OP_RES_MOVER);
	bench_tick();
	op_deliver(bench.op, &ev);
	ev.name = "end";
	ev.data = NULL;
	op_deliver(bench.op, &ev);
	bench_go();
	assert_int_equal(bench.runs[1], 0);
	bench_assert(OP_FAILED, "Failed", "done");
	assert_string_equal(op_error(bench.op)->text, "disk broke");
	assert_null(op_error_data(bench.op));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BENCH_TEST(test_lost_between_steps),
		BENCH_TEST(test_lost_but_not_held),
		BENCH_TEST(test_lost_on_the_way_back),
		BENCH_TEST(test_lost_explains),
		BENCH_TEST(test_lost_past_the_commit),
		BENCH_TEST(test_mover),
		BENCH_TEST(test_mover_done_is_no_loss),
		BENCH_TEST(test_lost_unexpectedly_past_the_commit),
		BENCH_TEST(test_lost_is_told_once), BENCH_TEST(test_movers_own_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
