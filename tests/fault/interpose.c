/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * interpose.c - The calls that the library stands in for
 *
 * LD_PRELOAD=faultlib.so; what it does is told by the environment:
 *   FAILCALL=FILE         rules (failcall.c): calls fail, come late, hang
 *   RECORD=FILE           calls are written down (record.c)
 *   FAULT_BOOT_ID=FILE    is read in place of the kernel's boot id
 *   FAULT_CHILDREN=1      children have the library, too (torpor-mover; QEMU and hooks are given an
 *                         environment of their own)
 *
 * A call waits, where it is to be late, before the log's lock is taken: others go on meanwhile.
 */
#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define SAID_MAX 4096		/* of a message in the log */

#define REAL(name) \
	(__extension__({ \
		static __typeof__(&name) real_; \
		if (!real_) \
			real_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
		real_; \
	}))

int __openat_2(int dirfd, const char *name, int flags);

static void __attribute__((constructor)) begin(void)
{
	if (!getenv("FAULT_CHILDREN"))
		unsetenv("LD_PRELOAD");
}

/* True: the call fails, errno says how. */
static bool refused(const char *call, const char *path, struct fault *f)
{
	*f = fault_of(call, path);
	if (!f->error)
		return false;
	errno = f->error;
	return true;
}

static size_t at_most(size_t n, const struct fault *f)
{
	return f->limit >= 0 && (size_t)f->limit < n ? (size_t)f->limit : n;
}

/* --- data --- */

ssize_t write(int fd, const void *data, size_t size)
{
	char path[FAULT_PATH];
	struct fault f;
	ssize_t n;

	fault_path(fd, NULL, path);
	if (refused("write", path, &f))
		return -1;
	record_begin();
	n = REAL(write)(fd, data, at_most(size, &f));
	if (n > 0 && path[0] == '/')
		record_call("write", path, NULL, lseek(fd, 0, SEEK_CUR) - n, data, (size_t)n);
	record_end();
	return n;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
	char path[FAULT_PATH];
	struct fault f;
	ssize_t n;

	fault_path(fd, NULL, path);
	if (refused("pwrite", path, &f))
		return -1;
	record_begin();
	n = REAL(pwrite)(fd, data, at_most(size, &f), at);
	if (n > 0)
		record_call("write", path, NULL, at, data, (size_t)n);
	record_end();
	return n;
}

ssize_t pwritev(int fd, const struct iovec *iov, int niov, off_t at)
{
	char path[FAULT_PATH];
	struct fault f;
	ssize_t n, left;

	fault_path(fd, NULL, path);
	if (refused("pwrite", path, &f))
		return -1;
	record_begin();
	/* A short one: the first part only. */
	n = f.limit < 0 ? REAL(pwritev)(fd, iov, niov, at) :
			  REAL(pwrite)(fd, iov[0].iov_base, at_most(iov[0].iov_len, &f), at);
	for (left = n; left > 0; iov++) {
		size_t part = iov->iov_len < (size_t)left ? iov->iov_len : (size_t)left;

		record_call("write", path, NULL, at, iov->iov_base, part);
		at += (off_t)part;
		left -= (ssize_t)part;
	}
	record_end();
	return n;
}

int ftruncate(int fd, off_t size)
{
	char path[FAULT_PATH];
	struct fault f;
	int rc;

	fault_path(fd, NULL, path);
	if (refused("ftruncate", path, &f))
		return -1;
	record_begin();
	rc = REAL(ftruncate)(fd, size);
	if (rc == 0)
		record_call("truncate", path, NULL, size, NULL, 0);
	record_end();
	return rc;
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
	char path[FAULT_PATH];
	struct fault f;
	int rc;

	fault_path(fd, NULL, path);
	if (refused("fallocate", path, &f))
		return -1;
	record_begin();
	rc = REAL(fallocate)(fd, mode, at, size);
	if (rc == 0 && mode == 0)
		record_call("extend", path, NULL, at + size, NULL, 0);
	record_end();
	return rc;
}

/* --- safety --- */

static int sync_call(const char *call, int fd, int (*real)(int fd))
{
	char path[FAULT_PATH];
	struct fault f;
	int rc;

	fault_path(fd, NULL, path);
	if (refused(call, path, &f))
		return -1;
	record_begin();
	rc = real(fd);
	if (rc == 0)
		record_call("sync", path, NULL, 0, NULL, 0);
	record_end();
	return rc;
}

int fsync(int fd)
{
	return sync_call("fsync", fd, REAL(fsync));
}

int fdatasync(int fd)
{
	return sync_call("fdatasync", fd, REAL(fdatasync));
}

int sync_file_range(int fd, off_t at, off_t size, unsigned flags)
{
	char path[FAULT_PATH];
	struct fault f;

	fault_path(fd, NULL, path);
	return refused("sync_file_range", path, &f) ? -1 : REAL(sync_file_range)(fd, at, size, flags);
}

/* What fails here is closed all the same. */
int close(int fd)
{
	char path[FAULT_PATH];
	struct fault f = { 0 };
	int rc;

	fault_path(fd, NULL, path);
	if (path[0] == '/')
		f = fault_of("close", path);
	fault_path_drop(fd);
	rc = REAL(close)(fd);
	if (rc == 0 && f.error) {
		errno = f.error;
		rc = -1;
	}
	return rc;
}

/* --- names --- */

int mkdirat(int fd, const char *name, mode_t mode)
{
	char path[FAULT_PATH];
	struct fault f;
	int rc;

	fault_path(fd, name, path);
	if (refused("mkdir", path, &f))
		return -1;
	record_begin();
	rc = REAL(mkdirat)(fd, name, mode);
	if (rc == 0)
		record_call("mkdir", path, NULL, 0, NULL, 0);
	record_end();
	return rc;
}

int renameat(int from, const char *old, int to, const char *new)
{
	char path[FAULT_PATH], was[FAULT_PATH];
	struct fault f;
	int rc;

	fault_path(from, old, was);
	fault_path(to, new, path);
	if (refused("rename", path, &f))
		return -1;
	record_begin();
	rc = REAL(renameat)(from, old, to, new);
	if (rc == 0)
		record_call("rename", was, path, 0, NULL, 0);
	record_end();
	return rc;
}

int unlinkat(int fd, const char *name, int flags)
{
	char path[FAULT_PATH];
	struct fault f;
	int rc;

	fault_path(fd, name, path);
	if (refused("unlink", path, &f))
		return -1;
	record_begin();
	rc = REAL(unlinkat)(fd, name, flags);
	if (rc == 0)
		record_call(flags & AT_REMOVEDIR ? "rmdir" : "unlink", path, NULL, 0, NULL, 0);
	record_end();
	return rc;
}

/* One of the ways to open; `make` is the mode. */
struct opening {
	int dirfd, flags;
	const char *name;
	mode_t mode;
	long size;		/* of `how`; 0: it is no openat2 */
	const void *how;
};

static int do_open(const struct opening *o)
{
	if (o->size)
		return (int)REAL(syscall)(SYS_openat2, o->dirfd, o->name, o->how, o->size);
	return REAL(openat)(o->dirfd, o->name, o->flags, o->mode);
}

static int opened(const struct opening *o)
{
	char path[FAULT_PATH];
	struct fault f;
	struct stat st;
	bool was;
	int fd;

	fault_path(o->dirfd, o->name, path);
	if (refused(o->flags & O_CREAT ? "create" : "open", path, &f))
		return -1;
	if (!record_on() || !(o->flags & (O_CREAT | O_TRUNC)))
		return do_open(o);
	record_begin();
	was = fstatat(o->dirfd, o->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	fd = do_open(o);
	if (fd >= 0 && !was)
		record_call("create", path, NULL, 0, NULL, 0);
	else if (fd >= 0 && (o->flags & O_TRUNC))
		record_call("truncate", path, NULL, 0, NULL, 0);
	record_end();
	return fd;
}

static mode_t mode_of(int flags, va_list args)
{
	return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(args, unsigned) : 0;
}

int open(const char *name, int flags, ...)
{
	struct opening o = { .dirfd = AT_FDCWD, .name = name, .flags = flags };
	const char *boot = strcmp(name, BOOT_ID) == 0 ? getenv("FAULT_BOOT_ID") : NULL;
	va_list args;

	va_start(args, flags);
	o.mode = mode_of(flags, args);
	va_end(args);
	if (boot)
		o.name = boot;
	return opened(&o);
}

int openat(int dirfd, const char *name, int flags, ...)
{
	struct opening o = { .dirfd = dirfd, .name = name, .flags = flags };
	va_list args;

	va_start(args, flags);
	o.mode = mode_of(flags, args);
	va_end(args);
	return opened(&o);
}

int __openat_2(int dirfd, const char *name, int flags)
{
	struct opening o = { .dirfd = dirfd, .name = name, .flags = flags };

	return opened(&o);
}

/* openat2(2) has no function of its own. All others get their six arguments as they are. */
long syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (size_t i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_openat2) {
		struct opening o = { .dirfd = (int)a[0], .name = (const char *)a[1], .how = (const void *)a[2],
				     .size = a[3] };
		uint64_t flags;

		memcpy(&flags, o.how, sizeof(flags));
		o.flags = (int)flags;
		return opened(&o);
	}
	return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* --- questions --- */

int lstat(const char *name, struct stat *st)
{
	char path[FAULT_PATH];
	struct fault f;

	fault_path(AT_FDCWD, name, path);
	return refused("lstat", path, &f) ? -1 : REAL(lstat)(name, st);
}

int fstatvfs(int fd, struct statvfs *st)
{
	char path[FAULT_PATH];
	struct fault f;

	fault_path(fd, NULL, path);
	return refused("fstatvfs", path, &f) ? -1 : REAL(fstatvfs)(fd, st);
}

int fstatfs(int fd, struct statfs *st)
{
	char path[FAULT_PATH];
	struct fault f;
	int rc;

	fault_path(fd, NULL, path);
	if (refused("fstatfs", path, &f))
		return -1;
	rc = REAL(fstatfs)(fd, st);
	if (rc == 0 && f.value >= 0)
		st->f_type = (__typeof__(st->f_type))f.value;
	return rc;
}

/* --- messages --- */

ssize_t send(int fd, const void *data, size_t size, int flags)
{
	ssize_t n;

	record_begin();
	record_call("send", NULL, NULL, 0, data, size < SAID_MAX ? size : SAID_MAX);
	n = REAL(send)(fd, data, size, flags);
	record_end();
	return n;
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t n;

	record_begin();
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		record_call("send", NULL, NULL, 0, msg->msg_iov[i].iov_base,
			    msg->msg_iov[i].iov_len < SAID_MAX ? msg->msg_iov[i].iov_len : SAID_MAX);
	n = REAL(sendmsg)(fd, msg, flags);
	record_end();
	return n;
}

/* The mover gets its descriptors so; later it can no more ask what they are. */
ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t n = REAL(recvmsg)(fd, msg, flags);
	int saved = errno, got;
	struct cmsghdr *c;

	for (c = n >= 0 ? CMSG_FIRSTHDR(msg) : NULL; c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + CMSG_LEN(0) + sizeof(got) <= c->cmsg_len; at += sizeof(got)) {
			memcpy(&got, CMSG_DATA(c) + at, sizeof(got));
			fault_path_keep(got);
		}
	}
	errno = saved;
	return n;
}
