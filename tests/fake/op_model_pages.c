/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_model_pages.c - The model's page server, and a QEMU that runs on it
 *
 * Theory of operation. A lazy load goes: waiting -> `migrate-incoming` -> (held until told to finish)
 * -> loading -> the devices are there, QEMU is paused and in postcopy-active: serving -> all pages are
 * in: migration completed, working-set, done, exit. The server's end before the devices are there
 * fails QEMU's migration; later it puts QEMU into postcopy-paused, which another server ends. QEMU's
 * end before that ends the server; later the server waits for another connection, for ever.
 */
#include "fake/op_model.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"

bool op_model_pages_is(const struct op_model_world *w)
{
	return strcmp(w->mover_job, "page-server") == 0;
}

static bool is_current(const struct op_model_world *w, unsigned gen)
{
	return gen == w->mover_gen && w->mover_alive;
}

static json_t *status(const struct op_model_world *w)
{
	return json_pack("{s:s, s:i, s:i}", "state", w->pages, "pages", 16, "pages-left", 8);
}

static void turns(struct op_model_world *w, const char *state)
{
	snprintf(w->pages, sizeof(w->pages), "%s", state);
	op_model_mover_says(w, "state", status(w));
}

static void migration_is(struct op_model_world *w, const char *state)
{
	snprintf(w->migration, sizeof(w->migration), "%s", state);
	op_model_qemu_event(w, "MIGRATION", json_pack("{s:s}", "status", state));
}

static void ends(struct op_model_world *w, unsigned gen)
{
	if (is_current(w, gen))
		op_model_mover_dies(w, w->pages_how == MODEL_PAGES_REFUSE ? 1 << 8 : 0, "");
}

static void prepared(struct op_model_world *w, unsigned gen)
{
	if (!is_current(w, gen))
		return;
	if (w->pages_how == MODEL_PAGES_SERVE) {
		turns(w, "waiting");
		return;
	}
	if (w->pages_how == MODEL_PAGES_REFUSE)
		op_model_mover_says(w, "error", json_pack("{s:s, s:s}", "class", "Unsupported", "desc",
							  "RAM block pc.ram cannot be served"));
	op_model_after(w, 0.002, ends, gen);
}

void op_model_pages_start(struct op_model_world *w)
{
	op_model_after(w, 0.004, prepared, w->mover_gen);
}

/* --- served --- */

static void all_is_in(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || !is_current(w, gen) || strcmp(w->pages, "serving") != 0)
		return;
	migration_is(w, "completed");
	snprintf(w->pages, sizeof(w->pages), "done");
	op_model_mover_says(w, "working-set", json_pack("{s:i, s:[s], s:[[i, i, i]]}", "page-size", 4096, "blocks",
							"pc.ram", "ranges", 0, 0, MODEL_PAGES_ASKED));
	op_model_mover_says(w, "done", status(w));
	op_model_after(w, 0.005, ends, gen);
}

static void serves(struct op_model_world *w)
{
	migration_is(w, "postcopy-active");
	turns(w, "serving");
	op_model_after(w, w->whole_after, all_is_in, w->mover_gen);
}

static void devices_loaded(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen || !w->mover_alive)
		return;
	w->migration_gen++;
	/* 7.2 does not heed it in post-copy. */
	w->nodes_active = w->qemu72 || !tp_json_bool(w->caps, "late-block-activate", false);
	strcpy(w->run_state, "paused");
	serves(w);
}

static void sends_package(struct op_model_world *w)
{
	turns(w, "loading");
	op_model_after(w, 0.01, devices_loaded, w->migration_gen);
}

static void is_ready(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen || !w->mover_alive)
		return;
	if (!tp_json_bool(w->caps, "postcopy-ram", false))
		op_model_fail(w, "a page server serves a QEMU without postcopy-ram");
	if (w->mover_hold && !w->mover_finished) {
		w->mover_held = true;
		turns(w, "held");
	} else {
		sends_package(w);
	}
}

void op_model_pages_incoming(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen)
		return;
	migration_is(w, "active");
	op_model_after(w, 0.01, is_ready, w->migration_gen);
}

void op_model_pages_finish(struct op_model_world *w)
{
	if (w->mover_held)
		sends_package(w);
}

void op_model_pages_again(struct op_model_world *w)
{
	if (!w->qemu || w->mover_alive || strcmp(w->migration, "postcopy-paused") != 0)
		op_model_fail(w, "another page server, where one is there or QEMU does not want it");
	snprintf(w->mover_job, sizeof(w->mover_job), "page-server");
	w->mover_alive = true;
	w->mover_orphan = w->mover_held = false;
	w->mover_gen++;
	serves(w);
}

/* --- ends --- */

void op_model_pages_ended(struct op_model_world *w)
{
	bool served = strcmp(w->pages, "serving") == 0;

	w->pages[0] = '\0';
	if (w->qemu && served)
		migration_is(w, "postcopy-paused");
}

bool op_model_pages_outlive(struct op_model_world *w)
{
	bool served = strcmp(w->pages, "loading") == 0 || strcmp(w->pages, "serving") == 0;

	if (served)
		turns(w, "waiting");
	return served;
}

bool op_model_pages_connected(const struct op_model_world *w)
{
	return w->qemu && (w->migration[0] || json_object_size(w->fds));
}
