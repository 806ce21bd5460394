/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ops_queue.c - The door of operations: ids, busy, dry runs, and who waits for the VM
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_size.h"
#include "base/tp_time.h"
#include "engine/ops_priv.h"
#include "engine/spec.h"
#include "engine/verbs.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine.ops");

json_t *ops_busy_data(const struct vm *vm)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "vm", vm->name, "operation", op_id(vm->op), "kind",
			 op_plan_of(vm->op)->kind, "phase", op_phase_name(vm->op));
}

bool ops_free_for(struct vm *vm, struct tp_error *err, json_t **data)
{
	if (!vm->op)
		return true;
	*data = ops_busy_data(vm);
	return tp_fail_class(err, TP_ESTATE, "Busy", "VM %s is held by operation %s (%s, phase %s): wait for it "
			     "or cancel it", vm->name, op_id(vm->op), op_plan_of(vm->op)->kind,
			     op_phase_name(vm->op));
}

double ops_timeout(const struct api_call *call, double otherwise)
{
	return tp_json_num(api_args(call), "timeout", otherwise);
}

/* --- pending --- */

json_t *ops_pending_record(const struct vm *vm, const struct pending_op *p)
{
	char at[TP_TIME_TEXT];

	tp_time_format(p->accepted_us, at);
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:{s:n, s:n, s:n, s:n, s:n}, s:s, s:[], "
			 "s:[{s:s, s:s}]}", "id", p->id, "vm", vm->name, "kind", p->plan->kind, "phase",
			 "Pending", "status", "running", "committed", 0, "rollback", "none", "progress",
			 "done-bytes", "total-bytes", "percent", "rate", "eta", "started", at, "warnings",
			 "timeline", "phase", "Pending", "at", at);
}

static void pending_free(struct pending_op *p)
{
	json_decref(p->arguments);
	free(p);
}

/* Ends an operation that never began. */
static void pending_end(struct vm *vm, struct pending_op *p, const struct tp_error *err, json_t *data_owned)
{
	json_t *record = ops_pending_record(vm, p);
	char at[TP_TIME_TEXT];
	bool cancelled = strcmp(tp_error_class(err), "Cancelled") == 0;

	tp_json_set_str(record, "phase", "Failed");
	tp_json_set_str(record, "status", cancelled ? "cancelled" : "failed");
	tp_json_set_str(record, "ended", tp_time_format(tp_now_us(), at));
	tp_json_set(record, "error", json_pack("{s:s, s:s, s:o}", "class", tp_error_class(err), "desc",
					       err->text, "data", data_owned ? data_owned : json_object()));
	ops_append(vm->t, record);
	ops_remember(vm->t, json_incref(record));
	ops_event(vm->t, record, false);
	ops_tell(vm->t, p->id, record);
	json_decref(record);
	pending_free(p);
}

void ops_queue_drop(struct vm *vm, const char *class_, const char *why)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_fail_class(&err, TP_ECANCELLED, class_, "%s", why);
	while (vm->queue) {
		struct pending_op *p = vm->queue;

		vm->queue = p->next;
		pending_end(vm, p, &err, NULL);
	}
}

bool ops_pending_cancel(struct torpor *t, const char *id)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_fail_class(&err, TP_ECANCELLED, "Cancelled", "cancelled before it began");
	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		for (struct pending_op **p = &vm->queue; *p; p = &(*p)->next) {
			struct pending_op *found = *p;

			if (strcmp(found->id, id) != 0)
				continue;
			*p = found->next;
			pending_end(vm, found, &err, NULL);
			return true;
		}
	}
	return false;
}

static json_t *unchanged_record(const struct vm *vm, const struct pending_op *p)
{
	json_t *record = ops_pending_record(vm, p);
	char at[TP_TIME_TEXT];

	tp_json_set_str(record, "phase", p->plan->done_phase);
	tp_json_set_str(record, "status", "succeeded");
	tp_json_set_str(record, "ended", tp_time_format(tp_now_us(), at));
	tp_json_set(record, "result", json_pack("{s:b}", "unchanged", 1));
	return record;
}

/* What it was to bring about holds already. */
static void pending_unchanged(struct vm *vm, struct pending_op *p)
{
	tp_autojson json_t *record = unchanged_record(vm, p);

	ops_append(vm->t, record);
	ops_remember(vm->t, json_incref(record));
	ops_event(vm->t, record, false);
	ops_tell(vm->t, p->id, record);
}

/* False: err. Taken up, or nothing was to be done: then it has ended too. */
static bool pending_begin(struct vm *vm, struct pending_op *p, struct tp_error *err, json_t **data)
{
	double left = p->timeout > 0 ? p->timeout - (tp_now_mono() - p->accepted) : 0;

	if (p->timeout > 0 && left <= 0)
		return tp_fail_class(err, TP_ETIMEOUT, "Timeout", "operation %s waited for VM %s until its "
				     "time was over", p->id, vm->name);
	switch (verb_check(vm, verb_of_kind(p->plan->kind), p->arguments, err, data)) {
	case VERB_REFUSED:
		return false;
	case VERB_UNCHANGED:
		pending_unchanged(vm, p);
		return true;
	case VERB_OK:
		break;
	}
	return ops_begin(vm, p->plan, p->arguments, p->id, left, NULL, err) != NULL;
}

void ops_next(struct vm *vm)
{
	while (!vm->op && vm->queue && !vm->gone && !vm->t->closing) {
		struct pending_op *p = vm->queue;
		struct tp_error err = TP_ERROR_INIT;
		json_t *data = NULL;

		vm->queue = p->next;
		if (pending_begin(vm, p, &err, &data))
			pending_free(p);
		else
			pending_end(vm, p, &err, data);
	}
}

static bool enqueue(struct vm *vm, const struct op_plan *plan, json_t *arguments, const char *id,
		    double timeout, struct tp_error *err)
{
	struct pending_op **p, *fresh;
	size_t n = 0;

	for (p = &vm->queue; *p; p = &(*p)->next)
		n++;
	if (n >= OPS_QUEUE_MAX)
		return tp_fail_class(err, TP_ELIMIT, "Busy", "%d operations wait for VM %s already",
				     OPS_QUEUE_MAX, vm->name);
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return tp_fail_nomem(err);
	*fresh = (struct pending_op){ .plan = plan, .arguments = json_incref(arguments), .timeout = timeout,
				      .accepted_us = tp_now_us(), .accepted = tp_now_mono() };
	snprintf(fresh->id, sizeof(fresh->id), "%s", id);
	*p = fresh;
	return true;
}

/* --- submitting --- */

static bool new_id(struct torpor *t, char *id, size_t size, struct tp_error *err)
{
	uint64_t number;

	if (!ops_next_number(t, &number, err))
		return false;
	snprintf(id, size, "op-%llu", (unsigned long long)number);
	return true;
}

/* All but how its client waits. */
json_t *ops_essential(const json_t *args)
{
	static const char *const ways[] = { "wait", "operation-id", "busy", "dry-run" };
	json_t *copy = json_copy((json_t *)args);

	for (size_t i = 0; i < TP_N(ways); i++)
		json_object_del(copy, ways[i]);
	return copy;
}

void ops_accepted(struct api_call *call, const char *id)
{
	struct torpor *t = api_engine(call);

	if (!tp_json_bool(api_args(call), "wait", false)) {
		api_reply(call, json_pack("{s:s}", "operation", id));
		return;
	}
	if (!ops_wait_result(call, id)) {
		struct tp_error err = TP_ERROR_INIT;

		tp_fail_nomem(&err);
		api_error(call, &err, NULL);
		return;
	}
	if (!ops_find_running(t, id)) {
		tp_autojson json_t *record = ops_record(t, id);
		const char *status = tp_json_str(record, "status");

		if (status && strcmp(status, "running") != 0)
			ops_tell(t, id, record);
	}
}

bool ops_answered_by_id(struct api_call *call, const char *vm, const struct op_plan *plan, const char *id,
			const json_t *arguments)
{
	tp_autojson json_t *record = ops_record(api_engine(call), id);
	struct op *op = ops_find_running(api_engine(call), id);
	struct tp_error err = TP_ERROR_INIT;
	json_t *before = op ? op_arguments(op) : json_object_get(record, "arguments");
	bool same;

	if (!record)
		return false;
	same = strcmp(tp_json_str(record, "vm"), vm) == 0 &&
	       strcmp(tp_json_str(record, "kind"), plan->kind) == 0 &&
	       (!before || json_equal(before, (json_t *)arguments));
	if (same) {
		ops_accepted(call, id);
		return true;
	}
	tp_fail_class(&err, TP_ESTATE, "Exists", "operation %s exists with other arguments", id);
	api_error(call, &err, json_pack("{s:s}", "operation", id));
	return true;
}

static bool id_ok(const char *id)
{
	size_t n = strlen(id);

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)id[i] <= ' ' || (unsigned char)id[i] > '~')
			return false;
	/* op-NUMBER is the engine's own. */
	return n >= 1 && n <= OPS_ID_MAX &&
	       !(strncmp(id, "op-", 3) == 0 && id[3] && id[3 + strspn(id + 3, "0123456789")] == '\0');
}

bool ops_take_id(struct api_call *call, char id[OPS_ID_MAX + 1], struct tp_error *err)
{
	const char *given = tp_json_str(api_args(call), "operation-id");

	if (!given)
		return new_id(api_engine(call), id, OPS_ID_MAX + 1, err);
	if (!id_ok(given))
		return tp_fail_class(err, TP_EARG, "GenericError", "operation-id must be 1 to %d printable "
				     "characters without blanks, and not op-NUMBER", OPS_ID_MAX);
	snprintf(id, OPS_ID_MAX + 1, "%s", given);
	return true;
}

static bool busy_or_begin(struct api_call *call, struct vm *vm, const struct op_plan *plan, json_t *arguments,
			  const char *id, double timeout, struct tp_error *err, json_t **data)
{
	const char *busy = tp_json_str(api_args(call), "busy");
	bool wait = busy && strcmp(busy, "fail") != 0;

	if (vm->t->closing)
		return tp_fail_class(err, TP_ESTATE, "Draining", "the engine is shutting down");
	if (!vm->op)
		return ops_begin(vm, plan, arguments, id, timeout, NULL, err) != NULL;
	if (!wait)
		return ops_free_for(vm, err, data);
	if (!enqueue(vm, plan, arguments, id, timeout, err))
		return false;
	/* One past its commit cannot be cancelled: then this waits for its end. */
	if (strcmp(busy, "cancel") == 0)
		op_cancel(vm->op, NULL);
	return true;
}

void ops_submit(struct api_call *call, struct vm *vm, const struct op_plan *plan, double timeout)
{
	const json_t *args = api_args(call);
	const char *given = tp_json_str(args, "operation-id");
	tp_autojson json_t *arguments = ops_essential(args), *data = NULL;
	struct tp_error err = TP_ERROR_INIT;
	enum verb_answer answer = VERB_OK;
	char id[OPS_ID_MAX + 1];

	if (given && ops_answered_by_id(call, vm->name, plan, given, arguments))
		return;
	if (!vm->op || tp_json_bool(args, "dry-run", false))
		answer = verb_check(vm, verb_of_kind(plan->kind), args, &err, &data);
	if (answer == VERB_OK && tp_json_bool(args, "dry-run", false)) {
		ops_dry_run(call, vm, vm->name, plan, arguments);
		return;
	}
	if (answer == VERB_REFUSED || !ops_take_id(call, id, &err)) {
		api_error(call, &err, TP_STEAL(data));
		return;
	}
	if (answer == VERB_UNCHANGED) {
		ops_unchanged_as(call, vm, plan, id);
		return;
	}
	if (!busy_or_begin(call, vm, plan, arguments, id, timeout, &err, &data)) {
		api_error(call, &err, TP_STEAL(data));
		return;
	}
	ops_accepted(call, id);
}

void ops_unchanged_as(struct api_call *call, struct vm *vm, const struct op_plan *plan, const char *id)
{
	struct pending_op p = { .plan = plan, .accepted_us = tp_now_us() };
	tp_autojson json_t *record = NULL;

	snprintf(p.id, sizeof(p.id), "%s", id);
	record = unchanged_record(vm, &p);
	if (tp_json_bool(api_args(call), "dry-run", false)) {
		api_reply(call, json_pack("{s:b, s:[], s:[], s:[], s:{s:i, s:i, s:i}, s:b}", "ok", 1, "blockers",
					  "warnings", "plan", "estimate", "bytes", 0, "seconds", 0, "pause", 0,
					  "unchanged", 1));
		return;
	}
	ops_append(vm->t, record);
	ops_remember(vm->t, json_incref(record));
	ops_accepted(call, id);
	ops_event(vm->t, record, false);
}

/* --- dry runs --- */

static json_t *plan_phases(const struct op_plan *plan)
{
	json_t *phases = json_array();

	for (unsigned i = 0; i < plan->nsteps; i++)
		if (plan->steps[i].phase)
			json_array_append_new(phases, json_string(plan->steps[i].phase));
	json_array_append_new(phases, json_string(plan->done_phase));
	return phases;
}

void ops_dry_run(struct api_call *call, struct vm *vm, const char *name, const struct op_plan *plan,
		 json_t *arguments)
{
	struct torpor *t = api_engine(call);
	tp_autojson json_t *was = vm ? ops_was(vm) : NULL;
	struct op_options o = { .id = "dry-run", .vm = name, .arguments = arguments, .was = was,
				.timeout = 60 };
	struct op_run *r = ops_run_new(t, vm, plan);
	struct tp_error err = TP_ERROR_INIT;

	if (r) {
		r->dry = true;
		r->dry_call = call;
		r->check = *plan;
		r->check.nsteps = 1;
		r->check.ended = NULL;
		r->op = op_new(&r->check, &ops_real_ports, r, &o, &err);
	}
	if (!r || !r->op) {
		ops_run_free(r);
		tp_fail_nomem(&err);
		api_error(call, &err, NULL);
		return;
	}
	r->next = t->ops->running;
	t->ops->running = r;
	if (!op_start(r->op, &err)) {
		ops_run_free(r);
		api_error(call, &err, NULL);
	}
}

static void dry_free_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	(void)loop, (void)events;
	ops_run_free(w->data);
}

void ops_dry_drop(struct op_run *r)
{
	struct tp_error err = TP_ERROR_INIT;

	if (!r->dry_call)
		return;
	tp_fail_class(&err, TP_ECANCELLED, "NotFound", "VM %s was undefined meanwhile", r->vm->name);
	api_error(TP_STEAL(r->dry_call), &err, NULL);
}

void ops_dry_done(struct op_run *r)
{
	tp_autojson json_t *record = op_record(r->op);
	const struct tp_error *err = op_error(r->op);
	json_t *blockers = json_object_get((json_t *)op_error_data(r->op), "blockers");
	json_t *estimate = tp_json_path(record, "result.estimate");
	json_t *list = json_array();

	if (err && json_is_array(blockers))
		json_array_extend(list, blockers);
	else if (err)
		json_array_append_new(list, json_pack("{s:s, s:s, s:O?}", "class", tp_error_class(err), "desc",
						      err->text, "data", (json_t *)op_error_data(r->op)));
	api_reply(TP_STEAL(r->dry_call), json_pack("{s:b, s:o, s:O, s:o, s:O?}", "ok", err == NULL, "blockers", list,
					 "warnings", json_object_get(record, "warnings"), "plan",
					 plan_phases(r->plan), "estimate", estimate));
	/* We are inside the runner: free from the loop. */
	ev_set_cb(&r->end_again, dry_free_cb);
	ev_timer_set(&r->end_again, 0., 0.);
	ev_timer_start(r->t->loop, &r->end_again);
}
