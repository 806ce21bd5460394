/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qga_client.c - The guest agent's channel
 *
 * Theory of operation
 *
 *            first command          sync answered            written
 *   IDLE --------------------> SYNCING ----------> IDLE ---------------> SENT
 *     ^  (or straight to SENT while the channel is in step)               |
 *     +--------------- reply, limit, or a forgotten no_reply -------------+
 *
 * The agent works on what it reads in order and answers without ids, maybe long
 * after we gave up, maybe to our next connection. What makes an answer ours is
 * only that it comes after the answer to our sync, which a 0xFF byte marks and
 * whose number nobody else knows. So:
 *
 *   - while syncing all up to a 0xFF is thrown away unparsed, then one object is
 *     looked at: our number, or an older sync's, which is dropped;
 *   - after anything but a reply in good order the channel is out of step;
 *   - our own 0xFF costs one error reply about a stray character, before the
 *     sync's answer; such an error is never taken for the reply of a command;
 *   - a message of which a part was written is cut off: the 0xFF of the next sync
 *     makes the agent forget that part, so the command is known not to have run.
 */
#include "qmp/qga_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "qmp/qmp_frame.h"
#include "qmp/qmp_stream.h"

TP_LOG_SOURCE("qmp.agent");

#define LABEL_SIZE 80
#define TRACE_BYTES 1000
#define DELIMITER 0xff

enum phase { QGA_IDLE, QGA_SYNCING, QGA_SENT };

struct agent_command {
	struct agent_command *next;
	struct qga_client *client;
	uint64_t id;
	enum qga_cmd cmd;
	char *args;		/* JSON text, or NULL */
	qmp_reply_fn fn;	/* NULL once called, or where nobody asks */
	void *arg;
	double limit;
	struct ev_timer timer;
};

struct qga_client {
	struct ev_loop *loop;
	unsigned refs;			/* the owner, and each callback from the loop */
	bool freed, ended;
	char label[LABEL_SIZE];
	struct qga_client_ops ops;
	void *arg;
	struct qmp_stream stream;
	struct qmp_frame frame;
	enum phase phase;		/* of the first command */
	bool in_step;			/* the next object is the reply to the next command */
	bool delimited;			/* the next object comes right after a 0xFF */
	int64_t sync_number;
	double sync_limit;
	struct ev_timer sync_timer;
	struct agent_command *first;
	unsigned n;
	uint64_t last_id, dropped;
	struct tp_error end;
};

static void ref(struct qga_client *c)
{
	c->refs++;
}

static void unref(struct qga_client *c)
{
	if (--c->refs > 0)
		return;
	qmp_frame_free(&c->frame);
	free(c);
}

static const char *command_name(const struct agent_command *cmd)
{
	return qga_cmd_info(cmd->cmd)->name;
}

/* Takes the command out of the queue, calls its callback, frees it. Needs a reference to c. */
static void finish(struct qga_client *c, struct agent_command *cmd, const json_t *reply,
		   const json_t *agent_error, const struct tp_error *err)
{
	struct agent_command **at = &c->first;

	while (*at != cmd)
		at = &(*at)->next;
	if (cmd == c->first) {
		c->phase = QGA_IDLE;
		ev_timer_stop(c->loop, &c->sync_timer);
	}
	*at = cmd->next;
	c->n--;
	ev_timer_stop(c->loop, &cmd->timer);
	qmp_stream_kick(&c->stream);
	if (cmd->fn)
		cmd->fn(cmd->arg, reply, agent_error, err);
	free(cmd->args);
	free(cmd);
}

/* Whether the agent can have got the whole command. */
static bool was_sent(const struct qga_client *c, const struct agent_command *cmd)
{
	return cmd == c->first && c->phase == QGA_SENT && qmp_stream_is_idle(&c->stream);
}

/* The first command is given up: what is left of its message is not written any more. */
static void cut_off(struct qga_client *c)
{
	qmp_stream_drop(&c->stream);
	c->in_step = false;
}

static void stop_session(struct qga_client *c, bool by_peer, const struct tp_error *why)
{
	struct agent_command *cmd;

	c->ended = true;
	ev_timer_stop(c->loop, &c->sync_timer);
	while ((cmd = c->first)) {
		struct tp_error err = *why;
		bool sent = was_sent(c, cmd);

		if (sent && by_peer && qga_cmd_info(cmd->cmd)->no_reply) {
			finish(c, cmd, NULL, NULL, NULL);
			continue;
		}
		if (sent && err.code != TP_ECANCELLED)
			err.code = TP_ETIMEOUT;
		finish(c, cmd, NULL, NULL, &err);
	}
	qmp_stream_close(&c->stream);
}

static void end_session(struct qga_client *c, bool by_peer)
{
	struct tp_error why = c->end;

	if (c->ended)
		return;
	tp_debug("agent=%s session ends: %s", c->label, why.text);
	stop_session(c, by_peer, &why);
	if (!c->freed && c->ops.closed)
		c->ops.closed(c, &why, c->arg);
}

/* ---- writing ---- */

static bool put_sync(struct qga_client *c)
{
	char text[128];
	uint64_t random;
	int n;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		random = tp_now_us() << 20 ^ c->last_id;
	c->sync_number = (int64_t)(random >> 1);
	c->delimited = false;
	n = snprintf(text, sizeof(text),
		     "%c{\"execute\":\"%s\",\"arguments\":{\"id\":%" PRId64 "}}\n", DELIMITER,
		     qga_cmd_info(QGA_SYNC_DELIMITED)->name, c->sync_number);
	return qmp_stream_put(&c->stream, text, (size_t)n, NULL);
}

static bool put_command(struct qga_client *c, const struct agent_command *cmd)
{
	tp_autobuf struct tp_buf text = TP_BUF_INIT(QMP_MESSAGE_LIMIT);
	bool ok;

	if (cmd->args)
		ok = tp_buf_printf(&text, "{\"execute\":\"%s\",\"arguments\":%s}\n",
				   command_name(cmd), cmd->args);
	else
		ok = tp_buf_printf(&text, "{\"execute\":\"%s\"}\n", command_name(cmd));
	if (!ok)
		return false;
	tp_trace("agent=%s > %s %.*s", c->label, command_name(cmd), TRACE_BYTES,
		 cmd->args ? cmd->args : "{}");
	return qmp_stream_put(&c->stream, text.data, text.len, NULL);
}

static void on_idle(void *arg)
{
	struct qga_client *c = arg;
	bool ok;

	if (!c->first || c->phase != QGA_IDLE)
		return;
	if (c->in_step) {
		c->phase = QGA_SENT;
		ok = put_command(c, c->first);
	} else {
		c->phase = QGA_SYNCING;
		qmp_start_timer(c->loop, &c->sync_timer, c->sync_limit);
		ok = put_sync(c);
	}
	if (!ok)
		qmp_stream_fail(&c->stream, ENOMEM);
}

/* ---- reading ---- */

/* The agent's complaint about our 0xFF. */
static bool is_stray_complaint(const json_t *error)
{
	const char *desc = tp_json_str(error, "desc");

	return desc && strncmp(desc, "JSON parse error", 16) == 0
		&& (strstr(desc, "\\uFFFD") || strstr(desc, "\xef\xbf\xbd"));
}

static void got_reply(struct qga_client *c, const json_t *object)
{
	struct agent_command *cmd = c->first;
	const json_t *error = json_object_get(object, "error");
	const char *desc = tp_json_str(error, "desc");
	struct tp_error err = TP_ERROR_INIT;

	if (!error) {
		finish(c, cmd, json_object_get(object, "return"), NULL, NULL);
		return;
	}
	tp_fail_class(&err, TP_EQMP, "AgentError", "%s: %s", command_name(cmd),
		      desc ? desc : "an error without a description");
	finish(c, cmd, NULL, error, &err);
}

static void got_object(struct qga_client *c, const json_t *object)
{
	const json_t *error = json_object_get(object, "error");
	const json_t *result = json_object_get(object, "return");
	bool delimited = c->delimited;

	c->delimited = false;
	if (c->phase == QGA_SYNCING && delimited && qmp_stream_is_idle(&c->stream)
	    && json_is_integer(result) && json_integer_value(result) == c->sync_number) {
		ev_timer_stop(c->loop, &c->sync_timer);
		c->in_step = true;
		c->phase = QGA_IDLE;
		qmp_stream_kick(&c->stream);
		return;
	}
	if (c->phase == QGA_SENT && !delimited && (result || error) && !is_stray_complaint(error)
	    && qmp_stream_is_idle(&c->stream)) {
		got_reply(c, object);
		return;
	}
	if (c->phase == QGA_IDLE)
		c->in_step = false;
	c->dropped++;
	tp_debug("agent=%s dropped an answer that nobody waits for", c->label);
}

static void trace_object(const struct qga_client *c, const json_t *object)
{
	tp_autofree char *text = tp_log_wants(TP_LOG_TRACE) ? tp_json_text(object) : NULL;

	if (text)
		tp_trace("agent=%s < %.*s", c->label, TRACE_BYTES, text);
}

static enum qmp_frame_result feed(struct qga_client *c, const char **data, size_t *n)
{
	tp_autojson json_t *object = NULL;
	struct tp_error err = TP_ERROR_INIT;
	enum qmp_frame_result result;

	if (c->phase == QGA_SYNCING && !c->delimited) {
		const char *mark = memchr(*data, DELIMITER, *n);
		size_t skip = mark ? (size_t)(mark - *data) : *n;

		*data += skip;
		*n -= skip;
	}
	result = qmp_frame_feed(&c->frame, data, n, &object, &err);
	switch (result) {
	case QMP_FRAME_OBJECT:
		trace_object(c, object);
		got_object(c, object);
		break;
	case QMP_FRAME_RESET:
		c->delimited = true;
		break;
	case QMP_FRAME_BAD:
		c->delimited = false;
		c->dropped++;
		tp_debug("agent=%s dropped: %s", c->label, err.text);
		break;
	case QMP_FRAME_LIMIT:
		tp_fail_class(&c->end, TP_EPROTO, "AgentError", "%s: guest agent: %s", c->label,
			      err.text);
		end_session(c, false);
		break;
	case QMP_FRAME_MORE:
		break;
	}
	return result;
}

static void on_data(void *arg, const char *data, size_t n)
{
	struct qga_client *c = arg;

	ref(c);
	while (!c->ended && feed(c, &data, &n) != QMP_FRAME_MORE)
		;
	unref(c);
}

static void on_ended(void *arg, int sys)
{
	struct qga_client *c = arg;

	if (sys)
		tp_fail_class(&c->end, TP_ESTATE, "AgentUnavailable", "%s: guest agent: %s",
			      c->label, strerror(sys));
	else
		tp_fail_class(&c->end, TP_ESTATE, "AgentUnavailable",
			      "%s: the guest agent's channel was closed", c->label);
	ref(c);
	end_session(c, sys == 0);
	unref(c);
}

static const struct qmp_stream_ops stream_ops = {
	.data = on_data,
	.idle = on_idle,
	.ended = on_ended,
};

/* ---- limits ---- */

static void on_sync_limit(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct qga_client *c = w->data;
	struct tp_error err = TP_ERROR_INIT;

	(void)loop;
	(void)revents;
	tp_fail_class(&err, TP_ESTATE, "AgentUnavailable",
		      "%s: the guest agent did not answer within %g s, %s was not sent", c->label,
		      c->sync_limit, command_name(c->first));
	ref(c);
	cut_off(c);
	finish(c, c->first, NULL, NULL, &err);
	unref(c);
}

static void on_limit(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct agent_command *cmd = w->data;
	struct qga_client *c = cmd->client;
	struct tp_error err = TP_ERROR_INIT;

	(void)loop;
	(void)revents;
	if (was_sent(c, cmd))
		tp_fail(&err, TP_ETIMEOUT, "%s: the guest agent did not answer %s within %g s",
			c->label, command_name(cmd), cmd->limit);
	else
		tp_fail_class(&err, TP_ESTATE, "AgentUnavailable",
			      "%s: %s could not be sent to the guest agent within %g s", c->label,
			      command_name(cmd), cmd->limit);
	ref(c);
	if (cmd == c->first && c->phase != QGA_IDLE)
		cut_off(c);
	finish(c, cmd, NULL, NULL, &err);
	unref(c);
}

/* ---- for the owner ---- */

struct qga_client *qga_client_new(struct ev_loop *loop, int *fd, const char *label,
				  const struct qga_client_ops *ops, void *arg)
{
	struct qga_client *c = calloc(1, sizeof(*c));

	if (!c) {
		tp_close(fd);
		return NULL;
	}
	c->loop = loop;
	c->refs = 1;
	c->ops = *ops;
	c->arg = arg;
	c->sync_limit = QGA_SYNC_LIMIT;
	snprintf(c->label, sizeof(c->label), "%s", label);
	qmp_frame_init(&c->frame, QGA_REPLY_LIMIT, QMP_DEPTH_LIMIT);
	qmp_stream_init(&c->stream, loop, fd, &stream_ops, c);
	ev_init(&c->sync_timer, on_sync_limit);
	c->sync_timer.data = c;
	return c;
}

void qga_client_free(struct qga_client *c)
{
	struct tp_error cancelled = TP_ERROR_INIT;

	if (!c || c->freed)
		return;
	c->freed = true;
	tp_fail(&cancelled, TP_ECANCELLED, "%s: the guest agent's session was given up", c->label);
	tp_fail(&c->end, TP_ECANCELLED, "%s", cancelled.text);
	stop_session(c, false, &cancelled);
	unref(c);
}

static bool check_send(const struct qga_client *c, enum qga_cmd cmd, const json_t *args,
		       struct tp_error *err)
{
	const struct qga_cmd_info *info = qga_cmd_info(cmd);

	if (!info || cmd == QGA_SYNC_DELIMITED)
		return tp_fail(err, TP_EARG, "%d is no guest agent command", (int)cmd);
	if (c->ended)
		return tp_fail_class(err, c->end.code, tp_error_class(&c->end), "%s: %s",
				     info->name, c->end.text);
	if (args && !json_is_object(args))
		return tp_fail(err, TP_EARG, "arguments of %s must be an object", info->name);
	if (args && json_dumpb(args, NULL, 0, JSON_COMPACT) > QMP_MESSAGE_LIMIT / 2)
		return tp_fail(err, TP_ELIMIT, "arguments of %s are larger than %u bytes",
			       info->name, QMP_MESSAGE_LIMIT / 2);
	if (c->n >= QGA_QUEUE_LIMIT)
		return tp_fail(err, TP_ELIMIT, "%s: %s: %u commands wait for the guest agent already",
			       c->label, info->name, QGA_QUEUE_LIMIT);
	return true;
}

uint64_t qga_client_send(struct qga_client *c, enum qga_cmd cmd, json_t *args_owned, double limit,
			 qmp_reply_fn fn, void *arg, struct tp_error *err)
{
	tp_autojson json_t *args = args_owned;
	struct agent_command **at = &c->first, *made;

	if (!check_send(c, cmd, args, err))
		return 0;
	made = calloc(1, sizeof(*made));
	if (!made || (args && !(made->args = tp_json_text(args)))) {
		free(made);
		tp_fail_nomem(err);
		return 0;
	}
	made->client = c;
	made->id = ++c->last_id;
	made->cmd = cmd;
	made->fn = fn;
	made->arg = arg;
	made->limit = limit > 0 ? limit : qga_cmd_info(cmd)->limit;
	ev_init(&made->timer, on_limit);
	made->timer.data = made;
	qmp_start_timer(c->loop, &made->timer, made->limit);
	while (*at)
		at = &(*at)->next;
	*at = made;
	c->n++;
	qmp_stream_kick(&c->stream);
	return made->id;
}

void qga_client_forget(struct qga_client *c, uint64_t id)
{
	struct agent_command *cmd = c->first;

	while (cmd && cmd->id != id)
		cmd = cmd->next;
	if (!cmd)
		return;
	cmd->fn = NULL;
	if (was_sent(c, cmd) && !qga_cmd_info(cmd->cmd)->no_reply)
		return;
	if (cmd == c->first && c->phase != QGA_IDLE)
		cut_off(c);
	finish(c, cmd, NULL, NULL, NULL);
}

void qga_client_desync(struct qga_client *c)
{
	c->in_step = false;
	if (c->phase != QGA_SYNCING)
		return;
	/* The answer on its way is the former guest's. */
	ev_timer_stop(c->loop, &c->sync_timer);
	qmp_stream_drop(&c->stream);
	c->phase = QGA_IDLE;
	qmp_stream_kick(&c->stream);
}

void qga_client_set_sync_limit(struct qga_client *c, double seconds)
{
	c->sync_limit = seconds;
}

uint64_t qga_client_dropped(const struct qga_client *c)
{
	return c->dropped;
}

bool qga_client_busy(const struct qga_client *c)
{
	return c->first != NULL;
}
