/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pools_images.c - The images of the pools as they are known: the kept catalogue, what a crash left
 *
 * The list follows what jobs did as their ends come in; a look at the pool (pools.c) replaces it.
 *
 * People copy and move the folders of images by hand. Where two pools have one image, the one counts
 * that the durable rest of a VM names; what the other has is listed, says so, and is never taken by
 * itself. A VM's state that is in another pool than the rest says is not taken by itself either: it
 * may be an old copy, and the right one on its way back. Who names it gets it.
 */
#include "engine/pools_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/left_behind.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/restorable.h"
#include "engine/retain.h"
#include "engine/standing.h"
#include "engine/vm_image.h"

TP_LOG_SOURCE("engine.pools");

/* --- the kept list --- */

static bool same(const json_t *a, const json_t *b, const char *member)
{
	const json_t *x = json_object_get(a, member), *y = json_object_get(b, member);

	return x == y || json_equal(x, y);
}

/* Those whose state came, went or is another by now, by whatever way. */
static void look_at_vms(struct engine_pool *p, const json_t *before)
{
	for (struct vm *vm = p->ps->t->vms; vm; vm = vm->next) {
		const char *id = vm_image_id(vm);
		const json_t *a = id ? json_object_get(before, id) : NULL;
		const json_t *b = id ? json_object_get(p->images, id) : NULL;

		if (!a != !b || !same(a, b, "state") || !same(a, b, "why"))
			restorable_check(vm);
	}
}

void pools_images_keep(struct engine_pool *p, const json_t *entries)
{
	tp_autojson json_t *before = p->images;
	size_t i;
	json_t *entry;

	p->images = json_object();
	json_array_foreach(entries, i, entry) {
		json_object_set(p->images, tp_json_str(entry, "id"), entry);
		if (left_behind(p->ps->t, p->name, tp_json_str(entry, "id")))
			tp_json_set(entry, "left", json_true());
	}
	left_behind_seen(p->ps->t, p->name, p->images);
	look_at_vms(p, before);
}

/* A copy in the making, or what a move could not remove: not the image. */
static bool is_copy(const json_t *entry)
{
	return json_object_get(entry, "moving") != NULL || json_object_get(entry, "left") != NULL;
}

static bool is_state(const json_t *entry, const char *state)
{
	const char *is = tp_json_str(entry, "state");

	return is && strcmp(is, state) == 0;
}

/* --- which one counts --- */

static json_t *image_at(const struct engine_pool *p, const char *id)
{
	json_t *entry = p && id ? json_object_get(p->images, id) : NULL;

	return entry && !is_copy(entry) ? entry : NULL;
}

const json_t *pools_image_at(struct pools *ps, const char *pool, const char *id)
{
	return image_at(pool ? pools_find(ps, pool) : NULL, id);
}

/* The VM whose state it is, or that was restored from it. Two of them: the one that its id names. */
static const struct vm *vm_of(const struct pools *ps, const char *id)
{
	const struct vm *found = NULL;
	char name[TP_NAME_MAX + 1];

	for (const struct vm *vm = id ? ps->t->vms : NULL; vm; vm = vm->next) {
		const char *own = vm_image_id(vm);

		if (!own || strcmp(own, id) != 0)
			continue;
		if (!found || (pool_image_vm(id, name) && strcmp(name, vm->name) == 0))
			found = vm;
	}
	return found;
}

static const char *pool_of(const struct vm *vm)
{
	return vm ? tp_json_str(json_object_get(vm->rest, "image"), "pool") : NULL;
}

struct engine_pool *pools_image_elsewhere(struct pools *ps, const char *id, const char *pool)
{
	for (struct engine_pool *p = ps->first; p; p = p->next)
		if (engine_pool_ready(p) && (!pool || strcmp(p->name, pool) != 0) && image_at(p, id))
			return p;
	return NULL;
}

bool pools_image_astray(struct pools *ps, const struct vm *vm, struct tp_error *err)
{
	const char *id = vm_image_id(vm), *pool = pool_of(vm);
	const struct engine_pool *p = pool ? pools_find(ps, pool) : NULL, *other;

	if (!id || !p || !engine_pool_ready(p) || image_at(p, id))
		return false;
	other = pools_image_elsewhere(ps, id, pool);
	if (!other)
		return false;
	tp_fail_class(err, TP_ESTATE, "NotFound", "image %s, the state of VM %s, is not in pool %s any more, but in "
		      "pool %s: move it back with image-move, or restore it by naming it (image)", id, vm->name, pool,
		      other->name);
	return true;
}

/* New string; NULL: it is the one that counts, as far as is known. */
static json_t *why_not_counted(const struct engine_pool *p, const char *id)
{
	const struct vm *vm = vm_of(p->ps, id);
	const char *pool = pool_of(vm);
	struct tp_error err = TP_ERROR_INIT;

	if (!pool || strcmp(pool, p->name) == 0)
		return NULL;
	if (pools_image_astray(p->ps, vm, &err))
		return json_string(err.text);
	return json_sprintf("it is a copy: VM %s has it in pool %s, which is the one that counts", vm->name, pool);
}

static json_t *why_not_whole(const struct engine_pool *p, const json_t *entry)
{
	const char *id = tp_json_str(entry, "id");
	const json_t *moving = json_object_get(entry, "moving");
	const char *from = tp_json_str(moving, "from"), *pool = pool_of(vm_of(p->ps, id));

	if (pool && strcmp(pool, p->name) == 0)
		return json_sprintf("by its file moving.json it is an unfinished copy, but it is the state of VM %s: finish "
				    "the move, or remove that file if it was put there by hand", vm_of(p->ps, id)->name);
	if (!from || !tp_json_int(moving, "bytes", 0))
		return json_string("it has a file moving.json that does not say of what it is a copy: image-delete with "
				   "this pool removes it");
	return json_sprintf("being moved from pool %s: %lld of %lld bytes are here; image-move to this pool goes on, "
			    "image-delete with this pool removes them", from,
			    (long long)tp_json_int(entry, "bytes", 0), (long long)tp_json_int(moving, "bytes", 0));
}

/* New string, or NULL: it can be restored, as far as is known. */
static json_t *why_not(const struct engine_pool *p, const json_t *entry)
{
	char text[TP_TEXT_SIZE];
	const char *why = tp_json_str(entry, "why");
	bool whole = is_state(entry, "complete") || is_state(entry, "consumed");
	json_t *uncounted;

	if (!engine_pool_ready(p))
		return json_sprintf("its pool %s is missing: %s", p->name, engine_pool_message(p, text));
	if (json_object_get(entry, "left"))
		return json_string("it was moved to another pool, what is here is to be removed");
	if (json_object_get(entry, "moving"))
		return why_not_whole(p, entry);
	uncounted = whole ? why_not_counted(p, tp_json_str(entry, "id")) : NULL;
	if (uncounted || is_state(entry, "complete"))
		return uncounted;
	if (is_state(entry, "consumed"))
		return json_string("it was restored before: its guest may have written to the disks since");
	if (is_state(entry, "partial"))
		return json_string("it is not finished: it is being written, or its writer was interrupted");
	if (is_state(entry, "corrupt"))
		return json_sprintf("it is damaged: %s", why ? why : "a verification failed");
	return json_sprintf("it cannot be read: %s", why ? why : "unknown");
}

static const char *verified_at(const json_t *entry)
{
	const json_t *outcome = json_object_get(entry, "verified");

	return tp_json_bool(outcome, "ok", false) ? tp_json_str(outcome, "at") : NULL;
}

static json_t *described(const struct engine_pool *p, const json_t *entry)
{
	const json_t *m = json_object_get(entry, "manifest");
	const char *id = tp_json_str(entry, "id"), *vm = tp_json_str(entry, "vm"), *kind = tp_json_str(m, "kind");
	bool used = is_state(entry, "consumed") || json_object_get(entry, "consumed");
	bool ready = engine_pool_ready(p), whole = is_state(entry, "complete") && ready && !is_copy(entry);
	json_t *why = why_not(p, entry);

	return json_pack("{s:s, s:s, s:s, s:o, s:s?, s:s, s:s, s:s?, s:O?, s:O?, s:s?, s:s?, s:b, s:o?, s:i}", "id",
			 id, "vm", vm, "pool", p->name, "path", json_sprintf("%s/%s/%s", p->path, vm, id), "uid",
			 tp_json_str(m, "uid"), "kind", used ? "kept" : kind ? kind : "hibernation", "state",
			 !ready ? "unavailable" : is_copy(entry) ? "partial" : tp_json_str(entry, "state"),
			 "layout", tp_json_str(m, "layout"), "bytes", json_object_get(entry, "bytes"), "raw-bytes",
			 json_object_get(m, "raw-bytes"), "created", tp_json_str(m, "created"), "verified",
			 verified_at(entry), "restorable", whole && !why, "why-not", why, "clones", 0);
}

/* The state of a hibernated VM that no pool is known to have: its pool was never there. */
static json_t *described_absent(struct pools *ps, const struct vm *vm)
{
	const json_t *image = json_object_get(vm->rest, "image");
	const char *id = tp_json_str(image, "id"), *pool = tp_json_str(image, "pool");
	const char *of = tp_json_str(image, "vm");
	const struct engine_pool *p = pool ? pools_find(ps, pool) : NULL;
	char text[TP_TEXT_SIZE];
	json_t *why;

	/* One that ran had it deleted, perhaps just before the host ended. */
	if (!id || !pool || tp_json_bool(vm->rest, "ran", false) || (p && json_object_get(p->images, id)))
		return NULL;
	/* The entry of the pool that has it says that it is not where it should be. */
	if (pools_image_astray(ps, vm, NULL))
		return NULL;
	why = !p ? json_sprintf("no pool is named %s", pool) :
	      !engine_pool_ready(p) ? json_sprintf("its pool %s is missing: %s", pool, engine_pool_message(p, text)) :
	      json_sprintf("pool %s does not have it", pool);
	return json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:i, s:n, s:b, s:o, s:i}", "id", id, "vm",
			 of ? of : vm->name, "pool", pool, "path",
			 p ? json_sprintf("%s/%s/%s", p->path, of ? of : vm->name, id) : json_null(), "uid", vm->uid,
			 "kind", "hibernation", "state", "unavailable", "bytes", 0, "verified", "restorable", 0,
			 "why-not", why, "clones", 0);
}

static int by_id(const void *a, const void *b)
{
	return strcmp(tp_json_str(*(json_t *const *)a, "id"), tp_json_str(*(json_t *const *)b, "id"));
}

json_t *pools_images(struct pools *ps)
{
	json_t *out = json_array(), *entry, **list;
	const char *id;
	size_t n = vm_count(ps->t), k = 0;

	for (struct engine_pool *p = ps->first; p; p = p->next)
		n += json_object_size(p->images);
	list = calloc(n + 1, sizeof(json_t *));
	for (struct vm *vm = list ? ps->t->vms : NULL; vm; vm = vm->next)
		if ((list[k] = described_absent(ps, vm)))
			k++;
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
	const char *counts = pool_of(vm_of(ps, id));
	struct engine_pool *p = counts ? pools_find(ps, counts) : NULL;

	if (!image_at(p, id))
		p = pools_image_elsewhere(ps, id, NULL);
	/* Not one that is away, unless no other has it. */
	for (struct engine_pool *any = p ? NULL : ps->first; any && !p; any = any->next)
		if (image_at(any, id))
			p = any;
	if (pool && p)
		*pool = p;
	return image_at(p, id);
}

const json_t *pools_copy(struct pools *ps, const char *id, struct engine_pool **pool)
{
	for (struct engine_pool *p = ps->first; p && id; p = p->next) {
		const json_t *entry = json_object_get(p->images, id);

		if (!entry || !is_copy(entry))
			continue;
		if (pool)
			*pool = p;
		return entry;
	}
	return NULL;
}

const json_t *engine_pool_images(const struct engine_pool *p)
{
	return p->images;
}

struct engine_pool *pools_each(struct pools *ps, struct engine_pool *after)
{
	return after ? after->next : ps->first;
}

static void tell_image(struct engine_pool *p, const char *id, const char *vm, const char *state,
		       const char *reason)
{
	api_event(p->ps->t, "IMAGE", vm, false, json_pack("{s:s, s:s?, s:s, s:s, s:s*}", "image", id, "vm", vm,
							  "pool", p->name, "state", state, "reason", reason));
}

void pools_image_gone(struct pools *ps, const char *pool, const char *id, const char *reason)
{
	struct engine_pool *p = pools_find(ps, pool);
	const json_t *entry = p ? json_object_get(p->images, id) : NULL;
	bool copy = entry && is_copy(entry);
	tp_autofree char *name = strdup(id);	/* it may be the entry's own */

	if (!name)
		return;
	if (entry) {
		tell_image(p, name, tp_json_str(entry, "vm"), "deleted", reason);
		json_object_del(p->images, name);
		standing_soon(ps->t, false);	/* there is room */
		pools_look(p, false);
	}
	if (entry && !copy)
		ops_beside_gone(ps->t, name, "was deleted");
	/* Also where a look at the pool has told of its end before this. */
	if (!copy && !pools_image(ps, name, NULL))
		retain_drop_copies(ps->t, name);
}

void pools_image_drop(struct pools *ps, const char *pool, const char *id)
{
	pools_image_gone(ps, pool, id, NULL);
}

void pools_image_state(struct pools *ps, const char *pool, const char *id, const char *state)
{
	struct engine_pool *p = pools_find(ps, pool);
	json_t *entry = image_at(p, id);

	if (!entry)
		return;
	tp_json_set_str(entry, "state", state);
	if (strcmp(state, "complete") == 0)
		json_object_del(entry, "consumed");
	tell_image(p, id, tp_json_str(entry, "vm"), state, NULL);
}

/* As pool_catalogue would say it. */
void pools_image_verified(struct pools *ps, const char *pool, const char *id, json_t *outcome)
{
	bool ok = tp_json_bool(outcome, "ok", false);
	struct engine_pool *p = pools_find(ps, pool);
	json_t *entry = image_at(p, id);
	char text[POOL_DAMAGE_TEXT];

	if (!entry)
		return;
	if (is_state(entry, "consumed") && !json_object_get(entry, "consumed"))
		tp_json_set(entry, "consumed", json_object());
	tp_json_set(entry, "verified", json_incref(outcome));
	json_object_del(entry, "why");
	if (!ok)
		tp_json_set_str(entry, "why", pool_damage_text(outcome, text));
	tp_json_set_str(entry, "state", !ok ? "corrupt" : json_object_get(entry, "consumed") ? "consumed" :
			"complete");
	tell_image(p, id, tp_json_str(entry, "vm"), tp_json_str(entry, "state"), "verified");
	if (!ok)
		tp_warn("image %s is damaged: %s", id, tp_json_str(entry, "why"));
	else if (!json_object_get(entry, "manifest"))
		pools_look(p, true);		/* it was put right meanwhile */
}

void pools_copy_seen(struct pools *ps, const char *pool, const char *vm, const char *id, json_t *moving)
{
	struct engine_pool *p = pools_find(ps, pool);

	if (p)
		json_object_set_new(p->images, id, json_pack("{s:s, s:s, s:s, s:O, s:i}", "id", id, "vm", vm, "state",
							     "partial", "moving", moving, "bytes", 0));
}

void pools_image_moved(struct pools *ps, const char *id, const char *from, const char *to, json_t *entry)
{
	struct engine_pool *a = pools_find(ps, from), *b = pools_find(ps, to);

	if (a)
		json_object_del(a->images, id);
	if (b && entry) {
		json_object_set(b->images, id, entry);
		tell_image(b, id, tp_json_str(entry, "vm"), tp_json_str(entry, "state"), "moved");
	} else if (b) {
		pools_look(b, true);
	}
	ops_beside_gone(ps->t, id, "was moved to another pool");
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
	tell_image(p, id, vm, "complete", NULL);
}

/* --- what a crash left --- */

static bool in_use(struct torpor *t, const char *id)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		char owner[TP_NAME_MAX + 1];

		/* Its journal may not have been read. */
		if (vm->undecided && pool_image_vm(id, owner) && strcmp(owner, vm->name) == 0)
			return true;
		const char *used = vm_image_worked_with(vm);

		if ((used && strcmp(used, id) == 0) || prefetch_uses(vm, id))
			return true;
	}
	return false;
}

struct sweep {
	struct torpor *t;
	struct pool *storage;
	char pool[TP_NAME_MAX + 1], vm[TP_NAME_MAX + 1], id[IMAGE_ID_MAX + 1];
	bool left;		/* it has its manifest, and goes all the same */
};

static bool sweep_run(void *arg, struct tp_error *err)
{
	struct sweep *s = arg;
	struct tp_error none = TP_ERROR_INIT;
	tp_autojson json_t *manifest = s->left ? NULL : pool_manifest_read(s->storage, s->vm, s->id, &none);

	/* The list may be older than the image. */
	if (manifest)
		return tp_fail(err, TP_ESTATE, "it was finished meanwhile");
	return pool_image_remove(s->storage, s->vm, s->id, err);
}

static void sweep_done(void *arg, const struct tp_error *err)
{
	struct sweep *s = arg;

	if (err)
		tp_warn("image %s in pool %s was never finished or is left over, and cannot be removed: %s", s->id,
			s->pool, err->text);
	else
		tp_info("image %s in pool %s was never finished or was left over: removed", s->id, s->pool);
	if (!err)
		left_behind_removed(s->t, s->pool, s->id);
	free(s);
}

static bool sweep_image(struct engine_pool *p, const json_t *entry)
{
	struct sweep *s;

	bool left = json_object_get(entry, "left"), moving = json_object_get(entry, "moving");

	/* What a move has copied waits for the next one. */
	if ((!left && (moving || !is_state(entry, "partial"))) || in_use(p->ps->t, tp_json_str(entry, "id")))
		return false;
	s = calloc(1, sizeof(*s));
	if (!s)
		return false;
	s->t = p->ps->t;
	s->storage = p->storage;
	s->left = left;
	snprintf(s->pool, sizeof(s->pool), "%s", p->name);
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
