/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * uffd.h - May the QEMU of a VM take page faults of its guest into its own hands (userfaultfd)?
 *
 * A lazy restore needs it. Nothing here is tried on a QEMU: it is a forecast by what the host and
 * the spec say, for the choice of the mode and for people; a wrapper may make it wrong. What counts
 * in the end is QEMU's answer to the capability postcopy-ram.
 */
#ifndef UFFD_H
#define UFFD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/tp_error.h"
#include "engine/launch.h"

struct vm;

#define UFFD_DEVICE "/dev/userfaultfd"
#define UFFD_ACL_MAX 1024u	/* bytes of an access control list that are looked at */

enum uffd_way {
	UFFD_NONE,		/* QEMU will be refused: restore eagerly */
	UFFD_DIRECT,		/* with the rights that it has anyway */
	UFFD_HAND_OVER,		/* if it is launched with "uffd": true, see mover_view.c */
};

/*
 * What the host says, to this engine.
 * @call: the kernel has the system call and nothing around the engine filters it out
 * @unprivileged: vm.unprivileged_userfaultfd
 * @ptrace: a program that the engine starts with its own rights has CAP_SYS_PTRACE
 * @device: the node is there; @opens: the engine itself can open it
 * @mode, @uid, @gid, @acl: whom the node lets in; acl as system.posix_acl_access holds it
 * @mounter: the engine can give a program mounts of its own and make device nodes there
 * @shared: what is mounted or unmounted later reaches such a program, too
 */
struct uffd_host {
	bool call, unprivileged, ptrace, device, opens, mounter, shared;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	unsigned char acl[UFFD_ACL_MAX];
	size_t acl_size;
};

/*
 * Who asks.
 * @name: of the user, for sentences
 * @own: with the engine's own rights; else as the ids say, without any privilege
 * @major, @minor: of QEMU, 0: not known. From 8.0 on it opens the device first.
 */
struct uffd_asker {
	char name[64];
	bool own;
	struct launch_user ids;
	int major, minor;
};

void uffd_host_read(struct uffd_host *h);	/* a few system calls, each time anew */
/* why: one sentence; for UFFD_NONE it says what to grant. */
enum uffd_way uffd_judge(const struct uffd_host *h, const struct uffd_asker *a, char *why, size_t size);
/* The same of a VM whose image has this manifest; and as it would be restored now, or after it was saved. */
enum uffd_way uffd_way_of(const struct vm *vm, const json_t *manifest, char why[TP_TEXT_SIZE]);
enum uffd_way uffd_way(const struct vm *vm, char why[TP_TEXT_SIZE]);
/*
 * Whom QEMU runs as once it has started: by spec.launch, and by -runas or -run-with of these args
 * (NULL: none). An error where there is no such user.
 */
bool uffd_user(const struct vm *vm, const json_t *args, struct launch_user *u, struct tp_error *err);

#endif
