/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* uffd_host.c - What the host says about userfaultfd, to this engine; see uffd.h */
#include "engine/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_text.h"

#define SYSCTL "/proc/sys/vm/unprivileged_userfaultfd"
#define PROC_MAX (1u << 20)	/* bytes of a file in /proc */

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static bool has_call(void)
{
	tp_autoclose int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	/* EINVAL: Linux before 5.11 does not know the flag, by which everybody is let in. */
	return fd >= 0 || errno == EINVAL;
}

/* Before Linux 5.2 there was no such switch and the call was for all. */
static bool is_unprivileged(void)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *text = tp_read_path(SYSCTL, 64, NULL, &why);

	return text ? *text == '1' : why.sys == ENOENT;
}

static uint64_t capabilities(const char *status, const char *set)
{
	const char *at = status ? strstr(status, set) : NULL;

	return at ? strtoull(at + strlen(set), NULL, 16) : 0;
}

static bool has(uint64_t set, int capability)
{
	return set >> capability & 1;
}

/* In a user namespace of its own root is nobody to the kernel's switches. */
static bool is_first_user_namespace(void)
{
	tp_autofree char *text = tp_read_path("/proc/self/uid_map", PROC_MAX, NULL, NULL);
	const char *at = text;
	uint32_t inside, outside, count;

	return at && tp_take_u32(&at, &inside) && tp_take_u32(&at, &outside) && tp_take_u32(&at, &count) &&
	       inside == 0 && outside == 0 && count == UINT32_MAX;
}

static void read_capabilities(struct uffd_host *h)
{
	tp_autofree char *status = tp_read_path("/proc/self/status", PROC_MAX, NULL, NULL);
	uint64_t effective = capabilities(status, "\nCapEff:\t"), kept = capabilities(status, "\nCapAmb:\t");

	if (!is_first_user_namespace())
		return;
	if (geteuid() == 0)
		kept = capabilities(status, "\nCapPrm:\t") & capabilities(status, "\nCapBnd:\t");
	h->ptrace = has(kept, CAP_SYS_PTRACE);
	h->mounter = has(effective, CAP_SYS_ADMIN) && has(effective, CAP_SYS_CHROOT) && has(effective, CAP_MKNOD) &&
		     has(effective, CAP_CHOWN);
}

/* Whether the mount at "/" (the last of several) gets what others mount: a word before the dash. */
static bool is_shared(const char *mountinfo)
{
	bool shared = false;

	for (const char *line = mountinfo; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		size_t n = strcspn(line, "\n");
		const char *dash = memmem(line, n, " - ", 3);
		int at = 0;

		if (sscanf(line, "%*s %*s %*s %*s / %n", &at) < 0 || at == 0 || !dash)
			continue;
		n = (size_t)(dash - line);
		shared = memmem(line, n, " shared:", 8) || memmem(line, n, " master:", 8);
	}
	return shared;
}

static void read_device(struct uffd_host *h)
{
	tp_autoclose int fd = open(UFFD_DEVICE, O_RDWR | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	h->opens = fd >= 0;
	if (stat(UFFD_DEVICE, &st) < 0 || !S_ISCHR(st.st_mode))
		return;
	h->device = true;
	h->mode = st.st_mode;
	h->uid = st.st_uid;
	h->gid = st.st_gid;
	n = getxattr(UFFD_DEVICE, "system.posix_acl_access", h->acl, sizeof(h->acl));
	h->acl_size = n > 0 ? (size_t)n : 0;
}

void uffd_host_read(struct uffd_host *h)
{
	tp_autofree char *mounts = tp_read_path("/proc/self/mountinfo", PROC_MAX, NULL, NULL);

	memset(h, 0, sizeof(*h));
	h->call = has_call();
	h->unprivileged = is_unprivileged();
	h->shared = is_shared(mounts);
	read_capabilities(h);
	read_device(h);
}
