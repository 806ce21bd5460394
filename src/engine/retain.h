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
/* Hourly; also unfinished copies whose image is no more. */
void retain_all(struct torpor *t);
/* The image was moved or deleted: no unfinished copy of it stays. */
void retain_drop_copies(struct torpor *t, const char *image);

#endif
