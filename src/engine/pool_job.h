/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool_job.h - File work in a pool for what is no step of an operation */
#ifndef POOL_JOB_H
#define POOL_JOB_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/pools.h"
#include "engine/steps.h"

/*
 * Runs fn on the pool's worker, then done on the loop with the job (its `out`, freed after it) and
 * fn's error or NULL. `in` is taken. False: not submitted, done is not called.
 */
bool pool_job(struct engine_pool *p, bool (*fn)(struct job *j, struct tp_error *err), json_t *in_owned,
	      void (*done)(struct job *j, const struct tp_error *err, void *arg), void *arg,
	      struct tp_error *err);

#endif
