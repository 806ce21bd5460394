/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* restore.h - What the files of the restore plan share */
#ifndef RESTORE_H
#define RESTORE_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/op.h"
#include "migration/mig_info.h"

struct restore {
	json_t *manifest;
	int image_fd, qemu_end;		/* 0 or -1: none */
	double started, running;	/* monotonic */
	bool hold;			/* the mover keeps the last bytes back until the commit */
	bool mover_done;
	bool lazy;			/* by a page server; false once that has proved impossible */
	bool hand_over;			/* QEMU gets the device for userfaultfd */
	unsigned polls;			/* of a QEMU that loads its devices */
	bool released;			/* the page server was told to send the package */
	double whole;			/* monotonic; 0: not known here */
	struct mig_info failed;		/* QEMU's word on a load that failed; the mover may know why */
	double failed_at;		/* monotonic; 0: it has not */
	json_t *damage;			/* the outcome to be put beside the image; NULL: none was found */
	size_t nodes_done;		/* 10.0: activated so far */
	int64_t clock_before;
};

bool restore_stays_paused(struct op *op);	/* asked for, or saved in a run state that does not run */
bool restore_runs(struct op *op);		/* "ran" was journaled: the guest is to run */
json_t *restore_image(struct op *op);		/* {id, pool, vm} of op_res; borrowed */
bool restore_allowed(struct op *op, const char *what);	/* in arguments.allow */
enum op_verdict restore_verify(struct op *op, const struct op_event *ev);
enum op_verdict restore_compare(struct op *op, const struct op_event *ev);	/* fingerprints again */
enum op_verdict restore_check_cpu(struct op *op, const struct op_event *ev);
enum op_verdict restore_clock(struct op *op, const struct op_event *ev);
enum op_verdict restore_delete(struct op *op, const struct op_event *ev);
/* The load, for both ways. */
#define RESTORE_LOAD_FD "torpor-load"
enum op_verdict restore_incoming(struct op *op);		/* migrate-incoming of that descriptor */
enum op_verdict restore_load_failed(struct op *op, const json_t *said);	/* by the mover's word */
enum op_verdict restore_await_mover(struct op *op, const struct mig_info *info);
struct vm;
/*
 * How an image of this manifest would be restored, `asked` being vm-restore's "mode" (NULL: as the spec
 * says). No QEMU is asked, which may refuse yet.
 * @wanted: lazy was wanted; @hand_over: QEMU needs a device of its own for it; @why: a sentence
 */
struct restore_choice {
	bool wanted, lazy, hand_over;
	char why[TP_TEXT_SIZE];
};
void restore_choice(const struct vm *vm, const json_t *manifest, const char *asked, struct restore_choice *c);
/* restore_lazy.c: the mode, once the manifest is read; then steps, or their bodies. */
void restore_choose_mode(struct op *op);
enum op_verdict restore_lazy_possible(struct op *op, const struct op_event *ev);
enum op_verdict restore_page_server(struct op *op, const struct op_event *ev);
enum op_verdict restore_serve(struct op *op, const struct op_event *ev);
enum op_verdict restore_release_package(struct op *op, const struct op_event *ev);
void restore_note_prefetch(struct op *op);	/* rest "prefetch", of a lazy restore */
enum op_verdict restore_hand_over(struct op *op, const struct op_event *ev);
json_t *restore_unconsume_job(struct op *op);	/* new */
/* The load met damage; kept beside the image at the restore's end, when nothing works with it any more. */
void restore_damaged(struct op *op, const char *what);
void restore_keep_damage(struct op *op);

struct job;
struct tp_error;
/*
 * Jobs on the image {"vm", "id"}. unconsume: the guest has not run and its QEMU is reaped; with
 * "retake" the fingerprints are taken anew, as the activation alone changes a qcow2.
 */
bool image_unconsume(struct job *j, struct tp_error *err);
bool image_refingerprint(struct job *j, struct tp_error *err);
bool image_drop(struct job *j, struct tp_error *err);
/* The durable rest as it was before step "ran" (res "former"), where that was written. */
/*
 * Whether it can be restored: in {id, vm, uid, state?, declared?, allowances}, out {manifest, blockers,
 * disks}; fd: of memory.zst. An error for what is no image.
 */
bool restore_look(struct job *j, struct tp_error *err);
void restore_give_back_rest(struct op *op);
void restore_ended(struct op *op);

#endif
