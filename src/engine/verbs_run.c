/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verbs_run.c - Verbs that run, stop and sleep a VM */
#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/standing.h"
#include "engine/verbs.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"
#include "migration/mig_info.h"

TP_LOG_SOURCE("engine.verbs");

#define START_TIMEOUT 60.0	/* seconds */
#define QUIT_ROLLBACK 10.0	/* seconds for the operation that vm-quit cancels */
#define QUIT_WAIT 3.0		/* from quit to SIGKILL */
#define QUIT_LIMIT 15.0
#define SYNC_LIMIT 8.0
#define ORPHAN_LIMIT 10.0	/* for the end of a save whose operation is not known any more */
#define LOOK_EVERY 0.02

/* Free and in a state for the verb; NULL: answered. */
static struct vm *ready_vm(struct api_call *call, enum verb verb)
{
	struct vm *vm = verb_vm(call);
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	if (!vm)
		return NULL;
	if (!ops_free_for(vm, &err, &data)) {
		api_error(call, &err, data);
		return NULL;
	}
	switch (verb_check(vm, verb, api_args(call), &err, &data)) {
	case VERB_REFUSED:
		api_error(call, &err, data);
		return NULL;
	case VERB_UNCHANGED:
		api_reply(call, json_pack("{s:b}", "unchanged", 1));
		return NULL;
	case VERB_OK:
		break;
	}
	return vm;
}

/* --- operations --- */

static bool restores(const struct vm *vm)
{
	if (vm->op && strcmp(op_plan_of(vm->op)->kind, "hibernate") == 0)
		return true;	/* asked to wait for it */
	return vm->state == VM_HIBERNATED;
}

static void refuse(struct api_call *call, const char *class_, const char *use, const char *text)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_fail_class(&err, TP_ESTATE, class_, "%s", text);
	api_error(call, &err, json_pack("{s:s}", "use", use));
}

static void discarded_then_boot(void *arg, const struct tp_error *err)
{
	struct sync_call *s = arg;
	struct vm *vm = sync_vm(s);

	if (err || !vm) {
		struct tp_error why = TP_ERROR_INIT;

		tp_fail_class(&why, TP_ESTATE, "NotFound", "VM %s was undefined meanwhile", s->vm);
		sync_error(s, err ? err : &why, NULL);
		return;
	}
	vm_rest_text(vm, "shutoff", "discarded");
	vm_rest_set(vm, "image", NULL);
	vm_rest_save(vm);
	vm_refresh(vm);
	struct api_call *call = s->call;

	sync_forget(s);
	ops_submit(call, vm, &plan_start, ops_timeout(call, START_TIMEOUT));
}

static void boot_discarding(struct api_call *call, struct vm *vm)
{
	struct tp_error err = TP_ERROR_INIT;
	struct sync_call *s = sync_new(call, vm);

	if (s && !vm_image_discard(vm, discarded_then_boot, s, &err))
		sync_error(s, &err, NULL);
}

void api_vm_start(struct api_call *call)
{
	const char *mode = tp_json_str(api_args(call), "mode");
	struct vm *vm = verb_vm(call);

	if (!vm)
		return;
	mode = mode ? mode : "auto";
	if (strcmp(mode, "boot") == 0 && restores(vm)) {
		if (!tp_json_bool(api_args(call), "discard-image", false))
			refuse(call, "InvalidState", "vm-restore", "the VM is hibernated: restore it, or boot with "
			       "\"discard-image\": true, which throws its memory away");
		else if (tp_json_bool(api_args(call), "dry-run", false) || vm->op)
			ops_submit(call, vm, &plan_start, ops_timeout(call, START_TIMEOUT));
		else
			boot_discarding(call, vm);
		return;
	}
	if (restores(vm) || strcmp(mode, "restore") == 0 || tp_json_str(api_args(call), "image"))
		ops_submit(call, vm, &plan_restore, ops_timeout(call, ops_default_timeout(vm)));
	else
		ops_submit(call, vm, &plan_start, ops_timeout(call, START_TIMEOUT));
}

void api_vm_restore(struct api_call *call)
{
	struct vm *vm = verb_vm(call);

	if (vm)
		ops_submit(call, vm, &plan_restore, ops_timeout(call, ops_default_timeout(vm)));
}

void api_vm_hibernate(struct api_call *call)
{
	struct vm *vm = verb_vm(call);
	size_t i;
	json_t *method;

	if (!vm)
		return;
	json_array_foreach(json_object_get(api_args(call), "methods"), i, method) {
		const char *name = json_is_object(method) ? tp_json_str(method, "method") : json_string_value(method);

		if (!name || strcmp(name, "save") != 0) {
			refuse(call, "Unsupported", "vm-hibernate", "this version hibernates by the method \"save\" only");
			return;
		}
	}
	ops_submit(call, vm, &plan_hibernate, ops_timeout(call, ops_save_timeout(vm, api_args(call))));
}

void api_vm_powerdown(struct api_call *call)
{
	struct vm *vm = verb_vm(call);

	if (vm)
		ops_submit(call, vm, &plan_powerdown, powerdown_limit(vm, api_args(call)));
}

/* --- pause, resume, reset --- */

static void late(struct sync_call *s, const char *what)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_fail_class(&err, TP_ETIMEOUT, "Timeout", "VM %s %s within the time of this command", s->vm, what);
	sync_error(s, &err, NULL);
}

static void paused(struct sync_call *s);

static void pause_look(struct sync_call *s)
{
	sync_qmp(s, QMP_QUERY_STATUS, NULL, paused);
}

static void paused(struct sync_call *s)
{
	struct vm *vm = sync_vm(s);

	if (!vm || !vm_running(vm))
		sync_reply(s, NULL);
	else if (tp_now_mono() >= s->until)
		late(s, "did not pause");
	else
		sync_after(s, LOOK_EVERY, pause_look);
}

void api_vm_pause(struct api_call *call)
{
	struct vm *vm = ready_vm(call, VERB_PAUSE);
	struct sync_call *s = vm ? sync_new(call, vm) : NULL;

	if (!s)
		return;
	vm_rest_set(vm, "paused-by", json_string("user"));
	vm_rest_save(vm);
	s->until = tp_now_mono() + SYNC_LIMIT;
	sync_qmp(s, QMP_STOP, NULL, paused);
}

static void resumed(struct sync_call *s)
{
	struct vm *vm = sync_vm(s);

	if (!vm) {
		sync_reply(s, NULL);
		return;
	}
	vm_rest_set(vm, "paused-by", NULL);
	vm_rest_set(vm, "guest-ran", json_true());
	if (strcmp(tp_json_str(vm->rest, "reason"), "ok") != 0)
		vm_rest_text(vm, "running", "ok");
	if (json_object_get(vm->rest, "image") && tp_json_bool(vm->rest, "ran", false))
		vm_image_ran(vm);
	else
		vm_rest_save(vm);
	sync_reply(s, NULL);
}

/* Refused and still paused: not one instruction ran, so what was marked for it is taken back. */
static void refused(struct sync_call *s)
{
	const char *status;
	struct vm *vm = sync_vm(s);
	struct tp_error err = TP_ERROR_INIT;

	status = vm ? vm_qemu_status(vm) : "";
	if (strcmp(status, "paused") == 0 && tp_json_bool(vm->rest, "ran", false) &&
	    json_object_get(vm->rest, "image"))
		vm_image_unmark(vm);
	tp_fail_class(&err, TP_EQMP, tp_json_str(s->data, "class"), "%s", tp_json_str(s->data, "desc"));
	sync_error(s, &err, json_pack("{s:O}", "qemu", json_object_get(s->data, "qemu")));
}

/*
 * A save that nobody carries on: the engine died in it and its journal was lost. Its mover holds the
 * stream, QEMU waits for it and refuses `cont`. No record says that it was committed, so the guest is
 * what QEMU has: the migration is cancelled, QEMU takes its disks back and closes the stream (the
 * mover's end), `cont` is sent again. until: monotonic, 0 as long as nothing was cancelled.
 */
static bool may_be_orphan(const struct vm *vm)
{
	return vm && !vm->op && strcmp(tp_json_str(vm->rest, "rest"), "running") == 0;
}

static void send_cont(struct sync_call *s);
static void orphan_look(struct sync_call *s);

static void orphan_cancelled(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct sync_call *s = arg;

	(void)reply, (void)qemu_error, (void)err;
	s->qmp = 0;
	sync_after(s, LOOK_EVERY, orphan_look);
}

static void cont_refused(struct sync_call *s)
{
	sync_qmp(s, QMP_QUERY_STATUS, NULL, refused);
}

static void orphan_cancel(struct sync_call *s, struct vm *vm, const struct mig_info *info)
{
	bool alone = info->phase == MIG_RUNNING || info->phase == MIG_PRE_SWITCHOVER || info->phase == MIG_CANCELLING;

	if (alone && vm->qemu && vm->qemu->qmp) {
		tp_warn("vm=%s no operation carries on the save that is under way (%s): it is cancelled", vm->name,
			info->status);
		s->until = tp_now_mono() + ORPHAN_LIMIT;
		s->qmp = qmp_client_send(vm->qemu->qmp, QMP_MIGRATE_CANCEL, NULL, NULL, ORPHAN_LIMIT,
					 orphan_cancelled, s, NULL);
	}
	if (!s->qmp)
		cont_refused(s);
}

static void orphan_seen(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct sync_call *s = arg;
	struct vm *vm = sync_vm(s);
	struct mig_info info;
	bool over;

	(void)qemu_error;
	s->qmp = 0;
	mig_info_parse(reply, &info);
	over = mig_phase_over(info.phase);
	if (err || !may_be_orphan(vm) || (over && s->until <= 0))
		cont_refused(s);
	else if (over)
		send_cont(s);
	else if (s->until <= 0)
		orphan_cancel(s, vm, &info);
	else if (tp_now_mono() < s->until)
		sync_after(s, LOOK_EVERY, orphan_look);
	else
		cont_refused(s);
}

static void orphan_look(struct sync_call *s)
{
	struct vm *vm = sync_vm(s);

	if (vm && vm->qemu && vm->qemu->qmp)
		s->qmp = qmp_client_send(vm->qemu->qmp, QMP_QUERY_MIGRATE, NULL, NULL, ORPHAN_LIMIT, orphan_seen, s,
					 NULL);
	if (!s->qmp)
		cont_refused(s);
}

static void cont_done(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct sync_call *s = arg;

	(void)reply;
	s->qmp = 0;
	if (!err) {
		sync_qmp(s, QMP_QUERY_STATUS, NULL, resumed);
		return;
	}
	json_decref(s->data);
	s->data = qemu_error ? json_pack("{s:s, s:s, s:O}", "class", tp_error_class(err), "desc", err->text, "qemu",
					 qemu_error) : NULL;
	if (!s->data)
		sync_error(s, err, NULL);
	else if (!may_be_orphan(sync_vm(s)) || (s->until > 0 && tp_now_mono() >= s->until))
		cont_refused(s);
	else if (s->until > 0)
		sync_after(s, LOOK_EVERY, orphan_look);		/* the last moment of its end */
	else
		orphan_look(s);
}

/*
 * An operation that is stuck in its roll-back may leave the guest paused: vm-resume frees it. Never
 * past a commit, nor beside a manifest that cannot be removed: the VM is its image there.
 */
static bool may_continue(const struct vm *vm)
{
	return !vm->op || (op_status(vm->op) == OP_STUCK && op_going_back(vm->op) && !op_barred(vm->op));
}

static void send_cont(struct sync_call *s)
{
	struct vm *vm = sync_vm(s);
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	if (!vm || !vm->qemu || !vm->qemu->qmp)
		tp_fail_class(&err, TP_EQMP, "QemuExited", "VM %s has no QEMU that answers", s->vm);
	else if (!may_continue(vm))
		ops_free_for(vm, &err, &data);
	else
		s->qmp = qmp_client_send(vm->qemu->qmp, QMP_CONT, NULL, NULL, 8.0, cont_done, s, &err);
	if (s->qmp)
		return;
	/* Marked for this one alone, which was not sent: an operation began meanwhile, or QEMU ended. */
	if (vm && s->stage == 1 && json_object_get(vm->rest, "image"))
		vm_image_unmark(vm);
	sync_error(s, &err, data);
}

static void marked(void *arg, const struct tp_error *err)
{
	struct sync_call *s = arg;

	s->stage = 1;
	if (err)
		sync_error(s, err, NULL);
	else
		send_cont(s);
}

void api_vm_resume(struct api_call *call)
{
	struct vm *vm = verb_vm(call);
	struct tp_error err = TP_ERROR_INIT;
	struct sync_call *s;

	if (!vm)
		return;
	if (!vm->op || !may_continue(vm))
		vm = ready_vm(call, VERB_RESUME);
	s = vm ? sync_new(call, vm) : NULL;
	if (!s)
		return;
	if (!vm_image_must_mark(vm))
		send_cont(s);
	else if (!vm_image_mark(vm, marked, s, &err))
		sync_error(s, &err, NULL);
}

static void was_reset(struct sync_call *s)
{
	sync_reply(s, NULL);
}

void api_vm_reset(struct api_call *call)
{
	struct vm *vm = ready_vm(call, VERB_RESET);
	struct sync_call *s = vm ? sync_new(call, vm) : NULL;

	if (s)
		sync_qmp(s, QMP_SYSTEM_RESET, NULL, was_reset);
}

/* --- quit --- */

static void quit_ignored(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	(void)arg, (void)reply, (void)qemu_error, (void)err;
}

static void quit_look(struct sync_call *s);

static void quit_begin(struct sync_call *s, struct vm *vm)
{
	s->stage = 1;
	s->until = tp_now_mono() + QUIT_WAIT;
	vm_quits(vm);
	if (!vm->qemu->qmp ||
	    !qmp_client_send(vm->qemu->qmp, QMP_QUIT, NULL, NULL, QUIT_WAIT, quit_ignored, NULL, NULL))
		s->until = 0;
}

/* Stage 0: the operation rolls back; 1: quit was sent; 2: killed. */
static void quit_look(struct sync_call *s)
{
	struct vm *vm = sync_vm(s);
	bool over = tp_now_mono() >= s->until;

	if (!vm || (!vm->qemu && (!vm->op || over))) {
		if (vm)
			vm_no_longer_lost(vm);
		sync_reply(s, NULL);
		return;
	}
	if (tp_now_mono() >= s->limit) {
		late(s, "did not end");
		return;
	}
	if (s->stage == 0 && vm->qemu && (!vm->op || over))
		quit_begin(s, vm);
	if (s->stage == 1 && tp_now_mono() >= s->until) {
		s->stage = 2;
		vm_qemu_kill(vm);
	}
	sync_after(s, LOOK_EVERY, quit_look);
}

void api_vm_quit(struct api_call *call)
{
	struct vm *vm = verb_vm(call);
	struct sync_call *s;

	if (!vm)
		return;
	if (!vm->op && !vm->qemu && vm->state != VM_CRASHED && vm->state != VM_LOST) {
		api_reply(call, json_pack("{s:b}", "unchanged", 1));
		return;
	}
	s = sync_new(call, vm);
	if (!s)
		return;
	ops_queue_drop(vm, "Cancelled", "the VM was told to quit");
	s->until = tp_now_mono() + QUIT_ROLLBACK;
	s->limit = tp_now_mono() + QUIT_LIMIT;
	if (vm->op)
		op_cancel(vm->op, NULL);
	sync_after(s, LOOK_EVERY, quit_look);
}

/* --- monitor --- */

static const char *const owned[] = { "quit", "stop", "cont", "system_reset", "set-action", "blockdev-mirror",
				     "block-commit", "block-stream", "transaction", "dump-guest-memory", "getfd",
				     "closefd", "add-fd", "qmp_capabilities", "drive-mirror", "system_powerdown",
				     "remove-fd", "loadvm", "savevm" };
static const char *const owned_prefixes[] = { "migrate", "snapshot-", "blockdev-snapshot", "x-colo" };

static const char *use_for(const char *command)
{
	static const struct { const char *command, *use; } uses[] = {
		{ "quit", "vm-quit" }, { "stop", "vm-pause" }, { "cont", "vm-resume" },
		{ "system_reset", "vm-reset" }, { "system_powerdown", "vm-powerdown" },
		{ "migrate", "vm-hibernate" },
	};

	for (size_t i = 0; i < TP_N(uses); i++)
		if (strcmp(uses[i].command, command) == 0)
			return uses[i].use;
	return "vm-monitor";
}

static bool hmp_allowed(const json_t *args)
{
	const char *line = tp_json_str(args, "command-line");

	return line && (strcmp(line, "info") == 0 || strncmp(line, "info ", 5) == 0 || strncmp(line, "x/", 2) == 0 ||
			strncmp(line, "x ", 2) == 0 || strncmp(line, "xp/", 3) == 0 || strncmp(line, "xp ", 3) == 0);
}

static bool command_owned(const char *command, const json_t *args)
{
	if (strcmp(command, "human-monitor-command") == 0)
		return !hmp_allowed(args);
	for (size_t i = 0; i < TP_N(owned); i++)
		if (strcmp(owned[i], command) == 0)
			return true;
	for (size_t i = 0; i < TP_N(owned_prefixes); i++)
		if (strncmp(owned_prefixes[i], command, strlen(owned_prefixes[i])) == 0)
			return true;
	return false;
}

static void monitor_done(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct sync_call *s = arg;
	struct vm *vm = sync_vm(s);

	if (vm)
		standing_ask(vm);	/* it may have plugged memory */
	if (err)
		sync_error(s, err, qemu_error ? json_pack("{s:O}", "qemu", qemu_error) : NULL);
	else
		sync_reply(s, json_deep_copy(reply));
}

void api_vm_monitor(struct api_call *call)
{
	const json_t *args = api_args(call);
	const char *command = tp_json_str(args, "execute");
	json_t *command_args = json_object_get(args, "arguments"), *data = NULL;
	struct vm *vm = verb_vm(call);
	struct tp_error err = TP_ERROR_INIT;
	struct sync_call *s;

	if (!vm)
		return;
	if (command_owned(command, command_args)) {
		tp_fail_class(&err, TP_ESTATE, "InvalidState", "QEMU command %s belongs to torpor: use %s", command,
			      use_for(command));
		api_error(call, &err, json_pack("{s:s}", "use", use_for(command)));
		return;
	}
	if ((strncmp(command, "query-", 6) != 0 && !ops_free_for(vm, &err, &data)) ||
	    (!vm->op && verb_check(vm, VERB_MONITOR, args, &err, &data) == VERB_REFUSED)) {
		api_error(call, &err, data);
		return;
	}
	s = sync_new(call, vm);
	if (!s)
		return;
	if (!vm->qemu || !vm->qemu->qmp) {
		tp_fail_class(&err, TP_EQMP, "QemuExited", "VM %s has no QEMU that answers", vm->name);
		sync_error(s, &err, NULL);
	} else if (!qmp_client_send_user(vm->qemu->qmp, command, json_incref(command_args),
					 tp_json_num(args, "timeout", 10), monitor_done, s, &err)) {
		sync_error(s, &err, NULL);
	}
}
