/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm_condition.h - A condition of a VM that is found out and kept: its transitions are told */
#ifndef VM_CONDITION_H
#define VM_CONDITION_H

#include <jansson.h>
#include <stdint.h>

#include "base/tp_error.h"

struct vm;

struct vm_condition {
	const char *status, *reason;	/* literals; NULL: not known yet */
	char message[TP_TEXT_SIZE];
	uint64_t since_us;		/* when the status changed */
};

/* Keeps it; a change of status or reason is logged and told (CONDITION). status, reason: literals. */
void vm_condition_set(struct vm *vm, struct vm_condition *c, const char *type, const char *status,
		      const char *reason, const char *message);
/* As query-vm has it; new. Not known yet: Unknown, Pending. */
json_t *vm_condition_json(const struct vm *vm, const struct vm_condition *c, const char *type);

#endif
