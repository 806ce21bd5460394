/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_args.c - The command line, parsed by the table of verbs
 *
 * Options may stand anywhere before "--": before the verb those that all verbs with torpord have, which are
 * checked again once the verb is known. Values are converted here, so that a mistake is told before anything
 * is asked of torpord.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_out.h"
#include "cli_verb.h"

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
	tp_autofree char *text = NULL, *clean = NULL;
	char name[CLI_VERB_SIZE];
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		abort();
	va_end(ap);
	clean = cli_clean(text);
	fprintf(stderr, "torpor: %s; see torpor %s%s--help\n", clean,
		cli && cli->verb ? cli_verb_name(cli->verb, name) : "", cli && cli->verb ? " " : "");
	return CLI_USAGE;
}

bool cli_flag(const struct cli *cli, const char *option)
{
	return tp_json_bool(cli->options, option, false);
}

const char *cli_text(const struct cli *cli, const char *option)
{
	return tp_json_str(cli->options, option);
}

void cli_free(struct cli *cli)
{
	json_decref(cli->options);
	cli->options = NULL;
}

/* --- options --- */

struct wanted {
	const char *name;	/* or NULL: by letter */
	size_t n;
	char letter;
	const struct cli_option *found;
};

static void match(const struct cli_option *o, void *arg)
{
	struct wanted *w = arg;

	if (!w->found && (w->name ? strlen(o->name) == w->n && strncmp(o->name, w->name, w->n) == 0 :
			  o->letter == w->letter))
		w->found = o;
}

/* Before the verb is known: what verbs have in common. */
static const struct cli_verb before_verb = { .name = "", .sets = CLI_S_SOCKET | CLI_S_LIST | CLI_S_QUIET };

/* Of "1..19"; what is no range, as "N", has no limits. */
static bool in_range(const char *range, long long n)
{
	char *end;
	long long min = strtoll(range, &end, 10);

	return strncmp(end, "..", 2) != 0 || (n >= min && n <= strtoll(end + 2, NULL, 10));
}

static bool take_int(json_t *options, const struct cli_option *o, const char *text)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 10);
	return !errno && *text && !*end && in_range(o->value, n) &&
	       tp_json_set(options, o->name, json_integer(n));
}

static bool take_duration(json_t *options, const struct cli_option *o, const char *text)
{
	double seconds;

	return tp_duration_parse(text, &seconds) && tp_json_set(options, o->name, json_real(seconds));
}

static bool take_size(json_t *options, const struct cli_option *o, const char *text)
{
	uint64_t bytes;

	return tp_size_parse(text, &bytes) && bytes <= INT64_MAX &&
	       tp_json_set(options, o->name, json_integer((json_int_t)bytes));
}

static bool is_choice(const char *choices, const char *text)
{
	size_t n = strlen(text);

	for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|')
		if (strcspn(p, "|") == n && strncmp(p, text, n) == 0)
			return true;
	return false;
}

static bool take_list(json_t *options, const struct cli_option *o, const char *text)
{
	json_t *list = json_object_get(options, o->name), *item = json_string(text);

	if (!list) {
		list = json_array();
		tp_json_set(options, o->name, list);
	}
	return item && json_array_append_new(list, item) == 0;
}

static bool take_choices(json_t *options, const struct cli_option *o, const char *text)
{
	tp_autofree char *words = strdup(text);
	char *rest = words, *word;

	while ((word = strsep(&rest, ",")))
		if (!is_choice(o->value, word) || !take_list(options, o, word))
			return false;
	return words != NULL;
}

static bool take_value(json_t *options, const struct cli_option *o, const char *text)
{
	switch (o->kind) {
	case CLI_FLAG:
		return tp_json_set(options, o->name, json_true());
	case CLI_INT:
		return take_int(options, o, text);
	case CLI_DURATION:
		return take_duration(options, o, text);
	case CLI_SIZE:
		return take_size(options, o, text);
	case CLI_CHOICE:
		return is_choice(o->value, text) && tp_json_set_str(options, o->name, text);
	case CLI_CHOICES:
		return take_choices(options, o, text);
	case CLI_LIST:
		return take_list(options, o, text);
	case CLI_TEXT:
		break;
	}
	/* Not UTF-8: NULL */
	return tp_json_set(options, o->name, json_string(text));
}

/* An option at argv[*i]; moves *i to the last word that it took. 0, or a status. */
static int take_option(struct cli *cli, int argc, char *argv[], int *i)
{
	const char *word = argv[*i], *value = NULL;
	struct wanted w = { 0 };

	if (word[1] == '-') {
		w.name = word + 2;
		w.n = strcspn(w.name, "=");
		value = w.name[w.n] ? w.name + w.n + 1 : NULL;
	} else {
		w.letter = word[1];
		value = word[2] ? word + 2 : NULL;
	}
	cli_each_option(cli->verb ? cli->verb : &before_verb, match, &w);
	if (!w.found)
		return cli_usage(cli, "no option %.80s here", word);
	if (w.found->kind == CLI_FLAG && value)
		return cli_usage(cli, "option --%s takes no value", w.found->name);
	if (w.found->kind != CLI_FLAG && !value) {
		if (*i + 1 >= argc)
			return cli_usage(cli, "option --%s needs a value (%s)", w.found->name, w.found->value);
		value = argv[++*i];
	}
	if (!take_value(cli->options, w.found, value))
		return cli_usage(cli, "option --%s: \"%.80s\" is not of the form %s%s", w.found->name, value,
				 w.found->value, w.found->kind == CLI_CHOICES ? ", several by commas" : "");
	return 0;
}

/* --- words --- */

static int no_such_verb(const char *word)
{
	if (cli_is_noun(word))
		return cli_usage(NULL, "what is to be done with \"%.40s\"", word);
	return cli_usage(NULL, "no verb \"%.40s\"", word);
}

/* What was given before the verb must fit it, too. */
static int check_early(struct cli *cli)
{
	const char *name;
	json_t *value;

	json_object_foreach(cli->options, name, value) {
		struct wanted w = { .name = name, .n = strlen(name) };

		cli_each_option(cli->verb, match, &w);
		if (!w.found)
			return cli_usage(cli, "no option --%s here", name);
	}
	return 0;
}

/* The word argv[*i] is no option. A verb may have two words, hence the look ahead. */
static int take_word(struct cli *cli, int argc, char *argv[], int *i)
{
	char *words[2] = { argv[*i], NULL };
	size_t n = 1, taken;

	if (cli->verb) {
		if (cli->noperands >= CLI_MANY)
			return cli_usage(cli, "more than %d names", CLI_MANY);
		cli->operands[cli->noperands++] = argv[*i];
		return 0;
	}
	if (*i + 1 < argc && argv[*i + 1][0] != '-')
		words[n++] = argv[*i + 1];
	cli->verb = cli_find(words, n, &taken);
	if (!cli->verb)
		return no_such_verb(words[0]);
	*i += (int)taken - 1;
	cli->by_noun = cli->verb->noun && taken == 1;
	return check_early(cli);
}

static int scan(struct cli *cli, int argc, char *argv[])
{
	int status = 0;

	for (int i = 1; i < argc && status == 0; i++) {
		const char *word = argv[i];

		if (strcmp(word, "--") == 0 && cli->verb) {
			cli->dashes = true;
			cli->after = argv + i + 1;
			cli->nafter = (size_t)(argc - i - 1);
			break;
		}
		if (word[0] == '-' && word[1])
			status = take_option(cli, argc, argv, &i);
		else
			status = take_word(cli, argc, argv, &i);
	}
	return status;
}

/* --help NOUN and the like: what is asked for, without looking at the rest. */
static int scan_help(const struct cli *cli, int argc, char *argv[])
{
	if (cli->verb && !cli->by_noun)
		return cli_help_verb(cli->verb);
	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-' && cli_is_noun(argv[i]))
			return cli_help_noun(argv[i]);
	return cli_help_all();
}

static int check_format(struct cli *cli)
{
	const char *format = cli_text(cli, "output");

	cli->quiet = cli_flag(cli, "quiet");
	if (cli_flag(cli, "json") || (format && strcmp(format, "json") == 0))
		cli->format = CLI_F_JSON;
	else if (format && !(cli->verb->sets & CLI_S_LIST))
		return cli_usage(cli, "-o %s is for lists", format);
	else if (format)
		cli->format = strcmp(format, "name") == 0 ? CLI_F_NAME : CLI_F_WIDE;
	return -1;
}

static int check_operands(struct cli *cli)
{
	const struct cli_verb *v = cli->verb;
	bool selected = cli_text(cli, "selector") || cli_flag(cli, "all");

	if (cli->dashes && !v->after) {
		/* Names may not begin with '-', so that nothing but names can follow. */
		for (size_t i = 0; i < cli->nafter && cli->noperands < CLI_MANY; i++)
			cli->operands[cli->noperands++] = cli->after[i];
		cli->nafter = 0;
	}
	if (selected && cli->noperands > 0)
		return cli_usage(cli, "either names or a selection (-l, --all)");
	if (cli->noperands > v->max)
		return cli_usage(cli, "\"%.80s\" is too much", cli->operands[v->max]);
	if (!selected && cli->noperands < v->min)
		return cli_usage(cli, "missing: %s", v->operands);
	return check_format(cli);
}

int cli_parse(struct cli *cli, int argc, char *argv[])
{
	int status;

	memset(cli, 0, sizeof(*cli));
	cli->options = json_object();
	status = scan(cli, argc, argv);
	if (status == 0 && cli_flag(cli, "version"))
		status = printf("torpor %s\n", TP_VERSION) < 0;
	else if (status == 0 && cli_flag(cli, "help"))
		status = scan_help(cli, argc, argv);
	else if (status == 0 && !cli->verb)
		status = cli_usage(NULL, "missing: what is to be done");
	else if (status == 0)
		status = check_operands(cli);
	if (status != -1)
		cli_free(cli);
	return status;
}

/* --- for the wire --- */

/* @n: of "names[3]" the length of "names" */
struct giving {
	const struct cli *cli;
	const char *member;
	size_t n;
	bool found;
};

static bool is_it(const struct giving *g, const char *member)
{
	return strlen(member) == g->n && strncmp(member, g->member, g->n) == 0;
}

/* What a verb looks at itself becomes an argument of the same name, or of its plural. */
static void look_for_member(const struct cli_option *o, void *arg)
{
	struct giving *g = arg;
	bool same = o->member ? is_it(g, o->member) : strncmp(g->member, o->name, strlen(o->name)) == 0;

	g->found = g->found || (same && json_object_get(g->cli->options, o->name));
}

bool cli_gave(const struct cli *cli, const char *member)
{
	static const char *const operands[] = { "name", "names", "vm", "vms", "id", "image" };
	bool named = cli->noperands > 0 && (cli->verb->names != CLI_FILE || cli->dashes);
	struct giving g = { .cli = cli, .member = member, .n = strcspn(member, "[") };

	for (size_t i = 0; named && i < TP_N(operands); i++)
		if (is_it(&g, operands[i]))
			return true;
	cli_each_option(cli->verb, look_for_member, &g);
	return g.found;
}

struct building {
	const json_t *options;
	json_t *arguments;
};

static void add_argument(const struct cli_option *o, void *arg)
{
	struct building *b = arg;
	json_t *value = json_object_get(b->options, o->name);

	if (o->member && value)
		tp_json_set(b->arguments, o->member, json_incref(value));
}

json_t *cli_absolute(const char *path)
{
	char cwd[PATH_MAX];

	if (*path == '/' || !getcwd(cwd, sizeof(cwd)))
		return json_string(path);
	return json_sprintf("%s/%s", cwd, path);
}

json_t *cli_arguments(const struct cli *cli, const char *name)
{
	struct building b = { .options = cli->options, .arguments = json_object() };

	if (name)
		tp_json_set(b.arguments, "name", json_string(name));
	cli_each_option(cli->verb, add_argument, &b);
	return b.arguments;
}
