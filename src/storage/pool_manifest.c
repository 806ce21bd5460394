/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_manifest.c - What makes an image exist, and what says that it was used
 *
 * The order of syncs: the manifest, its folder (tp_replace_file), the VM's folder, the pool's. Only
 * when all of them are done does the image exist also after a power cut.
 *
 * A full pool must not keep a VM from being restored, which is what makes room again. So the mark
 * "consumed" falls back on a spare file, made with the image: its blocks are written in place and it
 * is renamed. There are two, as the mark is written twice: before the guest may run and when it does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "manifest.h"
#include "pool_priv.h"

TP_LOG_SOURCE("storage.pool");

static int open_image_folder(const struct pool *p, const char *vm, const char *id,
			     struct tp_error *err)
{
	char path[POOL_PATH_MAX];

	if (!pool_image_path(vm, id, "", path, err))
		return -1;
	return tp_openat(p->dirfd, path, O_RDONLY | O_DIRECTORY, 0, err);
}

/* Beyond the limit write(2) raises a signal, which a library may not provoke. */
static bool below_file_limit(size_t n, struct tp_error *err)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
	       n <= limit.rlim_cur || tp_fail_sys(err, EFBIG, "%zu bytes", n);
}

/* Replaces file by the data without a new block or inode; false if there is no spare left. */
static bool write_in_spare(int dir, const char *file, const char *tmp, const char *text, size_t n)
{
	static const char *const spares[] = POOL_SPARE_FILES;
	struct tp_error ignored = TP_ERROR_INIT;
	tp_autoclose int fd = -1;
	bool found = false;

	if (n > POOL_SPARE_BYTES)
		return false;
	for (size_t i = 0; i < TP_N(spares) && !found; i++)
		found = renameat(dir, spares[i], dir, tmp) == 0;
	if (!found)
		return false;
	fd = tp_openat(dir, tmp, O_WRONLY, 0, &ignored);
	if (fd >= 0 && tp_pwrite_all(fd, text, n, 0, &ignored) && ftruncate(fd, (off_t)n) == 0 &&
	    tp_fsync(fd, tmp, &ignored) && renameat(dir, tmp, dir, file) == 0)
		return tp_fsync(dir, file, &ignored);
	unlinkat(dir, tmp, 0);
	return false;
}

static bool replace(int dir, const char *file, const char *text, size_t n, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;

	if (tp_replace_file(dir, file, text, n, true, &why))
		return true;
	if ((why.sys == ENOSPC || why.sys == EDQUOT) && strcmp(file, POOL_CONSUMED_FILE) == 0 &&
	    write_in_spare(dir, file, "." POOL_CONSUMED_FILE ".new", text, n))
		return true;
	*err = why;
	return false;
}

bool pool_json_write(struct pool *p, const char *vm, const char *id, const char *file,
		     const json_t *value, size_t max, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *text = tp_json_text(value);
	tp_autoclose int dir = -1;
	size_t n;

	if (!text)
		return tp_fail_nomem(err);
	n = strlen(text);
	if (n > max)
		return tp_fail(err, TP_ELIMIT, "image \"%s\": %s of %zu bytes, at most %zu", id, file, n,
			       max);
	if (!pool_writable(p, err))
		return false;
	dir = open_image_folder(p, vm, id, &why);
	if (dir < 0 && why.sys == ENOENT)
		return tp_fail_class(err, TP_ESTATE, "NotFound", "pool \"%s\" has no image \"%s\"",
				     p->name, id);
	if (dir < 0 || !below_file_limit(n, &why) || !replace(dir, file, text, n, &why)) {
		pool_fail(p, &why, n, NULL, err);
		return tp_prefix(err, "image \"%s\": write %s", id, file);
	}
	return true;
}

static bool sync_folders(const struct pool *p, const char *vm, struct tp_error *err)
{
	tp_autoclose int vmfd = tp_openat(p->dirfd, vm, O_RDONLY | O_DIRECTORY, 0, err);

	return vmfd >= 0 && tp_fsync(vmfd, vm, err) && tp_fsync(p->dirfd, p->path, err);
}

bool pool_manifest_write(struct pool *p, const char *vm, const char *id, const json_t *manifest,
			 struct tp_error *err)
{
	const char *image = tp_json_str(manifest, "image"), *of = tp_json_str(manifest, "vm");

	if (!pool_ids_check(vm, id, err))
		return false;
	if (!manifest_check(manifest, err))
		return tp_prefix(err, "image \"%s\"", id);
	if (strcmp(image, id) != 0 || strcmp(of, vm) != 0)
		return tp_fail(err, TP_EARG, "image \"%s\": the manifest is that of \"%s\"", id, image);
	if (!pool_json_write(p, vm, id, POOL_MANIFEST_FILE, manifest, MANIFEST_MAX, err))
		return false;
	if (!sync_folders(p, vm, err))
		return tp_prefix(err, "image \"%s\"", id);
	pool_promise_drop(p, vm, id);
	return true;
}

json_t *pool_json_read(const struct pool *p, const char *vm, const char *id, const char *file,
		       size_t max, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *text = NULL;
	char path[POOL_PATH_MAX];
	json_t *value;
	size_t n;

	if (!pool_image_path(vm, id, file, path, err))
		return NULL;
	text = tp_read_file(p->dirfd, path, max, &n, &why);
	if (!text && why.sys == ENOENT) {
		tp_fail_class(err, TP_ESTATE, "NotFound", "image \"%s\" has no %s", id, file);
		return NULL;
	}
	if (!text) {
		/* Too large, a FIFO, a symbolic link: not what torpor wrote. */
		if (why.code == TP_ESYS && why.sys != ELOOP)
			pool_fail(p, &why, 0, NULL, err);
		else
			tp_fail(err, TP_ECORRUPT, "image \"%s\": %s", id, why.text);
		return NULL;
	}
	value = tp_json_parse(text, n, POOL_JSON_DEPTH, &why);
	if (json_is_object(value))
		return value;
	tp_fail(err, TP_ECORRUPT, "image \"%s\": %s: %s", id, file,
		value ? "not a JSON object" : why.text);
	json_decref(value);
	return NULL;
}

json_t *pool_manifest_read(const struct pool *p, const char *vm, const char *id,
			   struct tp_error *err)
{
	tp_autojson json_t *manifest = pool_json_read(p, vm, id, POOL_MANIFEST_FILE, MANIFEST_MAX, err);
	struct tp_error why = TP_ERROR_INIT;

	if (!manifest)
		return NULL;
	if (!manifest_check(manifest, err)) {
		tp_prefix(err, "image \"%s\"", id);
		return NULL;
	}
	if (strcmp(tp_json_str(manifest, "image"), id) != 0 ||
	    strcmp(tp_json_str(manifest, "vm"), vm) != 0) {
		tp_fail(err, TP_ECORRUPT, "image \"%s\": the manifest is that of \"%s\"", id,
			tp_json_str(manifest, "image"));
		return NULL;
	}
	if (!manifest_trim(manifest, &why))
		tp_warn("pool=%s image \"%s\": %s; it is not used", p->name, id, why.text);
	return TP_STEAL(manifest);
}

json_t *pool_consumed_read(const struct pool *p, const char *vm, const char *id,
			   struct tp_error *err)
{
	return pool_json_read(p, vm, id, POOL_CONSUMED_FILE, POOL_CONSUMED_MAX, err);
}

static bool absent(int dir, const char *file)
{
	return faccessat(dir, file, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

bool pool_json_unlink(struct pool *p, const char *vm, const char *id, const char *file,
		      struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autoclose int dir = open_image_folder(p, vm, id, &why);

	if (dir < 0 && why.sys == ENOENT)
		return true;
	/* Looked at first: of an absent file a read-only file system says EROFS, not ENOENT. */
	if (dir >= 0 && !absent(dir, file) && unlinkat(dir, file, 0) != 0 && errno != ENOENT)
		tp_fail_sys(&why, errno, "remove %s", file);
	/* Synced also when it was absent: its removal may not have reached the disk. */
	if (dir >= 0 && why.code == TP_OK && tp_fsync(dir, id, &why))
		return true;
	pool_fail(p, &why, 0, NULL, err);
	return tp_prefix(err, "image \"%s\"", id);
}

bool pool_manifest_unlink(struct pool *p, const char *vm, const char *id, struct tp_error *err)
{
	return pool_ids_check(vm, id, err) && pool_json_unlink(p, vm, id, POOL_MANIFEST_FILE, err);
}

bool pool_image_consumed(struct pool *p, const char *vm, const char *id, const json_t *why,
			 struct tp_error *err)
{
	if (!pool_ids_check(vm, id, err))
		return false;
	if (!why)
		return pool_json_unlink(p, vm, id, POOL_CONSUMED_FILE, err);
	return pool_json_write(p, vm, id, POOL_CONSUMED_FILE, why, POOL_CONSUMED_MAX, err);
}
