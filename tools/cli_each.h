/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_each.h - The same command for several names at once */
#ifndef CLI_EACH_H
#define CLI_EACH_H

#include <jansson.h>

#include "cli_session.h"

/* *answer: {"return": ...} or {"error": ...}; borrowed. Called in the order of the names. */
typedef void (*cli_each_fn)(struct cli *cli, const char *name, const json_t *answer, void *arg);
/*
 * Sends command with arguments (borrowed) and each name as the argument `member`. fn is called for each
 * once all have answered. CLI_DONE, or the connection is lost and all is said.
 */
int cli_each(struct cli *cli, const char *command, const json_t *arguments, const char *member,
	     const struct cli_names *names, cli_each_fn fn, void *arg);
/*
 * The verb's command for each of its operands; shows what is returned, with an empty line between, or
 * prints JSON. Returns the verb's status.
 */
int cli_each_show(struct cli *cli, const char *member, void (*show)(struct cli *cli, const json_t *value));

#endif
