/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pools_priv.h - What the files of the engine's pools share; included by pools*.c only */
#ifndef ENGINE_POOLS_PRIV_H
#define ENGINE_POOLS_PRIV_H

#include <ev.h>

#include "base/tp_fs.h"
#include "engine/pools.h"
#include "storage/pool_level.h"
#include "storage/pool_open.h"

#define POOLS_MAX 256u

struct engine_pool {
	struct engine_pool *next;
	struct pools *ps;
	char name[TP_NAME_MAX + 1];
	char *path;
	uint64_t quota;			/* bytes; 0: none */
	uint64_t low_water;		/* bytes, or POOL_LOW_WATER_AUTO */
	bool defined;			/* by pool-define; else by the configuration */
	bool known;			/* of the configuration, and was there before: pools_known.c */
	bool serves;			/* among the first; the others are aside */
	bool changing;			/* pool-define or pool-undefine is at it */
	bool over;			/* among those aside: freed once its worker is idle */
	struct pool *storage;		/* NULL: not opened */
	struct io_worker *worker;
	bool there;			/* at the last look */
	struct tp_error why;		/* why it was not */
	json_t *images;			/* id -> entry */
	struct pool_space space;	/* the last look at a pool that was there */
	struct pool_place place;	/* likewise */
	enum pool_level level;
	bool looking;
	bool again, again_images;	/* another look is wanted after this one; at the images as well */
	double looked_at;		/* monotonic */
	const char *told;		/* the state that the last POOL event gave */
};

struct pools {
	struct torpor *t;
	struct engine_pool *first;	/* in service, the newest first */
	struct engine_pool *aside;	/* being defined, or undefined and not yet freed */
	struct pool_change *changes;	/* pools_define.c */
	struct pool_neighbour homes[2];	/* the state and the runtime directory */
	struct ev_timer tick;
	bool serving;			/* VMs are loaded: what no operation works with may be swept */
};

/* --- pools.c --- */
/* Not in any list. NULL: no memory, or no thread. */
struct engine_pool *engine_pool_new(struct pools *ps, const char *name, const char *path, struct tp_error *err);
/* At most `limit` seconds for its worker. */
void engine_pool_free(struct engine_pool *p, double limit);
/* From here on it is in service; what waited for it goes on. */
void pools_serve(struct engine_pool *p);
void pools_came(struct engine_pool *p);	/* it is there, and was not */
void pools_unlink(struct engine_pool **list, struct engine_pool *p);
void pools_tell(struct engine_pool *p);	/* a POOL event, if its state is another than was told */
/* Has the worker close it; done (may be NULL) is called with arg after that. */
void engine_pool_close(struct engine_pool *p, struct pool *storage, bool unmake,
		       void (*done)(void *arg, const struct tp_error *err), void *arg);

/* --- pools_look.c --- */
/* What a look finds; made on the pool's worker, taken over on the loop. */
struct pool_look {
	struct engine_pool *p;		/* not for the worker */
	struct pool_opening how;	/* where it is not open */
	struct pool_neighbour *others;	/* how.others */
	char name[TP_NAME_MAX + 1];
	char *path, *instance;
	struct pool *storage;		/* looked at; opened by this look where it was NULL */
	bool opened, images;		/* also look at the images */
	struct pool_space space;
	struct pool_place place;
	json_t *entries;
	/* On the loop, before the look is freed; NULL: pool_look_take. */
	void (*done)(struct pool_look *l, const struct tp_error *err);
	void *arg;
};

/* Has the worker look at it; a look that is on its way is followed by another one. */
void pools_look(struct engine_pool *p, bool images);
/* The look of a definition. False: done is not called. */
bool pools_look_first(struct engine_pool *p, void (*done)(struct pool_look *l, const struct tp_error *err),
		      void *arg, struct tp_error *err);
/* What it found becomes the pool's; err: why it is not there. */
void pool_look_take(struct pool_look *l, const struct tp_error *err);
/* Exists, GenericError: the folder is, or lies inside or around, that of another pool or one of ours. */
bool pools_place_free(struct engine_pool *p, const struct pool_place *place, struct tp_error *err);

/* --- pools_images.c --- */
/* The kept list becomes these entries (pool_catalogue). */
void pools_images_keep(struct engine_pool *p, const json_t *entries);
/* As pools_sweep, of one pool. */
void pools_sweep_one(struct engine_pool *p);

/* --- pools_known.c --- */
/* A pool of the configuration that once was opened at its path. False also with err. */
bool pool_is_known(const struct engine_pool *p, struct tp_error *err);
void pool_known_now(struct engine_pool *p);	/* it is open: recorded soon, once */

/* --- pools_use.c --- */
/* Busy for an operation; class_ for VMs whose state is in it or whose spec names it, and whole images. */
bool pool_unused(const struct engine_pool *p, const char *class_, struct tp_error *err, json_t **data);

/* --- pools_define.c --- */
void pools_changes_free(struct pools *ps);

#endif
