/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_help.c - Help texts, made from the table of verbs */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "cli_out.h"
#include "cli_verb.h"

#define OPTION_WIDTH 34	/* columns in which an option stands beside its help */

const char *cli_synopsis(const struct cli_verb *verb, char *buf)
{
	char name[CLI_VERB_SIZE];

	snprintf(buf, CLI_SYNOPSIS_SIZE, "torpor %s%s%s%s%s%s%s", cli_verb_name(verb, name),
		 verb->options || verb->sets ? " [OPTION]..." : "", verb->operands ? " " : "",
		 verb->operands ? verb->operands : "", verb->after ? " [-- " : "", verb->after ? verb->after : "",
		 verb->after ? "]" : "");
	return buf;
}

const char *cli_option_text(const struct cli_option *o, char *buf)
{
	char letter[8] = "";

	if (o->letter)
		snprintf(letter, sizeof(letter), "-%c, ", o->letter);
	snprintf(buf, CLI_OPTION_SIZE, "%s--%s%s%s", letter, o->name, o->kind == CLI_FLAG ? "" : " ",
		 o->kind == CLI_FLAG ? "" : o->value);
	return buf;
}

static void print_option(const struct cli_option *o, void *arg)
{
	char text[CLI_OPTION_SIZE];
	int width = OPTION_WIDTH;

	(void)arg;
	cli_option_text(o, text);
	if (strlen(text) > OPTION_WIDTH)
		printf("  %s\n  %*s %s\n", text, width, "", o->help);
	else
		printf("  %-*s %s\n", width, text, o->help);
}

int cli_help_verb(const struct cli_verb *verb)
{
	char text[CLI_SYNOPSIS_SIZE];

	printf("usage: %s\n\n%s\n", cli_synopsis(verb, text), verb->summary);
	if (verb->text)
		printf("%s\n", verb->text);
	if (verb->aliases)
		printf("Also: %s\n", verb->aliases);
	puts("");
	cli_each_option(verb, print_option, NULL);
	return cli_flush();
}

static void print_summary(const struct cli_verb *v)
{
	char name[CLI_VERB_SIZE];

	printf("  %-14s %s\n", cli_verb_name(v, name), v->summary);
}

/* `ops` of "op": the noun alone lists. */
static bool lists(const struct cli_verb *v, const char *noun)
{
	return !v->noun && v->aliases && strcmp(v->aliases, noun) == 0;
}

int cli_help_noun(const char *noun)
{
	printf("usage: torpor %s VERB [OPTION]... [OPERAND]...\n\n", noun);
	for (const struct cli_verb *v = cli_verbs; v->name; v++)
		if ((v->noun && strncmp(v->noun, noun, strlen(v->noun)) == 0) || lists(v, noun))
			print_summary(v);
	puts("\ntorpor NOUN VERB --help tells more.");
	return cli_flush();
}

int cli_help_all(void)
{
	puts("usage: torpor [--socket PATH] [--json] VERB [OPTION]... [OPERAND]...\n\n"
	     "Hibernates and restores QEMU virtual machines; talks to torpord over its socket.\n");
	for (const struct cli_verb *v = cli_verbs; v->name; v++)
		print_summary(v);
	puts("\ntorpor VERB --help tells more. Exit status: 0 done, 1 failed, 2 usage, 3 torpord not reachable,\n"
	     "4 timed out or cancelled, 5 try again, 6 partial, 7 stuck or lost: needs a person.");
	return cli_flush();
}

int cmd_help(struct cli *cli)
{
	const struct cli_verb *verb;
	size_t taken;

	if (cli->noperands == 0)
		return cli_help_all();
	verb = cli_find(cli->operands, cli->noperands, &taken);
	/* "op" is a noun, and `ops` by another name; "ops" is that verb, and the noun's plural. */
	if (cli->noperands == 1 && cli_is_noun(cli->operands[0]) &&
	    (!verb || verb->noun || strcmp(verb->name, cli->operands[0]) != 0))
		return cli_help_noun(cli->operands[0]);
	if (!verb || taken < cli->noperands)
		return cli_usage(NULL, "no verb \"%.40s%s%.40s\"", cli->operands[0], cli->noperands > 1 ? " " : "",
				 cli->noperands > 1 ? cli->operands[1] : "");
	return cli_help_verb(verb);
}
