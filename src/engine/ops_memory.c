/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ops_memory.c - Records of operations that are over: the last of each VM, and ops.log */
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/ops_priv.h"

TP_LOG_SOURCE("engine.ops");

static bool record_is_of(const json_t *record, const char *vm)
{
	const char *name = tp_json_str(record, "vm");

	return name && strcmp(name, vm) == 0;
}

static bool expired(const json_t *record)
{
	uint64_t ended;
	const char *text = tp_json_str(record, "ended");

	return !text || !tp_time_parse(text, &ended) ||
	       tp_now_us() - ended > OPS_KEEP_FAILED_DAYS * 86400ull * 1000000;
}

/* Of one VM's records the newest few are kept, and failures that are fresh. */
static void forget_older(json_t *ended, const char *vm)
{
	size_t newer = 0;

	for (size_t i = json_array_size(ended); i > 0; i--) {
		const json_t *record = json_array_get(ended, i - 1);

		if (!record_is_of(record, vm) || newer++ < OPS_KEEP_VM)
			continue;
		if (strcmp(tp_json_str(record, "status"), "running") == 0)
			continue;
		if (strcmp(tp_json_str(record, "status"), "succeeded") == 0 || expired(record))
			json_array_remove(ended, i - 1);
	}
}

static bool record_whole(const json_t *record)
{
	return tp_json_str(record, "id") && tp_json_str(record, "vm") && tp_json_str(record, "kind") &&
	       tp_json_str(record, "status");
}

void ops_keep(struct ops *ops, json_t *record)
{
	size_t i;
	json_t *former;

	if (!record_whole(record))
		return;
	/* Amended: its place says when it ended first. */
	json_array_foreach(ops->ended, i, former) {
		if (strcmp(tp_json_str(former, "id"), tp_json_str(record, "id")) != 0)
			continue;
		json_array_set(ops->ended, i, record);
		return;
	}
	if (json_array_append(ops->ended, record))
		return;
	forget_older(ops->ended, tp_json_str(record, "vm"));
	while (json_array_size(ops->ended) > OPS_KEEP_ALL)
		json_array_remove(ops->ended, 0);
}

/* On the worker, from the file itself: what other jobs appended before is in it. */
static bool shorten_run(void *arg, struct tp_error *err)
{
	struct torpor *t = arg;
	tp_autojson json_t *records = state_ops_read(t->state, err);

	while (json_array_size(records) > OPS_KEEP_ALL)
		json_array_remove(records, 0);
	return records && state_ops_rewrite(t->state, records, err);
}

static void shorten_done(void *arg, const struct tp_error *err)
{
	struct torpor *t = arg;

	if (err && err->code != TP_ECANCELLED)
		tp_warn("ops.log cannot be shortened: %s", err->text);
	t->ops->logged = OPS_KEEP_ALL;
	t->ops->shortening = false;
}

void ops_remember(struct torpor *t, json_t *record_owned)
{
	struct ops *ops = t->ops;

	ops_keep(ops, record_owned);
	json_decref(record_owned);
	if (++ops->logged > 2 * OPS_KEEP_ALL && !ops->shortening)
		ops->shortening = io_worker_submit(t->worker, shorten_run, shorten_done, t, NULL);
}

struct append {
	struct state_dir *state;
	json_t *record;
};

static bool append_run(void *arg, struct tp_error *err)
{
	struct append *a = arg;

	return state_ops_append(a->state, a->record, err);
}

static void append_done(void *arg, const struct tp_error *err)
{
	struct append *a = arg;

	(void)err;	/* only memory of what was */
	json_decref(a->record);
	free(a);
}

void ops_append(struct torpor *t, const json_t *record)
{
	struct append *a = calloc(1, sizeof(*a));

	if (!a)
		return;
	*a = (struct append){ .state = t->state, .record = json_deep_copy(record) };
	if (!io_worker_submit(t->worker, append_run, append_done, a, NULL))
		append_done(a, NULL);
}

void ops_progress(struct torpor *t, json_t *record)
{
	ops_keep(t->ops, record);
	ops_event(t, record, true);
}

void ops_amend(struct torpor *t, json_t *record)
{
	ops_append(t, record);
	ops_remember(t, json_incref(record));
	ops_event(t, record, false);
	ops_tell(t, tp_json_str(record, "id"), record);
}
