/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * spec.h - What may stand in a VM's spec, checked when it is defined
 */
#ifndef SPEC_H
#define SPEC_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

/*
 * Checks all of it (interface.md 3): unknown members, types, ranges, refused QEMU options, disks,
 * socket path lengths (run_dir: where this VM's sockets will be). *argument names the member.
 */
bool spec_check(const json_t *spec, const char *run_dir, char argument[64], struct tp_error *err);
/* Spec members with their defaults, by path ("hibernate.level"); new reference or NULL. */
json_t *spec_get(const json_t *spec, const char *path);

#endif
