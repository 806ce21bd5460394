/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_catalogue.c - What is in a pool
 *
 * Only folders with the names that torpor gives are looked at; nothing else in the pool is listed,
 * counted or touched. One damaged image must not hide the others, so what goes wrong with an image
 * becomes its state and a reason.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "image_peek.h"
#include "manifest.h"
#include "pool_priv.h"

TP_LOG_SOURCE("storage.pool");

#define STAT_BLOCK 512		/* unit of st_blocks */

/* ---- names ---- */

static void close_folder(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static DIR *open_folder(int dirfd, const char *path, struct tp_error *err)
{
	int fd = tp_openat(dirfd, path, O_RDONLY | O_DIRECTORY, 0, err);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir) {
		tp_fail_sys(err, errno, "read folder %s", path);
		tp_close(&fd);
	}
	return dir;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void pool_names_free(struct pool_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->name[i]);
	free(names->name);
	*names = (struct pool_names){ .n = 0 };
}

static bool add_name(struct pool_names *names, const char *name)
{
	char **more = reallocarray(names->name, names->n + 1, sizeof(*more));

	if (!more)
		return false;
	names->name = more;
	more[names->n] = strdup(name);
	if (!more[names->n])
		return false;
	names->n++;
	return true;
}

bool pool_names(int dirfd, const char *path, bool (*ok)(const char *name), struct pool_names *names,
		struct tp_error *err)
{
	TP_CLEANUP(close_folder) DIR *dir = open_folder(dirfd, path, err);
	struct dirent *e;

	*names = (struct pool_names){ .n = 0 };
	if (!dir)
		return false;
	while (errno = 0, (e = readdir(dir))) {
		if (!ok(e->d_name))
			continue;
		if (names->n >= POOL_NAMES_MAX)
			return tp_fail(err, TP_ELIMIT, "folder %s: more than %u entries", path,
				       POOL_NAMES_MAX);
		if (!add_name(names, e->d_name))
			return tp_fail_nomem(err);
	}
	if (errno)
		return tp_fail_sys(err, errno, "read folder %s", path);
	if (names->n)
		qsort(names->name, names->n, sizeof(*names->name), by_name);
	return true;
}

void pool_image_usage(const struct pool *p, const char *vm, const char *id, uint64_t *bytes,
		      uint64_t *allocated)
{
	TP_CLEANUP(close_folder) DIR *dir = NULL;
	struct tp_error ignored = TP_ERROR_INIT;
	char path[POOL_PATH_MAX];
	struct dirent *e;
	struct stat st;

	*bytes = *allocated = 0;
	if (pool_image_path(vm, id, "", path, &ignored))
		dir = open_folder(p->dirfd, path, &ignored);
	for (unsigned n = 0; dir && n < POOL_NAMES_MAX && (e = readdir(dir)); n++) {
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		*allocated += (uint64_t)st.st_blocks * STAT_BLOCK;
		if (strcmp(e->d_name, POOL_IMAGE_FILE) == 0)
			*bytes = (uint64_t)st.st_size;
	}
}

/* ---- states ---- */

static bool footer_matches(const struct pool *p, const char *vm, const char *id,
			   const json_t *manifest, struct tp_error *err)
{
	tp_autoclose int fd = pool_image_open(p, vm, id, err);
	struct image_peek found;

	return fd >= 0 && image_peek(fd, &found, err) && manifest_matches(manifest, &found, err);
}

static const char *state_of_error(const struct tp_error *why)
{
	/* A missing memory.zst beside a manifest is damage as well. */
	return why->code == TP_ECORRUPT || why->code == TP_ESTATE ? "corrupt" : "unavailable";
}

static bool set_error(json_t *entry, const struct tp_error *why)
{
	return tp_json_set_str(entry, "state", state_of_error(why)) &&
	       tp_json_set_str(entry, "why", why->text);
}

/* Complete unless marked; a mark that cannot be read is one. */
static bool set_use(json_t *entry, const struct pool *p, const char *vm, const char *id)
{
	struct tp_error why = TP_ERROR_INIT;
	json_t *mark = pool_consumed_read(p, vm, id, &why);

	if (mark)
		return tp_json_set(entry, "consumed", mark) &&
		       tp_json_set_str(entry, "state", "consumed");
	if (why.code == TP_ESTATE)
		return tp_json_set_str(entry, "state", "complete");
	return tp_json_set_str(entry, "state", "consumed") &&
	       tp_json_set_str(entry, "why", why.text);
}

/* What the last verification found goes before whether it was used. */
static bool set_verified(json_t *entry, const struct pool *p, const char *vm, const char *id)
{
	struct tp_error ignored = TP_ERROR_INIT;
	const char *footer = tp_json_str(json_object_get(entry, "manifest"), "footer");
	json_t *outcome = pool_verified_read(p, vm, id, footer, &ignored);
	char text[POOL_DAMAGE_TEXT];

	if (!outcome)
		return true;
	return (tp_json_bool(outcome, "ok", false) ||
		(tp_json_set_str(entry, "state", "corrupt") &&
		 tp_json_set_str(entry, "why", pool_damage_text(outcome, text)))) &&
	       tp_json_set(entry, "verified", outcome);
}

/* Many are kept in memory, and a working set is large: who restores reads the manifest itself. */
static json_t *read_manifest(const struct pool *p, const char *vm, const char *id, struct tp_error *err)
{
	json_t *manifest = pool_manifest_read(p, vm, id, err);

	json_object_del(manifest, "working-set");
	return manifest;
}

/* False: not a copy in the making. */
static bool is_moving(json_t *entry, const struct pool *p, const char *vm, const char *id)
{
	json_t *mark, *manifest;

	if (!pool_copy_marked(p, vm, id, &mark))
		return false;
	tp_json_set_str(entry, "state", "partial");
	tp_json_set(entry, "moving", mark);
	manifest = read_manifest(p, vm, id, NULL);
	if (manifest)
		tp_json_set(entry, "manifest", manifest);
	return true;
}

static bool set_state(json_t *entry, const struct pool *p, const char *vm, const char *id)
{
	struct tp_error why = TP_ERROR_INIT;
	json_t *manifest;

	if (is_moving(entry, p, vm, id))
		return true;
	manifest = read_manifest(p, vm, id, &why);
	if (!manifest && why.code == TP_ESTATE)
		return tp_json_set_str(entry, "state", "partial");
	if (!manifest)
		return set_error(entry, &why);
	if (!tp_json_set(entry, "manifest", manifest))
		return false;
	if (!footer_matches(p, vm, id, manifest, &why))
		return set_error(entry, &why);
	return set_use(entry, p, vm, id) && set_verified(entry, p, vm, id);
}

static json_t *image_entry(const struct pool *p, const char *vm, const char *id)
{
	tp_autojson json_t *entry = json_object();
	uint64_t bytes, allocated;

	pool_image_usage(p, vm, id, &bytes, &allocated);
	if (!tp_json_set_str(entry, "id", id) || !tp_json_set_str(entry, "vm", vm) ||
	    !tp_json_set(entry, "bytes", json_integer((json_int_t)bytes)) ||
	    !tp_json_set(entry, "allocated", json_integer((json_int_t)allocated)) ||
	    !set_state(entry, p, vm, id))
		return NULL;
	return TP_STEAL(entry);
}

static bool is_folder(const struct pool *p, const char *vm, const char *id)
{
	char path[POOL_PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", vm, id);
	return fstatat(p->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Adds one VM's images to list. A folder that cannot be read is left out, and said in the log. */
static bool add_vm(json_t *list, const struct pool *p, const char *vm, size_t limit,
		   struct tp_error *err)
{
	TP_CLEANUP(pool_names_free) struct pool_names ids = { .n = 0 };
	struct tp_error why = TP_ERROR_INIT;

	if (!pool_names(p->dirfd, vm, pool_image_id_ok, &ids, &why) && why.sys != ENOTDIR && why.sys != ELOOP && why.sys != ENOENT)
		tp_warn("pool=%s vm=%s %s", p->name, vm, why.text);
	for (size_t i = 0; i < ids.n && json_array_size(list) < limit; i++) {
		if (!pool_ids_check(vm, ids.name[i], NULL) || !is_folder(p, vm, ids.name[i]))
			continue;
		if (json_array_append_new(list, image_entry(p, vm, ids.name[i])) != 0)
			return tp_fail_nomem(err);
	}
	return true;
}

json_t *pool_catalogue(const struct pool *p, const char *vm_or_null, size_t limit,
		       struct tp_error *err)
{
	TP_CLEANUP(pool_names_free) struct pool_names vms = { .n = 0 };
	tp_autojson json_t *list = json_array();

	if (!list)
		return tp_fail_nomem(err), NULL;
	if (!pool_present(p, err))
		return NULL;
	if (vm_or_null) {
		if (!tp_name_ok(vm_or_null)) {
			tp_fail(err, TP_EARG, "\"%s\" cannot be the name of a VM", vm_or_null);
			return NULL;
		}
		return add_vm(list, p, vm_or_null, limit, err) ? TP_STEAL(list) : NULL;
	}
	if (!pool_names(p->dirfd, ".", tp_name_ok, &vms, err))
		return NULL;
	for (size_t i = 0; i < vms.n && json_array_size(list) < limit; i++) {
		if (!add_vm(list, p, vms.name[i], limit, err))
			return NULL;
	}
	return TP_STEAL(list);
}
