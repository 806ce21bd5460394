/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pools_images.c - The images of the pools as they are known: the kept catalogue, what a crash left
 *
 * The list follows what jobs did as their ends come in; a look at the pool (pools.c) replaces it.
 */
#include "engine/pools_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/standing.h"

TP_LOG_SOURCE("engine.pools");

/* --- the kept list --- */

void pools_images_keep(struct engine_pool *p, const json_t *entries)
{
	size_t i;
	json_t *entry;

	json_object_clear(p->images);
	json_array_foreach(entries, i, entry)
		json_object_set(p->images, tp_json_str(entry, "id"), entry);
}

static json_t *described(const struct engine_pool *p, const json_t *entry)
{
	const json_t *m = json_object_get(entry, "manifest");
	const char *state = tp_json_str(entry, "state"), *kind = tp_json_str(m, "kind");
	bool ready = engine_pool_ready(p);
	bool whole = state && strcmp(state, "complete") == 0, used = state && strcmp(state, "consumed") == 0;

	return json_pack("{s:O, s:O, s:s, s:s?, s:s, s:s, s:s?, s:O?, s:O?, s:s?, s:b, s:s?, s:i}", "id",
			 json_object_get(entry, "id"), "vm", json_object_get(entry, "vm"), "pool", p->name, "uid",
			 tp_json_str(m, "uid"), "kind", used ? "kept" : kind ? kind : "hibernation", "state",
			 ready ? state : "unavailable", "layout", tp_json_str(m, "layout"), "bytes",
			 json_object_get(entry, "bytes"), "raw-bytes", json_object_get(m, "raw-bytes"), "created",
			 tp_json_str(m, "created"), "restorable", whole && ready, "why-not",
			 !ready ? "its pool is missing" : whole ? NULL :
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
	standing_soon(ps->t, false);	/* there is room */
	pools_look(p, false);
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
		pools_look(p, true);
		return;
	}
	json_object_set_new(p->images, id, json_pack("{s:s, s:s, s:s, s:O, s:O}", "id", id, "vm", vm, "state",
						     "complete", "manifest", manifest, "bytes",
						     json_object_get(manifest, "bytes")));
	tell_image(ps, id, vm, "complete");
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

static bool sweep_image(struct engine_pool *p, const json_t *entry)
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

void pools_sweep_one(struct engine_pool *p)
{
	json_t *entry;
	const char *id;
	void *next;

	json_object_foreach_safe(p->images, next, id, entry)
		if (sweep_image(p, entry))
			json_object_del(p->images, id);
}

void pools_sweep(struct pools *ps)
{
	ps->serving = true;
	for (struct engine_pool *p = ps->first; p; p = p->next)
		if (engine_pool_ready(p))
			pools_sweep_one(p);
}
