/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * capacity.c - query-capacity: what saving a VM may need, what it will likely need, where there is room
 *
 * Theory of operation. First the running QEMU is asked for its memory, then each pool by its worker; both
 * at once with their likes, and both for so long only: a QEMU or a pool that does not answer leaves its
 * figures out, and the answer says so. The object lives until the last of those asked has come back,
 * whether the call was answered by then or not.
 *
 * Expected is, by what is known: the largest of this VM's last images, for its memory now; else what
 * the balloon leaves the guest, uncompressed; else the worst case.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_size.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/pool_job.h"
#include "engine/restore.h"
#include "engine/room.h"
#include "engine/spec.h"
#include "engine/standing.h"
#include "engine/uffd.h"
#include "engine/verbs.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"

#define QEMU_LIMIT 2.0		/* seconds for QEMU's answers */
#define LIMIT 6.0		/* seconds for all */

struct capacity {
	struct sync_call *call;		/* NULL: answered */
	unsigned asked;			/* answers that are due */
	bool silent;			/* QEMU */
	uint64_t guest, balloon;	/* bytes: the guest's memory, what its balloon leaves; 0: not known */
	struct room_size size;
	json_t *pools;			/* by name, in order */
};

static void release(struct capacity *c)
{
	if (c->asked || c->call)
		return;
	json_decref(c->pools);
	free(c);
}

/* --- the answer --- */

/* By the rights of QEMU, of which all else is the image's or QEMU's own matter. */
static json_t *lazy_of(const struct vm *vm)
{
	char why[TP_TEXT_SIZE];
	bool possible = uffd_way(vm, why) != UFFD_NONE;

	return json_pack("{s:b, s:s}", "possible", possible, "why", why);
}

static json_t *restore_of(struct vm *vm)
{
	tp_autojson json_t *conditions = vm_conditions(vm);
	json_t *condition, *restorable = NULL;
	const json_t *entry = pools_image(vm->t->pools, vm_image_id(vm), NULL);
	struct restore_choice choice;
	size_t i;

	json_array_foreach(conditions, i, condition)
		if (strcmp(tp_json_str(condition, "type"), "Restorable") == 0)
			restorable = condition;
	if (strcmp(tp_json_str(restorable, "status"), "True") != 0)
		return json_pack("{s:n, s:O, s:o}", "mode", "why", json_object_get(restorable, "message"), "lazy",
				 lazy_of(vm));
	restore_choice(vm, json_object_get(entry, "manifest"), NULL, &choice);
	return json_pack("{s:s, s:s, s:o}", "mode", choice.lazy ? "lazy" : "eager", "why", choice.why, "lazy",
			 lazy_of(vm));
}

/* bytes for `then` of memory, for what it has now. */
static uint64_t scaled(uint64_t bytes, uint64_t then, uint64_t now)
{
	return then ? (uint64_t)((double)bytes * (double)now / (double)then) : 0;
}

/* The largest of its last images; 0: there was none. */
static uint64_t by_history(const struct vm *vm, uint64_t ram)
{
	tp_autojson json_t *images = pools_images(vm->t->pools);
	const json_t *saved = json_object_get(vm->rest, "saved");
	uint64_t most = scaled((uint64_t)tp_json_int(saved, "bytes", 0), (uint64_t)tp_json_int(saved, "ram", 0), ram);
	size_t i;
	json_t *image;

	json_array_foreach(images, i, image) {
		const json_t *entry = pools_image(vm->t->pools, tp_json_str(image, "id"), NULL);
		uint64_t then = (uint64_t)tp_json_int(tp_json_path(entry, "manifest.ram"), "bytes", 0), bytes;

		if (strcmp(tp_json_str(image, "vm"), vm->name) != 0)
			continue;
		bytes = scaled((uint64_t)tp_json_int(image, "bytes", 0), then, ram);
		most = bytes > most ? bytes : most;
	}
	return most;
}

static uint64_t expected(const struct capacity *c, const struct vm *vm, const char **basis)
{
	uint64_t bytes = by_history(vm, c->size.ram), left = c->balloon < c->guest ? c->guest - c->balloon : 0;

	if (bytes && bytes < c->size.bound) {
		*basis = "history";
		return bytes;
	}
	if (c->guest) {
		*basis = "memory";
		return c->balloon && left < c->size.bound ? c->size.bound - left : c->size.bound;
	}
	*basis = "worst-case";
	return c->size.bound;
}

static json_t *message_of(const struct capacity *c, const struct vm *vm)
{
	char margin[TP_SIZE_TEXT];

	if (c->silent)
		return json_sprintf("QEMU of VM %s does not answer: %s", vm->name, c->size.exact ?
				    "its memory is as it last said" : "its memory is as its spec says");
	if (c->size.exact)
		return NULL;
	return json_sprintf("its memory is as its spec says, with %s for video memory, ROMs and firmware",
			    tp_size_format(ROOM_MARGIN, margin));
}

static json_t *pool_list(const struct capacity *c)
{
	json_t *list = json_array(), *pool;
	const char *name;

	json_object_foreach(c->pools, name, pool)
		json_array_append(list, pool);
	return list;
}

static void answer(struct capacity *c)
{
	struct sync_call *s = TP_STEAL(c->call);
	struct vm *vm = sync_vm(s);
	struct tp_error err = TP_ERROR_INIT;
	const char *basis;
	uint64_t bytes;
	json_t *out;

	if (!vm) {
		tp_fail_class(&err, TP_ESTATE, "NotFound", "VM %s was undefined meanwhile", s->vm);
		sync_error(s, &err, NULL);
		return;
	}
	bytes = expected(c, vm, &basis);
	out = json_pack("{s:s, s:I, s:b, s:I, s:s, s:o, s:o}", "name", vm->name, "worst-case",
			(json_int_t)c->size.bound, "exact", c->size.exact, "expected", (json_int_t)bytes, "basis", basis,
			"pools", pool_list(c), "restore", restore_of(vm));
	if (standing_wanted(vm, room_pool(vm)))
		tp_json_set(out, "standing", json_integer((json_int_t)standing_held(vm)));
	tp_json_set(out, "message", message_of(c, vm));
	sync_reply(s, out);
}

/* Whoever was asked has come back. */
static bool came_back(struct capacity *c)
{
	return --c->asked == 0 && c->call;
}

/* --- pools --- */

static uint64_t left_of(uint64_t quota, uint64_t taken, uint64_t have)
{
	return (taken < quota ? quota - taken : 0) + have;
}

/* What either quota leaves this VM; its standing room is in what is taken. */
static void set_quota_left(struct job *j, const struct pool_space *space, const struct pool_demand *d, uint64_t have)
{
	uint64_t left = UINT64_MAX, of_vm;

	if (space->quota)
		left = left_of(space->quota, space->used + space->standing + space->reserved, have);
	if (d->quota) {
		of_vm = left_of(d->quota, d->elsewhere + pool_used_by_vm(j->pool, d->vm), have);
		left = of_vm < left ? of_vm : left;
	}
	if (left != UINT64_MAX)
		tp_json_set(j->out, "quota-left", json_integer((json_int_t)left));
}

static bool look_run(struct job *j, struct tp_error *err)
{
	struct pool_demand d = room_demand_of(j->in);
	struct tp_error why = TP_ERROR_INIT;
	uint64_t have = pool_standing(j->pool, d.vm), left;
	struct pool_space space;
	bool admitted;

	if (!pool_space(j->pool, &space, err))
		return false;
	if (strcmp(tp_json_str(j->in, "reserve"), "none") == 0)
		admitted = pool_writable(j->pool, &why);
	else
		admitted = pool_room(j->pool, &d, NULL, &why);
	left = (space.promised < space.available ? space.available - space.promised : 0) + have;
	j->out = json_pack("{s:s, s:I, s:b, s:b, s:s*}", "pool", tp_json_str(j->in, "pool"), "available", (json_int_t)left,
			   "admitted", admitted, "guaranteed", space.guaranteed, "why-not", admitted ? NULL : why.text);
	set_quota_left(j, &space, &d, have);
	return true;
}

static json_t *unknown_pool(const char *pool, const char *why)
{
	return json_pack("{s:s, s:n, s:b, s:b, s:s}", "pool", pool, "available", "admitted", 0, "guaranteed", 0,
			 "why-not", why);
}

static void look_done(struct job *j, const struct tp_error *err, void *arg)
{
	struct capacity *c = arg;
	const char *pool = tp_json_str(j->in, "pool");

	tp_json_set(c->pools, pool, err ? unknown_pool(pool, err->text) : json_incref(j->out));
	if (came_back(c))
		answer(c);
	release(c);
}

static void ask_pool(struct capacity *c, struct vm *vm, const char *pool)
{
	tp_autojson json_t *reserve = spec_get(vm->spec, "hibernate.reserve");
	struct tp_error err = TP_ERROR_INIT;
	struct engine_pool *p = pools_need(vm->t->pools, pool, &err);
	json_t *in;

	tp_json_set(c->pools, pool, unknown_pool(pool, p ? "it does not answer" : err.text));
	if (!p)
		return;
	in = room_demand(vm, pool, c->size.bound);
	tp_json_set_str(in, "pool", pool);
	tp_json_set(in, "reserve", json_incref(reserve));
	if (pool_job(p, look_run, in, look_done, c, &err))
		c->asked++;
}

static void ask_pools(struct capacity *c)
{
	struct vm *vm = sync_vm(c->call);
	tp_autojson json_t *pools = pools_describe(c->call->t->pools);
	struct tp_error err = TP_ERROR_INIT;
	size_t i;
	json_t *pool;

	if (!vm) {
		answer(c);
		return;
	}
	if (!room_size(vm, &c->size)) {
		tp_fail_class(&err, TP_ELIMIT, "Unsupported", "VM %s has more memory than can be counted", vm->name);
		sync_error(TP_STEAL(c->call), &err, NULL);
		return;
	}
	json_array_foreach(pools, i, pool)
		ask_pool(c, vm, tp_json_str(pool, "name"));
	if (!c->asked)
		answer(c);
}

/* --- QEMU --- */

static void qemu_answered(struct capacity *c, const struct tp_error *err)
{
	/* What QEMU refuses it does not have: no balloon. */
	c->silent |= err && err->code != TP_EQMP;
	if (came_back(c))
		ask_pools(c);
	release(c);
}

static void ram_known(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct capacity *c = arg;
	struct vm *vm = c->call ? sync_vm(c->call) : NULL;
	uint64_t ram;
	unsigned blocks;

	(void)qemu_error;
	if (!err && vm && room_ramblocks(json_string_value(reply), &ram, &blocks))
		room_ram_is(vm, ram, blocks);
	qemu_answered(c, err);
}

static void guest_known(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct capacity *c = arg;

	(void)qemu_error;
	if (!err)
		c->guest = (uint64_t)(tp_json_int(reply, "base-memory", 0) + tp_json_int(reply, "plugged-memory", 0));
	qemu_answered(c, err);
}

static void balloon_known(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct capacity *c = arg;

	(void)qemu_error;
	if (!err)
		c->balloon = (uint64_t)tp_json_int(reply, "actual", 0);
	qemu_answered(c, err);
}

static void ask_qemu(struct capacity *c, struct qmp_client *qmp)
{
	static const struct { enum qmp_cmd cmd; qmp_reply_fn fn; } questions[] = {
		{ QMP_HUMAN_MONITOR, ram_known }, { QMP_QUERY_MEMORY_SIZE_SUMMARY, guest_known },
		{ QMP_QUERY_BALLOON, balloon_known },
	};

	for (size_t i = 0; i < TP_N(questions); i++) {
		json_t *args = i == 0 ? json_pack("{s:s}", "command-line", "info ramblock") : NULL;

		if (qmp_client_send(qmp, questions[i].cmd, args, NULL, QEMU_LIMIT, questions[i].fn, c, NULL))
			c->asked++;
	}
}

/* --- the command --- */

static void late(struct sync_call *s)
{
	struct capacity *c = s->arg;

	/* QEMU_LIMIT is over: its size is known, and only pools hang. */
	answer(c);
	release(c);
}

void api_query_capacity(struct api_call *call)
{
	struct vm *vm = verb_vm(call);
	struct tp_error err = TP_ERROR_INIT;
	struct capacity *c = vm ? calloc(1, sizeof(*c)) : NULL;

	if (!vm)
		return;
	if (c)
		c->pools = json_object();
	if (!c || !c->pools) {
		free(c);
		tp_fail_nomem(&err);
		api_error(call, &err, NULL);
		return;
	}
	c->call = sync_new(call, vm);
	if (c->call) {
		c->call->arg = c;
		sync_after(c->call, LIMIT, late);
		if (vm->qemu && vm->qemu->qmp)
			ask_qemu(c, vm->qemu->qmp);
		c->silent = vm->qemu && !c->asked;
		if (!c->asked)
			ask_pools(c);
	}
	release(c);
}
