/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * steps_guest.c - The vCPUs: paused, continued, given back their run state
 *
 * The run state is read, not guessed: the step ends when query-status says so. finish-migrate and
 * its like are short-lived: `cont` in them is refused ("Migration is not finalized yet", QEMU 7.2
 * to 10.0), so they are waited for.
 */
#include <string.h>

#include "base/tp_json.h"
#include "engine/steps.h"

#define SETTLE_EVERY 0.02	/* seconds between looks at a state that passes by itself */

bool run_state_runs(const char *status)
{
	return strcmp(status, "running") == 0;
}

static bool passes_by_itself(const char *status)
{
	return strcmp(status, "finish-migrate") == 0 || strcmp(status, "save-vm") == 0 ||
	       strcmp(status, "restore-vm") == 0;
}

const char *run_state_unsavable(const char *status)
{
	if (strcmp(status, "shutdown") == 0)
		return "it has shut down";
	if (strcmp(status, "internal-error") == 0)
		return "QEMU has met an internal error in it";
	if (strcmp(status, "postmigrate") == 0)
		return "it was saved or migrated before and did not run since: resume it once";
	if (strcmp(status, "inmigrate") == 0)
		return "it is being loaded";
	if (strcmp(status, "prelaunch") == 0)
		return "its guest has never run";
	return "";
}

/* --- cont --- */

static const char *status_of(const struct op_event *ev)
{
	const char *status = tp_json_str(ev->data, "status");

	return status ? status : "";
}

enum op_verdict guest_cont(struct op *op, const struct op_event *ev)
{
	switch (ev->type) {
	case OP_ENTER:
		return op_qmp(op, QMP_CONT, NULL);
	case OP_TICK:
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	case OP_REPLY:
		break;
	default:
		return OP_WAIT;
	}
	if (op_replied(ev, QMP_CONT))
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	if (run_state_runs(status_of(ev)))
		return OP_NEXT;
	/* A guest may have stopped again at once (panic, io-error, shutdown, suspended): it ran. */
	if (strcmp(status_of(ev), "paused") != 0 && strcmp(status_of(ev), "inmigrate") != 0 &&
	    strcmp(status_of(ev), "prelaunch") != 0 && !passes_by_itself(status_of(ev)))
		return OP_NEXT;
	return op_sleep(op, SETTLE_EVERY);
}

/* --- stop --- */

static bool ran_before(struct op *op)
{
	const char *state = tp_json_str(op_was(op), "run-state");

	return state && run_state_runs(state);
}

enum op_verdict guest_pause(struct op *op, const struct op_event *ev)
{
	const char *status;

	switch (ev->type) {
	case OP_ENTER:
		return ran_before(op) ? op_qmp(op, QMP_STOP, NULL) : op_qmp(op, QMP_QUERY_STATUS, NULL);
	case OP_TICK:
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	case OP_REPLY:
		break;
	default:
		return OP_WAIT;
	}
	if (op_replied(ev, QMP_STOP))
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	status = status_of(ev);
	if (run_state_runs(status))
		return op_sleep(op, SETTLE_EVERY);
	if (*run_state_unsavable(status))
		return op_fail(op, TP_ESTATE, "InvalidState", "VM %s cannot be saved: %s", op_vm_name(op),
			       run_state_unsavable(status));
	return op_note(op, "run-state", json_string(ran_before(op) && strcmp(status, "paused") == 0 ?
						    "running" : status)) ? OP_NEXT : OP_FAIL;
}

/* After whatever happened in between: as it was before; only a guest that ran is continued. */
enum op_verdict guest_pause_undo(struct op *op, const struct op_event *ev)
{
	const char *status;

	if (ev->type == OP_ENTER || ev->type == OP_TICK)
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	if (op_replied(ev, QMP_CONT))
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	status = status_of(ev);
	if (passes_by_itself(status))
		return op_sleep(op, SETTLE_EVERY);
	if (run_state_runs(status) || !ran_before(op))
		return OP_NEXT;
	/* What stopped it meanwhile is not continued in silence. */
	if (strcmp(status, "paused") != 0 && strcmp(status, "postmigrate") != 0)
		return OP_NEXT;
	return op_qmp(op, QMP_CONT, NULL);
}
