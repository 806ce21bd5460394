/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_session.c - A connection: bytes to requests, messages to lines
 *
 * Theory of operation
 *
 *   OPEN    reads requests, as long as fewer than API_OUTSTANDING_MAX of them wait for an answer;
 *           what was read beyond that stays in `in`, and nothing more is read. A turn of the loop
 *           executes a few only, so that others get theirs.
 *   ENDING  the peer has closed its sending side: what is outstanding is still answered. Whether
 *           it has closed the other side, too, no read tells any more: the timer asks.
 *   LAST    a request went beyond a limit: one error goes out, then our sending side is closed.
 *   DRAIN   input is thrown away until the peer has closed, for a few seconds: closing a UNIX
 *           socket with unread input would make the peer lose our error.
 *   DEAD    freed by the next turn of the loop, so that whoever made it so may go on.
 *
 * Output is appended to a buffer and written when the socket takes it. A peer
 * that lets more than API_OUT_MAX wait is dropped.
 *
 * Descriptors belong to the request in whose bytes they came. The kernel never
 * glues bytes behind a message with descriptors to it, so they are kept while
 * the object that they came with is not complete, are taken by the next getfd
 * and closed when no input is left that could be one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_text.h"
#include "engine/api.h"
#include "engine/api_priv.h"
#include "engine/engine_hooks.h"
#include "qmp/qmp_frame.h"

TP_LOG_SOURCE("api.session");

#define IN_SIZE 8192			/* bytes of one read */
#define OUT_KEEP 65536			/* a larger buffer is given back when it is empty */
#define REQUESTS_PER_TURN 16		/* of one connection in one turn of the loop */
#define HANGUP_INTERVAL 1.0		/* seconds between looks while nothing is read */
#define DRAIN_LIMIT 5.0			/* seconds */
#define RESET_BYTE 0xff

enum session_state { OPEN, ENDING, LAST, DRAIN, DEAD };

struct api_session {
	struct api_state *api;
	struct api_session *next, **prev;
	struct torpor_client *client;
	struct ev_loop *loop;
	enum session_state state;
	int fd;
	char peer[64];
	struct ev_io reader, writer;
	struct ev_timer timer;		/* looks for a hang-up; in LAST and DRAIN the limit */
	struct ev_timer more;		/* goes on with `in` in the next turn */
	struct ev_timer kick;		/* never started: fed to the loop */
	bool stalled;			/* `in` waits for answers to what is outstanding */
	struct qmp_frame frame;
	size_t in_at, in_len;
	int fds[TP_MAX_FDS];		/* came, not taken yet */
	size_t nfds;
	struct tp_buf out;
	size_t out_at;			/* sent already */
	void (*closed)(void *arg);
	void *closed_arg;
	char in[IN_SIZE];
};

size_t api_session_backlog(const struct api_session *s)
{
	return s->out.len - s->out_at;
}

static void close_fds(struct api_session *s)
{
	while (s->nfds > 0)
		tp_close(&s->fds[--s->nfds]);
}

/* --- state and watchers --- */

static bool wants_input(const struct api_session *s)
{
	if (s->state == OPEN)
		return s->in_at == s->in_len && s->client->outstanding < API_OUTSTANDING_MAX;
	return s->state == LAST || s->state == DRAIN;
}

static void watch(struct api_session *s)
{
	bool reads = wants_input(s);

	if (reads)
		ev_io_start(s->loop, &s->reader);
	else
		ev_io_stop(s->loop, &s->reader);
	if (s->state != DEAD && api_session_backlog(s) > 0)
		ev_io_start(s->loop, &s->writer);
	else
		ev_io_stop(s->loop, &s->writer);
	if (s->state == LAST || s->state == DRAIN)
		return;
	if (!reads && s->state != DEAD) {
		if (!ev_is_active(&s->timer)) {
			ev_timer_set(&s->timer, HANGUP_INTERVAL, HANGUP_INTERVAL);
			ev_timer_start(s->loop, &s->timer);
		}
	} else {
		ev_timer_stop(s->loop, &s->timer);
	}
}

static void kick(struct api_session *s)
{
	ev_feed_event(s->loop, &s->kick, EV_CUSTOM);
}

static void set_state(struct api_session *s, enum session_state state, const char *why)
{
	static const char *const names[] = { "open", "ending", "last", "drain", "dead" };

	if (s->state == state || s->state == DEAD)
		return;
	tp_debug("connection of %s: %s -> %s: %s", s->peer, names[s->state], names[state], why);
	s->state = state;
	if (state == LAST || state == DRAIN) {
		ev_timer_stop(s->loop, &s->timer);
		ev_timer_set(&s->timer, DRAIN_LIMIT, 0);
		ev_timer_start(s->loop, &s->timer);
	}
	if (state == DEAD)
		kick(s);
	watch(s);
}

static void session_free(struct api_session *s)
{
	ev_io_stop(s->loop, &s->reader);
	ev_io_stop(s->loop, &s->writer);
	ev_timer_stop(s->loop, &s->timer);
	ev_timer_stop(s->loop, &s->more);
	ev_clear_pending(s->loop, &s->kick);
	torpor_client_free(s->client);
	*s->prev = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->api->nsessions--;
	close_fds(s);
	qmp_frame_free(&s->frame);
	tp_buf_free(&s->out);
	tp_close(&s->fd);
	free(s);
}

/* --- output --- */

static int append(const char *text, size_t n, void *arg)
{
	return tp_buf_add(arg, text, n) ? 0 : -1;
}

/* One message as a line behind what waits; false: not possible, nothing is added. */
static bool add_line(struct api_session *s, const json_t *message)
{
	size_t before = s->out.len;

	if (json_dump_callback(message, append, &s->out, JSON_ENSURE_ASCII) == 0 &&
	    s->out.len - before <= API_REPLY_MAX && tp_buf_adds(&s->out, "\r\n"))
		return true;
	s->out.len = before;
	if (s->out.data)
		s->out.data[before] = 0;
	return false;
}

/* The client's torpor_message_fn. */
static void session_message(void *arg, const json_t *message)
{
	struct api_session *s = arg;

	if (s->state >= LAST)
		return;
	if (s->out_at > s->out.len / 2) {
		tp_buf_drop(&s->out, s->out_at);
		s->out_at = 0;
	}
	if (!add_line(s, message)) {
		tp_autojson json_t *instead = NULL;
		struct tp_error err = TP_ERROR_INIT;

		tp_fail_class(&err, TP_ELIMIT, "GenericError",
			      "the reply is larger than %u MiB; ask for less, with limit and after",
			      API_REPLY_MAX >> 20);
		instead = api_error_message(&err, NULL, json_object_get(message, "id"));
		if (!add_line(s, instead)) {
			set_state(s, DEAD, "no memory for a message");
			return;
		}
	}
	if (api_session_backlog(s) > API_OUT_MAX) {
		tp_warn("connection of %s dropped: it does not read, %zu bytes wait for it", s->peer,
			api_session_backlog(s));
		set_state(s, DEAD, "does not read");
		return;
	}
	watch(s);
	if (s->state == ENDING || s->stalled)
		kick(s);
}

/* Sends what the socket takes. False: it is broken. */
static bool send_some(struct api_session *s)
{
	while (api_session_backlog(s) > 0) {
		ssize_t n = send(s->fd, s->out.data + s->out_at, api_session_backlog(s),
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK;
		s->out_at += (size_t)n;
	}
	tp_buf_drop(&s->out, s->out.len);
	s->out_at = 0;
	if (s->out.cap > OUT_KEEP) {
		size_t limit = s->out.limit;

		tp_buf_free(&s->out);
		s->out.limit = limit;
	}
	return true;
}

/* What an empty buffer means in each state. */
static void all_sent(struct api_session *s)
{
	if (s->state == ENDING && s->client->outstanding == 0) {
		set_state(s, DEAD, "all answered");
	} else if (s->state == LAST) {
		shutdown(s->fd, SHUT_WR);
		set_state(s, DRAIN, "error sent");
	} else if (s->state == OPEN) {
		api_event_tell_lost(s->client);
	}
}

static void writable(struct ev_loop *loop, struct ev_io *w, int revents)
{
	struct api_session *s = w->data;

	(void)loop;
	(void)revents;
	if (!send_some(s)) {
		set_state(s, DEAD, strerror(errno));
		return;
	}
	if (api_session_backlog(s) == 0)
		all_sent(s);
	watch(s);
}

/* --- input --- */

static void session_execute(struct api_session *s, json_t *object_owned)
{
	const char *name = tp_json_str(object_owned, "execute");
	size_t n = name && strcmp(name, "getfd") == 0 ? s->nfds : 0;

	s->nfds -= n;
	torpor_execute(s->client, object_owned, s->fds, n);
	json_decref(object_owned);
}

static void session_bad(struct api_session *s, const char *text)
{
	struct tp_error err = TP_ERROR_INIT;

	if (strncmp(text, "input must", 10) == 0)
		tp_fail_class(&err, TP_EPROTO, "GenericError", "QMP %s", text);
	else
		tp_fail_class(&err, TP_EPROTO, "GenericError", "JSON parse error, %s", text);
	api_client_bad(s->client, &err);
}

/* Beyond a limit: one error without id, and nothing after it. */
static void session_limit(struct api_session *s, const struct tp_error *limit)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *message = NULL;

	tp_fail_class(&err, TP_ELIMIT, "GenericError", "%s; the connection is closed", limit->text);
	message = api_error_message(&err, NULL, NULL);
	session_message(s, message);
	set_state(s, LAST, limit->text);
}

/* How much to feed at once: up to a reset byte, or this byte alone. */
static size_t portion(const char *data, size_t n)
{
	const char *reset = memchr(data, RESET_BYTE, n);

	if (!reset)
		return n;
	return reset == data ? 1 : (size_t)(reset - data);
}

static void process_one(struct api_session *s)
{
	const char *data = s->in + s->in_at;
	size_t n = portion(data, s->in_len - s->in_at);
	bool partial = qmp_frame_partial(&s->frame);
	struct tp_error err = TP_ERROR_INIT;
	json_t *object = NULL;
	enum qmp_frame_result result = qmp_frame_feed(&s->frame, &data, &n, &object, &err);

	s->in_at = (size_t)(data - s->in);
	switch (result) {
	case QMP_FRAME_MORE:
		break;
	case QMP_FRAME_OBJECT:
		session_execute(s, object);
		break;
	case QMP_FRAME_RESET:
		if (partial)
			session_bad(s, "incomplete object before a reset byte");
		break;
	case QMP_FRAME_BAD:
		session_bad(s, err.text);
		break;
	case QMP_FRAME_LIMIT:
		session_limit(s, &err);
		break;
	}
}

static void process(struct api_session *s)
{
	unsigned n = 0;

	s->stalled = false;
	while (s->state == OPEN && s->in_at < s->in_len) {
		s->stalled = s->client->outstanding >= API_OUTSTANDING_MAX;
		if (s->stalled)
			break;
		if (n++ == REQUESTS_PER_TURN) {
			ev_timer_start(s->loop, &s->more);
			break;
		}
		process_one(s);
	}
	if (s->state != OPEN)
		s->in_at = s->in_len;
	if (s->in_at == s->in_len && !qmp_frame_partial(&s->frame))
		close_fds(s);
	watch(s);
}

static void end_of_input(struct api_session *s)
{
	if (s->state != OPEN) {
		set_state(s, DEAD, "closed by the peer");
		return;
	}
	if (qmp_frame_partial(&s->frame))
		session_bad(s, "the input ends within an object");
	set_state(s, ENDING, "the peer has closed its sending side");
	kick(s);
}

static void readable(struct ev_loop *loop, struct ev_io *w, int revents)
{
	struct api_session *s = w->data;
	size_t nfds = TP_MAX_FDS - s->nfds;
	ssize_t n;

	(void)loop;
	(void)revents;
	n = tp_recv_fds(s->fd, s->in, sizeof(s->in), s->fds + s->nfds, &nfds);
	if (n < 0) {
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			set_state(s, DEAD, strerror(errno));
		return;
	}
	s->nfds += nfds;
	if (n == 0) {
		end_of_input(s);
		return;
	}
	s->in_at = 0;
	s->in_len = (size_t)n;
	process(s);
}

static void kicked(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct api_session *s = w->data;
	void (*closed)(void *arg) = s->closed;
	void *arg = s->closed_arg;

	(void)loop;
	(void)revents;
	if (s->state == OPEN)
		process(s);
	else if (s->state == ENDING && api_session_backlog(s) == 0)
		all_sent(s);
	if (s->state != DEAD)
		return;
	session_free(s);
	if (closed)
		closed(arg);
}

static void go_on(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	process(w->data);
}

static void timed(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct api_session *s = w->data;
	struct pollfd p = { .fd = s->fd };

	(void)loop;
	(void)revents;
	if (s->state == LAST || s->state == DRAIN)
		set_state(s, DEAD, "the peer does not close");
	else if (poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)))
		set_state(s, DEAD, "closed by the peer");
}

/* --- making and ending --- */

static bool is_socket(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

static void session_link(struct api_session *s, struct api_state *api)
{
	s->api = api;
	s->next = api->sessions;
	s->prev = &api->sessions;
	if (s->next)
		s->next->prev = &s->next;
	api->sessions = s;
	api->nsessions++;
}

bool torpor_serve(struct torpor *t, int fd, enum torpor_role role, const char *peer,
		  void (*closed)(void *arg), void *arg)
{
	struct api_session *s = is_socket(fd) && tp_set_nonblock(fd, true) ? calloc(1, sizeof(*s)) : NULL;
	tp_autojson json_t *greeting = NULL;

	if (!s || !(s->client = api_client_new(t, role, session_message, s))) {
		free(s);
		tp_close(&fd);
		return false;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	s->fd = fd;
	s->loop = engine_loop(t);
	s->closed = closed;
	s->closed_arg = arg;
	snprintf(s->peer, sizeof(s->peer), "%s", peer ? peer : "a client");
	tp_text_clean(s->peer);
	/* Half may be sent already, and a reply is measured when it is written out. */
	s->out.limit = 3 * (size_t)API_OUT_MAX;
	qmp_frame_init(&s->frame, API_REQUEST_MAX, API_REQUEST_DEPTH);
	ev_io_init(&s->reader, readable, fd, EV_READ);
	ev_io_init(&s->writer, writable, fd, EV_WRITE);
	ev_init(&s->timer, timed);
	ev_timer_init(&s->more, go_on, 0, 0);
	ev_init(&s->kick, kicked);
	s->reader.data = s->writer.data = s->timer.data = s->more.data = s->kick.data = s;
	session_link(s, engine_api(t));
	greeting = api_greeting();
	session_message(s, greeting);
	tp_debug("connection of %s, role %s", s->peer, api_role_name(role));
	return true;
}

size_t torpor_connections(const struct torpor *t)
{
	struct api_state *api = engine_api((struct torpor *)t);

	return api ? api->nsessions : 0;
}

void api_sessions_free(struct api_state *api)
{
	while (api->sessions) {
		send_some(api->sessions);
		session_free(api->sessions);
	}
}
