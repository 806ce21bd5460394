/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_command.c - One session on QEMU's monitor: a command from its making to its answer
 *
 * Theory of operation
 *
 * A command lives in `waiting` until its text is given to the stream, then in
 * `flying` until its reply comes. A time-out calls the callback but leaves a
 * flying command where it is: QEMU still works on it, its slot is taken, and
 * its late reply has to be recognised. Only a command of which no byte has left
 * is taken back.
 */
#define QMP_CLIENT_PRIV
#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "qmp/qmp_client_priv.h"

const char *qmp_command_name(const struct command *cmd)
{
	return cmd->name ? cmd->name : qmp_cmd_info(cmd->cmd)->name;
}

void qmp_command_free(struct command *cmd)
{
	if (!cmd)
		return;
	ev_timer_stop(cmd->client->loop, &cmd->timer);
	tp_close(&cmd->fd);
	free(cmd->name);
	free(cmd->args);
	free(cmd);
}

void qmp_commands_append(struct commands *list, struct command *cmd)
{
	struct command **at = &list->first;

	while (*at)
		at = &(*at)->next;
	*at = cmd;
	list->n++;
}

void qmp_commands_remove(struct commands *list, struct command *cmd)
{
	struct command **at = &list->first;

	while (*at != cmd)
		at = &(*at)->next;
	*at = cmd->next;
	cmd->next = NULL;
	list->n--;
}

struct command *qmp_commands_find(const struct commands *list, uint64_t id)
{
	struct command *cmd = list->first;

	while (cmd && cmd->id != id)
		cmd = cmd->next;
	return cmd;
}

void qmp_command_answer(struct command *cmd, const json_t *reply, const json_t *qemu_error,
			const struct tp_error *err)
{
	qmp_reply_fn fn = TP_STEAL(cmd->fn);

	ev_timer_stop(cmd->client->loop, &cmd->timer);
	if (fn)
		fn(cmd->arg, reply, qemu_error, err);
}

/* Whether no byte of the command has left; what is in the stream is then taken back. */
static bool take_back(struct qmp_client *c, struct command *cmd)
{
	if (qmp_commands_find(&c->waiting, cmd->id)) {
		qmp_commands_remove(&c->waiting, cmd);
		return true;
	}
	if (c->writing != cmd || qmp_stream_is_idle(&c->stream) || qmp_stream_written(&c->stream))
		return false;
	qmp_stream_drop(&c->stream);
	qmp_commands_remove(&c->flying, cmd);
	return true;
}

static void on_limit(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct command *cmd = w->data;
	struct qmp_client *c = cmd->client;
	bool unsent = take_back(c, cmd);
	struct tp_error err = TP_ERROR_INIT;

	(void)loop;
	(void)revents;
	tp_fail(&err, TP_ETIMEOUT, "%s: %s %s within %g s", c->label, qmp_command_name(cmd),
		unsent ? "could not be sent" : "was not answered", cmd->limit);
	qmp_client_ref(c);
	/* Before the callback: it may free the client and with it what is still in a list. */
	if (unsent) {
		qmp_stream_kick(&c->stream);
		qmp_command_answer(cmd, NULL, NULL, &err);
		qmp_command_free(cmd);
	} else {
		qmp_command_answer(cmd, NULL, NULL, &err);
	}
	qmp_client_unref(c);
}

struct command *qmp_command_new(struct qmp_client *c, enum qmp_cmd id, const char *name,
				const json_t *args, struct tp_error *err)
{
	struct command *cmd = calloc(1, sizeof(*cmd));

	if (!cmd) {
		tp_fail_nomem(err);
		return NULL;
	}
	cmd->client = c;
	cmd->cmd = id;
	cmd->fd = -1;
	cmd->oob = qmp_cmd_info(id)->oob;
	ev_init(&cmd->timer, on_limit);
	cmd->timer.data = cmd;
	if ((name && !(cmd->name = strdup(name)))
	    || (args && !(cmd->args = tp_json_text(args)))) {
		tp_fail_nomem(err);
		qmp_command_free(cmd);
		return NULL;
	}
	return cmd;
}
