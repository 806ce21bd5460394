/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_api.c - An engine without VMs, for tests of the API
 */
#include "fake/fake_api.h"

#include <dirent.h>
#include <errno.h>
#include <ev.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "engine/api_state.h"
#include "engine/engine_hooks.h"

struct torpor {
	struct ev_loop *loop;
	struct api_state *api;
};

void (*fake_verb)(struct api_call *call, const char *verb);
struct api_call *fake_kept[FAKE_KEPT_MAX];
size_t fake_nkept;

/* --- what the API needs of an engine --- */

struct api_state *engine_api(struct torpor *t)
{
	return t->api;
}

struct ev_loop *engine_loop(struct torpor *t)
{
	return t->loop;
}

json_t *engine_version_info(struct torpor *t)
{
	(void)t;
	return json_pack("{s:s, s:s, s:i, s:s}", "instance", "00000000-0000-0000-0000-000000000000",
			 "host", "fake", "pid", (int)getpid(), "started", "2026-01-01T00:00:00.000Z");
}

json_t *engine_host_info(struct torpor *t)
{
	(void)t;
	return json_pack("{s:b, s:{}, s:[], s:[]}", "draining", 0, "memory", "pools", "qemu");
}

static void answer(struct api_call *call, const char *verb)
{
	if (fake_verb)
		fake_verb(call, verb);
	else
		api_reply(call, json_pack("{s:s}", "verb", verb));
}

#define STAND_IN(name) void api_##name(struct api_call *call) { answer(call, #name); }
API_VERB_HANDLERS(STAND_IN)

void fake_keep(struct api_call *call, const char *verb)
{
	(void)verb;
	assert_true(fake_nkept < FAKE_KEPT_MAX);
	fake_kept[fake_nkept++] = call;
}

/* --- life --- */

struct torpor *fake_torpor_new(void)
{
	struct torpor *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	fake_verb = NULL;
	fake_nkept = 0;
	t->loop = ev_loop_new(EVFLAG_NOENV);
	assert_non_null(t->loop);
	t->api = api_state_new(t);
	assert_non_null(t->api);
	return t;
}

void fake_torpor_free(struct torpor *t)
{
	api_state_free(t->api);
	ev_loop_destroy(t->loop);
	free(t);
}

static void nothing(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents;
}

bool fake_run(struct torpor *t, bool (*done)(void *arg), void *arg)
{
	double end = tp_now_mono() + FAKE_LIMIT;
	struct ev_timer tick;

	ev_timer_init(&tick, nothing, 0.005, 0.005);
	ev_timer_start(t->loop, &tick);
	while (!done(arg) && tp_now_mono() < end)
		ev_run(t->loop, EVRUN_ONCE);
	ev_timer_stop(t->loop, &tick);
	return done(arg);
}

void fake_turn(struct torpor *t)
{
	ev_run(t->loop, EVRUN_NOWAIT);
}

void fake_settle(struct torpor *t)
{
	for (int i = 0; i < 20; i++)
		fake_turn(t);
}

/* --- peers --- */

void fake_peer_open(struct fake_peer *p, struct torpor *t, enum torpor_role role)
{
	int fds[2];

	memset(p, 0, sizeof(*p));
	assert_true(tp_socketpair(SOCK_STREAM, fds, NULL));
	p->t = t;
	p->fd = fds[0];
	assert_true(tp_set_nonblock(p->fd, true));
	assert_true(torpor_serve(t, fds[1], role, "a test", NULL, NULL));
}

void fake_peer_close(struct fake_peer *p)
{
	tp_close(&p->fd);
	tp_buf_free(&p->in);
	fake_settle(p->t);
}

void fake_peer_send_bytes(struct fake_peer *p, const void *data, size_t n)
{
	double end = tp_now_mono() + FAKE_LIMIT;
	const char *at = data;

	while (n > 0) {
		ssize_t sent = send(p->fd, at, n, MSG_NOSIGNAL);

		assert_true(tp_now_mono() < end);
		if (sent < 0) {
			assert_int_equal(errno, EAGAIN);
			ev_run(p->t->loop, EVRUN_NOWAIT);
			continue;
		}
		at += sent;
		n -= (size_t)sent;
	}
}

void fake_peer_send(struct fake_peer *p, const char *text)
{
	fake_peer_send_bytes(p, text, strlen(text));
}

static bool has_line(void *arg)
{
	struct fake_peer *p = arg;
	char buf[65536];
	ssize_t n;

	if (p->in.len && memchr(p->in.data, '\n', p->in.len))
		return true;
	if (p->eof)
		return true;
	n = recv(p->fd, buf, sizeof(buf), 0);
	if (n > 0)
		assert_true(tp_buf_add(&p->in, buf, (size_t)n));
	else if (n == 0 || errno != EAGAIN)
		p->eof = true;
	return p->eof || (p->in.len && memchr(p->in.data, '\n', p->in.len));
}

json_t *fake_peer_next(struct fake_peer *p)
{
	char *line_end;
	json_t *message;
	size_t n;

	if (!fake_run(p->t, has_line, p) || !p->in.len)
		return NULL;
	line_end = memchr(p->in.data, '\n', p->in.len);
	if (!line_end)
		return NULL;
	n = (size_t)(line_end - p->in.data) + 1;
	assert_true(n > 2 && line_end[-1] == '\r');
	message = json_loadb(p->in.data, n, 0, NULL);
	assert_non_null(message);
	tp_buf_drop(&p->in, n);
	return message;
}

void fake_peer_expect(struct fake_peer *p, const char *text)
{
	tp_autofree char *wanted = strdup(text), *got_text = NULL, *want_text = NULL;
	tp_autojson json_t *want = NULL, *got = NULL;

	for (char *c = wanted; *c; c++)
		*c = *c == '\'' ? '"' : *c == '`' ? '\'' : *c;
	want = json_loads(wanted, 0, NULL);
	assert_non_null(want);
	got = fake_peer_next(p);
	want_text = tp_json_text(want);
	got_text = got ? tp_json_text(got) : strdup("(nothing)");
	assert_string_equal(got_text, want_text);
}

bool fake_peer_ended(struct fake_peer *p)
{
	tp_autojson json_t *message = fake_peer_next(p);

	return !message && p->eof && p->in.len == 0;
}

void fake_peer_negotiate(struct fake_peer *p)
{
	tp_autojson json_t *greeting = fake_peer_next(p);

	assert_non_null(json_object_get(greeting, "QMP"));
	fake_peer_send(p, "{\"execute\": \"qmp_capabilities\"}");
	fake_peer_expect(p, "{'return': {}}");
}

size_t fake_open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}
