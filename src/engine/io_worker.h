/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * io_worker.h - One thread for file work that may stall (fsync, fallocate, unlink, hashing)
 *
 * Closures run in order on the worker's thread; their completion is called from
 * the loop (ev_async). A worker whose storage hangs delays only its own queue.
 * The thread blocks all signals and sees no engine state but the closure's.
 */
#ifndef IO_WORKER_H
#define IO_WORKER_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/tp_error.h"

#define IO_WORKER_QUEUE 1024

struct io_worker;

struct io_worker *io_worker_new(struct ev_loop *loop, const char *name, struct tp_error *err);
/* Waits at most `limit` seconds for what runs; what is queued is dropped (done is called with
 * TP_ECANCELLED). A thread that hangs is detached and its memory given up: false, what it works with
 * must stay. */
bool io_worker_free(struct io_worker *w, double limit);
/* run on the thread, then done on the loop, with run's error or NULL. */
bool io_worker_submit(struct io_worker *w, bool (*run)(void *arg, struct tp_error *err),
		      void (*done)(void *arg, const struct tp_error *err), void *arg,
		      struct tp_error *err);
size_t io_worker_pending(const struct io_worker *w);
/* How long its present job has run, in seconds; 0: none does. */
double io_worker_busy(struct io_worker *w);
/* Blocks until all jobs have run, then calls their completions: for the start, before the loop runs.
 * False: the limit (seconds) came first. */
bool io_worker_wait(struct io_worker *w, double limit);
const char *io_worker_name(const struct io_worker *w);

#endif
