/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_start.c - Start: a boot by the VM's spec
 *
 * Theory of operation. Nothing here has a commit point: until the guest runs, a
 * failure ends the new QEMU and the VM is shut off as before. "record" makes
 * the VM's rest "running" durable before the first guest instruction, so that
 * what follows its end (crashed, release of its resources) is right whoever
 * sees that end.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/ops.h"
#include "engine/standing.h"
#include "engine/steps.h"
#include "engine/working_set.h"

static bool start_paused(struct op *op)
{
	return tp_json_bool(op_arguments(op), "paused", false);
}

/* --- check: what would fail anyway is said before anything is started --- */

static bool look_at_disks(struct job *j, struct tp_error *err)
{
	json_t *disk;
	const char *id;

	(void)err;
	j->out = json_array();
	json_object_foreach(j->in, id, disk) {
		const char *file = tp_json_str(disk, "file");
		bool ro = tp_json_bool(disk, "read-only", false);

		if (access(file, ro ? R_OK : R_OK | W_OK) < 0)
			blocker_add(j->out, "IOError", json_pack("{s:s, s:i}", "disk", id, "errno", errno),
				    "disk %s: %s: %s", id, file, strerror(errno));
	}
	return true;
}

static enum op_verdict check(struct op *op, const struct op_event *ev)
{
	/* Before launch: its undo ends the QEMU that it finds. */
	if (ev->type == OP_ENTER && op_qemu_alive(op))
		return op_fail(op, TP_ESTATE, "InvalidState", "VM %s has a QEMU already", op_vm_name(op));
	if (ev->type == OP_ENTER)
		return step_job(op, look_at_disks, launch_disks(op_vm_of(op)), NULL, 0);
	if (!job_of(ev))
		return OP_WAIT;
	op_result(op, "estimate", json_pack("{s:i, s:f, s:i}", "bytes", 0, "seconds", 2.0, "pause", 0));
	return blockers_verdict(op, job_of(ev)->out);
}

static enum op_verdict launch(struct op *op, const struct op_event *ev)
{
	struct vm *vm = op_vm_of(op);

	if (ev->type == OP_ENTER)
		vm_rest_set(vm, "launched", launch_record(vm));
	return qemu_launch(op, ev, NULL);
}

/* --- record: from here on the VM has run --- */

static enum op_verdict record_running(struct op *op, const struct op_event *ev)
{
	struct vm *vm = op_vm_of(op);
	struct op_job *job;

	if (ev->type != OP_ENTER)
		return ev->type == OP_IO ? OP_NEXT : OP_WAIT;
	vm_rest_text(vm, "running", start_paused(op) ? "starting" : "ok");
	vm_rest_set(vm, "guest-ran", json_boolean(!start_paused(op)));
	vm_rest_set(vm, "paused-by", start_paused(op) ? json_string("starting") : NULL);
	vm->observed_generation = vm->generation;
	vm_rest_set(vm, "observed-generation", json_integer((json_int_t)vm->generation));
	working_set_store(vm, NULL);	/* of another memory */
	standing_ask(vm);	/* what QEMU said until now counts for the generation before */
	job = vm_rest_job(vm);
	return job ? op_io(op, job, 0) : op_fail(op, TP_ENOMEM, NULL, "out of memory");
}

/* Killed by the undo of launch: not run, or not long. */
static enum op_verdict record_running_undo(struct op *op, const struct op_event *ev)
{
	(void)ev;
	vm_rest_text(op_vm_of(op), "shutoff", "start-failed");
	return OP_NEXT;
}

static enum op_verdict run(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER && start_paused(op))
		return OP_NEXT;
	return guest_cont(op, ev);
}

static void ended(struct op *op)
{
	struct vm *vm = op_vm_of(op);

	if (op_status(op) == OP_SUCCEEDED)
		op_result(op, "state", json_string(start_paused(op) ? "paused" : "running"));
	else if (strcmp(tp_json_str(vm->rest, "rest"), "running") != 0)
		vm_rest_text(vm, "shutoff", "start-failed");
}

static const struct op_step steps[] = {
	{ .name = "check", .phase = "Preparing", .run = check, .limit = 20 },
	{ .name = "hook-prepare", .run = hook_prepare, .undo = hook_prepare_undo, .limit = 3600,
	  .undo_limit = 3600 },
	{ .name = "launch", .phase = "Launching", .run = launch, .undo = qemu_launch_undo, .limit = 30,
	  .undo_limit = 30 },
	{ .name = "connect", .run = qemu_connect, .limit = 30, .flags = OPF_QEMU },
	{ .name = "identify", .run = machine_identify, .limit = 10, .flags = OPF_QEMU },
	{ .name = "hook-before-run", .run = hook_before_run, .limit = 3600, .flags = OPF_QEMU },
	{ .name = "record", .phase = "Resuming", .run = record_running, .undo = record_running_undo,
	  .limit = 30 },
	{ .name = "run", .run = run, .limit = 30, .flags = OPF_QEMU },
};

const struct op_plan plan_start = {
	.kind = "start", .version = 1, .steps = steps, .nsteps = TP_N(steps), .done_phase = "Running",
	.ended = ended,
};
