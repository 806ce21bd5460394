/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* qga_rig.h - A client, its agent and what the callbacks were told, for the tests here */
#ifndef QGA_RIG_H
#define QGA_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "fake/fake_agent.h"
#include "qmp/qga_client.h"

#define PATIENCE 60.0
#define SHORT 0.05
#define SYNC "guest-sync-delimited"

struct answer {
	unsigned calls;
	json_t *reply;
	bool agent_error;
	struct tp_error err;
};

struct rig {
	struct ev_loop *loop;
	struct ev_timer tick;
	struct fake_agent *agent;
	struct qga_client *client;
	struct answer a[32];
	unsigned closed, free_in_answer;
	bool free_on_close;
	struct tp_error why;
};

static inline void tick(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop;
	(void)w;
	(void)revents;
}

#define WAIT_FOR(rig, condition) do { \
	double wait_end_ = tp_now_mono() + PATIENCE; \
	while (!(condition)) { \
		assert_true(tp_now_mono() < wait_end_); \
		ev_run((rig)->loop, EVRUN_ONCE); \
	} \
} while (0)

static inline void drop_client(struct rig *r)
{
	qga_client_free(TP_STEAL(r->client));
}

static inline void closed(struct qga_client *c, const struct tp_error *why, void *arg)
{
	struct rig *r = arg;

	(void)c;
	r->closed++;
	r->why = *why;
	if (r->free_on_close)
		drop_client(r);
}

static const struct qga_client_ops ops = { .closed = closed };

static inline void answered(void *arg, const json_t *reply, const json_t *agent_error,
		     const struct tp_error *err)
{
	struct answer *a = arg;

	a->calls++;
	assert_true(!reply || !err);
	if (reply)
		a->reply = json_deep_copy(reply);
	if (err)
		a->err = *err;
	a->agent_error = agent_error != NULL;
}

static inline int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	int fd;

	assert_non_null(r);
	r->loop = ev_loop_new(0);
	ev_timer_init(&r->tick, tick, 0.01, 0.01);
	ev_timer_start(r->loop, &r->tick);
	r->agent = fake_agent_new(r->loop, &fd);
	fake_agent_on(r->agent, "guest-ping", "{\"return\": {}}");
	fake_agent_on(r->agent, "guest-fsfreeze-status", "{\"return\": \"thawed\"}");
	fake_agent_on(r->agent, "guest-fsfreeze-freeze", "{\"return\": 1}");
	fake_agent_on(r->agent, "guest-get-time", "{\"return\": 42}");
	fake_agent_on(r->agent, "guest-suspend-disk", NULL);
	r->client = qga_client_new(r->loop, &fd, "vm1", &ops, r);
	assert_non_null(r->client);
	*state = r;
	return 0;
}

static inline int teardown(void **state)
{
	struct rig *r = *state;

	qga_client_free(r->client);
	fake_agent_free(r->agent);
	ev_timer_stop(r->loop, &r->tick);
	ev_loop_destroy(r->loop);
	for (size_t i = 0; i < TP_N(r->a); i++)
		json_decref(r->a[i].reply);
	free(r);
	return 0;
}

static inline uint64_t ask(struct rig *r, enum qga_cmd cmd, unsigned slot, double limit)
{
	struct tp_error err = TP_ERROR_INIT;
	uint64_t id = qga_client_send(r->client, cmd, NULL, limit, answered, &r->a[slot], &err);

	if (!id)
		fail_msg("send: %s", err.text);
	return id;
}

static inline void check_time(const struct answer *a)
{
	assert_int_equal(a->calls, 1);
	assert_int_equal(json_integer_value(a->reply), 42);
}

static inline void check_unavailable(const struct answer *a)
{
	assert_int_equal(a->calls, 1);
	assert_string_equal(tp_error_class(&a->err), "AgentUnavailable");
	assert_int_equal(a->err.code, TP_ESTATE);
}

static inline void say(struct rig *r, const char *text)
{
	fake_agent_say(r->agent, text, strlen(text));
}

#define UNIT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
