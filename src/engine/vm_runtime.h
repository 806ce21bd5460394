/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vm_runtime.h - The QEMU of a VM: its process, monitor and guest agent
 *
 * A vm_qemu exists from the moment when the mover was spawned that becomes QEMU (or a running one
 * is adopted) until its end was seen: then vm->qemu is NULL again, the durable rest says why, and
 * the operation that held it was told. The monitor's and the agent's sockets are bound by the
 * engine in <runtime-dir>/<vm>/ and inherited by QEMU as listening descriptors: connecting never
 * races with QEMU's start, and a later engine connects by path.
 *
 * Actions of op_ports.vm (answered by OP_VM):
 *   "launch"  {"incoming": bool, "uffd"?: bool, "image"?: manifest}: builds the command line and
 *             starts it. uffd: with a /dev/userfaultfd of its own, see UFFD_HAND_OVER in uffd.h.
 *             data {"pid", "start", "boot", "refused"?: why it has none}; QemuExited, HookFailed...
 *   "connect" {}: greeting, capabilities, schema, status. data {"version"}
 *   "kill"    {}: SIGKILL, and the end was seen (also when there is none)
 *   "gone"    {}: answered when the process has ended
 *   "hook"    {"name", "reason"}: runs the hook if the spec has it. data {"output"}
 */
#ifndef VM_RUNTIME_H
#define VM_RUNTIME_H

#include <ev.h>
#include <jansson.h>
#include <stdbool.h>

#include "base/tp_proc.h"
#include "engine/launch.h"
#include "engine/vm.h"
#include "qmp/qga_client.h"
#include "qmp/qmp_client.h"
#include "qmp/qmp_schema.h"

enum agent_state { AGENT_NONE, AGENT_CONNECTED, AGENT_UNRESPONSIVE };

struct vm_qemu {
	struct vm *vm;
	struct tp_proc proc;
	int pidfd;
	struct ev_io ended;		/* pidfd readable */
	struct ev_timer retry;		/* connecting again after the monitor was lost */
	struct ev_timer eof_wait;	/* the process has ended, the monitor's EOF is awaited */
	bool exited, over;
	int status_code;		/* of waitpid, -1 unknown */
	double lost_at;			/* monotonic; when the monitor was lost, 0: it was not */
	struct mover *mover;		/* until exec */
	char refused[TP_TEXT_SIZE];	/* a wish of its launch that was not fulfilled */
	struct qmp_client *qmp;
	struct qga_client *qga;
	bool ready;			/* negotiated, features and status known */
	bool schema_asked, schema_known;
	bool adopted;
	bool dying;			/* we killed it or sent quit: its end is no crash */
	char status[32];		/* query-status, kept up to date by events and polls */
	char shutdown_reason[32];	/* of the SHUTDOWN event */
	bool shutdown_guest;
	bool panicked;
	struct qmp_features features;
	int major, minor, micro;
	char package[64];
	enum agent_state agent;
	bool agent_open;		/* VSERPORT_CHANGE open */
	uint64_t launch_token, connect_token;	/* OP_VM answers that are due */
	struct op *waiting;
	json_t *kill_waiters;		/* tokens to answer when the process has ended */
	unsigned status_polls;
};

/* For op ports. */
uint64_t vm_action(struct vm *vm, struct op *op, const char *action, json_t *args_owned,
		   struct tp_error *err);
/* Takes up a QEMU that an earlier engine left: state.json's or the journal's pid. False: errno ESRCH:
 * gone; any other: not known. */
bool vm_adopt(struct vm *vm, const struct tp_proc *proc);
/* The QEMU of this VM which no record names (the engine died while it was launched): by the mark
 * in its environment. False: errno ESRCH: none; any other: not known. */
bool vm_find_stray(const struct vm *vm, struct tp_proc *proc);
void vm_qemu_kill(struct vm *vm);		/* SIGKILL; the end follows from the loop */
void vm_quits(struct vm *vm);		/* `quit` is about to be sent: its end is wanted */
void vm_qemu_forget(struct vm *vm);		/* engine ends: close all, process goes on */
/* Asks query-status now; the state follows. */
void vm_poll_status(struct vm *vm);
void vm_status_is(struct vm *vm, const char *status);	/* read by somebody else just now */
struct qga_client *vm_agent(struct vm *vm, struct tp_error *err);	/* connects if need be */
json_t *vm_log_tail(const struct vm *vm, size_t lines);	/* new string: QEMU's last words */
void vm_log_trim(struct vm *vm);
json_t *vm_exit_data(const struct vm *vm);	/* new: last-exit, or the log's tail */

/* For vm_monitor.c and vm_hooks.c. */
void vm_answer(struct vm *vm, struct op *op, uint64_t token, const char *action, const json_t *data,
	       const struct tp_error *err);
void vm_process_over(struct vm_qemu *q);	/* the monitor was read to its end */
void vm_qemu_free(struct vm_qemu *q);

#endif
