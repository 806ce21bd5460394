/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* left_behind.c - Images that were moved while the pool they came from could not be reached */
#include "engine/left_behind.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/engine.h"

TP_LOG_SOURCE("engine.pools");

#define MEMBER "left-behind"

/* SIZE_MAX: not in it. */
static size_t find(const json_t *list, const char *pool, const char *image)
{
	size_t i;
	json_t *one;

	json_array_foreach(list, i, one) {
		const char *p = tp_json_str(one, "pool"), *id = tp_json_str(one, "image");

		if (p && id && strcmp(p, pool) == 0 && strcmp(id, image) == 0)
			return i;
	}
	return SIZE_MAX;
}

bool left_behind_load(struct torpor *t, struct tp_error *err)
{
	tp_autojson json_t *host = state_host_read(t->state, err);
	json_t *list = json_object_get(host, MEMBER);

	if (!host)
		return false;
	t->left_behind = json_is_array(list) ? json_incref(list) : json_array();
	return t->left_behind || tp_fail_nomem(err);
}

bool left_behind(const struct torpor *t, const char *pool, const char *image)
{
	return find(t->left_behind, pool, image) != SIZE_MAX;
}

/* --- host.json: only its own entry is put in or taken out, on the state directory's worker --- */

struct change {
	struct op_job base;
	struct state_dir *state;
	json_t *entry;
	bool removed;
};

static enum state_edit put_entry(json_t *host, void *arg)
{
	struct change *c = arg;
	json_t *list = json_object_get(host, MEMBER);
	size_t at;

	if (!json_is_array(list)) {
		list = json_array();
		if (!tp_json_set(host, MEMBER, list))
			return STATE_NO_MEMORY;
	}
	at = find(list, tp_json_str(c->entry, "pool"), tp_json_str(c->entry, "image"));
	if ((at == SIZE_MAX) == c->removed)
		return STATE_UNCHANGED;
	if (c->removed)
		json_array_remove(list, at);
	else if (json_array_append(list, c->entry) != 0)
		return STATE_NO_MEMORY;
	return STATE_CHANGED;
}

static bool change_run(struct op_job *job, struct tp_error *err)
{
	struct change *c = (struct change *)job;

	return state_host_edit(c->state, put_entry, c, err);
}

static void change_free(struct op_job *job)
{
	struct change *c = (struct change *)job;

	json_decref(c->entry);
	free(c);
}

static struct change *change_new(struct torpor *t, const char *pool, const char *image, bool removed)
{
	struct change *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	*c = (struct change){ .base = { .worker = OP_WORKER_STATE, .run = change_run, .free = change_free },
			      .state = t->state, .removed = removed,
			      .entry = json_pack("{s:s, s:s}", "image", image, "pool", pool) };
	return c;
}

struct op_job *left_behind_add(struct torpor *t, const char *pool, const char *image)
{
	struct change *c = change_new(t, pool, image, false);

	if (!c)
		return NULL;
	if (!left_behind(t, pool, image))
		json_array_append(t->left_behind, c->entry);
	return &c->base;
}

static bool removed_run(void *arg, struct tp_error *err)
{
	return change_run(arg, err);
}

static void removed_done(void *arg, const struct tp_error *err)
{
	/* It stands there until the next start, when its pool is seen not to have it. */
	if (err && err->code != TP_ECANCELLED)
		tp_warn("host.json: %s", err->text);
	change_free(arg);
}

void left_behind_removed(struct torpor *t, const char *pool, const char *image)
{
	size_t at = find(t->left_behind, pool, image);
	struct change *c;

	if (at == SIZE_MAX)
		return;
	json_array_remove(t->left_behind, at);
	c = change_new(t, pool, image, true);
	if (c && !io_worker_submit(t->worker, removed_run, removed_done, c, NULL))
		change_free(&c->base);
}

void left_behind_seen(struct torpor *t, const char *pool, const json_t *images)
{
	for (size_t i = json_array_size(t->left_behind); i > 0; i--) {
		const json_t *one = json_array_get(t->left_behind, i - 1);
		const char *of = tp_json_str(one, "pool"), *image = tp_json_str(one, "image");

		if (!of || !image || strcmp(of, pool) != 0 || json_object_get(images, image))
			continue;
		left_behind_removed(t, pool, image);
	}
}
