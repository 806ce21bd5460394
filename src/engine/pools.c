/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pools.c - The engine's pools: the list, their states, what is told of them
 *
 * A pool whose worker has been at one job for HANGS_AFTER is missing: whatever would need it is refused
 * at once, what runs waits with its own limits. When the job ends it is there again, as if nothing had
 * been.
 */
#include "engine/pools_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/restorable.h"
#include "engine/retain.h"
#include "engine/standing.h"
#include "engine/vm_image.h"

TP_LOG_SOURCE("engine.pools");

/* Seconds. */
#define TICK 5.0		/* a missing pool is tried again, a hanging one noticed */
#define LOOK_EVERY 60.0
#define HANGS_AFTER 10.0
#define OPEN_WAIT 5.0		/* of the start, for each pool */
#define FREE_WAIT 2.0		/* of the end, for all pools */

/* --- the list --- */

void pools_unlink(struct engine_pool **list, struct engine_pool *p)
{
	while (*list && *list != p)
		list = &(*list)->next;
	if (*list)
		*list = p->next;
}

static void reap(struct pools *ps)
{
	struct engine_pool *p = ps->aside, *next;

	for (; p; p = next) {
		next = p->next;
		if (!p->over || io_worker_pending(p->worker))
			continue;
		pools_unlink(&ps->aside, p);
		engine_pool_free(p, FREE_WAIT);
	}
}

static void tick_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct pools *ps = w->data;
	double now = tp_now_mono();

	(void)loop, (void)events;
	for (struct engine_pool *p = ps->first; p; p = p->next) {
		if (!p->there || now - p->looked_at >= LOOK_EVERY)
			pools_look(p, true);
		pools_tell(p);
	}
	reap(ps);
}

/* Where a pool must not be; unknown is no reason not to start. */
static void find_home(struct pool_neighbour *home, const char *what, const char *path)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int fd = tp_open_dir(path, &err);

	snprintf(home->what, sizeof(home->what), "%s", what);
	if (fd < 0 || !pool_place_of(fd, &home->place, &err))
		tp_warn("%s: %s", what, err.text);
}

struct pools *pools_new(struct torpor *t)
{
	struct pools *ps = calloc(1, sizeof(*ps));

	if (!ps)
		return NULL;
	ps->t = t;
	find_home(&ps->homes[0], "the state directory", state_dir_path(t->state));
	find_home(&ps->homes[1], "the runtime directory", t->runtime_dir);
	ev_timer_init(&ps->tick, tick_cb, TICK, TICK);
	ps->tick.data = ps;
	ev_timer_start(t->loop, &ps->tick);
	return ps;
}

struct engine_pool *engine_pool_new(struct pools *ps, const char *name, const char *path, struct tp_error *err)
{
	struct engine_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return tp_fail_nomem(err), NULL;
	p->ps = ps;
	p->low_water = POOL_LOW_WATER_AUTO;
	p->path = strdup(path);
	p->images = json_object();
	snprintf(p->name, sizeof(p->name), "%s", name);
	tp_fail(&p->why, TP_ESYS, "it has not been opened yet");
	p->worker = io_worker_new(ps->t->loop, name, err);
	if (p->path && p->images && p->worker)
		return p;
	tp_fail_nomem(err);
	engine_pool_free(p, 0);
	return NULL;
}

void engine_pool_free(struct engine_pool *p, double limit)
{
	bool hangs = p->worker && io_worker_busy(p->worker) >= HANGS_AFTER;

	/* A thread that hangs in its storage may come back and use it. */
	if (io_worker_free(p->worker, hangs ? 0 : limit))
		pool_close(p->storage);
	json_decref(p->images);
	free(p->path);
	free(p);
}

static void free_all(struct engine_pool **list, double until)
{
	while (*list) {
		struct engine_pool *p = *list;
		double left = until - tp_now_mono();

		*list = p->next;
		engine_pool_free(p, left > 0 ? left : 0);
	}
}

void pools_free(struct pools *ps)
{
	double until = tp_now_mono() + FREE_WAIT;

	if (!ps)
		return;
	ev_timer_stop(ps->t->loop, &ps->tick);
	pools_changes_free(ps);
	free_all(&ps->first, until);
	free_all(&ps->aside, until);
	free(ps);
}

void pools_came(struct engine_pool *p)
{
	struct pools *ps = p->ps;

	if (!p->serves)
		return;
	tp_info("pool=%s path=%s is there: images=%zu fs=%s", p->name, p->path, json_object_size(p->images),
		p->space.fs);
	if (!ps->serving)
		return;
	pools_sweep_one(p);
	for (struct vm *vm = ps->t->vms; vm; vm = vm->next)
		vm_image_again(vm);
	retain_sweep_copies(ps->t);
	standing_soon(ps->t, true);
}

void pools_serve(struct engine_pool *p)
{
	p->next = p->ps->first;
	p->ps->first = p;
	p->serves = true;
	if (p->there)
		pools_came(p);
	pools_tell(p);
}

static void open_now(struct engine_pool *p)
{
	pools_serve(p);
	pools_look(p, true);
	if (!io_worker_wait(p->worker, OPEN_WAIT))
		tp_err("pool=%s path=%s does not answer: left to be opened later", p->name, p->path);
}

bool pools_add(struct pools *ps, const char *name, const char *path, uint64_t quota, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	struct engine_pool *p;

	if (!tp_name_ok(name))
		return tp_fail_class(err, TP_EARG, "GenericError", "\"%s\" is not a pool's name", name);
	if (pools_find(ps, name))
		return tp_fail_class(err, TP_ESTATE, "Exists", "pool %s is named twice", name);
	if (!pool_path_ok(path, err))
		return tp_prefix(err, "pool %s", name);
	p = engine_pool_new(ps, name, path, err);
	if (!p)
		return false;
	p->quota = quota;
	p->known = pool_is_known(p, &why);
	if (why.code != TP_OK)
		tp_warn("pool=%s whether it was there before is not known: %s", name, why.text);
	open_now(p);
	return true;
}

static bool load_one(struct pools *ps, const char *name, const json_t *entry, struct tp_error *err)
{
	const char *path = tp_json_str(entry, "path");
	struct engine_pool *p;

	if (!path || *path != '/' || !tp_name_ok(name))
		return tp_fail(err, TP_ECORRUPT, "its entry in host.json is damaged");
	if (pools_find(ps, name))
		return tp_fail(err, TP_ESTATE, "the configuration has a pool of this name");
	p = engine_pool_new(ps, name, path, err);
	if (!p)
		return false;
	p->defined = true;
	p->quota = (uint64_t)tp_json_int(entry, "quota", 0);
	if (json_is_integer(json_object_get(entry, "low-water")))
		p->low_water = (uint64_t)tp_json_int(entry, "low-water", 0);
	open_now(p);
	return true;
}

bool pools_load(struct pools *ps, struct tp_error *err)
{
	tp_autojson json_t *host = state_host_read(ps->t->state, err);
	const char *name;
	json_t *entry;

	if (!host)
		return false;
	json_object_foreach(json_object_get(host, "pools"), name, entry) {
		struct tp_error why = TP_ERROR_INIT;

		if (!load_one(ps, name, entry, &why))
			tp_err("pool=%s of pool-define is left out: %s", name, why.text);
	}
	return true;
}

struct engine_pool *pools_find(struct pools *ps, const char *name)
{
	struct engine_pool *p = ps->first;

	while (p && strcmp(p->name, name) != 0)
		p = p->next;
	return p;
}

struct engine_pool *pools_need(struct pools *ps, const char *name, struct tp_error *err)
{
	struct engine_pool *p = pools_find(ps, name);
	char text[TP_TEXT_SIZE];

	if (!p)
		tp_fail_class(err, TP_ESTATE, "NotFound", "no pool is named \"%s\"", name);
	else if (p->changing)
		tp_fail_class(err, TP_ESTATE, "Busy", "pool %s (%s) is being defined anew or undefined", name, p->path);
	else if (!engine_pool_ready(p))
		tp_fail_class(err, TP_ESYS, "IOError", "pool %s (%s) is missing: %s", name, p->path,
			      engine_pool_message(p, text));
	else
		return p;
	return NULL;
}

void pools_recheck(struct pools *ps)
{
	for (struct engine_pool *p = ps->first; p; p = p->next)
		pools_look(p, true);
}

void pools_room_changed(struct pools *ps, const char *pool)
{
	struct engine_pool *p = pool ? pools_find(ps, pool) : NULL;

	if (p)
		pools_look(p, false);
}

void engine_pool_doubt(struct engine_pool *p, const struct tp_error *err)
{
	if (p->serves && p->there && strcmp(tp_error_class(err), "IOError") == 0)
		pools_look(p, false);
}

void pools_op_ended(struct pools *ps, const json_t *res)
{
	static const char *const images[] = { "image", "former-image" };

	for (size_t i = 0; i < TP_N(images); i++)
		pools_room_changed(ps, tp_json_str(json_object_get(res, images[i]), "pool"));
	pools_room_changed(ps, tp_json_str(res, "to"));		/* of image-move */
}

/* --- one pool --- */

const char *engine_pool_name(const struct engine_pool *p)
{
	return p->name;
}

struct pool *engine_pool_storage(const struct engine_pool *p)
{
	return p->storage;
}

struct io_worker *engine_pool_worker(const struct engine_pool *p)
{
	return p->worker;
}

bool engine_pool_ready(const struct engine_pool *p)
{
	return p->storage && p->there && io_worker_busy(p->worker) < HANGS_AFTER;
}

const char *engine_pool_state(const struct engine_pool *p)
{
	if (!engine_pool_ready(p))
		return "missing";
	return p->space.read_only ? "read-only" : pool_level_name(p->level);
}

const char *engine_pool_message(const struct engine_pool *p, char text[TP_TEXT_SIZE])
{
	double busy = io_worker_busy(p->worker);

	*text = 0;
	if (busy >= HANGS_AFTER)
		snprintf(text, TP_TEXT_SIZE, "its storage does not answer for %.0f s", busy);
	else if (!engine_pool_ready(p))
		snprintf(text, TP_TEXT_SIZE, "%s", p->why.text);
	return text;
}

struct closing {
	struct pool *storage;
	bool unmake;
	void (*done)(void *arg, const struct tp_error *err);
	void *arg;
};

static bool close_run(void *arg, struct tp_error *err)
{
	struct closing *c = arg;

	(void)err;
	if (c->unmake)
		pool_unmake(c->storage);
	else
		pool_close(c->storage);
	return true;
}

static void close_done(void *arg, const struct tp_error *err)
{
	struct closing *c = arg;

	if (c->done)
		c->done(c->arg, err);
	free(c);
}

void engine_pool_close(struct engine_pool *p, struct pool *storage, bool unmake,
		       void (*done)(void *arg, const struct tp_error *err), void *arg)
{
	struct closing *c = calloc(1, sizeof(*c));
	struct tp_error err = TP_ERROR_INIT;

	if (c) {
		*c = (struct closing){ .storage = storage, .unmake = unmake, .done = done, .arg = arg };
		if (io_worker_submit(p->worker, close_run, close_done, c, &err))
			return;
	}
	free(c);
	tp_fail_nomem(&err);
	/* Rather left open, and locked, than waited for here. */
	tp_warn("pool=%s path=%s cannot be closed: %s", p->name, p->path, err.text);
	if (done)
		done(arg, &err);
}

/* --- what is told --- */

void pools_tell(struct engine_pool *p)
{
	const char *state = engine_pool_state(p);
	bool ready = engine_pool_ready(p);
	char text[TP_TEXT_SIZE];

	if (!p->serves || p->changing || (p->told && strcmp(p->told, state) == 0))
		return;
	p->told = state;
	api_event(p->ps->t, "POOL", NULL, false,
		  json_pack("{s:s, s:s, s:o*, s:s}", "pool", p->name, "state", state, "available",
			    ready ? json_integer((json_int_t)p->space.available) : NULL, "message",
			    engine_pool_message(p, text)));
	restorable_check_all(p->ps->t);
}

static json_t *described(const struct engine_pool *p)
{
	const struct pool_space *s = &p->space;
	char text[TP_TEXT_SIZE];

	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:I, s:s}", "name",
			 p->name, "path", p->path, "source", p->defined ? "api" : "config", "state",
			 engine_pool_state(p), "quota", (json_int_t)p->quota, "low-water",
			 (json_int_t)pool_low_water(s, p->low_water), "total", (json_int_t)s->total, "available",
			 (json_int_t)s->available, "used", (json_int_t)s->used, "reserved", (json_int_t)s->reserved,
			 "standing", (json_int_t)s->standing, "guaranteed", s->guaranteed, "fs", s->fs, "images",
			 (json_int_t)json_object_size(p->images), "message", engine_pool_message(p, text));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(tp_json_str(*(json_t *const *)a, "name"), tp_json_str(*(json_t *const *)b, "name"));
}

json_t *pools_describe(struct pools *ps)
{
	json_t *out = json_array(), *list[POOLS_MAX] = { NULL };
	size_t n = 0;

	for (struct engine_pool *p = ps->first; p && n < POOLS_MAX; p = p->next)
		if ((list[n] = described(p)))
			n++;
	qsort(list, n, sizeof(json_t *), by_name);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(out, list[i]);
	return out;
}
