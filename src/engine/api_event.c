/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_event.c - Events to clients: filters, sequence numbers, lost ones, the pace of progress
 *
 * Each connection has its own sequence, which rises by one with each event that
 * passes its filter; so a gap always means loss, never a filter. A connection
 * whose backlog is large gets no more events for a while; their number follows
 * as EVENTS_LOST when the backlog is gone.
 *
 * Progress: per operation, the first event goes out at once, later ones are kept
 * (the newest only) until a second has passed. Anything else that the operation
 * tells is newer than what is kept, so that is dropped.
 */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/api_priv.h"
#include "engine/engine_hooks.h"

TP_LOG_SOURCE("api.event");

/* --- filters --- */

void api_filter_free(struct api_filter *f)
{
	json_decref(f->events);
	json_decref(f->vms);
	f->events = f->vms = NULL;
}

/* A list of names as a set; NULL for no list. False: too long. */
static bool name_set(const json_t *list, json_t **set)
{
	size_t i;
	json_t *name;

	*set = NULL;
	if (!list)
		return true;
	if (json_array_size(list) > API_FILTER_MAX)
		return false;
	*set = json_object();
	json_array_foreach(list, i, name)
		tp_json_set(*set, json_string_value(name), json_true());
	return true;
}

void api_event_filter(struct api_call *call)
{
	struct torpor_client *c = api_client(call);
	const json_t *args = api_args(call);
	struct api_filter f = { .progress = tp_json_bool(args, "progress", true) };
	struct tp_error err = TP_ERROR_INIT;

	if (!name_set(json_object_get(args, "events"), &f.events) ||
	    !name_set(json_object_get(args, "vms"), &f.vms)) {
		api_filter_free(&f);
		tp_fail(&err, TP_EARG, "a filter may name at most %d events and VMs", API_FILTER_MAX);
		api_error(call, &err, NULL);
		return;
	}
	api_filter_free(&c->filter);
	c->filter = f;
	api_reply(call, NULL);
}

static bool passes(const struct torpor_client *c, const char *event, const char *vm, bool progress)
{
	const struct api_filter *f = &c->filter;

	if (!c->negotiated || !c->wants_events || c->role < TORPOR_ROLE_READ)
		return false;
	if (progress && !f->progress)
		return false;
	if (f->events ? !json_object_get(f->events, event) : strcmp(event, "QEMU_EVENT") == 0)
		return false;
	return !vm || !f->vms || json_object_get(f->vms, vm);
}

/* --- sending --- */

static void send_event(struct torpor_client *c, const char *event, const json_t *data)
{
	uint64_t now = tp_now_us();
	json_t *copy = json_copy((json_t *)data), *message;

	tp_json_set(copy, "seq", json_integer((json_int_t)++c->seq));
	message = json_pack("{s:s, s:o, s:{s:I, s:I}}", "event", event, "data", copy, "timestamp",
			    "seconds", (json_int_t)(now / 1000000), "microseconds",
			    (json_int_t)(now % 1000000));
	if (message)
		api_client_send(c, message);
	else
		c->lost++;
}

void api_event_tell_lost(struct torpor_client *c)
{
	json_t *data;

	if (c->lost == 0)
		return;
	data = json_pack("{s:I}", "count", (json_int_t)c->lost);
	c->lost = 0;
	send_event(c, "EVENTS_LOST", data);
	json_decref(data);
}

static void broadcast(struct api_state *api, const char *event, const char *vm, bool progress,
		      const json_t *data)
{
	struct torpor_client *c, *next;

	for (c = api->clients; c; c = next) {
		next = c->next;
		if (!passes(c, event, vm, progress))
			continue;
		if (c->direct && api_session_backlog(c->arg) > API_OUT_EVENTS_MAX) {
			c->lost++;
			c->seq++;
			continue;
		}
		api_event_tell_lost(c);
		send_event(c, event, data);
	}
}

/* --- the pace of progress --- */

struct api_progress {
	struct api_state *api;
	struct api_progress *next, **prev;
	struct ev_timer timer;		/* runs for a second after each event that was sent */
	json_t *pending;
	char vm[TP_NAME_MAX + 1];
	char op[];
};

static void progress_free(struct api_progress *p)
{
	ev_timer_stop(engine_loop(p->api->t), &p->timer);
	*p->prev = p->next;
	if (p->next)
		p->next->prev = p->prev;
	json_decref(p->pending);
	free(p);
}

void api_progress_free(struct api_state *api)
{
	while (api->progress)
		progress_free(api->progress);
}

static void progress_due(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct api_progress *p = w->data;
	tp_autojson json_t *data = TP_STEAL(p->pending);

	(void)revents;
	if (!data) {
		progress_free(p);
		return;
	}
	ev_timer_set(w, API_PROGRESS_INTERVAL, 0);
	ev_timer_start(loop, w);
	broadcast(p->api, "OPERATION", *p->vm ? p->vm : NULL, true, data);
}

static struct api_progress *progress_find(struct api_state *api, const char *op)
{
	for (struct api_progress *p = api->progress; p; p = p->next)
		if (strcmp(p->op, op) == 0)
			return p;
	return NULL;
}

/* Begins the second in which nothing more is sent for this operation. */
static void progress_begin(struct api_state *api, const char *op, const char *vm)
{
	struct api_progress *p = calloc(1, sizeof(*p) + strlen(op) + 1);

	if (!p)
		return;
	memcpy(p->op, op, strlen(op) + 1);
	snprintf(p->vm, sizeof(p->vm), "%s", vm ? vm : "");
	p->api = api;
	p->next = api->progress;
	p->prev = &api->progress;
	if (p->next)
		p->next->prev = &p->next;
	api->progress = p;
	ev_timer_init(&p->timer, progress_due, API_PROGRESS_INTERVAL, 0);
	p->timer.data = p;
	ev_timer_start(engine_loop(api->t), &p->timer);
}

/* True: the event is kept for later. */
static bool progress_keep(struct api_state *api, const char *vm, bool progress, const json_t *data)
{
	const char *op = tp_json_str(data, "id");
	struct api_progress *p = op ? progress_find(api, op) : NULL;

	if (p) {
		json_decref(p->pending);
		p->pending = progress ? json_incref((json_t *)data) : NULL;
		return progress;
	}
	if (op && progress)
		progress_begin(api, op, vm);
	return false;
}

void api_event(struct torpor *t, const char *event, const char *vm, bool progress, json_t *data_owned)
{
	struct api_state *api = engine_api(t);
	tp_autojson json_t *data = data_owned ? data_owned : json_object();

	if (!api || !data)
		return;
	tp_trace("event=%s vm=%s", event, vm ? vm : "-");
	if (strcmp(event, "OPERATION") == 0 && progress_keep(api, vm, progress, data))
		return;
	broadcast(api, event, vm, progress, data);
}
