/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_image.c - Image ids and the folders of images: made, opened, removed
 *
 * Theory of operation
 *
 * <vm>/<id>/ is made with its empty memory.zst, the room that it may need at most, and the spare
 * blocks by which an image can be used when the disk is full (pool_manifest.c); a VM with standing
 * room has all of that already (pool_standing.c), and only its folder is renamed. An image that has no
 * manifest does not exist, so nothing is synced here; whoever writes the manifest syncs the
 * folders. Removal takes the manifest away first, durably: after a crash in the middle there may be
 * an image without manifest, never a manifest without image, nor a used image without its mark.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_time.h"
#include "pool_priv.h"

#define STAMP 16		/* YYYYMMDDTHHMMSSZ */
#define RANDOM 6		/* hex digits */
#define TAIL (1 + STAMP + 1 + RANDOM)

/* ---- ids ---- */

void pool_image_id(const char *vm, uint64_t now_us, char *id)
{
	char stamp[TP_TIME_TEXT];
	uint32_t r;

	/* Cannot fail for so few bytes but before the kernel's generator is seeded, where it waits. */
	if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r))
		r = (uint32_t)(now_us ^ (uint64_t)getpid() << 12);
	snprintf(id, IMAGE_ID_MAX + 1, "%.*s-%s-%06x", TP_NAME_MAX, vm, tp_time_stamp(now_us, stamp),
		 (unsigned)(r & 0xffffff));
}

static bool tail_ok(const char *tail)
{
	static const char pattern[] = "-ddddddddTddddddZ-xxxxxx";

	for (size_t i = 0; i < TAIL; i++) {
		const char *allowed = pattern[i] == 'd' ? "0123456789" :
				      pattern[i] == 'x' ? "0123456789abcdef" : NULL;

		if (allowed ? !strchr(allowed, tail[i]) : tail[i] != pattern[i])
			return false;
	}
	return true;
}

bool pool_image_vm(const char *id, char *vm)
{
	char name[TP_NAME_MAX + 1];
	size_t n = id ? strnlen(id, IMAGE_ID_MAX + 1) : 0;

	if (n <= TAIL || n > TP_NAME_MAX + TAIL || !tail_ok(id + n - TAIL))
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)(n - TAIL), id);
	if (!tp_name_ok(name))
		return false;
	strcpy(vm, name);
	return true;
}

bool pool_image_id_ok(const char *id)
{
	char vm[TP_NAME_MAX + 1];

	return pool_image_vm(id, vm);
}

bool pool_ids_check(const char *vm, const char *id, struct tp_error *err)
{
	char of[TP_NAME_MAX + 1];

	if (!tp_name_ok(vm))
		return tp_fail(err, TP_EARG, "\"%s\" cannot be the name of a VM", vm ? vm : "");
	if (!pool_image_vm(id, of) || strcmp(vm, of) != 0)
		return tp_fail(err, TP_EARG, "\"%s\" cannot be an image of VM \"%s\"", id ? id : "",
			       vm);
	return true;
}

bool pool_image_path(const char *vm, const char *id, const char *file, char path[POOL_PATH_MAX],
		     struct tp_error *err)
{
	if (!pool_ids_check(vm, id, err))
		return false;
	snprintf(path, POOL_PATH_MAX, "%s/%s%s%s", vm, id, file[0] ? "/" : "", file);
	return true;
}

/* ---- creation ---- */

/* A folder that was there already must be ours alone. */
static bool is_private(int fd, const char *name, struct tp_error *err)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return tp_fail_sys(err, errno, "folder %s", name);
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return tp_fail_class(err, TP_ESYS, "PermissionDenied",
				     "folder %s of user %u, mode %04o, can be written by others", name,
				     (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
	return true;
}

bool pool_allocate(int fd, uint64_t bytes, bool *unsupported, struct tp_error *err)
{
	*unsupported = false;
	if (bytes == 0 ||
	    TEMP_FAILURE_RETRY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes)) == 0)
		return true;
	if (errno == EOPNOTSUPP || errno == ENOSYS)
		*unsupported = true;
	else
		tp_fail_sys(err, errno, "allocate %llu bytes", (unsigned long long)bytes);
	return *unsupported;
}

static bool reserve(struct pool *p, int fd, const struct pool_demand *d, const char *id,
		    const char *mode, struct tp_error *err)
{
	bool unsupported = true;

	if (strcmp(mode, "none") == 0)
		return true;
	if (strcmp(mode, "full") == 0 && !pool_allocate(fd, d->bytes + POOL_SLACK, &unsupported, err))
		return false;
	return !unsupported || pool_promise(p, d->vm, id, d->bytes, err);
}

/* Allocated, not only of that length; nothing is ever read from it. */
static bool make_spare(int dir, const char *name, struct tp_error *err)
{
	static const char zeros[POOL_SPARE_BYTES];
	tp_autoclose int fd = tp_openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600, err);

	if (fd < 0)
		return false;
	return fallocate(fd, 0, 0, POOL_SPARE_BYTES) == 0 ||
	       tp_write_all(fd, zeros, sizeof(zeros), err);
}

static int make_files(int dir, struct tp_error *err)
{
	static const char *const spares[] = POOL_SPARE_FILES;

	for (size_t i = 0; i < TP_N(spares); i++) {
		if (!make_spare(dir, spares[i], err))
			return -1;
	}
	return tp_openat(dir, POOL_IMAGE_FILE, O_RDWR | O_CREAT | O_EXCL, 0600, err);
}

int pool_folder_make(int vmfd, const char *name, struct tp_error *err)
{
	tp_autoclose int dir = -1;
	int fd;

	if (mkdirat(vmfd, name, 0700) != 0) {
		if (errno == EEXIST)
			tp_fail_class(err, TP_ESTATE, "Exists", "image \"%s\" exists", name);
		else
			tp_fail_sys(err, errno, "make folder %s", name);
		return -1;
	}
	dir = tp_openat(vmfd, name, O_RDONLY | O_DIRECTORY, 0, err);
	fd = dir < 0 ? -1 : make_files(dir, err);
	if (fd < 0)
		tp_remove_dir(vmfd, name, NULL);
	return fd;
}

int pool_vm_folder(struct pool *p, const char *vm, struct tp_error *err)
{
	tp_autoclose int vmfd = tp_mkdir_open(p->dirfd, vm, err);

	return vmfd >= 0 && is_private(vmfd, vm, err) ? TP_STEAL_FD(vmfd) : -1;
}

static int create(struct pool *p, const struct pool_demand *d, const char *id, const char *mode,
		  struct tp_error *err)
{
	tp_autoclose int vmfd = pool_vm_folder(p, d->vm, err);
	tp_autoclose int fd = -1;
	bool fresh = false;

	if (vmfd >= 0)
		fd = pool_standing_take(p, vmfd, d->vm, id, &fresh, err);
	if (fresh)
		fd = pool_folder_make(vmfd, id, err);
	if (fd >= 0 && reserve(p, fd, d, id, mode, err))
		return TP_STEAL_FD(fd);
	if (fd >= 0 && fresh)
		tp_remove_dir(vmfd, id, NULL);
	else if (fd >= 0)
		pool_image_return(p, d->vm, id, NULL);
	unlinkat(p->dirfd, d->vm, AT_REMOVEDIR);	/* only if it is empty */
	return -1;
}

int pool_image_create(struct pool *p, const struct pool_demand *d, const char *id,
		      const char *mode, bool *guaranteed, struct pool_shortage *shortage,
		      struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	bool none = strcmp(mode, "none") == 0, full = strcmp(mode, "full") == 0;
	struct pool_space space;
	int fd;

	if (shortage)
		*shortage = (struct pool_shortage){ .required = 0 };
	if (!pool_ids_check(d->vm, id, err))
		return -1;
	if (!none && !full && strcmp(mode, "estimate") != 0) {
		tp_fail(err, TP_EARG, "reserve \"%s\": full, estimate or none", mode);
		return -1;
	}
	if (!(none ? pool_writable(p, err) : pool_room(p, d, shortage, err)))
		return -1;
	fd = create(p, d, id, mode, &why);
	if (fd < 0)
		pool_fail(p, &why, d->bytes + POOL_SLACK, shortage, err);
	if (guaranteed)
		*guaranteed = full && fd >= 0 && !pool_promised(p, d->vm, id) &&
			      pool_space(p, &space, NULL) && space.guaranteed;
	return fd;
}

/* ---- use and removal ---- */

int pool_image_open(const struct pool *p, const char *vm, const char *id, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	char path[POOL_PATH_MAX];
	struct stat st;
	int fd;

	if (!pool_image_path(vm, id, POOL_IMAGE_FILE, path, err))
		return -1;
	/* Non-blocking, as somebody may have put a FIFO there. */
	fd = tp_openat(p->dirfd, path, O_RDONLY | O_NONBLOCK, 0, &why);
	if (fd < 0 && why.sys == ENOENT) {
		tp_fail_class(err, TP_ESTATE, "NotFound", "pool \"%s\" has no image \"%s\"", p->name, id);
	} else if (fd < 0) {
		pool_fail(p, &why, 0, NULL, err);
		tp_prefix(err, "image \"%s\"", id);
	} else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		tp_fail(err, TP_ECORRUPT, "image \"%s\": %s is not a regular file", id, POOL_IMAGE_FILE);
		tp_close(&fd);
	}
	return fd;
}

static bool remove_from(struct pool *p, int vmfd, const char *vm, const char *name,
			struct tp_error *err)
{
	if (!tp_remove_dir(vmfd, name, err) || !tp_fsync(vmfd, vm, err))
		return false;
	if (unlinkat(p->dirfd, vm, AT_REMOVEDIR) != 0) {
		/* Other images, or something that is not ours. */
		return errno == ENOTEMPTY || errno == EEXIST || errno == ENOENT ||
		       tp_fail_sys(err, errno, "remove folder %s", vm);
	}
	return tp_fsync(p->dirfd, p->path, err);
}

bool pool_folder_remove(struct pool *p, const char *vm, const char *name, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autoclose int vmfd = tp_openat(p->dirfd, vm, O_RDONLY | O_DIRECTORY, 0, &why);

	if (vmfd < 0 && why.sys == ENOENT)
		return true;
	if (vmfd < 0 || !remove_from(p, vmfd, vm, name, &why))
		return pool_fail(p, &why, 0, NULL, err) || tp_prefix(err, "folder %s of VM %s", name, vm);
	return true;
}

bool pool_image_remove(struct pool *p, const char *vm, const char *id, struct tp_error *err)
{
	if (!pool_ids_check(vm, id, err) || !pool_present(p, err))
		return false;
	pool_promise_drop(p, vm, id);
	return pool_manifest_unlink(p, vm, id, err) && pool_folder_remove(p, vm, id, err);
}
