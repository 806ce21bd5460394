/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* defer.h - Answers that are known at once are given from the loop all the same */
#ifndef DEFER_H
#define DEFER_H

#include "base/tp_error.h"
#include "engine/vm.h"

/* vm_answer() at the next turn of the loop; data is taken. Dropped when the VM goes first. */
void defer_answer(struct vm *vm, struct op *op, uint64_t token, const char *action, json_t *data_owned,
		  const struct tp_error *err);
void defer_drop(struct vm *vm);

#endif
