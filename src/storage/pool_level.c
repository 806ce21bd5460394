/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool_level.c - How full a pool is: ok, low, full */
#include "pool_level.h"

#include <stdbool.h>

#define LOW_WATER_SHARE 20	/* one of so many: 5 % */

static uint64_t less(uint64_t from, uint64_t what)
{
	return what < from ? from - what : 0;
}

uint64_t pool_left(const struct pool_space *space)
{
	uint64_t room = less(space->available, space->promised), quota;

	if (!space->quota)
		return room;
	quota = less(less(less(space->quota, space->used), space->standing), space->reserved);
	return quota < room ? quota : room;
}

uint64_t pool_low_water(const struct pool_space *space, uint64_t low_water)
{
	uint64_t size = space->quota && space->quota < space->total ? space->quota : space->total;

	return low_water == POOL_LOW_WATER_AUTO ? size / LOW_WATER_SHARE : low_water;
}

/* A threshold that is in force already ends a quarter above. */
static bool below(uint64_t left, uint64_t threshold, bool in_force)
{
	return left < threshold || (in_force && left - threshold < threshold / 4);
}

enum pool_level pool_level(const struct pool_space *space, uint64_t low_water, enum pool_level before)
{
	uint64_t left = pool_left(space);

	if (below(left, POOL_FULL_BELOW, before == POOL_FULL))
		return POOL_FULL;
	return below(left, pool_low_water(space, low_water), before != POOL_OK) ? POOL_LOW : POOL_OK;
}

const char *pool_level_name(enum pool_level level)
{
	static const char *const names[] = { [POOL_OK] = "ok", [POOL_LOW] = "low", [POOL_FULL] = "full" };

	return names[level];
}
