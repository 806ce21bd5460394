/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * steps_launch.c - QEMU is started, its monitor opened, its machine looked at
 *
 * What the machine looks like right after its start is kept ("launched" in the
 * durable rest): the resolved machine type, and its devices, so that a device
 * plugged later is noticed before a save.
 */
#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/steps.h"

static const char *launch_reason(const struct op *op)
{
	return strcmp(op_plan_of(op)->kind, "restore") == 0 ? "restore" : "boot";
}

enum op_verdict hook_prepare(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return op_vm(op, "hook", json_pack("{s:s, s:s}", "name", "prepare", "reason", launch_reason(op)), 0);
	return ev->type == OP_VM ? OP_NEXT : OP_WAIT;
}

/* What prepare set up is released; once QEMU was there its end does that. */
enum op_verdict hook_prepare_undo(struct op *op, const struct op_event *ev)
{
	if (json_object_get(op_res(op), "qemu"))
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return op_vm(op, "hook", json_pack("{s:s, s:s}", "name", "release", "reason", "start-failed"),
			     OPQ_SHOW);
	return ev->type == OP_VM ? OP_NEXT : OP_WAIT;
}

enum op_verdict hook_before_run(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return op_vm(op, "hook", json_pack("{s:s, s:s}", "name", "before-run", "reason", launch_reason(op)),
			     0);
	return ev->type == OP_VM ? OP_NEXT : OP_WAIT;
}

enum op_verdict qemu_launch(struct op *op, const struct op_event *ev, const struct qemu_launch_how *how)
{
	static const struct qemu_launch_how boot;

	if (!how)
		how = &boot;
	if (ev->type == OP_ENTER)
		return op_vm(op, "launch", json_pack("{s:b, s:b, s:O*}", "incoming", how->incoming, "uffd", how->uffd,
						     "image", (json_t *)how->manifest), 0);
	if (ev->type != OP_VM)
		return OP_WAIT;
	op_hold(op, OP_RES_QEMU);
	return op_note(op, "qemu", json_deep_copy(ev->data)) ? OP_NEXT : OP_FAIL;
}

enum op_verdict qemu_launch_undo(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return op_vm(op, "kill", NULL, 0);
	return ev->type == OP_VM ? OP_NEXT : OP_WAIT;
}

enum op_verdict qemu_connect(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return op_vm(op, "connect", NULL, 0);
	return ev->type == OP_VM ? OP_NEXT : OP_WAIT;
}

/* --- what it looks like --- */

json_t *machine_device_names(const json_t *qom_list)
{
	json_t *names = json_array(), *item;
	size_t i;

	json_array_foreach(qom_list, i, item) {
		const char *type = tp_json_str(item, "type"), *name = tp_json_str(item, "name");

		if (type && name && strncmp(type, "child<", 6) == 0)
			json_array_append_new(names, json_string(name));
	}
	return names;
}

static json_t *launched_of(struct vm *vm)
{
	json_t *launched = json_object_get(vm->rest, "launched");

	return launched ? json_copy(launched) : launch_record(vm);
}

static void set_machine(struct op *op, const json_t *type)
{
	const char *text = json_string_value(type);
	json_t *launched = launched_of(op_vm_of(op));
	size_t n = text ? strlen(text) : 0;

	/* QOM's name of the type: "pc-q35-10.0-machine" */
	if (n > 8 && strcmp(text + n - 8, "-machine") == 0)
		tp_json_set(launched, "machine", json_stringn(text, n - 8));
	vm_rest_set(op_vm_of(op), "launched", launched);
}

static void set_devices(struct op *op, const json_t *list)
{
	json_t *launched = launched_of(op_vm_of(op));

	tp_json_set(launched, "devices", machine_device_names(list));
	vm_rest_set(op_vm_of(op), "launched", launched);
}

static json_t *qom(const char *path, const char *property)
{
	return json_pack("{s:s, s:s?}", "path", path, "property", property);
}

static json_t *qom_list(const char *path)
{
	return json_pack("{s:s}", "path", path);
}

enum op_verdict machine_identify(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return op_qmp_full(op, QMP_QOM_GET, qom("/machine", "type"), NULL, 0, OPQ_SHOW);
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	if (ev->cmd == QMP_QOM_GET) {
		set_machine(op, ev->err ? NULL : ev->data);
		return op_qmp_full(op, QMP_QOM_LIST, qom_list("/machine/peripheral"), NULL, 0, OPQ_SHOW);
	}
	set_devices(op, ev->err ? NULL : ev->data);
	return OP_NEXT;
}
