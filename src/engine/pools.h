/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pools.h - The engine's pools: one io_worker each, what is reserved in them, what they hold
 *
 * A pool comes from the configuration or from pool-define (kept in host.json). It is looked at by its
 * worker, at the start, once a minute and after each change; what was found is kept: queries answer
 * from it without touching the disk. A pool that is not there, or whose worker hangs in it, is
 * "missing", is tried again by itself and keeps nothing else waiting.
 */
#ifndef ENGINE_POOLS_H
#define ENGINE_POOLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "storage/pool.h"

struct api_call;
struct pools;
struct engine_pool;
struct torpor;
struct vm;

struct pools *pools_new(struct torpor *t);
void pools_free(struct pools *ps);
/*
 * A pool of the configuration. Opened within seconds (blocks; start-up) or later by itself: one that
 * cannot be opened is kept as missing, with why.
 */
bool pools_add(struct pools *ps, const char *name, const char *path, uint64_t quota, struct tp_error *err);
/* Those of pool-define, from host.json; likewise. */
bool pools_load(struct pools *ps, struct tp_error *err);
struct engine_pool *pools_find(struct pools *ps, const char *name);
/* Work in it failed: where that may be the pool's own end, it is looked at now, not at its next turn. */
void engine_pool_doubt(struct engine_pool *p, const struct tp_error *err);
/* NotFound, or IOError naming why the pool is missing. */
struct engine_pool *pools_need(struct pools *ps, const char *name, struct tp_error *err);
/* Looks at all again, now. */
void pools_recheck(struct pools *ps);
/* An operation with these resources (op_res) has ended: the room in its pools is looked at. */
void pools_op_ended(struct pools *ps, const json_t *res);
void pools_room_changed(struct pools *ps, const char *pool);	/* likewise; pool may be NULL */

const char *engine_pool_name(const struct engine_pool *p);
struct pool *engine_pool_storage(const struct engine_pool *p);	/* for jobs on its worker; NULL: missing */
struct io_worker *engine_pool_worker(const struct engine_pool *p);
/* Open, there at the last look, and its worker does not hang. */
bool engine_pool_ready(const struct engine_pool *p);
const char *engine_pool_state(const struct engine_pool *p);	/* "ok", "low", "full", "missing", "read-only" */
/* Why it is missing, into text; else "". */
const char *engine_pool_message(const struct engine_pool *p, char text[TP_TEXT_SIZE]);
/* VMs are loaded: removes images that were never finished and that no operation of a VM works with. */
void pools_sweep(struct pools *ps);

json_t *pools_images(struct pools *ps);			/* new array for query-images, of all pools, by id */
/*
 * Entry {id, vm, state, manifest, bytes} as pool_catalogue gives it; borrowed. pool may be NULL. Of two
 * pools that have it the one that the durable rest of a VM names. A copy that a move is making or could
 * not remove is not the image: pools_copy finds it.
 */
const json_t *pools_image(struct pools *ps, const char *id, struct engine_pool **pool);
const json_t *pools_copy(struct pools *ps, const char *id, struct engine_pool **pool);
/* The same in that pool alone, which may be NULL. */
const json_t *pools_image_at(struct pools *ps, const char *pool, const char *id);
/* One that is there and has it, but not this one (NULL: any). */
struct engine_pool *pools_image_elsewhere(struct pools *ps, const char *id, const char *pool);
/*
 * The VM's own image was moved by hand: the pool of its durable rest is there and lacks it, another one has
 * it. err (may be NULL): NotFound, which names both and says what to do.
 */
bool pools_image_astray(struct pools *ps, const struct vm *vm, struct tp_error *err);
const json_t *engine_pool_images(const struct engine_pool *p);	/* all entries, by id */
struct engine_pool *pools_each(struct pools *ps, struct engine_pool *after);	/* NULL: the first */
/* The kept list follows; the disk was changed by a job that succeeded. */
void pools_image_drop(struct pools *ps, const char *pool, const char *id);
/* The same, telling why (the IMAGE event's reason; NULL: on request). */
void pools_image_gone(struct pools *ps, const char *pool, const char *id, const char *reason);
void pools_image_verified(struct pools *ps, const char *pool, const char *id, json_t *outcome);	/* of pool_verified_write */
void pools_copy_seen(struct pools *ps, const char *pool, const char *vm, const char *id, json_t *moving);
/* entry: of the other pool's catalogue, or NULL (at recovery: read again). */
void pools_image_moved(struct pools *ps, const char *id, const char *from, const char *to, json_t *entry);
void pools_image_state(struct pools *ps, const char *pool, const char *id, const char *state);
/* A new image: known at once by its manifest, or (NULL: at recovery) read again by the worker. */
void pools_image_sealed(struct pools *ps, const char *pool, const char *vm, const char *id,
			json_t *manifest);
json_t *pools_describe(struct pools *ps);		/* query-pools, from the last look */

/* pool-define and pool-undefine, of arguments that were checked; they answer the call. */
void pools_define(struct pools *ps, struct api_call *call);
void pools_undefine(struct pools *ps, struct api_call *call);

#endif
