/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_priv.h - What the files of the operation runner share; nobody else includes it
 */
#ifndef OP_PRIV_H
#define OP_PRIV_H

#include "engine/op.h"

#define OP_AWAIT_MAX 16		/* answers that one step may await at once */
#define OP_KEPT_MAX 32		/* events that arrive between two steps */
#define OP_WARNINGS_MAX 64
#define OP_TIMELINE_MAX 64
#define OP_SOON 1e-6		/* seconds: at the next turn of the loop */
#define OP_LIMIT_DEFAULT 60.0
#define OP_WITHDRAW_LIMIT 10.0	/* for the record that takes a commit back */
#define OP_BACKOFF_MIN 1.0
#define OP_BACKOFF_MAX 60.0

enum op_stage {
	OP_IDLE,		/* not started */
	OP_ENTERING,		/* the next entry comes from the loop */
	OP_INSIDE,		/* a step waits */
	OP_SYNCING,		/* between two calls of steps, for the journal */
	OP_BACKOFF,		/* stuck */
	OP_OVER,
};

/* What the awaited answer of the journal is for. */
enum op_sync { OP_SYNC_ENTER, OP_SYNC_COMMIT, OP_SYNC_BACK, OP_SYNC_NOTE };

struct op_await {
	uint64_t token;
	enum op_event_type type;
	unsigned flags;
};

struct op_kept {
	enum op_event_type type;
	char name[64];
	json_t *data;
};

struct op_loss {
	struct tp_error why;
	json_t *data;
};

struct op {
	const struct op_plan *plan;
	const struct op_ports *ports;
	void *owner, *data;
	char *id, *vm, *parent;
	json_t *arguments, *was, *result, *warnings, *timeline;
	json_t *res, *res_logged;	/* res as the journal has it */
	json_t *logged;			/* further records by name: op_logged() */
	json_t *said;			/* the mover's messages by name */

	/* Position */
	enum op_status status;
	enum op_stage stage;
	int at;				/* step; going back: the next to undo */
	bool begun;			/* the log has `begin` */
	bool entered;			/* step `at` may have had effects */
	bool enter_logged;
	bool back, committed, cancelled;
	bool commit_tried;		/* a commit record was handed to the journal */
	bool doomed;			/* past the commit, but QEMU is lost: ends failed */
	bool retrying;			/* failed undos only */
	bool silent;			/* an undo had no answer in time: the next ones do not wait for QEMU too */
	bool blocked;			/* at an undo that the ones above it wait for */
	bool undone;			/* some undo has run */
	bool *undo_failed;		/* by step */
	bool muted;			/* injected fault: the step hears nothing */
	double backoff;

	/* What is awaited */
	struct op_await await[OP_AWAIT_MAX];
	unsigned nawait;
	struct op_kept kept[OP_KEPT_MAX];
	unsigned nkept;
	bool tick;
	unsigned want, got;
	const char *const *want_names;
	uint64_t sync_sent, sync_answered, sync_awaited;	/* awaited: 0 none */
	enum op_sync sync_for;

	/* Resources */
	unsigned held, lost;
	bool qemu_gone;
	struct op_loss loss[2];		/* QEMU, mover */

	/* Failure: of the present step, of the operation, of a stuck step past the commit */
	struct tp_error fail, error, stuck;
	json_t *fail_data, *error_data, *stuck_data;
	bool fail_by_link, error_by_link;	/* no refusal: QEMU could not be asked */

	/* The record */
	char phase[32];
	uint64_t started_us, ended_us, deadline_us;
	double deadline;		/* monotonic; 0: none */
	double timeout;
	bool late;
	uint64_t done_bytes, total_bytes;
	unsigned percent;
	double rate, rate_at;
	uint64_t rate_bytes;
};

/* op.c: the walk. Of these only op_enter() may end the operation, as its last act. */
const struct op_step *op_step_at(const struct op *op);		/* NULL: before the first, after the last */
void op_set_timer(struct op *op, enum op_timer which, double after);
void op_set_deadline(struct op *op);	/* of the turning point, or of "late" past the commit */
void op_schedule(struct op *op);	/* drops what is awaited; the next entry comes from the loop */
void op_enter(struct op *op);
void op_run_entry(struct op *op);
void op_move_on(struct op *op);
void op_feed(struct op *op, const struct op_event *ev);
void op_step_failed(struct op *op);	/* why: op->fail */
void op_turn_back(struct op *op);	/* why: op->fail */
bool op_skipped(const struct op *op);
bool op_undo_due(struct op *op);
bool op_loss_strikes(struct op *op);
struct op_loss *op_loss_of(struct op *op, unsigned res);
void op_set_fail(struct op *op, const struct tp_error *err, const json_t *data);	/* the first wins */
void op_clear_fail(struct op *op);
void op_drop_kept(struct op *op);

/* The present step, where there is one for certain. */
static inline const struct op_step *op_step_here(const struct op *op)
{
	return &op->plan->steps[op->at];
}

/* op_life.c */
void op_deadline_over(struct op *op);

/* op_steps.c */
bool op_text_fits(const json_t *value, size_t max);

/* op_log.c: false with err, the record is then not in the log */
bool op_log_begin(struct op *op, struct tp_error *err);
bool op_log_enter(struct op *op, bool sync, struct tp_error *err);
bool op_log_commit(struct op *op, struct tp_error *err);
bool op_log_back(struct op *op, bool sync, struct tp_error *err);
/* Hands one record over and counts its sync. */
bool op_log(struct op *op, const char *record, json_t *fields_owned, bool sync,
	    struct tp_error *err);

/* op_record.c */
json_t *op_error_json(const struct tp_error *err, const json_t *data);
void op_set_phase(struct op *op, const char *phase, uint64_t at_us);
void op_add_warning(struct op *op, char *text);	/* cleans text in place */

/* op_fault.c */
enum op_fault { OP_FAULT_DIE_BEFORE, OP_FAULT_DIE_AFTER_ENTER, OP_FAULT_DIE_AFTER_EFFECT,
		OP_FAULT_FAIL, OP_FAULT_SILENT };
#ifdef TP_FAULTS
bool op_fault_here(const struct op *op, enum op_fault what);	/* the die ones do not return */
#else
static inline bool op_fault_here(const struct op *op, enum op_fault what)
{
	(void)op;
	(void)what;
	return false;
}
#endif

#endif
