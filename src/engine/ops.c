/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ops.c - Operations are accepted, begun, waited for and remembered
 *
 * An operation belongs to its VM, never to the client that asked for it. What
 * waits for its end (wait, operation-wait) is a list of calls by operation id.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/op_journal.h"
#include "engine/ops_priv.h"
#include "engine/prefetch.h"
#include "engine/restorable.h"
#include "engine/retain.h"
#include "engine/standing.h"
#include "engine/verbs.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine.ops");

static const struct op_plan *const plans[] = { &plan_start, &plan_powerdown, &plan_hibernate, &plan_restore,
					       &plan_image_move };

const struct op_plan *ops_plan(const char *kind)
{
	for (size_t i = 0; i < TP_N(plans); i++)
		if (kind && strcmp(plans[i]->kind, kind) == 0)
			return plans[i];
	return NULL;
}

uint64_t ops_token(struct torpor *t)
{
	return ++t->ops->next_token;
}

struct op_run *ops_run_of(struct torpor *t, const char *id)
{
	struct op_run *r = t->ops->running;

	while (r && strcmp(op_id(r->op), id) != 0)
		r = r->next;
	return r;
}

bool ops_run_alive(struct torpor *t, const struct op *op)
{
	struct op_run *r = t->ops->running;

	while (r && r->op != op)
		r = r->next;
	return r != NULL;
}

struct op *ops_find_running(struct torpor *t, const char *id)
{
	struct op_run *r = ops_run_of(t, id);

	return r && !r->dry ? r->op : NULL;
}

size_t ops_running(const struct torpor *t)
{
	size_t n = 0;

	for (const struct op_run *r = t->ops->running; r; r = r->next)
		n += !r->dry;
	return n;
}

/* --- telling --- */

void ops_event(struct torpor *t, const json_t *record, bool progress)
{
	json_t *data = json_copy((json_t *)record);

	json_object_del(data, "timeline");
	api_event(t, "OPERATION", tp_json_str(record, "vm"), progress, data);
}

static void waiter_answer(struct op_waiter *w, const json_t *record)
{
	const char *status = tp_json_str(record, "status");
	const json_t *error = json_object_get(record, "error");
	struct tp_error err = TP_ERROR_INIT;
	json_t *data;

	if (w->as_record || strcmp(status, "succeeded") == 0) {
		api_reply(w->call, json_deep_copy(record));
		return;
	}
	data = json_object_get(error, "data") ? json_deep_copy(json_object_get(error, "data")) : json_object();
	tp_json_set_str(data, "operation", tp_json_str(record, "id"));
	tp_json_set(data, "record", json_deep_copy(record));
	tp_fail_class(&err, TP_ESTATE, tp_json_str(error, "class") ? tp_json_str(error, "class") : "GenericError",
		      "%s", tp_json_str(error, "desc") ? tp_json_str(error, "desc") : "the operation failed");
	api_error(w->call, &err, data);
}

static void waiter_free(struct op_waiter *w)
{
	struct op_waiter **p = &w->t->ops->waiters;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	ev_timer_stop(w->t->loop, &w->limit);
	free(w);
}

void ops_tell(struct torpor *t, const char *id, const json_t *record)
{
	struct op_waiter *w = t->ops->waiters;

	/* A restore that is waited for until the VM is whole goes on beside its VM. */
	if (strcmp(tp_json_str(record, "status"), "running") == 0)
		return;
	while (w) {
		struct op_waiter *next = w->next;

		if (strcmp(w->id, id) == 0) {
			waiter_answer(w, record);
			waiter_free(w);
		}
		w = next;
	}
}

static void waiter_limit_cb(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct op_waiter *w = timer->data;
	tp_autojson json_t *record = ops_record(w->t, w->id);

	(void)loop, (void)events;
	waiter_answer(w, record);
	waiter_free(w);
}

static bool wait_for(struct api_call *call, const char *id, double limit, bool as_record)
{
	struct torpor *t = api_engine(call);
	struct op_waiter *w = calloc(1, sizeof(*w));

	if (!w)
		return false;
	*w = (struct op_waiter){ .next = t->ops->waiters, .call = call, .t = t, .as_record = as_record };
	snprintf(w->id, sizeof(w->id), "%s", id);
	t->ops->waiters = w;
	ev_timer_init(&w->limit, waiter_limit_cb, limit, 0.);
	w->limit.data = w;
	if (limit > 0)
		ev_timer_start(t->loop, &w->limit);
	return true;
}

bool ops_wait(struct api_call *call, const char *id, double limit)
{
	return wait_for(call, id, limit, true);
}

bool ops_wait_result(struct api_call *call, const char *id)
{
	return wait_for(call, id, 0, false);
}

/* --- numbers --- */

static enum state_edit put_number(json_t *host, void *arg)
{
	const uint64_t *reserved = arg;

	return tp_json_set(host, "next-operation", json_integer((json_int_t)*reserved)) ? STATE_CHANGED :
	       STATE_NO_MEMORY;
}

static bool write_numbers(struct torpor *t, uint64_t reserved, struct tp_error *err)
{
	return state_host_edit(t->state, put_number, &reserved, err);
}

static bool reserve_run(void *arg, struct tp_error *err)
{
	struct torpor *t = arg;

	return write_numbers(t, t->ops->reserving, err);
}

static void reserve_done(void *arg, const struct tp_error *err)
{
	struct torpor *t = arg;

	if (!err)
		t->ops->reserved = t->ops->reserving;
	else if (err->code != TP_ECANCELLED)
		tp_warn("numbers of operations cannot be reserved: %s", err->text);
	t->ops->reserving = 0;
}

bool ops_next_number(struct torpor *t, uint64_t *number, struct tp_error *err)
{
	struct ops *ops = t->ops;

	/* Only after a disk that was full at the start; at once, as somebody waits for it now. */
	if (ops->next_number >= ops->reserved && !ops->reserving &&
	    write_numbers(t, ops->next_number + OPS_NUMBERS, NULL))
		ops->reserved = ops->next_number + OPS_NUMBERS;
	if (ops->next_number + OPS_NUMBERS / 2 > ops->reserved && !ops->reserving) {
		ops->reserving = ops->reserved + OPS_NUMBERS;
		if (!io_worker_submit(t->worker, reserve_run, reserve_done, t, NULL))
			ops->reserving = 0;
	}
	if (ops->next_number >= ops->reserved)
		return tp_fail_class(err, TP_ESYS, "IOError", "the state directory cannot be written: no number for "
				     "an operation; give an operation-id or try again");
	*number = ops->next_number++;
	return true;
}

struct ops *ops_new(struct torpor *t, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	struct ops *ops = calloc(1, sizeof(*ops));
	tp_autojson json_t *records = NULL, *host = NULL;
	size_t i;
	json_t *record;

	if (!ops) {
		tp_fail_nomem(err);
		return NULL;
	}
	t->ops = ops;		/* freed by torpor_free, also when this fails */
	ops->ended = json_array();
	records = state_ops_read(t->state, err);
	host = records ? state_host_read(t->state, err) : NULL;
	if (!host)
		return NULL;
	/* Handed out in blocks, so that none is used twice after a crash. */
	ops->next_number = (uint64_t)tp_json_int(host, "next-operation", 1);
	ops->reserved = ops->next_number + OPS_NUMBERS;
	if (!write_numbers(t, ops->reserved, &why)) {
		/* A full disk must not keep VMs from being looked after; it is tried again for each number. */
		tp_warn("numbers of operations cannot be reserved: %s", why.text);
		ops->reserved = ops->next_number;
	}
	json_array_foreach(records, i, record)
		ops_keep(ops, record);
	ops->logged = json_array_size(records);
	return ops;
}

void ops_abandon(struct ops *ops)
{
	while (ops && ops->running)
		ops_run_free(ops->running);
}

/* A dry run holds no VM: it ends with it. */
void ops_forget_vm(struct vm *vm)
{
	struct op_run *r = vm->t->ops ? vm->t->ops->running : NULL;

	while (r) {
		struct op_run *next = r->next;

		if (r->vm == vm && r->dry) {
			ops_dry_drop(r);
			ops_run_free(r);
		}
		r = next;
	}
	ops_queue_drop(vm, "Cancelled", "the VM was undefined");
}

void ops_free(struct ops *ops)
{
	if (!ops)
		return;
	while (ops->waiters)
		waiter_free(ops->waiters);
	json_decref(ops->ended);
	free(ops);
}

static json_t *remembered(struct torpor *t, const char *id)
{
	size_t i;
	json_t *record;

	json_array_foreach(t->ops->ended, i, record)
		if (strcmp(tp_json_str(record, "id"), id) == 0)
			return record;
	return NULL;
}

/* Until its end is on the platter and the VM is free, an operation is shown as still running. */
static json_t *shown(const struct op_run *r)
{
	return r->ending && r->told ? json_incref(r->told) : op_record(r->op);
}

json_t *ops_shown(const struct vm *vm)
{
	struct op_run *r = vm->op ? ops_run_of(vm->t, op_id(vm->op)) : NULL;

	return r ? shown(r) : json_null();
}

json_t *ops_record(struct torpor *t, const char *id)
{
	struct op_run *r = ops_run_of(t, id);

	if (r && !r->dry)
		return shown(r);
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		for (struct pending_op *p = vm->queue; p; p = p->next)
			if (strcmp(p->id, id) == 0)
				return ops_pending_record(vm, p);
	return json_incref(remembered(t, id));
}

static bool matches(const json_t *record, const json_t *args, const char *member)
{
	const char *want = tp_json_str(args, member), *is = tp_json_str(record, member);

	return !want || (is && strcmp(want, is) == 0);
}

static void query_add(json_t *out, json_t *record_owned, const json_t *args, size_t limit)
{
	static const char *const members[] = { "vm", "status", "kind", "parent" };
	bool ok = json_array_size(out) < limit;

	for (size_t i = 0; i < TP_N(members) && ok; i++)
		ok = matches(record_owned, args, members[i]);
	if (ok)
		json_array_append_new(out, record_owned);
	else
		json_decref(record_owned);
}

json_t *ops_query(struct torpor *t, const json_t *args)
{
	json_t *out = json_array();
	size_t limit = (size_t)tp_json_int(args, "limit", OPS_KEEP_ALL);
	const char *before = tp_json_str(args, "before");
	size_t i = json_array_size(t->ops->ended);

	for (struct op_run *r = t->ops->running; r && !before; r = r->next)
		if (!r->dry)
			query_add(out, shown(r), args, limit);
	for (struct vm *vm = t->vms; vm && !before; vm = vm->next)
		for (struct pending_op *p = vm->queue; p; p = p->next)
			query_add(out, ops_pending_record(vm, p), args, limit);
	while (before && i > 0)
		if (strcmp(tp_json_str(json_array_get(t->ops->ended, --i), "id"), before) == 0)
			break;
	while (i > 0)
		query_add(out, json_incref(json_array_get(t->ops->ended, --i)), args, limit);
	return out;
}

/* --- beginning --- */

/* Until the monitor of a QEMU that was taken up has answered: as it was left, like the VM's state. */
static const char *run_state(const struct vm *vm)
{
	if (!vm->qemu || vm->qemu->ready || !vm->qemu->adopted)
		return vm_qemu_status(vm);
	return tp_json_str(vm->rest, "paused-by") ? "paused" : "running";
}

json_t *ops_was(const struct vm *vm)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "run-state", run_state(vm), "state",
			 vm_state_name(vm->state), "reason", vm->reason, "rest",
			 tp_json_str(vm->rest, "rest") ? tp_json_str(vm->rest, "rest") : "shutoff");
}

struct op_run *ops_begin(struct vm *vm, const struct op_plan *plan, json_t *arguments, const char *id,
			 double timeout, const char *parent, struct tp_error *err)
{
	tp_autojson json_t *was = ops_was(vm);
	struct op_options o = { .id = id, .vm = vm->name, .arguments = arguments, .was = was,
				.parent = parent, .timeout = timeout };
	struct op_run *r = ops_run_new(vm->t, vm, plan);

	if (!r) {
		tp_fail_nomem(err);
		return NULL;
	}
	vm->journal_fd = op_journal_begin(vm->dirfd, err);
	if (vm->journal_fd < 0)
		ops_journal_failed(vm, err);
	r->op = vm->journal_fd >= 0 ? op_new(plan, &ops_real_ports, r, &o, err) : NULL;
	if (!r->op) {
		tp_close(&vm->journal_fd);
		ops_run_free(r);
		return NULL;
	}
	r->next = vm->t->ops->running;
	vm->t->ops->running = r;
	vm->op = r->op;
	if (!op_start(r->op, err)) {
		vm->op = NULL;
		tp_close(&vm->journal_fd);
		ops_run_free(r);
		return NULL;
	}
	tp_info("vm=%s op=%s %s", vm->name, id, plan->kind);
	vm_refresh(vm);
	return r;
}

struct op *ops_restore(struct vm *vm, const struct op_plan *plan, const json_t *records, struct tp_error *err)
{
	const json_t *begin = json_array_get(records, 0);
	struct op_options o = { .id = tp_json_str(begin, "op"), .vm = vm->name,
				.arguments = json_object_get(begin, "arguments"),
				.was = json_object_get(begin, "was"), .parent = tp_json_str(begin, "parent"),
				.deadline_us = (uint64_t)tp_json_int(begin, "deadline", 0) };
	struct op_run *r = ops_run_new(vm->t, vm, plan);

	if (!r || !o.id) {
		ops_run_free(r);
		tp_fail(err, TP_ECORRUPT, "the journal's first record names no operation");
		return NULL;
	}
	r->op = op_new(plan, &ops_real_ports, r, &o, err);
	if (!r->op || !op_rebuild(r->op, records, err)) {
		ops_run_free(r);
		return NULL;
	}
	r->recovered = true;
	r->next = vm->t->ops->running;
	vm->t->ops->running = r;
	vm->op = r->op;
	return r->op;
}

void ops_run_done(struct op_run *r)
{
	struct torpor *t = r->t;
	struct vm *vm = r->vm;
	tp_autojson json_t *record = op_record(r->op);
	bool stuck = strcmp(tp_json_str(record, "status"), "stuck") == 0;

	tp_info("vm=%s op=%s %s %s", vm->name, op_id(r->op), r->plan->kind, tp_json_str(record, "status"));
	vm->op = NULL;
	tp_close(&vm->journal_fd);
	prefetch_shape_record(vm, record);
	ops_remember(t, json_incref(record));
	pools_op_ended(t->pools, op_res(r->op));
	/* What it had left at the start was its own until now. */
	if (r->recovered)
		pools_sweep(t->pools);
	standing_soon(t, false);
	ops_run_free(r);
	vm_refresh(vm);
	restorable_check(vm);
	retain_vm(vm);
	ops_event(t, record, false);
	ops_tell(t, tp_json_str(record, "id"), record);
	prefetch_op_ended(vm);
	if (!stuck)
		ops_next(vm);
	if (t->closing && !ops_running(t))
		ev_feed_event(t->loop, &t->closing_timer, EV_TIMER);
}

size_t ops_close(struct torpor *t)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		ops_queue_drop(vm, "Cancelled", "the engine is shutting down");
	for (struct op_run *r = t->ops->running; r; r = r->next)
		if (!r->dry)
			op_cancel(r->op, NULL);
	return ops_running(t);
}
