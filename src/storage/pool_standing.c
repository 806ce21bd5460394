/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_standing.c - Room that is held for a VM before it is hibernated
 *
 * Theory of operation
 *
 * <vm>/.standing/ is the folder of an image that does not exist yet: memory.zst with its blocks
 * allocated, and the spare blocks. A save renames the folder to the image's id, so at no instant could
 * somebody else take the room, and a pool without one free block or inode will do; a save that is
 * undone renames it back. There is never more than one: it is one image that is being written.
 *
 * Where the file system does not allocate beforehand the room is a promise of this process: others on
 * that file system do not know of it. The engine makes it again when it has opened the pool.
 *
 * memory.zst is of any length: what a former save wrote, or its end where room was given back (blocks
 * past the end of a file cannot be cut in part). The writer of an image cuts it to its size.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "pool_priv.h"

#define STAT_BLOCK 512			/* unit of st_blocks */
#define MEMORY POOL_STANDING_FOLDER "/" POOL_IMAGE_FILE
#define EXCESS (1u << 20)		/* bytes: less than this is not worth being given back */

static uint64_t allocated_of(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_blocks * STAT_BLOCK
								     : 0;
}

uint64_t pool_standing_allocated(const struct pool *p, const char *vm)
{
	char path[POOL_PATH_MAX];
	struct tp_error ignored = TP_ERROR_INIT;
	tp_autoclose int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", vm, MEMORY);
	fd = tp_openat(p->dirfd, path, O_RDONLY | O_NONBLOCK, 0, &ignored);
	return allocated_of(fd);
}

uint64_t pool_standing(const struct pool *p, const char *vm)
{
	return pool_standing_allocated(p, vm) + pool_promised(p, vm, POOL_STANDING_FOLDER);
}

bool pool_standing_kept(const struct pool *p, const char *vm)
{
	return pool_standing_allocated(p, vm) != 0 && !pool_promised(p, vm, POOL_STANDING_FOLDER);
}

/* ---- taken and given back ---- */

/* The file, made with its folder if need be. */
static int open_or_make(int vmfd, bool *made, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	int fd = tp_openat(vmfd, MEMORY, O_RDWR | O_NONBLOCK, 0, &why);

	*made = fd < 0 && why.sys == ENOENT;
	if (*made) {
		/* A folder without the file was being made, or removed, when its engine died. */
		if (!tp_remove_dir(vmfd, POOL_STANDING_FOLDER, err))
			return -1;
		fd = pool_folder_make(vmfd, POOL_STANDING_FOLDER, err);
	} else if (fd < 0) {
		tp_fail_sys(err, why.sys, "standing room");
	}
	return fd;
}

/*
 * What is allocated past `bytes` is free again. Blocks past the end of a file go only with all that
 * are there, so the file gets that length first; to be cut to the length that it has is what frees them.
 */
static bool cut(int fd, uint64_t bytes)
{
	for (int i = 0; i < 2; i++)
		if (ftruncate(fd, (off_t)bytes) != 0)
			return false;
	return true;
}

/* As it was: an allocation that failed may have taken what there was. */
static void take_back(struct pool *p, int vmfd, const char *vm, int fd, bool made, uint64_t before)
{
	if (made) {
		tp_remove_dir(vmfd, POOL_STANDING_FOLDER, NULL);
		unlinkat(p->dirfd, vm, AT_REMOVEDIR);	/* only if it is empty */
	} else if (allocated_of(fd) > before) {
		cut(fd, before);
	}
}

static bool promise_instead(struct pool *p, int vmfd, const struct pool_demand *d,
			    struct tp_error *err)
{
	tp_remove_dir(vmfd, POOL_STANDING_FOLDER, NULL);
	unlinkat(p->dirfd, d->vm, AT_REMOVEDIR);
	pool_promise_drop(p, d->vm, POOL_STANDING_FOLDER);
	return pool_promise(p, d->vm, POOL_STANDING_FOLDER, d->bytes, err);
}

static bool grow(struct pool *p, int vmfd, const struct pool_demand *d, struct tp_error *err)
{
	bool made, unsupported;
	tp_autoclose int fd = open_or_make(vmfd, &made, err);
	uint64_t before = allocated_of(fd);

	if (fd < 0)
		return false;
	if (!pool_allocate(fd, d->bytes + POOL_SLACK, &unsupported, err)) {
		take_back(p, vmfd, d->vm, fd, made, before);
		return false;
	}
	if (unsupported)
		return promise_instead(p, vmfd, d, err);
	/* Not for the room's sake, which a crash may take, but so that the folder is found and whole. */
	return tp_fsync(fd, MEMORY, err) && tp_fsync(vmfd, d->vm, err) &&
	       tp_fsync(p->dirfd, p->path, err);
}

static bool shrink(int vmfd, uint64_t bytes, struct tp_error *err)
{
	tp_autoclose int fd = tp_openat(vmfd, MEMORY, O_RDWR | O_NONBLOCK, 0, err);

	if (fd < 0)
		return false;
	return cut(fd, bytes) || tp_fail_sys(err, errno, "give back standing room");
}

static bool hold(struct pool *p, const struct pool_demand *d, struct tp_error *err)
{
	uint64_t held = pool_standing_allocated(p, d->vm), want = d->bytes + POOL_SLACK;
	tp_autoclose int vmfd = pool_vm_folder(p, d->vm, err);

	if (vmfd < 0)
		return false;
	if (held > want && held - want >= EXCESS)
		return shrink(vmfd, want, err);
	return held >= want || grow(p, vmfd, d, err);
}

static bool is_as_wanted(const struct pool *p, const struct pool_demand *d)
{
	uint64_t held = pool_standing_allocated(p, d->vm), want = d->bytes + POOL_SLACK;

	if (pool_promised(p, d->vm, POOL_STANDING_FOLDER))
		return pool_promised(p, d->vm, POOL_STANDING_FOLDER) == d->bytes;
	return held >= want && held - want < EXCESS;
}

bool pool_standing_hold(struct pool *p, const struct pool_demand *d, struct pool_shortage *shortage,
			struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;

	if (shortage)
		*shortage = (struct pool_shortage){ .required = 0 };
	if (!tp_name_ok(d->vm))
		return tp_fail(err, TP_EARG, "\"%s\" cannot be the name of a VM", d->vm ? d->vm : "");
	if (!pool_writable(p, err))
		return false;
	/* Looked at often, and as it should be nearly always. */
	if (is_as_wanted(p, d))
		return true;
	if (!pool_room(p, d, shortage, err))
		return false;
	return hold(p, d, &why) || pool_fail(p, &why, d->bytes + POOL_SLACK, shortage, err);
}

bool pool_standing_drop(struct pool *p, const char *vm, struct tp_error *err)
{
	if (!tp_name_ok(vm))
		return tp_fail(err, TP_EARG, "\"%s\" cannot be the name of a VM", vm ? vm : "");
	if (!pool_present(p, err))
		return false;
	pool_promise_drop(p, vm, POOL_STANDING_FOLDER);
	return pool_folder_remove(p, vm, POOL_STANDING_FOLDER, err);
}

/* ---- to an image and back ---- */

int pool_standing_take(struct pool *p, int vmfd, const char *vm, const char *id, bool *absent,
		       struct tp_error *err)
{
	char path[IMAGE_ID_MAX + 1 + sizeof(POOL_IMAGE_FILE)];

	/* Promised room is promised again to the image. */
	pool_promise_drop(p, vm, POOL_STANDING_FOLDER);
	*absent = renameat(vmfd, POOL_STANDING_FOLDER, vmfd, id) != 0;
	if (*absent && errno != ENOENT) {
		*absent = false;
		tp_fail_sys(err, errno, "rename %s to %s", POOL_STANDING_FOLDER, id);
		return -1;
	}
	if (*absent)
		return -1;
	snprintf(path, sizeof(path), "%s/%s", id, POOL_IMAGE_FILE);
	return tp_openat(vmfd, path, O_RDWR, 0, err);
}

static bool is_leftover(const char *name)
{
	static const char *const kept[] = { ".", "..", POOL_IMAGE_FILE, POOL_SPARE_1, POOL_SPARE_2 };

	for (size_t i = 0; i < TP_N(kept); i++)
		if (strcmp(name, kept[i]) == 0)
			return false;
	return true;
}

/* What was written is no image, nor may it be taken for the beginning of the next one. */
static bool wipe(int dir, struct tp_error *err)
{
	static const char zeros[4096];
	tp_autoclose int fd = tp_openat(dir, POOL_IMAGE_FILE, O_RDWR | O_NONBLOCK, 0, err);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0)
		return false;
	if (st.st_size == 0 || fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, st.st_size) == 0)
		return true;
	return tp_pwrite_all(fd, zeros, sizeof(zeros), 0, err);
}

static bool clean(int vmfd, const char *id, struct tp_error *err)
{
	TP_CLEANUP(pool_names_free) struct pool_names left = { .n = 0 };
	tp_autoclose int dir = tp_openat(vmfd, id, O_RDONLY | O_DIRECTORY, 0, err);

	if (dir < 0 || !pool_names(vmfd, id, is_leftover, &left, err))
		return false;
	for (size_t i = 0; i < left.n; i++)
		if (unlinkat(dir, left.name[i], 0) != 0 && errno != ENOENT)
			return tp_fail_sys(err, errno, "remove %s/%s", id, left.name[i]);
	return wipe(dir, err);
}

static bool back_to_standing(struct pool *p, const char *vm, const char *id, struct tp_error *err)
{
	tp_autoclose int vmfd = tp_openat(p->dirfd, vm, O_RDONLY | O_DIRECTORY, 0, err);

	if (vmfd < 0 || !clean(vmfd, id, err))
		return false;
	if (renameat(vmfd, id, vmfd, POOL_STANDING_FOLDER) != 0)
		return tp_fail_sys(err, errno, "rename %s to %s", id, POOL_STANDING_FOLDER);
	return tp_fsync(vmfd, vm, err);
}

bool pool_image_return(struct pool *p, const char *vm, const char *id, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	uint64_t promised = pool_promised(p, vm, id);

	if (!pool_ids_check(vm, id, err) || !pool_present(p, err) ||
	    !pool_manifest_unlink(p, vm, id, err))
		return false;
	pool_promise_drop(p, vm, id);
	/* What cannot stand (there is standing room already, or the folder is not whole) is removed. */
	if (!back_to_standing(p, vm, id, &why) && !pool_folder_remove(p, vm, id, err))
		return false;
	return !promised || pool_promised(p, vm, POOL_STANDING_FOLDER) ||
	       pool_promise(p, vm, POOL_STANDING_FOLDER, promised, err);
}

/* ---- what there is ---- */

static bool list_one(const struct pool *p, const char *vm, json_t *list)
{
	char path[POOL_PATH_MAX];
	uint64_t promised = pool_promised(p, vm, POOL_STANDING_FOLDER);
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", vm, POOL_STANDING_FOLDER);
	if (!promised && fstatat(p->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return true;
	return tp_json_set(list, vm, json_integer((json_int_t)(pool_standing_allocated(p, vm) + promised)));
}

json_t *pool_standing_list(const struct pool *p, struct tp_error *err)
{
	TP_CLEANUP(pool_names_free) struct pool_names vms = { .n = 0 };
	tp_autojson json_t *list = json_object();
	bool ok = list != NULL;

	if (!pool_present(p, err) || !pool_names(p->dirfd, ".", tp_name_ok, &vms, err))
		return NULL;
	for (size_t i = 0; i < vms.n && ok; i++)
		ok = list_one(p, vms.name[i], list);
	/* A promise needs no folder. */
	for (size_t i = 0; i < p->n_promises && ok; i++)
		if (strcmp(p->promises[i].id, POOL_STANDING_FOLDER) == 0)
			ok = list_one(p, p->promises[i].vm, list);
	if (!ok)
		return tp_fail_nomem(err), NULL;
	return TP_STEAL(list);
}
