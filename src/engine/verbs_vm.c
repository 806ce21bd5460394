/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verbs_vm.c - Verbs on the definition of a VM, and queries */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/recover.h"
#include "engine/selector.h"
#include "engine/spec.h"
#include "engine/standing.h"
#include "engine/verbs.h"
#include "engine/vm_hooks.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"

#define QUERY_VMS_LIMIT 1000
#define RESOLVE_LIMIT 8.0	/* seconds for QEMU's end */

/* --- define --- */

struct define_job {
	struct torpor *t;
	struct api_call *call;
	int dirfd;
	bool fresh;
	char name[TP_NAME_MAX + 1];
	json_t *doc, *before;		/* what is written; the spec before */
	int64_t generation;
};

static bool define_run(void *arg, struct tp_error *err)
{
	struct define_job *d = arg;

	return state_vm_write(d->dirfd, "spec.json", d->doc, err);
}

static void define_failed(struct define_job *d, struct vm *vm)
{
	/* Somebody may have started it meanwhile: then it stays for as long as this engine does. */
	if (d->fresh && (vm->op || vm->qemu))
		return;
	if (d->fresh) {
		state_dir_vm_remove(d->t->state, vm->name, NULL);
		vm_destroy(vm);
		return;
	}
	json_decref(vm->spec);
	vm->spec = json_incref(d->before);
	vm->generation = d->generation - 1;
}

static void define_done(void *arg, const struct tp_error *err)
{
	struct define_job *d = arg;
	struct vm *vm = vm_find(d->t, d->name);

	if (err && vm && vm->generation == d->generation)
		define_failed(d, vm);
	if (err) {
		api_error(d->call, err, NULL);
	} else {
		if (vm) {
			json_decref(vm->disk_info);
			vm->disk_info = NULL;
			vm_disks_look(vm);
			tp_error_clear(&vm->preflight);	/* it was of another spec */
		}
		standing_soon(d->t, true);
		api_event(d->t, "VM_DEFINED", d->name, false,
			  json_pack("{s:s, s:I, s:O}", "vm", d->name, "generation", (json_int_t)d->generation, "uid",
				    json_object_get(d->doc, "uid")));
		api_reply(d->call, json_pack("{s:I, s:O}", "generation", (json_int_t)d->generation, "uid",
					     json_object_get(d->doc, "uid")));
	}
	tp_close(&d->dirfd);
	json_decref(d->doc);
	json_decref(d->before);
	free(d);
}

static bool write_spec(struct api_call *call, struct vm *vm, bool fresh, json_t *before, struct tp_error *err)
{
	struct define_job *d = calloc(1, sizeof(*d));

	if (!d)
		return tp_fail_nomem(err);
	*d = (struct define_job){ .t = vm->t, .call = call, .fresh = fresh, .before = json_incref(before),
				  .dirfd = fcntl(vm->dirfd, F_DUPFD_CLOEXEC, 3), .generation = vm->generation };
	snprintf(d->name, sizeof(d->name), "%s", vm->name);
	d->doc = json_pack("{s:s, s:s, s:I, s:O}", "uid", vm->uid, "source", "api", "generation",
			   (json_int_t)vm->generation, "spec", vm->spec);
	if (d->dirfd >= 0 && d->doc && io_worker_submit(vm->t->worker, define_run, define_done, d, err))
		return true;
	tp_close(&d->dirfd);
	json_decref(d->doc);
	json_decref(d->before);
	free(d);
	return tp_fail_nomem(err);
}

static bool check_generation(struct vm *vm, const json_t *args, struct tp_error *err, json_t **data)
{
	int64_t want = tp_json_int(args, "if-generation", -1), is = vm ? vm->generation : 0;

	if (want < 0 || want == is)
		return true;
	*data = json_pack("{s:I}", "generation", (json_int_t)is);
	return tp_fail_class(err, TP_ESTATE, "Conflict", "the VM's spec is at generation %lld, not %lld",
			     (long long)is, (long long)want);
}

static bool check_spec(struct torpor *t, const char *name, const json_t *spec, struct tp_error *err, json_t **data)
{
	char run_dir[200], argument[64];

	snprintf(run_dir, sizeof(run_dir), "%s/%s", t->runtime_dir, name);
	if (spec_check(spec, run_dir, argument, err))
		return true;
	*data = json_pack("{s:s}", "argument", argument);
	return false;
}

static bool listed(const json_t *names, const char *name)
{
	size_t i;
	json_t *item;

	json_array_foreach(names, i, item)
		if (strcmp(json_string_value(item), name) == 0)
			return true;
	return false;
}

/*
 * Which file a disk is belongs to the VM's state: a spec that names another file must say so, unless
 * the VM has never run.
 */
static bool check_disks(struct vm *vm, const json_t *spec, const json_t *reset, struct tp_error *err, json_t **data)
{
	json_t *before = tp_json_path(vm->spec, "launch.disks"), *disk;
	const char *id;

	if (strcmp(tp_json_str(vm->rest, "reason"), "never-started") == 0)
		return true;
	json_object_foreach(tp_json_path(spec, "launch.disks"), id, disk) {
		const char *old = tp_json_str(json_object_get(before, id), "file");

		if (!old || strcmp(old, tp_json_str(disk, "file")) == 0 || listed(reset, id))
			continue;
		*data = json_pack("{s:[s], s:s}", "disks", id, "argument", "reset-disks");
		return tp_fail_class(err, TP_ESTATE, "Conflict", "disk %s of VM %s is %s; a spec that names another "
				     "file must list it in \"reset-disks\"", id, vm->name, old);
	}
	return true;
}

static void reset_disks(struct vm *vm, const json_t *reset)
{
	json_t *present = json_object_get(vm->rest, "disks"), *id;
	size_t i;

	if (!present || !json_array_size(reset))
		return;
	json_array_foreach(reset, i, id)
		json_object_del(present, json_string_value(id));
	vm_rest_save(vm);
}

/* spec: taken. */
static bool define(struct api_call *call, const char *name, json_t *spec_owned, struct tp_error *err, json_t **data)
{
	struct torpor *t = api_engine(call);
	struct vm *vm = vm_find(t, name);
	tp_autojson json_t *spec = spec_owned, *before = NULL;
	const json_t *reset = json_object_get(api_args(call), "reset-disks");
	bool fresh = !vm;

	if (vm && vm->gone)
		return vm_need(t, name, err) != NULL;
	if (!check_generation(vm, api_args(call), err, data) || !check_spec(t, name, spec, err, data))
		return false;
	if (vm && !check_disks(vm, spec, reset, err, data))
		return false;
	if (vm && json_equal(vm->spec, spec)) {
		api_reply(call, json_pack("{s:I, s:s, s:b}", "generation", (json_int_t)vm->generation, "uid", vm->uid,
					  "unchanged", 1));
		return true;
	}
	if (!vm)
		vm = vm_create(t, name, NULL, err);
	if (!vm)
		return false;
	before = TP_STEAL(vm->spec);
	vm->spec = TP_STEAL(spec);
	vm->generation++;
	if (write_spec(call, vm, fresh, before, err)) {
		reset_disks(vm, reset);
		return true;
	}
	if (fresh) {
		vm_destroy(vm);
		return false;
	}
	json_decref(vm->spec);
	vm->spec = TP_STEAL(before);
	vm->generation--;
	return false;
}

static bool name_fits(const char *name, struct tp_error *err, json_t **data)
{
	if (tp_name_ok(name))
		return true;
	*data = json_pack("{s:s}", "argument", "name");
	return tp_fail_class(err, TP_EARG, "GenericError", "Parameter 'name' must be 1 to 64 of letters, digits, '_', "
			     "'.' and '-', not beginning with '.' or '-'");
}

void api_vm_define(struct api_call *call)
{
	const json_t *args = api_args(call);
	const char *name = tp_json_str(args, "name");
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	if (!name_fits(name, &err, &data) ||
	    !define(call, name, json_deep_copy(json_object_get(args, "spec")), &err, &data))
		api_error(call, &err, data);
}

void api_vm_set(struct api_call *call)
{
	struct vm *vm = verb_vm(call);
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;

	if (vm && !define(call, vm->name, tp_json_merge_patch(vm->spec, json_object_get(api_args(call), "merge")),
			  &err, &data))
		api_error(call, &err, data);
}

/* --- discard, resolve --- */

static void discarded(void *arg, const struct tp_error *err)
{
	struct sync_call *s = arg;
	struct vm *vm = sync_vm(s);

	if (err) {
		sync_error(s, err, NULL);
		return;
	}
	if (vm) {
		vm_rest_text(vm, "shutoff", "discarded");
		vm_rest_set(vm, "image", NULL);
		vm_rest_set(vm, "hibernation", NULL);
		vm_rest_save(vm);
		vm_refresh(vm);
		standing_soon(vm->t, false);
	}
	sync_reply(s, NULL);
}

void api_vm_discard(struct api_call *call)
{
	struct vm *vm = verb_vm(call);
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = NULL;
	struct sync_call *s;
	enum verb_answer answer;

	if (!vm)
		return;
	answer = ops_free_for(vm, &err, &data) ? verb_check(vm, VERB_DISCARD, api_args(call), &err, &data)
					       : VERB_REFUSED;
	if (answer == VERB_REFUSED) {
		api_error(call, &err, data);
		return;
	}
	if (answer == VERB_UNCHANGED) {
		api_reply(call, json_pack("{s:b}", "unchanged", 1));
		return;
	}
	s = sync_new(call, vm);
	if (s && !vm_image_discard(vm, discarded, s, &err))
		sync_error(s, &err, NULL);
}

static void resolved(struct sync_call *s)
{
	struct vm *vm = sync_vm(s);
	struct tp_error err = TP_ERROR_INIT;

	if (vm && vm->qemu && tp_now_mono() < s->until) {
		sync_after(s, 0.05, resolved);
		return;
	}
	if (vm && vm->qemu) {
		tp_fail_class(&err, TP_ETIMEOUT, "Timeout", "QEMU of VM %s (pid %d) does not end", vm->name,
			      (int)vm->qemu->proc.pid);
		sync_error(s, &err, NULL);
		return;
	}
	/* It may be hibernated: it was, or its end has given it its image back. */
	if (vm)
		vm_no_longer_lost(vm);
	sync_reply(s, NULL);
}

/* Looks for a QEMU that is not known. False: it cannot be looked for now. */
static bool look_for_qemu(struct vm *vm, struct tp_error *err)
{
	struct tp_proc p;

	if (vm->undecided)
		recover_vm(vm);
	if (vm->qemu || vm->op)
		return true;
	if (!vm->undecided && ((vm_find_stray(vm, &p) && vm_adopt(vm, &p)) || errno == ESRCH))
		return true;
	return tp_fail_class(err, TP_ESYS, "IOError", "it cannot be looked at whether QEMU of VM %s runs: %s", vm->name,
			     strerror(errno));
}

/* lost: "here": what still runs is taken up again; "nobody": nothing of it runs any more. */
void api_vm_resolve(struct api_call *call)
{
	const char *owner = tp_json_str(api_args(call), "owner");
	struct vm *vm = verb_vm(call);
	struct tp_error err = TP_ERROR_INIT;
	struct sync_call *s;

	if (!vm)
		return;
	if (vm->state != VM_LOST || strcmp(owner, "elsewhere") == 0) {
		tp_fail_class(&err, TP_ESTATE, "InvalidState", "VM %s is %s (%s): there is nothing to resolve%s", vm->name,
			      vm_state_name(vm->state), vm->reason, vm->state == VM_LOST ? " elsewhere" : "");
		api_error(call, &err, json_pack("{s:s}", "use", "query-vm"));
		return;
	}
	if (!look_for_qemu(vm, &err)) {
		api_error(call, &err, NULL);
		return;
	}
	if (strcmp(owner, "here") == 0 && vm->qemu) {
		vm_no_longer_lost(vm);
		api_reply(call, json_object());
		return;
	}
	s = sync_new(call, vm);
	if (!s)
		return;
	s->until = tp_now_mono() + RESOLVE_LIMIT;
	vm_qemu_kill(vm);
	resolved(s);
}

/* --- queries --- */

void api_query_vm(struct api_call *call)
{
	struct vm *vm = verb_vm(call);

	if (vm)
		api_reply(call, vm_describe(vm, api_role(call) != TORPOR_ROLE_READ));
}

/* "a=b,c!=d,e": each term must hold on the labels. */
static bool named(const struct vm *vm, const json_t *names)
{
	size_t i;
	json_t *name;

	json_array_foreach(names, i, name)
		if (strcmp(json_string_value(name), vm->name) == 0)
			return true;
	return !names;
}

static json_t *with_fields(json_t *vm_owned, const json_t *fields)
{
	json_t *out, *field;
	size_t i;

	if (!fields)
		return vm_owned;
	out = json_object();
	json_object_set(out, "name", json_object_get(vm_owned, "name"));
	json_array_foreach(fields, i, field) {
		json_t *value = json_object_get(vm_owned, json_string_value(field));

		if (value)
			json_object_set(out, json_string_value(field), value);
	}
	json_decref(vm_owned);
	return out;
}

void api_query_vms(struct api_call *call)
{
	const json_t *args = api_args(call), *names = json_object_get(args, "names");
	const char *selector = tp_json_str(args, "selector"), *after = tp_json_str(args, "after");
	const char *state = tp_json_str(args, "state");
	json_int_t limit = tp_json_int(args, "limit", QUERY_VMS_LIMIT);
	struct tp_error err = TP_ERROR_INIT;
	json_t *out;

	if (selector && !selector_check(selector, &err)) {
		api_error(call, &err, json_pack("{s:s}", "argument", "selector"));
		return;
	}
	out = json_array();
	for (struct vm *vm = api_engine(call)->vms; vm; vm = vm->next) {
		if ((json_int_t)json_array_size(out) >= limit)
			break;
		if ((after && strcmp(vm->name, after) <= 0) || !named(vm, names) ||
		    !selector_matches(selector, json_object_get(vm->spec, "labels")) ||
		    (state && strcmp(vm_state_name(vm->state), state) != 0))
			continue;
		json_array_append_new(out, with_fields(vm_describe(vm, api_role(call) != TORPOR_ROLE_READ),
						       json_object_get(args, "fields")));
	}
	api_reply(call, out);
}
