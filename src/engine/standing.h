/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * standing.h - Room that is held for a VM's next image from its definition on (storage.standing)
 *
 * Wanted room is compared with what there is whenever either may have changed, and once a minute; the
 * pools' workers do the work (pool_standing.c). The outcome is the condition StorageReserved.
 */
#ifndef STANDING_H
#define STANDING_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/vm.h"

struct standing_watch;			/* of an engine */

struct standing_watch *standing_new(struct torpor *t);
void standing_free(struct standing_watch *w);
/*
 * Looks at all VMs from the loop, soon. pools: also at what stands in the pools, of which what no VM
 * wants there is given back: at the start, when a pool came back, when a spec changed or a VM went.
 */
void standing_soon(struct torpor *t, bool pools);
/* QEMU's memory may have changed: it is asked. */
void standing_ask(struct vm *vm);
void standing_ask_all(struct torpor *t);
/* VM's spec wants room in that pool. */
bool standing_wanted(const struct vm *vm, const char *pool);
uint64_t standing_held(const struct vm *vm);	/* bytes, as last seen; 0: none */
uint64_t standing_elsewhere(const struct vm *vm, const char *pool);	/* of it, in other pools */
/* The condition as query-vm has it, or NULL: the spec does not ask for room; new. */
json_t *standing_condition(const struct vm *vm);
void standing_forget(struct vm *vm);		/* the VM is freed */

#endif
