/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ops_priv.h - Shared by ops.c (acceptance, memory), ops_ports.c (effects), ops_queue.c, ops_beside.c */
#ifndef OPS_PRIV_H
#define OPS_PRIV_H

#include <ev.h>

#include "engine/engine.h"
#include "engine/mover.h"
#include "engine/ops.h"

#define OPS_ID_MAX 128
#define OPS_NUMBERS 1000	/* of operations, reserved at once */
#define OPS_QUEUE_MAX 32	/* operations that wait for one VM */

/* A client that waits for an operation's end. */
struct op_waiter {
	struct op_waiter *next;
	struct api_call *call;
	struct torpor *t;
	struct ev_timer limit;		/* operation-wait with a timeout */
	bool as_record;			/* operation-wait: the record whatever it says; else result or error */
	char id[OPS_ID_MAX + 1];
};

/* An operation in the engine: owner of struct op. */
struct op_run {
	struct op_run *next;
	struct torpor *t;
	struct vm *vm;			/* NULL: it runs beside the VMs (ops_beside.c) */
	struct op *op;
	const struct op_plan *plan;
	struct op_plan check;		/* dry run: the plan's preflight step alone */
	bool dry, ending;
	bool recovered;			/* begun by a former engine */
	json_t *told;			/* the record as clients last heard of it */
	struct api_call *dry_call;
	struct mover *mover;
	struct ev_timer timers[OP_TIMER_N];
	struct ev_timer end_again;
	double end_backoff;
};

/* Waits for the VM (busy: queue, cancel). */
struct pending_op {
	struct pending_op *next;
	const struct op_plan *plan;
	char id[OPS_ID_MAX + 1];
	json_t *arguments;
	double timeout;
	uint64_t accepted_us;
	double accepted;		/* monotonic */
};

struct ops {
	struct op_run *running;
	struct op_waiter *waiters;
	json_t *ended;			/* array of records, oldest first */
	size_t logged;			/* lines in ops.log */
	uint64_t next_number, next_token;
	uint64_t reserved, reserving;	/* numbers below it are ours; 0: no writing is on its way */
	bool shortening;
};

extern const struct op_ports ops_real_ports;

struct op_run *ops_run_new(struct torpor *t, struct vm *vm, const struct op_plan *plan);
void ops_run_free(struct op_run *r);
struct op_run *ops_run_of(struct torpor *t, const char *id);
bool ops_run_alive(struct torpor *t, const struct op *op);
/* The end was written: remembers the record, tells who waits, frees the VM. */
void ops_run_done(struct op_run *r);
void ops_remember(struct torpor *t, json_t *record_owned);
void ops_keep(struct ops *ops, json_t *record);	/* in memory only; in the place of an earlier one of that id */
/* ops.log gets it, soon. */
void ops_append(struct torpor *t, const json_t *record);
bool ops_next_number(struct torpor *t, uint64_t *number, struct tp_error *err);
void ops_tell(struct torpor *t, const char *id, const json_t *record);
void ops_event(struct torpor *t, const json_t *record, bool progress);
json_t *ops_pending_record(const struct vm *vm, const struct pending_op *p);
struct op_run *ops_begin(struct vm *vm, const struct op_plan *plan, json_t *arguments, const char *id,
			 double timeout, const char *parent, struct tp_error *err);
/* vm NULL: beside the VMs; name: of its VM. */
void ops_dry_run(struct api_call *call, struct vm *vm, const char *name, const struct op_plan *plan,
		 json_t *arguments);
void ops_dry_done(struct op_run *r);
void ops_dry_drop(struct op_run *r);	/* its VM goes: answers */
void ops_unchanged_as(struct api_call *call, struct vm *vm, const struct op_plan *plan, const char *id);
/* What the doors of ops_queue.c and ops_beside.c share. */
json_t *ops_essential(const json_t *args);	/* new: what tells one operation's arguments from another's */
bool ops_take_id(struct api_call *call, char id[OPS_ID_MAX + 1], struct tp_error *err);
/* The same id again: the same operation, or Exists. True: answered. */
bool ops_answered_by_id(struct api_call *call, const char *vm, const struct op_plan *plan, const char *id,
			const json_t *arguments);
void ops_accepted(struct api_call *call, const char *id);	/* answers, or waits */
/* The end of one beside the VMs: from the loop it is remembered, told and freed. */
void ops_beside_ended(struct op_run *r);
bool ops_journal_failed(const struct vm *vm, struct tp_error *err);	/* names the file; false */
bool ops_wait_result(struct api_call *call, const char *id);	/* answered with the result or the error */

#endif
