/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_life.c - Verbs that are one command for each name: start, hibernate, pause, image rm, ... */
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "cli_each.h"
#include "cli_follow.h"
#include "cli_out.h"
#include "cli_session.h"

static void sync_answer(struct cli *cli, const char *name, const json_t *answer, void *arg)
{
	const json_t *error = json_object_get(answer, "error"), *value = json_object_get(answer, "return");
	struct cli_tally *tally = arg;

	if (error) {
		cli_tally_add(tally, name, cli_refusal(cli, error, cli_error(name, error, false)), error);
		return;
	}
	cli_tally_add(tally, name, CLI_DONE, value);
	if (cli->quiet || cli->format == CLI_F_JSON)
		return;
	if (tp_json_bool(value, "unchanged", false))
		cli_say("%s: nothing to do", name);
	else
		cli_say("%s: %s", name, cli->verb->done);
}

static int sync_each(struct cli *cli, const char *command, const char *member, const json_t *arguments)
{
	struct cli_tally tally = { 0 };
	struct cli_names names;
	int status = cli_names(cli, &names);
	bool many = names.many;

	if (status == CLI_DONE)
		status = cli_each(cli, command, arguments, member, &names, sync_answer, &tally);
	cli_names_free(&names);
	if (status == CLI_DONE)
		return cli_tally_end(cli, &tally, many);
	json_decref(tally.list);
	return status;
}

int cmd_sync(struct cli *cli)
{
	tp_autojson json_t *arguments = cli_arguments(cli, NULL);

	if (strcmp(cli->verb->command, "vm-resolve") == 0) {
		tp_json_set(arguments, "owner", json_string(cli->operands[1]));
		cli->noperands = 1;
	}
	return sync_each(cli, cli->verb->command, "name", arguments);
}

int cmd_op_sync(struct cli *cli)
{
	tp_autojson json_t *arguments = json_object();

	return sync_each(cli, cli->verb->command, "id", arguments);
}

int cmd_image_rm(struct cli *cli)
{
	tp_autojson json_t *arguments = cli_arguments(cli, NULL);

	for (size_t i = 0; i < cli->noperands; i++)
		if (strchr(cli->operands[i], '/'))
			return cli_usage(cli, "\"%.100s\" is a file; images are deleted by their id (torpor image ls)",
					 cli->operands[i]);
	return sync_each(cli, cli->verb->command, "image", arguments);
}

int cmd_operation(struct cli *cli)
{
	tp_autojson json_t *arguments = cli_arguments(cli, NULL);
	struct cli_names names;
	int status = cli_names(cli, &names);

	if (status == CLI_DONE)
		status = cli_operate(cli, cli->verb->command, arguments, &names);
	cli_names_free(&names);
	return status;
}

int cmd_stop(struct cli *cli)
{
	static const char *const not_forced[] = { "timeout", "busy", "dry-run", "detach", "on-timeout" };
	const struct cli_verb *quit;
	char *words[] = { (char []){ "quit" } };
	size_t taken;

	if (!cli_flag(cli, "force"))
		return cmd_operation(cli);
	for (size_t i = 0; i < TP_N(not_forced); i++)
		if (json_object_get(cli->options, not_forced[i]))
			return cli_usage(cli, "--force and --%s do not go together", not_forced[i]);
	quit = cli_find(words, 1, &taken);
	cli->verb = quit;
	return cmd_sync(cli);
}
