/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * failcall.c - Makes one file call of a program fail: LD_PRELOAD=failcall.so FAILCALL=FILE PROGRAM
 *
 * FILE holds "CALL NTH ERRNO PART": the NTH CALL (from when FILE appeared) on a path that contains
 * PART fails with ERRNO, once; then FILE.hit appears. Without FILE nothing fails; a FILE that is
 * replaced begins anew. CALL is fsync, fdatasync, write, pwrite, ftruncate, fallocate, mkdirat,
 * renameat or unlinkat. Children of the program do not inherit it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char control[PATH_MAX];
static struct {
	struct stat file;
	char call[16], part[128];
	int nth, error;
	bool done;
} wanted;

static void __attribute__((constructor)) begin(void)
{
	const char *file = getenv("FAILCALL");

	if (file)
		snprintf(control, sizeof(control), "%s", file);
	unsetenv("LD_PRELOAD");
}

/* The control file as it is now; false: there is none, or it was obeyed. */
static bool armed(void)
{
	struct stat st;
	FILE *f;

	if (!control[0] || stat(control, &st) < 0)
		return false;
	if (st.st_ino == wanted.file.st_ino && st.st_mtim.tv_nsec == wanted.file.st_mtim.tv_nsec &&
	    st.st_mtim.tv_sec == wanted.file.st_mtim.tv_sec)
		return !wanted.done;
	f = fopen(control, "re");
	if (!f)
		return false;
	wanted.file = st;
	wanted.done = fscanf(f, "%15s %d %d %127s", wanted.call, &wanted.nth, &wanted.error,
			     wanted.part) != 4;
	fclose(f);
	return !wanted.done;
}

static void path_of(int fd, const char *name, char *path, size_t size)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, size - 1);
	path[n < 0 ? 0 : n] = '\0';
	if (name && strlen(path) + strlen(name) + 2 < size) {
		strcat(path, "/");
		strcat(path, name);
	}
}

/* Whether this call is to fail; errno is set then, and left alone otherwise. */
static bool fails(const char *call, int fd, const char *name)
{
	char path[2 * PATH_MAX], hit[PATH_MAX + 8];
	int saved = errno, mark;
	bool now = false;

	pthread_mutex_lock(&lock);
	if (armed() && strcmp(call, wanted.call) == 0) {
		path_of(fd, name, path, sizeof(path));
		if (strstr(path, wanted.part) && --wanted.nth == 0) {
			now = wanted.done = true;
			saved = wanted.error;
			snprintf(hit, sizeof(hit), "%s.hit", control);
			mark = open(hit, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
			if (mark >= 0) {
				dprintf(mark, "%s %s\n", call, path);
				close(mark);
			}
		}
	}
	pthread_mutex_unlock(&lock);
	errno = saved;
	return now;
}

#define REAL(name) (__extension__(__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int fd)
{
	return fails("fsync", fd, NULL) ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
	return fails("fdatasync", fd, NULL) ? -1 : REAL(fdatasync)(fd);
}

ssize_t write(int fd, const void *data, size_t size)
{
	return fails("write", fd, NULL) ? -1 : REAL(write)(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
	return fails("pwrite", fd, NULL) ? -1 : REAL(pwrite)(fd, data, size, at);
}

int ftruncate(int fd, off_t size)
{
	return fails("ftruncate", fd, NULL) ? -1 : REAL(ftruncate)(fd, size);
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
	return fails("fallocate", fd, NULL) ? -1 : REAL(fallocate)(fd, mode, at, size);
}

int mkdirat(int fd, const char *name, mode_t mode)
{
	return fails("mkdirat", fd, name) ? -1 : REAL(mkdirat)(fd, name, mode);
}

int renameat(int from, const char *old, int to, const char *new)
{
	return fails("renameat", to, new) ? -1 : REAL(renameat)(from, old, to, new);
}

int unlinkat(int fd, const char *name, int flags)
{
	return fails("unlinkat", fd, name) ? -1 : REAL(unlinkat)(fd, name, flags);
}
