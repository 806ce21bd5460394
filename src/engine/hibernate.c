/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hibernate.c - Options, manifest and end of a hibernation */
#include "engine/hibernate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/tp_json.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/spec.h"
#include "engine/steps.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"
#include "engine/working_set.h"

json_t *hibernate_option(struct op *op, const char *name)
{
	json_t *given = json_object_get(op_arguments(op), name);
	char path[48];

	snprintf(path, sizeof(path), "hibernate.%s", name);
	return given ? json_incref(given) : spec_get(op_vm_of(op)->spec, path);
}

static const char *text_option(struct op *op, const char *name, const char *otherwise)
{
	const char *given = tp_json_str(op_arguments(op), name);
	const char *spec = tp_json_str(json_object_get(op_vm_of(op)->spec, "hibernate"), name);

	return given ? given : spec ? spec : otherwise;
}

const char *hibernate_pool(struct op *op)
{
	return text_option(op, "pool", "default");
}

const char *hibernate_reserve(struct op *op)
{
	return text_option(op, "reserve", "full");
}

void hibernate_uuid(char *text, size_t size)
{
	unsigned char raw[16];

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		memset(raw, 0, sizeof(raw));
	for (size_t i = 0; i < sizeof(raw) && 2 * i + 2 < size; i++)
		snprintf(text + 2 * i, 3, "%02x", raw[i]);
}

static json_t *launch_of(const json_t *launched)
{
	return json_pack("{s:O, s:O, s:O, s:O*, s:O*}", "binary", json_object_get(launched, "binary"), "args",
			 json_object_get(launched, "args"), "disks", json_object_get(launched, "disks"), "agent",
			 json_object_get(launched, "agent"), "console", json_object_get(launched, "console"));
}

json_t *hibernate_manifest(struct op *op)
{
	struct hibernate *h = op_data(op);
	struct vm *vm = op_vm_of(op);
	const struct vm_qemu *q = vm->qemu;
	const json_t *image = json_object_get(op_res(op), "image"), *s = h->sealed;
	const char *guid = tp_json_str(json_object_get(h->seen, "vmgenid"), "guid");
	json_t *launched = json_object_get(vm->rest, "launched"), *m, *set;
	tp_autojson json_t *keep = hibernate_option(op, "keep");
	char at[TP_TIME_TEXT];

	m = json_pack("{s:i, s:O, s:O, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:s}", "format", 1, "image",
		      json_object_get(image, "id"), "uuid", json_object_get(s, "uuid"), "vm", vm->name, "uid",
		      vm->uid, "generation", (json_int_t)vm->generation, "kind", "hibernation", "created",
		      tp_time_format(tp_now_us(), at), "torpor", TP_VERSION, "layout", "stream", "file",
		      "memory.zst");
	if (!m || !q)
		return m;
	tp_json_set(m, "bytes", json_incref(json_object_get(s, "bytes")));
	tp_json_set(m, "raw-bytes", json_incref(json_object_get(s, "raw-bytes")));
	tp_json_set(m, "footer", json_incref(json_object_get(s, "footer")));
	tp_json_set(m, "machine", json_incref(json_object_get(s, "machine")));
	tp_json_set(m, "qemu", json_pack("{s:{s:i, s:i, s:i}, s:s}", "version", "major", q->major, "minor",
					 q->minor, "micro", q->micro, "package", q->package));
	if (tp_json_path(h->seen, "cpu.model.name"))
		tp_json_set(m, "cpu", json_pack("{s:O, s:O*}", "model", tp_json_path(h->seen, "cpu.model.name"),
						"props", tp_json_path(h->seen, "cpu.model.props")));
	tp_json_set(m, "launch", launch_of(launched));
	if (guid)
		tp_json_set_str(m, "vmgenid", guid);
	tp_json_set(m, "run-state", json_incref(json_object_get(op_res(op), "run-state")));
	tp_json_set(m, "capabilities", json_pack("[s, s]", "return-path", "events"));
	tp_json_set(m, "ram", json_pack("{s:I, s:O}", "bytes", (json_int_t)h->ram, "blocks",
					json_object_get(s, "blocks")));
	tp_json_set(m, "disks", json_incref(json_object_get(h->disks, "disks")));
	tp_json_set(m, "nvram", json_incref(json_object_get(h->disks, "nvram")));
	tp_json_set(m, "agent", json_boolean(q->agent == AGENT_CONNECTED));
	tp_json_set(m, "hotplug", json_array());
	tp_json_set(m, "keep", json_boolean(json_is_true(keep)));
	tp_json_set(m, "warnings", json_array());
	json_decref(h->manifest);
	h->manifest = json_copy(m);
	set = working_set_of(h->working_set, json_object_get(s, "blocks"));
	if (set)
		tp_json_set(m, "working-set", set);
	return m;
}

json_t *hibernate_summary(struct op *op, double pause)
{
	struct hibernate *h = op_data(op);

	return json_pack("{s:O, s:O, s:f}", "bytes", json_object_get(h->sealed, "bytes"), "raw-bytes",
			 json_object_get(h->sealed, "raw-bytes"), "pause", pause);
}

/* --- the end --- */

static json_t *hibernation_record(struct op *op)
{
	tp_autojson json_t *record = op_record(op);
	const struct tp_error *err = op_error(op);
	json_t *out = json_pack("{s:s, s:s, s:O, s:s?}", "method", "save", "phase",
				op_status(op) == OP_SUCCEEDED ? "Hibernated" : "Failed", "started",
				json_object_get(record, "started"), "message", err ? err->text : NULL);
	char at[TP_TIME_TEXT];

	tp_json_set_str(out, "image", tp_json_str(json_object_get(op_res(op), "image"), "id"));
	tp_json_set_str(out, "ended", tp_time_format(tp_now_us(), at));
	json_object_update(out, json_object_get(op_res(op), "summary"));
	return out;
}

static void succeeded(struct op *op)
{
	struct hibernate *h = op_data(op);
	struct vm *vm = op_vm_of(op);
	json_t *image = json_object_get(op_res(op), "image"), *summary = json_object_get(op_res(op), "summary");

	vm_rest_text(vm, "hibernated", "save");
	vm_image_forget(vm);
	vm_rest_set(vm, "image", json_incref(image));
	vm_rest_set(vm, "paused-by", NULL);
	/* Outlives the image: what to expect of the next one. */
	if (h->ram)
		vm_rest_set(vm, "saved", json_pack("{s:O, s:I}", "bytes", json_object_get(summary, "bytes"), "ram",
						   (json_int_t)h->ram));
	pools_image_sealed(vm->t->pools, tp_json_str(image, "pool"), vm->name, tp_json_str(image, "id"),
			   h->manifest);
	op_result(op, "method", json_string("save"));
	op_result(op, "state", json_string("hibernated"));
	op_result(op, "image", json_incref(json_object_get(image, "id")));
	op_result(op, "bytes", json_incref(json_object_get(summary, "bytes")));
	op_result(op, "raw-bytes", json_incref(json_object_get(summary, "raw-bytes")));
	op_result(op, "pause", json_incref(json_object_get(summary, "pause")));
}

/* What a command alone asked for says nothing of the VM as its spec has it. */
static bool differs(struct op *op, const char *name, const char *otherwise)
{
	const char *given = tp_json_str(op_arguments(op), name);
	const char *spec = tp_json_str(json_object_get(op_vm_of(op)->spec, "hibernate"), name);

	return given && strcmp(given, spec ? spec : otherwise) != 0;
}

static bool own_way(struct op *op)
{
	return differs(op, "pool", "default") || differs(op, "reserve", "full");
}

void hibernate_judged(struct op *op, const json_t *blockers)
{
	const json_t *first = json_array_get(blockers, 0);
	struct tp_error *said = &op_vm_of(op)->preflight;

	if (own_way(op))
		return;
	tp_error_clear(said);
	if (first)
		tp_fail_class(said, TP_ESTATE, tp_json_str(first, "class"), "%s", tp_json_str(first, "desc"));
}

void hibernate_ended(struct op *op)
{
	struct vm *vm = op_vm_of(op);

	/* Past the commit the image stands, whatever else went wrong. */
	if (op_committed(op) && !op_going_back(op))
		succeeded(op);
	vm_rest_set(vm, "hibernation", hibernation_record(op));
	if (op_status(op) == OP_SUCCEEDED)
		tp_error_clear(&vm->preflight);
	else if (op_error(op) && op_status(op) != OP_CANCELLED && !own_way(op))
		vm->preflight = *op_error(op);
}
