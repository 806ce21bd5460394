/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool.c - Pools: opening, room, quota
 *
 * Room is what the file system has, less what was promised to images that are being written and
 * whose blocks it could not allocate for us (pool_image.c allocates where it can).
 */
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"
#include "pool_priv.h"

#define FS_MAGIC_XFS 0x58465342u
#define FS_MAGIC_ZFS 0x2fc12fc1u
#define PROMISES_MAX 1024u		/* images in the making at one time */

static const struct {
	uint32_t magic;
	const char *name;
	bool guaranteed;	/* fallocate(2) reserves what later writes need */
} filesystems[] = {
	{ EXT4_SUPER_MAGIC, "ext4", true },
	{ FS_MAGIC_XFS, "xfs", true },
	{ TMPFS_MAGIC, "tmpfs", true },
	{ BTRFS_SUPER_MAGIC, "btrfs", false },
	{ NFS_SUPER_MAGIC, "nfs", false },
	{ OVERLAYFS_SUPER_MAGIC, "overlay", false },
	{ FS_MAGIC_ZFS, "zfs", false },
};

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
static bool make_folder(const struct pool *p, struct tp_error *err)
{
	tp_autofree char *copy = strdup(p->path);
	tp_autoclose int fd = -1, parent = -1;

	if (!copy)
		return tp_fail_nomem(err);
	fd = tp_mkdirs(p->path, err);
	if (fd < 0)
		return tp_prefix(err, "pool \"%s\"", p->name);
	parent = tp_open_dir(dirname(copy), err);
	return parent >= 0 && tp_fsync(parent, p->path, err);
}

static bool open_folder(struct pool *p, bool create, struct tp_error *err)
{
	struct stat st;

	if (lstat(p->path, &st) != 0) {
		if (errno != ENOENT || !create)
			return tp_fail_sys(err, errno, "pool \"%s\": %s", p->name, p->path);
		if (!make_folder(p, err))
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

struct pool *pool_open(const char *name, const char *path, uint64_t quota, const char *instance,
		       bool create, struct tp_error *err)
{
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
	p->quota = quota;
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->path = strdup(path);
	if (!p->path) {
		tp_fail_nomem(err);
		goto error;
	}
	/* "/pool/" would have lstat() follow a link. */
	for (size_t n = strlen(p->path); n > 1 && p->path[n - 1] == '/'; n--)
		p->path[n - 1] = 0;
	if (open_folder(p, create, err) && pool_lock(p, instance, err))
		return p;
error:
	pool_close(p);
	return NULL;
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

/* ---- promises ---- */

static struct pool_promise *find_promise(const struct pool *p, const char *vm, const char *id)
{
	for (size_t i = 0; i < p->n_promises; i++) {
		if (strcmp(p->promises[i].id, id) == 0 && strcmp(p->promises[i].vm, vm) == 0)
			return &p->promises[i];
	}
	return NULL;
}

bool pool_promise(struct pool *p, const char *vm, const char *id, uint64_t bytes,
		  struct tp_error *err)
{
	struct pool_promise *more, *one;

	if (p->n_promises >= PROMISES_MAX)
		return tp_fail(err, TP_ELIMIT, "pool \"%s\": %u images in the making", p->name,
			       PROMISES_MAX);
	more = reallocarray(p->promises, p->n_promises + 1, sizeof(*more));
	if (!more)
		return tp_fail_nomem(err);
	p->promises = more;
	one = &more[p->n_promises++];
	snprintf(one->vm, sizeof(one->vm), "%s", vm);
	snprintf(one->id, sizeof(one->id), "%s", id);
	one->bytes = bytes;
	return true;
}

void pool_promise_drop(struct pool *p, const char *vm, const char *id)
{
	struct pool_promise *one = find_promise(p, vm, id);

	if (one)
		*one = p->promises[--p->n_promises];
}

/* What has been written of a promise is in the file system's own figures already. */
static uint64_t outstanding(const struct pool *p)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < p->n_promises; i++) {
		const struct pool_promise *one = &p->promises[i];
		uint64_t bytes, allocated;

		pool_image_usage(p, one->vm, one->id, &bytes, &allocated);
		if (allocated < one->bytes && !tp_add(sum, one->bytes - allocated, &sum))
			return UINT64_MAX;
	}
	return sum;
}

/* ---- room ---- */

static bool fs_name(const struct pool *p, struct pool_space *space, struct tp_error *err)
{
	struct statfs fs;

	if (fstatfs(p->dirfd, &fs) != 0)
		return tp_fail_sys(err, errno, "pool \"%s\": statfs of %s", p->name, p->path);
	snprintf(space->fs, sizeof(space->fs), "%" PRIx32, (uint32_t)fs.f_type);
	for (size_t i = 0; i < TP_N(filesystems); i++) {
		if (filesystems[i].magic != (uint32_t)fs.f_type)
			continue;
		snprintf(space->fs, sizeof(space->fs), "%s", filesystems[i].name);
		space->guaranteed = filesystems[i].guaranteed;
	}
	return true;
}

/* A tmpfs without a limit, ramfs: no size at all; the numbers must fit JSON. */
static bool fs_room(const struct pool *p, struct pool_space *space, struct tp_error *err)
{
	struct statvfs vfs;
	uint64_t free_blocks;

	if (fstatvfs(p->dirfd, &vfs) != 0)
		return tp_fail_sys(err, errno, "pool \"%s\": statvfs of %s", p->name, p->path);
	free_blocks = geteuid() == 0 ? vfs.f_bfree : vfs.f_bavail;
	if (vfs.f_blocks == 0 || !tp_mul(vfs.f_blocks, vfs.f_frsize, &space->total) ||
	    !tp_mul(free_blocks, vfs.f_frsize, &space->available) || space->total > INT64_MAX)
		space->total = space->available = INT64_MAX;
	space->read_only = p->read_only || (vfs.f_flag & ST_RDONLY);
	return true;
}

static uint64_t used_by_vm(const struct pool *p, const char *vm)
{
	TP_CLEANUP(pool_names_free) struct pool_names ids = { .n = 0 };
	struct tp_error ignored = TP_ERROR_INIT;
	uint64_t bytes, allocated, sum = 0;

	/* What is no folder of images has none. */
	pool_names(p->dirfd, vm, pool_image_id_ok, &ids, &ignored);
	for (size_t i = 0; i < ids.n; i++) {
		pool_image_usage(p, vm, ids.name[i], &bytes, &allocated);
		sum += allocated;
	}
	return sum;
}

static bool used_by_images(const struct pool *p, uint64_t *used, struct tp_error *err)
{
	TP_CLEANUP(pool_names_free) struct pool_names vms = { .n = 0 };

	*used = 0;
	if (!pool_names(p->dirfd, ".", tp_name_ok, &vms, err))
		return false;
	for (size_t i = 0; i < vms.n; i++)
		*used += used_by_vm(p, vms.name[i]);
	return true;
}

bool pool_space(const struct pool *p, struct pool_space *space, struct tp_error *err)
{
	struct pool_space found = { .quota = p->quota };

	if (!pool_present(p, err) || !fs_name(p, &found, err) || !fs_room(p, &found, err) ||
	    !used_by_images(p, &found.used, err))
		return false;
	found.reserved = outstanding(p);
	*space = found;
	return true;
}

bool pool_fail_space(const struct pool *p, uint64_t required, uint64_t available,
		     const char *of_what, struct pool_shortage *shortage, struct tp_error *err)
{
	char need[TP_SIZE_TEXT], have[TP_SIZE_TEXT];

	if (shortage)
		*shortage = (struct pool_shortage){ required, available };
	return tp_fail_class(err, TP_ESYS, "InsufficientSpace",
			     "%s %s (%" PRIu64 " bytes) required, %s (%" PRIu64
			     " bytes) available in pool \"%s\", %s", of_what,
			     tp_size_format(required, need), required,
			     tp_size_format(available, have), available, p->name, p->path);
}

bool pool_fail(const struct pool *p, const struct tp_error *why, uint64_t required,
	       struct pool_shortage *shortage, struct tp_error *err)
{
	struct pool_space space = { .available = 0 };
	struct tp_error ignored = TP_ERROR_INIT;

	if (why->sys == ENOSPC || why->sys == EDQUOT) {
		fs_room(p, &space, &ignored);
		return pool_fail_space(p, required, space.available,
				       why->sys == EDQUOT ? "disk quota reached:" : "not enough room:",
				       shortage, err);
	}
	if (err && err->code == TP_OK)
		*err = *why;
	return tp_prefix(err, "pool \"%s\" (%s)", p->name, p->path);
}

static bool within_file_limit(const struct pool *p, uint64_t bytes, struct pool_shortage *shortage,
			      struct tp_error *err)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
	    bytes <= limit.rlim_cur)
		return true;
	return pool_fail_space(p, bytes, limit.rlim_cur, "limit on file sizes (RLIMIT_FSIZE):",
			       shortage, err);
}

bool pool_room(const struct pool *p, uint64_t bytes, struct pool_shortage *shortage,
	       struct tp_error *err)
{
	uint64_t taken, left, required;
	struct pool_space space;

	if (shortage)
		*shortage = (struct pool_shortage){ 0, 0 };
	if (!pool_writable(p, err) || !pool_space(p, &space, err))
		return false;
	if (!tp_add(bytes, POOL_SLACK, &required) || required > INT64_MAX)
		return tp_fail(err, TP_EARG, "pool \"%s\": an image of %" PRIu64 " bytes", p->name,
			       bytes);
	if (!within_file_limit(p, bytes, shortage, err))
		return false;
	if (!tp_add(space.used, space.reserved, &taken))
		taken = UINT64_MAX;
	left = taken < p->quota ? p->quota - taken : 0;
	if (p->quota && bytes > left)
		return pool_fail_space(p, bytes, left, "quota of the pool:", shortage, err);
	left = space.reserved < space.available ? space.available - space.reserved : 0;
	if (required > left)
		return pool_fail_space(p, required, left, "not enough room:", shortage, err);
	return true;
}
