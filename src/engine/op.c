/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op.c - The runner: walks a plan's steps down, and their undos up
 *
 * Theory of operation. `at` is the step that is about to be entered or waits; `stage` says which.
 * Every entry into a step or undo comes from the loop (OP_TIMER_ENTER), so a call of the API never
 * runs a step, and only enter_forward() and enter_back() end the operation, as their last act: the
 * owner may free it there.
 *
 *   ENTERING --timer--> [SYNCING enter] --> INSIDE --OP_NEXT--> [SYNCING commit] --> ENTERING ...
 *                                             |
 *            failure, limit, cancel, loss ----+--> not committed: op_turn_back(), ENTERING an undo
 *                                             +--> committed: BACKOFF, then the same step again
 *
 * The way back ends in BACKOFF too where an undo failed; then only the failed ones run again. A
 * failed undo with OPF_BARRIER goes into BACKOFF at once and is the next to run.
 *
 * The commit record is the delicate one. While it is on its way to the platter neither cancel, nor
 * deadline, nor a loss turns the operation round: its answer decides. Where the answer is an error
 * or does not come within the limit, the record may be in the log all the same; then `back` is
 * synced after it, before the first undo, and takes it back (op_rebuild reads it so).
 *
 * Past the commit a lost QEMU cannot be brought back by trying again: the steps that need it are
 * skipped, and unless such a step expects QEMU's end the operation ends failed (QemuExited), its
 * committed state standing. The same rule serves recovery with QEMU gone.
 *
 * Deadline: the runner turns back `reserve` before it, so that the way back ends by it: a tenth of
 * the timeout, at least 1 s and at most 10 s, but never more than half of the timeout.
 */
#include "engine/op_priv.h"

#include <math.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"

TP_LOG_SOURCE("engine.op");

#define RESERVE_PART 0.1
#define RESERVE_MIN 1.0
#define RESERVE_MAX 10.0


/* --- small things --- */

const struct op_step *op_step_at(const struct op *op)
{
	if (op->at < 0 || (unsigned)op->at >= op->plan->nsteps)
		return NULL;
	return &op->plan->steps[op->at];
}

static const char *step_text(const struct op *op)
{
	const struct op_step *step = op_step_at(op);

	return step ? step->name : "-";
}

/* A plan without undos has no way back that would need time. */
static bool has_undo(const struct op_plan *plan)
{
	for (unsigned i = 0; i < plan->nsteps; i++) {
		if (plan->steps[i].undo)
			return true;
	}
	return false;
}

static double reserve_of(double timeout)
{
	double reserve = fmin(RESERVE_MAX, fmax(RESERVE_MIN, timeout * RESERVE_PART));

	return fmin(reserve, timeout / 2);
}

void op_set_timer(struct op *op, enum op_timer which, double after)
{
	op->ports->timer(op, which, after);
}

/* Sets the timer of the deadline: of the turning point before the commit, of "late" after it. */
void op_set_deadline(struct op *op)
{
	double at;

	if (op->deadline <= 0 || op->back) {
		op_set_timer(op, OP_TIMER_DEADLINE, 0);
		return;
	}
	at = op->committed || !has_undo(op->plan) ? op->deadline :
	     op->deadline - reserve_of(op->timeout);
	op_set_timer(op, OP_TIMER_DEADLINE, fmax(at - op_now(op), OP_SOON));
}

/* The step's own limit starts anew. */
static void set_limit(struct op *op)
{
	const struct op_step *step = op_step_here(op);
	double limit = op->back ? step->undo_limit : step->limit;

	op_set_timer(op, OP_TIMER_LIMIT, limit > 0 ? limit : OP_LIMIT_DEFAULT);
}

enum op_verdict op_progress(struct op *op)
{
	if (op->stage == OP_INSIDE)
		set_limit(op);
	return OP_WAIT;
}

void op_drop_kept(struct op *op)
{
	for (unsigned i = 0; i < op->nkept; i++)
		json_decref(op->kept[i].data);
	op->nkept = 0;
}

/* Moving on drops what the step awaited, never the watch on resources. */
static void drop_awaited(struct op *op)
{
	for (unsigned i = 0; i < op->nawait; i++)
		op->ports->forget(op, op->await[i].token);
	op->nawait = 0;
	op->tick = false;
	op->want = op->got = 0;
	op->want_names = NULL;
	op->sync_awaited = 0;
	op->muted = false;
	op_set_timer(op, OP_TIMER_TICK, 0);
	op_set_timer(op, OP_TIMER_LIMIT, 0);
}

void op_schedule(struct op *op)
{
	drop_awaited(op);
	op->stage = OP_ENTERING;
	op_set_timer(op, OP_TIMER_ENTER, OP_SOON);
}

static void await_sync(struct op *op, enum op_sync what)
{
	op->stage = OP_SYNCING;
	op->sync_for = what;
	op->sync_awaited = op->sync_sent;
}

void op_set_fail(struct op *op, const struct tp_error *err, const json_t *data)
{
	if (op->fail.code != TP_OK)
		return;
	op->fail = *err;
	json_decref(op->fail_data);
	op->fail_data = data ? json_deep_copy(data) : NULL;
}

void op_clear_fail(struct op *op)
{
	tp_error_clear(&op->fail);
	json_decref(op->fail_data);
	op->fail_data = NULL;
	op->fail_by_link = false;
}

/* Moves the step's failure to the operation's or the stuck step's. */
static void take_fail(struct op *op, struct tp_error *err, json_t **data)
{
	if (op->fail.code == TP_OK)
		tp_fail(&op->fail, TP_ESTATE, "step %s failed without a reason", step_text(op));
	*err = op->fail;
	json_decref(*data);
	*data = TP_STEAL(op->fail_data);
	op_clear_fail(op);
}

/* --- lost resources --- */

struct op_loss *op_loss_of(struct op *op, unsigned res)
{
	return &op->loss[res == OP_RES_QEMU ? 0 : 1];
}

/* Past the commit a step that needs QEMU is passed over once QEMU is gone. */
bool op_skipped(const struct op *op)
{
	const struct op_step *step = op_step_here(op);

	return op->committed && op->qemu_gone && (step->flags & OPF_QEMU);
}

static void doom(struct op *op)
{
	const struct op_loss *loss = &op->loss[0];

	op->held &= ~(unsigned)OP_RES_QEMU;
	if (op->doomed)
		return;
	op->doomed = true;
	if (loss->why.code != TP_OK)
		op->error = loss->why;
	else
		tp_fail_class(&op->error, TP_ESTATE, "QemuExited", "QEMU of VM %s is gone", op->vm);
	op->error_data = loss->data ? json_deep_copy(loss->data) : NULL;
}

/*
 * A held resource whose end or error the present step does not expect. Told once: it is held no
 * longer then, so that a step past the commit can be tried again.
 */
bool op_loss_strikes(struct op *op)
{
	unsigned bad = op->held & op->lost & ~op_step_here(op)->expects;
	unsigned res;

	if (op->committed && (bad & OP_RES_QEMU)) {
		doom(op);
		bad &= ~(unsigned)OP_RES_QEMU;
	}
	res = bad & OP_RES_QEMU ? OP_RES_QEMU : bad;
	if (!res)
		return false;
	op->held &= ~res;
	op_set_fail(op, &op_loss_of(op, res)->why, op_loss_of(op, res)->data);
	return true;
}

/* A step past the commit that had failed is done with. */
static void unstick(struct op *op)
{
	if (op->stuck.code == TP_OK)
		return;
	op_warn(op, "step %s was tried again after: %s", step_text(op), op->stuck.text);
	tp_error_clear(&op->stuck);
	json_decref(op->stuck_data);
	op->stuck_data = NULL;
	op->backoff = 0;
}

static void pass_over(struct op *op)
{
	const struct op_step *step = op_step_here(op);

	if (!(step->expects & OP_RES_QEMU))
		doom(op);
	tp_info("vm=%s op=%s step=%s skipped: QEMU is gone", op->vm, op->id, step->name);
	unstick(op);
	op->at++;
	op->entered = op->enter_logged = false;
}

/* --- the walk --- */

bool op_undo_due(struct op *op)
{
	const struct op_step *step = op_step_here(op);
	bool possible = step->undo && !((step->flags & OPF_QEMU) && op->qemu_gone);

	if (possible && op->silent && (step->flags & OPF_QEMU)) {
		op->undo_failed[op->at] = true;
		return false;
	}

	if (!possible)
		op->undo_failed[op->at] = false;
	return possible && (!op->retrying || op->undo_failed[op->at]);
}

static bool any_undo_failed(const struct op *op)
{
	for (unsigned i = 0; i < op->plan->nsteps; i++) {
		if (op->undo_failed[i])
			return true;
	}
	return false;
}

static void wait_stuck(struct op *op)
{
	drop_awaited(op);
	op->backoff = op->backoff <= 0 ? OP_BACKOFF_MIN : fmin(op->backoff * 2, OP_BACKOFF_MAX);
	op->status = OP_STUCK;
	op->stage = OP_BACKOFF;
	tp_warn("vm=%s op=%s step=%s stuck, next try in %.0f s", op->vm, op->id, step_text(op),
		op->backoff);
	op_set_timer(op, OP_TIMER_ENTER, op->backoff);
	op->ports->changed(op, true);
}

void op_turn_back(struct op *op)
{
	struct tp_error err = TP_ERROR_INIT;
	bool sync = op->commit_tried;

	op->error_by_link = op->fail_by_link;
	take_fail(op, &op->error, &op->error_data);
	tp_info("vm=%s op=%s step=%s turns back: %s", op->vm, op->id, step_text(op),
		op->error.text);
	op->back = true;
	if (!op->entered)
		op->at--;
	op_set_deadline(op);
	op_schedule(op);
	if (!op->begun)
		return;
	op_phase(op, "RollingBack");
	if (!op_log_back(op, sync, &err)) {
		op_warn(op, "journal: %s", err.text);
	} else if (sync) {
		op_set_timer(op, OP_TIMER_ENTER, 0);
		op_set_timer(op, OP_TIMER_LIMIT, OP_WITHDRAW_LIMIT);
		await_sync(op, OP_SYNC_BACK);
	}
}

/* The reason is in op->fail. */
void op_step_failed(struct op *op)
{
	if (op->back) {
		op_warn(op, "undo of %s failed: %s", step_text(op), op->fail.text);
		op->silent |= op->fail.code == TP_ETIMEOUT;
		op_clear_fail(op);
		op->undo_failed[op->at] = true;
		op->blocked = op_step_here(op)->flags & OPF_BARRIER;
		if (op->blocked) {
			wait_stuck(op);
			return;
		}
		op->at--;
		op_schedule(op);
	} else if (!op->committed) {
		op_turn_back(op);
	} else if (op_skipped(op)) {
		op_clear_fail(op);
		op_schedule(op);
	} else {
		take_fail(op, &op->stuck, &op->stuck_data);
		wait_stuck(op);
	}
}

void op_move_on(struct op *op)
{
	unstick(op);
	op->at++;
	op->entered = op->enter_logged = false;
	op_schedule(op);
}

static void step_done(struct op *op)
{
	const struct op_step *step = op_step_here(op);

	if (op->back) {
		op->undo_failed[op->at--] = false;
		op->undone = true;
		op_schedule(op);
		return;
	}
	(void)op_fault_here(op, OP_FAULT_DIE_AFTER_EFFECT);
	if (!(step->flags & OPF_COMMIT) || op->committed) {
		op_move_on(op);
		return;
	}
	drop_awaited(op);
	op->commit_tried = true;
	if (!op_log_commit(op, &op->fail)) {
		op_step_failed(op);
		return;
	}
	set_limit(op);
	await_sync(op, OP_SYNC_COMMIT);
}

static void take_verdict(struct op *op, enum op_verdict v)
{
	if (v != OP_FAIL)
		op_clear_fail(op);		/* of something that the step did not mind */
	if (!op->back && v != OP_FAIL && op_loss_strikes(op))
		v = OP_FAIL;
	if (v == OP_NEXT && !op->back && op_fault_here(op, OP_FAULT_FAIL)) {
		tp_fail(&op->fail, TP_ESTATE, "step %s: injected fault", step_text(op));
		v = OP_FAIL;
	}
	if (v == OP_NEXT)
		step_done(op);
	else if (v == OP_FAIL)
		op_step_failed(op);
}

void op_feed(struct op *op, const struct op_event *ev)
{
	const struct op_step *step = op_step_here(op);

	if (op->muted)
		return;
	take_verdict(op, (op->back ? step->undo : step->run)(op, ev));
}

/* What came between two steps is told after OP_ENTER, as long as the step waits. */
static void feed_kept(struct op *op)
{
	int at = op->at;

	while (op->nkept && op->stage == OP_INSIDE && op->at == at) {
		struct op_kept kept = op->kept[0];
		struct op_event ev = { .type = kept.type, .name = kept.name, .data = kept.data };

		op->nkept--;
		memmove(op->kept, op->kept + 1, op->nkept * sizeof(kept));
		op_feed(op, &ev);
		json_decref(kept.data);
	}
}

void op_run_entry(struct op *op)
{
	struct op_event ev = { .type = OP_ENTER };

	(void)op_fault_here(op, OP_FAULT_DIE_AFTER_ENTER);
	op->enter_logged = true;
	op->stage = OP_INSIDE;
	set_limit(op);
	tp_debug("vm=%s op=%s step=%s %s", op->vm, op->id, step_text(op),
		 op->back ? "undo" : "enter");
	op_feed(op, &ev);
	if (op->stage == OP_INSIDE && !op->back && op_fault_here(op, OP_FAULT_SILENT))
		op->muted = true;
	feed_kept(op);
}

/* False where the last step is behind. */
static bool enter_forward(struct op *op)
{
	const struct op_step *step;
	bool sync;

	while ((unsigned)op->at < op->plan->nsteps && op_skipped(op))
		pass_over(op);
	step = op_step_at(op);
	if (!step)
		return false;
	if (op_loss_strikes(op)) {
		op_step_failed(op);
		return true;
	}
	(void)op_fault_here(op, OP_FAULT_DIE_BEFORE);
	if (step->phase)
		op_phase(op, step->phase);
	sync = (step->flags & OPF_SYNC) && !op->enter_logged;
	if (!op->enter_logged && !op_log_enter(op, sync, &op->fail)) {
		/* Past the commit recovery does not need it, unless it had to be synced. */
		if (!op->committed || sync) {
			op_step_failed(op);
			return true;
		}
		op_warn(op, "journal: %s", op->fail.text);
		op_clear_fail(op);
	}
	op->entered = true;
	if (sync) {
		set_limit(op);
		await_sync(op, OP_SYNC_ENTER);
	} else {
		op_run_entry(op);
	}
	return true;
}

/* False where everything is undone. */
static bool enter_back(struct op *op)
{
	while (op->at >= 0 && !op_undo_due(op))
		op->at--;
	if (op->at >= 0) {
		op_run_entry(op);
		return true;
	}
	if (!any_undo_failed(op))
		return false;
	op->retrying = true;
	wait_stuck(op);
	return true;
}

/* The last act: the owner may free the operation. */
static void finish(struct op *op)
{
	bool failed = op->back || op->doomed;

	drop_awaited(op);
	op_drop_kept(op);
	op_set_timer(op, OP_TIMER_ENTER, 0);
	op_set_timer(op, OP_TIMER_DEADLINE, 0);
	op->stage = OP_OVER;
	op->status = !failed ? OP_SUCCEEDED : op->cancelled ? OP_CANCELLED : OP_FAILED;
	if (!failed && op->total_bytes)
		op->percent = 100;
	if (op->plan->ended)
		op->plan->ended(op);
	op->ended_us = tp_now_us();
	op_set_phase(op, failed ? "Failed" : op->plan->done_phase, op->ended_us);
	tp_info("vm=%s op=%s %s %s%s%s", op->vm, op->id, op->plan->kind,
		!failed ? "succeeded" : op->cancelled ? "cancelled" : "failed",
		failed ? ": " : "", failed ? op->error.text : "");
	op->ports->changed(op, true);
	op->ports->ended(op);
}

void op_enter(struct op *op)
{
	if (op->stage == OP_BACKOFF) {
		op->stage = OP_ENTERING;
		op->status = OP_RUNNING;
		op->silent = false;
		if (op->back && !op->blocked)
			op->at = (int)op->plan->nsteps - 1;
		op->blocked = false;
		op->ports->changed(op, true);
	}
	if (op->stage == OP_ENTERING && !(op->back ? enter_back(op) : enter_forward(op)))
		finish(op);
}
