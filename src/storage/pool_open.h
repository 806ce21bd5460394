/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_open.h - Opening a pool, with all that may be said about it
 *
 * pool_open() of pool.h is POOL_MAKE_ALL or POOL_FIND without neighbours.
 */
#ifndef POOL_OPEN_H
#define POOL_OPEN_H

#include <stdint.h>

#include "pool.h"
#include "pool_place.h"

enum pool_opening_mode {
	POOL_FIND,	/* the folder must be there */
	POOL_KNOWN,	/* and be a pool already: a bare mount point is none */
	POOL_MAKE,	/* made if need be, the folder above it must be there */
	POOL_MAKE_ALL,	/* the folders above it are made as well */
};

struct pool_opening {
	const char *name, *path, *instance;
	uint64_t quota;			/* bytes; 0: none */
	enum pool_opening_mode mode;
	const struct pool_neighbour *others;	/* what it must not meet */
	size_t n_others;
};

/* As pool_open, and the errors of pool_place_free. On failure nothing is left that was made. */
struct pool *pool_open_as(const struct pool_opening *how, struct tp_error *err);
/* Closes a pool that is not to be one after all: takes back the folder and owner file that were made. */
void pool_unmake(struct pool *p);
/* Where it is now; not for a pool that another thread may regain. */
bool pool_where(const struct pool *p, struct pool_place *place, struct tp_error *err);
void pool_set_quota(struct pool *p, uint64_t quota);

#endif
