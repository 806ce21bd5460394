/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_place.h - Where a folder is, and how two folders lie to each other
 *
 * Folders are compared by device and inode on their way up to the root: neither "..", a trailing
 * slash, a symbolic link in the middle nor a bind mount makes two of one.
 */
#ifndef POOL_PLACE_H
#define POOL_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/tp_error.h"

#define POOL_DEPTH_MAX 64

/* A folder, then each folder above it, the root last. n 0: not known. */
struct pool_place {
	size_t n;
	struct {
		dev_t dev;
		ino_t ino;
	} at[POOL_DEPTH_MAX];
};

enum pool_nesting { POOL_APART, POOL_SAME, POOL_INSIDE, POOL_AROUND };

/* A folder that belongs to somebody. */
struct pool_neighbour {
	char what[96];			/* 'pool "a"', "the state directory" */
	struct pool_place place;
	bool lodges;			/* a pool may be inside it */
	bool pool;
};

/*
 * Whether the absolute path can be a pool's: GenericError for control characters, which messages and
 * lists could not show, and for names that no file system has.
 */
bool pool_path_ok(const char *path, struct tp_error *err);
/* ELIMIT where it is too deep. */
bool pool_place_of(int dirfd, struct pool_place *place, struct tp_error *err);
/* Of a to b; pure. */
enum pool_nesting pool_nesting(const struct pool_place *a, const struct pool_place *b);
/*
 * Whether the pool at path may be there beside its n neighbours: Exists where it is one of theirs,
 * GenericError where it is inside or around one.
 */
bool pool_place_free(const char *path, const struct pool_place *place, const struct pool_neighbour *others,
		     size_t n, struct tp_error *err);
/* Fails (GenericError) where a folder above dirfd has an owner file: it would be inside a pool. */
bool pool_place_no_pool_above(int dirfd, const char *path, struct tp_error *err);

#endif
