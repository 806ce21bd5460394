/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_follow.h - Operations from their request to their end: several at once, with progress and Ctrl-C */
#ifndef CLI_FOLLOW_H
#define CLI_FOLLOW_H

#include <jansson.h>

#include "cli_session.h"

/*
 * Sends command with arguments (borrowed; each with its "name") for every name and follows the operations
 * to their end, or as --detach and --dry-run say. Ctrl-C cancels them. Returns an exit status, all said.
 */
int cli_operate(struct cli *cli, const char *command, const json_t *arguments,
		const struct cli_names *names);
/*
 * The same with ids of images as "image"; in_turn: one after the other. value: what --json prints of one
 * that succeeded (new reference), NULL: its record.
 */
int cli_operate_images(struct cli *cli, const char *command, const json_t *arguments,
		       const struct cli_names *ids, bool in_turn, json_t *(*value)(const json_t *record));
/* Follows operations that are there; Ctrl-C only ends the program. timeout 0: none. */
int cli_follow(struct cli *cli, const struct cli_names *ids, double timeout);

#endif
