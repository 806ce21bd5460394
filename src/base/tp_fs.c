/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_fs.c - Files beneath a directory descriptor: opening, folders, locks, removal */
#include "tp_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tp_cleanup.h"

/* openat2() asks for a repetition while folders are being renamed. */
#define OPENAT2_TRIES 16
/* Passes over a folder that somebody fills while it is being removed. */
#define REMOVE_PASSES 4
#define LOCK_LINE_MAX 128

bool tp_name_ok(const char *name)
{
	size_t n;

	if (!name || name[0] == '.' || name[0] == '-')
		return false;
	n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
	return n >= 1 && n <= TP_NAME_MAX && !name[n];
}

int tp_open_dir(const char *path, struct tp_error *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		tp_fail_sys(err, errno, "open folder %s", path);
	return fd;
}

/* Copies the component at *p into name and moves *p to the next one. False, errno: none or too long. */
static bool next_component(const char **p, char name[NAME_MAX + 1])
{
	size_t n;

	*p += strspn(*p, "/");
	n = strcspn(*p, "/");
	if (n == 0 || n > NAME_MAX) {
		errno = n ? ENAMETOOLONG : ENOENT;
		return false;
	}
	memcpy(name, *p, n);
	name[n] = 0;
	*p += n;
	*p += strspn(*p, "/");
	return true;
}

static bool goes_up(const char *path)
{
	size_t n;

	for (; *path; path += n, path += strspn(path, "/")) {
		n = strcspn(path, "/");
		if (n == 2 && path[0] == '.' && path[1] == '.')
			return true;
	}
	return false;
}

/* For kernels without openat2(2): component by component, never through a symbolic link. */
static int open_walk(int dirfd, const char *path, int flags, mode_t mode)
{
	bool folder = path[0] && path[strlen(path) - 1] == '/';
	tp_autoclose int at = -1;
	char name[NAME_MAX + 1];
	struct stat st;
	int from = dirfd, fd;

	for (;;) {
		if (!next_component(&path, name))
			return -1;
		if (!*path)
			break;
		fd = openat(from, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return -1;
		tp_close(&at);
		at = from = fd;
	}
	if (folder)
		flags |= O_DIRECTORY;
	fd = openat(from, name, flags | O_NOFOLLOW, mode);
	/* O_PATH with O_NOFOLLOW opens the link itself. */
	if (fd >= 0 && (flags & O_PATH) && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
		tp_close(&fd);
		errno = ELOOP;
	}
	return fd;
}

static int open_beneath(int dirfd, const char *path, int flags, mode_t mode)
{
	static atomic_bool missing;
	struct open_how how = {
		.flags = (uint64_t)(unsigned)flags,
		.mode = (flags & O_CREAT) ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	int fd = -1, tries;

	for (tries = 0; tries < OPENAT2_TRIES && !atomic_load(&missing); tries++) {
		fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
		if (fd < 0 && errno == ENOSYS)
			atomic_store(&missing, true);
		else if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			return fd;
	}
	return atomic_load(&missing) ? open_walk(dirfd, path, flags, mode) : fd;
}

int tp_openat(int dirfd, const char *path, int flags, mode_t mode, struct tp_error *err)
{
	/* openat2 refuses flags that mean nothing together with O_PATH. */
	int fd = -1, extra = (flags & O_PATH) ? 0 : O_NOCTTY;

	/* RESOLVE_BENEATH would allow "a/..": nothing of ours writes that. */
	if (path[0] == '/' || goes_up(path))
		errno = EXDEV;
	else
		fd = open_beneath(dirfd, path, flags | O_CLOEXEC | extra, mode);
	if (fd < 0)
		tp_fail_sys(err, errno, "open %s", path);
	return fd;
}

/* One level of tp_mkdirs(): O_PATH for what lies on the way, a readable one at the end. */
static int enter_or_make(int at, const char *name, bool last)
{
	int flags = (last ? O_RDONLY : O_PATH) | O_DIRECTORY | O_CLOEXEC;
	int fd = openat(at, name, flags);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(at, name, 0700) != 0 && errno != EEXIST)
		return -1;
	return openat(at, name, flags | O_NOFOLLOW);
}

int tp_mkdirs(const char *path, struct tp_error *err)
{
	tp_autoclose int at = open(path[0] == '/' ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[NAME_MAX + 1];
	const char *p = path;
	int fd;

	while (at >= 0 && *(p + strspn(p, "/"))) {
		if (!next_component(&p, name)) {
			tp_close(&at);
			break;
		}
		fd = enter_or_make(at, name, !*p);
		tp_close(&at);
		at = fd;
	}
	if (at < 0 || !path[0])
		return tp_fail_sys(err, path[0] ? errno : ENOENT, "make folder %s", path), -1;
	return TP_STEAL_FD(at);
}

int tp_mkdir_open(int dirfd, const char *name, struct tp_error *err)
{
	if (name[0] == '/' || strchr(name, '/') || goes_up(name)) {
		tp_fail_sys(err, EXDEV, "make folder %s", name);
		return -1;
	}
	if (mkdirat(dirfd, name, 0700) != 0 && errno != EEXIST) {
		tp_fail_sys(err, errno, "make folder %s", name);
		return -1;
	}
	return tp_openat(dirfd, name, O_RDONLY | O_DIRECTORY, 0, err);
}

int tp_open_parent(int dirfd, const char *path, const char **name, struct tp_error *err)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	int fd;

	*name = slash ? slash + 1 : path;
	if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0) {
		tp_fail(err, TP_EARG, "%s names no file", path);
		return -1;
	}
	if (slash == path) {
		tp_fail_sys(err, EXDEV, "open %s", path);
		return -1;
	}
	if (slash && (size_t)(slash - path) >= sizeof(parent)) {
		tp_fail_sys(err, ENAMETOOLONG, "open %s", path);
		return -1;
	}
	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1,
		 slash ? path : ".");
	fd = tp_openat(dirfd, parent, O_RDONLY | O_DIRECTORY, 0, err);
	return fd;
}

/* Unlinks the plain files of an open folder. False: errno, or a folder's name in *inner. */
static bool unlink_all(DIR *dir, char inner[NAME_MAX + 1])
{
	struct dirent *e;

	for (errno = 0; (e = readdir(dir)); errno = 0) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(dir), e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno == EISDIR || errno == EPERM)
			snprintf(inner, NAME_MAX + 1, "%s", e->d_name);
		return false;
	}
	return errno == 0;
}

/* Empties and removes parent/name, whose open folder is taken over. */
static bool remove_open_dir(int parent, const char *name, DIR *dir, struct tp_error *err)
{
	char inner[NAME_MAX + 1] = "";
	int pass;

	for (pass = 0; pass < REMOVE_PASSES; pass++) {
		if (!unlink_all(dir, inner)) {
			if (inner[0])
				tp_fail_sys(err, errno, "remove %s/%s", name, inner);
			else
				tp_fail_sys(err, errno, "read folder %s", name);
			return false;
		}
		if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return true;
		if (errno != ENOTEMPTY && errno != EEXIST)
			break;
		rewinddir(dir);
	}
	return tp_fail_sys(err, errno, "remove folder %s", name);
}

bool tp_remove_dir(int dirfd, const char *name, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autoclose int parent = -1, fd = -1;
	const char *last;
	DIR *dir;
	bool ok;

	parent = tp_open_parent(dirfd, name, &last, &why);
	if (parent >= 0)
		fd = tp_openat(parent, last, O_RDONLY | O_DIRECTORY, 0, &why);
	if (fd < 0) {
		if (why.sys == ENOENT)
			return true;
		if (err && err->code == TP_OK)
			*err = why;
		return false;
	}
	dir = fdopendir(fd);
	if (!dir)
		return tp_fail_sys(err, errno, "read folder %s", name);
	fd = -1;
	ok = remove_open_dir(parent, last, dir, err);
	closedir(dir);
	return ok;
}

int tp_lock_file(int dirfd, const char *name, struct tp_error *err)
{
	tp_autoclose int fd = tp_openat(dirfd, name, O_RDWR | O_CREAT, 0600, err);
	char line[LOCK_LINE_MAX];
	size_t digits;
	ssize_t n;
	int rc;

	if (fd < 0)
		return -1;
	do {
		rc = flock(fd, LOCK_EX | LOCK_NB);
	} while (rc != 0 && errno == EINTR);
	if (rc == 0)
		return TP_STEAL_FD(fd);
	if (errno != EWOULDBLOCK) {
		tp_fail_sys(err, errno, "lock %s", name);
		return -1;
	}
	n = pread(fd, line, sizeof(line) - 1, 0);
	line[n > 0 ? n : 0] = 0;
	line[strcspn(line, "\n")] = 0;
	/* "PID BOOT-ID": the boot is for us alone. */
	digits = strspn(line, "0123456789");
	if (digits && line[digits] == ' ')
		line[digits] = 0;
	tp_fail(err, TP_ESTATE, "%s is locked by another process (%s%s)", name, digits ? "pid " : "",
		line[0] ? line : "unnamed");
	return -1;
}

int tp_fd_safe(int fd)
{
	int safe = fd;

	if (fd < 0)
		return -1;
	if (fd <= STDERR_FILENO) {
		safe = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		tp_close(&fd);
	} else if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
		tp_close(&safe);
	}
	return safe;
}
