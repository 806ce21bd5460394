/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * state_dir.h - The state directory: lock, version, host.json, vms/<name>/, ops.log (journal.md 2)
 *
 * Functions block; at start-up they are called on the loop, later from the "state" worker.
 */
#ifndef STATE_DIR_H
#define STATE_DIR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

#define STATE_FORMAT 1
#define STATE_FILE_MAX (4u << 20)
#define OPS_KEEP_VM 5
#define OPS_KEEP_ALL 1000
#define OPS_KEEP_FAILED_DAYS 7

struct state_dir;

/* Creates (0700), locks (TP_ESTATE naming the other's pid), checks the version (newer: refused;
 * older: upgraded in a new file), reads or makes the instance UUID. */
struct state_dir *state_dir_open(const char *path, struct tp_error *err);
void state_dir_close(struct state_dir *s);
const char *state_dir_path(const struct state_dir *s);
const char *state_dir_instance(const struct state_dir *s);
/* Whether the host was started since an engine was here last: what had not been synced may be lost. */
bool state_dir_rebooted(const struct state_dir *s);
/* Removes folders of VMs that have no spec.json (a define cut by a crash); names of the others. */
json_t *state_dir_vms(struct state_dir *s, struct tp_error *err);
int state_dir_vm(struct state_dir *s, const char *vm, bool create, struct tp_error *err);	/* dirfd */
bool state_dir_vm_remove(struct state_dir *s, const char *vm, struct tp_error *err);
/* file: "spec.json", "state.json". NULL with no error: absent. Damaged: TP_ECORRUPT. */
json_t *state_vm_read(int vm_dirfd, const char *file, struct tp_error *err);
bool state_vm_write(int vm_dirfd, const char *file, const json_t *value, struct tp_error *err);	/* atomic, fsync */
bool state_vm_set_aside(int vm_dirfd, const char *file, struct tp_error *err);	/* FILE.bad-TIME */
json_t *state_host_read(struct state_dir *s, struct tp_error *err);	/* {} when absent */
/*
 * edit changes its own part of host.json, which is written if it says so. Blocks; from any thread, one at
 * a time.
 */
enum state_edit { STATE_UNCHANGED, STATE_CHANGED, STATE_NO_MEMORY };
bool state_host_edit(struct state_dir *s, enum state_edit (*edit)(json_t *host, void *arg), void *arg,
		     struct tp_error *err);
/* ops.log: one JSON line an ended operation. */
json_t *state_ops_read(struct state_dir *s, struct tp_error *err);	/* array, oldest first, damaged lines skipped */
bool state_ops_append(struct state_dir *s, const json_t *record, struct tp_error *err);
/* Rewrites with these records only. */
bool state_ops_rewrite(struct state_dir *s, const json_t *records, struct tp_error *err);

#endif
