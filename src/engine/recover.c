/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * recover.c - At start: what a former engine left
 *
 * Theory of operation (journal.md 4). A VM's journal is read and its operation
 * rebuilt; the world is looked at (is the recorded QEMU alive, does its monitor
 * answer); then the runner goes on, back or forward, as for any operation. Until
 * the world is known the operation waits in vm->op and holds the VM. A QEMU that
 * no record names (the engine died while it was launched) is found by the mark
 * in its environment.
 */
#include "engine/recover.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_proc.h"
#include "engine/engine.h"
#include "engine/op_journal.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/restore.h"
#include "engine/steps.h"
#include "engine/vm_hooks.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine.recover");

enum found { FOUND, GONE, UNKNOWN };

/* Only ESRCH says that it is gone: without descriptors or memory nothing is known. */
static enum found adopt(struct vm *vm, const struct tp_proc *p)
{
	if (vm_adopt(vm, p))
		return FOUND;
	return errno == ESRCH ? GONE : UNKNOWN;
}

static enum found adopt_recorded(struct vm *vm, const json_t *record)
{
	struct tp_proc p;

	return tp_proc_of_json(record, &p) ? adopt(vm, &p) : GONE;
}

static enum found take_up(struct vm *vm)
{
	enum found found = vm->op ? adopt_recorded(vm, json_object_get(op_res(vm->op), "qemu")) : GONE;
	struct tp_proc p;

	if (found == GONE)
		found = adopt_recorded(vm, json_object_get(vm->rest, "qemu"));
	if (found != GONE || !vm->op)
		return found;
	if (vm_find_stray(vm, &p))
		return adopt(vm, &p);
	return errno == ESRCH ? GONE : UNKNOWN;
}

static bool rebooted(const struct vm *vm)
{
	const char *boot = tp_json_str(json_object_get(vm->rest, "qemu"), "boot");

	return boot && strcmp(boot, tp_boot_id()) != 0;
}

/* As vm_ended() would have said it: the guest's own shutdown was heard before the engine died. */
static bool had_shut_down(const struct vm *vm)
{
	return tp_json_bool(json_object_get(vm->rest, "shutdown"), "guest", false);
}

/* An image that was consumed but not run is given back. */
void recover_gone(struct vm *vm)
{
	bool reboot = rebooted(vm);

	if (vm->qemu || strcmp(tp_json_str(vm->rest, "rest"), "running") != 0)
		return;
	if (!vm_image_give_back(vm, !reboot) && had_shut_down(vm))
		vm_rest_text(vm, "shutoff", "guest-shutdown");
	else if (strcmp(tp_json_str(vm->rest, "rest"), "running") == 0)
		vm_rest_text(vm, reboot ? "shutoff" : "crashed", reboot ? "host-reboot" : "exited");
	vm_rest_set(vm, "qemu", NULL);
}

/* The recorded QEMU ended while no engine was there: its hooks are still to be run. */
static void process_gone(struct vm *vm)
{
	bool was_there = json_object_get(vm->rest, "qemu") ||
			 (vm->op && json_object_get(op_res(vm->op), "qemu"));

	prefetch_over(vm);
	/* A restore's own end decides what the VM is. */
	if (!vm->op || strcmp(op_plan_of(vm->op)->kind, "restore") != 0)
		recover_gone(vm);
	if (was_there)
		vm_hooks_after(vm);
	else
		vm_hooks_resume(vm);
	vm_rest_set(vm, "qemu", NULL);
	vm_rest_save(vm);
}

static struct op *rebuild(struct vm *vm, const json_t *records, struct tp_error *err)
{
	const char *kind = tp_json_str(json_array_get(records, 0), "kind");
	const struct op_plan *plan = kind ? ops_plan(kind) : NULL;

	if (!plan) {
		tp_fail(err, TP_ECORRUPT, "the journal's operation \"%s\" is not known to this version",
			kind ? kind : "");
		return NULL;
	}
	return ops_restore(vm, plan, records, err);
}

/* Not the log's fault: it must not be set aside for that. */
static bool passes(const struct tp_error *err)
{
	return err->code == TP_ENOMEM || err->sys == EMFILE || err->sys == ENFILE || err->sys == ENOMEM;
}

/*
 * The end of an operation is in state.json, synced; the emptying of its journal is not. So a power cut
 * may bring back the journal of an operation that ended long ago, with its commit.
 */
static bool is_over(const struct vm *vm, const json_t *records)
{
	return state_dir_rebooted(vm->t->state) &&
	       tp_json_int(json_array_get(records, 0), "serial", INT64_MAX) <=
	       tp_json_int(vm->rest, "ended", 0);
}

/* By the first engine after a reboot, which alone knows: the next one would take it seriously. */
static bool drop_journal(const struct vm *vm, const char *why)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_info("vm=%s old journal emptied: %s", vm->name, why);
	if (!op_journal_drop(vm->dirfd, &err))
		tp_warn("vm=%s old journal cannot be emptied: %s", vm->name, err.text);
	return true;
}

/* False: it cannot be read now. */
static bool read_journal(struct vm *vm)
{
	struct tp_error err = TP_ERROR_INIT;
	size_t torn = 0;
	tp_autojson json_t *records = op_journal_read(vm->dirfd, &torn, &err);
	const json_t *last = json_array_get(records, json_array_size(records) - 1);

	if (records && json_array_size(records) == 0 && !torn)
		return true;
	if (records && last && strcmp(tp_json_str(last, "record"), "end") == 0)
		return true;		/* only its emptying was cut; state.json has the rest */
	if (records && last && is_over(vm, records))
		return drop_journal(vm, "its emptying was lost with the host's end");
	if (records && last)
		vm->journal_fd = op_journal_reopen(vm->dirfd, &err);
	vm->journal_serial = tp_json_int(json_array_get(records, 0), "serial", 0);
	if (records && last && vm->journal_fd >= 0 && rebuild(vm, records, &err)) {
		tp_warn("vm=%s op=%s %s was cut in step %s", vm->name, op_id(vm->op), op_plan_of(vm->op)->kind,
			op_step_name(vm->op));
		return true;
	}
	if (records && !last && op_journal_blank(vm->dirfd, &err))
		return true;		/* not even its first record: nothing was done */
	if (records && !last && state_dir_rebooted(vm->t->state) && !op_journal_decides(vm->dirfd))
		return drop_journal(vm, "the host ended before anything of it was durable");
	if (records && !last)
		tp_fail(&err, TP_ECORRUPT, "none of its records is good (%zu bytes)", torn);
	tp_close(&vm->journal_fd);
	if (passes(&err)) {
		tp_err("vm=%s its journal cannot be read now: %s", vm->name, err.text);
		return false;
	}
	tp_err("vm=%s journal set aside: %s", vm->name, err.text);
	op_journal_set_aside(vm->dirfd, NULL);
	return true;
}

void recover_vm(struct vm *vm)
{
	enum found found = vm->op || read_journal(vm) ? take_up(vm) : UNKNOWN;

	vm->recovering = vm->op != NULL;
	vm->undecided = found == UNKNOWN;
	switch (found) {
	case FOUND:
		/* A restore that is undone ends its server itself. */
		if (!vm->op || op_committed(vm->op))
			prefetch_adopt(vm);
		break;		/* recover_settled() comes from the monitor, the process or the silence */
	case UNKNOWN:
		tp_err("vm=%s it cannot be looked at whether its QEMU runs: trying again later", vm->name);
		break;
	case GONE:
		process_gone(vm);
		if (!vm->recovering)
			break;
		vm->recovering = false;
		op_resume(vm->op, false);
		break;
	}
	vm_refresh(vm);
}

/* A hibernation past its commit ends QEMU whether its monitor answers or not; so may any launch that is undone. */
static bool needs_no_monitor(const struct vm *vm)
{
	const char *kind = op_plan_of(vm->op)->kind;

	return (strcmp(kind, "hibernate") == 0 && op_committed(vm->op)) || strcmp(kind, "start") == 0 ||
	       strcmp(kind, "image-move") == 0 ||
	       (strcmp(kind, "restore") == 0 && !op_committed(vm->op));
}

void recover_settled(struct vm *vm)
{
	if (!vm->recovering)
		return;
	if (vm->qemu && !vm->qemu->ready && !needs_no_monitor(vm)) {
		if (vm->silence_told)
			return;
		vm->silence_told = true;
		tp_err("vm=%s pid=%d is alive and its monitor is silent: its operation %s waits; end the process or "
		       "free its monitor", vm->name, (int)vm->qemu->proc.pid, op_id(vm->op));
		return;		/* lost/monitor-lost until the monitor answers or the process ends */
	}
	vm->recovering = false;
	op_resume(vm->op, vm->qemu != NULL);
	vm_refresh(vm);
}
