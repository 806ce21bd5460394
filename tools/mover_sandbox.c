/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_sandbox.c - Privileges, landlock and priority of a data job
 *
 * Theory of operation
 *
 * A data job decodes what a guest or a stranger's image file made. Its inputs
 * and outputs are descriptors that the engine opened, so it needs no path at
 * all. Should a decoder be taken over, then
 *
 * privileges  Should: leave root's power over the kernel behind, although the
 *             engine runs as root. Mustn't: change the user, the image belongs
 *             to the engine's. Hence no capabilities, none by exec either, and
 *             not dumpable: guest memory is in this process.
 * landlock    Should: refuse every path and TCP port, and reaching processes
 *             outside by signal or abstract socket. Mustn't: touch descriptors
 *             that are open. A kernel without it is no error: the next stage
 *             refuses the same system calls.
 * seccomp     Should: leave only the system calls of the pumps. In
 *             mover_seccomp.c.
 *
 * Landlock's constants are spelt out here, as the headers of the oldest
 * supported system know only the first version.
 */
#include "mover_sandbox.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/tp_cleanup.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif
#define LANDLOCK_VERSION_QUERY 1u
#define LANDLOCK_NET_ALL 3u		/* bind and connect of TCP */
#define LANDLOCK_SCOPE_ALL 3u		/* abstract UNIX sockets, signals */

#define URGENT_NICE 5
#define BACKGROUND_NICE 19
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO(class_, level) ((class_) << 13 | (level))
#define URGENT_IOPRIO IOPRIO(2, 5)	/* best effort, just below the default */
#define BACKGROUND_IOPRIO IOPRIO(3, 0)	/* idle */

/* struct landlock_ruleset_attr as of ABI 6; older kernels take a shorter one. */
struct ruleset {
	uint64_t fs, net, scoped;
};

void mover_priority_set(enum mover_priority p)
{
	if (p == MOVER_GUEST)
		return;
	setpriority(PRIO_PROCESS, 0, p == MOVER_URGENT ? URGENT_NICE : BACKGROUND_NICE);
	syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		p == MOVER_URGENT ? URGENT_IOPRIO : BACKGROUND_IOPRIO);
}

bool mover_sandbox_privileges(struct tp_error *err)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return tp_fail_sys(err, errno, "set no-new-privileges");
	if (syscall(SYS_capset, &head, none) < 0)
		return tp_fail_sys(err, errno, "drop capabilities");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return tp_fail_sys(err, errno, "make the mover undumpable");
	return true;
}

/* All rights over paths that this version knows: the more, the higher. */
static uint64_t fs_rights(int abi)
{
	static const unsigned bits[] = { 0, 13, 14, 15, 15, 16 };
	size_t last = sizeof(bits) / sizeof(bits[0]) - 1;
	unsigned n = bits[(size_t)abi < last ? (size_t)abi : last];

	return ((uint64_t)1 << n) - 1;
}

bool mover_sandbox_landlock(int *abi, struct tp_error *err)
{
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION_QUERY);
	struct ruleset r = { 0 };
	size_t size = sizeof(r.fs);
	tp_autoclose int fd = -1;

	*abi = 0;
	if (version < 1)
		return true;
	r.fs = fs_rights((int)version);
	if (version >= 4) {
		r.net = LANDLOCK_NET_ALL;
		size += sizeof(r.net);
	}
	if (version >= 6) {
		r.scoped = LANDLOCK_SCOPE_ALL;
		size += sizeof(r.scoped);
	}
	fd = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
	if (fd < 0)
		return tp_fail_sys(err, errno, "make a landlock rule set");
	if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		return tp_fail_sys(err, errno, "restrict the mover by landlock");
	*abi = (int)version;
	return true;
}

json_t *mover_sandbox_enter(struct tp_error *err)
{
	char landlock[32];
	json_t *names;
	int abi;

	if (!mover_sandbox_privileges(err) || !mover_sandbox_landlock(&abi, err) ||
	    !mover_sandbox_seccomp(err))
		return NULL;
	snprintf(landlock, sizeof(landlock), "landlock-%d", abi);
	names = abi > 0 ? json_pack("[s, s, s]", "privileges", landlock, "seccomp") :
			  json_pack("[s, s]", "privileges", "seccomp");
	if (!names)
		tp_fail_nomem(err);
	return names;
}
