/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op.h - Operations: a plan is a table of steps, one runner walks it
 *
 * Theory of operation. A plan's steps run downwards. On failure, time limit,
 * cancel or the loss of a held resource their undos run upwards, beginning with
 * the step that failed, as a command without an answer may have worked. One
 * step may be the commit point: once its record is on the platter there is no
 * way back, only forward. The runner alone owns position, limits, deadline,
 * cancel, journal and progress; a step function only asks for things and is
 * called again with what happened:
 *
 *   OP_ENTER once, then each OP_REPLY, OP_AGENT, OP_VM, OP_IO, OP_MOVER, OP_TICK
 *   that it asked for and each OP_QEMU_EVENT; it answers OP_NEXT, OP_WAIT, OP_FAIL.
 *
 * Rules (style.md 6.2, journal.md 5): each entry comes from the loop, never from
 * inside op_start or another step; moving on drops replies, io results and ticks
 * that the former step awaited, never the watch on held resources; a refused
 * command fails the step unless it was asked with OPQ_SHOW; undos are idempotent and use only what
 * is in op_res(); steps after the commit are idempotent; the limit is for lack of
 * progress (op_progress starts it again); the runner turns back early enough to
 * be back by the deadline, and after the commit a deadline only adds the warning
 * "late". An undo that fails is noted, the others still run (but OPF_BARRIER), the end is "stuck":
 * the runner retries the failed undo with back-off. A step past the commit that
 * fails is retried with back-off likewise (status "stuck" while it waits), until it works or
 * op_retry asks for another try at once.
 *
 * Everything outside goes through struct op_ports, so that plans run against
 * the engine and, in tests, against a model with virtual time.
 */
#ifndef OP_H
#define OP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "qmp/qmp_cmds.h"

#define OP_ARGUMENTS_MAX (16u << 10)	/* bytes of JSON; more is refused by op_start */
#define OP_WAS_MAX (8u << 10)
#define OP_NOTE_MAX (4u << 10)		/* of one op_note() */

struct op;
struct op_job;

enum op_verdict { OP_NEXT, OP_WAIT, OP_FAIL };

enum op_event_type {
	OP_ENTER,
	OP_REPLY,		/* QEMU's answer: token, cmd, data or err */
	OP_AGENT,		/* the guest agent's: token, qga, data or err */
	OP_VM,			/* end of op_vm(): token, action, data or err */
	OP_IO,			/* end of op_io(): token, job (borrowed), err */
	OP_MOVER,		/* name = first member of its message ("progress", "sealed", ...), data = that
				   member's value; its end: name "end", data {"status", "stderr"} */
	OP_QEMU_EVENT,		/* name, data */
	OP_TICK,		/* op_sleep is over */
};

struct op_event {
	enum op_event_type type;
	uint64_t token;
	enum qmp_cmd cmd;
	enum qga_cmd qga;
	const char *action;		/* OP_VM */
	const char *name;
	const json_t *data;		/* borrowed; may be NULL */
	struct op_job *job;
	const struct tp_error *err;	/* NULL: succeeded */
	const json_t *error_data;	/* `data` for the wire's error, or NULL */
};

typedef enum op_verdict (*op_step_fn)(struct op *op, const struct op_event *ev);

enum { OPF_COMMIT = 1, OPF_SYNC = 2, OPF_QEMU = 4, OPF_BARRIER = 8 };
/* OPF_COMMIT: the commit record (fsync) is written after run() said OP_NEXT; OPF_SYNC: the enter
 * record is fsynced before run(); OPF_QEMU: run and undo are skipped where QEMU is gone at recovery.
 * Past the commit a run with OPF_QEMU is also skipped once QEMU is lost; unless the step expects
 * QEMU's end the operation then ends failed with QemuExited (a hibernation's steps after the commit
 * expect it; a restore's `cont` does not). OPF_BARRIER: where this undo fails, those above it wait
 * until it works (a manifest that cannot be unlinked: no `cont` beside a whole image); meanwhile the
 * operation is stuck. */

enum { OP_RES_QEMU = 1, OP_RES_MOVER = 2 };

struct op_step {
	const char *name;	/* in the journal; never used again with another meaning */
	const char *phase;	/* of the record from this step on; NULL: unchanged */
	op_step_fn run, undo;	/* undo may be NULL */
	double limit, undo_limit;	/* seconds without progress; 0: 60 */
	unsigned flags;		/* OPF_* */
	unsigned expects;	/* OP_RES_*: their end does not fail this step, it is told as OP_QEMU_EVENT
				   "QEMU_GONE" or OP_MOVER "end" */
};

struct op_plan {
	const char *kind;	/* "hibernate", "restore", "start", "powerdown": the record's kind */
	unsigned version;	/* in the journal; recovery refuses a log of another version */
	const struct op_step *steps;
	unsigned nsteps;
	const char *done_phase;	/* "Hibernated" ...; failed and cancelled operations end in "Failed" */
	size_t data_size;	/* op_data(): zeroed; what may be lost in a crash */
	void (*data_free)(void *data);
	/* Called once when the operation ends, before the record is final: set result, rest state. */
	void (*ended)(struct op *op);
};

enum op_status { OP_RUNNING, OP_SUCCEEDED, OP_FAILED, OP_CANCELLED, OP_STUCK };

/* Timers a runner wants: one for the step's limit, one for op_sleep, one for the deadline. */
enum op_timer { OP_TIMER_LIMIT, OP_TIMER_TICK, OP_TIMER_DEADLINE, OP_TIMER_ENTER, OP_TIMER_N };

/*
 * Effects. All asynchronous: the answer comes by op_deliver_* from the loop, never inside the call.
 * A call that cannot be made returns 0/false with err ("unsent"): the step fails with it.
 */
struct op_ports {
	uint64_t (*qmp)(struct op *op, enum qmp_cmd cmd, json_t *args_owned, int *fd, double limit,
			struct tp_error *err);
	uint64_t (*agent)(struct op *op, enum qga_cmd cmd, json_t *args_owned, double limit,
			  struct tp_error *err);
	/* The VM's runtime: "launch", "connect", "kill", "hook", ...: see vm_runtime.h. */
	uint64_t (*vm)(struct op *op, const char *action, json_t *args_owned, struct tp_error *err);
	/* Runs job->run on the worker named by job->worker; job is owned by the port. */
	uint64_t (*io)(struct op *op, struct op_job *job_owned, struct tp_error *err);
	/* One mover at a time belongs to an operation. fds are taken. */
	bool (*mover_start)(struct op *op, json_t *request_owned, int *fds, size_t nfds, struct tp_error *err);
	bool (*mover_send)(struct op *op, json_t *message_owned, struct tp_error *err);
	void (*mover_kill)(struct op *op);	/* SIGKILL; OP_MOVER "end" follows; none running: nothing */
	bool (*mover_alive)(struct op *op);
	void (*mover_give)(struct op *op);	/* a page server: it belongs to the VM from now on */
	bool (*qemu_alive)(struct op *op);
	/* Appends a record; with sync the answer comes by op_deliver_journal after fdatasync. */
	bool (*journal)(struct op *op, const char *record, json_t *fields_owned, bool sync,
			struct tp_error *err);
	void (*forget)(struct op *op, uint64_t token);
	void (*timer)(struct op *op, enum op_timer which, double after);	/* 0: stop */
	double (*now)(struct op *op);		/* monotonic seconds */
	void (*changed)(struct op *op, bool phase);	/* the record changed; phase: not only progress */
	/*
	 * Final; the operation may be freed from here on. The owner replaces state.json, then
	 * writes `end`, then empties the log (journal.md 3).
	 */
	void (*ended)(struct op *op);
};

/* Beside the pools: the state directory, and files of guests' disks, which may hang. */
#define OP_WORKER_STATE "@state"
#define OP_WORKER_DISKS "@disks"

struct op_job {
	const char *worker;	/* a pool's name, OP_WORKER_STATE (NULL) or OP_WORKER_DISKS */
	bool (*run)(struct op_job *job, struct tp_error *err);	/* on the worker's thread */
	void (*free)(struct op_job *job);
	json_t *error_data;	/* set by run for the wire's error; freed with the job */
};

/* --- making and driving an operation (engine) --- */

struct op_options {
	const char *id, *vm;		/* copied */
	json_t *arguments;		/* borrowed; kept by reference */
	json_t *was;			/* run state etc. before: begin record, op_was(); borrowed */
	const char *parent;
	double timeout;			/* seconds from now; 0: none */
	uint64_t deadline_us;		/* at recovery: wall clock of the deadline; 0: none */
};
struct op *op_new(const struct op_plan *plan, const struct op_ports *ports, void *owner,
		  const struct op_options *o, struct tp_error *err);
void op_free(struct op *op);
void *op_owner(const struct op *op);
/* Writes `begin` (the journal must have room) and enters the first step from the loop. */
bool op_start(struct op *op, struct tp_error *err);
/*
 * Recovery: records as read from the journal (array). Rebuilds position, resources, committed,
 * was. False: the log cannot be used (err). Afterwards op_resume() goes on: back (not committed)
 * or forward (committed) with qemu: whether QEMU is there.
 */
bool op_rebuild(struct op *op, const json_t *records, struct tp_error *err);
void op_resume(struct op *op, bool qemu);
/* The log ends with `end`: the operation was over, only the log had not been emptied. */
bool op_log_ended(const json_t *records);

/* Answers of ports. Unknown tokens are dropped. */
void op_deliver(struct op *op, const struct op_event *ev);
void op_deliver_journal(struct op *op, const struct tp_error *err);	/* NULL: on the platter */
void op_deliver_timer(struct op *op, enum op_timer which);
/* A held resource ended: QEMU (why: from its monitor and log) or the mover (never both). */
void op_lost(struct op *op, unsigned res, const struct tp_error *why, const json_t *error_data);

/* Cancelled: before the commit turns back; else false with InvalidState and data.phase. */
bool op_cancel(struct op *op, struct tp_error *err);
/* What it works with is gone or is another's: before the commit it turns back with this. False: too late. */
bool op_abort(struct op *op, const struct tp_error *why, const json_t *data);
bool op_retry(struct op *op, struct tp_error *err);	/* stuck: tries again now */

/* --- what steps use --- */

void *op_data(struct op *op);
json_t *op_arguments(struct op *op);		/* borrowed */
json_t *op_was(struct op *op);			/* borrowed */
/* Resources: a JSON object that lives in the journal. op_note stores and journals. */
json_t *op_res(struct op *op);			/* borrowed */
bool op_note(struct op *op, const char *key, json_t *value_owned);
/*
 * Another record ("ran"), fsynced: OP_WAIT, then OP_IO with job NULL once it is on the platter; a
 * failing fsync fails the step. One at a time.
 */
enum op_verdict op_journal_sync_note(struct op *op, const char *record, json_t *fields_owned);
/* The fields of such a record, written now or before a crash; NULL: never written. Borrowed. */
const json_t *op_logged(const struct op *op, const char *record);
enum { OPQ_SHOW = 1 };		/* show the step a refusal instead of failing it */
/* Each returns OP_WAIT, or OP_FAIL when it could not be asked; the token for op_replied. */
enum op_verdict op_qmp(struct op *op, enum qmp_cmd cmd, json_t *args_owned);
enum op_verdict op_qmp_full(struct op *op, enum qmp_cmd cmd, json_t *args_owned, int *fd,
			    double limit, unsigned flags);
enum op_verdict op_agent(struct op *op, enum qga_cmd cmd, json_t *args_owned, double limit,
			 unsigned flags);
enum op_verdict op_vm(struct op *op, const char *action, json_t *args_owned, unsigned flags);
enum op_verdict op_io(struct op *op, struct op_job *job_owned, unsigned flags);
enum op_verdict op_mover_start(struct op *op, json_t *request_owned, int *fds, size_t nfds);
enum op_verdict op_mover_send(struct op *op, json_t *message_owned);
void op_mover_kill(struct op *op);
/*
 * What the mover has said since op_mover_start ("hello", "sealed", "held", "done", "error", "end"),
 * also while another step ran: the last value of that name, or NULL. Borrowed. A held mover's
 * "error" fails the step like its end would, unless the step's expects names OP_RES_MOVER; its end
 * after "done" is no loss.
 */
const json_t *op_mover_said(const struct op *op, const char *name);
bool op_mover_alive(struct op *op);
/* Past the commit: the mover serves the VM on; its words and its end are not this operation's any more. */
void op_mover_give(struct op *op);
bool op_qemu_alive(struct op *op);
enum op_verdict op_sleep(struct op *op, double seconds);	/* then OP_TICK */
bool op_replied(const struct op_event *ev, enum qmp_cmd cmd);	/* OP_REPLY to cmd, not refused */
/* Several things awaited: said once on entry, counted by the runner; OP_NEXT once all were got. */
void op_want(struct op *op, unsigned set, const char *const *names);	/* names by bit, for time-out texts */
enum op_verdict op_got(struct op *op, unsigned bit);
enum op_verdict op_progress(struct op *op);		/* starts the limit again; OP_WAIT */
void op_progress_bytes(struct op *op, uint64_t done, uint64_t total);	/* record + op_progress */
/*
 * Past the commit, in a step that proved that nothing has acted on it (a refused `cont`): this step's
 * failure turns back as before the commit. The journal's `back` record is synced first.
 */
void op_withdraw(struct op *op);
enum op_verdict op_fail(struct op *op, enum tp_code code, const char *class_, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
enum op_verdict op_fail_error(struct op *op, const struct tp_error *err, json_t *data_owned);
void op_hold(struct op *op, unsigned res);	/* from now its end fails the current step */
bool op_going_back(const struct op *op);
bool op_committed(const struct op *op);
bool op_barred(const struct op *op);		/* stuck at an undo with OPF_BARRIER: no `cont` */
bool op_late(const struct op *op);		/* past the deadline: shorten waits */
void op_warn(struct op *op, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void op_result(struct op *op, const char *key, json_t *value_owned);	/* of record.result */
void op_phase(struct op *op, const char *phase);	/* inside a step */
double op_now(struct op *op);

/* --- what the API shows --- */

const char *op_id(const struct op *op);
const char *op_vm_name(const struct op *op);
const struct op_plan *op_plan_of(const struct op *op);
enum op_status op_status(const struct op *op);
const struct tp_error *op_error(const struct op *op);	/* NULL: none */
const json_t *op_error_data(const struct op *op);
const char *op_phase_name(const struct op *op);
const char *op_step_name(const struct op *op);
json_t *op_record(const struct op *op);		/* new: the record of interface.md 4 */

#ifdef TP_FAULTS
/*
 * "[KIND/]STEP:FAULT", process-wide; false if it cannot be parsed. Strikes once, downwards only.
 * die-before, die-after-enter, die-after-effect (before its commit record): _exit(42) there;
 * fail: the step fails after its effect; silent: the step hears no answer any more.
 */
bool op_fault_set(const char *text);
#endif

#endif
