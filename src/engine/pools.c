/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pools.c - The engine's pools: opened, looked at, described */
#include "engine/pools_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/standing.h"
#include "engine/vm_image.h"

TP_LOG_SOURCE("engine.pools");

#define CATALOGUE_MAX 100000u

struct pools *pools_new(struct torpor *t)
{
	struct pools *ps = calloc(1, sizeof(*ps));

	if (ps)
		ps->t = t;
	return ps;
}

void pools_free(struct pools *ps)
{
	while (ps && ps->first) {
		struct engine_pool *p = ps->first;

		ps->first = p->next;
		/* A thread that hangs in its storage may come back and use it. */
		if (io_worker_free(p->worker, 2.0))
			pool_close(p->storage);
		json_decref(p->images);
		free(p->path);
		free(p);
	}
	free(ps);
}

static void tell(struct engine_pool *p, const char *state)
{
	api_event(p->ps->t, "POOL", NULL, false, json_pack("{s:s, s:s, s:s}", "pool", p->name, "state", state,
							   "message", p->storage ? "" : p->why.text));
}

/* What one look finds; made on the worker, taken over on the loop. */
struct look {
	struct engine_pool *p;
	struct pool *storage;		/* looked at; opened by this look where it was NULL */
	struct pool_space space;
	json_t *entries;
	bool opened;
};

static bool look_run(void *arg, struct tp_error *err)
{
	struct look *l = arg;

	if (!l->storage) {
		l->storage = pool_open(l->p->name, l->p->path, l->p->quota, state_dir_instance(l->p->ps->t->state),
				       true, err);
		l->opened = l->storage != NULL;
	}
	if (!l->storage || !pool_regain(l->storage, state_dir_instance(l->p->ps->t->state), err))
		return false;
	l->entries = pool_catalogue(l->storage, NULL, CATALOGUE_MAX, err);
	return l->entries && pool_space(l->storage, &l->space, err);
}

/* The result becomes the pool's. */
static void look_take(struct look *l, const struct tp_error *err)
{
	struct engine_pool *p = l->p;

	if (err) {
		if (l->opened)
			pool_close(l->storage);
		if (!p->storage)
			p->why = *err;
		return;
	}
	if (l->opened)
		tp_info("pool=%s path=%s images=%zu fs=%s", p->name, p->path, json_array_size(l->entries),
			l->space.fs);
	p->storage = l->storage;
	p->space = l->space;
	pools_images_keep(p, l->entries);
}

static bool open_pool(struct engine_pool *p)
{
	struct look l = { .p = p };
	struct tp_error err = TP_ERROR_INIT;
	bool ok = look_run(&l, &err);

	look_take(&l, ok ? NULL : &err);
	json_decref(l.entries);
	return ok;
}

bool pools_add(struct pools *ps, const char *name, const char *path, uint64_t quota, struct tp_error *err)
{
	struct engine_pool *p;

	if (!tp_name_ok(name))
		return tp_fail_class(err, TP_EARG, "GenericError", "\"%s\" is not a pool's name", name);
	if (pools_find(ps, name))
		return tp_fail_class(err, TP_ESTATE, "Exists", "pool %s is named twice", name);
	p = calloc(1, sizeof(*p));
	if (!p)
		return tp_fail_nomem(err);
	p->ps = ps;
	p->quota = quota;
	p->path = strdup(path);
	p->images = json_object();
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->worker = io_worker_new(ps->t->loop, name, err);
	p->next = ps->first;
	ps->first = p;
	if (!p->path || !p->images || !p->worker)
		return tp_fail_nomem(err);
	if (!open_pool(p))
		tp_err("pool=%s is missing: %s", name, p->why.text);
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

	if (!p)
		tp_fail_class(err, TP_ESTATE, "NotFound", "no pool is named \"%s\"", name);
	else if (!p->storage)
		tp_fail_class(err, TP_ESYS, "IOError", "pool %s (%s) is missing: %s", name, p->path, p->why.text);
	return p && p->storage ? p : NULL;
}

/* --- looking again, on the worker --- */

static void look_done(void *arg, const struct tp_error *err)
{
	struct look *l = arg;
	bool missing = !l->p->storage;

	l->p->looking = false;
	if (err && err->code != TP_ECANCELLED && !missing)
		tp_warn("pool=%s cannot be looked at: %s", l->p->name, err->text);
	look_take(l, err);
	if (missing && l->p->storage) {
		tell(l->p, "ok");
		for (struct vm *vm = l->p->ps->t->vms; vm; vm = vm->next)
			vm_image_give_back_again(vm);
		standing_soon(l->p->ps->t, true);
	}
	json_decref(l->entries);
	free(l);
}

void pools_look(struct engine_pool *p)
{
	struct look *l = p->looking ? NULL : calloc(1, sizeof(*l));

	if (!l)
		return;
	*l = (struct look){ .p = p, .storage = p->storage };
	p->looking = true;
	if (!io_worker_submit(p->worker, look_run, look_done, l, NULL)) {
		p->looking = false;
		free(l);
	}
}

void pools_recheck(struct pools *ps)
{
	for (struct engine_pool *p = ps->first; p; p = p->next)
		pools_look(p);
}

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

/* --- what is told --- */

json_t *pools_describe(struct pools *ps)
{
	json_t *out = json_array();

	for (struct engine_pool *p = ps->first; p; p = p->next)
		json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:I, s:s}",
				"name", p->name, "path", p->path, "state", !p->storage ? "missing" :
				p->space.read_only ? "read-only" : "ok", "quota", (json_int_t)p->quota, "total",
				(json_int_t)p->space.total, "available", (json_int_t)p->space.available, "used",
				(json_int_t)p->space.used, "reserved", (json_int_t)p->space.reserved, "guaranteed",
				p->space.guaranteed, "fs", p->space.fs, "images",
				(json_int_t)json_object_size(p->images), "message", p->storage ? "" : p->why.text));
	return out;
}
