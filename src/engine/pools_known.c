/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pools_known.c - Pools of the configuration that were there before: not made anew in place of a lost mount
 *
 * Theory of operation. The folder of a new pool is made, at the first start that of the default pool. At
 * a later start the same absent folder is a file system that is not mounted: images written below its
 * mount point would be hidden when it is, and fill another disk. So host.json has under "known-pools"
 * where each pool of the configuration once was opened; there it must be found again, as those of
 * pool-define must. Another path in the configuration is a new pool.
 */
#include "engine/pools_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/engine.h"

TP_LOG_SOURCE("engine.pools");

#define MEMBER "known-pools"

bool pool_is_known(const struct engine_pool *p, struct tp_error *err)
{
	tp_autojson json_t *host = state_host_read(p->ps->t->state, err);
	const char *path = tp_json_str(json_object_get(host, MEMBER), p->name);

	return path && strcmp(path, p->path) == 0;
}

struct note {
	struct state_dir *state;
	char name[TP_NAME_MAX + 1];
	char *path;
};

static enum state_edit put_path(json_t *host, void *arg)
{
	const struct note *n = arg;
	json_t *known = json_object_get(host, MEMBER);
	const char *before = tp_json_str(known, n->name);

	if (before && strcmp(before, n->path) == 0)
		return STATE_UNCHANGED;
	if (!json_is_object(known)) {
		known = json_object();
		if (!tp_json_set(host, MEMBER, known))
			return STATE_NO_MEMORY;
	}
	return tp_json_set_str(known, n->name, n->path) ? STATE_CHANGED : STATE_NO_MEMORY;
}

static bool note_run(void *arg, struct tp_error *err)
{
	struct note *n = arg;

	return state_host_edit(n->state, put_path, n, err);
}

static void note_free(struct note *n)
{
	if (n)
		free(n->path);
	free(n);
}

static void note_done(void *arg, const struct tp_error *err)
{
	struct note *n = arg;

	if (err && err->code != TP_ECANCELLED)
		tp_warn("pool=%s that it was there is not recorded: %s", n->name, err->text);
	note_free(n);
}

void pool_known_now(struct engine_pool *p)
{
	struct note *n;

	if (p->defined || p->known)
		return;
	p->known = true;
	n = calloc(1, sizeof(*n));
	if (n)
		n->path = strdup(p->path);
	if (n && n->path) {
		n->state = p->ps->t->state;
		memcpy(n->name, p->name, sizeof(n->name));
		if (io_worker_submit(p->ps->t->worker, note_run, note_done, n, NULL))
			return;
	}
	note_free(n);
}
