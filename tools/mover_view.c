/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_view.c - A device node of its own for the program that a launch becomes
 *
 * Theory of operation
 *
 * QEMU opens /dev/userfaultfd by its path, as the user that it runs as, and the
 * host's node is root's. To open it to that user would be a change of the host
 * for all of that user's programs and for good. Instead this process alone gets
 * another node there:
 *
 * namespace   Should: take mounts and unmounts of the host over, at any time,
 *             since a disk may be on one. Mustn't: give any back. Hence a
 *             namespace of its own in which every mount is a slave.
 * node        Should: let in the user, whoever that is. Mustn't: let in anybody
 *             else, who might reach it by /proc/PID/root. Hence a new node of
 *             that user's, mode 0600, in a file system of its own which is on no
 *             path but as this one file, bound over the host's node.
 *
 * At last the node is opened once: a file system that allows no devices, as in a
 * user namespace, or a device cgroup would show only now.
 */
#include "mover_view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"

#define DEVICE "/dev/userfaultfd"
#define SCRATCH_OPTIONS "size=4k,nr_inodes=4,mode=0700"

static bool make_node(const char *path, dev_t device, uid_t uid, struct tp_error *err)
{
	if (mknod(path, S_IFCHR | 0600, device) < 0)
		return tp_fail_sys(err, errno, "make a device node");
	if (chown(path, uid, 0) < 0)
		return tp_fail_sys(err, errno, "give the device node to user %u", (unsigned)uid);
	if (mount(path, DEVICE, NULL, MS_BIND, NULL) < 0)
		return tp_fail_sys(err, errno, "bind the device node to %s", DEVICE);
	return true;
}

/* Within the new namespace. */
static bool cover_device(dev_t device, uid_t uid, const char *scratch, struct tp_error *err)
{
	tp_autoclose int fd = -1;
	char path[PATH_MAX];
	bool made;

	if (snprintf(path, sizeof(path), "%s/userfaultfd", scratch) >= (int)sizeof(path))
		return tp_fail_sys(err, ENAMETOOLONG, "make a device node in %.80s", scratch);
	if (mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
		return tp_fail_sys(err, errno, "make the mounts slaves of the host's");
	if (mount("torpor", scratch, "tmpfs", MS_NOSUID | MS_NOEXEC, SCRATCH_OPTIONS) < 0)
		return tp_fail_sys(err, errno, "mount a file system for the device node");
	made = make_node(path, device, uid, err);
	if (umount2(scratch, MNT_DETACH) < 0)
		return tp_fail_sys(err, errno, "unmount %s", scratch);
	if (!made)
		return false;
	fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	return fd >= 0 || tp_fail_sys(err, errno, "open the new %s", DEVICE);
}

bool mover_view_uffd(uid_t uid, const char *scratch, struct tp_error *err)
{
	tp_autoclose int home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (home < 0)
		return tp_fail_sys(err, errno, "open the mount namespace");
	if (stat(DEVICE, &st) < 0)
		return tp_fail_sys(err, errno, "%s", DEVICE);
	if (!S_ISCHR(st.st_mode))
		return tp_fail(err, TP_EUNSUPPORTED, "%s is no character device", DEVICE);
	if (unshare(CLONE_NEWNS) < 0)
		return tp_fail_sys(err, errno, "make a mount namespace");
	if (cover_device(st.st_rdev, uid, scratch, err))
		return true;
	/* Should even this fail: what is left here are the host's mounts as slaves, and its node or ours. */
	if (setns(home, CLONE_NEWNS) < 0)
		tp_prefix(err, "cannot leave the new mount namespace");
	return false;
}
