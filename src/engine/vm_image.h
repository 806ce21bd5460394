/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm_image.h - The image of a VM outside operations: given back, marked as run, thrown away */
#ifndef VM_IMAGE_H
#define VM_IMAGE_H

#include "engine/vm.h"

/*
 * A VM that was restored and stayed paused lost its QEMU before the guest ran: hibernated again.
 * retake: its disks are fingerprinted anew. False: there is no such image, or a committed hibernation
 * has superseded it. Asynchronous; the rest is set at once, the mark on the disk is taken away by the
 * worker. Until that has worked the rest has "give-back", and ..._again() tries it where nothing works
 * with the VM: at the start and every now and then.
 */
bool vm_image_give_back(struct vm *vm, bool retake);
/* The same for what vm_image_discard() had begun when the daemon ended. */
void vm_image_again(struct vm *vm);
const char *vm_image_id(const struct vm *vm);		/* the VM's own: its state, or what it was restored from */
/*
 * The pool in which its own image is to be found. People may have moved it by hand: only who names the
 * image gets that, else NotFound, which says where it is.
 */
const char *vm_image_pool(const struct vm *vm, bool named, struct tp_error *err);
const char *vm_image_worked_with(const struct vm *vm);	/* by the operation that holds the VM. Both: NULL: none */
/* Takes the image and all that is said about it out of the rest. */
void vm_image_forget(struct vm *vm);
/* Restored and never run: "ran" must be on the platter before the first cont. */
bool vm_image_must_mark(const struct vm *vm);
/*
 * Writes "ran" (mark and state.json), then done (from the loop), err NULL or why not; Busy while
 * another one does. After the cont:
 * vm_image_ran() throws the image away unless it is kept; a refused cont: vm_image_unmark().
 */
bool vm_image_mark(struct vm *vm, void (*done)(void *arg, const struct tp_error *err), void *arg,
		   struct tp_error *err);
void vm_image_ran(struct vm *vm);
void vm_image_drop(struct vm *vm, json_t *image_owned);	/* {id, vm, pool}, soon; a failure is only logged */
void vm_image_unmark(struct vm *vm);
/*
 * The VM is no longer hibernated, durably, and then its image is removed; done as above. On failure it
 * is hibernated as before. let_go: only the first half, the image is about to be removed by others.
 */
bool vm_image_discard(struct vm *vm, void (*done)(void *arg, const struct tp_error *err), void *arg,
		      struct tp_error *err);
bool vm_image_let_go(struct vm *vm, void (*done)(void *arg, const struct tp_error *err), void *arg,
		     struct tp_error *err);

#endif
