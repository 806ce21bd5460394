/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_check.c - check: what a VM can do now, and why not
 *
 * Each ability is a dry run of its verb. Which of them a VM is expected to have, and with it the exit status,
 * follows from its state. Whether it could be restored lazily is told at any time, as what is missing for
 * that is granted beforehand.
 */
#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "cli_dry.h"
#include "cli_out.h"
#include "cli_session.h"
#include "cli_value.h"

/* @states: in which a VM is expected to have it, separated by blanks */
struct ability {
	const char *name, *command, *states;
};

static const struct ability abilities[] = {
	{ "start", "vm-start", "shutoff crashed" },
	{ "hibernate", "vm-hibernate", "running paused suspended" },
	{ "restore", "vm-restore", "hibernated" },
};

static bool is_expected(const struct ability *a, const char *state)
{
	const char *found = state && *state ? strstr(a->states, state) : NULL;

	return found && (found[strlen(state)] == ' ' || !found[strlen(state)]);
}

/* A refusal of the dry run is what was asked for, too. */
static json_t *refused(const json_t *error)
{
	return json_pack("{s:b, s:[O], s:[], s:[]}", "ok", 0, "blockers", error, "warnings", "plan");
}

static json_t *dry_run(struct cli *cli, const char *command, const char *name, struct tp_error *err)
{
	tp_autojson json_t *error = NULL;
	json_t *dry = cli_conn_call(cli->conn, command, json_pack("{s:s, s:b}", "name", name, "dry-run", 1), &error,
				    err);

	return dry || !error ? dry : refused(error);
}

/* Nothing, if this daemon does not know, or of this VM. False: the connection is lost, err. */
static bool ask_lazy(struct cli *cli, const char *name, json_t *checked, struct tp_error *err)
{
	tp_autojson json_t *error = NULL, *capacity = NULL;
	json_t *lazy;

	capacity = cli_conn_call(cli->conn, "query-capacity", json_pack("{s:s}", "name", name), &error, err);
	lazy = tp_json_path(capacity, "restore.lazy");
	if (lazy)
		tp_json_set(checked, "lazy-restore", json_incref(lazy));
	return capacity || error;
}

/* --- text --- */

static void show_ability(const char *name, const json_t *dry)
{
	bool ok = tp_json_bool(dry, "ok", false);

	if (ok && tp_json_bool(dry, "unchanged", false)) {
		cli_say_line(name, "nothing to do");
		return;
	}
	cli_say_line(name, ok ? "yes" : "no");
	cli_say_blockers(dry);
	cli_say_dry(dry);
}

/* What the state expects of it comes first. */
static void show_checked(const char *name, const json_t *vm, const json_t *checked)
{
	const char *state = tp_json_str(vm, "state"), *reason = tp_json_str(vm, "reason");

	cli_say("%s: %s (%s)", name, state ? state : "-", reason ? reason : "-");
	for (int expected = 1; expected >= 0; expected--)
		for (size_t i = 0; i < TP_N(abilities); i++)
			if (is_expected(&abilities[i], state) == (expected == 1))
				show_ability(abilities[i].name, json_object_get(checked, abilities[i].name));
	cli_say_lazy(json_object_get(checked, "lazy-restore"));
	cli_say_conditions(vm);
}

/* --- one of them, and all --- */

/* Of a state in which nothing is expected of a VM, that it can hibernate. */
static enum cli_status status_of(const json_t *checked, const char *state)
{
	for (size_t i = 0; i < TP_N(abilities); i++)
		if (is_expected(&abilities[i], state))
			return cli_dry_status(json_object_get(checked, abilities[i].name));
	return cli_dry_status(json_object_get(checked, "hibernate"));
}

/* False: the connection is lost, err. */
static bool check_one(struct cli *cli, const char *name, struct cli_tally *tally, struct tp_error *err)
{
	tp_autojson json_t *error = NULL, *checked = json_object(), *vm = NULL;

	vm = cli_conn_call(cli->conn, "query-vm", json_pack("{s:s}", "name", name), &error, err);
	if (!vm && error)
		cli_tally_add(tally, name, cli_error(name, error, false), error);
	if (!vm)
		return error != NULL;
	for (size_t i = 0; i < TP_N(abilities); i++) {
		json_t *dry = dry_run(cli, abilities[i].command, name, err);

		if (!dry)
			return false;
		tp_json_set(checked, abilities[i].name, dry);
	}
	if (!ask_lazy(cli, name, checked, err))
		return false;
	tp_json_set(checked, "state", json_incref(json_object_get(vm, "state")));
	tp_json_set(checked, "conditions", json_incref(json_object_get(vm, "conditions")));
	cli_tally_returned(tally, name, status_of(checked, tp_json_str(vm, "state")), checked);
	if (cli->format != CLI_F_JSON)
		show_checked(name, vm, checked);
	return true;
}

int cmd_check(struct cli *cli)
{
	struct cli_tally tally = { 0 };
	struct tp_error err = TP_ERROR_INIT;
	struct cli_names names;
	int status = cli_names(cli, &names);
	bool many = names.many;

	if (status == CLI_DONE)
		status = cli_online(cli);
	for (size_t i = 0; status == CLI_DONE && i < names.n; i++)
		if (!check_one(cli, names.names[i], &tally, &err))
			status = cli_unreachable(cli, &err);
	cli_names_free(&names);
	if (status == CLI_DONE)
		return cli_tally_end(cli, &tally, many);
	json_decref(tally.list);
	return status;
}
