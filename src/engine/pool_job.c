/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool_job.c - File work in a pool for what is no step of an operation */
#include "engine/pool_job.h"

#include <stdlib.h>

#include "engine/io_worker.h"

struct pool_job {
	struct engine_pool *p;
	struct job *job;
	void (*done)(struct job *j, const struct tp_error *err, void *arg);
	void *arg;
};

static bool run(void *arg, struct tp_error *err)
{
	struct pool_job *pj = arg;

	return pj->job->fn(pj->job, err);
}

static void drop(struct pool_job *pj)
{
	if (pj->job) {
		json_decref(pj->job->base.error_data);
		pj->job->base.free(&pj->job->base);
	}
	free(pj);
}

static void ended(void *arg, const struct tp_error *err)
{
	struct pool_job *pj = arg;

	if (err)
		engine_pool_doubt(pj->p, err);
	pj->done(pj->job, err, pj->arg);
	drop(pj);
}

bool pool_job(struct engine_pool *p, bool (*fn)(struct job *j, struct tp_error *err), json_t *in_owned,
	      void (*done)(struct job *j, const struct tp_error *err, void *arg), void *arg,
	      struct tp_error *err)
{
	struct pool_job *pj = calloc(1, sizeof(*pj));

	if (!pj) {
		json_decref(in_owned);
		return tp_fail_nomem(err);
	}
	pj->p = p;
	pj->done = done;
	pj->arg = arg;
	pj->job = job_new(fn, in_owned, p, err);
	if (pj->job && io_worker_submit(engine_pool_worker(p), run, ended, pj, err))
		return true;
	drop(pj);
	return false;
}
