/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * steps_migration.c - QEMU's migration state known before each use, and given back afterwards
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_proc.h"
#include "base/tp_sock.h"
#include "engine/steps.h"
#include "migration/mig_info.h"

#define MOVER_REAP_MS 5000

/*
 * query caps -> query params -> note both -> set params -> set caps -> read back. Capabilities are
 * sticky and some are on from before (a save must not inherit background-snapshot): all are set.
 */
enum op_verdict migration_prepare(struct op *op, const struct op_event *ev, const char *const *on)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *args;

	if (ev->type == OP_ENTER)
		return op_qmp(op, QMP_QUERY_MIGRATE_CAPABILITIES, NULL);
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	switch (ev->cmd) {
	case QMP_QUERY_MIGRATE_CAPABILITIES:
		if (json_object_get(op_res(op), "params"))	/* read back */
			return mig_caps_are(ev->data, on) ? OP_NEXT :
			       op_fail(op, TP_EQMP, "QemuError", "QEMU of VM %s did not take the migration "
				       "capabilities", op_vm_name(op));
		if (!op_note(op, "caps", mig_caps_restore(ev->data)))
			return OP_FAIL;
		args = mig_caps_arguments(ev->data, on, &err);
		if (!args)
			return op_fail_error(op, &err, NULL);
		return op_qmp(op, QMP_MIGRATE_SET_CAPABILITIES, args);
	case QMP_MIGRATE_SET_CAPABILITIES:
		return op_qmp(op, QMP_QUERY_MIGRATE_PARAMETERS, NULL);
	case QMP_QUERY_MIGRATE_PARAMETERS:
		if (!op_note(op, "params", mig_params_restore(ev->data)))
			return OP_FAIL;
		return op_qmp(op, QMP_MIGRATE_SET_PARAMETERS, mig_params_stopped());
	default:
		return op_qmp(op, QMP_QUERY_MIGRATE_CAPABILITIES, NULL);
	}
}

enum op_verdict migration_prepare_undo(struct op *op, const struct op_event *ev)
{
	json_t *caps = json_object_get(op_res(op), "caps"), *params = json_object_get(op_res(op), "params");

	if (ev->type == OP_ENTER)
		return caps ? op_qmp(op, QMP_MIGRATE_SET_CAPABILITIES, json_incref(caps)) : OP_NEXT;
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	if (ev->cmd == QMP_MIGRATE_SET_CAPABILITIES && params)
		return op_qmp(op, QMP_MIGRATE_SET_PARAMETERS, json_incref(params));
	return OP_NEXT;
}

/* --- the mover --- */

bool stream_pair(int *writer, int *reader, int buffer, struct tp_error *err)
{
	int pair[2];

	if (!tp_socketpair(SOCK_STREAM, pair, err))
		return false;
	/* Best effort: the kernel's limit (net.core.wmem_max) may be lower. */
	if (buffer)
		(void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	*writer = pair[0];
	*reader = pair[1];
	return true;
}


void mover_note(struct op *op, const struct op_event *ev)
{
	struct tp_proc p = { .pid = (pid_t)tp_json_int(ev->data, "pid", 0) };

	if (p.pid > 0 && tp_proc_identify(p.pid, &p, NULL))
		op_note(op, "mover", tp_proc_json(&p));
}

void mover_progress(struct op *op, const struct op_event *ev)
{
	if (strcmp(ev->name, "progress") == 0)
		op_progress_bytes(op, (uint64_t)tp_json_int(ev->data, "done-bytes", 0),
				  (uint64_t)tp_json_int(ev->data, "total-bytes", 0));
}

/* One that an earlier engine left: it is nobody's child, its end is seen by the pidfd. */
static bool stop_orphan(struct job *j, struct tp_error *err)
{
	struct pollfd pfd = { .events = POLLIN };
	tp_autoclose int fd = -1;
	struct tp_proc p;

	tp_proc_of_json(j->in, &p);
	fd = tp_proc_open(&p);
	if (fd < 0)
		return errno == ESRCH || tp_fail_sys(err, errno, "look at the mover (pid %d)", (int)p.pid);
	if (!tp_pidfd_kill(fd, SIGKILL) && errno != ESRCH)
		return tp_fail_sys(err, errno, "kill the mover (pid %d)", (int)p.pid);
	pfd.fd = fd;
	return poll(&pfd, 1, MOVER_REAP_MS) == 1 ||
	       tp_fail(err, TP_ETIMEOUT, "the mover (pid %d) does not end", (int)p.pid);
}

enum op_verdict mover_stop(struct op *op, const struct op_event *ev)
{
	json_t *left = json_object_get(op_res(op), "mover");

	if (ev->type == OP_ENTER && op_mover_alive(op)) {
		op_mover_kill(op);
		return OP_WAIT;
	}
	if (ev->type == OP_ENTER && left)
		return step_job(op, stop_orphan, json_incref(left), NULL, 0);
	if (ev->type == OP_ENTER || ev->type == OP_IO)
		return OP_NEXT;
	return ev->type == OP_MOVER && strcmp(ev->name, "end") == 0 ? OP_NEXT : OP_WAIT;
}

void mover_fault(struct op *op, json_t *request)
{
#ifdef TP_FAULTS
	const struct vm *vm = vm_find(op_engine(op), op_vm_name(op));
	const char *fault = vm ? tp_json_str(json_object_get(vm->spec, "labels"), "x-mover-fault") : NULL;

	if (fault)
		tp_json_set_str(request, "fault", fault);
#else
	(void)op, (void)request;
#endif
}
