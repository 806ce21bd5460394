/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm_image.c - The image of a VM outside operations: given back, marked as run, thrown away */
#include "engine/vm_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_proc.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/pool_job.h"
#include "engine/prefetch.h"
#include "engine/restore.h"
#include "engine/steps.h"

TP_LOG_SOURCE("engine.image");

struct image_task {
	struct torpor *t;
	void (*done)(void *arg, const struct tp_error *err);
	void *arg;
	void (*after)(struct torpor *t, const json_t *in);	/* on success, on the loop */
};

static void task_done(struct job *job, const struct tp_error *err, void *arg)
{
	struct image_task *task = arg;

	if (err)
		tp_warn("image %s: %s", tp_json_str(job->in, "id"), err->text);
	else if (task->after)
		task->after(task->t, job->in);
	if (task->done)
		task->done(task->arg, err);
	free(task);
}

static json_t *own_image(struct vm *vm)
{
	json_t *image = json_copy(json_object_get(vm->rest, "image"));

	if (image && !tp_json_str(image, "vm"))
		tp_json_set_str(image, "vm", vm->name);
	return image;
}

static bool submit(struct vm *vm, bool (*fn)(struct job *j, struct tp_error *err), json_t *in_owned,
		   void (*after)(struct torpor *t, const json_t *in),
		   void (*done)(void *arg, const struct tp_error *err), void *arg, struct tp_error *err)
{
	const char *pool = tp_json_str(in_owned, "pool");
	struct engine_pool *p = pools_need(vm->t->pools, pool ? pool : "", err);
	struct image_task *task = p ? calloc(1, sizeof(*task)) : NULL;

	if (!task) {
		json_decref(in_owned);
		return p ? tp_fail_nomem(err) : false;
	}
	*task = (struct image_task){ .t = vm->t, .done = done, .arg = arg, .after = after };
	if (pool_job(p, fn, in_owned, task_done, task, err))
		return true;
	free(task);
	return false;
}

const char *vm_image_id(const struct vm *vm)
{
	return tp_json_str(json_object_get(vm->rest, "image"), "id");
}

const char *vm_image_pool(const struct vm *vm, bool named, struct tp_error *err)
{
	struct pools *ps = vm->t->pools;
	const char *id = vm_image_id(vm), *pool = tp_json_str(json_object_get(vm->rest, "image"), "pool");
	struct engine_pool *p = pool ? pools_find(ps, pool) : NULL;

	if (!pool) {
		tp_fail(err, TP_ECORRUPT, "VM %s: its record names no pool", vm->name);
		return NULL;
	}
	if (!named)
		return pools_image_astray(ps, vm, err) ? NULL : pool;
	if (p && engine_pool_ready(p) && pools_image_at(ps, pool, id))
		return pool;
	p = pools_image_elsewhere(ps, id, pool);
	return p ? engine_pool_name(p) : pool;
}

const char *vm_image_worked_with(const struct vm *vm)
{
	return vm->op ? tp_json_str(json_object_get(op_res(vm->op), "image"), "id") : NULL;
}

void vm_image_forget(struct vm *vm)
{
	static const char *const members[] = { "image", "consumed", "ran", "keep", "give-back" };

	for (size_t i = 0; i < TP_N(members); i++)
		vm_rest_set(vm, members[i], NULL);
}

/* --- given back --- */

/*
 * The rest says "hibernated" at once; "give-back" stays in it until the mark in the pool is gone, so
 * that neither an absent pool nor the daemon's end leaves an image that is never offered again.
 */
static void given_back(struct torpor *t, const json_t *in)
{
	struct vm *vm = vm_find(t, tp_json_str(in, "of"));
	const char *own = vm ? tp_json_str(json_object_get(vm->rest, "image"), "id") : NULL;
	const char *id = tp_json_str(in, "id");

	pools_image_state(t->pools, tp_json_str(in, "pool"), id, "complete");
	if (!own || strcmp(own, id) != 0 || !json_object_get(vm->rest, "give-back"))
		return;
	vm_rest_set(vm, "give-back", NULL);
	vm_rest_save(vm);
}

static void give_back(struct vm *vm)
{
	const json_t *how = json_object_get(vm->rest, "give-back");
	const char *boot = tp_json_str(how, "boot");
	bool same_boot = boot && strcmp(boot, tp_boot_id()) == 0;
	json_t *image = own_image(vm);
	struct tp_error err = TP_ERROR_INIT;

	/* Nothing vouches for the disks after a reboot of the host. */
	tp_json_set(image, "retake", json_boolean(same_boot && tp_json_bool(how, "retake", false)));
	tp_json_set_str(image, "of", vm->name);
	if (!submit(vm, image_unconsume, image, given_back, NULL, NULL, &err))
		tp_warn("vm=%s its image cannot be offered again now: %s", vm->name, err.text);
}

/* Past a hibernation's commit the VM is its new image. */
static bool superseded(const struct vm *vm)
{
	return vm->op && strcmp(op_plan_of(vm->op)->kind, "hibernate") == 0 && op_committed(vm->op);
}

bool vm_image_give_back(struct vm *vm, bool retake)
{
	if (!json_object_get(vm->rest, "image") || !tp_json_bool(vm->rest, "consumed", false) ||
	    tp_json_bool(vm->rest, "ran", false) || superseded(vm))
		return false;
	vm_rest_text(vm, "hibernated", "save");
	vm_rest_set(vm, "consumed", NULL);
	vm_rest_set(vm, "ran", NULL);
	vm_rest_set(vm, "keep", NULL);
	vm_rest_set(vm, "paused-by", NULL);
	vm_rest_set(vm, "give-back", json_pack("{s:b, s:s}", "retake", retake, "boot", tp_boot_id()));
	give_back(vm);
	return true;
}

/* --- ran --- */

bool vm_image_must_mark(const struct vm *vm)
{
	return json_object_get(vm->rest, "image") && tp_json_bool(vm->rest, "consumed", false) &&
	       (vm->marking || !tp_json_bool(vm->rest, "ran", false));
}

static bool mark_ran(struct job *j, struct tp_error *err)
{
	return pool_image_consumed(j->pool, tp_json_str(j->in, "vm"), tp_json_str(j->in, "id"),
				   json_object_get(j->in, "why"), err);
}

static json_t *mark_input(struct vm *vm, bool ran)
{
	json_t *in = own_image(vm);
	char at[TP_TIME_TEXT];

	tp_json_set(in, "why", json_pack("{s:s, s:s, s:b}", "operation", "vm-resume", "at",
					 tp_time_format(tp_now_us(), at), "ran", ran));
	return in;
}

/*
 * First the mark in the pool, then state.json, by the worker that always writes it: so no older
 * state.json comes after it. Until both are on the platter the VM is "marking" and nobody sends cont.
 */
struct marking {
	struct torpor *t;
	char vm[TP_NAME_MAX + 1];
	void (*done)(void *arg, const struct tp_error *err);
	void *arg;
	struct op_job *rest;
};

static void marking_over(struct marking *m, struct vm *vm, const struct tp_error *err)
{
	if (vm)
		vm->marking = false;
	m->done(m->arg, err);
	free(m);
}

static bool rest_run(void *arg, struct tp_error *err)
{
	struct marking *m = arg;

	return m->rest->run(m->rest, err);
}

static void rest_done(void *arg, const struct tp_error *err)
{
	struct marking *m = arg;
	struct vm *vm = vm_find(m->t, m->vm);

	m->rest->free(m->rest);
	if (err && vm)
		vm_rest_set(vm, "ran", NULL);
	marking_over(m, vm, err);
}

static void marked_in_pool(void *arg, const struct tp_error *err)
{
	struct marking *m = arg;
	struct vm *vm = vm_find(m->t, m->vm);
	struct tp_error why = TP_ERROR_INIT;

	if (err || !vm) {
		tp_fail_class(&why, TP_ESTATE, "NotFound", "VM %s was undefined meanwhile", m->vm);
		marking_over(m, vm, err ? err : &why);
		return;
	}
	vm_rest_set(vm, "ran", json_true());
	m->rest = vm_rest_job(vm);
	if (m->rest && io_worker_submit(vm->t->worker, rest_run, rest_done, m, &why))
		return;
	if (m->rest)
		m->rest->free(m->rest);
	tp_fail_nomem(&why);
	vm_rest_set(vm, "ran", NULL);
	marking_over(m, vm, &why);
}

bool vm_image_mark(struct vm *vm, void (*done)(void *arg, const struct tp_error *err), void *arg,
		   struct tp_error *err)
{
	struct marking *m;

	if (vm->marking)
		return tp_fail_class(err, TP_ESTATE, "Busy", "VM %s is being resumed already", vm->name);
	m = calloc(1, sizeof(*m));
	if (!m)
		return tp_fail_nomem(err);
	*m = (struct marking){ .t = vm->t, .done = done, .arg = arg };
	snprintf(m->vm, sizeof(m->vm), "%s", vm->name);
	vm->marking = submit(vm, mark_ran, mark_input(vm, true), NULL, marked_in_pool, m, err);
	if (!vm->marking)
		free(m);
	return vm->marking;
}

static void dropped(struct torpor *t, const json_t *in)
{
	pools_image_drop(t->pools, tp_json_str(in, "pool"), tp_json_str(in, "id"));
}

void vm_image_drop(struct vm *vm, json_t *image_owned)
{
	struct tp_error err = TP_ERROR_INIT;

	if (!submit(vm, image_drop, image_owned, dropped, NULL, NULL, &err))
		tp_warn("vm=%s its image was not deleted: %s", vm->name, err.text);
}

void vm_image_ran(struct vm *vm)
{
	json_t *image = own_image(vm);
	const json_t *entry = pools_image(vm->t->pools, tp_json_str(image, "id"), NULL);
	bool keep = tp_json_bool(vm->rest, "keep",
				 tp_json_bool(json_object_get(entry, "manifest"), "keep", false));
	bool served = prefetch_ran(vm, keep);		/* it is read still */

	vm_image_forget(vm);
	vm_rest_save(vm);
	if (keep || served || !image)
		json_decref(image);
	else
		vm_image_drop(vm, image);
}

void vm_image_unmark(struct vm *vm)
{
	vm_rest_set(vm, "ran", NULL);
	vm_rest_save(vm);
	submit(vm, mark_ran, mark_input(vm, false), NULL, NULL, NULL, NULL);
}

/* --- thrown away --- */

/*
 * The rest says "discarded" on the platter before the image goes, and has the image in "discarding"
 * until it is gone: a power cut leaves neither a hibernated VM without its memory nor memory that
 * belongs to nobody.
 */
struct discard {
	struct torpor *t;
	char vm[TP_NAME_MAX + 1];
	bool remove;
	void (*done)(void *arg, const struct tp_error *err);
	void *arg;
	struct op_job *rest;
};

static void let_go(struct vm *vm)
{
	vm_rest_set(vm, "discarding", own_image(vm));
	vm_rest_set(vm, "image", NULL);
	vm_rest_text(vm, "shutoff", "discarded");
}

/* It could not be removed: unless something else was begun, the VM is hibernated as before. */
static void take_back(struct vm *vm)
{
	json_t *image = json_incref(json_object_get(vm->rest, "discarding"));

	vm_rest_set(vm, "discarding", NULL);
	if (!image || vm->op || vm->qemu || strcmp(tp_json_str(vm->rest, "rest"), "shutoff") != 0) {
		json_decref(image);
		return;
	}
	vm_rest_set(vm, "image", image);
	vm_rest_text(vm, "hibernated", "save");
}

static void discard_over(struct discard *d, const struct tp_error *err)
{
	struct vm *vm = vm_find(d->t, d->vm);

	if (vm && err)
		take_back(vm);
	if (vm && (err || d->remove)) {
		vm_rest_set(vm, "discarding", NULL);
		vm_rest_save(vm);
		vm_refresh(vm);
	}
	d->done(d->arg, err);
	free(d);
}

static void image_removed(void *arg, const struct tp_error *err)
{
	discard_over(arg, err);
}

static bool discard_rest_run(void *arg, struct tp_error *err)
{
	struct discard *d = arg;

	return d->rest->run(d->rest, err);
}

static void discard_rest_done(void *arg, const struct tp_error *err)
{
	struct discard *d = arg;
	struct vm *vm = vm_find(d->t, d->vm);
	struct tp_error why = TP_ERROR_INIT;

	d->rest->free(d->rest);
	if (err || !vm || !d->remove)
		discard_over(d, err);
	else if (!submit(vm, image_drop, json_copy(json_object_get(vm->rest, "discarding")), dropped, image_removed,
			 d, &why))
		discard_over(d, &why);
}

static bool discard(struct vm *vm, bool remove, void (*done)(void *arg, const struct tp_error *err), void *arg,
		    struct tp_error *err)
{
	const char *pool = tp_json_str(json_object_get(vm->rest, "image"), "pool");
	struct discard *d;

	if (!pools_need(vm->t->pools, pool ? pool : "", err))
		return false;
	d = calloc(1, sizeof(*d));
	if (!d)
		return tp_fail_nomem(err);
	*d = (struct discard){ .t = vm->t, .remove = remove, .done = done, .arg = arg };
	snprintf(d->vm, sizeof(d->vm), "%s", vm->name);
	let_go(vm);
	d->rest = vm_rest_job(vm);
	if (d->rest && io_worker_submit(vm->t->worker, discard_rest_run, discard_rest_done, d, err))
		return true;
	if (d->rest)
		d->rest->free(d->rest);
	take_back(vm);
	free(d);
	return tp_fail_nomem(err);
}

bool vm_image_discard(struct vm *vm, void (*done)(void *arg, const struct tp_error *err), void *arg,
		      struct tp_error *err)
{
	return discard(vm, true, done, arg, err);
}

bool vm_image_let_go(struct vm *vm, void (*done)(void *arg, const struct tp_error *err), void *arg,
		     struct tp_error *err)
{
	return discard(vm, false, done, arg, err);
}

static void discarded_at_last(struct torpor *t, const json_t *in)
{
	struct vm *vm = vm_find(t, tp_json_str(in, "of"));

	dropped(t, in);
	if (vm) {
		vm_rest_set(vm, "discarding", NULL);
		vm_rest_save(vm);
	}
}

/* A discard that was cut off. */
static void discard_again(struct vm *vm)
{
	json_t *image = json_copy(json_object_get(vm->rest, "discarding"));
	struct tp_error err = TP_ERROR_INIT;

	tp_json_set_str(image, "of", vm->name);
	if (!submit(vm, image_drop, image, discarded_at_last, NULL, NULL, &err))
		tp_warn("vm=%s the image that was discarded cannot be removed now: %s", vm->name, err.text);
}

/* --- what could not be done, or was cut off --- */

void vm_image_again(struct vm *vm)
{
	const char *rest = tp_json_str(vm->rest, "rest");

	if (json_object_get(vm->rest, "discarding") && !vm->op && !vm->undecided)
		discard_again(vm);
	if (json_object_get(vm->rest, "give-back") && json_object_get(vm->rest, "image") && !vm->op &&
	    !vm->qemu && !vm->undecided && rest && strcmp(rest, "hibernated") == 0)
		give_back(vm);
}
