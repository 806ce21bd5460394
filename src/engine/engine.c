/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * engine.c - An engine is made, shut down, freed
 *
 * At the start everything is done at once, before clients are served: lock,
 * state, pools, VMs, recovery begun. At the end VMs stay: an operation before
 * its commit is rolled back if there is time, the rest is the next engine's.
 */
#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/api_state.h"
#include "engine/left_behind.h"
#include "engine/ops.h"
#include "engine/recover.h"
#include "engine/restorable.h"
#include "engine/retain.h"
#include "engine/standing.h"
#include "engine/verbs.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine");

#define HOUSEKEEPING_EVERY 30.0		/* seconds */
#define IMAGES_LOOK_EVERY 120		/* of them: an hour */
#define WORKER_WAIT 5.0
#define CLOSING_LOOK 0.02

struct api_state *engine_api(struct torpor *t)
{
	return t->api;
}

struct ev_loop *engine_loop(struct torpor *t)
{
	return t->loop;
}

json_t *engine_version_info(struct torpor *t)
{
	char at[TP_TIME_TEXT];

	return json_pack("{s:s, s:s, s:i, s:s}", "instance", state_dir_instance(t->state), "host", t->host, "pid",
			 (int)getpid(), "started", tp_time_format(t->started_us, at));
}

static json_t *memory_info(void)
{
	tp_autofree char *text = tp_read_path("/proc/meminfo", 16384, NULL, NULL);
	const char *total = text ? strstr(text, "MemTotal:") : NULL;
	const char *available = text ? strstr(text, "MemAvailable:") : NULL;

	return json_pack("{s:o, s:o}", "total", total ? json_integer(strtoll(total + 9, NULL, 10) * 1024) : json_null(),
			 "available", available ? json_integer(strtoll(available + 13, NULL, 10) * 1024) : json_null());
}

json_t *engine_host_info(struct torpor *t)
{
	size_t qemus = 0;

	for (struct vm *vm = t->vms; vm; vm = vm->next)
		qemus += vm->qemu != NULL;
	return json_pack("{s:b, s:o, s:o, s:{s:I, s:I}}", "draining", 0, "memory", memory_info(), "pools",
			 pools_describe(t->pools), "qemu", "running", (json_int_t)qemus, "vms",
			 (json_int_t)vm_count(t));
}

static void housekeeping_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct torpor *t = w->data;

	(void)loop, (void)events;
	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		vm_log_trim(vm);
		if (vm->undecided)
			recover_vm(vm);
		if (vm->rest_dirty && !vm->op && !vm->undecided)
			vm_rest_save(vm);
		vm_image_again(vm);
	}
	if (++t->housekeepings % t->images_look_every == 0) {
		restorable_check_all(t);
		retain_all(t);
	}
	standing_ask_all(t);
	standing_soon(t, true);
}

/* --- making --- */

static bool open_dirs(struct torpor *t, const struct torpor_options *o, struct tp_error *err)
{
	tp_autoclose int run = -1;

	if (!o->state_dir || *o->state_dir != '/' || !o->runtime_dir || *o->runtime_dir != '/')
		return tp_fail(err, TP_EARG, "state and runtime directories must be absolute paths");
	if (strlen(o->runtime_dir) >= sizeof(t->runtime_dir))
		return tp_fail(err, TP_EARG, "runtime directory %s is too long: sockets must fit below it",
			       o->runtime_dir);
	snprintf(t->runtime_dir, sizeof(t->runtime_dir), "%s", o->runtime_dir);
	t->state = state_dir_open(o->state_dir, err);
	if (!t->state)
		return false;
	run = tp_mkdirs(t->runtime_dir, err);
	return run >= 0 && mover_context_init(&t->mover, t->loop, o->mover_path, err);
}

static bool open_pools(struct torpor *t, const struct torpor_options *o, struct tp_error *err)
{
	t->pools = pools_new(t);
	if (!t->pools)
		return tp_fail_nomem(err);
	for (size_t i = 0; i < o->npools; i++)
		if (!pools_add(t->pools, o->pools[i].name, o->pools[i].path, o->pools[i].quota, err))
			return false;
	return pools_load(t->pools, err);
}

static bool load_vms(struct torpor *t, struct tp_error *err)
{
	tp_autojson json_t *names = state_dir_vms(t->state, err);
	size_t i;
	json_t *name;

	if (!names)
		return false;
	json_array_foreach(names, i, name) {
		struct tp_error why = TP_ERROR_INIT;

		if (!vm_load(t, json_string_value(name), &why))
			tp_err("vm=%s cannot be loaded: %s", json_string_value(name), why.text);
	}
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		recover_vm(vm);
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		vm_image_again(vm);
	pools_sweep(t->pools);
	restorable_check_all(t);
	retain_all(t);
	standing_soon(t, true);
	return true;
}

static bool engine_init(struct torpor *t, const struct torpor_options *o, struct tp_error *err)
{
#ifdef TP_FAULTS
	if (getenv("TORPOR_FAULT") && !op_fault_set(getenv("TORPOR_FAULT")))
		return tp_fail(err, TP_EARG, "TORPOR_FAULT is not STEP:KIND");
#endif
	if (o->size < sizeof(*o))
		return tp_fail(err, TP_EARG, "struct torpor_options of another version");
	if (o->host_name)
		snprintf(t->host, sizeof(t->host), "%s", o->host_name);
	else if (gethostname(t->host, sizeof(t->host) - 1) < 0)
		snprintf(t->host, sizeof(t->host), "localhost");
	if (!open_dirs(t, o, err))
		return false;
	t->worker = io_worker_new(t->loop, "state", err);
	t->disks = io_worker_new(t->loop, "disks", err);
	t->api = api_state_new(t);
	t->standing = standing_new(t);
	if (!t->worker || !t->disks || !t->api || !t->standing)
		return tp_fail_nomem(err);
	return features_load(t, err) && left_behind_load(t, err) && open_pools(t, o, err) && ops_new(t, err) && load_vms(t, err);
}

static void closing_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct torpor *t = w->data;
	void (*closed)(void *arg) = t->closed;

	(void)events;
	ev_timer_stop(loop, w);
	/* What waits for the state directory is written first, unless that hangs. */
	if (closed && io_worker_pending(t->worker) && tp_now_mono() < t->closing_until) {
		ev_timer_set(w, CLOSING_LOOK, 0.);
		ev_timer_start(loop, w);
		return;
	}
	t->closed = NULL;
	if (closed)
		closed(t->closed_arg);
}

struct torpor *torpor_new(struct ev_loop *loop, const struct torpor_options *options, char *error)
{
	struct torpor *t = calloc(1, sizeof(*t));
	struct tp_error err = TP_ERROR_INIT;

	if (!t) {
		if (error)
			snprintf(error, TORPOR_ERROR_SIZE, "out of memory");
		return NULL;
	}
	t->loop = loop;
	t->images_look_every = IMAGES_LOOK_EVERY;
	t->mover.exe_fd = -1;
	t->started_us = tp_now_us();
	t->housekeeping.data = t->closing_timer.data = t;
	ev_timer_init(&t->housekeeping, housekeeping_cb, HOUSEKEEPING_EVERY, HOUSEKEEPING_EVERY);
	ev_init(&t->closing_timer, closing_cb);
	if (!engine_init(t, options, &err)) {
		if (error)
			snprintf(error, TORPOR_ERROR_SIZE, "%s", err.text);
		torpor_free(t);
		return NULL;
	}
	ev_timer_start(loop, &t->housekeeping);
	return t;
}

/* --- ending --- */

void torpor_shutdown(struct torpor *t, double limit, void (*done)(void *arg), void *arg)
{
	t->closing = true;
	t->closing_until = tp_now_mono() + limit + WORKER_WAIT;
	t->closed = done;
	t->closed_arg = arg;
	api_event(t, "TORPOR_SHUTDOWN", NULL, false, NULL);
	ev_timer_stop(t->loop, &t->closing_timer);
	ev_timer_set(&t->closing_timer, ops_close(t) ? limit : 0., 0.);
	ev_timer_start(t->loop, &t->closing_timer);
}

void torpor_free(struct torpor *t)
{
	if (!t)
		return;
	ev_timer_stop(t->loop, &t->housekeeping);
	ev_timer_stop(t->loop, &t->closing_timer);
	t->closing = true;	/* what is answered on the way begins nothing new */
	/* Operations first: what ends from here on must not look like a failure of theirs. */
	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		vm->op = NULL;
		ops_queue_drop(vm, "Cancelled", "the engine has ended");
	}
	ops_abandon(t->ops);
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		vm_qemu_forget(vm);
	/* Ends of work in a pool still write to the state directory: its worker goes last. */
	io_worker_free(t->disks, WORKER_WAIT);
	pools_free(t->pools);
	if (!io_worker_free(t->worker, WORKER_WAIT))
		t->state = NULL;	/* a thread that hangs still has it */
	sync_calls_free(t);
	api_state_free(t->api);
	ops_free(t->ops);		/* waiters are unlinked through it */
	t->ops = NULL;
	while (t->vms)
		vm_destroy(t->vms);
	standing_free(t->standing);
	json_decref(t->left_behind);
	mover_context_close(&t->mover);
	state_dir_close(t->state);
	free(t);
}

void torpor_log_state(struct torpor *t)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		tp_info("vm=%s state=%s/%s pid=%d qemu-status=%s op=%s step=%s", vm->name, vm_state_name(vm->state),
			vm->reason, vm->qemu ? (int)vm->qemu->proc.pid : 0, vm_qemu_status(vm),
			vm->op ? op_id(vm->op) : "-", vm->op ? op_step_name(vm->op) : "-");
}
