/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* spec_memory.h - How much memory a machine has, as far as its QEMU arguments say */
#ifndef SPEC_MEMORY_H
#define SPEC_MEMORY_H

#include <jansson.h>
#include <stdint.h>

struct spec_memory {
	uint64_t ram;		/* bytes; -m, else QEMU's default */
	uint64_t plugged;	/* of memory backends besides: DIMMs and what else has one from the start */
};

/* Later memory up to maxmem is not in it: it is known once it was plugged. */
void spec_memory(const json_t *args, struct spec_memory *m);

#endif
