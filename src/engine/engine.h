/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * engine.h - struct torpor: what one engine owns
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <ev.h>
#include <jansson.h>
#include <stdbool.h>

#include "engine/engine_hooks.h"
#include "engine/features.h"
#include "engine/io_worker.h"
#include "engine/mover.h"
#include "engine/op.h"
#include "engine/pools.h"
#include "engine/state_dir.h"
#include "engine/vm.h"
#include "torpor.h"

struct api_state;
struct deferred;
struct standing_watch;
struct sync_call;
struct ops;

struct torpor {
	struct ev_loop *loop;
	struct state_dir *state;
	char runtime_dir[80];
	char host[65];
	struct mover_context mover;
	struct io_worker *worker;	/* of the state directory */
	struct io_worker *disks;	/* of guests' disks */
	struct pools *pools;
	json_t *left_behind;		/* left_behind.h */
	struct features_cache features;	/* of QEMU binaries */
	struct api_state *api;
	struct ops *ops;
	struct standing_watch *standing;
	struct vm *vms;			/* sorted by name */
	struct deferred *deferred;
	struct sync_call *sync_calls;	/* verbs that wait for their answer */
	uint64_t started_us;
	bool closing;			/* torpor_shutdown was called: no new operations */
	unsigned housekeepings;		/* so many were there */
	unsigned images_look_every;	/* of them: what is Restorable, what is kept too long; an hour */
	struct ev_timer housekeeping;	/* log sizes, retries, once a minute */
	struct ev_timer closing_timer;
	double closing_until;		/* monotonic */
	void (*closed)(void *arg);
	void *closed_arg;
};

#endif
