/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_level.h - How full a pool is: ok, low, full
 *
 * Hysteresis keeps a pool at the border from changing its level with each image: a level is entered
 * below its threshold and left at 1.25 times of it. Pure.
 */
#ifndef POOL_LEVEL_H
#define POOL_LEVEL_H

#include <stdint.h>

#include "storage/pool.h"

/* Not even the image of an empty guest fits. */
#define POOL_FULL_BELOW (1u << 20)	/* bytes */
#define POOL_LOW_WATER_AUTO UINT64_MAX

enum pool_level { POOL_OK, POOL_LOW, POOL_FULL };

/* What is left for images, in bytes: of the file system and of the quota, less what is promised. */
uint64_t pool_left(const struct pool_space *space);
/* Bytes; POOL_LOW_WATER_AUTO is 5 % of the quota, or of the file system where that is smaller. */
uint64_t pool_low_water(const struct pool_space *space, uint64_t low_water);
/* low_water 0: never low. before: what it was at the last look. */
enum pool_level pool_level(const struct pool_space *space, uint64_t low_water, enum pool_level before);
const char *pool_level_name(enum pool_level level);	/* "ok", "low", "full" */

#endif
