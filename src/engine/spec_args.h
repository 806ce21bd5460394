/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* spec_args.h - QEMU options that torpor owns or that would make a VM impossible to save */
#ifndef SPEC_ARGS_H
#define SPEC_ARGS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

bool spec_args_check(const json_t *args, char argument[64], struct tp_error *err);

/* {word} must be a placeholder that torpor knows; {{ and JSON's braces stand for themselves. */
bool spec_placeholders_check(const char *member, const char *text, char argument[64], struct tp_error *err);

#endif
