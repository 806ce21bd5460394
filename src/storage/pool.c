/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool.c - Pools: opened, still there, closed */
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "pool_open.h"
#include "pool_priv.h"

/* ---- opening ---- */

/* Who else may write into the pool's folder could replace images under us. */
static bool private_enough(const struct pool *p, const struct stat *st, struct tp_error *err)
{
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return tp_fail_class(err, TP_ESYS, "PermissionDenied",
				     "pool \"%s\": %s belongs to user %u", p->name, p->path,
				     (unsigned)st->st_uid);
	if (st->st_mode & S_IWOTH)
		return tp_fail_class(err, TP_ESYS, "PermissionDenied",
				     "pool \"%s\": %s can be written by everybody (mode %04o)", p->name,
				     p->path, (unsigned)st->st_mode & 07777);
	return true;
}

/* The new folder is durable once its parent is. */
static bool make_folder(struct pool *p, bool all, struct tp_error *err)
{
	tp_autofree char *copy = strdup(p->path);
	tp_autoclose int fd = -1, parent = -1;
	char *above = copy ? dirname(copy) : NULL;

	if (!copy)
		return tp_fail_nomem(err);
	if (!all && access(above, F_OK) != 0)
		return tp_fail_sys(err, errno, "pool \"%s\": the folder %s, in which it would be made", p->name,
				   above);
	fd = tp_mkdirs(p->path, err);
	if (fd < 0)
		return tp_prefix(err, "pool \"%s\"", p->name);
	p->made = true;
	parent = tp_open_dir(above, err);
	return parent >= 0 && tp_fsync(parent, p->path, err);
}

static bool open_folder(struct pool *p, enum pool_opening_mode mode, struct tp_error *err)
{
	struct stat st;

	if (lstat(p->path, &st) != 0) {
		if (errno == ENOENT && mode == POOL_KNOWN)
			return tp_fail(err, TP_ESYS, "pool \"%s\": %s, where it was before, does not exist: its file "
				       "system is not mounted? To begin anew make the folder with an empty file "
				       POOL_OWNER_FILE, p->name, p->path);
		if (errno != ENOENT || mode == POOL_FIND)
			return tp_fail_sys(err, errno, "pool \"%s\": %s", p->name, p->path);
		if (!make_folder(p, mode == POOL_MAKE_ALL, err))
			return false;
	} else if (S_ISLNK(st.st_mode)) {
		return tp_fail(err, TP_ESYS, "pool \"%s\": %s is a symbolic link; name the folder itself",
			       p->name, p->path);
	} else if (!S_ISDIR(st.st_mode)) {
		return tp_fail(err, TP_ESYS, "pool \"%s\": %s is not a folder", p->name, p->path);
	}
	p->dirfd = open(p->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (p->dirfd < 0 || fstat(p->dirfd, &st) != 0)
		return tp_fail_sys(err, errno, "pool \"%s\": open %s", p->name, p->path);
	p->dev = st.st_dev;
	p->ino = st.st_ino;
	return private_enough(p, &st, err);
}

/* What a lost mount leaves bare has no owner file. */
static bool known(const struct pool *p, struct tp_error *err)
{
	if (faccessat(p->dirfd, POOL_OWNER_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return true;
	return tp_fail(err, TP_ESYS, "pool \"%s\": %s has no file " POOL_OWNER_FILE ": its file system is not "
		       "mounted, or this is another folder. To begin anew make an empty one", p->name, p->path);
}

static bool settle(struct pool *p, const struct pool_opening *how, struct tp_error *err)
{
	struct pool_place place;

	if (how->mode == POOL_KNOWN && !known(p, err))
		return false;
	if (!pool_place_of(p->dirfd, &place, err) ||
	    !pool_place_free(p->path, &place, how->others, how->n_others, err) ||
	    !pool_place_no_pool_above(p->dirfd, p->path, err))
		return tp_prefix(err, "pool \"%s\"", p->name);
	return true;
}

struct pool *pool_open_as(const struct pool_opening *how, struct tp_error *err)
{
	const char *name = how->name, *path = how->path;
	struct pool *p;

	if (!tp_name_ok(name) || !path || path[0] != '/') {
		tp_fail(err, TP_EARG, "pool \"%s\": a name and an absolute path are needed",
			name ? name : "");
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return tp_fail_nomem(err), NULL;
	p->dirfd = p->lockfd = -1;
	p->quota = how->quota;
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->path = strdup(path);
	if (!p->path) {
		free(p);
		return tp_fail_nomem(err), NULL;
	}
	/* "/pool/" would have lstat() follow a link. */
	for (size_t n = strlen(p->path); n > 1 && p->path[n - 1] == '/'; n--)
		p->path[n - 1] = 0;
	if (open_folder(p, how->mode, err) && settle(p, how, err) && pool_lock(p, how->instance, err))
		return p;
	pool_unmake(p);
	return NULL;
}

struct pool *pool_open(const char *name, const char *path, uint64_t quota, const char *instance,
		       bool create, struct tp_error *err)
{
	struct pool_opening how = { .name = name, .path = path, .quota = quota, .instance = instance,
				    .mode = create ? POOL_MAKE_ALL : POOL_FIND };

	return pool_open_as(&how, err);
}

/* Only what is empty goes, and an owner file only while its lock is ours. */
void pool_unmake(struct pool *p)
{
	if (p && p->made_owner)
		unlinkat(p->dirfd, POOL_OWNER_FILE, 0);
	if (p && p->made)
		rmdir(p->path);
	pool_close(p);
}

void pool_close(struct pool *p)
{
	if (!p)
		return;
	tp_close(&p->lockfd);
	tp_close(&p->dirfd);
	free(p->promises);
	free(p->path);
	free(p);
}

const char *pool_name(const struct pool *p)
{
	return p->name;
}

const char *pool_path(const struct pool *p)
{
	return p->path;
}

int pool_dirfd(const struct pool *p)
{
	return p->dirfd;
}

void pool_set_quota(struct pool *p, uint64_t quota)
{
	p->quota = quota;
}

bool pool_where(const struct pool *p, struct pool_place *place, struct tp_error *err)
{
	return pool_place_of(p->dirfd, place, err);
}

bool pool_present(const struct pool *p, struct tp_error *err)
{
	struct stat st;

	if (lstat(p->path, &st) != 0)
		return tp_fail_sys(err, errno, "pool \"%s\": %s", p->name, p->path);
	if (st.st_dev != p->dev || st.st_ino != p->ino)
		return tp_fail(err, TP_ESYS, "pool \"%s\": %s is no longer the folder that was opened",
			       p->name, p->path);
	return true;
}

bool pool_writable(const struct pool *p, struct tp_error *err)
{
	struct statvfs vfs;

	if (!pool_present(p, err))
		return false;
	if (p->read_only || (fstatvfs(p->dirfd, &vfs) == 0 && (vfs.f_flag & ST_RDONLY)))
		return tp_fail_sys(err, EROFS, "pool \"%s\" (%s) cannot be written", p->name, p->path);
	return true;
}
