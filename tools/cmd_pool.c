/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_pool.c - pool define: a folder becomes a pool */
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "cli_out.h"
#include "cli_session.h"

int cmd_pool_define(struct cli *cli)
{
	tp_autojson json_t *answer = NULL, *arguments = cli_arguments(cli, NULL);
	const char *name = cli->operands[0];
	int status;

	tp_json_set_str(arguments, "name", name);
	tp_json_set(arguments, "path", cli_absolute(cli->operands[1]));
	status = cli_ask(cli, cli->verb->command, json_incref(arguments), name, &answer);
	if (status != CLI_DONE)
		return status;
	if (cli->format == CLI_F_JSON)
		return cli_print_json(answer);
	if (!cli->quiet)
		cli_say("%s: defined", name);
	return cli_flush();
}
