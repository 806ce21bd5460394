/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_dry.h - What a dry run found, for people */
#ifndef CLI_DRY_H
#define CLI_DRY_H

#include <jansson.h>

#include "cli_verb.h"

/* "  label       text" lines: what it would write, how long it would take, its phases; warnings. */
void cli_say_dry(const json_t *dry);
/* "  blocker     Class: desc" for each. */
void cli_say_blockers(const json_t *dry);
/* "lazy restore  yes (why)", by a CapacityLazy; nothing where that is NULL. */
void cli_say_lazy(const json_t *lazy);
/* CLI_DONE, or what the first blocker's class stands for. */
enum cli_status cli_dry_status(const json_t *dry);

#endif
