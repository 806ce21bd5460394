/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * room.h - How large a VM's image can be at most, and what a pool is asked for it
 */
#ifndef ROOM_H
#define ROOM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/vm.h"
#include "storage/pool.h"

/* Added to what the arguments of a VM say, where no QEMU of it was asked: video memory, ROMs, firmware. */
#define ROOM_MARGIN (64ull << 20)

struct room_size {
	uint64_t ram;		/* bytes of all RAM blocks */
	uint64_t bound;		/* of the image (image_bound.h) */
	bool exact;		/* as QEMU said; else from the spec, with ROOM_MARGIN */
};

/* False: it is larger than can be counted. */
bool room_size(const struct vm *vm, struct room_size *size);
/* QEMU's "info ramblock": the used lengths' sum. False: nothing in it is a RAM block. */
bool room_ramblocks(const char *text, uint64_t *ram, unsigned *blocks);
/* The first block whose host pages are not of this size, and theirs. */
bool room_other_pages(const char *text, uint64_t page, char *block, size_t size, uint64_t *bytes);
/* QEMU said so just now; kept for as long as the VM has this spec. */
void room_ram_is(struct vm *vm, uint64_t ram, unsigned blocks);

/*
 * What a worker of that pool needs for a pool_demand: {"vm", "bytes", "quota", "elsewhere"}; new.
 * elsewhere is as of the last look at the other pools; the VM is held or at rest meanwhile.
 */
json_t *room_demand(const struct vm *vm, const char *pool, uint64_t bytes);
struct pool_demand room_demand_of(const json_t *in);	/* borrows */
/* data of InsufficientSpace, or NULL without a shortage; new */
json_t *room_shortage(const struct pool_shortage *shortage, const char *pool);
const char *room_pool(const struct vm *vm);	/* the spec's */

#endif
