/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * prefetch.h - A VM whose guest runs while its memory still comes from its image
 *
 * From the commit of a lazy restore until all memory is in, a VM has a prefetch: the page server, its
 * image, what is left. It belongs to the VM, not to the operation, and outlives the engine: state.json
 * has it as "prefetch": {image: {id, pool, vm}, keep, operation, began (us), until-whole, bandwidth,
 * ran, stopped (by us, for damage), server: {pid, start, boot}}.
 */
#ifndef ENGINE_PREFETCH_H
#define ENGINE_PREFETCH_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/op.h"
#include "engine/vm.h"

struct mover;

/* The restore hands its page server over; rest "prefetch" is there already. */
void prefetch_take(struct vm *vm, struct mover *server_owned);
/* After a restart of the engine: QEMU was found, and the rest says that its memory is not all in. */
void prefetch_adopt(struct vm *vm);
/* QEMU has ended: the server is stopped, the rest forgets it. */
void prefetch_over(struct vm *vm);
/* The engine ends, or the VM is forgotten: nobody watches; the server goes on. */
void prefetch_forget(struct vm *vm);

/* Waits in postcopy-paused for a page server: state restoring/postcopy-paused. */
bool prefetch_away(const struct vm *vm);
bool prefetch_uses(const struct vm *vm, const char *image);
json_t *prefetch_describe(const struct vm *vm);		/* new: query-vm's member, or null */
/* QEMU's MIGRATION event; RESUME: the guest begins, or goes on. */
void prefetch_migration_is(struct vm *vm, const char *status);
void prefetch_resumed(struct vm *vm);
/* The guest has run: its image is nobody's any more once all is in. False: no prefetch, nothing is done. */
bool prefetch_ran(struct vm *vm, bool keep);

/*
 * A step's run: waits until all memory is in, without the bandwidth limit meanwhile. undo: the limit
 * is as it was.
 */
enum op_verdict prefetch_whole(struct op *op, const struct op_event *ev);
enum op_verdict prefetch_whole_undo(struct op *op, const struct op_event *ev);

/*
 * The restore's record at its end. until "whole": it is shown as running, in Prefetching, and ends
 * when all is in. Later: prefetch_op_ended() once the VM is free and the record is remembered.
 */
void prefetch_shape_record(const struct vm *vm, json_t *record);
void prefetch_op_ended(struct vm *vm);

#endif
