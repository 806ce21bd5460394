/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_sandbox.h - What a data job gives up before it reads a byte of image or stream
 *
 * Afterwards the process has its open descriptors and threads, and nothing
 * else: no file, socket, program or other process can be reached. The forbidden
 * includes what destructors of sanitizers do, so it ends by _exit().
 */
#ifndef MOVER_SANDBOX_H
#define MOVER_SANDBOX_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

enum mover_priority {
	MOVER_GUEST,		/* a running guest stands still for it: as the engine's own */
	MOVER_URGENT,		/* a VM or a person waits for it */
	MOVER_BACKGROUND,	/* nobody does: {"background": true} */
};

/* Nice value and I/O priority. Never fails: a kernel may refuse either. */
void mover_priority_set(enum mover_priority p);

/*
 * The stages, in this order; each is irrevocable and inherited by threads made later. To be called
 * by a process with one thread.
 */
bool mover_sandbox_privileges(struct tp_error *err);	/* no new ones; no capabilities; no dumps */
/*
 * No path, no TCP port, no abstract socket, no signal to others, as far as this kernel's landlock
 * goes. *abi: its version, 0 if it has none (the system call filter still stands).
 */
bool mover_sandbox_landlock(int *abi, struct tp_error *err);
bool mover_sandbox_seccomp(struct tp_error *err);	/* mover_seccomp.c */

/* All stages; a new array of their names for the hello. NULL: failed. */
json_t *mover_sandbox_enter(struct tp_error *err);

#endif
