/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pools.h - The engine's pools: one io_worker each, what is reserved in them, what they hold
 *
 * The catalogue (list of images) is read by the pool's worker at start and after each change, and
 * kept: queries answer from it without touching the disk.
 */
#ifndef ENGINE_POOLS_H
#define ENGINE_POOLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "storage/pool.h"

struct pools;
struct engine_pool;
struct torpor;

struct pools *pools_new(struct torpor *t);
void pools_free(struct pools *ps);
/* Opens at once (blocks; start-up). A pool that cannot be opened is kept as missing, with why. */
bool pools_add(struct pools *ps, const char *name, const char *path, uint64_t quota, struct tp_error *err);
struct engine_pool *pools_find(struct pools *ps, const char *name);
/* NotFound, or IOError naming why the pool is missing. */
struct engine_pool *pools_need(struct pools *ps, const char *name, struct tp_error *err);
/* Tries again to open pools that are missing. */
void pools_recheck(struct pools *ps);

const char *engine_pool_name(const struct engine_pool *p);
struct pool *engine_pool_storage(const struct engine_pool *p);	/* for jobs on its worker; NULL: missing */
struct io_worker *engine_pool_worker(const struct engine_pool *p);
/* Removes images that were never finished and that no operation of a VM works with. */
void pools_sweep(struct pools *ps);

json_t *pools_images(struct pools *ps);			/* new array for query-images, of all pools, by id */
/* Entry {id, vm, state, manifest, bytes} as pool_catalogue gives it; borrowed. pool may be NULL. */
const json_t *pools_image(struct pools *ps, const char *id, struct engine_pool **pool);
/* The kept list follows; the disk was changed by a job that succeeded. p NULL: look for it. */
void pools_image_drop(struct pools *ps, struct engine_pool *p, const char *id);
void pools_image_state(struct pools *ps, const char *id, const char *state);
/* A new image: known at once by its manifest, or (NULL: at recovery) read again by the worker. */
void pools_image_sealed(struct pools *ps, const char *pool, const char *vm, const char *id,
			json_t *manifest);
json_t *pools_describe(struct pools *ps);		/* query-pools, from the last look */

#endif
