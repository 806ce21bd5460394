/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* recover.h - At start: what a former engine left, VM by VM (journal.md 4) */
#ifndef RECOVER_H
#define RECOVER_H

#include "engine/vm.h"

/*
 * After vm_load: reads the journal, takes up or gives up QEMU, and lets the runner go on. Where the
 * world cannot be looked at now, vm->undecided is set, and this is to be called again later.
 */
void recover_vm(struct vm *vm);
/* A rest that says "running" where there is no QEMU any more: what the VM is now. */
void recover_gone(struct vm *vm);
/* The monitor answers, or the process is gone, or was silent for RECOVER_SILENCE seconds. */
void recover_settled(struct vm *vm);
#define RECOVER_SILENCE 10.0

#endif
