/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_client.c - One session on QEMU's monitor: commands, limits, life and end
 *
 * Theory of operation
 *
 *   GREETING -> NEGOTIATING -> READY -> ENDED
 *
 * Callbacks may free the client. Whoever comes from the loop holds a reference
 * and looks at the state after each callback; lists are emptied from the front,
 * so that an inner qmp_client_free finds them whole.
 */
#define QMP_CLIENT_PRIV
#include "qmp/qmp_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "qmp/qmp_client_priv.h"

TP_LOG_SOURCE("qmp.client");

#define NAME_LIMIT 128		/* of a user's command */

void qmp_client_ref(struct qmp_client *c)
{
	c->refs++;
}

void qmp_client_unref(struct qmp_client *c)
{
	if (--c->refs > 0)
		return;
	qmp_frame_free(&c->frame);
	json_decref(c->greeting);
	json_decref(c->no_data);
	free(c);
}

/* Nothing is read or written any more; all callbacks of commands are called with err. */
static void stop_session(struct qmp_client *c, const struct tp_error *err)
{
	c->state = SESSION_ENDED;
	ev_timer_stop(c->loop, &c->greeting_timer);
	qmp_stream_close(&c->stream);
	for (;;) {
		struct commands *list = c->flying.first ? &c->flying : &c->waiting;
		struct command *cmd = list->first;

		if (!cmd)
			return;
		qmp_commands_remove(list, cmd);
		qmp_command_answer(cmd, NULL, NULL, err);
		qmp_command_free(cmd);
	}
}

void qmp_client_end(struct qmp_client *c)
{
	struct tp_error why = c->end;

	if (c->state == SESSION_ENDED)
		return;
	tp_debug("monitor=%s session ends: %s", c->label, why.text);
	stop_session(c, &why);
	if (!c->freed && c->ops.closed)
		c->ops.closed(c, &why, c->arg);
}

static void on_greeting_limit(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct qmp_client *c = w->data;

	(void)loop;
	(void)revents;
	tp_fail_class(&c->end, TP_ETIMEOUT, "MonitorBusy",
		      "%s: the monitor is busy, another client holds it (no greeting within %g s)",
		      c->label, c->greeting_limit);
	qmp_client_ref(c);
	qmp_client_end(c);
	qmp_client_unref(c);
}

static void make_nonce(char nonce[NONCE_SIZE])
{
	uint64_t random;

	/* Not a secret: it must only differ from that of the session before. */
	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		random = tp_now_us() ^ (uint64_t)getpid() << 48;
	snprintf(nonce, NONCE_SIZE, "torpor-%016" PRIx64, random);
}

struct qmp_client *qmp_client_new(struct ev_loop *loop, int *fd, const char *label,
				  const struct qmp_client_ops *ops, void *arg)
{
	struct qmp_client *c = calloc(1, sizeof(*c));
	json_t *no_data = json_object();

	if (!c || !no_data) {
		json_decref(no_data);
		free(c);
		tp_close(fd);
		return NULL;
	}
	c->loop = loop;
	c->refs = 1;
	c->ops = *ops;
	c->arg = arg;
	c->no_data = no_data;
	snprintf(c->label, sizeof(c->label), "%s", label);
	make_nonce(c->nonce);
	qmp_frame_init(&c->frame, QMP_REPLY_LIMIT, QMP_DEPTH_LIMIT);
	qmp_stream_init(&c->stream, loop, fd, &qmp_client_stream_ops, c);
	ev_init(&c->greeting_timer, on_greeting_limit);
	c->greeting_timer.data = c;
	qmp_client_set_greeting_limit(c, QMP_GREETING_LIMIT);
	return c;
}

void qmp_client_free(struct qmp_client *c)
{
	struct tp_error cancelled = TP_ERROR_INIT;

	if (!c || c->freed)
		return;
	c->freed = true;
	tp_fail(&cancelled, TP_ECANCELLED, "%s: the monitor's session was given up", c->label);
	tp_fail(&c->end, TP_ECANCELLED, "%s", cancelled.text);
	stop_session(c, &cancelled);
	qmp_client_unref(c);
}

void qmp_client_set_greeting_limit(struct qmp_client *c, double seconds)
{
	c->greeting_limit = seconds;
	if (c->state == SESSION_GREETING)
		qmp_start_timer(c->loop, &c->greeting_timer, seconds);
}

/* Refuses what must not or cannot be queued. */
static bool check_send(const struct qmp_client *c, const char *name, const json_t *args,
		       struct tp_error *err)
{
	if (c->state == SESSION_ENDED)
		return tp_fail_class(err, c->end.code, tp_error_class(&c->end), "%s: %s", name,
				     c->end.text);
	if (args && !json_is_object(args))
		return tp_fail(err, TP_EARG, "arguments of %s must be an object", name);
	if (args && json_dumpb(args, NULL, 0, JSON_COMPACT) > QMP_MESSAGE_LIMIT / 2)
		return tp_fail(err, TP_ELIMIT, "arguments of %s are larger than %u bytes", name,
			       QMP_MESSAGE_LIMIT / 2);
	if (c->waiting.n >= QMP_QUEUE_LIMIT || c->flying.n >= QMP_QUEUE_LIMIT)
		return tp_fail(err, TP_ELIMIT, "%s: %s: %u commands wait already", c->label, name,
			       QMP_QUEUE_LIMIT);
	return true;
}

static uint64_t queue_command(struct qmp_client *c, enum qmp_cmd id, const char *name,
			      const json_t *args, int *fd, double limit, qmp_reply_fn fn, void *arg,
			      struct tp_error *err)
{
	struct command *cmd = NULL;

	if (check_send(c, name ? name : qmp_cmd_info(id)->name, args, err))
		cmd = qmp_command_new(c, id, name, args, err);
	if (!cmd)
		return 0;
	if (fd && *fd >= 0) {
		cmd->fd = TP_STEAL_FD(*fd);
		cmd->with_fd = true;
	}
	cmd->id = ++c->last_id;
	cmd->fn = fn;
	cmd->arg = arg;
	cmd->limit = limit > 0 ? limit : qmp_cmd_info(id)->limit;
	qmp_start_timer(c->loop, &cmd->timer, cmd->limit);
	qmp_commands_append(&c->waiting, cmd);
	qmp_stream_kick(&c->stream);
	return cmd->id;
}

uint64_t qmp_client_send_user(struct qmp_client *c, const char *execute, json_t *args_owned,
			      double limit, qmp_reply_fn fn, void *arg, struct tp_error *err)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	tp_autojson json_t *args = args_owned;
	size_t n = execute ? strlen(execute) : 0;

	if (n == 0 || n > NAME_LIMIT || strspn(execute, allowed) != n) {
		tp_fail(err, TP_EARG, "not the name of a QMP command");
		return 0;
	}
	return queue_command(c, QMP_USER, execute, args, NULL, limit, fn, arg, err);
}

uint64_t qmp_client_send(struct qmp_client *c, enum qmp_cmd cmd, json_t *args_owned, int *fd,
			 double limit, qmp_reply_fn fn, void *arg, struct tp_error *err)
{
	tp_autojson json_t *args = args_owned;
	tp_autoclose int taken = fd ? TP_STEAL_FD(*fd) : -1;

	if (!qmp_cmd_info(cmd)) {
		tp_fail(err, TP_EARG, "%d is no QMP command", (int)cmd);
		return 0;
	}
	if (cmd == QMP_USER)
		return qmp_client_send_user(c, tp_json_str(args, "execute"),
					    json_incref(json_object_get(args, "arguments")), limit,
					    fn, arg, err);
	return queue_command(c, cmd, NULL, args, &taken, limit, fn, arg, err);
}

void qmp_client_forget(struct qmp_client *c, uint64_t id)
{
	struct command *cmd = qmp_commands_find(&c->waiting, id);

	if (!cmd)
		cmd = qmp_commands_find(&c->flying, id);
	if (cmd)
		cmd->fn = NULL;
}

static void on_negotiated(void *arg, const json_t *reply, const json_t *qemu_error,
			  const struct tp_error *err)
{
	struct qmp_client *c = arg;

	(void)reply;
	(void)qemu_error;
	if (c->state != SESSION_NEGOTIATING)
		return;
	if (err) {
		c->end = *err;
		qmp_client_end(c);
		return;
	}
	c->state = SESSION_READY;
	tp_debug("monitor=%s ready oob=%d", c->label, c->oob);
	qmp_stream_kick(&c->stream);
	if (c->ops.ready)
		c->ops.ready(c, c->arg);
}

void qmp_client_negotiate(struct qmp_client *c)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *args = c->oob ? json_pack("{s:[s]}", "enable", "oob") : NULL;
	struct command *cmd = qmp_command_new(c, QMP_CAPABILITIES, NULL, args, &err);

	ev_timer_stop(c->loop, &c->greeting_timer);
	if (!cmd || (c->oob && !args)) {
		qmp_command_free(cmd);
		tp_fail_nomem(&c->end);
		qmp_client_end(c);
		return;
	}
	c->state = SESSION_NEGOTIATING;
	cmd->id = ++c->last_id;
	cmd->fn = on_negotiated;
	cmd->arg = c;
	cmd->limit = c->greeting_limit;
	qmp_start_timer(c->loop, &cmd->timer, cmd->limit);
	cmd->next = c->waiting.first;
	c->waiting.first = cmd;
	c->waiting.n++;
	qmp_stream_kick(&c->stream);
}

bool qmp_client_is_ready(const struct qmp_client *c)
{
	return c->state == SESSION_READY;
}

bool qmp_client_has_oob(const struct qmp_client *c)
{
	return c->state == SESSION_READY && c->oob;
}

const json_t *qmp_client_greeting(const struct qmp_client *c)
{
	return c->greeting;
}

void qmp_client_version(const struct qmp_client *c, int *major, int *minor, int *micro)
{
	const json_t *qemu = c->greeting ? tp_json_path(c->greeting, "version.qemu") : NULL;

	*major = (int)tp_json_int(qemu, "major", 0);
	*minor = (int)tp_json_int(qemu, "minor", 0);
	*micro = (int)tp_json_int(qemu, "micro", 0);
}

const struct qmp_client_stats *qmp_client_stats(const struct qmp_client *c)
{
	return &c->stats;
}
