/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_world.h - The model's world around a real engine: real plans, real pool, real disk file
 *
 * One engine (torpor_new) with one VM serves all runs of a test program. Its operations get the
 * model's ports instead of the engine's; file work of the steps is really done, on a memory file
 * system where there is one. The model's QEMU writes to the disk whenever a real one might: when its
 * nodes become active, and while its guest runs. So an image that is offered at the end must have
 * the fingerprints of the disk as it is then.
 *
 * Checked at each effect and at the end of each run: no image is offered while the guest runs or
 * after it ran; QEMU is not ended on purpose before the commit is on the platter, and the image of
 * a restore stays until the guest has run. At the end: the table of journal.md 4; nothing is left.
 */
#ifndef PLAN_WORLD_H
#define PLAN_WORLD_H

#include "fake/op_model.h"

/* Why a restore that is to be lazy is not. */
enum plan_fallback {
	PLAN_NO_FALLBACK, PLAN_NO_RIGHT, PLAN_HUGE_PAGES, PLAN_CAPABILITY_REFUSED, PLAN_SERVER_REFUSES, PLAN_SERVER_ENDS,
};

struct plan_case {
	struct op_model_case model;	/* first; made by plan_case() */
	const char *kind;		/* of the plan */
	bool old;			/* QEMU 7.2: no blockdev-set-active, no exit-on-error */
	bool paused;			/* hibernate: before; restore: saved in it; start: asked for */
	bool stay;			/* restore: "paused" is asked for */
	bool keep;			/* the image stays after a restore; image-move: a kept one of a VM that runs */
	bool diskless;
	bool hasty;			/* QEMU has its disks active again before it can be killed */
	bool ignores;			/* powerdown: the guest does not obey */
	bool quits;			/* powerdown: "on-timeout": "quit" */
	bool lazy;			/* restore: "mode": "lazy" is asked for */
	enum plan_fallback fallback;
	double whole;			/* lazy: seconds until all is in; 0: 1 s, which is after the restore's end */
};

/* One program's engine. Fails the test program where it cannot be made. */
int plan_world_open(void **state);
int plan_world_close(void **state);	/* also checks that nothing is left */

/*
 * The first `full` of n cases in full; fewer in a sanitized program. Prints how many runs there were
 * and fails the test if there were too few.
 *
 * walk: every fault at each effect; in full: also each fault on the way back of each step.
 */
void plan_walk(struct plan_case *cases, size_t n, size_t full);
/* Every end of the daemon at each effect and after the end of the operation; in full: and again. */
void plan_recover(struct plan_case *cases, size_t n, size_t full);
/* The daemon ends with QEMU at each effect; a new engine recovers from the files alone. */
void plan_recover_really(struct plan_case *c, struct op_model_count *count);

#endif
