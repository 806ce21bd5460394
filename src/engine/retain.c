/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* retain.c - Retention: kept images that are too many or too old are deleted */
#include "engine/retain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/pool_job.h"
#include "engine/prefetch.h"
#include "engine/restore.h"
#include "engine/steps.h"
#include "engine/vm_image.h"

TP_LOG_SOURCE("engine.retain");

/* --- one deletion --- */

struct removal {
	struct torpor *t;
	char pool[TP_NAME_MAX + 1];
	const char *reason;		/* literal */
};

static void removal_done(struct job *job, const struct tp_error *err, void *arg)
{
	struct removal *r = arg;
	const char *id = tp_json_str(job->in, "id");
	struct engine_pool *p = pools_find(r->t->pools, r->pool);
	json_t *entry = p ? json_object_get(engine_pool_images(p), id) : NULL;

	if (entry)
		json_object_del(entry, "removing");
	if (err && err->code != TP_ECANCELLED)
		tp_warn("image %s in pool %s was not deleted (%s): %s", id, r->pool, r->reason, err->text);
	else if (!err)
		tp_info("image %s in pool %s was deleted: %s", id, r->pool, r->reason);
	if (!err)
		pools_image_gone(r->t->pools, r->pool, id, r->reason);
	free(r);
}

static void remove_image(struct torpor *t, struct engine_pool *p, json_t *entry, const char *reason)
{
	struct tp_error err = TP_ERROR_INIT;
	struct removal *r;

	if (json_object_get(entry, "removing") || !pools_need(t->pools, engine_pool_name(p), &err))
		return;
	r = calloc(1, sizeof(*r));
	if (!r)
		return;
	r->t = t;
	r->reason = reason;
	snprintf(r->pool, sizeof(r->pool), "%s", engine_pool_name(p));
	if (pool_job(p, image_drop, json_pack("{s:O, s:O}", "id", json_object_get(entry, "id"), "vm",
					      json_object_get(entry, "vm")), removal_done, r, NULL))
		tp_json_set(entry, "removing", json_true());
	else
		free(r);
}

/* --- kept images --- */

struct kept {
	struct engine_pool *pool;
	json_t *entry;
};

static bool used(struct torpor *t, const char *id)
{
	if (ops_beside_image(t, id))
		return true;
	for (const struct vm *vm = t->vms; vm; vm = vm->next) {
		const char *own = vm_image_id(vm);
		const char *by_op = vm_image_worked_with(vm);

		if ((own && strcmp(own, id) == 0) || (by_op && strcmp(by_op, id) == 0) || prefetch_uses(vm, id))
			return true;
	}
	return false;
}

static bool is_kept(const struct vm *vm, const json_t *entry)
{
	const char *of = tp_json_str(entry, "vm"), *state = tp_json_str(entry, "state");
	const char *uid = tp_json_str(json_object_get(entry, "manifest"), "uid");

	return of && strcmp(of, vm->name) == 0 && uid && strcmp(uid, vm->uid) == 0 &&
	       (json_object_get(entry, "consumed") || (state && strcmp(state, "consumed") == 0)) &&
	       !json_object_get(entry, "moving") && !json_object_get(entry, "left") &&
	       !used(vm->t, tp_json_str(entry, "id"));
}

/* Ids have their time: the newest first. */
static int newest_first(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	return strcmp(tp_json_str(y->entry, "id"), tp_json_str(x->entry, "id"));
}

static size_t collect(const struct vm *vm, struct kept **list)
{
	size_t n = 0, room = 0;
	const char *id;
	json_t *entry;

	*list = NULL;
	for (struct engine_pool *p = pools_each(vm->t->pools, NULL); p; p = pools_each(vm->t->pools, p)) {
		json_object_foreach((json_t *)engine_pool_images(p), id, entry) {
			struct kept *more;

			if (!is_kept(vm, entry))
				continue;
			if (n == room) {
				room = room ? 2 * room : 16;
				more = reallocarray(*list, room, sizeof(*more));
				if (!more)
					return n;
				*list = more;
			}
			(*list)[n++] = (struct kept){ p, entry };
		}
	}
	if (n)
		qsort(*list, n, sizeof(**list), newest_first);
	return n;
}

static bool older_than(const json_t *entry, double age)
{
	const char *created = tp_json_str(json_object_get(entry, "manifest"), "created");
	uint64_t at, now = tp_now_us();

	return created && tp_time_parse(created, &at) && now > at && (double)(now - at) / 1e6 > age;
}

void retain_vm(struct vm *vm)
{
	const json_t *retain = tp_json_path(vm->spec, "storage.retain");
	const json_t *count = json_object_get(retain, "count"), *age = json_object_get(retain, "age");
	json_int_t newer = 0;		/* images, of which two pools may have copies */
	struct kept *list;
	size_t n;

	if ((!count && !age) || vm->gone || vm->t->closing)
		return;
	n = collect(vm, &list);
	for (size_t i = 0; i < n; i++) {
		newer += i > 0 && newest_first(&list[i - 1], &list[i]) != 0;
		if (count && newer >= json_integer_value(count))
			remove_image(vm->t, list[i].pool, list[i].entry, "retain.count");
		else if (age && older_than(list[i].entry, json_number_value(age)))
			remove_image(vm->t, list[i].pool, list[i].entry, "retain.age");
	}
	free(list);
}

/* --- unfinished copies --- */

/* One that has a manifest may be the image itself: its move was cut, and what says so was lost. */
static bool is_waste(struct torpor *t, const char *id, const json_t *entry)
{
	return json_object_get(entry, "moving") && !json_object_get(entry, "manifest") && !used(t, id);
}

static bool pools_all_ready(struct torpor *t)
{
	for (struct engine_pool *p = pools_each(t->pools, NULL); p; p = pools_each(t->pools, p))
		if (!pools_need(t->pools, engine_pool_name(p), NULL))
			return false;
	return true;
}

static void drop_copies(struct torpor *t, const char *image)
{
	for (struct engine_pool *p = pools_each(t->pools, NULL); p; p = pools_each(t->pools, p)) {
		const char *id;
		json_t *entry;

		json_object_foreach((json_t *)engine_pool_images(p), id, entry)
			if (json_object_get(entry, "moving") && (image ? strcmp(id, image) == 0 :
			    is_waste(t, id, entry) && !pools_image(t->pools, id, NULL)))
				remove_image(t, p, entry, "copy");
	}
}

void retain_drop_copies(struct torpor *t, const char *image)
{
	drop_copies(t, image);
}

void retain_sweep_copies(struct torpor *t)
{
	/* The image itself may be in a pool that is away. */
	if (pools_all_ready(t))
		drop_copies(t, NULL);
}

void retain_all(struct torpor *t)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		retain_vm(vm);
	retain_sweep_copies(t);
}
