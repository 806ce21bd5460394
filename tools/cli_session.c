/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_session.c - What most verbs begin with: the connection, the names that are meant, lists by pages */
#include "cli_session.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "cli_out.h"

#define PAGE 500	/* entries asked for at once: a reply of torpord is bounded */

int cli_online(struct cli *cli)
{
	tp_autofree char *path = NULL;
	struct tp_error err = TP_ERROR_INIT;

	if (cli->conn)
		return CLI_DONE;
	path = cli_socket_path(cli_text(cli, "socket"));
	if (path)
		cli->conn = cli_conn_open(path, &err);
	else
		tp_fail_nomem(&err);
	if (cli->conn)
		return CLI_DONE;
	tp_prefix(&err, "torpord cannot be reached");
	return cli_unreachable(cli, &err);
}

int cli_ask(struct cli *cli, const char *command, json_t *arguments_owned, const char *subject,
	    json_t **answer)
{
	tp_autojson json_t *arguments = arguments_owned, *error = NULL;
	struct tp_error err = TP_ERROR_INIT;
	int status = cli_online(cli);

	if (status != CLI_DONE)
		return status;
	*answer = cli_conn_call(cli->conn, command, json_incref(arguments), &error, &err);
	if (*answer)
		return CLI_DONE;
	if (error)
		return cli_refusal(cli, error, cli_error(subject, error, cli->format == CLI_F_JSON));
	return cli_unreachable(cli, &err);
}

/* Adds a page to the list; false: it was the last one. */
static bool add_page(json_t *list, const json_t *page, const char *key, const char *after)
{
	size_t n = json_array_size(page);
	const char *first = tp_json_str(json_array_get(page, 0), key);

	/* A daemon that does not know `after` gives the same again. */
	if (after && (!first || strcmp(first, after) <= 0))
		return false;
	json_array_extend(list, (json_t *)page);
	return n == PAGE;
}

int cli_ask_list(struct cli *cli, const char *command, json_t *arguments_owned, const char *key,
		 json_t **list)
{
	tp_autojson json_t *arguments = arguments_owned;
	bool more = true;

	*list = json_array();
	tp_json_set(arguments, "limit", json_integer(PAGE));
	while (more) {
		tp_autojson json_t *page = NULL, *ask = json_deep_copy(arguments);
		const char *after = tp_json_str(json_array_get(*list, json_array_size(*list) - 1), key);
		int status;

		if (after)
			tp_json_set_str(ask, "after", after);
		status = cli_ask(cli, command, TP_STEAL(ask), NULL, &page);
		if (status != CLI_DONE) {
			json_decref(TP_STEAL(*list));
			return status;
		}
		more = add_page(*list, page, key, after);
	}
	return CLI_DONE;
}

/* --- names --- */

static char *copy(const char *name)
{
	char *text = strdup(name);

	if (!text)
		abort();
	return text;
}

static bool state_is_meant(const struct cli_verb *verb, const char *state)
{
	size_t n = state ? strlen(state) : 0;

	if (!verb->states)
		return true;
	for (const char *p = verb->states; n && *p; p += strcspn(p, " "), p += *p == ' ')
		if (strcspn(p, " ") == n && strncmp(p, state, n) == 0)
			return true;
	return false;
}

static int select_names(struct cli *cli, struct cli_names *names)
{
	tp_autojson json_t *vms = NULL;
	json_t *arguments = json_pack("{s:[s, s], s:s*}", "fields", "name", "state", "selector",
				      cli_text(cli, "selector")), *vm;
	int status = cli_ask_list(cli, "query-vms", arguments, "name", &vms);
	size_t i;

	if (status != CLI_DONE)
		return status;
	names->many = true;
	names->names = calloc(json_array_size(vms) + 1, sizeof(char *));
	if (!names->names)
		abort();
	json_array_foreach(vms, i, vm) {
		const char *name = tp_json_str(vm, "name");

		if (name && state_is_meant(cli->verb, tp_json_str(vm, "state")))
			names->names[names->n++] = copy(name);
	}
	if (names->n == 0)
		cli_note("no VM is selected");
	return CLI_DONE;
}

int cli_names(struct cli *cli, struct cli_names *names)
{
	*names = (struct cli_names){ .many = cli->noperands > 1 };
	if (cli_text(cli, "selector") || cli_flag(cli, "all"))
		return select_names(cli, names);
	names->names = calloc(cli->noperands + 1, sizeof(char *));
	if (!names->names)
		abort();
	for (size_t i = 0; i < cli->noperands; i++) {
		bool twice = false;

		for (size_t k = 0; k < names->n && !twice; k++)
			twice = names->names[k] && strcmp(names->names[k], cli->operands[i]) == 0;
		if (!twice)
			names->names[names->n++] = copy(cli->operands[i]);
	}
	return CLI_DONE;
}

void cli_names_free(struct cli_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->names[i]);
	free(names->names);
	*names = (struct cli_names){ 0 };
}

/* --- tally --- */

static void add_entry(struct cli_tally *t, const char *name, enum cli_status status, const char *member,
		      const json_t *value)
{
	json_t *entry = json_pack("{s:s}", "name", name);

	if (!t->list)
		t->list = json_array();
	if (value)
		tp_json_set(entry, member, json_incref((json_t *)value));
	json_array_append_new(t->list, entry);
	if (status == CLI_DONE)
		t->done++;
	else
		t->status = t->failed++ && t->status != status ? CLI_FAILED : status;
}

void cli_tally_add(struct cli_tally *t, const char *name, enum cli_status status, const json_t *value)
{
	add_entry(t, name, status, status == CLI_DONE ? "return" : "error", value);
}

void cli_tally_returned(struct cli_tally *t, const char *name, enum cli_status status, const json_t *value)
{
	add_entry(t, name, status, "return", value);
}

int cli_tally_end(const struct cli *cli, struct cli_tally *t, bool many)
{
	tp_autojson json_t *list = t->list ? t->list : json_array();
	json_t *first = json_array_get(list, 0), *value = json_object_get(first, "return");
	int status = CLI_DONE;

	if (cli->format == CLI_F_JSON)
		status = cli_print_json(many ? list : value ? value : json_object_get(first, "error"));
	t->list = NULL;
	if (t->failed == 0)
		return status == CLI_DONE ? (int)cli_flush() : status;
	return t->done > 0 ? CLI_PARTIAL : t->status;
}
