/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * steps.h - Steps and pieces of steps that several plans share
 */
#ifndef STEPS_H
#define STEPS_H

#include <jansson.h>

#include "engine/op.h"
#include "engine/vm.h"

struct engine_pool;

struct vm *op_vm_of(struct op *op);		/* the VM that the operation holds */
struct torpor *op_engine(struct op *op);

/* --- steps_launch.c --- */
enum op_verdict hook_prepare(struct op *op, const struct op_event *ev);
enum op_verdict hook_prepare_undo(struct op *op, const struct op_event *ev);
enum op_verdict hook_before_run(struct op *op, const struct op_event *ev);
enum op_verdict qemu_launch_undo(struct op *op, const struct op_event *ev);	/* kill, reaped */
enum op_verdict qemu_connect(struct op *op, const struct op_event *ev);
/* Body of a launch step: args of op_vm("launch"), NULL: to boot; notes the process, holds it. */
struct qemu_launch_how {
	bool incoming, uffd;
	const json_t *manifest;
};
enum op_verdict qemu_launch(struct op *op, const struct op_event *ev, const struct qemu_launch_how *how);
/* What the machine looks like right after its start: machine type, devices; into rest "launched". */
enum op_verdict machine_identify(struct op *op, const struct op_event *ev);
json_t *machine_device_names(const json_t *qom_list);	/* new: the children in a qom-list reply */
json_t *cpu_model_args(const json_t *args);	/* new: query-cpu-model-expansion's, from QEMU's arguments */

/* --- steps_guest.c --- */
enum op_verdict guest_cont(struct op *op, const struct op_event *ev);	/* cont, until it runs */
enum op_verdict guest_pause(struct op *op, const struct op_event *ev);	/* stop, until it is paused; if it ran */
enum op_verdict guest_pause_undo(struct op *op, const struct op_event *ev);	/* the run state that it had */
bool run_state_runs(const char *status);
/* "" or why a VM in this run state cannot be saved. */
const char *run_state_unsavable(const char *status);

/* --- steps_migration.c --- */
/* Notes caps and params as they are (res "caps", "params") and sets ours; undo gives them back. */
enum op_verdict migration_prepare(struct op *op, const struct op_event *ev, const char *const *on);
enum op_verdict migration_prepare_undo(struct op *op, const struct op_event *ev);
/* Kills the mover (also one that an earlier engine left: res "mover") and waits for its end. */
enum op_verdict mover_stop(struct op *op, const struct op_event *ev);
/*
 * The socketpair of a stream: writer's end and reader's end. Only the writer's buffer counts on
 * AF_UNIX; 1 MiB gave a stream 15 to 20 % over the kernel's default (0) with QEMU 10.0. A page that
 * somebody waits for is behind all that the buffer holds.
 */
#define STREAM_BUFFER (1 << 20)
bool stream_pair(int *writer, int *reader, int buffer, struct tp_error *err);
void mover_fault(struct op *op, json_t *request);	/* fault builds: a fault for the mover, by the VM's label */
/* Notes the mover's process from its hello. */
void mover_note(struct op *op, const struct op_event *ev);
/* Takes its "progress" over into the record; other messages are not looked at. */
void mover_progress(struct op *op, const struct op_event *ev);

/* --- steps_io.c --- */

/* A descriptor in op_data(): 0, with which that begins, and -1 are none. */
void step_fd_close(int *fd);

/* io jobs */
/* A job with JSON in and out: fn runs on the worker. in is taken. */
struct job {
	struct op_job base;
	bool (*fn)(struct job *j, struct tp_error *err);
	json_t *in, *out;
	struct pool *pool;		/* NULL: none */
	int fd;				/* opened by the job; the step takes it, else closed with it */
	char worker[TP_NAME_MAX + 1];
};
/* On the pool's worker (with its storage), or pool NULL: on that of the disks. NULL with err. */
struct job *job_new(bool (*fn)(struct job *j, struct tp_error *err), json_t *in_owned,
		    struct engine_pool *pool, struct tp_error *err);
/* Makes and asks: for steps. */
enum op_verdict step_job(struct op *op, bool (*fn)(struct job *j, struct tp_error *err), json_t *in_owned,
			 const char *pool, unsigned flags);
struct job *job_of(const struct op_event *ev);	/* OP_IO: the job, else NULL */

/* Several blockers in one error: the first one's class and text, all in data.blockers. */
void blocker_add(json_t *blockers, const char *class_, json_t *data_owned, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
enum op_verdict blockers_verdict(struct op *op, const json_t *blockers);	/* OP_NEXT when there are none */

#endif
