/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_jobs.h - The data jobs of torpor-mover: each runs in the sandbox and ends the process */
#ifndef MOVER_JOBS_H
#define MOVER_JOBS_H

#include <stdbool.h>

#include "mover_control.h"
#include "mover_request.h"
#include "storage/image_read.h"

#define MOVER_THREADS_MAX 64

/* What a job answers and takes is in migration/mover_proto.h. */
void job_save(const struct mover_request *r, struct control *c) __attribute__((noreturn));
void job_load(const struct mover_request *r, struct control *c) __attribute__((noreturn));
void job_verify(const struct mover_request *r, struct control *c) __attribute__((noreturn));
void job_copy(const struct mover_request *r, struct control *c) __attribute__((noreturn));
void job_page_server(const struct mover_request *r, struct control *c) __attribute__((noreturn));

/* For the jobs: the usual ends, and waiting at most so long until all that was posted is sent. */
void job_fail(struct control *c, const struct tp_error *e) __attribute__((noreturn));
void job_done(struct control *c, json_t *value_owned) __attribute__((noreturn));
void job_settle(struct control *c, int milliseconds);
/* [{"id", "bytes"}] of RAM blocks: as many as fit in a message. No real machine has more, a hostile image may. */
json_t *job_blocks(const struct image_block *blocks, unsigned n);
/* "threads": 0 or absent gives as many as there are CPUs. */
bool job_threads(const struct mover_request *r, unsigned *threads, struct tp_error *err);

#endif
