/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* engine_test.h - A real engine with two pools, "a" and "b", and no QEMU, for the tests of pools */
#ifndef ENGINE_TEST_H
#define ENGINE_TEST_H

#include "../storage/pool_test.h"

#include <ev.h>

#include "engine/engine.h"
#include "engine/io_worker.h"
#include "engine/restorable.h"
#include "engine/vm_image.h"

#define UID "7b0c1e52-16d5-4e0e-9d0c-2b8d9a5a5f10"	/* as in manifest_for() */

struct engine_test {
	char *dir;
	struct ev_loop *loop;
	struct torpor *t;
};

static inline void engine_open(struct engine_test *e)
{
	const char *dir = e->dir;
	char text[TORPOR_ERROR_SIZE], state[96], run[96], a[96], b[96];
	struct torpor_pool pools[] = { { .name = "a", .path = a }, { .name = "b", .path = b } };
	struct torpor_options o = { .size = sizeof(o), .state_dir = state, .runtime_dir = run,
				    .mover_path = "/bin/true", .pools = pools, .npools = 2 };

	snprintf(state, sizeof(state), "%s/state", dir);
	snprintf(run, sizeof(run), "%s/run", dir);
	snprintf(a, sizeof(a), "%s/a", dir);
	snprintf(b, sizeof(b), "%s/b", dir);
	e->t = torpor_new(e->loop, &o, text);
	if (!e->t)
		fail_msg("%s", text);
}

static inline int engine_setup(void **state)
{
	struct engine_test *e = calloc(1, sizeof(*e));
	void *dir;

	if (!e || make_folder(&dir) != 0)
		return -1;
	e->dir = dir;
	e->loop = ev_loop_new(0);
	engine_open(e);
	*state = e;
	return 0;
}

static inline int engine_teardown(void **state)
{
	struct engine_test *e = *state;
	void *dir = e->dir;

	torpor_free(e->t);
	ev_loop_destroy(e->loop);
	free(e);
	return drop_folder(&dir);
}

static inline struct engine_pool *engine_pool_at(struct engine_test *e, const char *name)
{
	struct engine_pool *p = pools_find(e->t->pools, name);

	assert_non_null(p);
	return p;
}

static inline bool engine_works(struct engine_test *e)
{
	for (struct engine_pool *p = pools_each(e->t->pools, NULL); p; p = pools_each(e->t->pools, p))
		if (io_worker_pending(engine_pool_worker(p)))
			return true;
	return io_worker_pending(e->t->worker) || io_worker_pending(e->t->disks);
}

/* Until nothing is on its way; what follows a moment later (standing.c) is not. */
static inline void engine_pump(struct engine_test *e)
{
	while (engine_works(e))
		ev_run(e->loop, EVRUN_ONCE);
}

static inline void engine_look(struct engine_test *e)
{
	pools_recheck(e->t->pools);
	engine_pump(e);
}

/* A VM of no QEMU; hibernated with the image in the pool, unless pool is NULL. */
static inline struct vm *engine_vm(struct engine_test *e, const char *name, const char *id, const char *pool)
{
	struct vm *vm = vm_create(e->t, name, UID, NULL);

	assert_non_null(vm);
	vm->generation = 1;
	json_decref(vm->spec);
	vm->spec = json_pack("{s:{s:s, s:[]}}", "launch", "binary", "/bin/true", "args");
	if (pool) {
		vm_rest_set(vm, "image", json_pack("{s:s, s:s}", "id", id, "pool", pool));
		vm_rest_text(vm, "hibernated", "api");
	}
	vm_refresh(vm);
	return vm;
}

static inline void engine_image(struct engine_test *e, const char *pool, const char *id)
{
	put_image(engine_pool_storage(engine_pool_at(e, pool)), VM, id);
}

#endif
