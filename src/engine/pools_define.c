/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pools_define.c - pool-define, pool-undefine: pools that the API makes and forgets, kept in host.json
 *
 * Theory of operation
 *
 * A new pool stands aside until all is done: its worker opens the folder (what hangs there hangs
 * that worker), what was found is judged on the loop, host.json is written, only then the pool is in
 * service and the call answered. What fails on the way takes back what it made. A pool that gets
 * another folder is a new one of the same name; the old one, which nothing uses, is closed first, so
 * that the same folder by another path can be locked again, and opened again if it comes to nothing.
 * Undefining goes the other way: host.json first, then the pool leaves and its worker lets the lock
 * go. Of one name there is one change at a time.
 */
#include "engine/pools_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_size.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/standing.h"

TP_LOG_SOURCE("engine.pools");

#define ANSWER_WITHIN 9.0	/* seconds */
#define DEFINITIONS "pools"	/* in host.json */

struct pool_change {
	struct pool_change *next;
	struct pools *ps;		/* NULL: the pools are gone */
	struct state_dir *state;
	struct api_call *call;		/* NULL: answered */
	struct ev_timer limit;
	char name[TP_NAME_MAX + 1];
	struct engine_pool *old;	/* in service until now; NULL: none */
	struct engine_pool *made;	/* stands aside; NULL: none */
	json_t *entry;			/* for host.json; NULL: to be taken out */
	uint64_t quota, low_water;
	struct tp_error why;		/* it failed */
	json_t *why_data;
};

/* --- a change and its answer --- */

static struct pool_change *change_of(struct pools *ps, const char *name)
{
	struct pool_change *c = ps->changes;

	while (c && strcmp(c->name, name) != 0)
		c = c->next;
	return c;
}

static void change_free(struct pool_change *c)
{
	if (c->ps) {
		struct pool_change **list = &c->ps->changes;

		while (*list != c)
			list = &(*list)->next;
		*list = c->next;
		ev_timer_stop(c->ps->t->loop, &c->limit);
	}
	json_decref(c->why_data);
	json_decref(c->entry);
	free(c);
}

void pools_changes_free(struct pools *ps)
{
	/* Each is freed by the end of the job that it waits for. */
	for (struct pool_change *c = ps->changes; c; c = c->next) {
		ev_timer_stop(ps->t->loop, &c->limit);
		c->ps = NULL;
	}
	ps->changes = NULL;
}

static void answer(struct pool_change *c, const struct tp_error *err, json_t *data_owned)
{
	struct api_call *call = c->call;

	c->call = NULL;
	if (c->ps)
		ev_timer_stop(c->ps->t->loop, &c->limit);
	if (!call)
		json_decref(data_owned);
	else if (err)
		api_error(call, err, data_owned);
	else
		api_reply(call, json_object());
}

/* The storage does not answer; what comes of it later is undone. */
static void limit_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct pool_change *c = w->data;
	struct tp_error err = TP_ERROR_INIT;

	(void)loop, (void)events;
	if (!c->made) {		/* being undefined: that is done, only its lock is not free yet */
		answer(c, NULL, NULL);
		return;
	}
	tp_fail_class(&err, TP_ESYS, "Timeout", "pool \"%s\": %s did not answer within %.0f s: nothing was defined",
		      c->name, c->made->path, ANSWER_WITHIN);
	answer(c, &err, json_pack("{s:s, s:s}", "pool", c->name, "path", c->made->path));
}

static struct pool_change *change_new(struct pools *ps, struct api_call *call)
{
	struct pool_change *c = calloc(1, sizeof(*c));
	struct tp_error err = TP_ERROR_INIT;

	if (!c) {
		tp_fail_nomem(&err);
		api_error(call, &err, NULL);
		return NULL;
	}
	c->ps = ps;
	c->state = ps->t->state;
	c->call = call;
	snprintf(c->name, sizeof(c->name), "%s", tp_json_str(api_args(call), "name"));
	c->next = ps->changes;
	ps->changes = c;
	ev_timer_init(&c->limit, limit_cb, ANSWER_WITHIN, 0.);
	c->limit.data = c;
	return c;
}

/* What follows is the storage's, which may hang. */
static void limit_start(struct pool_change *c)
{
	ev_now_update(c->ps->t->loop);
	ev_timer_start(c->ps->t->loop, &c->limit);
}

static enum state_edit put_entry(json_t *host, void *arg)
{
	struct pool_change *c = arg;
	json_t *pools = json_object_get(host, DEFINITIONS);

	if (!json_is_object(pools)) {
		pools = json_object();
		if (!tp_json_set(host, DEFINITIONS, pools))
			return STATE_NO_MEMORY;
	}
	if (!c->entry)
		return json_object_del(pools, c->name) == 0 ? STATE_CHANGED : STATE_UNCHANGED;
	return tp_json_set(pools, c->name, json_deep_copy(c->entry)) ? STATE_CHANGED : STATE_NO_MEMORY;
}

static bool change_run(void *arg, struct tp_error *err)
{
	struct pool_change *c = arg;

	return state_host_edit(c->state, put_entry, c, err) || tp_prefix(err, "pool \"%s\"", c->name);
}

/* --- define --- */

static void define_given_up(void *arg, const struct tp_error *close_error)
{
	struct pool_change *c = arg;

	(void)close_error;
	if (c->ps && c->made)
		c->made->over = true;
	if (c->ps && c->old) {
		c->old->changing = false;
		pools_look(c->old, true);
	}
	answer(c, &c->why, TP_STEAL(c->why_data));
	change_free(c);
}

/* It comes to nothing: what was made is taken back, what was in service is again; then it is told. */
static void define_failed(struct pool_change *c, const struct tp_error *err, json_t *data_owned)
{
	struct engine_pool *p = c->ps ? c->made : NULL;

	c->why = *err;
	c->why_data = data_owned;
	if (p && p->storage)
		engine_pool_close(p, TP_STEAL(p->storage), true, define_given_up, c);
	else
		define_given_up(c, NULL);
}

static void leave_service(struct engine_pool *p)
{
	struct pools *ps = p->ps;

	pools_unlink(&ps->first, p);
	p->next = ps->aside;
	ps->aside = p;
	p->serves = false;
	p->over = true;
}

static void defined(void *arg, const struct tp_error *err)
{
	struct pool_change *c = arg;

	if (err) {
		define_failed(c, err, NULL);
		return;
	}
	if (c->ps && c->old)
		leave_service(c->old);
	if (c->ps) {
		tp_info("pool=%s path=%s defined", c->name, c->made->path);
		pools_unlink(&c->ps->aside, c->made);
		pools_serve(c->made);
	}
	answer(c, NULL, NULL);
	change_free(c);
}

static json_t *bad_argument(struct tp_error *err, const char *argument, uint64_t value, uint64_t than, const char *what)
{
	char size[TP_SIZE_TEXT], limit[TP_SIZE_TEXT];

	tp_fail_class(err, TP_EARG, "GenericError", "Parameter '%s' of %s is %s, %s", argument,
		      tp_size_format(value, size), what, tp_size_format(than, limit));
	return json_pack("{s:s, s:I}", "argument", argument, "limit", (json_int_t)than);
}

/* Sizes against what the pool is; false with data. */
static bool sizes_ok(const struct pool_change *c, const struct pool_space *space, struct tp_error *err, json_t **data)
{
	uint64_t used = space->used + space->standing + space->reserved;

	if (c->quota && c->quota < used)
		*data = bad_argument(err, "quota", c->quota, used, space->standing ?
				     "less than what is in the pool and held there as standing room" :
				     "less than what is in the pool");
	else if (c->low_water != POOL_LOW_WATER_AUTO && c->quota && c->low_water > c->quota)
		*data = bad_argument(err, "low-water", c->low_water, c->quota, "more than the quota");
	else if (c->low_water != POOL_LOW_WATER_AUTO && space->total && c->low_water > space->total)
		*data = bad_argument(err, "low-water", c->low_water, space->total, "more than the file system's size");
	return err->code == TP_OK;
}

static json_t *about_path(const struct pool_change *c)
{
	return json_pack("{s:s, s:s, s:s}", "argument", "path", "pool", c->name, "path", c->made->path);
}

static const struct tp_error *too_late(struct tp_error *err)
{
	tp_fail(err, TP_ECANCELLED, "it answered too late");
	return err;
}

static bool judge(struct pool_change *c, const struct pool_look *l, struct tp_error *err, json_t **data)
{
	if (!c->call)
		return too_late(err), false;
	if (l->space.read_only)
		return tp_fail_class(err, TP_ESYS, "IOError", "pool \"%s\": %s is read-only", c->name, c->made->path);
	return pools_place_free(c->made, &l->place, err) && sizes_ok(c, &l->space, err, data);
}

static void opened(struct pool_look *l, const struct tp_error *open_error)
{
	struct pool_change *c = l->arg;
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	if (open_error || !c->ps) {
		if (!open_error)
			pool_unmake(l->storage);
		define_failed(c, open_error ? open_error : too_late(&err), about_path(c));
		return;
	}
	c->made->storage = l->storage;
	if (!judge(c, l, &err, &data)) {
		define_failed(c, &err, data ? data : about_path(c));
		return;
	}
	pool_look_take(l, NULL);
	/* From here on it is the state directory that is waited for. */
	ev_timer_stop(c->ps->t->loop, &c->limit);
	if (!io_worker_submit(c->ps->t->worker, change_run, defined, c, &err))
		define_failed(c, &err, NULL);
}

static void open_made(void *arg, const struct tp_error *close_error)
{
	struct pool_change *c = arg;
	struct tp_error err = TP_ERROR_INIT;

	if (close_error)
		define_failed(c, close_error, NULL);
	else if (!c->ps || !c->call)
		define_failed(c, too_late(&err), NULL);
	else if (!pools_look_first(c->made, opened, c, &err))
		define_failed(c, &err, NULL);
}

/* "/a//b/" is "/a/b"; "//" is "/". */
static char *clean_path(const char *path)
{
	char *out = strdup(path), *to = out;

	for (const char *from = path; out && *from; from++)
		if (*from != '/' || (from[1] && from[1] != '/'))
			*to++ = *from;
	if (out && to == out)
		*to++ = '/';
	if (out)
		*to = 0;
	return out;
}

static void define_new(struct pool_change *c, const char *path)
{
	struct pools *ps = c->ps;
	struct tp_error err = TP_ERROR_INIT;

	c->made = engine_pool_new(ps, c->name, path, &err);
	if (!c->made) {
		define_failed(c, &err, NULL);
		return;
	}
	c->made->defined = true;
	c->made->quota = c->quota;
	c->made->low_water = c->low_water;
	c->made->next = ps->aside;
	ps->aside = c->made;
	limit_start(c);
	if (!c->old || !c->old->storage) {
		open_made(c, NULL);
		return;
	}
	c->old->there = false;
	engine_pool_close(c->old, TP_STEAL(c->old->storage), false, open_made, c);
}

struct quota_change {
	struct pool *storage;
	uint64_t quota;
};

static bool quota_run(void *arg, struct tp_error *err)
{
	struct quota_change *q = arg;

	(void)err;
	pool_set_quota(q->storage, q->quota);
	return true;
}

static void quota_done(void *arg, const struct tp_error *err)
{
	(void)err;
	free(arg);
}

/* The storage is its worker's. */
static void set_quota(struct engine_pool *p)
{
	struct quota_change *q = p->storage ? calloc(1, sizeof(*q)) : NULL;

	if (!q)
		return;
	*q = (struct quota_change){ .storage = p->storage, .quota = p->quota };
	if (!io_worker_submit(p->worker, quota_run, quota_done, q, NULL))
		free(q);
}

static void redefined(void *arg, const struct tp_error *err)
{
	struct pool_change *c = arg;
	struct engine_pool *p = c->old;

	if (!err && c->ps) {
		p->quota = p->space.quota = c->quota;
		p->low_water = c->low_water;
		set_quota(p);
		pools_look(p, false);	/* its level by the new figures */
		standing_soon(c->ps->t, false);	/* there may be room now */
	}
	answer(c, err, NULL);
	change_free(c);
}

static void define_again(struct pool_change *c)
{
	struct engine_pool *p = c->old;
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	/* Of a pool that is missing nothing is known that could speak against it. */
	if (p->there && !sizes_ok(c, &p->space, &err, &data)) {
		answer(c, &err, data);
		change_free(c);
		return;
	}
	if (io_worker_submit(c->ps->t->worker, change_run, redefined, c, &err))
		return;
	answer(c, &err, NULL);
	change_free(c);
}

/* --- what is in the way --- */

static bool refused(struct api_call *call, const struct tp_error *err, json_t *data_owned)
{
	if (err->code != TP_OK)
		api_error(call, err, data_owned);
	else
		json_decref(data_owned);
	return err->code != TP_OK;
}

/* Pools of the configuration, and those that are being changed. */
static bool fixed(struct pools *ps, struct api_call *call, const char *name)
{
	const struct engine_pool *p = pools_find(ps, name);
	struct tp_error err = TP_ERROR_INIT;
	bool config = p && !p->defined;

	if (config)
		tp_fail_class(&err, TP_ESTATE, "Conflict", "pool \"%s\" (%s) comes from torpord's configuration: "
			      "change it there", name, p->path);
	else if (change_of(ps, name))
		tp_fail_class(&err, TP_ESTATE, "Busy", "pool \"%s\" is being defined or undefined", name);
	/* Other conflicts pass once the caller has read again; this one does not. */
	return refused(call, &err, json_pack("{s:s, s:s*, s:s*}", "pool", name, "source", config ? "config" : NULL,
					     "retry", config ? "never" : NULL));
}

/* Whatever the storage says: it can never be one. */
static bool bad_path(struct api_call *call, const char *path)
{
	struct tp_error err = TP_ERROR_INIT;

	pool_path_ok(path, &err);
	return refused(call, &err, json_pack("{s:s, s:O}", "argument", "path", "path",
					     json_object_get(api_args(call), "path")));
}

/* Answers the call and is true where something holds on to the pool. */
static bool in_use(const struct engine_pool *p, struct api_call *call, const char *class_)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	if (pool_unused(p, class_, &err, &data))
		return false;
	api_error(call, &err, data);
	return true;
}

/* --- the verbs --- */

static json_t *entry_for(const char *path, uint64_t quota, uint64_t low_water)
{
	json_t *entry = json_pack("{s:s}", "path", path);

	if (quota)
		tp_json_set(entry, "quota", json_integer((json_int_t)quota));
	if (low_water != POOL_LOW_WATER_AUTO)
		tp_json_set(entry, "low-water", json_integer((json_int_t)low_water));
	return entry;
}

static bool too_many(struct pools *ps, struct api_call *call)
{
	struct tp_error err = TP_ERROR_INIT;
	size_t n = 0;

	for (const struct engine_pool *p = ps->first; p; p = p->next)
		n++;
	for (const struct pool_change *c = ps->changes; c; c = c->next)
		n++;
	if (n >= POOLS_MAX)
		tp_fail(&err, TP_ELIMIT, "there are %u pools already", POOLS_MAX);
	return refused(call, &err, NULL);
}

void pools_define(struct pools *ps, struct api_call *call)
{
	const json_t *args = api_args(call), *low = json_object_get(args, "low-water");
	const char *name = tp_json_str(args, "name");
	struct engine_pool *old = pools_find(ps, name);
	tp_autofree char *path = clean_path(tp_json_str(args, "path"));
	bool elsewhere = old && path && strcmp(old->path, path) != 0;
	struct pool_change *c;

	if (!path || bad_path(call, path) || fixed(ps, call, name) || (old ? elsewhere && in_use(old, call, "Conflict") : too_many(ps, call)))
		return;
	c = change_new(ps, call);
	if (!c)
		return;
	c->quota = (uint64_t)tp_json_int(args, "quota", 0);
	c->low_water = low ? (uint64_t)json_integer_value(low) : POOL_LOW_WATER_AUTO;
	c->old = old;
	c->entry = entry_for(path, c->quota, c->low_water);
	if (old && !elsewhere) {
		define_again(c);
		return;
	}
	if (old)
		old->changing = true;
	define_new(c, path);
}

static void let_go(void *arg, const struct tp_error *err)
{
	struct pool_change *c = arg;

	(void)err;	/* it is no pool any more, whatever its storage said to that */
	answer(c, NULL, NULL);
	change_free(c);
}

static void undefined(void *arg, const struct tp_error *err)
{
	struct pool_change *c = arg;
	struct engine_pool *p = c->old;

	if (err || !c->ps) {
		if (c->ps)
			p->changing = false;
		answer(c, err, NULL);
		change_free(c);
		return;
	}
	tp_info("pool=%s path=%s undefined", p->name, p->path);
	leave_service(p);
	limit_start(c);
	if (p->storage)
		engine_pool_close(p, TP_STEAL(p->storage), false, let_go, c);
	else
		let_go(c, NULL);
}

void pools_undefine(struct pools *ps, struct api_call *call)
{
	const char *name = tp_json_str(api_args(call), "name");
	struct engine_pool *p = pools_find(ps, name);
	struct tp_error err = TP_ERROR_INIT;
	struct pool_change *c;

	if (fixed(ps, call, name))
		return;
	if (!p) {
		tp_fail_class(&err, TP_ESTATE, "NotFound", "no pool is named \"%s\"", name);
		api_error(call, &err, json_pack("{s:s}", "pool", name));
		return;
	}
	if (in_use(p, call, "InvalidState"))
		return;
	c = change_new(ps, call);
	if (!c)
		return;
	c->old = p;
	p->changing = true;
	if (io_worker_submit(ps->t->worker, change_run, undefined, c, &err))
		return;
	undefined(c, &err);
}
