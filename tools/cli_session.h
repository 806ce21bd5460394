/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_session.h - What most verbs begin with: the connection, the names that are meant, lists by pages */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "cli_conn.h"
#include "cli_verb.h"

/* Makes cli->conn if it is not there. CLI_DONE, or all is said. */
int cli_online(struct cli *cli);
/*
 * Online, and the answer of a command: *answer is the caller's, CLI_DONE. Else the error is said (and
 * printed where JSON is wanted; subject as in cli_error) and its status returned.
 */
int cli_ask(struct cli *cli, const char *command, json_t *arguments_owned, const char *subject,
	    json_t **answer);
/* The same of query-...s, page by page: key is the member by which they are sorted. */
int cli_ask_list(struct cli *cli, const char *command, json_t *arguments_owned, const char *key,
		 json_t **list);

/* @many: results are printed as a list even if there is but one name */
struct cli_names {
	char **names;
	size_t n;
	bool many;
};
/* The operands, or the VMs that -l and --all select. CLI_DONE, or all is said. */
int cli_names(struct cli *cli, struct cli_names *names);
void cli_names_free(struct cli_names *names);

/* What came of each name, for the exit status and the JSON that is printed. */
struct cli_tally {
	size_t done, failed;
	enum cli_status status;		/* of those that failed; CLI_FAILED if they differ */
	json_t *list;			/* [{"name", "return" or "error"}] */
};
/* value (borrowed, may be NULL): of status CLI_DONE what was returned, else the error object. */
void cli_tally_add(struct cli_tally *t, const char *name, enum cli_status status, const json_t *value);
/* What was returned, although the status is another: a dry run that tells of blockers. */
void cli_tally_returned(struct cli_tally *t, const char *name, enum cli_status status, const json_t *value);
/* Prints what JSON is wanted, frees the tally and returns the exit status of all. */
int cli_tally_end(const struct cli *cli, struct cli_tally *t, bool many);

#endif
