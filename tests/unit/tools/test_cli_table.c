/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_cli_table.c - The client's table of verbs against the man page, the schema and the shells; its texts
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "cli_hint.h"
#include "cli_out.h"
#include "cli_progress.h"
#include "cli_spec.h"
#include "cli_verb.h"
#include "engine/verbs.h"
#include "torpor.h"

#define MAN_PAGE "docs/man/torpor.1"

/* --- man page --- */

/* The page with escapes of characters taken out, so that texts of the table can be found in it. */
static char *man_page(void)
{
	char *page = tp_read_path(MAN_PAGE, 1u << 20, NULL, NULL), *to = page;

	assert_non_null(page);
	for (const char *p = page; *p; p++) {
		if (strncmp(p, "\\(aq", 4) == 0) {
			*to++ = '\'';
			p += 3;
		} else if (p[0] != '\\' || p[1] != '-') {
			*to++ = *p;
		}
	}
	*to = 0;
	return page;
}

struct looking {
	const char *section;
	const struct cli_verb *verb;
};

static void option_is_in_section(const struct cli_option *o, void *arg)
{
	struct looking *l = arg;
	char text[CLI_OPTION_SIZE], line[CLI_OPTION_SIZE + 8], name[CLI_VERB_SIZE];

	snprintf(line, sizeof(line), "\n.B %s\n", cli_option_text(o, text));
	if (!strstr(l->section, line))
		fail_msg("the man page lacks \"%s\" of %s", text, cli_verb_name(l->verb, name));
}

static void man_page_has_each_synopsis_and_option(void **state)
{
	tp_autofree char *page = man_page();
	size_t verbs = 0, lines = 0;

	(void)state;
	for (const struct cli_verb *v = cli_verbs; v->name; v++, verbs++) {
		char text[CLI_SYNOPSIS_SIZE], line[CLI_SYNOPSIS_SIZE + 8];
		struct looking l = { .verb = v };
		tp_autofree char *section = NULL;
		const char *begin, *end;

		snprintf(line, sizeof(line), "\n.B %s\n", cli_synopsis(v, text));
		begin = strstr(page, line);
		if (!begin) {
			fail_msg("the man page lacks \"%s\"", text);
			return;
		}
		end = strstr(begin + 1, "\n.B torpor ");
		section = end ? strndup(begin, (size_t)(end - begin)) : strdup(begin);
		l.section = section;
		for (const struct cli_option *o = v->options; o && o->name; o++)
			option_is_in_section(o, &l);
		l.section = page;
		cli_each_option(v, option_is_in_section, &l);
	}
	/* And no verb that is not there. */
	for (const char *p = page; (p = strstr(p, "\n.B torpor ")); p++)
		lines++;
	assert_int_equal(lines, verbs);
}

/* --- schema --- */

static const json_t *by_name(const json_t *list, const char *name)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(list, i, entry)
		if (tp_json_str(entry, "name") && strcmp(tp_json_str(entry, "name"), name) == 0)
			return entry;
	return NULL;
}

struct checking {
	const json_t *schema, *command;
	const struct cli_verb *verb;
};

static const json_t *argument(const struct checking *c, const char *member)
{
	const json_t *a = by_name(json_object_get(c->command, "arguments"), member);

	if (!a && tp_json_bool(c->command, "operation", false))
		a = by_name(json_object_get(c->schema, "operation-arguments"), member);
	return a;
}

/* The kinds of operations are a text in the schema, whose description lists them. */
static void choices_are_kinds(const struct cli_option *o, const json_t *schema)
{
	const json_t *record = by_name(json_object_get(schema, "types"), "Operation");
	tp_autofree char *listed = strdup(tp_json_str(by_name(json_object_get(record, "members"), "kind"), "doc"));
	char *comma;

	while ((comma = strstr(listed, ", "))) {
		*comma = '|';
		memmove(comma + 1, comma + 2, strlen(comma + 2) + 1);
	}
	assert_string_equal(o->value, listed);
}

static void choices_are_values(const struct cli_option *o, const json_t *type)
{
	tp_autofree char *choices = strdup(o->value);
	char *save = NULL;

	for (char *c = strtok_r(choices, "|", &save); c; c = strtok_r(NULL, "|", &save))
		if (!by_name(json_object_get(type, "members"), c))
			fail_msg("--%s %s: the schema has no such value", o->name, c);
}

static void option_is_argument(const struct cli_option *o, void *arg)
{
	struct checking *c = arg;
	const json_t *a = o->member ? argument(c, o->member) : NULL, *type;

	if (!o->member)
		return;
	if (!a)
		fail_msg("--%s: %s has no argument %s", o->name, c->verb->command, o->member);
	type = by_name(json_object_get(c->schema, "types"), tp_json_str(a, "type"));
	if (o->kind == CLI_CHOICE && strcmp(o->member, "kind") == 0)
		choices_are_kinds(o, c->schema);
	else if (o->kind == CLI_CHOICE)
		choices_are_values(o, type);
	if (o->kind == CLI_CHOICES) {
		/* "[Type]" */
		tp_autofree char *item = strndup(tp_json_str(a, "type") + 1, strlen(tp_json_str(a, "type")) - 2);

		type = by_name(json_object_get(c->schema, "types"), item);
		assert_non_null(type);
		choices_are_values(o, type);
	}
	if (o->kind == CLI_FLAG)
		assert_string_equal(tp_json_str(a, "type"), "bool");
	if (o->kind == CLI_INT)
		assert_string_equal(tp_json_str(a, "type"), "int");
	if (o->kind == CLI_DURATION)
		assert_string_equal(tp_json_str(a, "type"), "seconds");
}

static void options_are_arguments_of_the_schema(void **state)
{
	tp_autojson json_t *schema = torpor_schema();
	size_t checked = 0;

	(void)state;
	for (const struct cli_verb *v = cli_verbs; v->name; v++) {
		struct checking c = { .schema = schema, .verb = v };

		if (!v->command)
			continue;
		c.command = by_name(json_object_get(schema, "commands"), v->command);
		if (!c.command)
			fail_msg("%s: there is no command %s", v->name, v->command);
		/* Of run, the options of both commands; define's are checked by what is sent. */
		if (v->run != cmd_run)
			cli_each_option(v, option_is_argument, &c);
		checked++;
	}
	assert_true(checked > 20);
}

/* Every size and every time below the type at `path`, and nothing else; *n counts them. */
static void units_below(const json_t *schema, const char *type, const char *path, size_t *n)
{
	const json_t *members = json_object_get(by_name(json_object_get(schema, "types"), type), "members"), *m;
	size_t i;

	json_array_foreach(members, i, m) {
		const char *of = tp_json_str(m, "type"), *name = tp_json_str(m, "name");
		const struct cli_spec_unit *u = cli_spec_units;
		char inner[128];
		int kind;

		if (!of)
			continue;	/* a value of an enum */
		snprintf(inner, sizeof(inner), "%s%s%s", path, *path ? "." : "", name);
		kind = strcmp(of, "size") == 0 ? CLI_SIZE : strcmp(of, "seconds") == 0 ? CLI_DURATION : -1;
		while (u->path && strcmp(u->path, inner) != 0)
			u++;
		if ((u->path ? (int)u->kind : -1) != kind)
			fail_msg("%s is of type %s", inner, of);
		*n += kind >= 0;
		units_below(schema, of, inner, n);
	}
}

static void units_are_those_of_the_spec(void **state)
{
	tp_autojson json_t *schema = torpor_schema();
	size_t n = 0, rows = 0;

	(void)state;
	units_below(schema, "VmSpec", "", &n);
	while (cli_spec_units[rows].path)
		rows++;
	assert_int_equal(n, rows);
}

static void states_are_states(void **state)
{
	tp_autojson json_t *schema = torpor_schema();
	const json_t *type = by_name(json_object_get(schema, "types"), "VmState");

	(void)state;
	for (const struct cli_verb *v = cli_verbs; v->name; v++) {
		tp_autofree char *states = v->states ? strdup(v->states) : NULL;
		char *save = NULL;

		for (const struct cli_option *o = v->run == cmd_ls ? v->options : NULL; o && o->name; o++)
			choices_are_values(o, type);

		for (char *s = states ? strtok_r(states, " ", &save) : NULL; s; s = strtok_r(NULL, " ", &save))
			assert_non_null(by_name(json_object_get(type, "members"), s));
	}
}

/* --- words --- */

static const struct cli_verb *find(const char *a, const char *b, size_t *taken)
{
	char *words[] = { (char *)a, (char *)b };

	return cli_find(words, b ? 2 : 1, taken);
}

static void nouns_are_singular_or_plural(void **state)
{
	size_t taken;

	(void)state;
	assert_ptr_equal(find("images", "info", &taken), find("image", "info", &taken));
	assert_int_equal(taken, 2);
	assert_ptr_equal(find("pools", NULL, &taken), find("pool", "ls", &taken));
	assert_string_equal(find("ops", "web1", &taken)->name, "ops");
	assert_int_equal(taken, 1);
	assert_string_equal(find("op", "wait", &taken)->name, "wait");
	assert_string_equal(find("list", NULL, &taken)->name, "ls");
	assert_null(find("image", "nonsense", &taken));
	assert_null(find("rm", NULL, &taken));
	assert_null(find("imagess", NULL, &taken));
}

/* --- hints --- */

static const struct cli_hint *hint_of(const char *use)
{
	for (const struct cli_hint *h = cli_hints; h->use; h++)
		if (strcmp(h->use, use) == 0)
			return h;
	return NULL;
}

static void arguments_are_options_here(void **state)
{
	static const struct { const char *wire, *here; } cases[] = {
		{ "power it down first, or give \"keep-running\": true", "power it down first, or give --keep-running" },
		{ "give \"images\": \"keep\", or \"images\": \"delete\"", "give --images keep, or --images delete" },
		{ "only awake: give \"wake\": true", "only awake: give --wake" },
		{ "\"discard-image\": true, which", "--discard-image, which" },
		/* No options, no such values, cut. */
		{ "\"nonsense\": true", "\"nonsense\": true" }, { "\"wake\": 3", "\"wake\": 3" },
		{ "\"wake\": \"yes\"", "\"wake\": \"yes\"" }, { "\"images\": true", "\"images\": true" },
		{ "\"images\": \"ke", "\"images\": \"ke" }, { "\"wake\":", "\"wake\":" }, { "\"", "\"" }, { "", "" },
		{ "no image is named \"x-1\"", "no image is named \"x-1\"" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(4096);

		assert_string_equal(cli_own_words(cases[i].wire, &b), cases[i].here);
	}
}

/* A hint is a verb that sends the command that it stands for, with operands that the verb takes. */
static void hints_are_verbs(void **state)
{
	size_t taken;

	(void)state;
	for (const struct cli_hint *h = cli_hints; h->use; h++) {
		const struct cli_verb *v = find(h->verb, NULL, &taken);

		if (!v || !v->command || strcmp(v->command, h->use) != 0) {
			fail_msg("%s: \"torpor %s\" is not for that", h->use, h->verb);
			return;
		}
		assert_int_equal(v->names, CLI_VM);
		if (v->max < CLI_MANY)
			assert_non_null(strstr(v->operands, h->rest));
		else
			assert_string_equal(h->rest, "");
	}
}

/* What the daemon tells to use, wherever it is a command that there is, has words here. */
static void hints_know_all_of_the_daemons_table(void **state)
{
	tp_autojson json_t *schema = torpor_schema();
	size_t seen = 0;
	const char *use;

	(void)state;
	for (int v = 0; v < VERB_N; v++)
		for (int s = 0; s < VM_STATE_N; s++) {
			verb_table((enum verb)v, (enum vm_state)s, &use);
			if (!use || !by_name(json_object_get(schema, "commands"), use))
				continue;
			if (!hint_of(use))
				fail_msg("no words for %s", use);
			seen++;
		}
	assert_true(seen > 20);
}

/* --- texts --- */

static void bar_fits_every_width(void **state)
{
	const struct cli_figures f = { .label = "w\xc3\xa9""b1", .phase = "Saving", .done = 512.0 * 1048576,
				       .total = 1024.0 * 1048576, .percent = 50, .rate = 100.0 * 1048576, .eta = 5.4 };
	char line[512];

	(void)state;
	for (size_t width = 1; width < 200; width++) {
		cli_progress_bar(&f, width, line, sizeof(line));
		assert_true(cli_width(line) <= width);
	}
	assert_string_equal(cli_progress_bar(&f, 199, line, sizeof(line)), "w\xc3\xa9""b1 Saving "
			    "[====================>                   ]  50 % 512 MiB of 1 GiB, 100 MiB/s, 5 s left");
	assert_string_equal(cli_progress_bar(&f, 52, line, sizeof(line)),
			    "w\xc3\xa9""b1 Saving [=====>     ]  50 %, 100 MiB/s, 5 s left");
	assert_string_equal(cli_progress_bar(&f, 19, line, sizeof(line)), "w\xc3\xa9""b1 Saving  50 %");
	assert_string_equal(cli_progress_line(&f, line, sizeof(line)),
			    "w\xc3\xa9""b1: Saving 50 %, 512 MiB of 1 GiB, 100 MiB/s, 5 s left");
}

static void bar_without_figures_and_with_controls(void **state)
{
	struct cli_figures f = { .label = "a\033[2J", .phase = "Launching\n", .done = -1, .total = -1, .percent = -1,
				 .rate = -1, .eta = -1, .elapsed = 3 };
	char line[512];

	(void)state;
	assert_string_equal(cli_progress_bar(&f, 80, line, sizeof(line)), "a [2J Launching  3.0 s");
	f.percent = 1e9;
	f.total = 1;
	f.rate = 1e300;
	f.eta = 1e300;
	assert_true(cli_width(cli_progress_bar(&f, 80, line, sizeof(line))) <= 80);
}

static void table_aligns_and_cleans(void **state)
{
	static const char *const heads[] = { "NAME", "STATE" };
	tp_autobuf struct tp_buf text = TP_BUF_INIT(0);
	struct cli_table t;

	(void)state;
	cli_table_init(&t, heads, 2);
	cli_table_row(&t);
	cli_table_set(&t, 0, "\xc3\xa4" "b\033cde");
	cli_table_row(&t);
	cli_table_set(&t, 0, "x");
	cli_table_set(&t, 1, "running");
	cli_table_text(&t, &text);
	assert_string_equal(text.data, "NAME    STATE\n\xc3\xa4" "b cde  -\nx       running\n");
	cli_table_free(&t);
}

static void spans(void **state)
{
	char buf[CLI_SPAN_TEXT];

	(void)state;
	assert_string_equal(cli_span(0.04, buf), "0.0 s");
	assert_string_equal(cli_span(59, buf), "59 s");
	assert_string_equal(cli_span(200, buf), "3 min 20 s");
	assert_string_equal(cli_span(7500, buf), "2 h 5 min");
	assert_string_equal(cli_span(90000, buf), "1 d 1 h");
	assert_string_equal(cli_span(-1, buf), "-");
	assert_string_equal(cli_since("nonsense", buf), "-");
}

/* --- completion --- */

/* What bash offers for the words; the caller frees. */
static char *offered(const char *words)
{
	tp_autobuf struct tp_buf command = TP_BUF_INIT(0);
	const char *build = getenv("TORPOR_BUILD");
	char *text = calloc(1, 4096);
	FILE *f;

	tp_buf_printf(&command, "bash -c 'eval \"$(%s/torpor completion bash)\" && COMP_WORDS=(torpor %s) && "
		      "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _torpor && echo ${COMPREPLY[*]}'",
		      build ? build : "build", words);
	f = popen(command.data, "r");
	assert_non_null(f);
	assert_true(fread(text, 1, 4095, f) > 0);
	assert_int_equal(pclose(f), 0);
	return text;
}

static void bash_completes_verbs_and_options(void **state)
{
	static const char *const cases[][2] = {
		{ "hib", "hibernate\n" }, { "images v", "verify\n" }, { "image in", "info\n" },
		{ "hibernate --le", "--level\n" }, { "image rm --qu", "--quiet\n" }, { "completion z", "zsh\n" },
		{ "op re", "retry\n" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++) {
		tp_autofree char *text = offered(cases[i][0]);

		assert_string_equal(text, cases[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(man_page_has_each_synopsis_and_option),
		cmocka_unit_test(options_are_arguments_of_the_schema), cmocka_unit_test(states_are_states),
		cmocka_unit_test(units_are_those_of_the_spec),
		cmocka_unit_test(nouns_are_singular_or_plural), cmocka_unit_test(hints_are_verbs),
		cmocka_unit_test(arguments_are_options_here),
		cmocka_unit_test(hints_know_all_of_the_daemons_table), cmocka_unit_test(bar_fits_every_width),
		cmocka_unit_test(bar_without_figures_and_with_controls), cmocka_unit_test(table_aligns_and_cleans),
		cmocka_unit_test(spans), cmocka_unit_test(bash_completes_verbs_and_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
