/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hibernate_check.c - Preflight of a save: all blockers at once, the guest untouched
 *
 * QEMU is asked everything that matters, one query after the other; a query that
 * this QEMU refuses is simply not there. Then the room is looked at on the
 * pool's worker.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/guest_disks.h"
#include "engine/hibernate.h"
#include "engine/launch.h"
#include "engine/room.h"
#include "engine/save_rate.h"
#include "engine/spec.h"
#include "engine/steps.h"
#include "engine/vm_runtime.h"
#include "migration/mig_info.h"

/* --- queries --- */

static json_t *no_args(struct op *op)
{
	(void)op;
	return NULL;
}

static json_t *flat_nodes(struct op *op)
{
	(void)op;
	return json_pack("{s:b}", "flat", 1);
}

static json_t *ramblock(struct op *op)
{
	(void)op;
	return json_pack("{s:s}", "command-line", "info ramblock");
}

static json_t *peripheral(struct op *op)
{
	(void)op;
	return json_pack("{s:s}", "path", "/machine/peripheral");
}

/* The model named by -cpu; its features are asked for as this QEMU understands it by itself. */
json_t *cpu_model_args(const json_t *args)
{
	char model[64] = "qemu64";

	for (size_t i = 0; i + 1 < json_array_size(args); i++) {
		const char *value = json_string_value(json_array_get(args, i + 1));

		if (strcmp(json_string_value(json_array_get(args, i)), "-cpu") == 0)
			snprintf(model, sizeof(model), "%.*s", (int)strcspn(value, ","), value);
	}
	return json_pack("{s:s, s:{s:s}}", "type", "full", "model", "name", model);
}

static json_t *cpu_model(struct op *op)
{
	return cpu_model_args(tp_json_path(op_vm_of(op)->rest, "launched.args"));
}

static const struct {
	const char *name;
	enum qmp_cmd cmd;
	json_t *(*args)(struct op *op);
} queries[] = {
	{ "status", QMP_QUERY_STATUS, no_args },
	{ "migrate", QMP_QUERY_MIGRATE, no_args },
	{ "block-jobs", QMP_QUERY_BLOCK_JOBS, no_args },
	{ "jobs", QMP_QUERY_JOBS, no_args },
	{ "exports", QMP_QUERY_BLOCK_EXPORTS, no_args },
	{ "block", QMP_QUERY_BLOCK, no_args },
	{ "nodes", QMP_QUERY_NAMED_BLOCK_NODES, flat_nodes },
	{ "ramblock", QMP_HUMAN_MONITOR, ramblock },
	{ "vmgenid", QMP_QUERY_VM_GENERATION_ID, no_args },
	{ "devices", QMP_QOM_LIST, peripheral },
	{ "cpu", QMP_QUERY_CPU_MODEL_EXPANSION, cpu_model },
};

/* --- what the answers mean --- */

static void check_status(struct op *op, const json_t *seen, json_t *blockers)
{
	const char *known = tp_json_str(json_object_get(seen, "status"), "status");
	const char *status = known ? known : "", *why = run_state_unsavable(status);

	if (*why)
		blocker_add(blockers, "InvalidState", json_pack("{s:s, s:s}", "qemu-status", status, "use",
				strcmp(status, "postmigrate") == 0 ? "vm-resume" : "vm-start"),
			    "VM %s cannot be saved: %s", op_vm_name(op), why);
	/* QEMU before 10.0 wakes a guest in S3 by saving it (qemu-facts: `migrate` resumes it). */
	if (strcmp(status, "suspended") == 0 && !op_vm_of(op)->qemu->features.set_active &&
	    !tp_json_bool(op_arguments(op), "wake", false))
		blocker_add(blockers, "Unsupported", json_pack("{s:s}", "reason", "suspended"),
			    "VM %s is suspended and this QEMU can save it only awake: give \"wake\": true",
			    op_vm_name(op));
}

/* Without it nothing could be written down that starts this machine again. */
static void check_launched(struct op *op, json_t *blockers)
{
	const json_t *launched = json_object_get(op_vm_of(op)->rest, "launched");

	if (!tp_json_str(launched, "binary") || !json_is_array(json_object_get(launched, "args")))
		blocker_add(blockers, "Unsupported", json_pack("{s:s}", "reason", "record-damaged"),
			    "VM %s runs with a command line that is not known any more, as its record was lost: power "
			    "it down and start it again", op_vm_name(op));
}

static void check_migrate(struct op *op, const json_t *seen, json_t *blockers)
{
	const json_t *reply = json_object_get(seen, "migrate");
	tp_autojson json_t *reasons = mig_blockers(reply);
	struct mig_info info;
	size_t i;
	json_t *reason;

	json_array_foreach(reasons, i, reason)
		blocker_add(blockers, "Blocked", json_pack("{s:O}", "reason", reason),
			    "VM %s cannot be saved now: %s", op_vm_name(op), json_string_value(reason));
	mig_info_parse(reply, &info);
	/* Its own memory is still coming in: that is waited for (step whole). */
	if (!mig_phase_over(info.phase) && !op_vm_of(op)->prefetch)
		blocker_add(blockers, "Blocked", json_pack("{s:s}", "migration", info.status),
			    "VM %s has a migration that torpor did not start (%s)", op_vm_name(op), info.status);
}

static void check_jobs(struct op *op, const json_t *seen, json_t *blockers)
{
	size_t i;
	json_t *job;

	json_array_foreach(json_object_get(seen, "jobs"), i, job) {
		const char *status = tp_json_str(job, "status"), *id = tp_json_str(job, "id");

		if (status && strcmp(status, "concluded") != 0 && strcmp(status, "null") != 0)
			blocker_add(blockers, "Blocked", json_pack("{s:s?, s:s?}", "job", id, "type",
								   tp_json_str(job, "type")),
				    "VM %s has a running job %s: let it end or cancel it", op_vm_name(op),
				    id ? id : "without a name");
	}
	json_array_foreach(json_object_get(seen, "exports"), i, job)
		blocker_add(blockers, "Blocked", json_pack("{s:s?}", "export", tp_json_str(job, "id")),
			    "VM %s exports a block node (%s): remove the export first", op_vm_name(op),
			    tp_json_str(job, "id") ? tp_json_str(job, "id") : "?");
}

static bool array_has(const json_t *array, const char *text)
{
	size_t i;
	json_t *item;

	json_array_foreach(array, i, item)
		if (strcmp(json_string_value(item), text) == 0)
			return true;
	return false;
}

/* A device that came or went since the start is on no command line: the image could not be loaded. */
static void check_devices(struct op *op, const json_t *seen, json_t *blockers)
{
	tp_autojson json_t *now = machine_device_names(json_object_get(seen, "devices"));
	json_t *before = tp_json_path(op_vm_of(op)->rest, "launched.devices"), *name;
	tp_autojson json_t *changed = json_array();
	size_t i;

	if (!before)
		return;
	json_array_foreach(now, i, name)
		if (!array_has(before, json_string_value(name)))
			json_array_append(changed, name);
	json_array_foreach(before, i, name)
		if (!array_has(now, json_string_value(name)))
			json_array_append(changed, name);
	if (json_array_size(changed))
		blocker_add(blockers, "Unsupported", json_pack("{s:O}", "devices", changed),
			    "VM %s has devices that were plugged or unplugged since its start (%s): restart it "
			    "with them in its spec", op_vm_name(op),
			    json_string_value(json_array_get(changed, 0)));
}

static void check_bound(struct op *op, struct hibernate *h, json_t *blockers)
{
	const char *text = json_string_value(json_object_get(h->seen, "ramblock"));
	struct room_size size = { .bound = 0 };
	unsigned blocks;

	if (room_ramblocks(text, &h->ram, &blocks)) {
		room_ram_is(op_vm_of(op), h->ram, blocks);
		room_size(op_vm_of(op), &size);
	}
	if (!size.exact)
		blocker_add(blockers, "QemuError", NULL, "QEMU of VM %s does not say how large its memory is",
			    op_vm_name(op));
	h->limit = h->bound = size.bound;
}

/* --- room --- */

static bool look_at_room(struct job *j, struct tp_error *err)
{
	struct pool_demand demand = room_demand_of(j->in);
	struct pool_shortage shortage;
	struct pool_space space;
	struct tp_error why = TP_ERROR_INIT;
	json_t *blockers = json_array();

	j->out = json_pack("{s:o}", "blockers", blockers);
	if (!pool_regain(j->pool, tp_json_str(j->in, "instance"), err) || !pool_space(j->pool, &space, err))
		return false;
	tp_json_set(j->out, "guaranteed", json_boolean(space.guaranteed));
	tp_json_set_str(j->out, "fs", space.fs);
	if (space.read_only)
		blocker_add(blockers, "IOError", json_pack("{s:s}", "pool", pool_name(j->pool)),
			    "pool %s (%s) is read-only", pool_name(j->pool), pool_path(j->pool));
	else if (strcmp(tp_json_str(j->in, "reserve"), "none") != 0 && !pool_room(j->pool, &demand, &shortage, &why))
		blocker_add(blockers, tp_error_class(&why), room_shortage(&shortage, pool_name(j->pool)), "%s", why.text);
	return true;
}

static enum op_verdict verdict(struct op *op, const json_t *blockers)
{
	hibernate_judged(op, blockers);
	return blockers_verdict(op, blockers);
}

static enum op_verdict ask_room(struct op *op, struct hibernate *h)
{
	struct tp_error err = TP_ERROR_INIT;
	struct engine_pool *p = pools_need(op_vm_of(op)->t->pools, hibernate_pool(op), &err);
	json_t *blockers = json_object_get(h->seen, "blockers"), *in;

	if (!p) {
		blocker_add(blockers, tp_error_class(&err), json_pack("{s:s}", "pool", hibernate_pool(op)), "%s",
			    err.text);
		return verdict(op, blockers);
	}
	in = room_demand(op_vm_of(op), hibernate_pool(op), h->bound);
	tp_json_set_str(in, "instance", state_dir_instance(op_vm_of(op)->t->state));
	tp_json_set_str(in, "reserve", hibernate_reserve(op));
	return step_job(op, look_at_room, in, hibernate_pool(op), 0);
}

static void take_room(struct op *op, struct hibernate *h, const json_t *seen)
{
	json_array_extend(json_object_get(h->seen, "blockers"), json_object_get(seen, "blockers"));
	h->guaranteed = tp_json_bool(seen, "guaranteed", false);
	if (!h->guaranteed && strcmp(hibernate_reserve(op), "full") == 0)
		op_warn(op, "room in pool %s is not guaranteed: its file system (%s) may run full although it was reserved",
			hibernate_pool(op), tp_json_str(seen, "fs"));
}

static enum op_verdict judge(struct op *op, struct hibernate *h)
{
	tp_autojson json_t *level = hibernate_option(op, "level");
	double seconds;
	json_t *blockers = json_array();

	json_object_set_new(h->seen, "blockers", blockers);
	check_status(op, h->seen, blockers);
	check_launched(op, blockers);
	check_migrate(op, h->seen, blockers);
	check_jobs(op, h->seen, blockers);
	check_devices(op, h->seen, blockers);
	check_bound(op, h, blockers);
	json_object_set_new(h->seen, "files", guest_disks(op, json_object_get(h->seen, "block")));
	seconds = (double)h->ram / save_rate(json_integer_value(level));
	op_result(op, "estimate", json_pack("{s:I, s:f, s:f}", "bytes", (json_int_t)h->bound, "seconds",
					    seconds + 0.5, "pause", seconds + 0.2));
	return ask_room(op, h);
}

static enum op_verdict ask_next(struct op *op, struct hibernate *h)
{
	if (h->asked == TP_N(queries))
		return judge(op, h);
	return op_qmp_full(op, queries[h->asked].cmd, queries[h->asked].args(op), NULL, 0, OPQ_SHOW);
}

enum op_verdict hibernate_preflight(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);

	if (ev->type == OP_ENTER) {
		h->image_fd = h->qemu_end = -1;
		h->seen = json_object();
		op_hold(op, OP_RES_QEMU);
		return ask_next(op, h);
	}
	if (job_of(ev)) {
		take_room(op, h, job_of(ev)->out);
		return verdict(op, json_object_get(h->seen, "blockers"));
	}
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	/* Only QEMU's own refusal means "not there"; a time-out means nothing. */
	if (ev->err && ev->err->code != TP_EQMP)
		return op_fail_error(op, ev->err, NULL);
	if (!ev->err)
		json_object_set(h->seen, queries[h->asked].name, (json_t *)ev->data);
	h->asked++;
	return ask_next(op, h);
}
