/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hibernate.h - What the files of the hibernate plan share */
#ifndef HIBERNATE_H
#define HIBERNATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/op.h"

struct hibernate {
	/* Preflight */
	unsigned asked;			/* queries sent so far */
	json_t *seen;			/* their answers by name; "files": of guest_disks() */
	uint64_t ram, bound, limit;	/* bytes: RAM blocks, largest image, where the mover gives up */
	bool guaranteed;		/* the pool's file system keeps what was reserved */
	/* Saving */
	double paused_at;		/* monotonic */
	int image_fd, qemu_end;		/* 0 or -1: none */
	json_t *sealed;			/* the mover's word on the finished image */
	json_t *disks;			/* fingerprints, of guest_disks_take() */
	json_t *working_set;		/* the VM's; NULL: none */
	json_t *manifest;		/* as it was written, for the list of images */
	bool mover_stopped, completed;
	bool stream_cut;		/* the mover met an end of the stream that was none */
};

enum op_verdict hibernate_preflight(struct op *op, const struct op_event *ev);
/* A preflight, dry runs included, found this: condition Hibernatable, unless it is of the command's own making. */
void hibernate_judged(struct op *op, const json_t *blockers);
/* Options: the command's, else the spec's. Borrowed or new as the type says. */
const char *hibernate_pool(struct op *op);
const char *hibernate_reserve(struct op *op);
json_t *hibernate_option(struct op *op, const char *name);	/* new */
json_t *hibernate_manifest(struct op *op);			/* new */
json_t *hibernate_summary(struct op *op, double pause);		/* new: query-vm.hibernation */
void hibernate_uuid(char *text, size_t size);
void hibernate_ended(struct op *op);

#endif
