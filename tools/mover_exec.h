/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_exec.h - Jobs launch, hook and tool: this process becomes another program */
#ifndef MOVER_EXEC_H
#define MOVER_EXEC_H

#include <stdbool.h>

#include "mover_request.h"

/* Does not return if it succeeds. Descriptors of r may have moved or gone afterwards. */
bool mover_exec(struct mover_request *r, struct tp_error *err);

/* Moves this process into a cgroup (v1 or v2) by its folder. */
bool mover_join_cgroup(const char *folder, struct tp_error *err);

#endif
