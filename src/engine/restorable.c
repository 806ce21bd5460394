/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* restorable.c - Condition Restorable: would a restore accept the image of a hibernated VM? */
#include "engine/restorable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/pool_job.h"
#include "engine/restore.h"
#include "engine/steps.h"
#include "engine/vm_condition.h"
#include "engine/vm_image.h"

#define TYPE "Restorable"
#define NOT_HIBERNATED "the VM is not hibernated"

struct restorable {
	struct vm_condition condition;
	bool looking, again;
};

struct look {
	struct torpor *t;
	char vm[TP_NAME_MAX + 1];
};

json_t *restorable_condition(const struct vm *vm)
{
	struct vm_condition none = { .status = NULL };

	if (vm->restorable && vm->restorable->condition.status)
		return vm_condition_json(vm, &vm->restorable->condition, TYPE);
	/* Nobody has looked, as it has had no operation yet. */
	if (vm->state != VM_HIBERNATED)
		none = (struct vm_condition){ .status = "False", .reason = "NotHibernated", .message = NOT_HIBERNATED,
					      .since_us = vm->since_us };
	return vm_condition_json(vm, &none, TYPE);
}

void restorable_free(struct vm *vm)
{
	free(vm->restorable);
	vm->restorable = NULL;
}

static void set(struct vm *vm, const char *status, const char *reason, const char *message)
{
	vm_condition_set(vm, &vm->restorable->condition, TYPE, status, reason, message);
}

/* --- the look, on the pool's worker --- */

/* As execvp(3) would find it. */
static bool program_there(const char *name)
{
	const char *path = getenv("PATH");
	char full[4096];

	if (strchr(name, '/'))
		return access(name, X_OK) == 0;
	for (path = path ? path : "/bin:/usr/bin"; *path; path += strspn(path, ":")) {
		size_t n = strcspn(path, ":");

		snprintf(full, sizeof(full), "%.*s/%s", (int)n, path, name);
		if (access(full, X_OK) == 0)
			return true;
		path += n;
	}
	return false;
}

static bool look_run(struct job *j, struct tp_error *err)
{
	const char *binary;

	if (!restore_look(j, err))
		return false;
	binary = tp_json_str(tp_json_path(j->out, "manifest.launch"), "binary");
	if (binary && !program_there(binary))
		blocker_add(json_object_get(j->out, "blockers"), "QemuMissing", NULL,
			    "its QEMU, %s, is not there", binary);
	return true;
}

/* The class of what refuses it, as a reason. */
static const char *reason_of(const char *class_)
{
	static const char *const reasons[] = { "StaleState", "Corrupt", "Incompatible", "InsufficientMemory",
					       "NotFound", "IOError", "QemuMissing", "PermissionDenied" };

	for (size_t i = 0; i < TP_N(reasons); i++)
		if (class_ && strcmp(class_, reasons[i]) == 0)
			return reasons[i];
	return "NotRestorable";
}

/* What can pass by itself says nothing for certain. */
static const char *status_of(const char *class_)
{
	bool passes = class_ && (strcmp(class_, "IOError") == 0 || strcmp(class_, "InsufficientMemory") == 0);

	return passes ? "Unknown" : "False";
}

static void found(struct vm *vm, const struct job *job, const struct tp_error *err)
{
	const json_t *first = json_array_get(json_object_get(job->out, "blockers"), 0);
	const char *class_ = err ? tp_error_class(err) : tp_json_str(first, "class");

	/* Somebody may have moved it by hand: where to will be said. */
	if (err && strcmp(class_, "NotFound") == 0)
		pools_recheck(vm->t->pools);
	if (err || first)
		set(vm, status_of(class_), reason_of(class_), err ? err->text : tp_json_str(first, "desc"));
	else
		set(vm, "True", "Ok", "");
}

/* Also where the pool went while it was looked at: what it says of itself is what counts. */
static bool still_said(struct vm *vm, const struct job *job)
{
	const char *own = vm_image_id(vm), *pool = tp_json_str(json_object_get(vm->rest, "image"), "pool");

	return vm->state == VM_HIBERNATED && own && strcmp(own, tp_json_str(job->in, "id")) == 0 && pool &&
	       pools_need(vm->t->pools, pool, NULL);
}

void restorable_seen(struct vm *vm, const struct job *look, const struct tp_error *err)
{
	if (!vm->restorable || !still_said(vm, look) || (err && err->code == TP_ECANCELLED))
		return;
	/* It did not look for the QEMU, which is the last that could be in the way. */
	if (err || json_array_size(json_object_get(look->out, "blockers")))
		found(vm, look, err);
	else
		restorable_check(vm);
}

static void look_done(struct job *job, const struct tp_error *err, void *arg)
{
	struct look *l = arg;
	struct vm *vm = vm_find(l->t, l->vm);

	if (vm && vm->restorable) {
		bool again = vm->restorable->again, dropped = err && err->code == TP_ECANCELLED;

		vm->restorable->looking = vm->restorable->again = false;
		if (again)
			restorable_check(vm);
		else if (!dropped && still_said(vm, job))
			found(vm, job, err);
	}
	free(l);
}

static json_t *look_input(struct vm *vm)
{
	json_t *in = json_copy(json_object_get(vm->rest, "image"));
	const json_t *entry = pools_image_at(vm->t->pools, tp_json_str(in, "pool"), tp_json_str(in, "id"));

	if (!tp_json_str(in, "vm"))
		tp_json_set_str(in, "vm", vm->name);
	else
		tp_json_set(in, "other-vm", json_true());	/* it was allowed when it was restored */
	tp_json_set_str(in, "uid", vm->uid);
	tp_json_set_str(in, "state", tp_json_str(entry, "state"));
	tp_json_set(in, "declared", launch_disks(vm));
	return in;
}

static bool look(struct vm *vm, struct engine_pool *p)
{
	struct look *l = calloc(1, sizeof(*l));

	if (!l)
		return false;
	l->t = vm->t;
	snprintf(l->vm, sizeof(l->vm), "%s", vm->name);
	if (pool_job(p, look_run, look_input(vm), look_done, l, NULL))
		return true;
	free(l);
	return false;
}

void restorable_check(struct vm *vm)
{
	const char *pool = tp_json_str(json_object_get(vm->rest, "image"), "pool");
	struct tp_error why = TP_ERROR_INIT;
	struct engine_pool *p;

	if (!vm->restorable)
		vm->restorable = calloc(1, sizeof(*vm->restorable));
	/* An operation's end asks again. */
	if (!vm->restorable || vm->op || vm->t->closing)
		return;
	if (vm->state != VM_HIBERNATED || !pool) {
		set(vm, "False", "NotHibernated", NOT_HIBERNATED);
		return;
	}
	p = pools_need(vm->t->pools, pool, &why);
	if (!p) {
		set(vm, "False", "PoolMissing", why.text);
		return;
	}
	if (vm->restorable->looking)
		vm->restorable->again = true;
	else if (pools_image_astray(vm->t->pools, vm, &why))
		set(vm, "False", "NotFound", why.text);
	else
		vm->restorable->looking = look(vm, p);
}

void restorable_check_all(struct torpor *t)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		restorable_check(vm);
}

void restorable_image_changed(struct torpor *t, const char *image)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next) {
		const char *own = vm_image_id(vm);

		if (own && strcmp(own, image) == 0)
			restorable_check(vm);
	}
}
