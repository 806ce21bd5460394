/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_client_io.c - One session on QEMU's monitor: what is written and what is read
 *
 * Theory of operation
 *
 * Writing: QEMU keeps up to eight in-band commands and stops reading then, so
 * no more than QMP_IN_FLIGHT are written before answers; an out-of-band command
 * passes those that wait. A descriptor that QEMU received with one command is
 * picked up by the next that wants one, whoever sent it: a command with a
 * descriptor is therefore alone on the wire from its first byte to its reply.
 *
 * Reading: an object is what its keys say. A reply is believed only with an id
 * of the present session, of a command that is wholly written and not answered yet:
 * QEMU delivers to us what a former client did not read.
 */
#define QMP_CLIENT_PRIV
#include "qmp/qmp_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "qmp/qmp_client_priv.h"

TP_LOG_SOURCE("qmp.client");

#define TRACE_BYTES 2000	/* of one message in a trace line */
#define ID_SIZE (NONCE_SIZE + 24)

static void trace(const struct qmp_client *c, const char *way, const json_t *message)
{
	tp_autofree char *text = NULL;

	if (!tp_log_wants(TP_LOG_TRACE))
		return;
	text = tp_json_text(message);
	tp_trace("monitor=%s %s %.*s", c->label, way, TRACE_BYTES, text ? text : "?");
}

/* ---- writing ---- */

static unsigned in_band_flying(const struct qmp_client *c)
{
	unsigned n = 0;

	for (const struct command *cmd = c->flying.first; cmd; cmd = cmd->next)
		n += !(cmd->oob && c->oob);
	return n;
}

static bool fd_flying(const struct qmp_client *c)
{
	const struct command *cmd = c->flying.first;

	while (cmd && !cmd->with_fd)
		cmd = cmd->next;
	return cmd != NULL;
}

/* The command to be written now, or NULL. */
static struct command *next_command(const struct qmp_client *c)
{
	struct command *cmd = c->waiting.first;

	if (!cmd || fd_flying(c))
		return NULL;
	if (c->state != SESSION_READY)
		return c->state == SESSION_NEGOTIATING && cmd->cmd == QMP_CAPABILITIES ? cmd : NULL;
	if (c->oob)
		for (struct command *any = cmd; any; any = any->next)
			if (any->oob && !any->with_fd)
				return any;
	if (cmd->with_fd)
		return c->flying.n == 0 ? cmd : NULL;
	return in_band_flying(c) < QMP_IN_FLIGHT ? cmd : NULL;
}

static bool put_command(struct qmp_client *c, struct command *cmd)
{
	tp_autobuf struct tp_buf text = TP_BUF_INIT(QMP_MESSAGE_LIMIT);
	const char *how = cmd->oob && c->oob ? "exec-oob" : "execute";
	const char *name = qmp_command_name(cmd), *args = cmd->args ? cmd->args : "{}";

	if (!tp_buf_printf(&text, "{\"%s\":\"%s\",\"arguments\":%s,\"id\":\"%s-%" PRIu64 "\"}\r\n",
			   how, name, args, c->nonce, cmd->id))
		return false;
	tp_trace("monitor=%s > %s %s %.*s%s", c->label, how, name, TRACE_BYTES,
		 qmp_cmd_info(cmd->cmd)->secret ? "(masked)" : args,
		 cmd->with_fd ? " with a descriptor" : "");
	return qmp_stream_put(&c->stream, text.data, text.len, &cmd->fd);
}

static void on_idle(void *arg)
{
	struct qmp_client *c = arg;
	struct command *cmd = next_command(c);

	if (!cmd)
		return;
	if (!put_command(c, cmd)) {
		qmp_stream_fail(&c->stream, ENOMEM);
		return;
	}
	qmp_commands_remove(&c->waiting, cmd);
	qmp_commands_append(&c->flying, cmd);
	c->writing = cmd;
	c->stats.sent++;
}

/* ---- reading ---- */

static void got_greeting(struct qmp_client *c, json_t *greeting)
{
	const json_t *name;
	size_t i;

	if (c->state != SESSION_GREETING || !json_is_object(greeting)) {
		c->stats.stray++;
		return;
	}
	c->greeting = json_incref(greeting);
	json_array_foreach(json_object_get(greeting, "capabilities"), i, name) {
		if (json_is_string(name) && strcmp(json_string_value(name), "oob") == 0)
			c->oob = true;
	}
	qmp_client_negotiate(c);
}

static void got_event(struct qmp_client *c, const json_t *object)
{
	const json_t *data = json_object_get(object, "data");
	const char *name = tp_json_str(object, "event");

	c->stats.events++;
	trace(c, "<", object);
	if (c->ops.event)
		c->ops.event(c, name, json_is_object(data) ? data : c->no_data, c->arg);
}

/* The flying command whose id this is, or NULL. */
static struct command *command_of_id(const struct qmp_client *c, const char *id)
{
	struct command *cmd = c->flying.first;
	char text[ID_SIZE];

	for (; id && cmd; cmd = cmd->next) {
		snprintf(text, sizeof(text), "%s-%" PRIu64, c->nonce, cmd->id);
		if (strcmp(text, id) == 0)
			break;
	}
	if (!id || (cmd == c->writing && !qmp_stream_is_idle(&c->stream)))
		return NULL;
	return cmd;
}

static void error_of_qemu(const struct command *cmd, const json_t *error, struct tp_error *err)
{
	const char *desc = tp_json_str(error, "desc");

	tp_fail_class(err, TP_EQMP, "QemuError", "%s: %s", qmp_command_name(cmd),
		      desc ? desc : "an error without a description");
}

static void got_reply(struct qmp_client *c, const json_t *object)
{
	const json_t *error = json_object_get(object, "error");
	struct command *cmd = command_of_id(c, tp_json_str(object, "id"));
	const struct qmp_cmd_info *info;
	struct tp_error err = TP_ERROR_INIT;

	if (!cmd) {
		c->stats.stray++;
		tp_debug("monitor=%s dropped a reply that nobody waits for", c->label);
		return;
	}
	info = qmp_cmd_info(cmd->cmd);
	if (c->frame.scanned > info->reply_max) {
		tp_fail_class(&c->end, TP_EPROTO, "IOError",
			      "%s: the reply to %s has %zu bytes, more than %zu", c->label,
			      qmp_command_name(cmd), c->frame.scanned, info->reply_max);
		qmp_client_end(c);
		return;
	}
	if (info->secret)
		tp_trace("monitor=%s < reply to %s (masked)", c->label, qmp_command_name(cmd));
	else
		trace(c, "<", object);
	if (cmd->fn || ev_is_active(&cmd->timer))
		c->stats.replies++;
	else
		c->stats.stray++;
	qmp_commands_remove(&c->flying, cmd);
	qmp_stream_kick(&c->stream);
	if (error) {
		error_of_qemu(cmd, error, &err);
		qmp_command_answer(cmd, NULL, error, &err);
	} else {
		qmp_command_answer(cmd, json_object_get(object, "return"), NULL, NULL);
	}
	qmp_command_free(cmd);
}

static void got_object(struct qmp_client *c, const json_t *object)
{
	if (json_is_string(json_object_get(object, "event")))
		got_event(c, object);
	else if (json_object_get(object, "QMP"))
		got_greeting(c, json_object_get(object, "QMP"));
	else if (json_object_get(object, "return") || json_object_get(object, "error"))
		got_reply(c, object);
	else
		c->stats.stray++;
}

static void on_data(void *arg, const char *data, size_t n)
{
	struct qmp_client *c = arg;
	enum qmp_frame_result result = QMP_FRAME_OBJECT;

	qmp_client_ref(c);
	while (c->state != SESSION_ENDED && result != QMP_FRAME_MORE) {
		tp_autojson json_t *object = NULL;
		struct tp_error err = TP_ERROR_INIT;

		result = qmp_frame_feed(&c->frame, &data, &n, &object, &err);
		if (result == QMP_FRAME_OBJECT) {
			got_object(c, object);
		} else if (result == QMP_FRAME_LIMIT) {
			tp_fail_class(&c->end, TP_EPROTO, "IOError", "%s: monitor: %s", c->label,
				      err.text);
			qmp_client_end(c);
		} else if (result != QMP_FRAME_MORE) {
			c->stats.junk++;
			tp_debug("monitor=%s dropped: %s", c->label,
				 result == QMP_FRAME_BAD ? err.text : "0xff");
		}
	}
	qmp_client_unref(c);
}

static void on_ended(void *arg, int sys)
{
	struct qmp_client *c = arg;

	if (sys)
		tp_fail_sys(&c->end, sys, "%s: monitor", c->label);
	else
		tp_fail_class(&c->end, TP_ESYS, "QemuExited", "%s: QEMU closed its monitor%s",
			      c->label, c->state == SESSION_GREETING ? " before its greeting"
			      : qmp_frame_partial(&c->frame) ? " in the middle of a message" : "");
	qmp_client_ref(c);
	qmp_client_end(c);
	qmp_client_unref(c);
}

const struct qmp_stream_ops qmp_client_stream_ops = {
	.data = on_data,
	.idle = on_idle,
	.ended = on_ended,
};
