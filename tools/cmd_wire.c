/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_wire.c - Commands as they are: raw, monitor */
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "cli_out.h"
#include "cli_session.h"

#define DEPTH 64	/* levels that torpord takes */

/* NULL: text is no JSON object. */
static json_t *object_of(const char *text, struct tp_error *err)
{
	json_t *value = tp_json_parse(text, strlen(text), DEPTH, err);

	if (!value || json_is_object(value))
		return value;
	json_decref(value);
	tp_fail(err, TP_EARG, "not a JSON object");
	return NULL;
}

int cmd_raw(struct cli *cli)
{
	tp_autojson json_t *request = NULL, *arguments = NULL, *answer = NULL;
	const char *command = cli->operands[0];
	struct tp_error err = TP_ERROR_INIT;
	int status;

	if (*command == '{') {
		request = object_of(command, &err);
		command = tp_json_str(request, "execute");
		arguments = json_incref(json_object_get(request, "arguments"));
		if (!request || !command || cli->noperands > 1)
			return cli_usage(cli, "%s", err.code ? err.text : "a request has \"execute\" and no JSON besides");
	} else if (cli->noperands > 1) {
		arguments = object_of(cli->operands[1], &err);
		if (!arguments)
			return cli_usage(cli, "%s", err.text);
	}
	status = cli_ask(cli, command, json_incref(arguments), NULL, &answer);
	return status == CLI_DONE ? (int)cli_print_json(answer) : status;
}

int cmd_monitor(struct cli *cli)
{
	tp_autojson json_t *arguments = cli_arguments(cli, cli->operands[0]), *inner = NULL, *answer = NULL;
	struct tp_error err = TP_ERROR_INIT;
	int status;

	tp_json_set(arguments, "execute", json_string(cli->operands[1]));
	if (cli->noperands > 2) {
		inner = object_of(cli->operands[2], &err);
		if (!inner)
			return cli_usage(cli, "%s", err.text);
		tp_json_set(arguments, "arguments", json_incref(inner));
	}
	status = cli_ask(cli, cli->verb->command, json_incref(arguments), cli->operands[0], &answer);
	return status == CLI_DONE ? (int)cli_print_json(answer) : status;
}
