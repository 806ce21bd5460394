/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pools.c - The engine's pools: opened, their workers, the kept catalogue */
#include "engine/pools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/vm_image.h"

TP_LOG_SOURCE("engine.pools");

#define CATALOGUE_MAX 100000u

struct engine_pool {
	struct engine_pool *next;
	struct pools *ps;
	char name[TP_NAME_MAX + 1];
	char *path;
	uint64_t quota;
	struct pool *storage;		/* NULL: missing */
	struct io_worker *worker;
	struct tp_error why;		/* why it is missing */
	json_t *images;			/* id -> entry */
	struct pool_space space;	/* the last look */
	bool looking;
};

struct pools {
	struct torpor *t;
	struct engine_pool *first;
};

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

static void keep_catalogue(struct engine_pool *p, const json_t *entries)
{
	size_t i;
	json_t *entry;

	json_object_clear(p->images);
	json_array_foreach(entries, i, entry)
		json_object_set(p->images, tp_json_str(entry, "id"), entry);
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
	keep_catalogue(p, l->entries);
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
	}
	json_decref(l->entries);
	free(l);
}

static void look_again(struct engine_pool *p)
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
		look_again(p);
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

/* --- what a crash left --- */

static bool in_use(struct torpor *t, const char *id)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		char owner[TP_NAME_MAX + 1];

		/* Its journal may not have been read. */
		if (vm->undecided && pool_image_vm(id, owner) && strcmp(owner, vm->name) == 0)
			return true;
		const char *used = vm->op ? tp_json_str(json_object_get(op_res(vm->op), "image"), "id") : NULL;

		if (used && strcmp(used, id) == 0)
			return true;
	}
	return false;
}

struct sweep {
	struct pool *storage;
	char vm[TP_NAME_MAX + 1], id[IMAGE_ID_MAX + 1];
};

static bool sweep_run(void *arg, struct tp_error *err)
{
	struct sweep *s = arg;

	return pool_image_remove(s->storage, s->vm, s->id, err);
}

static void sweep_done(void *arg, const struct tp_error *err)
{
	struct sweep *s = arg;

	if (err)
		tp_warn("image %s was never finished and cannot be removed: %s", s->id, err->text);
	else
		tp_info("image %s was never finished: removed", s->id);
	free(s);
}

static bool sweep_one(struct engine_pool *p, const json_t *entry)
{
	struct sweep *s;

	if (strcmp(tp_json_str(entry, "state"), "partial") != 0 || in_use(p->ps->t, tp_json_str(entry, "id")))
		return false;
	s = calloc(1, sizeof(*s));
	if (!s)
		return false;
	s->storage = p->storage;
	snprintf(s->vm, sizeof(s->vm), "%s", tp_json_str(entry, "vm"));
	snprintf(s->id, sizeof(s->id), "%s", tp_json_str(entry, "id"));
	if (io_worker_submit(p->worker, sweep_run, sweep_done, s, NULL))
		return true;
	free(s);
	return false;
}

void pools_sweep(struct pools *ps)
{
	json_t *entry;
	const char *id;
	void *next;

	for (struct engine_pool *p = ps->first; p; p = p->next)
		json_object_foreach_safe(p->images, next, id, entry)
			if (sweep_one(p, entry))
				json_object_del(p->images, id);
}

/* --- images --- */

static json_t *described(const struct engine_pool *p, const json_t *entry)
{
	const json_t *m = json_object_get(entry, "manifest");
	const char *state = tp_json_str(entry, "state"), *kind = tp_json_str(m, "kind");
	bool whole = state && strcmp(state, "complete") == 0, used = state && strcmp(state, "consumed") == 0;

	return json_pack("{s:O, s:O, s:s, s:s?, s:s, s:s, s:s?, s:O?, s:O?, s:s?, s:b, s:s?, s:i}", "id",
			 json_object_get(entry, "id"), "vm", json_object_get(entry, "vm"), "pool", p->name, "uid",
			 tp_json_str(m, "uid"), "kind", used ? "kept" : kind ? kind : "hibernation", "state",
			 p->storage ? state : "unavailable", "layout", tp_json_str(m, "layout"), "bytes",
			 json_object_get(entry, "bytes"), "raw-bytes", json_object_get(m, "raw-bytes"), "created",
			 tp_json_str(m, "created"), "restorable", whole && p->storage, "why-not",
			 !p->storage ? "its pool is missing" : whole ? NULL :
			 used ? "it was restored before" : "it is not whole", "clones", 0);
}

static int by_id(const void *a, const void *b)
{
	return strcmp(tp_json_str(*(json_t *const *)a, "id"), tp_json_str(*(json_t *const *)b, "id"));
}

json_t *pools_images(struct pools *ps)
{
	json_t *out = json_array(), *entry, **list;
	const char *id;
	size_t n = 0, k = 0;

	for (struct engine_pool *p = ps->first; p; p = p->next)
		n += json_object_size(p->images);
	list = calloc(n + 1, sizeof(json_t *));
	for (struct engine_pool *p = list ? ps->first : NULL; p; p = p->next)
		json_object_foreach(p->images, id, entry)
			if ((list[k] = described(p, entry)))
				k++;
	if (k)
		qsort(list, k, sizeof(json_t *), by_id);
	for (size_t i = 0; i < k; i++)
		json_array_append_new(out, list[i]);
	free(list);
	return out;
}

const json_t *pools_image(struct pools *ps, const char *id, struct engine_pool **pool)
{
	for (struct engine_pool *p = ps->first; p && id; p = p->next) {
		json_t *entry = json_object_get(p->images, id);

		if (!entry)
			continue;
		if (pool)
			*pool = p;
		return entry;
	}
	return NULL;
}

static void tell_image(struct pools *ps, const char *id, const char *vm, const char *state)
{
	api_event(ps->t, "IMAGE", vm, false, json_pack("{s:s, s:s?, s:s}", "image", id, "vm", vm, "state", state));
}

void pools_image_drop(struct pools *ps, struct engine_pool *p, const char *id)
{
	const json_t *entry = p ? json_object_get(p->images, id) : pools_image(ps, id, &p);

	if (!entry)
		return;
	tell_image(ps, id, tp_json_str(entry, "vm"), "deleted");
	json_object_del(p->images, id);
}

void pools_image_state(struct pools *ps, const char *id, const char *state)
{
	json_t *entry = (json_t *)pools_image(ps, id, NULL);

	if (!entry)
		return;
	tp_json_set_str(entry, "state", state);
	tell_image(ps, id, tp_json_str(entry, "vm"), state);
}

void pools_image_sealed(struct pools *ps, const char *pool, const char *vm, const char *id, json_t *manifest)
{
	struct engine_pool *p = pools_find(ps, pool);

	if (!p)
		return;
	if (!manifest) {
		look_again(p);
		return;
	}
	json_object_set_new(p->images, id, json_pack("{s:s, s:s, s:s, s:O, s:O}", "id", id, "vm", vm, "state",
						     "complete", "manifest", manifest, "bytes",
						     json_object_get(manifest, "bytes")));
	tell_image(ps, id, vm, "complete");
}

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
