/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * powercut_check.c - What an engine makes of a state directory and a pool that a power cut left
 *
 * Reads lines "STATE-DIR RUNTIME-DIR POOL-DIR". For each one an engine is started on them, in this
 * process; once it has recovered what there was to recover, a line of JSON is written:
 *   {"vms": query-vms, "images": query-images, "damage": {image: text}, "log": [what it warned of]}
 * or {"error": why it would not start}. Each complete image is verified to its last page.
 */
#include <ev.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/io_worker.h"
#include "engine/pools.h"
#include "storage/image_read.h"
#include "storage/pool.h"
#include "torpor.h"

#define POOL "default"
#define SETTLE_MAX 10.0		/* seconds; no recovery of these takes a tenth of it */
#define LOG_WARNING 1

struct question {
	struct ev_loop *loop;
	json_t *answer;
};

static json_t *warnings;

static void keep_log(void *arg, int level, const char *source, const char *text)
{
	(void)arg;
	if (level <= LOG_WARNING)
		json_array_append_new(warnings, json_sprintf("%s: %s", source, text));
}

static void answered(void *arg, const json_t *message)
{
	struct question *q = arg;

	q->answer = json_deep_copy(json_object_get(message, "return"));
	if (!q->answer)
		q->answer = json_deep_copy(message);
	ev_break(q->loop, EVBREAK_ALL);
}

static json_t *ask(struct torpor *t, struct ev_loop *loop, const char *command)
{
	struct question q = { .loop = loop };
	struct torpor_client *c = torpor_client_new(t, TORPOR_ROLE_ADMIN, answered, &q);
	tp_autojson json_t *request = json_pack("{s:s}", "execute", command);

	torpor_execute(c, request, NULL, 0);
	while (!q.answer)
		ev_run(loop, 0);
	torpor_client_free(c);
	return q.answer;
}

static bool busy(struct torpor *t)
{
	if (io_worker_pending(t->worker) || io_worker_pending(t->disks) ||
	    io_worker_pending(engine_pool_worker(pools_find(t->pools, POOL))))
		return true;
	for (const struct vm *vm = t->vms; vm; vm = vm->next) {
		if (vm->op || vm->undecided)
			return true;
	}
	return false;
}

static void look_again(struct ev_loop *loop, ev_timer *w, int events)
{
	(void)loop, (void)w, (void)events;
}

static void settle(struct torpor *t, struct ev_loop *loop)
{
	ev_tstamp end = ev_time() + SETTLE_MAX;
	ev_timer look;

	ev_timer_init(&look, look_again, 0.001, 0.001);
	ev_timer_start(loop, &look);
	while (busy(t) && ev_time() < end)
		ev_run(loop, EVRUN_ONCE);
	ev_timer_stop(loop, &look);
	if (busy(t))
		json_array_append_new(warnings, json_string("it did not settle"));
}

/* {image: what is wrong with its content} of those that are said to be complete. */
static json_t *damage(struct torpor *t, const json_t *images)
{
	struct pool *pool = engine_pool_storage(pools_find(t->pools, POOL));
	json_t *found = json_object(), *info;
	size_t i;

	json_array_foreach(images, i, info) {
		const char *id = tp_json_str(info, "id"), *vm = tp_json_str(info, "vm");
		struct tp_error err = TP_ERROR_INIT;
		tp_autoclose int fd = -1;
		struct image *img;

		if (strcmp(tp_json_str(info, "state"), "complete") != 0)
			continue;
		fd = pool_image_open(pool, vm, id, &err);
		img = fd >= 0 ? image_open(fd, &err) : NULL;
		if (!img || !image_verify(img, 1, NULL, NULL, NULL, &err))
			tp_json_set_str(found, id, err.text);
		image_close(img);
	}
	return found;
}

static json_t *examine(const char *state, const char *run, const char *folder)
{
	const struct torpor_pool pools[] = { { .name = POOL, .path = folder } };
	struct torpor_options o = { .size = sizeof(o), .state_dir = state, .runtime_dir = run,
				    .mover_path = "/bin/true", .pools = pools, .npools = 1 };
	struct ev_loop *loop = ev_loop_new(0);
	char error[TORPOR_ERROR_SIZE];
	json_t *found, *images, *vms;
	struct torpor *t;

	warnings = json_array();
	t = torpor_new(loop, &o, error);
	if (!t) {
		json_decref(warnings);
		ev_loop_destroy(loop);
		return json_pack("{s:s}", "error", error);
	}
	settle(t, loop);
	vms = ask(t, loop, "query-vms");
	images = ask(t, loop, "query-images");
	found = json_pack("{s:o, s:o, s:o}", "vms", vms, "images", images, "damage", damage(t, images));
	torpor_free(t);
	ev_loop_destroy(loop);
	tp_json_set(found, "log", warnings);
	return found;
}

int main(void)
{
	char line[4096], state[1024], run[1024], pool[1024];

	torpor_set_log(keep_log, NULL, LOG_WARNING);
	while (fgets(line, sizeof(line), stdin)) {
		json_t *found;

		if (sscanf(line, "%1023s %1023s %1023s", state, run, pool) != 3)
			return 2;
		found = examine(state, run, pool);
		json_dumpf(found, stdout, JSON_COMPACT);
		putchar('\n');
		fflush(stdout);
		json_decref(found);
	}
	return 0;
}
