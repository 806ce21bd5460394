/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verbs_image.c - Verbs on images */
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/steps.h"
#include "engine/restore.h"
#include "engine/verbs.h"

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
		if ((json_int_t)json_array_size(out) >= limit)
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
	struct job *job;
	void (*done)(struct api_call *call, void *arg, const struct tp_error *err);
	void *arg;
};

static bool delete_run(void *arg, struct tp_error *err)
{
	struct deletion *d = arg;

	return image_drop(d->job, err);
}

static void delete_done(void *arg, const struct tp_error *err)
{
	struct deletion *d = arg;

	if (!err)
		pools_image_drop(d->t->pools, NULL, tp_json_str(d->job->in, "id"));
	d->done(d->call, d->arg, err);
	d->job->base.free(&d->job->base);
	free(d);
}

bool image_delete_async(struct api_call *call, const char *id,
			void (*done)(struct api_call *call, void *arg, const struct tp_error *err), void *arg,
			struct tp_error *err)
{
	struct torpor *t = api_engine(call);
	struct engine_pool *p = NULL;
	const json_t *entry = pools_image(t->pools, id, &p);
	struct deletion *d;

	if (!entry)
		return tp_fail_class(err, TP_ESTATE, "NotFound", "no image is named \"%s\"", id);
	d = calloc(1, sizeof(*d));
	if (!d)
		return tp_fail_nomem(err);
	*d = (struct deletion){ .t = t, .call = call, .done = done, .arg = arg };
	d->job = job_new(image_drop, json_pack("{s:s, s:O}", "id", id, "vm", json_object_get(entry, "vm")), p, err);
	if (d->job && io_worker_submit(engine_pool_worker(p), delete_run, delete_done, d, err))
		return true;
	if (d->job)
		d->job->base.free(&d->job->base);
	free(d);
	return tp_fail_nomem(err);
}

/* A VM's only state, or what an operation works with, is not deleted. */
static bool may_delete(struct torpor *t, const char *id, struct tp_error *err, json_t **data)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		const char *own = tp_json_str(json_object_get(vm->rest, "image"), "id");
		const char *used = vm->op ? tp_json_str(json_object_get(op_res(vm->op), "image"), "id") : NULL;

		if (used && strcmp(used, id) == 0)
			return ops_free_for(vm, err, data);
		if (!own || strcmp(own, id) != 0)
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
	const char *id = tp_json_str(api_args(call), "image");
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	if (!may_delete(api_engine(call), id, &err, &data) || !image_delete_async(call, id, deleted, NULL, &err))
		api_error(call, &err, data ? data : json_pack("{s:s}", "image", id));
}
