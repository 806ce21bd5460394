/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* features.c - What a QEMU binary can do, remembered by the binary's file */
#include "engine/features.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/engine.h"

TP_LOG_SOURCE("engine.features");

#define MEMBER "features"

static bool binary_of(pid_t pid, struct stat *st)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return stat(path, st) == 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool features_recall(const struct features_cache *c, pid_t pid, struct qmp_features *f)
{
	struct stat st;

	if (!binary_of(pid, &st))
		return false;
	for (unsigned i = 0; i < c->count; i++) {
		if (same_file(&c->kept[i].file, &st)) {
			*f = c->kept[i].features;
			return true;
		}
	}
	return false;
}

void features_keep(struct features_cache *c, pid_t pid, const struct qmp_features *f)
{
	struct stat st;

	if (!binary_of(pid, &st))
		return;
	c->kept[c->next].file = st;
	c->kept[c->next].features = *f;
	c->next = (c->next + 1) % FEATURES_KEPT;
	if (c->count < FEATURES_KEPT)
		c->count++;
}

/* --- host.json --- */

static const struct {
	const char *name;
	size_t at;
} members[] = {
	{ "return-path", offsetof(struct qmp_features, return_path) },
	{ "exit-on-error", offsetof(struct qmp_features, exit_on_error) },
	{ "set-active", offsetof(struct qmp_features, set_active) },
	{ "late-block-activate", offsetof(struct qmp_features, late_block_activate) },
	{ "background-snapshot", offsetof(struct qmp_features, background_snapshot) },
	{ "file-uri", offsetof(struct qmp_features, file_uri) },
	{ "vm-generation-id", offsetof(struct qmp_features, vm_generation_id) },
};

_Static_assert(TP_N(members) * sizeof(bool) == sizeof(struct qmp_features), "a feature is not in the table");

static json_t *entry_json(const struct stat *file, const struct qmp_features *f)
{
	json_t *entry = json_pack("{s:I, s:I, s:I, s:I, s:I}", "device", (json_int_t)file->st_dev, "inode",
				  (json_int_t)file->st_ino, "size", (json_int_t)file->st_size, "mtime",
				  (json_int_t)file->st_mtim.tv_sec, "mtime-ns", (json_int_t)file->st_mtim.tv_nsec);

	for (size_t i = 0; entry && i < TP_N(members); i++)
		tp_json_set(entry, members[i].name, json_boolean(*(const bool *)((const char *)f + members[i].at)));
	return entry;
}

json_t *features_json(const struct features_cache *c)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < c->count; i++)
		json_array_append_new(list, entry_json(&c->kept[i].file, &c->kept[i].features));
	return list;
}

/* One that another version wrote, which knew other features, tells nothing. */
static bool read_entry(const json_t *entry, struct stat *file, struct qmp_features *f)
{
	*file = (struct stat){
		.st_dev = (dev_t)tp_json_int(entry, "device", 0), .st_ino = (ino_t)tp_json_int(entry, "inode", 0),
		.st_size = (off_t)tp_json_int(entry, "size", 0),
		.st_mtim = { .tv_sec = (time_t)tp_json_int(entry, "mtime", 0),
			     .tv_nsec = (long)tp_json_int(entry, "mtime-ns", 0) },
	};
	for (size_t i = 0; i < TP_N(members); i++) {
		const json_t *value = json_object_get(entry, members[i].name);

		if (!json_is_boolean(value))
			return false;
		*(bool *)((char *)f + members[i].at) = json_is_true(value);
	}
	return file->st_ino != 0;
}

void features_take(struct features_cache *c, const json_t *list)
{
	json_t *entry;
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)list, i, entry) {
		if (c->count == FEATURES_KEPT)
			return;
		if (read_entry(entry, &c->kept[c->count].file, &c->kept[c->count].features))
			c->next = ++c->count % FEATURES_KEPT;
	}
}

bool features_load(struct torpor *t, struct tp_error *err)
{
	tp_autojson json_t *host = state_host_read(t->state, err);

	features_take(&t->features, json_object_get(host, MEMBER));
	return host;
}

struct store {
	struct state_dir *state;
	json_t *list;
};

static enum state_edit put_list(json_t *host, void *arg)
{
	struct store *s = arg;

	if (json_equal(json_object_get(host, MEMBER), s->list))
		return STATE_UNCHANGED;
	return tp_json_set(host, MEMBER, json_incref(s->list)) ? STATE_CHANGED : STATE_NO_MEMORY;
}

static bool store_run(void *arg, struct tp_error *err)
{
	struct store *s = arg;

	return state_host_edit(s->state, put_list, s, err);
}

static void store_free(struct store *s)
{
	json_decref(s->list);
	free(s);
}

static void store_done(void *arg, const struct tp_error *err)
{
	if (err && err->code != TP_ECANCELLED)
		tp_warn("host.json: what QEMU can do is not kept: %s", err->text);
	store_free(arg);
}

void features_store(struct torpor *t)
{
	struct store *s = calloc(1, sizeof(*s));

	if (!s)
		return;
	*s = (struct store){ .state = t->state, .list = features_json(&t->features) };
	if (!s->list || !io_worker_submit(t->worker, store_run, store_done, s, NULL))
		store_free(s);
}
