/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verbs_image.c - Verbs on images */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/pool_job.h"
#include "engine/prefetch.h"
#include "engine/steps.h"
#include "engine/restore.h"
#include "engine/retain.h"
#include "engine/verbs.h"
#include "engine/vm_image.h"

#define QUERY_IMAGES_LIMIT 10000

static bool is(const json_t *image, const json_t *args, const char *member)
{
	const char *want = tp_json_str(args, member), *has = tp_json_str(image, member);

	return !want || (has && strcmp(want, has) == 0);
}

/* Sorted by id, so that `after` means something. */
void api_query_images(struct api_call *call)
{
	const json_t *args = api_args(call);
	tp_autojson json_t *all = pools_images(api_engine(call)->pools);
	json_int_t limit = tp_json_int(args, "limit", QUERY_IMAGES_LIMIT);
	const char *after = tp_json_str(args, "after");
	json_t *out = json_array(), *image;
	size_t i;

	json_array_foreach(all, i, image) {
		/* What two pools have of one image stays together. */
		if ((json_int_t)json_array_size(out) >= limit &&
		    strcmp(tp_json_str(json_array_get(out, json_array_size(out) - 1), "id"),
			   tp_json_str(image, "id")) != 0)
			break;
		if ((!after || strcmp(tp_json_str(image, "id"), after) > 0) && is(image, args, "vm") &&
		    is(image, args, "pool") && is(image, args, "state"))
			json_array_append(out, image);
	}
	api_reply(call, out);
}

/* --- delete --- */

struct deletion {
	struct torpor *t;
	struct api_call *call;
	char pool[TP_NAME_MAX + 1];
	void (*done)(struct api_call *call, void *arg, const struct tp_error *err);
	void *arg;
};

static void delete_done(struct job *job, const struct tp_error *err, void *arg)
{
	struct deletion *d = arg;
	const char *id = tp_json_str(job->in, "id");

	if (!err)
		pools_image_drop(d->t->pools, d->pool, id);
	/* A copy whose image was gone before: the others are worth no more than it. */
	if (!err && !pools_image(d->t->pools, id, NULL))
		retain_drop_copies(d->t, id);
	d->done(d->call, d->arg, err);
	free(d);
}

static const json_t *in_pool(struct torpor *t, const char *id, const char *pool, struct engine_pool **p)
{
	*p = pools_find(t->pools, pool);
	return *p ? json_object_get(engine_pool_images(*p), id) : NULL;
}

bool image_delete_async(struct api_call *call, const char *id, const char *pool,
			void (*done)(struct api_call *call, void *arg, const struct tp_error *err), void *arg,
			struct tp_error *err)
{
	struct torpor *t = api_engine(call);
	struct engine_pool *p = NULL;
	const json_t *entry = pool ? in_pool(t, id, pool, &p) : pools_image(t->pools, id, &p);
	struct deletion *d;

	if (!entry && !pool)
		entry = pools_copy(t->pools, id, &p);
	if (!entry)
		return tp_fail_class(err, TP_ESTATE, "NotFound", "no image is named \"%s\"%s%s", id,
				     pool ? " in pool " : "", pool ? pool : "");
	if (!pools_need(t->pools, engine_pool_name(p), err))
		return false;
	d = calloc(1, sizeof(*d));
	if (!d)
		return tp_fail_nomem(err);
	*d = (struct deletion){ .t = t, .call = call, .done = done, .arg = arg };
	snprintf(d->pool, sizeof(d->pool), "%s", engine_pool_name(p));
	if (pool_job(p, image_drop, json_pack("{s:s, s:O}", "id", id, "vm", json_object_get(entry, "vm")),
		     delete_done, d, err))
		return true;
	free(d);
	return false;
}

static bool is_busy(struct torpor *t, const char *id, struct tp_error *err, json_t **data)
{
	const char *beside = ops_beside_image(t, id);

	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		const char *used = vm_image_worked_with(vm);

		if (used && strcmp(used, id) == 0)
			return !ops_free_for(vm, err, data);
		if (!prefetch_uses(vm, id))
			continue;
		*data = json_pack("{s:s, s:s, s:O*, s:s}", "image", id, "vm", vm->name, "operation",
				  tp_json_path(vm->rest, "prefetch.operation"), "phase", "Prefetching");
		tp_fail_class(err, TP_ESTATE, "Busy", "memory of VM %s still comes from image %s: wait until it is "
			      "whole", vm->name, id);
		return true;
	}
	if (!beside)
		return false;
	*data = json_pack("{s:s, s:s, s:s}", "image", id, "operation", beside, "kind", "image-verify");
	tp_fail_class(err, TP_ESTATE, "Busy", "image %s is being verified by operation %s: wait for it or cancel "
		      "it", id, beside);
	return true;
}

/* A VM's only state, or what an operation works with, is not deleted. pool: a copy of it there. */
static bool may_delete(struct torpor *t, const char *id, const char *pool, struct tp_error *err, json_t **data)
{
	struct engine_pool *p = NULL;
	bool image = pools_image(t->pools, id, &p) && (!pool || strcmp(engine_pool_name(p), pool) == 0);

	if (is_busy(t, id, err, data))
		return false;
	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		const json_t *rest = json_object_get(vm->rest, "image");
		const char *own = tp_json_str(rest, "id"), *in = tp_json_str(rest, "pool");

		if (!own || strcmp(own, id) != 0 || !(image || !pool || (in && strcmp(in, pool) == 0)))
			continue;
		*data = json_pack("{s:s, s:s}", "vm", vm->name, "use", "vm-discard");
		return tp_fail_class(err, TP_ESTATE, "InvalidState", "image %s is the saved state of VM %s: use "
				     "vm-discard to throw it away", id, vm->name);
	}
	return true;
}

static void deleted(struct api_call *call, void *arg, const struct tp_error *err)
{
	(void)arg;
	if (err)
		api_error(call, err, NULL);
	else
		api_reply(call, json_object());
}

void api_image_delete(struct api_call *call)
{
	const char *id = tp_json_str(api_args(call), "image"), *pool = tp_json_str(api_args(call), "pool");
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	if (!may_delete(api_engine(call), id, pool, &err, &data) ||
	    !image_delete_async(call, id, pool, deleted, NULL, &err))
		api_error(call, &err, data ? data : json_pack("{s:s}", "image", id));
}

/* --- operations --- */

/* The VM's name in the id of an image that is known; or the call is answered. */
static bool image_vm(struct api_call *call, char vm[TP_NAME_MAX + 1])
{
	const char *given = tp_json_str(api_args(call), "operation-id");
	const char *id = tp_json_str(api_args(call), "image");
	struct torpor *t = api_engine(call);
	struct tp_error err = TP_ERROR_INIT;
	struct engine_pool *p = NULL;

	/* Of an operation that is known by its id the image may be gone by now. */
	if (pool_image_vm(id, vm) && (pools_image(t->pools, id, NULL) || given))
		return true;
	if (pools_copy(t->pools, id, &p))
		tp_fail_class(&err, TP_ESTATE, "NotFound", "image %s is whole in no pool: pool %s has an unfinished copy", id,
			      engine_pool_name(p));
	else
		tp_fail_class(&err, TP_ESTATE, "NotFound", "no image is named \"%s\"", id);
	api_error(call, &err, json_pack("{s:s}", "image", id));
	return false;
}

void api_image_verify(struct api_call *call)
{
	char vm[TP_NAME_MAX + 1];

	if (image_vm(call, vm))
		ops_submit_beside(call, vm, &plan_image_verify, ops_timeout(call, 0));
}

void api_image_move(struct api_call *call)
{
	struct tp_error err = TP_ERROR_INIT;
	char name[TP_NAME_MAX + 1];
	struct vm *vm;

	if (!image_vm(call, name))
		return;
	vm = vm_need(api_engine(call), name, &err);
	if (vm)
		ops_submit(call, vm, &plan_image_move, ops_timeout(call, 0));
	else
		api_error(call, &err, json_pack("{s:s, s:O}", "vm", name, "image",
						json_object_get(api_args(call), "image")));
}
