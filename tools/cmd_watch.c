/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_watch.c - wait, events, op wait: things that others do */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "cli_follow.h"
#include "cli_out.h"
#include "cli_session.h"
#include "cli_value.h"

static const char *const states[] = {
	"shutoff", "starting", "running", "paused", "suspended", "hibernating", "hibernated", "restoring",
	"migrating", "incoming", "crashed", "lost",
};

/* --- wait --- */

#define CHUNK 500		/* names asked for at once */

struct waiting {
	struct cli *cli;
	const char *state;
	const struct cli_names *names;
	struct cli_tally tally;
	json_t *left;		/* names that are not there yet, as members */
	size_t first;		/* names before this one were asked for */
	bool asking, again;	/* an answer is awaited; all are to be asked once more */
	double until;
};

static void arrived(struct waiting *w, const char *name, enum cli_status status, const json_t *value)
{
	cli_tally_add(&w->tally, name, status, value);
	json_object_del(w->left, name);
}

/* A lost VM gets nowhere by itself. */
static void take_state(struct waiting *w, const char *name, const json_t *vm)
{
	const char *state = tp_json_str(vm, "state");
	tp_autojson json_t *error = NULL, *done = NULL;

	if (!state || !json_object_get(w->left, name))
		return;
	if (strcmp(state, w->state) == 0) {
		done = json_pack("{s:s, s:s}", "name", name, "state", state);
		arrived(w, name, CLI_DONE, done);
		return;
	}
	if (strcmp(state, "lost") != 0)
		return;
	error = json_pack("{s:s, s:s}", "class", "InvalidState", "desc",
			  "the VM is lost: a person must say where its guest is (torpor resolve)");
	cli_error(name, error, false);
	arrived(w, name, CLI_STUCK, error);
}

static void take_undefined(struct waiting *w, const char *name)
{
	tp_autojson json_t *error = json_pack("{s:s, s:s}", "class", "NotFound", "desc", "the VM was undefined");

	if (!json_object_get(w->left, name))
		return;
	cli_error(name, error, false);
	arrived(w, name, CLI_FAILED, error);
}

/* Whether an operation of this kind ends, if it succeeds, in the state that is waited for. */
static bool leads_there(const struct waiting *w, const char *kind)
{
	static const struct { const char *state, *kind; } ways[] = {
		{ "running", "start" }, { "running", "restore" }, { "paused", "start" }, { "paused", "restore" },
		{ "starting", "start" }, { "restoring", "restore" }, { "hibernating", "hibernate" },
		{ "hibernated", "hibernate" }, { "shutoff", "powerdown" },
	};

	for (size_t i = 0; i < TP_N(ways); i++)
		if (strcmp(ways[i].state, w->state) == 0 && strcmp(ways[i].kind, kind) == 0)
			return true;
	return false;
}

/* What was to bring the VM there does not: waiting longer would be for another one, which nobody has begun. */
static void take_operation(struct waiting *w, const char *name, const json_t *op)
{
	const char *kind = tp_json_str(op, "kind"), *status = tp_json_str(op, "status");
	json_t *error = json_object_get(op, "error");
	const char *desc = tp_json_str(error, "desc"), *class_ = tp_json_str(error, "class");
	bool stuck = status && strcmp(status, "stuck") == 0;

	if (!kind || !status || !json_object_get(w->left, name) || !leads_there(w, kind))
		return;
	if (!stuck && strcmp(status, "failed") != 0 && strcmp(status, "cancelled") != 0)
		return;
	cli_note("%s: %s %s is %s: %s%s%s", name, kind, tp_json_str(op, "id") ? tp_json_str(op, "id") : "-", status,
		 class_ ? class_ : "", class_ ? ": " : "", desc ? desc : "no reason given");
	arrived(w, name, stuck ? CLI_STUCK : CLI_FAILED, error);
}

static void take_event(struct waiting *w, const json_t *message)
{
	const char *event = tp_json_str(message, "event");
	const json_t *data = json_object_get(message, "data");
	const char *name = tp_json_str(data, "vm");

	if (!event || !name)
		return;
	if (strcmp(event, "VM_STATE") == 0)
		take_state(w, name, data);
	else if (strcmp(event, "OPERATION") == 0)
		take_operation(w, name, data);
	else if (strcmp(event, "VM_UNDEFINED") == 0)
		take_undefined(w, name);
}

static bool subscribe(struct waiting *w, struct tp_error *err)
{
	json_t *arguments = json_pack("{s:[s, s, s], s:b}", "events", "VM_STATE", "VM_UNDEFINED", "OPERATION",
				      "progress", 0);
	tp_autojson json_t *error = NULL, *answer = NULL;

	answer = cli_conn_call(w->cli->conn, "event-filter", arguments, &error, err);
	return answer || error;
}

/* Asks how the names from w->first on are; the id of the request is w->first. */
static bool ask_chunk(struct waiting *w, struct tp_error *err)
{
	json_t *names = json_array();
	size_t end = w->first + CHUNK < w->names->n ? w->first + CHUNK : w->names->n;

	for (size_t i = w->first; i < end; i++)
		json_array_append_new(names, json_string(w->names->names[i]));
	w->asking = true;
	return cli_conn_ask(w->cli->conn, (json_int_t)w->first, "query-vms",
			    json_pack("{s:o, s:[s, s, s], s:i}", "names", names, "fields", "name", "state",
				      "operation", "limit", CHUNK),
			    err);
}

static void take_error(struct waiting *w, const char *name, const json_t *error)
{
	if (json_object_get(w->left, name))
		arrived(w, name, cli_error(name, error, false), error);
}

/* Of the names that were asked for, those that are not in the answer are no VMs. */
static void take_chunk(struct waiting *w, const json_t *message)
{
	const json_t *vms = json_object_get(message, "return"), *error = json_object_get(message, "error");
	size_t end = w->first + CHUNK < w->names->n ? w->first + CHUNK : w->names->n, i;
	tp_autojson json_t *found = json_object();
	json_t *vm;

	json_array_foreach(vms, i, vm)
		if (tp_json_str(vm, "name")) {
			tp_json_set(found, tp_json_str(vm, "name"), json_true());
			take_state(w, tp_json_str(vm, "name"), vm);
			take_operation(w, tp_json_str(vm, "name"), json_object_get(vm, "operation"));
		}
	for (i = w->first; i < end; i++) {
		const char *name = w->names->names[i];
		tp_autojson json_t *none = json_pack("{s:s, s:o}", "class", "NotFound", "desc",
						     json_sprintf("no VM is named \"%s\"", name));

		if (!json_object_get(found, name))
			take_error(w, name, error ? error : none);
	}
	w->first = end;
	w->asking = false;
}

/*
 * Answers and events come in the order of what happened, so that none is missed as long as all are taken
 * in their order. Events that torpord had to leave out are made up for by asking again.
 */
static bool take_message(struct waiting *w, const json_t *message, struct tp_error *err)
{
	const char *event = tp_json_str(message, "event");

	if (event && strcmp(event, "EVENTS_LOST") == 0)
		w->again = true;
	else if (event)
		take_event(w, message);
	else if (w->asking && tp_json_int(message, "id", -1) == (json_int_t)w->first)
		take_chunk(w, message);
	if (w->asking)
		return true;
	if (w->again && w->first >= w->names->n) {
		w->again = false;
		w->first = 0;
	}
	return w->first >= w->names->n || ask_chunk(w, err);
}

static int timed_out(struct waiting *w)
{
	const char *name;
	json_t *value;
	void *next;
	tp_autojson json_t *error = json_pack("{s:s, s:s}", "class", "Timeout", "desc", "not in time");

	json_object_foreach_safe(w->left, next, name, value) {
		tp_autofree char *copy = strdup(name);

		cli_note("%s: not %s in time", copy, w->state);
		arrived(w, copy, CLI_TIMED_OUT, error);
	}
	return CLI_DONE;
}

static int wait_for_all(struct waiting *w, struct tp_error *err)
{
	if (!subscribe(w, err) || !ask_chunk(w, err))
		return cli_unreachable(w->cli, err);
	while (json_object_size(w->left) > 0) {
		tp_autojson json_t *message = NULL;

		switch (cli_conn_read(w->cli->conn, w->until, -1, &message, err)) {
		case CLI_MESSAGE:
			if (take_message(w, message, err))
				break;
			return cli_unreachable(w->cli, err);
		case CLI_LATE:
			return timed_out(w);
		default:
			return cli_unreachable(w->cli, err);
		}
	}
	return CLI_DONE;
}

/* "state=running": the state; NULL: usage. */
static const char *wanted_state(const struct cli *cli)
{
	const char *what = cli_text(cli, "for");

	if (!what || strncmp(what, "state=", 6) != 0)
		return NULL;
	for (size_t i = 0; i < TP_N(states); i++)
		if (strcmp(what + 6, states[i]) == 0)
			return states[i];
	return NULL;
}

int cmd_wait(struct cli *cli)
{
	struct waiting w = { .cli = cli, .state = wanted_state(cli) };
	double limit = tp_json_num(cli->options, "timeout", 0);
	struct tp_error err = TP_ERROR_INIT;
	struct cli_names names;
	int status;

	if (!w.state)
		return cli_usage(cli, "--for state=STATE is needed, with one of the states of a VM");
	w.until = json_object_get(cli->options, "timeout") ? tp_now_mono() + limit : 0;
	status = cli_names(cli, &names);
	w.names = &names;
	w.left = json_object();
	for (size_t i = 0; status == CLI_DONE && i < names.n; i++)
		tp_json_set(w.left, names.names[i], json_true());
	if (status == CLI_DONE)
		status = cli_online(cli);
	if (status == CLI_DONE)
		status = wait_for_all(&w, &err);
	if (status == CLI_DONE)
		status = cli_tally_end(cli, &w.tally, names.many);
	else
		json_decref(w.tally.list);
	json_decref(w.left);
	cli_names_free(&names);
	return status;
}

int cmd_op_wait(struct cli *cli)
{
	struct cli_names ids;
	int status = cli_names(cli, &ids);

	if (status == CLI_DONE)
		status = cli_follow(cli, &ids, tp_json_num(cli->options, "timeout", 0));
	cli_names_free(&ids);
	return status;
}

/* --- events --- */

static json_t *filter(const struct cli *cli)
{
	json_t *arguments = json_object(), *vms = json_array();

	for (size_t i = 0; i < cli->noperands; i++)
		json_array_append_new(vms, json_string(cli->operands[i]));
	if (cli->noperands > 0)
		tp_json_set(arguments, "vms", json_incref(vms));
	json_decref(vms);
	if (json_object_get(cli->options, "event"))
		tp_json_set(arguments, "events", json_incref(json_object_get(cli->options, "event")));
	if (cli_flag(cli, "no-progress"))
		tp_json_set(arguments, "progress", json_false());
	return arguments;
}

static const char *event_time(const json_t *message, char *buf)
{
	const json_t *stamp = json_object_get(message, "timestamp");
	int64_t seconds = tp_json_int(stamp, "seconds", 0), us = tp_json_int(stamp, "microseconds", 0);

	if (seconds <= 0 || seconds > INT32_MAX * 4ll || us < 0 || us > 999999)
		return "-";
	return tp_time_format((uint64_t)seconds * 1000000 + (uint64_t)us, buf);
}

static char *operation_text(const json_t *data)
{
	const char *kind = tp_json_str(data, "kind"), *phase = tp_json_str(data, "phase");
	const char *id = tp_json_str(data, "id"), *status = tp_json_str(data, "status");
	const char *desc = tp_json_str(json_object_get(data, "error"), "desc");
	char *text = NULL;

	if (!id || !kind || !phase || !status ||
	    asprintf(&text, "%s %s %s, %s, %.0f %%%s%s", id, kind, status, phase,
		     tp_json_num(json_object_get(data, "progress"), "percent", 0), desc ? ": " : "", desc ? desc : "") < 0)
		return NULL;
	return text;
}

static char *state_text(const json_t *data)
{
	const char *state = tp_json_str(data, "state"), *reason = tp_json_str(data, "reason");
	char *text = NULL;

	if (!state || asprintf(&text, "%s%s%s%s", state, reason ? " (" : "", reason ? reason : "", reason ? ")" : "") < 0)
		return NULL;
	return text;
}

/* What is said of it in one line: the short of it, else all that it carries. */
static char *event_text(const char *event, const json_t *data)
{
	tp_autojson json_t *rest = NULL;
	char *text = NULL;

	if (strcmp(event, "OPERATION") == 0)
		text = operation_text(data);
	else if (strcmp(event, "VM_STATE") == 0)
		text = state_text(data);
	if (text)
		return text;
	rest = json_copy((json_t *)data);
	json_object_del(rest, "vm");
	json_object_del(rest, "seq");
	return cli_value_line(rest);
}

static int print_event(const struct cli *cli, const json_t *message)
{
	const char *event = tp_json_str(message, "event"), *vm;
	const json_t *data = json_object_get(message, "data");
	tp_autofree char *text = NULL;
	char at[TP_TIME_TEXT];

	if (!event)
		return CLI_DONE;
	if (cli->format == CLI_F_JSON)
		return cli_print_json_line(message);
	vm = tp_json_str(data, "vm");
	text = event_text(event, data);
	cli_say("%s %s %s %s", event_time(message, at), event, vm ? vm : "-", text ? text : "");
	return cli_flush();
}

int cmd_events(struct cli *cli)
{
	tp_autojson json_t *answer = NULL;
	struct tp_error err = TP_ERROR_INIT;
	int status = cli_ask(cli, "event-filter", filter(cli), NULL, &answer);

	while (status == CLI_DONE) {
		tp_autojson json_t *message = NULL;

		if (cli_conn_read(cli->conn, 0, -1, &message, &err) != CLI_MESSAGE)
			return cli_unreachable(cli, &err);
		status = print_event(cli, message);
	}
	return status;
}
