/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * restorable.h - Condition Restorable: would a restore accept the image of a hibernated VM?
 *
 * What the first step of a restore looks at is looked at here (restore_look), by the pool's worker:
 * header, footer, manifest, the last verification, the disks; and whether its QEMU is there. Asked
 * for at the start, after each operation on the VM, when an image or a pool changes, and hourly.
 */
#ifndef RESTORABLE_H
#define RESTORABLE_H

#include <jansson.h>

struct job;
struct torpor;
struct tp_error;
struct vm;

void restorable_check(struct vm *vm);		/* soon; once more if one is on its way */
void restorable_check_all(struct torpor *t);
void restorable_image_changed(struct torpor *t, const char *image);	/* VMs whose state it is */
/* A restore to which nothing was allowed has looked: what it says, the condition says, too. */
void restorable_seen(struct vm *vm, const struct job *look, const struct tp_error *err);
json_t *restorable_condition(const struct vm *vm);	/* new */
void restorable_free(struct vm *vm);

#endif
