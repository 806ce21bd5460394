/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm_hooks.h - Hooks of a VM: in operations (prepare, before-run) and after QEMU's end */
#ifndef VM_HOOKS_H
#define VM_HOOKS_H

#include "engine/vm.h"

/* For op_vm "hook": answered by OP_VM; a VM without this hook succeeds at once. */
uint64_t vm_hook_run(struct vm *vm, struct op *op, const char *name, const char *reason, struct tp_error *err);
/* QEMU is gone: after-run (if the guest ran), then release, again with back-off until it exits 0. */
void vm_hooks_after(struct vm *vm);
/* At start: a release that is due from before. */
void vm_hooks_resume(struct vm *vm);
void vm_hooks_drop(struct vm *vm);	/* the VM or the engine goes; running ones are left to themselves */

#endif
