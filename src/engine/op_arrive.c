/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_arrive.c - What reaches the runner: answers, events, timers, ends of resources
 *
 * Answers are matched by token and dropped where the step that asked has ended. What merely happens
 * (QEMU's events, the mover's messages) goes to the step that waits; between two steps it is kept
 * for the next one.
 */
#include "engine/op_priv.h"

#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"

TP_LOG_SOURCE("engine.op");

static void limit_over(struct op *op)
{
	unsigned missing = op->want & ~op->got;
	const char *name = NULL;

	if (op->stage == OP_SYNCING && op->sync_for == OP_SYNC_BACK) {
		op_schedule(op);
		return;
	}
	if (op->stage != OP_INSIDE && op->stage != OP_SYNCING)
		return;
	if (op->stage == OP_SYNCING || op->sync_awaited)
		name = "the journal";
	else if (missing && op->want_names)
		name = op->want_names[__builtin_ctz(missing)];
	op_clear_fail(op);
	tp_fail_class(&op->fail, TP_ETIMEOUT, "Timeout", "%s%s: no answer in time%s%s",
		      op->back ? "undo of " : "step ", op_step_here(op)->name, name ? ": waiting for " : "",
		      name ? name : "");
	op_step_failed(op);
}

void op_deliver_timer(struct op *op, enum op_timer which)
{
	struct op_event ev = { .type = OP_TICK };

	if (op->stage == OP_OVER)
		return;
	switch (which) {
	case OP_TIMER_ENTER:
		op_enter(op);
		break;
	case OP_TIMER_LIMIT:
		limit_over(op);
		break;
	case OP_TIMER_DEADLINE:
		op_deadline_over(op);
		break;
	case OP_TIMER_TICK:
		if (!op->tick || op->stage != OP_INSIDE)
			return;
		op->tick = false;
		op_feed(op, &ev);
		break;
	default:
		return;
	}
}

static void note_synced(struct op *op, const struct tp_error *err)
{
	struct op_event ev = { .type = OP_IO, .err = err };

	if (err && !op->muted) {
		op_set_fail(op, err, NULL);
		op_step_failed(op);
		return;
	}
	op_feed(op, &ev);
}

void op_deliver_journal(struct op *op, const struct tp_error *err)
{
	op->sync_answered++;
	if (!op->sync_awaited || op->sync_answered != op->sync_awaited)
		return;
	op->sync_awaited = 0;
	if (op->sync_for == OP_SYNC_NOTE) {
		note_synced(op, err);
		return;
	}
	if (op->sync_for == OP_SYNC_BACK) {
		if (err)
			op_warn(op, "journal: %s", err->text);
		op_schedule(op);
		return;
	}
	if (err) {
		op_set_fail(op, err, NULL);
		op_step_failed(op);
		return;
	}
	if (op->sync_for == OP_SYNC_ENTER) {
		op_run_entry(op);
		return;
	}
	op->committed = true;
	tp_info("vm=%s op=%s step=%s committed", op->vm, op->id, op_step_name(op));
	op_set_deadline(op);
	op->ports->changed(op, true);
	op_move_on(op);
}

/* Refused, or not answered for another reason: the step fails, unless it wants to see that. */
static void answered(struct op *op, const struct op_event *ev)
{
	unsigned i = 0, flags;

	while (i < op->nawait && (op->await[i].token != ev->token || op->await[i].type != ev->type))
		i++;
	if (i == op->nawait)
		return;
	flags = op->await[i].flags;
	op->await[i] = op->await[--op->nawait];
	if (!ev->err || (flags & OPQ_SHOW)) {
		op_feed(op, ev);
		return;
	}
	if (op->muted)
		return;
	op_set_fail(op, ev->err, ev->error_data);
	op->fail_by_link = ev->type == OP_REPLY && ev->err->code != TP_ETIMEOUT &&
			   strcmp(tp_error_class(ev->err), "QemuError") != 0;
	op_step_failed(op);
}

/* What no step waits for now is kept for the next one; a mover's progress is not worth it. */
static void happened(struct op *op, const struct op_event *ev)
{
	struct op_kept *kept = &op->kept[op->nkept];

	if (op->stage == OP_INSIDE) {
		op_feed(op, ev);
		return;
	}
	if (op->stage == OP_OVER || op->stage == OP_IDLE || op->stage == OP_BACKOFF ||
	    op->nkept == OP_KEPT_MAX || !ev->name ||
	    (ev->type == OP_MOVER && strcmp(ev->name, "progress") == 0))
		return;
	kept->type = ev->type;
	strncpy(kept->name, ev->name, sizeof(kept->name) - 1);
	kept->name[sizeof(kept->name) - 1] = '\0';
	kept->data = ev->data ? json_deep_copy(ev->data) : NULL;
	op->nkept++;
}

static void mover_error(struct op *op, const json_t *data)
{
	struct op_loss *loss = op_loss_of(op, OP_RES_MOVER);
	const char *class_ = tp_json_str(data, "class"), *desc = tp_json_str(data, "desc");

	if (op->lost & OP_RES_MOVER)
		return;
	op->lost |= OP_RES_MOVER;
	tp_error_clear(&loss->why);
	tp_fail_class(&loss->why, TP_ESTATE, class_ ? class_ : "IOError", "%s",
		      desc ? desc : "the mover failed without a reason");
	json_decref(loss->data);
	loss->data = data ? json_deep_copy(data) : NULL;
	json_object_del(loss->data, "class");
	json_object_del(loss->data, "desc");
	if (json_object_size(loss->data) == 0) {
		json_decref(loss->data);
		loss->data = NULL;
	}
}

static void mover_said(struct op *op, const struct op_event *ev)
{
	if (!ev->name)
		return;
	if (strcmp(ev->name, "end") == 0) {
		struct tp_error why = TP_ERROR_INIT;

		tp_fail_class(&why, TP_ESTATE, "IOError", "the mover of VM %s ended too early",
			      op->vm);
		op_lost(op, OP_RES_MOVER, &why, ev->data);
		return;
	}
	if (strcmp(ev->name, "progress") != 0)
		tp_json_set(op->said, ev->name,
			    ev->data ? json_deep_copy(ev->data) : json_null());
	if (strcmp(ev->name, "error") == 0)
		mover_error(op, ev->data);
	happened(op, ev);
}

void op_deliver(struct op *op, const struct op_event *ev)
{
	switch (ev->type) {
	case OP_REPLY:
	case OP_AGENT:
	case OP_VM:
	case OP_IO:
		if (op->stage == OP_INSIDE)
			answered(op, ev);
		break;
	case OP_MOVER:
		if (op->stage != OP_OVER)
			mover_said(op, ev);
		break;
	case OP_QEMU_EVENT:
		happened(op, ev);
		break;
	case OP_ENTER:
	case OP_TICK:
		break;		/* the runner's own */
	}
}

/* Puts down why, where this end is a loss at all. */
static void note_loss(struct op *op, unsigned res, const struct tp_error *why, const json_t *data)
{
	struct op_loss *loss = op_loss_of(op, res);

	if (res == OP_RES_MOVER) {
		tp_json_set(op->said, "end", data ? json_deep_copy(data) : json_object());
		if (json_object_get(op->said, "done") || (op->lost & res))
			return;		/* its job was done, or its own words stand */
	} else {
		op->qemu_gone = true;
	}
	op->lost |= res;
	loss->why = *why;
	if (res == OP_RES_QEMU && !loss->why.class_[0])
		strcpy(loss->why.class_, "QemuExited");
	json_decref(loss->data);
	loss->data = data ? json_deep_copy(data) : NULL;
}

/* A command that failed with the connection tells less than why QEMU ended. */
static void explain_error(struct op *op)
{
	const struct op_loss *loss = op_loss_of(op, OP_RES_QEMU);

	if (!op->error_by_link)
		return;
	op->error_by_link = false;
	op->error = loss->why;
	json_decref(op->error_data);
	op->error_data = loss->data ? json_deep_copy(loss->data) : NULL;
	op->ports->changed(op, true);
}

void op_lost(struct op *op, unsigned res, const struct tp_error *why, const json_t *error_data)
{
	struct op_event ev = { .type = res == OP_RES_QEMU ? OP_QEMU_EVENT : OP_MOVER,
			       .name = res == OP_RES_QEMU ? "QEMU_GONE" : "end",
			       .data = error_data };
	bool waits = op->stage == OP_INSIDE ||
		     (op->stage == OP_SYNCING && op->sync_for == OP_SYNC_ENTER);

	if (op->stage == OP_OVER)
		return;
	note_loss(op, res, why, error_data);
	if (op->back && res == OP_RES_QEMU)
		explain_error(op);
	if (op->back && op->stage == OP_INSIDE && !op_undo_due(op)) {
		op->at--;
		op_schedule(op);
		return;
	}
	if (!op->back && waits && op_skipped(op) && !(op_step_here(op)->expects & OP_RES_QEMU)) {
		op_schedule(op);
		return;
	}
	if (!op->back && waits && op_loss_strikes(op)) {
		op_step_failed(op);
		return;
	}
	happened(op, &ev);
}
