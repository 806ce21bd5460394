/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pools_look.c - Looks at pools: opening, room, images; on the worker, taken over on the loop
 *
 * Theory of operation. One look of a pool is on its way at a time; what is asked for meanwhile is one
 * more after it. The worker's half sees nothing of the engine but its own struct pool_look, as it may
 * hang in the storage for longer than the engine lives. Jobs of operations go through the same worker
 * and end in order: a list of images is never older than what the loop knows already.
 */
#include "engine/pools_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/standing.h"

TP_LOG_SOURCE("engine.pools");

#define CATALOGUE_MAX 100000u

static void look_free(struct pool_look *l)
{
	if (!l)
		return;
	json_decref(l->entries);
	free(l->others);
	free(l->path);
	free(l->instance);
	free(l);
}

/* --- neighbours --- */

static void neighbour(struct pool_neighbour *n, const struct engine_pool *p)
{
	*n = (struct pool_neighbour){ .place = p->place, .pool = true };
	snprintf(n->what, sizeof(n->what), "pool \"%s\"", p->name);
}

static size_t count(const struct engine_pool *p)
{
	size_t n = 0;

	for (; p; p = p->next)
		n++;
	return n;
}

/* All that a new folder of p must not meet; the configuration's pools may lodge in our directories. */
static struct pool_neighbour *neighbours(struct engine_pool *p, size_t *n)
{
	struct pools *ps = p->ps;
	struct pool_neighbour *list = calloc(count(ps->first) + count(ps->aside) + TP_N(ps->homes), sizeof(*list));

	*n = 0;
	if (!list)
		return NULL;
	for (size_t i = 0; i < TP_N(ps->homes); i++) {
		list[*n] = ps->homes[i];
		list[(*n)++].lodges = !p->defined;
	}
	for (const struct engine_pool *o = ps->first; o; o = o->next)
		if (o != p && strcmp(o->name, p->name) != 0)
			neighbour(&list[(*n)++], o);
	for (const struct engine_pool *o = ps->aside; o; o = o->next)
		if (o != p && !o->over)
			neighbour(&list[(*n)++], o);
	return list;
}

bool pools_place_free(struct engine_pool *p, const struct pool_place *place, struct tp_error *err)
{
	size_t n;
	tp_autofree struct pool_neighbour *list = neighbours(p, &n);

	return list ? pool_place_free(p->path, place, list, n, err) : tp_fail_nomem(err);
}

/* --- on the worker --- */

static bool see(struct pool_look *l, struct tp_error *err)
{
	if (!pool_regain(l->storage, l->how.instance, err) || !pool_space(l->storage, &l->space, err) ||
	    !pool_where(l->storage, &l->place, err))
		return false;
	if (!l->images)
		return true;
	l->entries = pool_catalogue(l->storage, NULL, CATALOGUE_MAX, err);
	return l->entries != NULL;
}

static bool look_run(void *arg, struct tp_error *err)
{
	struct pool_look *l = arg;

	if (!l->storage) {
		l->storage = pool_open_as(&l->how, err);
		l->opened = l->storage != NULL;
	}
	if (l->storage && see(l, err))
		return true;
	if (l->opened)
		pool_unmake(l->storage);
	return false;
}

/* --- on the loop --- */

static void went(struct engine_pool *p, const struct tp_error *err)
{
	if (err->code == TP_ECANCELLED)
		return;
	if (p->there || strcmp(p->why.text, err->text) != 0)
		tp_err("pool=%s is missing: %s", p->name, err->text);
	p->why = *err;
	p->there = false;
	standing_soon(p->ps->t, false);
}

/* Opened in a folder that another pool got meanwhile. */
static bool may_stay(struct pool_look *l)
{
	struct tp_error err = TP_ERROR_INIT;

	if (!l->opened || pools_place_free(l->p, &l->place, &err))
		return true;
	engine_pool_close(l->p, l->storage, true, NULL, NULL);
	went(l->p, &err);
	return false;
}

void pool_look_take(struct pool_look *l, const struct tp_error *err)
{
	struct engine_pool *p = l->p;
	bool away = !p->there;

	if (err) {
		went(p, err);
		pools_tell(p);
		return;
	}
	if (!may_stay(l))
		return;
	p->storage = l->storage;
	p->space = l->space;
	p->place = l->place;
	p->there = true;
	pool_known_now(p);
	p->level = pool_level(&p->space, p->low_water, p->level);
	if (l->entries)
		pools_images_keep(p, l->entries);
	if (away)
		pools_came(p);
	pools_tell(p);
}

static void look_done(void *arg, const struct tp_error *err)
{
	struct pool_look *l = arg;
	struct engine_pool *p = l->p;
	bool again = p->again, images = p->again_images;

	p->looking = p->again = p->again_images = false;
	p->looked_at = tp_now_mono();
	if (l->done)
		l->done(l, err);
	else
		pool_look_take(l, err);
	look_free(l);
	/* One that was away has its images looked at when it is back. */
	if (again && (!err || err->code != TP_ECANCELLED))
		pools_look(p, images);
}

static struct pool_look *look_new(struct engine_pool *p, enum pool_opening_mode mode, bool images)
{
	struct pool_look *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	*l = (struct pool_look){ .p = p, .storage = p->storage, .images = images || !p->there,
				 .path = strdup(p->path),
				 .instance = strdup(state_dir_instance(p->ps->t->state)) };
	snprintf(l->name, sizeof(l->name), "%s", p->name);
	l->others = neighbours(p, &l->how.n_others);
	l->how.name = l->name;
	l->how.path = l->path;
	l->how.instance = l->instance;
	l->how.others = l->others;
	l->how.quota = p->quota;
	l->how.mode = mode;
	if (l->path && l->instance && l->others)
		return l;
	look_free(l);
	return NULL;
}

static bool look_start(struct engine_pool *p, struct pool_look *l, struct tp_error *err)
{
	if (!l)
		return tp_fail_nomem(err);
	p->looking = true;
	if (io_worker_submit(p->worker, look_run, look_done, l, err))
		return true;
	p->looking = false;
	look_free(l);
	return false;
}

void pools_look(struct engine_pool *p, bool images)
{
	if (p->changing || p->over)
		return;
	if (p->looking) {
		p->again = true;
		p->again_images |= images;
		return;
	}
	/* What was made once is not made again in place of what is not there. */
	look_start(p, look_new(p, p->defined || p->known ? POOL_KNOWN : POOL_MAKE_ALL, images), NULL);
}

bool pools_look_first(struct engine_pool *p, void (*done)(struct pool_look *l, const struct tp_error *err),
		      void *arg, struct tp_error *err)
{
	struct pool_look *l = look_new(p, POOL_MAKE, true);

	if (l) {
		l->done = done;
		l->arg = arg;
	}
	return look_start(p, l, err);
}
