/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ops.h - The engine's operations: accepted, run through the real ports, remembered
 *
 * One operation holds a VM (vm->op). ops_submit does what every operation verb
 * shares: operation-id, busy, dry-run, timeout, wait. Ended ones stay as records:
 * the last 5 of each VM, 1000 in all, failed ones 7 days.
 */
#ifndef OPS_H
#define OPS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "engine/api.h"
#include "engine/op.h"

struct ops;
struct vm;

struct ops *ops_new(struct torpor *t, struct tp_error *err);
void ops_abandon(struct ops *ops);	/* running ones are left to recovery */
void ops_free(struct ops *ops);
uint64_t ops_token(struct torpor *t);

/*
 * Accepts an operation for this call, which is answered here (now or, with wait, at its end).
 * timeout: seconds; 0: none. The verb's row of the state table is checked here; a goal
 * that already holds succeeds with {"unchanged": true}.
 */
void ops_submit(struct api_call *call, struct vm *vm, const struct op_plan *plan, double timeout);
/* Checks that a synchronous verb may touch this VM now; Busy with data otherwise. */
bool ops_free_for(struct vm *vm, struct tp_error *err, json_t **data);
json_t *ops_busy_data(const struct vm *vm);
/* Recovery: the operation of a journal; not yet going on. */
struct op *ops_restore(struct vm *vm, const struct op_plan *plan, const json_t *records,
		       struct tp_error *err);
/* What the world looks like before: run state, paused-by; for the begin record. */
json_t *ops_was(const struct vm *vm);

struct op *ops_find_running(struct torpor *t, const char *id);
json_t *ops_record(struct torpor *t, const char *id);	/* running or remembered; new, or NULL */
/* What became known after its end: remembered, written, told in place of the former record. */
void ops_amend(struct torpor *t, json_t *record);
/* The same for one that is shown as running still: not written. */
void ops_progress(struct torpor *t, json_t *record);
json_t *ops_shown(const struct vm *vm);		/* the record of what holds the VM, or null; new */
/* Filter as of query-operations; newest first; new array. */
json_t *ops_query(struct torpor *t, const json_t *args);
/* Calls done (once) when the operation has ended or `limit` seconds went by. */
bool ops_wait(struct api_call *call, const char *id, double limit);
bool ops_pending_cancel(struct torpor *t, const char *id);	/* one that waits for its VM */
/* Gives the VM to the next one in its queue. */
void ops_next(struct vm *vm);
/* Cancels (before the commit) everything that runs; returns how many operations hold VMs. */
size_t ops_close(struct torpor *t);
size_t ops_running(const struct torpor *t);
void ops_forget_vm(struct vm *vm);	/* undefined: dry runs and what waits for it end */
void ops_queue_drop(struct vm *vm, const char *class_, const char *why);
double ops_timeout(const struct api_call *call, double otherwise);	/* the command's, if it has one */
double ops_default_timeout(const struct vm *vm);	/* 120 s + 15 s per GiB of RAM */
/* The spec's for hibernation, else the same but at slow compression levels more: three times the estimate. */
double ops_save_timeout(const struct vm *vm, const json_t *args);

/* The command's, else the spec's; with on-timeout "quit" the operation itself has this and a bit more. */
double powerdown_timeout(const struct vm *vm, const json_t *args);
double powerdown_limit(const struct vm *vm, const json_t *args);

/*
 * The same for one that runs beside the VMs: it holds none (vm: a name for its record, not looked up)
 * and has no journal. The engine's orderly end cancels it; of one that is killed nothing is left.
 */
void ops_submit_beside(struct api_call *call, const char *vm, const struct op_plan *plan, double timeout);
/* An operation beside the VMs works with this image: its id; NULL: none does. */
const char *ops_beside_image(struct torpor *t, const char *image);
/* Their image was deleted or is elsewhere ("was deleted"): they end. */
void ops_beside_gone(struct torpor *t, const char *image, const char *why);

extern const struct op_plan plan_start, plan_powerdown, plan_hibernate, plan_restore, plan_image_move;
extern const struct op_plan plan_image_verify;		/* beside the VMs */
const struct op_plan *ops_plan(const char *kind);

#endif
