/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * retain.h - Retention: kept images that are too many or too old are deleted
 *
 * spec.storage.retain {count?, age? in seconds} is about kept images of the VM: those that were
 * restored before. Never the state of a hibernated VM, never one that is in use.
 */
#ifndef RETAIN_H
#define RETAIN_H

struct torpor;
struct vm;

void retain_vm(struct vm *vm);		/* after each of its operations */
void retain_all(struct torpor *t);	/* at the start and hourly; copies, too */
/* A pool has come: unfinished copies go whose image went while they could not be reached. */
void retain_sweep_copies(struct torpor *t);
/* The image was moved or deleted, on whatever way: no unfinished copy of it stays. */
void retain_drop_copies(struct torpor *t, const char *image);

#endif
