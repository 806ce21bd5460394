/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_each.c - The same command for several names at once */
#include "cli_each.h"

#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "cli_out.h"

#define WINDOW 32	/* torpord reads no further once 64 requests of a connection are unanswered */

struct each {
	struct cli *cli;
	const char *command, *member;
	const json_t *arguments;
	const struct cli_names *names;
	json_t *answers;	/* by name */
	size_t sent, answered;
};

static bool send_next(struct each *e, struct tp_error *err)
{
	json_t *arguments = json_copy((json_t *)e->arguments);

	tp_json_set(arguments, e->member, json_string(e->names->names[e->sent]));
	return cli_conn_ask(e->cli->conn, (json_int_t)e->sent++, e->command, arguments, err);
}

static void take(struct each *e, json_t *message)
{
	int64_t id = tp_json_int(message, "id", -1);
	const char *name;

	if (json_object_get(message, "event") || id < 0 || (uint64_t)id >= e->sent)
		return;
	name = e->names->names[id];
	if (json_object_get(e->answers, name))
		return;
	tp_json_set(e->answers, name, json_incref(message));
	e->answered++;
}

static bool exchange(struct each *e, struct tp_error *err)
{
	double until = tp_now_mono() + CLI_CALL_LIMIT;

	while (e->answered < e->names->n) {
		tp_autojson json_t *message = NULL;

		if (e->sent < e->names->n && e->sent - e->answered < WINDOW) {
			if (!send_next(e, err))
				return false;
			continue;
		}
		switch (cli_conn_read(e->cli->conn, until, -1, &message, err)) {
		case CLI_MESSAGE:
			take(e, message);
			until = tp_now_mono() + CLI_CALL_LIMIT;
			break;
		case CLI_BROKEN:
			return false;
		default:
			return tp_fail(err, TP_ETIMEOUT, "torpord does not answer");
		}
	}
	return true;
}

int cli_each(struct cli *cli, const char *command, const json_t *arguments, const char *member,
	     const struct cli_names *names, cli_each_fn fn, void *arg)
{
	tp_autojson json_t *answers = json_object();
	struct each e = { .cli = cli, .command = command, .member = member, .arguments = arguments,
			  .names = names, .answers = answers };
	struct tp_error err = TP_ERROR_INIT;
	int status = cli_online(cli);

	if (status != CLI_DONE)
		return status;
	if (!exchange(&e, &err))
		return cli_unreachable(cli, &err);
	for (size_t i = 0; i < names->n; i++)
		fn(cli, names->names[i], json_object_get(answers, names->names[i]), arg);
	return CLI_DONE;
}

/* --- shown --- */

struct showing {
	struct cli_tally tally;
	void (*show)(struct cli *cli, const json_t *value);
	size_t shown;
};

static void show_answer(struct cli *cli, const char *name, const json_t *answer, void *arg)
{
	const json_t *error = json_object_get(answer, "error"), *value = json_object_get(answer, "return");
	struct showing *s = arg;

	if (error) {
		cli_tally_add(&s->tally, name, cli_refusal(cli, error, cli_error(name, error, false)), error);
		return;
	}
	cli_tally_add(&s->tally, name, CLI_DONE, value);
	if (cli->format == CLI_F_JSON)
		return;
	if (s->shown++)
		cli_say("%s", "");
	s->show(cli, value);
}

int cli_each_show(struct cli *cli, const char *member, void (*show)(struct cli *cli, const json_t *value))
{
	tp_autojson json_t *arguments = json_object();
	struct showing s = { .show = show };
	struct cli_names names;
	int status = cli_names(cli, &names);
	bool many = names.many;

	if (status == CLI_DONE)
		status = cli_each(cli, cli->verb->command, arguments, member, &names, show_answer, &s);
	cli_names_free(&names);
	if (status == CLI_DONE)
		return cli_tally_end(cli, &s.tally, many);
	json_decref(s.tally.list);
	return status;
}
