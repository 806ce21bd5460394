/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_room.c - Pools: room, quota, promises
 *
 * Room is what the file system has, less what was promised to images that are being written or to
 * VMs that have standing room, and whose blocks it could not allocate for us (pool_image.c and
 * pool_standing.c allocate where they can). Quotas count all that images and standing room take,
 * promised or allocated; a quota below that only refuses what is new.
 */
#include <errno.h>
#include <inttypes.h>
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

uint64_t pool_promised(const struct pool *p, const char *vm, const char *id)
{
	const struct pool_promise *one = find_promise(p, vm, id);

	return one ? one->bytes : 0;
}

static uint64_t add(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return tp_add(a, b, &sum) ? sum : UINT64_MAX;
}

static bool is_standing(const struct pool_promise *one)
{
	return strcmp(one->id, POOL_STANDING_FOLDER) == 0;
}

/* What has been written of a promise is in the file system's own figures already. */
static uint64_t outstanding(const struct pool *p, const struct pool_promise *one)
{
	uint64_t bytes, allocated;

	if (is_standing(one))
		return one->bytes;
	pool_image_usage(p, one->vm, one->id, &bytes, &allocated);
	return allocated < one->bytes ? one->bytes - allocated : 0;
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

static uint64_t used_by_images(const struct pool *p, const char *vm)
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

uint64_t pool_used_by_vm(const struct pool *p, const char *vm)
{
	uint64_t sum;

	if (!tp_name_ok(vm))
		return 0;
	sum = add(used_by_images(p, vm), pool_standing_allocated(p, vm));
	for (size_t i = 0; i < p->n_promises; i++)
		if (strcmp(p->promises[i].vm, vm) == 0)
			sum = add(sum, outstanding(p, &p->promises[i]));
	return sum;
}

static bool look_at_vms(const struct pool *p, struct pool_space *space, struct tp_error *err)
{
	TP_CLEANUP(pool_names_free) struct pool_names vms = { .n = 0 };

	if (!pool_names(p->dirfd, ".", tp_name_ok, &vms, err))
		return false;
	for (size_t i = 0; i < vms.n; i++) {
		space->used += used_by_images(p, vms.name[i]);
		space->standing += pool_standing_allocated(p, vms.name[i]);
	}
	for (size_t i = 0; i < p->n_promises; i++) {
		uint64_t left = outstanding(p, &p->promises[i]);
		uint64_t *of = is_standing(&p->promises[i]) ? &space->standing : &space->reserved;

		*of = add(*of, left);
		space->promised = add(space->promised, left);
	}
	return true;
}

bool pool_space(const struct pool *p, struct pool_space *space, struct tp_error *err)
{
	struct pool_space found = { .quota = p->quota };

	if (!pool_present(p, err) || !fs_name(p, &found, err) || !fs_room(p, &found, err) ||
	    !look_at_vms(p, &found, err))
		return false;
	*space = found;
	return true;
}

bool pool_fail_space(const struct pool *p, uint64_t required, uint64_t available,
		     const char *of_what, struct pool_shortage *shortage, struct tp_error *err)
{
	char need[TP_SIZE_TEXT], have[TP_SIZE_TEXT];

	if (shortage)
		*shortage = (struct pool_shortage){ .required = required, .available = available };
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

/* have: what the VM has standing, which is in `taken` already. */
static bool within_quota(const struct pool *p, const char *whose, uint64_t quota, uint64_t taken,
			 uint64_t bytes, uint64_t have, struct pool_shortage *shortage,
			 struct tp_error *err)
{
	uint64_t left = taken < quota ? quota - taken : 0;

	if (!quota || bytes <= have || bytes - have <= left)
		return true;
	pool_fail_space(p, bytes, add(left, have), whose, shortage, err);
	if (shortage)
		shortage->quota = quota;
	return false;
}

static bool within_quotas(const struct pool *p, const struct pool_demand *d,
			  const struct pool_space *space, uint64_t have,
			  struct pool_shortage *shortage, struct tp_error *err)
{
	uint64_t pool_taken = add(add(space->used, space->standing), space->reserved);
	uint64_t vm_taken = d->quota && d->vm ? add(d->elsewhere, pool_used_by_vm(p, d->vm)) : 0;

	return within_quota(p, "quota of the pool:", p->quota, pool_taken, d->bytes, have, shortage,
			    err) &&
	       within_quota(p, "quota of the VM:", d->vm ? d->quota : 0, vm_taken, d->bytes, have,
			    shortage, err);
}

bool pool_room(const struct pool *p, const struct pool_demand *d, struct pool_shortage *shortage,
	       struct tp_error *err)
{
	uint64_t have = d->vm ? pool_standing(p, d->vm) : 0, left, required;
	struct pool_space space;

	if (shortage)
		*shortage = (struct pool_shortage){ .required = 0 };
	if (!pool_writable(p, err) || !pool_space(p, &space, err))
		return false;
	if (!tp_add(d->bytes, POOL_SLACK, &required) || required > INT64_MAX)
		return tp_fail(err, TP_EARG, "pool \"%s\": an image of %" PRIu64 " bytes", p->name,
			       d->bytes);
	if (!within_file_limit(p, d->bytes, shortage, err) ||
	    !within_quotas(p, d, &space, have, shortage, err))
		return false;
	left = space.promised < space.available ? space.available - space.promised : 0;
	if (required > have && required - have > left)
		return pool_fail_space(p, required, add(left, have), "not enough room:", shortage, err);
	return true;
}
