/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_conn.c - A connection to torpord: one JSON object a line, requests with ids
 */
#include "cli_conn.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"

#define READ_SIZE 65536
#define SEND_LIMIT 30.0		/* seconds in which torpord must take a request */
#define CALL_ID (-1)		/* of cli_conn_call: others choose what is not negative */

/* @scanned: so many bytes of in hold no newline */
struct cli_conn {
	int fd;
	struct tp_buf in;
	size_t scanned;
};

char *cli_socket_path(const char *option)
{
	const char *variable = getenv("TORPOR_SOCKET"), *run = getenv("XDG_RUNTIME_DIR");
	char *path = NULL;
	int n;

	if (option)
		return strdup(option);
	if (variable && *variable)
		return strdup(variable);
	if (geteuid() == 0)
		return strdup("/run/torpor/torpor.sock");
	n = run && *run == '/' ? asprintf(&path, "%s/torpor/torpor.sock", run) :
	    asprintf(&path, "/run/user/%u/torpor/torpor.sock", (unsigned)geteuid());
	return n < 0 ? NULL : path;
}

void cli_conn_free(struct cli_conn *c)
{
	if (!c)
		return;
	tp_close(&c->fd);
	tp_buf_free(&c->in);
	free(c);
}

/* --- sending --- */

static bool wait_writable(int fd, double until, struct tp_error *err)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	double left = until - tp_now_mono();

	if (left <= 0)
		return tp_fail(err, TP_ETIMEOUT, "torpord does not read");
	if (poll(&p, 1, (int)ceil(left * 1000)) < 0 && errno != EINTR)
		return tp_fail_sys(err, errno, "waiting for torpord");
	return true;
}

static bool send_bytes(int fd, const char *data, size_t n, struct tp_error *err)
{
	double until = tp_now_mono() + SEND_LIMIT;

	while (n > 0) {
		ssize_t sent = send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent > 0) {
			data += sent;
			n -= (size_t)sent;
		} else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
			return tp_fail_sys(err, errno, "the connection to torpord is lost");
		} else if (!wait_writable(fd, until, err)) {
			return false;
		}
	}
	return true;
}

bool cli_conn_send(struct cli_conn *c, json_t *request_owned, struct tp_error *err)
{
	tp_autojson json_t *request = request_owned;
	tp_autofree char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;

	if (!text)
		return tp_fail(err, TP_EARG, "the request cannot be written as JSON");
	return send_bytes(c->fd, text, strlen(text), err) && send_bytes(c->fd, "\n", 1, err);
}

bool cli_conn_ask(struct cli_conn *c, json_int_t id, const char *command, json_t *arguments_owned,
		  struct tp_error *err)
{
	return cli_conn_send(c, json_pack("{s:s, s:o*, s:I}", "execute", command, "arguments",
					  arguments_owned, "id", id), err);
}

/* --- receiving --- */

/* 1: a line was taken out, *message is it; 0: there is none yet; -1: err. */
static int take_line(struct cli_conn *c, json_t **message, struct tp_error *err)
{
	char *end;
	size_t n;

	end = c->in.len > c->scanned ? memchr(c->in.data + c->scanned, '\n', c->in.len - c->scanned) : NULL;
	if (!end) {
		c->scanned = c->in.len;
		return 0;
	}
	n = (size_t)(end - c->in.data);
	*message = tp_json_parse(c->in.data, n, CLI_REPLY_DEPTH, err);
	tp_buf_drop(&c->in, n + 1);
	c->scanned = 0;
	if (json_is_object(*message))
		return 1;
	tp_fail(err, TP_EPROTO, "what was sent is no JSON object");
	tp_prefix(err, "torpord cannot be understood");
	json_decref(TP_STEAL(*message));
	return -1;
}

static bool receive(struct cli_conn *c, struct tp_error *err)
{
	ssize_t n;

	if (!tp_buf_reserve(&c->in, READ_SIZE))
		return tp_fail(err, TP_ELIMIT, "torpord sent more than %u MiB in one message", CLI_REPLY_MAX >> 20);
	n = recv(c->fd, c->in.data + c->in.len, READ_SIZE, MSG_DONTWAIT);
	if (n > 0) {
		c->in.len += (size_t)n;
		c->in.data[c->in.len] = 0;
		return true;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n < 0)
		return tp_fail_sys(err, errno, "the connection to torpord is lost");
	return tp_fail(err, TP_EPROTO, "torpord closed the connection");
}

static int poll_ms(double until)
{
	double left = until > 0 ? (until - tp_now_mono()) * 1000 : -1;

	if (until <= 0)
		return -1;
	return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)ceil(left);
}

enum cli_read cli_conn_read(struct cli_conn *c, double until, int other_fd, json_t **message,
			    struct tp_error *err)
{
	*message = NULL;
	for (;;) {
		struct pollfd p[2] = { { .fd = c->fd, .events = POLLIN }, { .fd = other_fd, .events = POLLIN } };
		int got = take_line(c, message, err), n;

		if (got != 0)
			return got > 0 ? CLI_MESSAGE : CLI_BROKEN;
		n = poll(p, 2, poll_ms(until));
		if (n < 0 && errno != EINTR) {
			tp_fail_sys(err, errno, "waiting for torpord");
			return CLI_BROKEN;
		}
		if (n > 0 && p[1].revents)
			return CLI_OTHER;
		if (n == 0)
			return CLI_LATE;
		if (n > 0 && !receive(c, err))
			return CLI_BROKEN;
	}
}

/* --- calls --- */

static bool is_answer(const json_t *message)
{
	const json_t *id = json_object_get(message, "id");

	return !json_object_get(message, "event") &&
	       (!id || (json_is_integer(id) && json_integer_value(id) == CALL_ID));
}

static json_t *await_answer(struct cli_conn *c, double limit, json_t **error, struct tp_error *err)
{
	double until = tp_now_mono() + limit;

	for (;;) {
		tp_autojson json_t *message = NULL;
		enum cli_read got = cli_conn_read(c, until, -1, &message, err);

		if (got == CLI_LATE)
			tp_fail(err, TP_ETIMEOUT, "torpord does not answer");
		if (got != CLI_MESSAGE)
			return NULL;
		if (!is_answer(message))
			continue;
		*error = json_incref(json_object_get(message, "error"));
		if (*error)
			return NULL;
		if (json_object_get(message, "return"))
			return json_incref(json_object_get(message, "return"));
		tp_fail(err, TP_EPROTO, "torpord cannot be understood: an answer without return and error");
		return NULL;
	}
}

json_t *cli_conn_call(struct cli_conn *c, const char *command, json_t *arguments_owned, json_t **error,
		      struct tp_error *err)
{
	*error = NULL;
	if (!cli_conn_ask(c, CALL_ID, command, arguments_owned, err))
		return NULL;
	return await_answer(c, CLI_CALL_LIMIT, error, err);
}

/* --- opening --- */

static bool negotiate(struct cli_conn *c, struct tp_error *err)
{
	tp_autojson json_t *greeting = NULL, *answer = NULL, *error = NULL;
	enum cli_read got = cli_conn_read(c, tp_now_mono() + CLI_GREETING_LIMIT, -1, &greeting, err);

	if (got == CLI_LATE)
		return tp_fail(err, TP_ETIMEOUT, "torpord does not answer");
	if (got != CLI_MESSAGE)
		return false;
	if (!json_is_object(json_object_get(greeting, "QMP")))
		return tp_fail(err, TP_EPROTO, "this is not torpord's socket: there is no greeting");
	if (!cli_conn_ask(c, CALL_ID, "qmp_capabilities", NULL, err))
		return false;
	answer = await_answer(c, CLI_GREETING_LIMIT, &error, err);
	if (error)
		tp_fail(err, TP_EPROTO, "torpord refuses the connection: %s",
			tp_json_str(error, "desc") ? tp_json_str(error, "desc") : "no reason given");
	return answer != NULL;
}

struct cli_conn *cli_conn_on(int fd, struct tp_error *err)
{
	struct cli_conn *c = calloc(1, sizeof(*c));

	if (!c) {
		tp_close(&fd);
		tp_fail_nomem(err);
		return NULL;
	}
	c->fd = fd;
	c->in.limit = CLI_REPLY_MAX;
	if (!negotiate(c, err)) {
		cli_conn_free(c);
		return NULL;
	}
	return c;
}

struct cli_conn *cli_conn_open(const char *path, struct tp_error *err)
{
	struct cli_conn *c;
	int fd = tp_connect_unix(path, false, err);

	if (fd < 0)
		return NULL;
	c = cli_conn_on(fd, err);
	if (!c)
		tp_prefix(err, "%s", path);
	return c;
}
