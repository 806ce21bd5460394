/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_value.c - JSON that has no words of its own, for people
 *
 * A value is a list of leaves: scalars, and arrays of nothing but scalars. Each has a path of the members and
 * places that lead to it, and a text by the last member's name. The depth of what came over the wire is
 * bounded (CLI_REPLY_DEPTH), and so is the recursion.
 */
#include "cli_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_out.h"

#define PATH_SIZE 256
#define TEXT_LIMIT (1u << 20)

typedef void (*leaf_fn)(void *arg, const char *path, const char *text);

/* --- texts --- */

static bool ends_in(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n >= m && strcmp(name + n - m, end) == 0 && (n == m || name[n - m - 1] == '-');
}

static bool is_size(const char *name)
{
	static const char *const sizes[] = { "bytes", "total", "available", "used", "quota", "required",
					     "allocated", "size" };

	for (size_t i = 0; i < TP_N(sizes); i++)
		if (ends_in(name, sizes[i]))
			return true;
	return false;
}

static bool is_span(const char *name)
{
	static const char *const spans[] = { "seconds", "pause", "eta", "timeout", "working-set", "whole",
					     "running", "age" };

	for (size_t i = 0; i < TP_N(spans); i++)
		if (ends_in(name, spans[i]))
			return true;
	return false;
}

static void add_number(struct tp_buf *b, const char *name, const json_t *value)
{
	char size[TP_SIZE_TEXT], span[CLI_SPAN_TEXT];

	if (is_size(name))
		tp_buf_adds(b, cli_size(value, size));
	else if (ends_in(name, "rate"))
		tp_buf_printf(b, "%s/s", cli_size(value, size));
	else if (is_span(name))
		tp_buf_adds(b, cli_span(json_number_value(value), span));
	else if (json_is_integer(value))
		tp_buf_printf(b, "%lld", (long long)json_integer_value(value));
	else
		tp_buf_printf(b, "%g", json_real_value(value));
}

static void add_scalar(struct tp_buf *b, const char *name, const json_t *value)
{
	if (json_is_string(value))
		tp_buf_adds(b, json_string_value(value));
	else if (json_is_number(value))
		add_number(b, name, value);
	else
		tp_buf_adds(b, json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
}

static bool is_leaf(const json_t *value)
{
	json_t *item;
	size_t i;

	if (json_is_object(value))
		return false;
	json_array_foreach(value, i, item)
		if (json_is_object(item) || json_is_array(item))
			return false;
	return true;
}

static void tell_leaf(const char *path, const char *name, const json_t *value, leaf_fn fn, void *arg)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(TEXT_LIMIT);
	json_t *item;
	size_t i;

	if (!json_is_array(value))
		add_scalar(&b, name, value);
	json_array_foreach(value, i, item) {
		tp_buf_adds(&b, i ? ", " : "");
		add_scalar(&b, name, item);
	}
	fn(arg, path, b.data ? b.data : "");
}

static void walk(const json_t *value, const char *path, const char *name, leaf_fn fn, void *arg)
{
	char inner[PATH_SIZE];
	const char *key;
	json_t *item;
	size_t i;

	if (json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
	    (json_is_string(value) && json_string_length(value) == 0))
		return;
	if (is_leaf(value)) {
		tell_leaf(path, name, value, fn, arg);
		return;
	}
	json_object_foreach((json_t *)value, key, item) {
		snprintf(inner, sizeof(inner), "%s%s%s", path, *path ? "." : "", key);
		walk(item, inner, key, fn, arg);
	}
	json_array_foreach(value, i, item) {
		snprintf(inner, sizeof(inner), "%s[%zu]", path, i);
		walk(item, inner, name, fn, arg);
	}
}

/* --- lines --- */

void cli_say_line(const char *label, const char *text)
{
	if (text && *text)
		cli_say("%-*s%s", CLI_LABEL_WIDTH, label, text);
}

/* Each line of a text under the first. */
static void say_leaf(void *arg, const char *path, const char *text)
{
	const char **label = arg;
	int indent = *path ? (int)strlen(path) + 2 : 0;

	for (bool first = true; *text || first; first = false) {
		size_t n = strcspn(text, "\n");

		if (first)
			cli_say("%-*s%s%s%.*s", CLI_LABEL_WIDTH, *label, path, *path ? ": " : "", (int)n, text);
		else
			cli_say("%-*s%.*s", CLI_LABEL_WIDTH + indent, "", (int)n, text);
		*label = "";
		text += n + (text[n] == '\n');
	}
}

void cli_say_value(const char *label, const json_t *value)
{
	walk(value, "", label, say_leaf, &label);
}

static void add_leaf(void *arg, const char *path, const char *text)
{
	struct tp_buf *b = arg;
	bool quoted = !*text || strpbrk(text, " \n\t\"");

	tp_buf_printf(b, "%s%s%s%s%s%s", b->len ? " " : "", path, *path ? "=" : "", quoted ? "\"" : "", text,
		      quoted ? "\"" : "");
}

char *cli_value_line(const json_t *value)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(TEXT_LIMIT);

	walk(value, "", "", add_leaf, &b);
	return b.data ? tp_buf_steal(&b) : strdup("");
}

/* --- conditions --- */

void cli_say_conditions(const json_t *vm)
{
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(vm, "conditions"), i, c) {
		const char *type = tp_json_str(c, "type"), *status = tp_json_str(c, "status");
		const char *reason = tp_json_str(c, "reason"), *message = tp_json_str(c, "message");

		cli_say("%-*s%s %s (%s)%s%s", CLI_LABEL_WIDTH, i == 0 ? "conditions" : "", type ? type : "-",
			status ? status : "-", reason ? reason : "-", message && *message ? ": " : "",
			message ? message : "");
	}
}
