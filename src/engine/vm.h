/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vm.h - One virtual machine: who it is, what is durable about it, what runs
 *
 * Theory of operation. What a VM *is* (state and reason of the interface) is
 * never stored: vm_refresh() derives it from three truths, in this order: the
 * operation that holds the VM, the QEMU that runs (its status as QEMU said it),
 * the durable rest (state.json). It is the one place that changes the state,
 * logs old -> new and tells the clients. A damaged file costs only itself: with
 * a damaged spec.json the VM is lost, but its rest is kept up and not overwritten
 * by that, so that all is as before when the file comes back from a backup.
 *
 * rest (state.json): {"rest": "shutoff"|"running"|"hibernated"|"crashed"|"lost", "reason",
 *   "image": {"id", "pool", "vm"?} | absent, "consumed", "ran", "keep",
 *   "give-back": {retake, boot} (vm_image.h), "disks": {ID: {file, format}},
 *   "launched": {binary, args, disks, machine, vmgenid?, generation}, "paused-by", "last-exit",
 *   "ram": {bytes, blocks, generation} of its last QEMU (room.h), "saved": {bytes, ram} of its last image,
 *   "prefetch": {...} (prefetch.h) | absent, "qemu": {pid, start, boot} | absent, "hibernation": {...}, "release-due": bool, ...}
 * "running" says that a QEMU was left running: adoption looks for it.
 */
#ifndef VM_H
#define VM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "base/tp_fs.h"
#include "engine/op.h"

struct torpor;
struct vm_qemu;
struct hook;
struct pending_op;
struct standing;
struct restorable;
struct prefetch;

enum vm_state {
	VM_SHUTOFF, VM_STARTING, VM_RUNNING, VM_PAUSED, VM_SUSPENDED, VM_HIBERNATING,
	VM_HIBERNATED, VM_RESTORING, VM_MIGRATING, VM_INCOMING, VM_CRASHED, VM_LOST, VM_STATE_N
};
const char *vm_state_name(enum vm_state s);
bool vm_state_parse(const char *name, enum vm_state *s);

#define VM_UID_SIZE 37

struct vm {
	struct torpor *t;
	struct vm *next;
	char name[TP_NAME_MAX + 1];
	char uid[VM_UID_SIZE];
	json_t *spec;			/* as defined */
	int64_t generation, observed_generation;
	int dirfd;			/* <state-dir>/vms/<name> */
	int journal_fd;			/* op.log of the operation that holds the VM, else -1 */
	int64_t journal_serial;		/* of that journal; state.json has the last that ended ("ended") */

	enum vm_state state;		/* set by vm_refresh() only */
	char reason[32];
	bool told_running;		/* `running` as the last VM_STATE had it */
	uint64_t since_us;

	json_t *rest;			/* see above; vm_rest_set() */
	bool rest_dirty;
	struct vm_qemu *qemu;		/* NULL: no process known */
	char run_dir[96];
	json_t *disk_info;		/* by disk id, as last looked at: format, virtual-size, ... */
	double disks_looked_at;		/* monotonic */
	struct op *op;			/* holds the VM */
	struct pending_op *queue;	/* operations that wait for it (busy: queue) */
	struct hook *hook;		/* the one that runs or waits to be tried again */
	struct restorable *restorable;	/* restorable.c; NULL: not looked at yet */
	struct standing *standing;	/* standing.c; NULL: none is asked for */
	struct prefetch *prefetch;	/* prefetch.c; NULL: all its memory is in */
	struct tp_error preflight;	/* why the last hibernation was refused: condition Hibernatable */
	bool spec_damaged;		/* lost/record-damaged until vm-resolve; rest stays what it is */
	bool recovering;		/* vm->op waits until the world is known */
	bool undecided;			/* could not be looked at (no descriptors, ...): tried again */
	bool silence_told;		/* in the log, once */
	bool marking;			/* "ran" is on its way to the platter */
	bool gone;			/* is being undefined: for no verb any more */
};

/* registry.c: in struct torpor, by name. */
struct vm *vm_find(struct torpor *t, const char *name);
/* NotFound when absent, Busy while it is being undefined. */
struct vm *vm_need(struct torpor *t, const char *name, struct tp_error *err);
struct vm *vm_create(struct torpor *t, const char *name, const char *uid_or_null, struct tp_error *err);
/* Loads spec.json and state.json of a VM at start-up. A damaged one: state lost, record-damaged; a
 * damaged state.json is set aside, a damaged spec.json stays where it is. */
struct vm *vm_load(struct torpor *t, const char *name, struct tp_error *err);
void vm_destroy(struct vm *vm);			/* out of the registry, memory freed, files stay */
size_t vm_count(const struct torpor *t);

/* Derives state and reason; tells the clients of a change. */
void vm_refresh(struct vm *vm);
/* The run state, as QEMU says it ("running", "paused", ...), or "" without a monitor. */
const char *vm_qemu_status(const struct vm *vm);
bool vm_running(const struct vm *vm);

/* Durable rest. set: value taken, NULL removes; save: writes soon, from the "state" worker. */
void vm_rest_set(struct vm *vm, const char *key, json_t *value_owned);
void vm_rest_text(struct vm *vm, const char *rest, const char *reason);
void vm_rest_save(struct vm *vm);
/* What vm-resolve and vm-quit leave: a QEMU found again runs, else what was lost or crashed is off. */
void vm_no_longer_lost(struct vm *vm);
/* An io job that writes the rest as it is now: for steps that must wait for it. NULL: no memory. */
struct op_job *vm_rest_job(struct vm *vm);

json_t *vm_describe(struct vm *vm, bool secrets);	/* query-vm; secrets: env too */
/* Looks at the disks' files on a worker, for the next query; at most once in a few seconds. */
void vm_disks_look(struct vm *vm);
json_t *vm_conditions(struct vm *vm);
/* Data of VM_STATE events and of errors that name the VM. */
json_t *vm_brief(struct vm *vm);

#endif
