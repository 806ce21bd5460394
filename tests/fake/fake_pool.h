/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_pool.h - An image's folder in a pool for tests that ask for room, but for no quota of the VM */
#ifndef FAKE_POOL_H
#define FAKE_POOL_H

#include "storage/pool.h"

static inline int fake_pool_image(struct pool *p, const char *vm, const char *id, const char *mode,
				  uint64_t bytes, struct tp_error *err)
{
	struct pool_demand d = { .vm = vm, .bytes = bytes };

	return pool_image_create(p, &d, id, mode, NULL, NULL, err);
}

#endif
