/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tp_file.c - Whole files: bounded reading, complete writing, durable replacement
 *
 * Replacement writes ".NAME.new" beside the file and renames it. The name is
 * fixed, so that a crash leaves at most one such file, which the next
 * replacement removes; a file has one writer at a time (its folder is locked).
 */
#include "tp_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tp_buf.h"
#include "tp_cleanup.h"

#define READ_CHUNK 4096

/* Reads fd to its end into buf, whose limit is one byte more than allowed. */
static bool read_all(int fd, const char *what, size_t max, struct tp_buf *buf, struct tp_error *err)
{
	size_t room;
	ssize_t n;

	for (;;) {
		room = max - buf->len + 1;
		if (room > READ_CHUNK)
			room = READ_CHUNK;
		if (!tp_buf_reserve(buf, room))
			return tp_fail_nomem(err);
		n = read(fd, buf->data + buf->len, room);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return tp_fail_sys(err, errno, "read %s", what);
		if (n == 0)
			return true;
		if ((size_t)n > max - buf->len)
			return tp_fail(err, TP_ELIMIT, "%s is larger than %zu bytes", what, max);
		buf->len += (size_t)n;
		buf->data[buf->len] = 0;
	}
}

static char *read_fd(int fd, const char *what, size_t max, size_t *len, struct tp_error *err)
{
	tp_autobuf struct tp_buf buf = TP_BUF_INIT(0);
	struct stat st;
	size_t n;
	char *data;

	if (fstat(fd, &st) != 0)
		return tp_fail_sys(err, errno, "read %s", what), NULL;
	/* A FIFO or a device in a pool could give bytes for ever, or none. */
	if (!S_ISREG(st.st_mode))
		return tp_fail(err, TP_EARG, "%s is not a regular file", what), NULL;
	if (max >= PTRDIFF_MAX)
		max = PTRDIFF_MAX - 1;
	if (!read_all(fd, what, max, &buf, err))
		return NULL;
	n = buf.len;
	data = tp_buf_steal(&buf);
	if (!data)
		return tp_fail_nomem(err), NULL;
	if (len)
		*len = n;
	return data;
}

char *tp_read_file(int dirfd, const char *path, size_t max, size_t *len, struct tp_error *err)
{
	/* Non-blocking: opening a FIFO must not wait for its writer. */
	tp_autoclose int fd = tp_openat(dirfd, path, O_RDONLY | O_NONBLOCK, 0, err);

	return fd < 0 ? NULL : read_fd(fd, path, max, len, err);
}

char *tp_read_path(const char *path, size_t max, size_t *len, struct tp_error *err)
{
	tp_autoclose int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return tp_fail_sys(err, errno, "open %s", path), NULL;
	return read_fd(fd, path, max, len, err);
}

bool tp_write_all(int fd, const void *data, size_t n, struct tp_error *err)
{
	const char *p = data;
	ssize_t done;

	while (n > 0) {
		done = write(fd, p, n);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return tp_fail_sys(err, done < 0 ? errno : EIO, "write");
		p += done;
		n -= (size_t)done;
	}
	return true;
}

static bool range_ok(size_t n, off_t at)
{
	off_t end;

	return at >= 0 && !__builtin_add_overflow(at, n, &end);
}

bool tp_pwrite_all(int fd, const void *data, size_t n, off_t at, struct tp_error *err)
{
	const char *p = data;
	ssize_t done;

	if (!range_ok(n, at))
		return tp_fail_sys(err, EFBIG, "write");
	while (n > 0) {
		done = pwrite(fd, p, n, at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return tp_fail_sys(err, done < 0 ? errno : EIO, "write");
		p += done;
		at += done;
		n -= (size_t)done;
	}
	return true;
}

bool tp_pread_all(int fd, void *data, size_t n, off_t at, struct tp_error *err)
{
	char *p = data;
	ssize_t done;

	if (!range_ok(n, at))
		return tp_fail_sys(err, EFBIG, "read");
	while (n > 0) {
		done = pread(fd, p, n, at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return tp_fail_sys(err, errno, "read");
		if (done == 0)
			return tp_fail(err, TP_ECORRUPT, "the file ends at byte %jd, %zu more expected",
				       (intmax_t)at, n);
		p += done;
		at += done;
		n -= (size_t)done;
	}
	return true;
}

bool tp_fsync(int fd, const char *what, struct tp_error *err)
{
	int rc;

	do {
		rc = fsync(fd);
	} while (rc != 0 && errno == EINTR);
	return rc == 0 || tp_fail_sys(err, errno, "fsync %s", what);
}

static bool write_new(int dir, const char *tmp, const void *data, size_t n, bool sync,
		      struct tp_error *err)
{
	tp_autoclose int fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				     0600);
	int closing;

	if (fd < 0)
		return tp_fail_sys(err, errno, "create %s", tmp);
	if (!tp_write_all(fd, data, n, err) || (sync && !tp_fsync(fd, tmp, err)))
		return false;
	/* Network filesystems report a full disk here. */
	closing = TP_STEAL_FD(fd);
	if (close(closing) != 0 && errno != EINTR)
		return tp_fail_sys(err, errno, "close %s", tmp);
	return true;
}

bool tp_replace_file(int dirfd, const char *path, const void *data, size_t n, bool sync,
		     struct tp_error *err)
{
	tp_autoclose int dir = -1;
	char tmp[NAME_MAX + 1];
	const char *name;

	dir = tp_open_parent(dirfd, path, &name, err);
	if (dir < 0)
		return tp_prefix(err, "replace %s", path);
	if (snprintf(tmp, sizeof(tmp), ".%s.new", name) >= (int)sizeof(tmp))
		return tp_fail_sys(err, ENAMETOOLONG, "replace %s", path);
	if (unlinkat(dir, tmp, 0) != 0 && errno != ENOENT)
		return tp_fail_sys(err, errno, "replace %s: remove %s", path, tmp);
	if (!write_new(dir, tmp, data, n, sync, err)) {
		unlinkat(dir, tmp, 0);
		return tp_prefix(err, "replace %s", path);
	}
	if (renameat(dir, tmp, dir, name) != 0) {
		tp_fail_sys(err, errno, "replace %s: rename", path);
		unlinkat(dir, tmp, 0);
		return false;
	}
	return !sync || tp_fsync(dir, "the folder", err) || tp_prefix(err, "replace %s", path);
}
