/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* qmp_rig.h - A client, its scripted monitor and what the callbacks were told, for the tests here */
#ifndef QMP_RIG_H
#define QMP_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <ev.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_error.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "fake/fake_monitor.h"
#include "qmp/qmp_client.h"

#define PATIENCE 60.0	/* seconds until a test gives up; sanitizers and valgrind are slow */
#define SHORT 0.05	/* a limit that is meant to be reached */

/* What one reply callback got. */
struct answer {
	unsigned calls;
	json_t *reply;
	bool qemu_error;
	struct tp_error err;
};

struct rig {
	struct ev_loop *loop;
	struct ev_timer tick;
	struct fake_monitor *monitor;
	struct qmp_client *client;
	unsigned ready, closed, events, replies_at_close;
	struct answer a[400];
	char last_event[64], event_order[512];
	json_t *last_data;
	struct tp_error why;
	bool free_on_event, free_on_ready, free_on_close;
};

static void rig_tick(struct ev_loop *loop, struct ev_timer *w, int revents)
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

static inline void rig_drop_client(struct rig *r)
{
	qmp_client_free(TP_STEAL(r->client));
}

static void rig_ready(struct qmp_client *c, void *arg)
{
	struct rig *r = arg;

	assert_true(qmp_client_is_ready(c));
	r->ready++;
	if (r->free_on_ready)
		rig_drop_client(r);
}

static void rig_event(struct qmp_client *c, const char *name, const json_t *data, void *arg)
{
	struct rig *r = arg;

	(void)c;
	assert_true(json_is_object(data));
	r->events++;
	snprintf(r->last_event, sizeof(r->last_event), "%s", name);
	if (strlen(r->event_order) + strlen(name) + 2 < sizeof(r->event_order)) {
		strcat(r->event_order, name);
		strcat(r->event_order, " ");
	}
	json_decref(r->last_data);
	r->last_data = json_deep_copy(data);
	if (r->free_on_event)
		rig_drop_client(r);
}

static void rig_closed(struct qmp_client *c, const struct tp_error *why, void *arg)
{
	struct rig *r = arg;

	(void)c;
	r->closed++;
	r->why = *why;
	r->replies_at_close = 0;
	for (size_t i = 0; i < TP_N(r->a); i++)
		r->replies_at_close += r->a[i].calls;
	if (r->free_on_close)
		rig_drop_client(r);
}

static const struct qmp_client_ops rig_ops = {
	.ready = rig_ready, .event = rig_event, .closed = rig_closed,
};

/* Reply callback: arg is the struct answer. */
static void answered(void *arg, const json_t *reply, const json_t *qemu_error,
		     const struct tp_error *err)
{
	struct answer *a = arg;

	a->calls++;
	assert_true((reply != NULL) != (err != NULL));
	if (reply)
		a->reply = json_deep_copy(reply);
	if (err)
		a->err = *err;
	a->qemu_error = qemu_error != NULL;
}

static inline int rig_setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	int fd;

	assert_non_null(r);
	r->loop = ev_loop_new(0);
	assert_non_null(r->loop);
	ev_timer_init(&r->tick, rig_tick, 0.01, 0.01);
	ev_timer_start(r->loop, &r->tick);
	r->monitor = fake_monitor_new(r->loop, &fd);
	r->client = qmp_client_new(r->loop, &fd, "vm1", &rig_ops, r);
	assert_non_null(r->client);
	assert_int_equal(fd, -1);
	*state = r;
	return 0;
}

static inline int rig_teardown(void **state)
{
	struct rig *r = *state;

	qmp_client_free(r->client);
	fake_monitor_free(r->monitor);
	ev_timer_stop(r->loop, &r->tick);
	ev_loop_destroy(r->loop);
	json_decref(r->last_data);
	for (size_t i = 0; i < TP_N(r->a); i++)
		json_decref(r->a[i].reply);
	free(r);
	return 0;
}

static inline void check_script(const struct rig *r)
{
	const char *problem = fake_monitor_problem(r->monitor);

	if (problem)
		fail_msg("monitor: %s", problem);
}

static inline uint64_t ask(struct rig *r, enum qmp_cmd cmd, unsigned slot, double limit)
{
	struct tp_error err = TP_ERROR_INIT;
	uint64_t id = qmp_client_send(r->client, cmd, NULL, NULL, limit, answered, &r->a[slot], &err);

	if (!id)
		fail_msg("send: %s", err.text);
	assert_int_equal(r->a[slot].calls, 0);
	return id;
}

static inline void check_status(const struct answer *a, const char *status)
{
	assert_int_equal(a->calls, 1);
	assert_non_null(a->reply);
	assert_string_equal(tp_json_str(a->reply, "status"), status);
}

#define UNIT(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

#endif
