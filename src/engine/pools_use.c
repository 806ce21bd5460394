/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pools_use.c - What holds on to a pool: operations, VMs, images */
#include "engine/pools_priv.h"

#include <string.h>

#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/spec.h"

static bool is(const json_t *object, const char *member, const char *want)
{
	const char *text = tp_json_str(object, member);

	return text && strcmp(text, want) == 0;
}

/* The operation that works in the pool. */
static const struct op *worked_in(struct torpor *t, const char *pool)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		if (vm->op && (is(json_object_get(op_res(vm->op), "image"), "pool", pool) ||
			       is(op_arguments(vm->op), "pool", pool)))
			return vm->op;
	return NULL;
}

/* VMs whose state is in it, or whose spec names it. */
static json_t *dependent_vms(struct torpor *t, const char *pool)
{
	json_t *names = json_array();

	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		tp_autojson json_t *named = spec_get(vm->spec, "hibernate.pool");
		const char *text = json_string_value(named);

		if ((text && strcmp(text, pool) == 0) || is(json_object_get(vm->rest, "image"), "pool", pool))
			json_array_append_new(names, json_string(vm->name));
	}
	return names;
}

/* Of a pool that is missing for good nobody needs the images. */
static json_t *whole_images(const struct engine_pool *p)
{
	json_t *ids = json_array(), *entry;
	const char *id;

	if (engine_pool_ready(p))
		json_object_foreach(p->images, id, entry)
			if (is(entry, "state", "complete"))
				json_array_append_new(ids, json_string(id));
	return ids;
}

bool pool_unused(const struct engine_pool *p, const char *class_, struct tp_error *err, json_t **data)
{
	struct torpor *t = p->ps->t;
	const struct op *op = worked_in(t, p->name);
	tp_autojson json_t *vms = dependent_vms(t, p->name), *images = whole_images(p);

	if (op) {
		*data = json_pack("{s:s, s:s, s:s, s:s}", "pool", p->name, "operation", op_id(op), "kind",
				  op_plan_of(op)->kind, "phase", op_phase_name(op));
		return tp_fail_class(err, TP_ESTATE, "Busy", "operation %s of VM %s works in pool \"%s\"", op_id(op),
				     op_vm_name(op), p->name);
	}
	if (json_array_size(vms)) {
		*data = json_pack("{s:s, s:s, s:O}", "pool", p->name, "path", p->path, "vms", vms);
		return tp_fail_class(err, TP_ESTATE, class_, "VM %s has its state in pool \"%s\", or its spec names it",
				     json_string_value(json_array_get(vms, 0)), p->name);
	}
	if (json_array_size(images)) {
		*data = json_pack("{s:s, s:s, s:O}", "pool", p->name, "path", p->path, "images", images);
		return tp_fail_class(err, TP_ESTATE, class_, "pool \"%s\" holds image %s: delete it or move it away "
				     "first", p->name, json_string_value(json_array_get(images, 0)));
	}
	return true;
}
