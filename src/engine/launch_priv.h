/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* launch_priv.h - Shared by launch.c and launch_argv.c */
#ifndef LAUNCH_PRIV_H
#define LAUNCH_PRIV_H

#include "engine/launch.h"

/* The command line. numbers: descriptors by name as QEMU sees them. New; NULL with err. */
json_t *launch_argv(struct vm *vm, const struct launch_options *o, const json_t *numbers, struct tp_error *err);
/* Appends a list of strings, placeholders replaced. */
bool launch_add_list(json_t *argv, const struct vm *vm, const json_t *list, const json_t *fds, struct tp_error *err);
/* Whether this channel ("agent", "console") is "auto". */
bool launch_is_auto(const struct vm *vm, const char *what);

#endif
