/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * verbs_undefine.c - A VM is forgotten: its images where asked for, its folder, itself
 *
 * Images and folder go on workers; meanwhile the VM is "gone": in the registry, so that its name is
 * taken, but found by no verb. It is freed when its folder is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/standing.h"
#include "engine/verbs.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"

static json_t *images_of(struct vm *vm)
{
	tp_autojson json_t *all = pools_images(vm->t->pools);
	json_t *mine = json_array(), *image;
	const char *last = "";
	size_t i;

	/* By id: an unfinished copy follows its image, and goes with it. */
	json_array_foreach(all, i, image) {
		if (strcmp(tp_json_str(image, "vm"), vm->name) != 0 || strcmp(tp_json_str(image, "id"), last) == 0)
			continue;
		last = tp_json_str(image, "id");
		json_array_append(mine, json_object_get(image, "id"));
	}
	return mine;
}

struct undefine {
	struct torpor *t;
	struct api_call *call;
	char name[TP_NAME_MAX + 1];
	json_t *images;			/* to be deleted */
};

static bool undefine_run(void *arg, struct tp_error *err)
{
	struct undefine *u = arg;
	tp_autoclose int run = tp_open_dir(u->t->runtime_dir, NULL);

	/* Sockets and what the user's QEMU left beside them; what is more than that stays. */
	if (run >= 0)
		tp_remove_dir(run, u->name, NULL);
	/* state.json's predecessor may still be on its way: this runs behind it on the same worker. */
	return state_dir_vm_remove(u->t->state, u->name, err);
}

/* It did not come to it: the VM is there as before. */
static void undefine_failed(struct undefine *u, const struct tp_error *err)
{
	struct vm *vm = vm_find(u->t, u->name);

	if (vm)
		vm->gone = false;
	api_error(u->call, err, NULL);
	json_decref(u->images);
	free(u);
}

static void undefine_done(void *arg, const struct tp_error *err)
{
	struct undefine *u = arg;
	struct vm *vm = vm_find(u->t, u->name);

	/* Its files may be half gone: it goes all the same. */
	if (vm)
		vm_destroy(vm);
	standing_soon(u->t, true);
	if (err) {
		api_error(u->call, err, NULL);
	} else {
		api_event(u->t, "VM_UNDEFINED", u->name, false, json_pack("{s:s}", "vm", u->name));
		api_reply(u->call, json_object());
	}
	json_decref(u->images);
	free(u);
}

static void delete_next(struct undefine *u);

static void deleted(struct api_call *call, void *arg, const struct tp_error *err)
{
	struct undefine *u = arg;

	(void)call;
	if (err) {
		undefine_failed(u, err);
		return;
	}
	/* Of what people copied by hand another pool has one more. */
	if (!pools_image_elsewhere(u->t->pools, json_string_value(json_array_get(u->images, 0)), NULL))
		json_array_remove(u->images, 0);
	delete_next(u);
}

static void delete_next(struct undefine *u)
{
	struct vm *vm = vm_find(u->t, u->name);
	struct tp_error err = TP_ERROR_INIT;

	if (json_array_size(u->images)) {
		const json_t *id = json_array_get(u->images, 0);

		if (!image_delete_async(u->call, json_string_value(id), NULL, deleted, u, &err))
			deleted(u->call, u, &err);
		return;
	}
	if (!io_worker_submit(u->t->worker, undefine_run, undefine_done, u, &err)) {
		undefine_failed(u, &err);
		return;
	}
	/* With keep-running: QEMU goes on, its end is none of ours from here on. */
	if (vm)
		vm_qemu_forget(vm);
}

static void let_go(void *arg, const struct tp_error *err)
{
	struct undefine *u = arg;

	if (err)
		undefine_failed(u, err);
	else
		delete_next(u);
}

/* First of all, durably, it is no longer hibernated: else a power cut could leave it so without memory. */
static void begin_deleting(struct undefine *u, struct vm *vm)
{
	struct tp_error err = TP_ERROR_INIT;

	if (vm->state != VM_HIBERNATED || !json_array_size(u->images))
		delete_next(u);
	else if (!vm_image_let_go(vm, let_go, u, &err))
		undefine_failed(u, &err);
}

static bool may_undefine(struct vm *vm, const char *images, json_t *mine, struct tp_error *err, json_t **data)
{
	bool keep_running = tp_json_bool(*data, "keep-running", false);

	*data = NULL;
	if (!ops_free_for(vm, err, data))
		return false;
	if (vm->marking || vm->undecided)
		return tp_fail_class(err, TP_ESTATE, "Busy", "VM %s cannot be undefined now: try again", vm->name);
	if (vm->qemu && !keep_running) {
		*data = json_pack("{s:s}", "use", "vm-quit");
		return tp_fail_class(err, TP_ESTATE, "InvalidState", "VM %s is running: power it down first, or give "
				     "\"keep-running\": true", vm->name);
	}
	if (strcmp(images, "refuse") == 0 && json_array_size(mine)) {
		*data = json_pack("{s:O, s:s}", "images", mine, "use", "vm-discard");
		return tp_fail_class(err, TP_ESTATE, "InvalidState", "VM %s has saved memory (image %s): give \"images\": "
				     "\"keep\", or \"images\": \"delete\"", vm->name, json_string_value(json_array_get(mine, 0)));
	}
	return true;
}

void api_vm_undefine(struct api_call *call)
{
	const json_t *args = api_args(call);
	const char *images = tp_json_str(args, "images");
	struct vm *vm = verb_vm(call);
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *mine = vm ? images_of(vm) : NULL;
	json_t *data = (json_t *)args;
	struct undefine *u;

	if (!vm)
		return;
	images = images ? images : "refuse";
	if (!may_undefine(vm, images, mine, &err, &data)) {
		api_error(call, &err, data);
		return;
	}
	u = calloc(1, sizeof(*u));
	if (!u) {
		tp_fail_nomem(&err);
		api_error(call, &err, NULL);
		return;
	}
	*u = (struct undefine){ .t = vm->t, .call = call,
				.images = strcmp(images, "delete") == 0 ? json_incref(mine) : json_array() };
	snprintf(u->name, sizeof(u->name), "%s", vm->name);
	/* No verb finds it from here on; its name is taken until its folder is gone. */
	vm->gone = true;
	begin_deleting(u, vm);
}
