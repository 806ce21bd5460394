/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_powerdown.c - Powerdown: the guest is asked to switch itself off
 *
 * Theory of operation. POWERDOWN only says that the button was pressed; a press
 * before the guest's handler runs is lost, so it is pressed again every few
 * seconds. Done is SHUTDOWN by the guest and the process gone. A guest that
 * reboots instead is pressed on. When the time is over, `on-timeout` decides:
 * "fail" leaves the guest as it is, "quit" ends QEMU (a pulled plug).
 */
#include <string.h>

#include "base/tp_json.h"
#include "engine/ops.h"
#include "engine/spec.h"
#include "engine/steps.h"
#include "engine/vm_runtime.h"

#define PRESS_EVERY 5.0		/* seconds */
#define QUIT_WAIT 10.0		/* seconds from quit to SIGKILL */

struct powerdown {
	double until;		/* monotonic: then on-timeout; 0: never */
	double kill_at;		/* after quit was sent */
	bool quit, asleep;
};

/* Alone in a dry run: asks only. */
static enum op_verdict check(struct op *op, const struct op_event *ev)
{
	struct powerdown *p = op_data(op);
	const char *status = tp_json_str(ev->data, "status");

	if (ev->type == OP_ENTER)
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	if (!op_replied(ev, QMP_QUERY_STATUS))
		return OP_WAIT;
	p->asleep = status && strcmp(status, "suspended") == 0;
	return OP_NEXT;
}

/* A sleeping guest hears no button. */
static enum op_verdict wake(struct op *op, const struct op_event *ev)
{
	const struct powerdown *p = op_data(op);

	if (ev->type == OP_ENTER)
		return p->asleep ? op_qmp(op, QMP_SYSTEM_WAKEUP, NULL) : OP_NEXT;
	return ev->type == OP_REPLY ? OP_NEXT : OP_WAIT;
}

static bool quits(const struct vm *vm, const json_t *args)
{
	tp_autojson json_t *by_spec = spec_get(vm->spec, "shutdown.on-timeout");
	const char *how = tp_json_str(args, "on-timeout");

	return strcmp(how ? how : json_string_value(by_spec), "quit") == 0;
}

double powerdown_timeout(const struct vm *vm, const json_t *args)
{
	tp_autojson json_t *by_spec = spec_get(vm->spec, "shutdown.timeout");

	return tp_json_num(args, "timeout", json_number_value(by_spec));
}

double powerdown_limit(const struct vm *vm, const json_t *args)
{
	return powerdown_timeout(vm, args) + (quits(vm, args) ? 3 * QUIT_WAIT : 0);
}

static enum op_verdict pull_plug(struct op *op, struct powerdown *p)
{
	p->quit = true;
	p->kill_at = op_now(op) + QUIT_WAIT;
	op_warn(op, "the guest did not power down in time: QEMU was ended");
	op_qmp_full(op, QMP_QUIT, NULL, NULL, 0, OPQ_SHOW);
	return op_sleep(op, QUIT_WAIT);
}

static enum op_verdict press(struct op *op)
{
	if (op_qmp_full(op, QMP_SYSTEM_POWERDOWN, NULL, NULL, 0, OPQ_SHOW) == OP_FAIL)
		return OP_FAIL;
	op_progress(op);
	return op_sleep(op, PRESS_EVERY);
}

static enum op_verdict gone(struct op *op, const struct powerdown *p)
{
	const char *reason = tp_json_str(op_vm_of(op)->rest, "reason");
	struct tp_error err = TP_ERROR_INIT;

	if (p->quit || (reason && (strcmp(reason, "guest-shutdown") == 0 || strcmp(reason, "quit") == 0)))
		return OP_NEXT;
	tp_fail_class(&err, TP_EQMP, "QemuExited", "QEMU of VM %s ended while the guest was powering down (%s)",
		      op_vm_name(op), reason ? reason : "unknown");
	return op_fail_error(op, &err, vm_exit_data(op_vm_of(op)));
}

static enum op_verdict power_down(struct op *op, const struct op_event *ev)
{
	struct powerdown *p = op_data(op);

	if (ev->type == OP_ENTER) {
		if (quits(op_vm_of(op), op_arguments(op)))
			p->until = op_now(op) + powerdown_timeout(op_vm_of(op), op_arguments(op));
		op_hold(op, OP_RES_QEMU);
		return op_qemu_alive(op) ? press(op) : gone(op, p);
	}
	if (ev->type == OP_QEMU_EVENT && strcmp(ev->name, "QEMU_GONE") == 0)
		return gone(op, p);
	if (ev->type != OP_TICK)
		return OP_WAIT;
	if (p->quit) {
		if (op_now(op) < p->kill_at)
			return op_sleep(op, PRESS_EVERY);
		return op_vm(op, "kill", NULL, OPQ_SHOW);
	}
	if (p->until > 0 && op_now(op) >= p->until)
		return pull_plug(op, p);
	if (p->until > 0 && p->until - op_now(op) < PRESS_EVERY)
		return op_sleep(op, p->until - op_now(op));
	return press(op);
}

static void ended(struct op *op)
{
	struct vm *vm = op_vm_of(op);
	const struct powerdown *p = op_data(op);

	if (op_status(op) != OP_SUCCEEDED)
		return;
	vm_rest_text(vm, "shutoff", p->quit ? "quit" : "powerdown");
	op_result(op, "state", json_string("shutoff"));
	op_result(op, "reason", json_string(p->quit ? "quit" : "powerdown"));
}

static const struct op_step steps[] = {
	{ .name = "check", .phase = "Preparing", .run = check, .limit = 10, .flags = OPF_QEMU },
	{ .name = "wake", .run = wake, .limit = 10, .flags = OPF_QEMU },
	{ .name = "power-down", .phase = "PoweringDown", .run = power_down, .limit = 60,
	  .expects = OP_RES_QEMU },
};

const struct op_plan plan_powerdown = {
	.kind = "powerdown", .version = 1, .steps = steps, .nsteps = TP_N(steps), .done_phase = "ShutOff",
	.data_size = sizeof(struct powerdown), .ended = ended,
};
