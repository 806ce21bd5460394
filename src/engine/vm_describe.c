/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm_describe.c - query-vm: what a VM is, in full */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/restorable.h"
#include "engine/standing.h"
#include "engine/vm_runtime.h"
#include "storage/fingerprint.h"

static json_t *condition(const struct vm *vm, const char *type, const char *status, const char *reason,
			 const char *message)
{
	char at[TP_TIME_TEXT];

	return json_pack("{s:s, s:s, s:s, s:s, s:s}", "type", type, "status", status, "reason", reason, "message",
			 message, "last-transition", tp_time_format(vm->since_us, at));
}

static json_t *hibernatable(const struct vm *vm)
{
	bool could = vm->state == VM_RUNNING || vm->state == VM_PAUSED || vm->state == VM_SUSPENDED;

	if (!could)
		return condition(vm, "Hibernatable", "False", "NotRunning", "the VM does not run");
	if (strcmp(vm_qemu_status(vm), "postmigrate") == 0)
		return condition(vm, "Hibernatable", "False", "SavedBefore", "resume it once before saving again");
	if (strcmp(vm_qemu_status(vm), "prelaunch") == 0)
		return condition(vm, "Hibernatable", "False", "NeverRan", "its guest has never run");
	if (vm->preflight.code != TP_OK)
		return condition(vm, "Hibernatable", "Unknown", tp_error_class(&vm->preflight), vm->preflight.text);
	return condition(vm, "Hibernatable", "True", "Ok", "");
}

json_t *vm_conditions(struct vm *vm)
{
	json_t *list = json_array(), *room;
	bool lost = vm->state == VM_LOST || vm->state == VM_CRASHED;
	bool agent = vm->qemu && vm->qemu->agent == AGENT_CONNECTED;

	json_array_append_new(list, condition(vm, "Ready", lost ? "False" : "True", lost ? "Bad" : "Ok",
					      lost ? vm->reason : ""));
	json_array_append_new(list, hibernatable(vm));
	json_array_append_new(list, restorable_condition(vm));
	if ((room = standing_condition(vm)))
		json_array_append_new(list, room);
	json_array_append_new(list, condition(vm, "AgentConnected", agent ? "True" : "False",
					      agent ? "Ok" : "NotConnected", ""));
	return list;
}

static json_t *described_spec(const struct vm *vm, bool secrets)
{
	json_t *copy = json_deep_copy(vm->spec), *launch = json_object_get(copy, "launch");

	if (!secrets) {
		json_object_del(launch, "env");
		json_object_del(launch, "secrets");
	}
	return copy;
}

static void copy_or_null(json_t *out, const char *key, const json_t *from, const char *member)
{
	json_t *value = json_object_get(from, member);

	tp_json_set(out, key, value ? json_deep_copy(value) : json_null());
}

/* --- disks: what their files are is looked at on a worker, a query answers from the last look --- */

#define DISKS_LOOK_EVERY 5.0	/* seconds */

struct disks_look {
	struct torpor *t;
	char vm[TP_NAME_MAX + 1];
	json_t *disks, *info;
};

static bool look_run(void *arg, struct tp_error *err)
{
	struct disks_look *l = arg;
	const char *id;
	json_t *disk;

	(void)err;
	l->info = json_object();
	json_object_foreach(l->disks, id, disk) {
		json_t *info = disk_info(tp_json_str(disk, "file"), tp_json_str(disk, "format"), NULL);

		if (info)
			json_object_set_new(l->info, id, info);
	}
	return true;
}

static void look_done(void *arg, const struct tp_error *err)
{
	struct disks_look *l = arg;
	struct vm *vm = err ? NULL : vm_find(l->t, l->vm);

	if (vm) {
		json_decref(vm->disk_info);
		vm->disk_info = json_incref(l->info);
	}
	json_decref(l->disks);
	json_decref(l->info);
	free(l);
}

void vm_disks_look(struct vm *vm)
{
	double now = tp_now_mono();
	struct disks_look *l;

	if (vm->disk_info && now - vm->disks_looked_at < DISKS_LOOK_EVERY)
		return;
	l = calloc(1, sizeof(*l));
	if (!l)
		return;
	vm->disks_looked_at = now;
	l->t = vm->t;
	l->disks = launch_disks(vm);
	snprintf(l->vm, sizeof(l->vm), "%s", vm->name);
	if (io_worker_submit(vm->t->disks, look_run, look_done, l, NULL))
		return;
	json_decref(l->disks);
	free(l);
}

static json_t *described_disks(struct vm *vm)
{
	static const char *const members[] = { "virtual-size", "allocated", "chain" };
	json_t *disks = launch_disks(vm), *disk;
	const char *id;

	vm_disks_look(vm);
	json_object_foreach(disks, id, disk) {
		json_t *declared = json_object_get(tp_json_path(vm->spec, "launch.disks"), id);
		const json_t *info = json_object_get(vm->disk_info, id);
		json_t *backing = json_object_get(info, "backing");

		tp_json_set(disk, "declared", json_incref(json_object_get(declared, "file")));
		for (size_t i = 0; i < TP_N(members); i++)
			copy_or_null(disk, members[i], info, members[i]);
		if (backing)
			tp_json_set(disk, "chain", json_incref(backing));
	}
	return disks;
}

static void describe_process(const struct vm *vm, json_t *out)
{
	static const char *const agents[] = { "none", "connected", "unresponsive" };
	const struct vm_qemu *q = vm->qemu;

	tp_json_set(out, "pid", q ? json_integer(q->proc.pid) : json_null());
	tp_json_set_str(out, "qemu-status", q && q->ready ? q->status : NULL);
	tp_json_set(out, "qemu-version", q && q->ready ? json_sprintf("%d.%d.%d", q->major, q->minor, q->micro)
						       : json_null());
	tp_json_set_str(out, "agent", agents[q ? q->agent : AGENT_NONE]);
}

static json_t *described_hibernation(const struct vm *vm)
{
	json_t *record = json_object_get(vm->rest, "hibernation"), *now;

	if (!vm->op || strcmp(op_plan_of(vm->op)->kind, "hibernate") != 0)
		return record ? json_deep_copy(record) : json_null();
	now = json_pack("{s:s, s:s}", "method", "save", "phase", op_phase_name(vm->op));
	return now;
}

json_t *vm_describe(struct vm *vm, bool secrets)
{
	json_t *out = vm_brief(vm), *labels = json_object_get(vm->spec, "labels");
	char path[256];

	json_object_del(out, "vm");
	tp_json_set_str(out, "name", vm->name);
	tp_json_set(out, "spec", described_spec(vm, secrets));
	tp_json_set_str(out, "source", "api");
	tp_json_set(out, "observed-generation", json_integer((json_int_t)vm->observed_generation));
	describe_process(vm, out);
	tp_json_set(out, "disks", described_disks(vm));
	tp_json_set(out, "frozen", json_null());
	snprintf(path, sizeof(path), "%s/vms/%s/qemu.log", state_dir_path(vm->t->state), vm->name);
	tp_json_set_str(out, "log", path);
	copy_or_null(out, "last-exit", vm->rest, "last-exit");
	tp_json_set(out, "operation", ops_shown(vm));
	tp_json_set(out, "prefetch", prefetch_describe(vm));
	tp_json_set(out, "hibernation", described_hibernation(vm));
	copy_or_null(out, "image", vm->rest, "image");
	tp_json_set(out, "memory-dump", json_null());
	tp_json_set(out, "migration", json_null());
	tp_json_set(out, "resolve", vm->state == VM_LOST ? json_pack("[s, s]", "here", "nobody") : json_null());
	tp_json_set_str(out, "run-dir", vm->run_dir);
	tp_json_set(out, "labels", labels ? json_incref(labels) : json_object());
	tp_json_set(out, "conditions", vm_conditions(vm));
	return out;
}
