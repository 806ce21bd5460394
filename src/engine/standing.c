/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * standing.c - Room that is held for a VM's next image from its definition on (storage.standing)
 *
 * Theory of operation. Nothing about standing room is written down: what a VM should have follows
 * from its spec and its memory, what there is from the pools. Both are compared from one place, and
 * the difference is worked off by jobs of the pools' workers. So a crash at any instant, a pool that was
 * away, a spec that changed meanwhile all end the same way, at the next look.
 *
 *   check   a VM's room is held, made larger or smaller in the pool of its spec. Not while an
 *           operation holds the VM (a save makes the room its image, or gives it back), nor
 *           while it is hibernated there: its image has the room.
 *   sweep   what stands in a pool and no VM wants there is given back.
 *
 * A worker does its jobs in turn, and each is decided on the loop by what the spec says then: a
 * room that is given back and wanted again a moment later is there in the end.
 */
#include "engine/standing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_size.h"
#include "engine/engine.h"
#include "engine/pool_job.h"
#include "engine/room.h"
#include "engine/vm_condition.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine.standing");

/* Seconds. */
#define SOON 0.02	/* what comes together is looked at once */
#define LATER 5.0	/* after a failure, which may have been a pool's short absence */

struct standing_watch {
	struct torpor *t;
	struct ev_timer soon, later;
	bool pools;
};

struct standing {
	bool busy;			/* a job is on its way */
	bool again;			/* a look is due after it */
	bool asking;			/* QEMU, for its memory */
	char pool[TP_NAME_MAX + 1];	/* where `held` is */
	uint64_t held;			/* bytes */
	struct vm_condition condition;
};

static struct standing *standing_of(struct vm *vm)
{
	if (!vm->standing)
		vm->standing = calloc(1, sizeof(*vm->standing));
	return vm->standing;
}

static bool wanted(const struct vm *vm)
{
	return !vm->gone && tp_json_bool(json_object_get(vm->spec, "storage"), "standing", false);
}

bool standing_wanted(const struct vm *vm, const char *pool)
{
	return wanted(vm) && strcmp(room_pool(vm), pool) == 0;
}

uint64_t standing_held(const struct vm *vm)
{
	return vm->standing ? vm->standing->held : 0;
}

uint64_t standing_elsewhere(const struct vm *vm, const char *pool)
{
	return vm->standing && strcmp(vm->standing->pool, pool) != 0 ? vm->standing->held : 0;
}

/* The image that has the room which would be held there, or NULL. */
static const char *saved_in(const struct vm *vm, const char *pool)
{
	const char *rest = tp_json_str(vm->rest, "rest");
	const json_t *image = json_object_get(vm->rest, "image");
	const char *where = tp_json_str(image, "pool");

	if (!rest || strcmp(rest, "hibernated") != 0 || !where || strcmp(where, pool) != 0)
		return NULL;
	return tp_json_str(image, "id");
}

/* --- the condition --- */

json_t *standing_condition(const struct vm *vm)
{
	static const struct vm_condition none;

	if (!wanted(vm))
		return NULL;
	return vm_condition_json(vm, vm->standing ? &vm->standing->condition : &none, "StorageReserved");
}

/* status and reason: literals. No room is wanted by now: nobody asks. */
static void set_condition(struct vm *vm, const char *status, const char *reason, const char *message)
{
	if (wanted(vm))
		vm_condition_set(vm, &vm->standing->condition, "StorageReserved", status, reason, message);
}

/* --- held --- */

static void standing_later(struct torpor *t);

static bool hold_run(struct job *j, struct tp_error *err)
{
	struct pool_demand demand = room_demand_of(j->in);
	struct pool_shortage shortage = { .required = 0 };
	struct pool_space space = { .guaranteed = false };
	bool ok = pool_standing_hold(j->pool, &demand, &shortage, err);
	bool there = pool_space(j->pool, &space, NULL);

	/* What was there before is held still. */
	j->out = json_pack("{s:I, s:b, s:b}", "held", (json_int_t)pool_standing(j->pool, demand.vm), "guaranteed",
			   ok && there && space.guaranteed && pool_standing_kept(j->pool, demand.vm), "away", !there);
	return ok;
}

static void held(struct vm *vm, const json_t *out)
{
	const char *pool = vm->standing->pool;
	char size[TP_SIZE_TEXT], text[TP_TEXT_SIZE];
	bool guaranteed = tp_json_bool(out, "guaranteed", false);

	snprintf(text, sizeof(text), guaranteed ? "%s (%llu bytes) held in pool %s" :
		 "%s (%llu bytes) held in pool %s; its file system does not guarantee them",
		 tp_size_format(vm->standing->held, size), (unsigned long long)vm->standing->held, pool);
	set_condition(vm, "True", guaranteed ? "Held" : "NotGuaranteed", text);
}

static void hold_done(struct job *j, const struct tp_error *err, void *arg)
{
	struct torpor *t = arg;
	struct vm *vm = vm_find(t, tp_json_str(j->in, "vm"));
	struct standing *s = vm ? vm->standing : NULL;

	/* Undefined, or made anew, meanwhile: what was held is swept or looked at again. */
	if (!s || !s->busy)
		return;
	s->busy = false;
	/* Its worker has ended: with the engine, or with a pool in whose place there is another one. */
	if (err && err->code == TP_ECANCELLED) {
		standing_soon(t, true);
		return;
	}
	if (err && tp_json_bool(j->out, "away", false)) {
		set_condition(vm, "Unknown", "PoolMissing", err->text);
		standing_later(t);
		return;
	}
	if (s->held != (uint64_t)tp_json_int(j->out, "held", 0))
		pools_room_changed(t->pools, tp_json_str(j->in, "pool"));
	s->held = (uint64_t)tp_json_int(j->out, "held", 0);
	snprintf(s->pool, sizeof(s->pool), "%s", tp_json_str(j->in, "pool"));
	if (!err) {
		held(vm, j->out);
	} else if (strcmp(tp_error_class(err), "InsufficientSpace") == 0) {
		set_condition(vm, "False", "NoRoom", err->text);
	} else {
		set_condition(vm, "False", "Failed", err->text);
		standing_later(t);
	}
	if (s->again)
		standing_soon(t, true);
}

static void hold(struct vm *vm, struct standing *s)
{
	struct tp_error err = TP_ERROR_INIT;
	struct engine_pool *p = pools_need(vm->t->pools, room_pool(vm), &err);
	struct room_size size;
	json_t *in;

	if (!p) {
		set_condition(vm, "Unknown", "PoolMissing", err.text);
		return;
	}
	if (!room_size(vm, &size)) {
		set_condition(vm, "False", "NoRoom", "its memory is larger than can be counted");
		return;
	}
	in = room_demand(vm, room_pool(vm), size.bound);
	tp_json_set_str(in, "pool", room_pool(vm));
	s->busy = pool_job(p, hold_run, in, hold_done, vm->t, &err);
	if (!s->busy)
		set_condition(vm, "Unknown", "Pending", err.text);
}

/* --- check --- */

static void check(struct vm *vm)
{
	struct standing *s = wanted(vm) ? standing_of(vm) : vm->standing;
	const char *image = saved_in(vm, room_pool(vm));
	char text[TP_TEXT_SIZE];

	if (!s || vm->op || vm->undecided || vm->spec_damaged)
		return;
	s->again = s->busy;
	if (s->busy)
		return;
	if (!wanted(vm)) {
		standing_forget(vm);
	} else if (image) {
		s->held = 0;
		snprintf(text, sizeof(text), "its image %s has the room", image);
		set_condition(vm, "True", "InUse", text);
	} else {
		hold(vm, s);
	}
}

/* --- sweep --- */

static bool drop_run(struct job *j, struct tp_error *err)
{
	return pool_standing_drop(j->pool, tp_json_str(j->in, "vm"), err);
}

static void drop_done(struct job *j, const struct tp_error *err, void *arg)
{
	const char *vm = tp_json_str(j->in, "vm"), *pool = tp_json_str(j->in, "pool");
	struct torpor *t = arg;

	if (err && err->code == TP_ECANCELLED)
		return;
	if (err) {
		tp_warn("vm=%s pool=%s its standing room cannot be given back: %s", vm, pool, err->text);
		standing_later(t);
		return;
	}
	tp_info("vm=%s pool=%s standing room given back", vm, pool);
	pools_room_changed(t->pools, pool);
	standing_soon(t, false);	/* there is room for others */
}

static bool list_run(struct job *j, struct tp_error *err)
{
	j->out = pool_standing_list(j->pool, err);
	return j->out != NULL;
}

/*
 * Whose spec cannot be read may want it. A VM may be hibernated and have standing room besides: its restore
 * was paused for long, and QEMU ended before the guest ran.
 */
static bool is_wanted(struct torpor *t, const char *name, const char *pool)
{
	const struct vm *vm = vm_find(t, name);

	if (!vm || vm->gone)
		return false;
	return vm->spec_damaged || vm->op || (standing_wanted(vm, pool) && !saved_in(vm, pool));
}

static void list_done(struct job *j, const struct tp_error *err, void *arg)
{
	struct torpor *t = arg;
	const char *pool = tp_json_str(j->in, "pool"), *name;
	struct engine_pool *p = err ? NULL : pools_need(t->pools, pool, NULL);
	json_t *bytes;

	json_object_foreach(p ? j->out : NULL, name, bytes) {
		if (is_wanted(t, name, pool))
			continue;
		if (!pool_job(p, drop_run, json_pack("{s:s, s:s}", "vm", name, "pool", pool), drop_done, t, NULL))
			tp_warn("vm=%s pool=%s its standing room is given back later", name, pool);
	}
}

static void sweep(struct torpor *t)
{
	tp_autojson json_t *pools = pools_describe(t->pools);
	size_t i;
	json_t *pool;

	json_array_foreach(pools, i, pool) {
		struct engine_pool *p = pools_need(t->pools, tp_json_str(pool, "name"), NULL);

		if (p && engine_pool_ready(p))
			pool_job(p, list_run, json_pack("{s:s}", "pool", engine_pool_name(p)), list_done, t, NULL);
	}
}

/* --- when --- */

static void soon_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct standing_watch *watch = w->data;

	(void)loop, (void)events;
	if (watch->t->closing)
		return;
	for (struct vm *vm = watch->t->vms; vm; vm = vm->next)
		check(vm);
	if (watch->pools)
		sweep(watch->t);
	watch->pools = false;
}

static void later_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct standing_watch *watch = w->data;

	(void)loop, (void)events;
	standing_soon(watch->t, true);
}

static void standing_later(struct torpor *t)
{
	struct standing_watch *w = t->standing;

	if (!w || t->closing || ev_is_active(&w->later))
		return;
	ev_timer_set(&w->later, LATER, 0.);
	ev_timer_start(t->loop, &w->later);
}

struct standing_watch *standing_new(struct torpor *t)
{
	struct standing_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->t = t;
	ev_timer_init(&w->soon, soon_cb, SOON, 0.);
	ev_timer_init(&w->later, later_cb, LATER, 0.);
	w->soon.data = w->later.data = w;
	return w;
}

void standing_free(struct standing_watch *w)
{
	if (w) {
		ev_timer_stop(w->t->loop, &w->soon);
		ev_timer_stop(w->t->loop, &w->later);
	}
	free(w);
}

void standing_soon(struct torpor *t, bool pools)
{
	struct standing_watch *w = t->standing;

	if (!w || t->closing)
		return;
	w->pools |= pools;
	if (ev_is_active(&w->soon))
		return;
	ev_timer_set(&w->soon, SOON, 0.);
	ev_timer_start(t->loop, &w->soon);
}

void standing_forget(struct vm *vm)
{
	free(vm->standing);
	vm->standing = NULL;
}

/* --- QEMU's memory --- */

static void ram_known(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct vm *vm = arg;
	uint64_t ram;
	unsigned blocks;

	(void)qemu_error;
	if (vm->standing)
		vm->standing->asking = false;
	if (err || !room_ramblocks(json_string_value(reply), &ram, &blocks))
		return;
	room_ram_is(vm, ram, blocks);
}

void standing_ask(struct vm *vm)
{
	struct standing *s = wanted(vm) ? standing_of(vm) : NULL;

	if (!s || s->asking || !vm->qemu || !vm->qemu->qmp)
		return;
	s->asking = qmp_client_send(vm->qemu->qmp, QMP_HUMAN_MONITOR, json_pack("{s:s}", "command-line", "info ramblock"),
				    NULL, 0, ram_known, vm, NULL) != 0;
}

void standing_ask_all(struct torpor *t)
{
	for (struct vm *vm = t->vms; vm; vm = vm->next)
		standing_ask(vm);
}
