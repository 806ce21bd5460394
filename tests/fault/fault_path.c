/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fault_path.c - What a descriptor is open on; the library's shared memory */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEPT 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *kept[KEPT];

static bool read_link(int fd, char path[FAULT_PATH])
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, FAULT_PATH - 1);
	path[n < 0 ? 0 : n] = '\0';
	return n >= 0;
}

void fault_path_keep(int fd)
{
	char path[FAULT_PATH];

	if (fd < 0 || fd >= KEPT || !read_link(fd, path) || path[0] != '/')
		return;
	pthread_mutex_lock(&lock);
	free(kept[fd]);
	kept[fd] = strdup(path);
	pthread_mutex_unlock(&lock);
}

void fault_path_drop(int fd)
{
	if (fd < 0 || fd >= KEPT)
		return;
	pthread_mutex_lock(&lock);
	free(kept[fd]);
	kept[fd] = NULL;
	pthread_mutex_unlock(&lock);
}

void fault_path(int dirfd, const char *name, char path[FAULT_PATH])
{
	int saved = errno;
	size_t n;

	path[0] = '\0';
	if (name && name[0] == '/') {
		snprintf(path, FAULT_PATH, "%s", name);
		return;
	}
	if (dirfd == AT_FDCWD) {
		if (!getcwd(path, FAULT_PATH))
			path[0] = '\0';
	} else if (!read_link(dirfd, path) && dirfd >= 0 && dirfd < KEPT) {
		pthread_mutex_lock(&lock);
		if (kept[dirfd])
			snprintf(path, FAULT_PATH, "%s", kept[dirfd]);
		pthread_mutex_unlock(&lock);
	}
	n = strlen(path);
	if (name && n)
		snprintf(path + n, FAULT_PATH - n, "/%s", name);
	errno = saved;
}

void *fault_map(const char *variable, size_t *size)
{
	const char *file = getenv(variable);
	/* Not open(): that is the library's own. */
	int fd = file ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0) : -1;
	struct stat st;
	void *map = MAP_FAILED;

	if (fd >= 0 && fstat(fd, &st) == 0) {
		*size = (size_t)st.st_size;
		map = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	return map == MAP_FAILED ? NULL : map;
}
