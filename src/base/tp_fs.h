/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tp_fs.h - Files beneath a directory descriptor, and durable replacement
 *
 * All paths are relative to dirfd and must stay beneath it: openat2(2) with
 * RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS|RESOLVE_NO_MAGICLINKS, with a component
 * walk by O_NOFOLLOW where the kernel has no openat2. These functions block:
 * on the event loop they are for start-up only.
 */
#ifndef TP_FS_H
#define TP_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tp_error.h"

/* 1..64 of [A-Za-z0-9_.-], not starting with '.' or '-' (interface.md). */
#define TP_NAME_MAX 64
bool tp_name_ok(const char *name);

int tp_open_dir(const char *path, struct tp_error *err);			/* O_PATH-free, O_DIRECTORY */
int tp_openat(int dirfd, const char *path, int flags, mode_t mode, struct tp_error *err);
/* mkdir -p with mode 0700 for what is missing; returns a descriptor of the last folder. */
int tp_mkdirs(const char *path, struct tp_error *err);
/* mkdirat (0700) if missing and open. */
int tp_mkdir_open(int dirfd, const char *name, struct tp_error *err);
/* Opens the folder that holds path; *name is path's last component (points into path). */
int tp_open_parent(int dirfd, const char *path, const char **name, struct tp_error *err);
/* Whole file, NUL-terminated, at most max bytes (else TP_ELIMIT); the caller frees. */
char *tp_read_file(int dirfd, const char *path, size_t max, size_t *len, struct tp_error *err);
/* Reads what /proc and the like give by absolute path. */
char *tp_read_path(const char *path, size_t max, size_t *len, struct tp_error *err);
/*
 * Replaces path by the data: temporary file beside it (O_TMPFILE is not used: rename replaces
 * atomically), write, fsync (if sync), rename, fsync of the folder (if sync). 0600.
 */
bool tp_replace_file(int dirfd, const char *path, const void *data, size_t n, bool sync,
		     struct tp_error *err);
bool tp_write_all(int fd, const void *data, size_t n, struct tp_error *err);
bool tp_pwrite_all(int fd, const void *data, size_t n, off_t at, struct tp_error *err);
bool tp_pread_all(int fd, void *data, size_t n, off_t at, struct tp_error *err);
bool tp_fsync(int fd, const char *what, struct tp_error *err);
/* Removes a folder and the plain files in it, one level; absent is success. */
bool tp_remove_dir(int dirfd, const char *name, struct tp_error *err);
/* flock LOCK_EX|LOCK_NB on dirfd/name (created). On conflict TP_ESTATE with the file's first line. */
int tp_lock_file(int dirfd, const char *name, struct tp_error *err);
/* Moves the caller's descriptor above 2 and sets CLOEXEC. */
int tp_fd_safe(int fd);

#endif
