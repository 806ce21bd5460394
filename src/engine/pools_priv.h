/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pools_priv.h - What the files of the engine's pools share; included by pools*.c only */
#ifndef ENGINE_POOLS_PRIV_H
#define ENGINE_POOLS_PRIV_H

#include "base/tp_fs.h"
#include "engine/pools.h"

struct engine_pool {
	struct engine_pool *next;
	struct pools *ps;
	char name[TP_NAME_MAX + 1];
	char *path;
	uint64_t quota;
	struct pool *storage;		/* NULL: missing */
	struct io_worker *worker;
	struct tp_error why;		/* why it is missing */
	json_t *images;			/* id -> entry */
	struct pool_space space;	/* the last look */
	bool looking;
};

struct pools {
	struct torpor *t;
	struct engine_pool *first;
};

/* Has the pool's worker look at it again; what it finds is taken over on the loop. */
void pools_look(struct engine_pool *p);
/* The kept list becomes these entries (pool_catalogue). */
void pools_images_keep(struct engine_pool *p, const json_t *entries);

#endif
