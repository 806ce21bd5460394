/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vm.c - The registry of VMs, their durable rest, and the state that follows from both
 */
#include "engine/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/defer.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/restorable.h"
#include "engine/standing.h"
#include "engine/vm_hooks.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine.vm");

static const char *const state_names[VM_STATE_N] = {
	[VM_SHUTOFF] = "shutoff", [VM_STARTING] = "starting", [VM_RUNNING] = "running", [VM_PAUSED] = "paused",
	[VM_SUSPENDED] = "suspended", [VM_HIBERNATING] = "hibernating", [VM_HIBERNATED] = "hibernated",
	[VM_RESTORING] = "restoring", [VM_MIGRATING] = "migrating", [VM_INCOMING] = "incoming",
	[VM_CRASHED] = "crashed", [VM_LOST] = "lost",
};

const char *vm_state_name(enum vm_state s)
{
	return state_names[s];
}

bool vm_state_parse(const char *name, enum vm_state *s)
{
	for (int i = 0; i < VM_STATE_N; i++) {
		if (strcmp(state_names[i], name) == 0) {
			*s = (enum vm_state)i;
			return true;
		}
	}
	return false;
}

/* --- registry --- */

struct vm *vm_find(struct torpor *t, const char *name)
{
	struct vm *vm = t->vms;

	while (vm && strcmp(vm->name, name) != 0)
		vm = vm->next;
	return vm;
}

struct vm *vm_need(struct torpor *t, const char *name, struct tp_error *err)
{
	struct vm *vm = name ? vm_find(t, name) : NULL;

	if (!vm)
		tp_fail_class(err, TP_ESTATE, "NotFound", "no VM is named \"%s\"", name ? name : "");
	else if (vm->gone)
		tp_fail_class(err, TP_ESTATE, "Busy", "VM %s is being undefined", name);
	return vm && !vm->gone ? vm : NULL;
}

size_t vm_count(const struct torpor *t)
{
	size_t n = 0;

	for (const struct vm *vm = t->vms; vm; vm = vm->next)
		n++;
	return n;
}

static void new_uid(char *uid)
{
	unsigned char r[16];

	if (getrandom(r, sizeof(r), 0) != sizeof(r))
		memset(r, 0, sizeof(r));
	r[6] = (unsigned char)((r[6] & 0x0f) | 0x40);
	r[8] = (unsigned char)((r[8] & 0x3f) | 0x80);
	snprintf(uid, VM_UID_SIZE, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0], r[1],
		 r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
}

static struct vm *vm_new(struct torpor *t, const char *name, struct tp_error *err)
{
	struct vm *vm = calloc(1, sizeof(*vm)), **p;

	if (!vm) {
		tp_fail_nomem(err);
		return NULL;
	}
	vm->t = t;
	vm->journal_fd = -1;
	vm->since_us = tp_now_us();
	vm->rest = json_pack("{s:s, s:s}", "rest", "shutoff", "reason", "never-started");
	snprintf(vm->name, sizeof(vm->name), "%s", name);
	snprintf(vm->run_dir, sizeof(vm->run_dir), "%s/%s", t->runtime_dir, name);
	snprintf(vm->reason, sizeof(vm->reason), "never-started");
	vm->dirfd = state_dir_vm(t->state, name, true, err);
	if (vm->dirfd < 0) {
		json_decref(vm->rest);
		free(vm);
		return NULL;
	}
	for (p = &t->vms; *p && strcmp((*p)->name, name) < 0; p = &(*p)->next)
		;
	vm->next = *p;
	*p = vm;
	return vm;
}

struct vm *vm_create(struct torpor *t, const char *name, const char *uid_or_null, struct tp_error *err)
{
	struct vm *vm = vm_new(t, name, err);

	if (vm && uid_or_null)
		snprintf(vm->uid, sizeof(vm->uid), "%s", uid_or_null);
	else if (vm)
		new_uid(vm->uid);
	if (vm)
		vm_rest_set(vm, "uid", json_string(vm->uid));
	return vm;
}

void vm_destroy(struct vm *vm)
{
	struct vm **p = &vm->t->vms;

	while (*p && *p != vm)
		p = &(*p)->next;
	if (*p)
		*p = vm->next;
	ops_forget_vm(vm);
	vm_hooks_drop(vm);
	vm_qemu_forget(vm);
	defer_drop(vm);
	tp_close(&vm->journal_fd);
	tp_close(&vm->dirfd);
	json_decref(vm->spec);
	json_decref(vm->rest);
	json_decref(vm->disk_info);
	standing_forget(vm);
	restorable_free(vm);
	free(vm);
}

/* --- durable --- */

static bool load_spec(struct vm *vm, struct tp_error *err)
{
	tp_autojson json_t *doc = state_vm_read(vm->dirfd, "spec.json", err);
	const char *uid = tp_json_str(doc, "uid");

	if (!doc || !uid || !json_is_object(json_object_get(doc, "spec")))
		return tp_fail(err, TP_ECORRUPT, "spec.json of VM %s is damaged", vm->name);
	snprintf(vm->uid, sizeof(vm->uid), "%s", uid);
	vm->generation = tp_json_int(doc, "generation", 1);
	vm->spec = json_incref(json_object_get(doc, "spec"));
	return true;
}

struct vm *vm_load(struct torpor *t, const char *name, struct tp_error *err)
{
	struct vm *vm = vm_new(t, name, err);
	struct tp_error why = TP_ERROR_INIT;
	json_t *rest;

	if (!vm)
		return NULL;
	if (!load_spec(vm, &why)) {
		tp_err("vm=%s %s", name, why.text);
		vm->spec = json_pack("{s:{s:s, s:[]}}", "launch", "binary", "", "args");
		new_uid(vm->uid);
		vm->spec_damaged = true;
	}
	tp_error_clear(&why);
	rest = state_vm_read(vm->dirfd, "state.json", &why);
	if (rest && tp_json_str(rest, "rest") && tp_json_str(rest, "reason")) {
		json_decref(vm->rest);
		vm->rest = rest;
		vm->observed_generation = tp_json_int(rest, "observed-generation", 0);
	} else if (rest || why.code != TP_OK) {
		json_decref(rest);
		tp_err("vm=%s state.json is damaged: %s", name, why.text);
		state_vm_set_aside(vm->dirfd, "state.json", NULL);
		vm_rest_text(vm, "lost", "record-damaged");
	}
	if (vm->spec_damaged && tp_json_str(vm->rest, "uid"))
		snprintf(vm->uid, sizeof(vm->uid), "%s", tp_json_str(vm->rest, "uid"));
	vm_rest_set(vm, "uid", json_string(vm->uid));
	return vm;
}

void vm_rest_set(struct vm *vm, const char *key, json_t *value_owned)
{
	if (value_owned)
		tp_json_set(vm->rest, key, value_owned);
	else
		json_object_del(vm->rest, key);
	vm->rest_dirty = true;
}

void vm_rest_text(struct vm *vm, const char *rest, const char *reason)
{
	vm_rest_set(vm, "rest", json_string(rest));
	vm_rest_set(vm, "reason", json_string(reason));
}

struct rest_job {
	struct op_job base;
	struct torpor *t;
	int dirfd;
	json_t *rest;
	char name[TP_NAME_MAX + 1];
};

static bool rest_run(struct op_job *base, struct tp_error *err)
{
	struct rest_job *j = (struct rest_job *)base;

	return state_vm_write(j->dirfd, "state.json", j->rest, err);
}

static void rest_free(struct op_job *base)
{
	struct rest_job *j = (struct rest_job *)base;

	tp_close(&j->dirfd);
	json_decref(j->rest);
	free(j);
}

struct op_job *vm_rest_job(struct vm *vm)
{
	struct rest_job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	*j = (struct rest_job){ .base = { .worker = OP_WORKER_STATE, .run = rest_run, .free = rest_free }, .t = vm->t,
				.dirfd = fcntl(vm->dirfd, F_DUPFD_CLOEXEC, 3),
				.rest = json_deep_copy(vm->rest) };
	snprintf(j->name, sizeof(j->name), "%s", vm->name);
	vm->rest_dirty = false;
	return &j->base;
}

static bool save_run(void *arg, struct tp_error *err)
{
	return rest_run(arg, err);
}

static void save_done(void *arg, const struct tp_error *err)
{
	struct rest_job *j = arg;
	struct vm *vm = err && err->code != TP_ECANCELLED ? vm_find(j->t, j->name) : NULL;

	if (vm) {
		tp_err("vm=%s its state cannot be written: %s", j->name, err->text);
		vm->rest_dirty = true;	/* housekeeping tries again */
	}
	rest_free(&j->base);
}

void vm_rest_save(struct vm *vm)
{
	struct op_job *job = vm_rest_job(vm);

	if (job && io_worker_submit(vm->t->worker, save_run, save_done, job, NULL))
		return;
	if (job)
		rest_free(job);
	vm->rest_dirty = true;
}

void vm_no_longer_lost(struct vm *vm)
{
	const char *rest = tp_json_str(vm->rest, "rest");
	bool lost = strcmp(rest, "lost") == 0;

	vm->spec_damaged = false;
	if (vm->qemu && lost)
		vm_rest_text(vm, "running", "ok");
	else if (!vm->qemu && (lost || strcmp(rest, "crashed") == 0))
		vm_rest_text(vm, "shutoff", "quit");
	if (!vm->undecided)
		vm_rest_save(vm);
	vm_refresh(vm);
}

/* --- state --- */

const char *vm_qemu_status(const struct vm *vm)
{
	return vm->qemu && vm->qemu->ready ? vm->qemu->status : "";
}

bool vm_running(const struct vm *vm)
{
	return strcmp(vm_qemu_status(vm), "running") == 0;
}

struct derived {
	enum vm_state state;
	const char *reason;
};

static struct derived of_run_state(const struct vm *vm)
{
	static const struct { const char *status; enum vm_state state; const char *reason; } table[] = {
		{ "running", VM_RUNNING, "ok" }, { "suspended", VM_SUSPENDED, "ok" },
		{ "io-error", VM_PAUSED, "io-error" }, { "guest-panicked", VM_PAUSED, "guest-panicked" },
		{ "watchdog", VM_PAUSED, "watchdog" }, { "postmigrate", VM_PAUSED, "operation" },
		{ "finish-migrate", VM_PAUSED, "operation" },
		{ "prelaunch", VM_PAUSED, "starting" }, { "inmigrate", VM_RESTORING, "active" },
	};
	const char *status = vm_qemu_status(vm), *by = tp_json_str(vm->rest, "paused-by");

	for (size_t i = 0; i < TP_N(table); i++)
		if (strcmp(status, table[i].status) == 0)
			return (struct derived){ table[i].state, table[i].reason };
	return (struct derived){ VM_PAUSED, by ? by : "user" };
}

static bool monitor_lost(const struct vm_qemu *q)
{
	return !q->ready && q->lost_at > 0 && tp_now_mono() - q->lost_at > 10.0;
}

static struct derived of_rest(const struct vm *vm)
{
	const char *rest = tp_json_str(vm->rest, "rest"), *reason = tp_json_str(vm->rest, "reason");
	struct derived d = { VM_SHUTOFF, reason ? reason : "never-started" };

	/* "running" without a QEMU is a moment between its end and its record. */
	if (rest && strcmp(rest, "running") != 0)
		vm_state_parse(rest, &d.state);
	return d;
}

static struct derived derive(const struct vm *vm)
{
	const char *kind = vm->op ? op_plan_of(vm->op)->kind : "";

	if (strcmp(tp_json_str(vm->rest, "rest"), "lost") == 0)
		return of_rest(vm);
	if (vm->spec_damaged)
		return (struct derived){ VM_LOST, "record-damaged" };
	if (vm->undecided)
		return (struct derived){ VM_LOST, "monitor-lost" };
	/* One that has ended holds the VM until that is on the platter. */
	if (vm->op && op_status(vm->op) != OP_STUCK && strcmp(op_phase_name(vm->op), "Pending") != 0) {
		if (strcmp(kind, "start") == 0)
			return (struct derived){ VM_STARTING, "ok" };
		if (strcmp(kind, "hibernate") == 0)
			return (struct derived){ VM_HIBERNATING, "ok" };
		if (strcmp(kind, "restore") == 0)
			return (struct derived){ VM_RESTORING, "active" };
	}
	if (!vm->qemu)
		return of_rest(vm);
	if (prefetch_away(vm))
		return (struct derived){ VM_RESTORING, "postcopy-paused" };
	if (monitor_lost(vm->qemu))
		return (struct derived){ VM_LOST, "monitor-lost" };
	/* Taken up a moment ago: as it was left, so that verbs may come, which wait for its monitor. */
	if (!vm->qemu->ready && vm->qemu->adopted)
		return tp_json_str(vm->rest, "paused-by") ? of_run_state(vm) : (struct derived){ VM_RUNNING, "ok" };
	if (!vm->qemu->ready)
		return (struct derived){ VM_STARTING, "ok" };
	return of_run_state(vm);
}

json_t *vm_brief(struct vm *vm)
{
	char at[TP_TIME_TEXT];

	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:s?, s:I}", "vm", vm->name, "uid", vm->uid, "state",
			 vm_state_name(vm->state), "reason", vm->reason, "running", vm_running(vm), "since",
			 tp_time_format(vm->since_us, at), "operation", vm->op ? op_id(vm->op) : NULL, "generation",
			 (json_int_t)vm->generation);
}

void vm_refresh(struct vm *vm)
{
	struct derived d = derive(vm);
	char reason[sizeof(vm->reason)];

	/* A VM taken up is shown as it was left; that its vCPUs do run is known, and told, a moment later. */
	if (d.state == vm->state && strcmp(d.reason, vm->reason) == 0) {
		if (vm->op || vm->told_running == vm_running(vm))
			return;
		vm->told_running = vm_running(vm);
		api_event(vm->t, "VM_STATE", vm->name, false, vm_brief(vm));
		return;
	}
	tp_info("vm=%s %s/%s -> %s/%s", vm->name, vm_state_name(vm->state), vm->reason, vm_state_name(d.state),
		d.reason);
	snprintf(reason, sizeof(reason), "%s", d.reason);
	memcpy(vm->reason, reason, sizeof(reason));
	if (d.state != vm->state)
		vm->since_us = tp_now_us();
	vm->state = d.state;
	vm->told_running = vm_running(vm);
	api_event(vm->t, "VM_STATE", vm->name, false, vm_brief(vm));
}
