/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* op_life.c - Making an operation, starting it, resuming it from its log, cancelling, retrying */
#include "engine/op_priv.h"

#include <math.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_time.h"

static bool init(struct op *op, const struct op_options *o)
{
	op->id = strdup(o->id);
	op->vm = strdup(o->vm);
	op->parent = o->parent ? strdup(o->parent) : NULL;
	op->arguments = o->arguments ? json_incref(o->arguments) : json_object();
	op->was = o->was ? json_incref(o->was) : json_object();
	op->result = json_object();
	op->warnings = json_array();
	op->timeline = json_array();
	op->res = json_object();
	op->res_logged = json_object();
	op->logged = json_object();
	op->said = json_object();
	op->undo_failed = calloc(op->plan->nsteps + 1, sizeof(bool));
	op->data = calloc(1, op->plan->data_size + 1);
	return op->id && op->vm && (!o->parent || op->parent) && op->arguments && op->was &&
	       op->result && op->warnings && op->timeline && op->res && op->res_logged &&
	       op->logged && op->said && op->undo_failed && op->data;
}

struct op *op_new(const struct op_plan *plan, const struct op_ports *ports, void *owner,
		  const struct op_options *o, struct tp_error *err)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op) {
		tp_fail_nomem(err);
		return NULL;
	}
	op->plan = plan;
	op->ports = ports;
	op->owner = owner;
	op->timeout = o->timeout;
	op->deadline_us = o->deadline_us;
	if (!init(op, o)) {
		op_free(op);
		tp_fail_nomem(err);
		return NULL;
	}
	op->started_us = tp_now_us();
	op_set_phase(op, "Pending", op->started_us);
	return op;
}

/* An operation that is freed before its end (the daemon's end) leaves the rest to recovery. */
static void abandon(struct op *op)
{
	for (unsigned i = 0; i < op->nawait; i++)
		op->ports->forget(op, op->await[i].token);
	for (int t = 0; t < OP_TIMER_N; t++)
		op->ports->timer(op, (enum op_timer)t, 0);
}

void op_free(struct op *op)
{
	if (!op)
		return;
	if (op->stage != OP_IDLE && op->stage != OP_OVER)
		abandon(op);
	if (op->data && op->plan->data_free)
		op->plan->data_free(op->data);
	op_drop_kept(op);
	json_decref(op->arguments);
	json_decref(op->was);
	json_decref(op->result);
	json_decref(op->warnings);
	json_decref(op->timeline);
	json_decref(op->res);
	json_decref(op->res_logged);
	json_decref(op->logged);
	json_decref(op->said);
	json_decref(op->fail_data);
	json_decref(op->error_data);
	json_decref(op->stuck_data);
	json_decref(op->loss[0].data);
	json_decref(op->loss[1].data);
	free(op->undo_failed);
	free(op->data);
	free(op->id);
	free(op->vm);
	free(op->parent);
	free(op);
}

static const char *name_at(const struct op *op)
{
	const struct op_step *step = op_step_at(op);

	return step ? step->name : "-";
}

static bool can_turn(const struct op *op)
{
	return !op->back && !op->committed && op->stage != OP_OVER &&
	       !(op->stage == OP_SYNCING && op->sync_for == OP_SYNC_COMMIT);
}

bool op_start(struct op *op, struct tp_error *err)
{
	if (op->stage != OP_IDLE || op->begun)
		return tp_fail(err, TP_ESTATE, "operation %s was started before", op->id);
	op->started_us = tp_now_us();
	if (op->timeout > 0) {
		op->deadline = op_now(op) + op->timeout;
		op->deadline_us = op->started_us + (uint64_t)(op->timeout * 1e6);
	}
	if (!op_log_begin(op, err))
		return false;
	op->begun = true;
	op_set_deadline(op);
	op_schedule(op);
	return true;
}

static bool concerns_qemu(const struct op_plan *plan)
{
	for (unsigned i = 0; i < plan->nsteps; i++)
		if (plan->steps[i].flags & OPF_QEMU)
			return true;
	return false;
}

void op_resume(struct op *op, bool qemu)
{
	double now = op_now(op);

	op->qemu_gone = !qemu;
	if (qemu)
		op->held |= OP_RES_QEMU;
	if (op->deadline_us) {
		double left = ((double)op->deadline_us - (double)tp_now_us()) / 1e6;

		op->deadline = fmax(now + left, OP_SOON);
		op->timeout = ((double)op->deadline_us - (double)op->started_us) / 1e6;
	}
	if (op->committed) {
		op_set_deadline(op);
		op_schedule(op);
		return;
	}
	if (op->back) {
		op_set_phase(op, "RollingBack", tp_now_us());
		op_schedule(op);
		return;
	}
	if (qemu || !concerns_qemu(op->plan))
		tp_fail_class(&op->fail, TP_ESTATE, "GenericError",
			      "%s of VM %s was cut by the daemon's end in step %s",
			      op->plan->kind, op->vm, name_at(op));
	else
		tp_fail_class(&op->fail, TP_ESTATE, "QemuExited",
			      "QEMU of VM %s ended while the daemon was away (%s, step %s)",
			      op->vm, op->plan->kind, name_at(op));
	op_turn_back(op);
}

bool op_cancel(struct op *op, struct tp_error *err)
{
	if (op->cancelled && op->stage != OP_OVER)
		return true;
	if (!can_turn(op))
		return tp_fail_class(err, TP_ESTATE, "InvalidState",
				     op->stage == OP_OVER ? "operation %s is over (%s)" :
				     op->back ? "operation %s is rolling back already (%s)" :
				     "operation %s is past its commit point (%s)",
				     op->id, op->phase);
	op->cancelled = true;
	/* Rebuilt, and the world is not known yet: op_resume() turns it back. */
	if (op->stage == OP_IDLE && op->begun)
		return true;
	op_clear_fail(op);
	tp_fail_class(&op->fail, TP_ECANCELLED, "Cancelled", "%s of VM %s was cancelled",
		      op->plan->kind, op->vm);
	op_turn_back(op);
	return true;
}

bool op_abort(struct op *op, const struct tp_error *why, const json_t *data)
{
	/* One that was rebuilt is turned back by op_resume() anyhow. */
	if (!can_turn(op) || op->stage == OP_IDLE)
		return false;
	op_clear_fail(op);
	op_set_fail(op, why, data);
	op_turn_back(op);
	return true;
}

bool op_retry(struct op *op, struct tp_error *err)
{
	if (op->stage != OP_BACKOFF)
		return tp_fail_class(err, TP_ESTATE, "InvalidState", "operation %s is not stuck",
				     op->id);
	op->backoff = 0;
	op_set_timer(op, OP_TIMER_ENTER, OP_SOON);
	return true;
}

void op_deadline_over(struct op *op)
{
	if (op->committed) {
		op->late = true;
		op_warn(op, "late");
	} else if (can_turn(op)) {
		op_clear_fail(op);
		tp_fail_class(&op->fail, TP_ETIMEOUT, "Timeout",
			      "%s of VM %s was not done within %.9g s", op->plan->kind, op->vm,
			      op->timeout);
		op_turn_back(op);
	}
}
