/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_verb.h - The command-line client: its verbs as a table, and what each of them gets
 *
 * One row a verb says how it is called: cli_args.c parses by it, cli_help.c prints it, cli_completion.c
 * completes by it, and a test holds the man page against it.
 */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/tp_error.h"

/* Exit statuses; docs/man/torpor.1 */
enum cli_status {
	CLI_DONE = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_UNREACHABLE = 3,
	CLI_TIMED_OUT = 4,	/* or cancelled: rolled back */
	CLI_AGAIN = 5,		/* Busy, Blocked, Draining, Conflict */
	CLI_PARTIAL = 6,
	CLI_STUCK = 7,		/* or lost: needs a person */
};

enum cli_kind {
	CLI_FLAG,
	CLI_TEXT,
	CLI_INT,	/* value is "N", or "1..19": its limits */
	CLI_DURATION,
	CLI_SIZE,
	CLI_CHOICE,	/* value is "this|that" */
	CLI_CHOICES,	/* the same, several: separated by commas, or each time it is given; a list */
	CLI_LIST,	/* a text each time it is given */
};

/*
 * @value: what stands for the value in texts; of CLI_CHOICE and CLI_CHOICES the choices
 * @member: the wire's argument that it becomes; NULL: the verb looks at it
 */
struct cli_option {
	const char *name;
	char letter;
	enum cli_kind kind;
	const char *value, *member, *help;
};

/* Sets of options that several verbs have. */
enum cli_set {
	CLI_S_SOCKET = 1,	/* talks to torpord */
	CLI_S_JSON = 2,		/* --json, -o json */
	CLI_S_QUIET = 4,
	CLI_S_LIST = 8,		/* in place of CLI_S_JSON: with -o name|wide */
	CLI_S_SELECT = 16,	/* -l, --all */
	CLI_S_OPERATION = 32,	/* --timeout, --busy, --detach, --dry-run */
};
#define CLI_ONLINE (CLI_S_SOCKET | CLI_S_JSON)

/* What operands name: for completion, and whether several names may be given. */
enum cli_operand { CLI_NOTHING, CLI_VM, CLI_OPERATION, CLI_IMAGE, CLI_IMAGE_FILE, CLI_POOL, CLI_FILE, CLI_VERB,
		   CLI_SHELL };

struct cli;

/*
 * @noun: "image" of `image ls`, or NULL; its plural means the same
 * @aliases: further names, separated by blanks, or NULL
 * @operands: as in the synopsis
 * @min, @max: how many operands (max 0: none; CLI_MANY); with a selection there need be none
 * @after: what stands after "--" in the synopsis, or NULL
 * @command: the wire's command that it is, or NULL
 * @states: of the VMs that --all and -l mean, separated by blanks; NULL: any
 * @done: a VM's new state in words, for the line that says so; NULL: the record's
 */
struct cli_verb {
	const char *noun, *name, *aliases;
	const char *operands, *after, *summary, *text;
	unsigned min, max, sets;
	enum cli_operand names;
	const char *command, *states, *done;
	const struct cli_option *options;	/* ended by a row without name; or NULL */
	int (*run)(struct cli *cli);		/* returns an enum cli_status */
};
#define CLI_MANY 10000

enum cli_format { CLI_F_TEXT, CLI_F_JSON, CLI_F_NAME, CLI_F_WIDE };

struct cli_conn;

/*
 * @options: what was given, by name: true, a text, a number, a list of texts
 * @operands, @after: borrowed from argv
 * @dashes: there was a "--"
 * @by_noun: the verb was left out, which lists
 * @conn: made by cli_online()
 */
struct cli {
	const struct cli_verb *verb;
	json_t *options;
	char *operands[CLI_MANY + 1];
	size_t noperands;
	char **after;
	size_t nafter;
	bool dashes, quiet, by_noun;
	enum cli_format format;
	struct cli_conn *conn;
};

/* cli_verbs.c: ended by a row without name. */
extern const struct cli_verb cli_verbs[];
/* cli_options.c: the options of each set, `set` from 0 to CLI_SETS - 1 for bit 1 << set. */
#define CLI_SETS 6
extern const struct cli_option *const cli_sets[CLI_SETS];
extern const struct cli_option cli_always[];	/* --help, --version */

/* The verb that words[0..n) begin with and how many words it took; NULL: there is none. */
const struct cli_verb *cli_find(char *const words[], size_t n, size_t *taken);
bool cli_is_noun(const char *word);	/* also a plural */
/* "image ls" or "ls" into buf[CLI_VERB_SIZE]; returns buf. */
#define CLI_VERB_SIZE 32
const char *cli_verb_name(const struct cli_verb *verb, char *buf);
/* Calls fn for each option of a verb, its own first, the always there last. */
void cli_each_option(const struct cli_verb *verb,
		     void (*fn)(const struct cli_option *option, void *arg), void *arg);

/* cli_args.c */
/* -1: parsed, cli is to be freed; else an exit status, all said. */
int cli_parse(struct cli *cli, int argc, char *argv[]);
void cli_free(struct cli *cli);
/* One line to stderr; returns CLI_USAGE. */
/* New string: paths of the command line may be relative, torpord's are absolute. */
json_t *cli_absolute(const char *path);
int cli_usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool cli_flag(const struct cli *cli, const char *option);
const char *cli_text(const struct cli *cli, const char *option);	/* NULL: not given */
/* Whether the wire's argument `member` came from the command line: an option, or the operands. */
bool cli_gave(const struct cli *cli, const char *member);
/* A new object: each option that has a member, and "name": name if it is not NULL. */
json_t *cli_arguments(const struct cli *cli, const char *name);

/* cli_help.c */
int cli_help_all(void);
int cli_help_noun(const char *noun);
int cli_help_verb(const struct cli_verb *verb);
/* "torpor VERB [OPTION]... OPERANDS" into buf[CLI_SYNOPSIS_SIZE]; returns buf. */
#define CLI_SYNOPSIS_SIZE 256
const char *cli_synopsis(const struct cli_verb *verb, char *buf);
/* "-o, --output json|name|wide" into buf[CLI_OPTION_SIZE]; returns buf. */
#define CLI_OPTION_SIZE 160
const char *cli_option_text(const struct cli_option *option, char *buf);

/* What the verbs do: cmd_*.c. */
int cmd_define(struct cli *cli);
int cmd_run(struct cli *cli);
int cmd_set(struct cli *cli);
int cmd_sync(struct cli *cli);		/* a command without further ado, for each name */
int cmd_operation(struct cli *cli);	/* an operation for each name, with its progress */
int cmd_stop(struct cli *cli);
int cmd_ls(struct cli *cli);
int cmd_show(struct cli *cli);
int cmd_check(struct cli *cli);
int cmd_capacity(struct cli *cli);
int cmd_wait(struct cli *cli);
int cmd_events(struct cli *cli);
int cmd_log(struct cli *cli);
int cmd_console(struct cli *cli);
int cmd_ops(struct cli *cli);
int cmd_op_show(struct cli *cli);
int cmd_op_wait(struct cli *cli);
int cmd_op_sync(struct cli *cli);
int cmd_image_ls(struct cli *cli);
int cmd_image_rm(struct cli *cli);
int cmd_image_mv(struct cli *cli);
int cmd_image_info(struct cli *cli);
int cmd_image_verify(struct cli *cli);
int cmd_image_cat(struct cli *cli);
int cmd_image_map(struct cli *cli);
int cmd_pool_ls(struct cli *cli);
int cmd_pool_define(struct cli *cli);
int cmd_df(struct cli *cli);
int cmd_prune(struct cli *cli);
int cmd_host(struct cli *cli);
int cmd_monitor(struct cli *cli);
int cmd_raw(struct cli *cli);
int cmd_completion(struct cli *cli);
int cmd_version(struct cli *cli);
int cmd_help(struct cli *cli);

#endif
