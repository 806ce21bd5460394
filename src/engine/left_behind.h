/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * left_behind.h - Images that were moved while the pool they came from could not be reached
 *
 * host.json has the list, "left-behind": [{"image", "pool"}], written before the copy in the other
 * pool becomes the image. So what such a pool has when it returns is known not to be the image: it is
 * never offered and removed.
 */
#ifndef LEFT_BEHIND_H
#define LEFT_BEHIND_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"
#include "engine/op.h"

struct torpor;

bool left_behind_load(struct torpor *t, struct tp_error *err);	/* at start, before the pools */
bool left_behind(const struct torpor *t, const char *pool, const char *image);
/* Known at once; the job puts it into host.json. NULL: no memory. */
struct op_job *left_behind_add(struct torpor *t, const char *pool, const char *image);
/* A pool was looked at and has these images (by id): what it does not have is done with. */
void left_behind_seen(struct torpor *t, const char *pool, const json_t *images);
void left_behind_removed(struct torpor *t, const char *pool, const char *image);

#endif
