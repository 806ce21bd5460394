/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * restore.c - Restore: what is checked before and between, the guest's clock, the end
 */
#include "engine/restore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_proc.h"
#include "base/tp_text.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/guest_disks.h"
#include "engine/launch.h"
#include "engine/restorable.h"
#include "engine/spec.h"
#include "engine/steps.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"
#include "storage/image_read.h"

#define AGENT_LIMIT 3.0		/* seconds; the clock is best effort */
#define MEMORY_MARGIN (64ull << 20)	/* QEMU itself */

bool restore_allowed(struct op *op, const char *what)
{
	size_t i;
	json_t *item;

	json_array_foreach(json_object_get(op_arguments(op), "allow"), i, item)
		if (strcmp(json_string_value(item), what) == 0)
			return true;
	return false;
}

/* --- jobs --- */

static const char *in_vm(const struct job *j)
{
	return tp_json_str(j->in, "vm");
}

static const char *in_id(const struct job *j)
{
	return tp_json_str(j->in, "id");
}

/* One sentence for all of them: the first one's change, and how many more. */
static void stale_text(const json_t *stale, char *text, size_t size)
{
	const json_t *first = json_array_get(stale, 0);
	size_t n = json_array_size(stale) - 1;
	char more[64] = "";

	if (n)
		snprintf(more, sizeof(more), " (and %zu more in data.disks)", n);
	snprintf(text, size, "disk %s: %s%s", tp_json_str(first, "disk"), tp_json_str(first, "detail"), more);
	tp_text_clean(text);	/* cut, it may end inside a character, which JSON refuses */
}

/* It, or a file of its chain, is not there: no QEMU could open it. */
static bool is_missing(const json_t *change)
{
	const char *how = tp_json_str(change, "how"), *part = tp_json_str(json_object_get(change, "part"), "how");

	return (how && strcmp(how, "missing") == 0) || (part && strcmp(part, "missing") == 0);
}

static json_t *missing_of(const json_t *stale)
{
	json_t *list = json_array(), *change;
	size_t i;

	json_array_foreach(stale, i, change)
		if (is_missing(change))
			json_array_append(list, change);
	return list;
}

static void refuse_missing(struct job *j, json_t *missing)
{
	char text[512];

	stale_text(missing, text, sizeof(text));
	blocker_add(json_object_get(j->out, "blockers"), "StaleState", json_pack("{s:O}", "disks", missing),
		    "%s. Put it back, or discard the image: what is not there cannot be allowed", text);
}

static bool check_disks(struct job *j, const json_t *manifest, struct tp_error *err)
{
	json_t *found = guest_disks_compare(manifest, json_object_get(j->in, "declared")), *stale;
	tp_autojson json_t *missing = missing_of(json_object_get(found, "stale"));
	char text[512];

	if (!tp_json_set(j->out, "disks", found) || !missing)
		return tp_fail_nomem(err);
	stale = json_object_get(found, "stale");
	if (json_array_size(missing))
		refuse_missing(j, missing);
	if (json_array_size(stale) == json_array_size(missing) || tp_json_bool(j->in, "stale-disks", false))
		return true;
	stale_text(stale, text, sizeof(text));
	blocker_add(json_object_get(j->out, "blockers"), "StaleState", json_pack("{s:O}", "disks", stale),
		    "%s. The saved memory does not match it, so restoring would corrupt it: allow stale-disks, or "
		    "discard the image", text);
	return true;
}

static void check_memory(struct job *j, const json_t *manifest)
{
	tp_autofree char *text = tp_read_path("/proc/meminfo", 16384, NULL, NULL);
	const char *line = text ? strstr(text, "MemAvailable:") : NULL;
	uint64_t available = line ? strtoull(line + 13, NULL, 10) * 1024 : 0;
	uint64_t need = (uint64_t)tp_json_int(json_object_get(manifest, "ram"), "bytes", 0) + MEMORY_MARGIN;

	if (line && available < need)
		blocker_add(json_object_get(j->out, "blockers"), "InsufficientMemory",
			    json_pack("{s:I, s:I}", "required", (json_int_t)need, "available",
				      (json_int_t)available),
			    "VM %s needs %" PRIu64 " bytes of memory, the host has %" PRIu64, in_vm(j), need,
			    available);
}

static void check_identity(struct job *j, const json_t *manifest)
{
	json_t *blockers = json_object_get(j->out, "blockers");
	const char *uid = tp_json_str(manifest, "uid"), *state = tp_json_str(j->in, "state");

	if (strcmp(uid, tp_json_str(j->in, "uid")) != 0 && !tp_json_bool(j->in, "other-vm", false))
		blocker_add(blockers, "Incompatible", json_pack("{s:s}", "reason", "other-vm"), "image %s was saved "
			    "from another VM (uid %s): allow other-vm", in_id(j), uid);
	if (state && strcmp(state, "consumed") == 0 && !tp_json_bool(j->in, "reused", false))
		blocker_add(blockers, "StaleState", json_pack("{s:s, s:[]}", "reason", "consumed", "disks"), "image %s "
			    "was restored before: its guest may have written to the disks since; allow reused-image",
			    in_id(j));
}

static bool check_file(struct job *j, const json_t *manifest, struct tp_error *err)
{
	const char *footer = tp_json_str(manifest, "footer");
	struct image *img;
	uint64_t checksum;

	j->fd = pool_image_open(j->pool, in_vm(j), in_id(j), err);
	if (j->fd < 0)
		return false;
	img = image_open(j->fd, err);
	if (!img)
		return tp_prefix(err, "image %s", in_id(j));
	checksum = image_info(img)->footer_checksum;
	image_close(img);
	if (!footer || strtoull(footer, NULL, 16) != checksum)
		return tp_fail_class(err, TP_ECORRUPT, "Corrupt", "image %s: memory.zst is not the file that its "
				     "manifest names", in_id(j));
	return true;
}

/* Known to be damaged, until a verification finds it good. */
static bool check_verified(struct job *j, const json_t *manifest, struct tp_error *err)
{
	tp_autojson json_t *outcome = pool_verified_read(j->pool, in_vm(j), in_id(j), tp_json_str(manifest, "footer"),
							 NULL);
	char text[POOL_DAMAGE_TEXT];

	if (!outcome || tp_json_bool(outcome, "ok", false))
		return true;
	tp_json_set(j->base.error_data, "where", json_string("memory.zst"));
	tp_json_set(j->base.error_data, "damage", json_incref(json_object_get(outcome, "damage")));
	return tp_fail_class(err, TP_ECORRUPT, "Corrupt", "image %s is damaged: %s; put it right and use image-verify, "
			     "or discard it", in_id(j), pool_damage_text(outcome, text));
}

bool restore_look(struct job *j, struct tp_error *err)
{
	tp_autojson json_t *manifest = NULL;

	j->base.error_data = json_pack("{s:s}", "image", in_id(j));
	/* It must be marked as consumed before its guest runs: known before QEMU is started. */
	if (!pool_writable(j->pool, err))
		return false;
	if (pool_copy_marked(j->pool, in_vm(j), in_id(j), NULL))
		return tp_fail_class(err, TP_ESTATE, "InvalidState", "image %s: what pool %s has is an unfinished copy, by "
				     "its file moving.json: finish the move, or remove that file if it was put there by "
				     "hand", in_id(j), pool_name(j->pool));
	manifest = pool_manifest_read(j->pool, in_vm(j), in_id(j), err);
	if (!manifest) {
		if (err && err->code == TP_ECORRUPT)
			tp_json_set_str(j->base.error_data, "where", "manifest.json");
		return false;
	}
	j->out = json_pack("{s:O, s:[]}", "manifest", manifest, "blockers");
	if (!tp_json_str(json_object_get(manifest, "launch"), "binary"))
		return tp_fail_class(err, TP_ECORRUPT, "Corrupt", "image %s: its manifest does not say how to start its "
				     "machine", in_id(j));
	if (!check_file(j, manifest, err)) {
		if (err && err->code == TP_ECORRUPT)
			tp_json_set(j->base.error_data, "where", json_string("memory.zst"));
		return false;
	}
	if (!check_verified(j, manifest, err))
		return false;
	check_identity(j, manifest);
	check_memory(j, manifest);
	return check_disks(j, manifest, err);
}

static bool compare_job(struct job *j, struct tp_error *err)
{
	tp_autojson json_t *found = guest_disks_compare(j->in, NULL);
	json_t *stale = json_object_get(found, "stale");
	char text[512];

	if (!found)
		return tp_fail_nomem(err);
	if (!json_array_size(stale))
		return true;
	stale_text(stale, text, sizeof(text));
	j->base.error_data = json_pack("{s:O}", "disks", stale);
	return tp_fail_class(err, TP_ESTATE, "StaleState", "while the image was loaded a disk changed: %s", text);
}

bool image_refingerprint(struct job *j, struct tp_error *err)
{
	tp_autojson json_t *manifest = pool_manifest_read(j->pool, in_vm(j), in_id(j), err);
	bool changed;

	return manifest && guest_disks_retake(manifest, &changed, NULL, err) &&
	       (!changed || pool_manifest_write(j->pool, in_vm(j), in_id(j), manifest, err));
}

bool image_unconsume(struct job *j, struct tp_error *err)
{
	if (tp_json_bool(j->in, "retake", false) && !image_refingerprint(j, err))
		return false;
	return pool_image_consumed(j->pool, in_vm(j), in_id(j), NULL, err);
}

bool image_drop(struct job *j, struct tp_error *err)
{
	return pool_image_remove(j->pool, in_vm(j), in_id(j), err);
}

/* Since its QEMU was launched. */
static bool rebooted(struct op *op)
{
	const char *boot = tp_json_str(json_object_get(op_res(op), "qemu"), "boot");

	return boot && strcmp(boot, tp_boot_id()) != 0;
}

/* After a host reboot the disks are compared as they were recorded: nothing vouches for them. */
json_t *restore_unconsume_job(struct op *op)
{
	json_t *in = json_copy(restore_image(op));

	tp_json_set(in, "retake", json_boolean(!rebooted(op)));
	return in;
}

/* --- verify --- */

static bool choose_image(struct op *op, struct tp_error *err)
{
	struct vm *vm = op_vm_of(op);
	const char *id = tp_json_str(op_arguments(op), "image");
	json_t *own = json_object_get(vm->rest, "image");
	const char *pool, *owner = vm->name;
	bool named = id != NULL;
	char other[TP_NAME_MAX + 1];
	struct engine_pool *p = NULL;

	if (id && !(own && strcmp(id, tp_json_str(own, "id")) == 0)) {
		if (!pools_image(vm->t->pools, id, &p) || !pool_image_vm(id, other))
			return tp_fail_class(err, TP_ESTATE, "NotFound", "no image is named \"%s\"", id);
		pool = engine_pool_name(p);
		owner = other;
	} else if (!own) {
		return tp_fail_class(err, TP_ESTATE, "NotFound", "VM %s has no image", vm->name);
	} else {
		id = tp_json_str(own, "id");
		if (tp_json_str(own, "vm"))
			owner = tp_json_str(own, "vm");
		pool = vm_image_pool(vm, named, err);
		if (!pool)
			return false;
		if (strcmp(pool, tp_json_str(own, "pool")) != 0)
			op_warn(op, "image %s is taken from pool %s: pool %s, in which the VM had it, does not have it or is "
				"missing", id, pool, tp_json_str(own, "pool"));
	}
	return op_note(op, "image", json_pack("{s:s, s:s, s:s}", "id", id, "pool", pool, "vm", owner)) ||
	       tp_fail_nomem(err);
}

static json_t *verify_input(struct op *op)
{
	json_t *in = json_copy(restore_image(op));
	const json_t *entry = pools_image_at(op_vm_of(op)->t->pools, tp_json_str(in, "pool"), tp_json_str(in, "id"));

	tp_json_set_str(in, "uid", op_vm_of(op)->uid);
	tp_json_set_str(in, "state", tp_json_str(entry, "state"));
	tp_json_set(in, "declared", launch_disks(op_vm_of(op)));
	tp_json_set(in, "stale-disks", json_boolean(restore_allowed(op, "stale-disks")));
	tp_json_set(in, "other-vm", json_boolean(restore_allowed(op, "other-vm")));
	tp_json_set(in, "reused", json_boolean(restore_allowed(op, "reused-image")));
	return in;
}

static bool takes_keep(struct op *op, const struct restore *r)
{
	return tp_json_bool(op_arguments(op), "keep", tp_json_bool(r->manifest, "keep", false));
}

/* What refuses nothing, or was allowed to. */
static void tell_disks(struct op *op, const json_t *found)
{
	bool allowed = restore_allowed(op, "stale-disks");
	json_t *disk;
	size_t i;

	json_array_foreach(allowed ? json_object_get(found, "stale") : NULL, i, disk)
		if (!is_missing(disk))
			op_warn(op, "disk %s (%s) is not as it was when the memory was saved: %s: allowed",
				tp_json_str(disk, "disk"), tp_json_str(disk, "file"), tp_json_str(disk, "detail"));
	json_array_foreach(json_object_get(found, "unproven"), i, disk)
		op_warn(op, "disk %s (%s): whether it is as it was when the memory was saved cannot be verified: %s",
			tp_json_str(disk, "disk"), tp_json_str(disk, "file"), tp_json_str(disk, "detail"));
	json_array_foreach(json_object_get(found, "nvram"), i, disk)
		op_warn(op, "NVRAM %s (%s) was changed since the memory was saved: %s: the content saved with the memory "
			"takes its place", tp_json_str(disk, "disk"), tp_json_str(disk, "file"),
			tp_json_str(disk, "detail"));
}

enum op_verdict restore_verify(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	struct tp_error err = TP_ERROR_INIT;
	json_t *out;

	if (ev->type == OP_ENTER) {
		r->started = op_now(op);
		r->image_fd = r->qemu_end = -1;
		if (!choose_image(op, &err))
			return op_fail_error(op, &err, NULL);
		return step_job(op, restore_look, verify_input(op), tp_json_str(restore_image(op), "pool"), OPQ_SHOW);
	}
	if (ev->type != OP_IO)
		return OP_WAIT;
	if (job_of(ev) && !json_array_size(json_object_get(op_arguments(op), "allow")))
		restorable_seen(op_vm_of(op), job_of(ev), ev->err);
	if (ev->err)
		return op_fail_error(op, ev->err, ev->error_data ? json_deep_copy(ev->error_data) : NULL);
	out = job_of(ev)->out;
	r->manifest = json_incref(json_object_get(out, "manifest"));
	r->image_fd = TP_STEAL_FD(job_of(ev)->fd);
	tell_disks(op, json_object_get(out, "disks"));
	restore_choose_mode(op);
	op_result(op, "estimate", json_pack("{s:s, s:O, s:f, s:i}", "mode", r->lazy ? "lazy" : "eager", "bytes", json_object_get(r->manifest, "bytes"),
			"seconds", 0.5 + json_number_value(json_object_get(r->manifest, "raw-bytes")) / 600e6,
			"pause", 0));
	if (!op_note(op, "keep", json_boolean(takes_keep(op, r))))
		return OP_FAIL;
	return blockers_verdict(op, json_object_get(out, "blockers"));
}

enum op_verdict restore_compare(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);

	if (restore_allowed(op, "stale-disks"))
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return step_job(op, compare_job, json_incref(r->manifest), NULL, 0);
	return ev->type == OP_IO ? OP_NEXT : OP_WAIT;
}

/* --- is this QEMU able to? --- */

static enum op_verdict incompatible(struct op *op, const char *text)
{
	if (!restore_allowed(op, "incompatible"))
		return op_fail(op, TP_EUNSUPPORTED, "Incompatible", "VM %s cannot be restored by this QEMU: %s",
			       op_vm_name(op), text);
	op_warn(op, "%s: allowed", text);
	return OP_NEXT;
}

static enum op_verdict check_version(struct op *op, const struct restore *r)
{
	const json_t *v = tp_json_path(r->manifest, "qemu.version");
	int major = (int)tp_json_int(v, "major", 0), minor = (int)tp_json_int(v, "minor", 0);
	const struct vm_qemu *q = op_vm_of(op)->qemu;
	char text[120];

	if (q->major == major && q->minor == minor)
		return OP_NEXT;
	snprintf(text, sizeof(text), "the image was saved by QEMU %d.%d, this one is %d.%d", major, minor, q->major,
		 q->minor);
	if (q->major < major || (q->major == major && q->minor < minor))
		return incompatible(op, text);
	op_warn(op, "%s", text);
	return OP_NEXT;
}

static enum op_verdict check_features(struct op *op, const struct restore *r, const json_t *now)
{
	json_t *recorded = tp_json_path(r->manifest, "cpu.props"), *value;
	json_t *props = tp_json_path(now, "model.props");
	const char *name;
	char text[120];

	json_object_foreach(recorded, name, value) {
		if (!json_is_true(value) || !json_is_false(json_object_get(props, name)))
			continue;
		snprintf(text, sizeof(text), "it does not offer CPU feature %.60s", name);
		return incompatible(op, text);
	}
	return OP_NEXT;
}

enum op_verdict restore_check_cpu(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	enum op_verdict v;

	if (ev->type == OP_ENTER) {
		v = check_version(op, r);
		if (v != OP_NEXT || !json_object_get(r->manifest, "cpu"))
			return v;
		return op_qmp_full(op, QMP_QUERY_CPU_MODEL_EXPANSION,
				   cpu_model_args(tp_json_path(r->manifest, "launch.args")), NULL, 0, OPQ_SHOW);
	}
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	return ev->err ? OP_NEXT : check_features(op, r, ev->data);
}

/* --- the guest's clock: best effort, always reported --- */

static enum op_verdict clock_not_set(struct op *op, const char *why)
{
	op_result(op, "clock", json_pack("{s:s, s:s}", "method", "none", "why", why));
	return OP_NEXT;
}

static json_t *clock_text(int64_t ns)
{
	char text[TP_TIME_TEXT];

	return json_string(tp_time_format((uint64_t)(ns / 1000), text));
}

static bool wants_clock(struct op *op)
{
	tp_autojson json_t *by_spec = spec_get(op_vm_of(op)->spec, "restore.clock");
	const char *how = tp_json_str(op_arguments(op), "clock");

	return strcmp(how ? how : json_string_value(by_spec), "host") == 0;
}

enum op_verdict restore_clock(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);

	if (ev->type == OP_ENTER) {
		if (!restore_runs(op))
			return clock_not_set(op, "the guest does not run");
		if (!wants_clock(op))
			return clock_not_set(op, "clock is \"keep\"");
		if (!tp_json_bool(r->manifest, "agent", false))
			return clock_not_set(op, "the guest had no agent");
		return op_agent(op, QGA_GET_TIME, NULL, AGENT_LIMIT, OPQ_SHOW) == OP_FAIL ?
		       clock_not_set(op, "the agent's channel cannot be opened") : OP_WAIT;
	}
	if (ev->type != OP_AGENT)
		return OP_WAIT;
	if (ev->err)
		return clock_not_set(op, ev->err->text);
	if (ev->qga == QGA_SET_TIME)
		return op_agent(op, QGA_GET_TIME, NULL, AGENT_LIMIT, OPQ_SHOW);
	if (!r->clock_before) {
		r->clock_before = json_integer_value(ev->data);
		return op_agent(op, QGA_SET_TIME, json_pack("{s:I}", "time", (json_int_t)tp_now_us() * 1000),
				AGENT_LIMIT, OPQ_SHOW);
	}
	op_result(op, "clock", json_pack("{s:s, s:o, s:o}", "method", "guest-set-time", "before",
					 clock_text(r->clock_before), "after",
					 clock_text(json_integer_value(ev->data))));
	return OP_NEXT;
}

/* --- the end --- */

enum op_verdict restore_delete(struct op *op, const struct op_event *ev)
{
	struct vm *vm = op_vm_of(op);

	if (ev->type == OP_ENTER) {
		/* What is read still goes when all is in (prefetch.c). */
		if (!restore_runs(op) || tp_json_bool(op_res(op), "keep", false) || vm->prefetch)
			return OP_NEXT;
		/* It may never have run: what its memory was can be had again by "allow reused-image". */
		if (!op_qemu_alive(op)) {
			op_warn(op, "QEMU has ended: image %s was kept", tp_json_str(restore_image(op), "id"));
			return OP_NEXT;
		}
		return step_job(op, image_drop, json_incref(restore_image(op)),
				tp_json_str(restore_image(op), "pool"), OPQ_SHOW);
	}
	if (ev->type != OP_IO)
		return OP_WAIT;
	if (ev->err)
		op_warn(op, "the image was not deleted: %s", ev->err->text);
	else
		pools_image_drop(vm->t->pools, tp_json_str(restore_image(op), "pool"),
				 tp_json_str(restore_image(op), "id"));
	return OP_NEXT;
}

static void succeeded(struct op *op)
{
	struct restore *r = op_data(op);
	struct vm *vm = op_vm_of(op);
	bool runs = restore_runs(op);

	if (runs)
		vm_image_forget(vm);
	op_result(op, "state", json_string(runs ? "running" : "paused"));
	op_result(op, "image", json_incref(json_object_get(restore_image(op), "id")));
	op_result(op, "mode", json_string(r->lazy || vm->prefetch ? "lazy" : "eager"));
	if (r->running > 0)
		op_result(op, "running", json_real(r->running - r->started));
	if (!vm->prefetch)
		op_result(op, "whole", json_real((r->whole > 0 ? r->whole : op_now(op)) - r->started));
}

void restore_give_back_rest(struct op *op)
{
	struct vm *vm = op_vm_of(op);
	const json_t *former = json_object_get(op_res(op), "former");
	json_t *image = json_object_get(former, "image");

	if (former) {
		vm_rest_text(vm, tp_json_str(former, "rest"), tp_json_str(former, "reason"));
		vm_image_forget(vm);
		vm_rest_set(vm, "image", json_is_object(image) ? json_incref(image) : NULL);
	} else {
		vm_rest_text(vm, "hibernated", "save");
	}
	vm_rest_set(vm, "consumed", NULL);
	vm_rest_set(vm, "ran", NULL);
	vm_rest_set(vm, "keep", NULL);
	vm_rest_set(vm, "paused-by", NULL);
	vm_rest_set(vm, "prefetch", NULL);
}

/*
 * Past the commit and without QEMU. Where its end was seen the rest says what it was; at recovery it
 * says "running" still: an image that was not run is offered again, else the guest is gone.
 */
static void lost(struct op *op)
{
	struct vm *vm = op_vm_of(op);
	bool reboot = rebooted(op);

	if (strcmp(tp_json_str(vm->rest, "rest"), "running") == 0 && !vm_image_give_back(vm, !reboot))
		vm_rest_text(vm, reboot ? "shutoff" : "crashed", reboot ? "host-reboot" : "exited");
	if (restore_runs(op))
		vm_image_forget(vm);
}

void restore_ended(struct op *op)
{
	struct vm *vm = op_vm_of(op);
	bool committed = op_committed(op) && !op_going_back(op);

	restore_keep_damage(op);
	if (committed && op_qemu_alive(op))
		succeeded(op);
	else if (committed)
		lost(op);
	else if (strcmp(tp_json_str(op_was(op), "rest"), "running") != 0 &&
		 strcmp(tp_json_str(vm->rest, "rest"), "running") == 0)
		restore_give_back_rest(op);
	if (!op_qemu_alive(op))
		vm_rest_set(vm, "qemu", NULL);
}
