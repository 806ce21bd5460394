/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_options.c - Options that several verbs have, and how verbs are found by their words */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "cli_verb.h"

static const struct cli_option socket_options[] = {
	{ "socket", 0, CLI_TEXT, "PATH", NULL, "torpord's socket (default: $TORPOR_SOCKET, else the usual place)" },
	{ .name = NULL },
};

static const struct cli_option json_options[] = {
	{ "json", 0, CLI_FLAG, NULL, NULL, "print the answer, or the error, as JSON" },
	{ "output", 'o', CLI_CHOICE, "json", NULL, "the same as --json" },
	{ .name = NULL },
};

static const struct cli_option quiet_options[] = {
	{ "quiet", 'q', CLI_FLAG, NULL, NULL, "print errors and warnings only" },
	{ .name = NULL },
};

static const struct cli_option list_options[] = {
	{ "json", 0, CLI_FLAG, NULL, NULL, "print the answer, or the error, as JSON" },
	{ "output", 'o', CLI_CHOICE, "json|name|wide", NULL, "json: as --json; name: names only; wide: more columns" },
	{ .name = NULL },
};

static const struct cli_option select_options[] = {
	{ "selector", 'l', CLI_TEXT, "SELECTOR", NULL, "all VMs with these labels: KEY=VALUE,KEY!=VALUE,KEY" },
	{ "all", 0, CLI_FLAG, NULL, NULL, "all VMs in a state for which the verb is meant" },
	{ .name = NULL },
};

static const struct cli_option operation_options[] = {
	{ "timeout", 0, CLI_DURATION, "TIME", "timeout", "turn back if it is not done by then (90, 90s, 5m, 1h30m)" },
	{ "busy", 0, CLI_CHOICE, "fail|queue|cancel", "busy", "what to do if another operation holds the VM (default fail)" },
	{ "dry-run", 0, CLI_FLAG, NULL, "dry-run", "only check: print what is in the way, the phases and an estimate" },
	{ "detach", 0, CLI_FLAG, NULL, NULL, "print the operation's id and do not wait for its end" },
	{ .name = NULL },
};

/* In the order of the bits of enum cli_set. */
const struct cli_option *const cli_sets[CLI_SETS] = {
	socket_options, json_options, quiet_options, list_options, select_options, operation_options,
};

const struct cli_option cli_always[] = {
	{ "help", 'h', CLI_FLAG, NULL, NULL, "print this" },
	{ "version", 'V', CLI_FLAG, NULL, NULL, "print the client's version" },
	{ .name = NULL },
};

void cli_each_option(const struct cli_verb *verb,
		     void (*fn)(const struct cli_option *option, void *arg), void *arg)
{
	const struct cli_option *o;

	for (o = verb->options; o && o->name; o++)
		fn(o, arg);
	for (unsigned set = CLI_SETS; set-- > 0; )
		for (o = cli_sets[set]; verb->sets & 1u << set && o->name; o++)
			fn(o, arg);
	for (o = cli_always; o->name; o++)
		fn(o, arg);
}

/* --- words --- */

static bool in_list(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p && *p; p += strcspn(p, " "), p += *p == ' ')
		if (strcspn(p, " ") == n && strncmp(p, word, n) == 0)
			return true;
	return false;
}

static bool noun_is(const char *noun, const char *word)
{
	size_t n = strlen(noun);

	return strncmp(noun, word, n) == 0 && (!word[n] || strcmp(word + n, "s") == 0);
}

bool cli_is_noun(const char *word)
{
	for (const struct cli_verb *v = cli_verbs; v->name; v++)
		if (v->noun && noun_is(v->noun, word))
			return true;
	return false;
}

static const struct cli_verb *find_plain(const char *word)
{
	for (const struct cli_verb *v = cli_verbs; v->name; v++)
		if (!v->noun && (strcmp(v->name, word) == 0 || in_list(v->aliases, word)))
			return v;
	return NULL;
}

static const struct cli_verb *find_of_noun(const char *noun, const char *word)
{
	for (const struct cli_verb *v = cli_verbs; v->name; v++)
		if (v->noun && noun_is(v->noun, noun) && (strcmp(v->name, word) == 0 || in_list(v->aliases, word)))
			return v;
	return NULL;
}

const struct cli_verb *cli_find(char *const words[], size_t n, size_t *taken)
{
	const struct cli_verb *v = n > 1 ? find_of_noun(words[0], words[1]) : NULL;

	*taken = 2;
	if (v || n == 0)
		return v;
	*taken = 1;
	v = find_plain(words[0]);
	/* A noun alone lists. */
	return v || n > 1 ? v : find_of_noun(words[0], "ls");
}

const char *cli_verb_name(const struct cli_verb *verb, char *buf)
{
	snprintf(buf, CLI_VERB_SIZE, "%s%s%s", verb->noun ? verb->noun : "", verb->noun ? " " : "", verb->name);
	return buf;
}
