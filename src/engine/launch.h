/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * launch.h - From a spec to QEMU's command line, environment and descriptors; hooks likewise
 *
 * The user's args hold the machine; added here: disks as -blockdev (node-name = disk id, the present
 * file from the VM's state), monitor, agent and console on inherited listening sockets, -S,
 * -incoming defer, at a restore the resolved machine and vmgenid. Placeholders {name}, {uid},
 * {run-dir}, {state-dir}, {fd:NAME} are replaced at each launch, {{ is {.
 */
#ifndef LAUNCH_H
#define LAUNCH_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/tp_error.h"

struct vm;

#define LAUNCH_FDS 16
#define LAUNCH_GROUPS 64

struct launch {
	json_t *request;	/* for the mover, complete with "fds" */
	int fds[LAUNCH_FDS];	/* in the order of request["fds"] */
	size_t nfds;
};

/* Whom QEMU runs as; without an id it is as the engine. */
struct launch_user {
	bool has_uid, has_gid;
	uid_t uid;
	gid_t gid, groups[LAUNCH_GROUPS];	/* groups: of has_uid, gid among them */
	size_t ngroups;
};

struct launch_options {
	bool incoming;			/* -incoming defer */
	bool uffd;			/* a restore: with a /dev/userfaultfd of its own for a user of its own */
	const json_t *manifest;		/* restore: recorded binary, args, disks, machine, vmgenid; else NULL */
};

/* Everything but running it; binds sockets, opens the log. Blocks briefly (local files). */
bool launch_prepare(struct vm *vm, const struct launch_options *o, struct launch *l, struct tp_error *err);
void launch_free(struct launch *l);
/* What the rest remembers of a boot: {binary, args (placeholders kept), disks, agent, console, generation}. New. */
json_t *launch_record(struct vm *vm);
/*
 * "agent" or "console" of the machine that runs or is about to: as it was at its boot (rest
 * "launched"), not as the spec says by now. New.
 */
json_t *launch_channel(const struct vm *vm, const char *what);
/* By spec.launch.user and .group; by names, either of which may be NULL. */
bool launch_user(const struct vm *vm, struct launch_user *u, struct tp_error *err);
bool launch_user_named(const char *user, const char *group, struct launch_user *u, struct tp_error *err);
/* Hook `name` as a mover request ("stdout" and "stderr" fd: output_fd, taken); NULL with no error: none. */
bool launch_hook(struct vm *vm, const char *name, const char *reason, int *output_fd, struct launch *l,
		 struct tp_error *err);
double launch_hook_timeout(const struct vm *vm);
/* Replaces placeholders; fd numbers by name in `fds` (object NAME: number, may be NULL). New string. */
char *launch_expand(const struct vm *vm, const char *text, const json_t *fds, struct tp_error *err);
/* The present {file, format, read-only, options} of each declared disk: spec and state joined. New. */
json_t *launch_disks(const struct vm *vm);
const char *launch_socket(const struct vm *vm, const char *what, char *path, size_t size);	/* "qmp", "agent", "console" */

#endif
