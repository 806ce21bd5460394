/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* plan_world_priv.h - Between plan_world.c, plan_setup.c and plan_check.c */
#ifndef PLAN_WORLD_PRIV_H
#define PLAN_WORLD_PRIV_H

#include <ev.h>
#include <sys/types.h>

#include "engine/ops_priv.h"
#include "fake/fake_image.h"
#include "fake/op_model_priv.h"
#include "fake/plan_world.h"
#include "storage/pool.h"

#define PLAN_VM "vm1"
#define PLAN_POOL "default"
#define PLAN_OTHER "other"		/* where image-move moves to */
#define PLAN_MARKS 64
/* Of the VM's working set as each run finds it, and of that of an image to restore. */
#define PLAN_PAGES_OWN 5
#define PLAN_PAGES_SAVED 3

struct plan_images {
	unsigned folders, whole, offered;	/* whole: with a manifest; offered: and not consumed */
	char id[IMAGE_ID_MAX + 1];		/* of the last folder */
};

struct plan_world {
	struct ev_loop *loop;
	struct torpor *t;
	struct vm *vm;
	struct op_run run;		/* op_owner() */
	char dir[64], disk[96];
	struct fake_image image;	/* what a mover writes */
	json_t *sealed;			/* and says of it */
	pid_t orphan;			/* a process that stands for a mover */
	bool orphan_killed;		/* nobody waited for its end */
	size_t nfds;			/* open between two runs; 0: not counted yet */

	/* Of the present run */
	int image_fd;			/* the mover's; -1: none */
	bool active, runs;		/* the nodes, the guest at the last look */
	bool changing;			/* a job ran since, or runs next: the pool may be another */
	bool quit_sent;
	struct plan_images images;
	char moved[IMAGE_ID_MAX + 1];	/* image-move: the image */
	bool really;			/* a new engine recovers, with its own ports */
	json_t *record;			/* of the operation that it recovered */
	char step[64];			/* of the last effect */
	unsigned marks[PLAN_MARKS], nmarks;	/* first effect of each step, of the run without a fault */
	json_t *caps, *params;		/* QEMU's before */
	bool again;			/* another page server comes */
};

extern struct plan_world plan;

struct plan_case *plan_case_of(const struct op_model_world *w);
bool plan_is(const struct op_model_world *w, const char *kind);
struct plan_images plan_images(bool anew);
struct plan_images plan_images_in(const char *pool);	/* as the files are, and left_behind.h says */
struct pool *plan_pool(void);
struct pool *plan_other(void);
void plan_pump(void);			/* until the engine's workers have nothing to do */
void plan_look(struct op_model_world *w);	/* the disk follows QEMU; the stand-in mover is looked at */

void plan_orphan_start(void);
size_t plan_fds(void);			/* open descriptors */
void plan_qemu_make(const struct op_model_world *w);	/* the engine's picture of the model's QEMU */
void plan_qemu_drop(void);
void plan_state_write(void);		/* state.json, now */
void plan_mover_seals(struct op_model_world *w);	/* the image is written */

/* plan_setup.c */
void plan_setup(struct op_model_world *w, struct op_options *o);

void plan_engine_again(void);		/* frees the engine, makes another of the same files */

/* plan_lazy.c */
bool plan_is_lazy(const struct plan_case *c);		/* to be restored lazily, and nothing is in the way */
void plan_lazy_setup(struct op_model_world *w, json_t *args);
bool plan_lazy_refuses(const struct op_model_world *w, enum qmp_cmd cmd, const json_t *args, struct tp_error *err);
void plan_lazy_look(struct op_model_world *w);		/* the VM's prefetch, if there is one, has its server */
void plan_lazy_given(struct op_model_world *w);
void plan_lazy_served(struct op_model_world *w, const char *name);
void plan_lazy_gone(struct op_model_world *w);		/* QEMU has ended */
void plan_lazy_restarts(void);
void plan_lazy_effect(struct op_model_world *w, const struct plan_images *images);
void plan_lazy_end(struct op_model_world *w);

/* plan_check.c */
void plan_check_effect(struct op_model_world *w, const char *kind, const char *name);
void plan_check_end(struct op_model_world *w);

#endif
