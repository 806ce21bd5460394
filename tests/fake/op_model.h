/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_model.h - A world in which plans are walked: QEMU, mover, agent and journal as small state
 * machines, in virtual time
 *
 * A case names a plan, sets the world up, and checks it at the end. op_model_walk() runs the plan
 * once without a fault, then once for each fault at each effect (a call of a port); then it cancels
 * at each effect and lets a second fault strike at each effect of the way back.
 * op_model_recover() cuts the daemon at each effect instead, before and after
 * it, with QEMU alive, with QEMU gone and after a power cut, and goes on from the journal. Checked
 * always: the operation ends, once; no `cont` while QEMU is in `inmigrate`; percent never falls;
 * the log fits its room; and at each effect an operation rebuilt from the log equals the real one
 * in position and resources.
 *
 * A job of op_io() is really run, at the next virtual tick: plans may touch a temporary folder that
 * setup makes and teardown removes.
 */
#ifndef OP_MODEL_H
#define OP_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/op.h"

enum op_model_fault {
	MODEL_NONE,
	MODEL_REFUSED,		/* no effect, an error comes */
	MODEL_UNSENT,		/* cannot be asked */
	MODEL_SILENT,		/* effect, no answer */
	MODEL_DEAF,		/* no effect, no answer */
	MODEL_LATE,		/* effect, the answer comes much later than any limit */
	MODEL_CANCEL,		/* op_cancel() right after the question */
	MODEL_DEADLINE,		/* the deadline is over right after the question */
	MODEL_QEMU_LOST,	/* no effect, QEMU dies instead of answering */
	MODEL_QEMU_LOST_AFTER,	/* QEMU dies between this step and what follows */
	MODEL_MOVER_LOST,
	MODEL_MOVER_LOST_AFTER,
	MODEL_MOVER_ERROR,	/* the mover reports an error of its own */
	MODEL_SYNC_FAILS,	/* the next sync of the journal fails */
	MODEL_SYNC_SILENT,	/* the next sync of the journal never ends */
	MODEL_LOG_FULL,		/* the next record cannot be written */
	MODEL_FAULTS,
	MODEL_CRASH_BEFORE,	/* the daemon's end: op_model_recover() */
	MODEL_CRASH_AFTER,
	MODEL_CRASH_ENDED,		/* the daemon ends after the operation, before that is recorded */
};

enum op_model_outage { MODEL_QEMU_STAYS, MODEL_QEMU_GONE, MODEL_POWER_CUT, MODEL_OUTAGES };

/* What is to go wrong in one run; all zero: nothing. */
struct op_model_script {
	enum op_model_fault fault;
	unsigned at;			/* number of the effect */
	enum op_model_fault undo_fault;	/* besides, on the way back */
	unsigned undo_at;
	enum op_model_outage outage;	/* for the MODEL_CRASH ones */
	unsigned again;			/* then a second end of the daemon after so many effects; 0: none */
};

#define MODEL_PAGES_ASKED 2	/* pages of the working set that a page server heard */

/* What a page server does with its image. */
enum op_model_pages {
	MODEL_PAGES_SERVE,
	MODEL_PAGES_REFUSE,	/* says why not, and ends */
	MODEL_PAGES_END,	/* ends without a word */
};

struct op_model_event;
struct op_model_case;

struct op_model_world {
	const struct op_model_case *c;
	struct op *op;			/* NULL where a power cut took the whole log */
	void *owner;			/* op_owner(); set by setup */
	void *user;			/* the case's own */

	/* QEMU */
	bool qemu, qemu72;		/* qemu72: after a failed save it is in `postmigrate` */
	bool guest_obeys;		/* system_powerdown ends it (default true) */
	char run_state[24];		/* as query-status says */
	char migration[24];		/* "": none so far */
	bool nodes_active, guest_ran;	/* since setup */
	bool inactivated;		/* in this migration */
	bool touched;			/* disks became active again after they were inactive */
	unsigned migration_gen;
	double gives_up;		/* seconds from the stream's end to the migration's failure */
	json_t *caps;			/* capability: bool */
	json_t *params;
	json_t *fds;			/* names that getfd made */
	json_t *answer[QMP_CMD_N];	/* fixed answers, before the state machine's own */
	json_t *qga_answer[QGA_CMD_N];	/* default {} */
	json_t *launch_data;		/* answer of the VM action "launch" */

	/* The mover: at most one */
	char mover_job[16];		/* "": none */
	bool mover_alive, mover_hold, mover_sealed, mover_held, mover_finished, mover_orphan;
	unsigned mover_gen;
	int mover_pid;			/* in its hello; 0: none */
	bool hide_orphan;		/* a later daemon has no connection to it, as in the engine */
	json_t *mover_request;
	json_t *sealed_data;		/* what it says with "sealed" */
	enum op_model_pages pages_how;
	char pages[16];			/* state of the page server; "": none */
	bool mover_given;		/* it serves the VM, not the operation */
	double whole_after;		/* seconds from the first page that is served to the last */

	/* Journal: records as op_journal_read() gives them; the first `synced` survive a power cut */
	json_t *log;
	size_t synced, log_bytes;

	/* Time */
	double now;
	double timers[OP_TIMER_N];	/* absolute; 0: stopped */
	struct op_model_event *events;
	uint64_t last_token, last_seq;

	/* The faults, and what they did */
	struct op_model_script script;
	unsigned neffects, nundone;	/* effects in all, of the way back */
	unsigned nrecovered;		/* of the recovery */
	bool struck, undo_struck, again_struck, crashed, over;
	bool fail_sync, hang_sync, fail_log;
	bool log_lost;			/* a record could not be written */
	bool was_stuck, recovered;
	unsigned ends;			/* calls of the ended port */
	int64_t percent;
	json_t *trace;			/* effects so far, for messages */
};

struct op_model_case {
	const char *name;
	const struct op_plan *plan;
	/* o has id "op-1", vm "vm1", timeout 100 s; arguments and was are released by the walk. */
	void (*setup)(struct op_model_world *w, struct op_options *o);
	/* After each effect; kind: "qmp", "agent", "vm", "io", "mover", "send", "kill". May be NULL. */
	void (*effect)(struct op_model_world *w, const char *kind, const char *name);
	/* At the end; w->op is there still (op_status(), op_record()...). */
	void (*check)(struct op_model_world *w);
	void (*teardown)(struct op_model_world *w);	/* may be NULL */
	/* The engine's own part in what the model does by itself; all may be NULL. */
	void (*mover)(struct op_model_world *w, const int *fds, size_t nfds);	/* it was started */
	void (*seals)(struct op_model_world *w);	/* before it says so: may set w->sealed_data */
	void (*given)(struct op_model_world *w);	/* a page server: w->mover_given from here on */
	void (*served)(struct op_model_world *w, const char *name);	/* what such a one says */
	void (*gone)(struct op_model_world *w, const char *why);	/* QEMU; the operation is told next */
	void (*restarts)(struct op_model_world *w);	/* another daemon; there is no w->op now */
	void (*resumes)(struct op_model_world *w);	/* w->op was rebuilt and goes on next */
	/* Answers in place of the model. True: handled, with *data or err. May be NULL. */
	bool (*qmp)(struct op_model_world *w, enum qmp_cmd cmd, const json_t *args, json_t **data,
		    struct tp_error *err);
	bool (*vm)(struct op_model_world *w, const char *action, const json_t *args, json_t **data,
		   struct tp_error *err);
};

struct op_model_count {
	unsigned runs, succeeded, failed, cancelled, stuck_first;
};

/* One run; returns with the world torn down. False: the last fault of the script did not strike. */
bool op_model_run(const struct op_model_case *c, const struct op_model_script *script,
		  struct op_model_count *count);
void op_model_walk(const struct op_model_case *c, struct op_model_count *count);
/* Only the faults on the way down: a quarter of the runs. */
void op_model_walk_down(const struct op_model_case *c, struct op_model_count *count);
void op_model_recover(const struct op_model_case *c, struct op_model_count *count);
const char *op_model_fault_name(enum op_model_fault fault);
/* Fails the test, with the case, the fault and the effects so far. */
void op_model_fail(struct op_model_world *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
bool op_model_logged(const struct op_model_world *w, const char *record);

/* --- between the files of the model --- */

/* fn after `delay`, unless the world has ended by then. */
void op_model_after(struct op_model_world *w, double delay, void (*fn)(struct op_model_world *w,
		    unsigned gen), unsigned gen);
void op_model_qemu_event(struct op_model_world *w, const char *name, json_t *data_owned);
void op_model_mover_says(struct op_model_world *w, const char *name, json_t *data_owned);
/* The state machine: *data or err. */
bool op_model_qmp(struct op_model_world *w, enum qmp_cmd cmd, const json_t *args, json_t **data,
		  struct tp_error *err);
void op_model_mover_start(struct op_model_world *w, json_t *request_owned);
void op_model_mover_send(struct op_model_world *w, const json_t *message);
void op_model_mover_dies(struct op_model_world *w, int status, const char *text);
void op_model_mover_abandoned(struct op_model_world *w);	/* its control connection ended */
/* op_model_pages.c: the mover is a page server. */
bool op_model_pages_is(const struct op_model_world *w);
void op_model_pages_start(struct op_model_world *w);
void op_model_pages_incoming(struct op_model_world *w, unsigned gen);	/* migrate-incoming, a little later */
void op_model_pages_finish(struct op_model_world *w);
void op_model_pages_ended(struct op_model_world *w);
void op_model_pages_again(struct op_model_world *w);	/* another one, over QEMU's postcopy-paused */
bool op_model_pages_outlive(struct op_model_world *w);	/* QEMU has ended; false: so does the server */
bool op_model_pages_connected(const struct op_model_world *w);	/* QEMU has the stream, or will */
void op_model_qemu_dies(struct op_model_world *w, const char *why);
void op_model_session_ends(struct op_model_world *w);	/* awaited replies become errors */
void op_model_fill(struct op_model_world *w);		/* defaults, before setup */

#endif
