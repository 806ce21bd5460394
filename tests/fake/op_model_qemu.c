/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_model_qemu.c - The model's QEMU and mover
 *
 * Theory of operation. A save goes: `migrate` -> setup -> active -> (nodes inactive) device -> the
 * mover seals -> told to finish -> completed, postmigrate -> the mover is done. Where the mover ends
 * before, or the migration is cancelled, QEMU activates its nodes again. A load goes:
 * `migrate-incoming` -> active -> (held back until told) -> completed, paused. Everything that is
 * scheduled carries the generation of its migration or mover and does nothing in a later one.
 */
#include "fake/op_model.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"

static void set_state(struct op_model_world *w, const char *state)
{
	snprintf(w->run_state, sizeof(w->run_state), "%s", state);
}

static void set_migration(struct op_model_world *w, const char *status)
{
	snprintf(w->migration, sizeof(w->migration), "%s", status);
	op_model_qemu_event(w, "MIGRATION", json_pack("{s:s}", "status", status));
}

static bool in_state(const struct op_model_world *w, const char *state)
{
	return strcmp(w->run_state, state) == 0;
}

static bool migrating(const struct op_model_world *w)
{
	return strcmp(w->migration, "setup") == 0 || strcmp(w->migration, "active") == 0 ||
	       strcmp(w->migration, "device") == 0 || strcmp(w->migration, "cancelling") == 0;
}

static void activate(struct op_model_world *w)
{
	if (!w->nodes_active && w->inactivated)
		w->touched = true;
	w->nodes_active = true;
	w->inactivated = false;
}

/* A save that ended without being completed. */
static void save_over(struct op_model_world *w, const char *status)
{
	if (w->inactivated)
		set_state(w, w->qemu72 ? "postmigrate" : "paused");
	activate(w);
	set_migration(w, status);
}

static void migration_fails(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen || !migrating(w))
		return;
	w->migration_gen++;
	if (in_state(w, "inmigrate"))
		set_migration(w, "failed");
	else
		save_over(w, strcmp(w->migration, "cancelling") == 0 ? "cancelled" : "failed");
}

static void cancel_done(struct op_model_world *w, unsigned gen)
{
	if (w->qemu && gen == w->migration_gen && strcmp(w->migration, "cancelling") == 0)
		save_over(w, "cancelled");
}

/* --- the mover --- */

static void mover_ends_well(struct op_model_world *w, unsigned gen)
{
	if (gen == w->mover_gen && w->mover_alive)
		op_model_mover_dies(w, 0, "");
}

static void mover_done(struct op_model_world *w, unsigned gen)
{
	if (gen != w->mover_gen || !w->mover_alive)
		return;
	op_model_mover_says(w, "done", json_pack("{s:i, s:i}", "bytes", 1000, "raw-bytes", 4000));
	op_model_after(w, 0.005, mover_ends_well, w->mover_gen);
}

static void mover_progress(struct op_model_world *w, unsigned gen)
{
	if (gen == w->mover_gen && w->mover_alive)
		op_model_mover_says(w, "progress", json_pack("{s:i, s:i}", "done-bytes", 2000,
							     "total-bytes", 4000));
}

static void mover_hello(struct op_model_world *w, unsigned gen)
{
	if (gen == w->mover_gen && w->mover_alive)
		op_model_mover_says(w, "hello", json_pack("{s:i, s:i}", "protocol", 1, "pid",
							  w->mover_pid));
}

static void mover_seals(struct op_model_world *w, unsigned gen)
{
	if (gen != w->mover_gen || !w->mover_alive)
		return;
	w->mover_sealed = true;
	if (w->c->seals)
		w->c->seals(w);
	op_model_mover_says(w, "sealed", json_deep_copy(w->sealed_data));
}

/* The copy is whole and synced before it says so. */
static void mover_copied(struct op_model_world *w, unsigned gen)
{
	if (gen != w->mover_gen || !w->mover_alive)
		return;
	if (w->c->seals)
		w->c->seals(w);
	op_model_mover_says(w, "done", json_pack("{s:i, s:i, s:i}", "bytes", 1000, "copied-bytes", 1000,
						 "kept-bytes", 0));
	op_model_after(w, 0.005, mover_ends_well, w->mover_gen);
}

void op_model_mover_start(struct op_model_world *w, json_t *request_owned)
{
	const char *job = tp_json_str(request_owned, "job");

	json_decref(w->mover_request);
	w->mover_request = request_owned;
	snprintf(w->mover_job, sizeof(w->mover_job), "%s", job ? job : "");
	w->mover_alive = true;
	w->mover_sealed = w->mover_held = w->mover_finished = w->mover_orphan = w->mover_given = false;
	w->mover_hold = tp_json_bool(request_owned, "hold", false);
	w->mover_gen++;
	op_model_after(w, 0.002, mover_hello, w->mover_gen);
	if (op_model_pages_is(w))
		op_model_pages_start(w);
	if (strcmp(w->mover_job, "verify") == 0)
		op_model_after(w, 0.2, mover_done, w->mover_gen);
	if (strcmp(w->mover_job, "copy") == 0)
		op_model_after(w, 0.2, mover_copied, w->mover_gen);
}

void op_model_mover_dies(struct op_model_world *w, int status, const char *text)
{
	if (!w->mover_alive)
		return;
	w->mover_alive = false;
	w->mover_gen++;
	op_model_mover_says(w, "end", json_pack("{s:i, s:s}", "status", status, "stderr", text));
	if (op_model_pages_is(w))
		op_model_pages_ended(w);
	if (w->qemu && migrating(w))
		op_model_after(w, w->gives_up, migration_fails, w->migration_gen);
}

void op_model_mover_abandoned(struct op_model_world *w)
{
	bool stays = op_model_pages_is(w) ? op_model_pages_connected(w) : w->mover_sealed;

	w->mover_orphan = true;
	w->mover_given = false;
	if (w->mover_alive && !stays)
		op_model_mover_dies(w, 1 << 8, "the control connection has ended");
}

static void save_completed(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen)
		return;
	w->migration_gen++;
	set_state(w, "postmigrate");
	set_migration(w, "completed");
	op_model_after(w, 0.01, mover_done, w->mover_gen);
}

static void load_completed(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen || !w->mover_alive)
		return;
	w->migration_gen++;
	w->nodes_active = !tp_json_bool(w->caps, "late-block-activate", false);
	set_state(w, "paused");
	set_migration(w, "completed");
	mover_done(w, w->mover_gen);
}

void op_model_mover_send(struct op_model_world *w, const json_t *message)
{
	if (!json_object_get(message, "finish") || w->mover_finished)
		return;
	w->mover_finished = true;
	if (op_model_pages_is(w))
		op_model_pages_finish(w);
	else if (w->mover_sealed && strcmp(w->migration, "device") == 0)
		op_model_after(w, 0.01, save_completed, w->migration_gen);
	else if (w->mover_held)
		op_model_after(w, 0.05, load_completed, w->migration_gen);
}

/* --- migration --- */

static void save_device(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen)
		return;
	w->nodes_active = false;
	w->inactivated = true;
	set_state(w, "finish-migrate");
	set_migration(w, "device");
	op_model_after(w, 0.1, mover_seals, w->mover_gen);
}

static void save_active(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen)
		return;
	set_migration(w, "active");
	op_model_after(w, 0.05, mover_progress, w->mover_gen);
	op_model_after(w, 0.15, mover_progress, w->mover_gen);
	op_model_after(w, 0.2, save_device, w->migration_gen);
}

static void load_read(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen || !w->mover_alive)
		return;
	if (w->mover_hold && !w->mover_finished) {
		w->mover_held = true;
		op_model_mover_says(w, "held", json_object());
	} else {
		load_completed(w, gen);
	}
}

static void load_active(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu || gen != w->migration_gen)
		return;
	set_migration(w, "active");
	op_model_after(w, 0.05, mover_progress, w->mover_gen);
	op_model_after(w, 0.1, mover_progress, w->mover_gen);
	op_model_after(w, 0.2, load_read, w->migration_gen);
}

static bool start_migration(struct op_model_world *w, const char *job,
			    void (*active)(struct op_model_world *w, unsigned gen),
			    struct tp_error *err)
{
	if (migrating(w))
		return tp_fail_class(err, TP_EQMP, "QemuError", "There's a migration process in progress");
	w->migration_gen++;
	set_migration(w, "setup");
	if (w->mover_alive && strcmp(w->mover_job, job) == 0)
		op_model_after(w, 0.01, active, w->migration_gen);
	else
		op_model_after(w, 0.01, migration_fails, w->migration_gen);
	return true;
}

static void cancel_migration(struct op_model_world *w)
{
	if (!migrating(w) || in_state(w, "inmigrate"))
		return;
	w->migration_gen++;
	set_migration(w, "cancelling");
	op_model_after(w, 0.05, cancel_done, w->migration_gen);
}

/* --- QEMU --- */

void op_model_qemu_dies(struct op_model_world *w, const char *why)
{
	if (!w->qemu)
		return;
	w->qemu = false;
	w->migration_gen++;
	w->run_state[0] = '\0';
	json_object_clear(w->fds);
	op_model_session_ends(w);
	op_model_qemu_event(w, "QEMU_GONE", json_pack("{s:s}", "log-tail", why));
	/* Its end of the stream is closed. */
	if (w->mover_alive && op_model_pages_is(w) && op_model_pages_outlive(w))
		return;
	if (w->mover_alive && w->mover_finished)
		op_model_after(w, 0.005, mover_done, w->mover_gen);
	else if (w->mover_alive && strcmp(w->mover_job, "verify") != 0)
		op_model_mover_dies(w, 1 << 8, "the stream ended too early");
}

static void quits(struct op_model_world *w, unsigned gen)
{
	(void)gen;
	op_model_qemu_dies(w, "terminating on quit");
}

static void guest_shuts_down(struct op_model_world *w, unsigned gen)
{
	if (!w->qemu)
		return;
	op_model_qemu_event(w, "SHUTDOWN", json_pack("{s:b, s:s}", "guest", 1, "reason",
						     "guest-shutdown"));
	op_model_after(w, 0.05, quits, gen);
}

static bool cont(struct op_model_world *w, struct tp_error *err)
{
	if (in_state(w, "inmigrate"))
		op_model_fail(w, "cont was sent while QEMU was in inmigrate");
	if (migrating(w))
		return tp_fail_class(err, TP_EQMP, "QemuError", "a migration is active");
	activate(w);
	if (!in_state(w, "running"))
		op_model_qemu_event(w, "RESUME", NULL);
	set_state(w, "running");
	w->guest_ran = true;
	return true;
}

static void stop(struct op_model_world *w)
{
	if (!in_state(w, "running"))
		return;
	set_state(w, "paused");
	op_model_qemu_event(w, "STOP", NULL);
}

static void set_capabilities(struct op_model_world *w, const json_t *args)
{
	json_t *cap;
	size_t i;

	json_array_foreach(json_object_get(args, "capabilities"), i, cap)
		tp_json_set(w->caps, tp_json_str(cap, "capability"),
			    json_boolean(tp_json_bool(cap, "state", false)));
}

static json_t *capabilities(const struct op_model_world *w)
{
	json_t *list = json_array(), *value;
	const char *name;

	json_object_foreach(w->caps, name, value)
		json_array_append_new(list, json_pack("{s:s, s:O}", "capability", name, "state", value));
	return list;
}

static bool change(struct op_model_world *w, enum qmp_cmd cmd, const json_t *args,
		   struct tp_error *err)
{
	const char *name = tp_json_str(args, "fdname");

	switch (cmd) {
	case QMP_STOP:
		stop(w);
		return true;
	case QMP_CONT:
		return cont(w, err);
	case QMP_QUIT:
		op_model_after(w, 0.05, quits, 0);
		return true;
	case QMP_SYSTEM_POWERDOWN:
		op_model_qemu_event(w, "POWERDOWN", NULL);
		if (w->guest_obeys)
			op_model_after(w, 0.5, guest_shuts_down, 0);
		return true;
	case QMP_MIGRATE:
		return start_migration(w, "save", save_active, err);
	case QMP_MIGRATE_INCOMING:
		return op_model_pages_is(w) ? start_migration(w, "page-server", op_model_pages_incoming, err) :
		       start_migration(w, "load", load_active, err);
	case QMP_MIGRATE_CANCEL:
		cancel_migration(w);
		return true;
	case QMP_MIGRATE_SET_CAPABILITIES:
		set_capabilities(w, args);
		return true;
	case QMP_MIGRATE_SET_PARAMETERS:
		json_object_update(w->params, (json_t *)(uintptr_t)args);
		return true;
	case QMP_GETFD:
		return tp_json_set(w->fds, name, json_true());
	case QMP_CLOSEFD:
		if (json_object_del(w->fds, name) != 0)
			return tp_fail_class(err, TP_EQMP, "QemuError", "File descriptor not found");
		return true;
	case QMP_BLOCKDEV_SET_ACTIVE:
		activate(w);
		return true;
	default:
		return true;
	}
}

bool op_model_qmp(struct op_model_world *w, enum qmp_cmd cmd, const json_t *args, json_t **data,
		  struct tp_error *err)
{
	if (w->answer[cmd]) {
		*data = json_deep_copy(w->answer[cmd]);
		return true;
	}
	switch (cmd) {
	case QMP_QUERY_STATUS:
		*data = json_pack("{s:b, s:s}", "running", in_state(w, "running"), "status",
				  w->run_state);
		return true;
	case QMP_QUERY_MIGRATE:
		*data = w->migration[0] ? json_pack("{s:s}", "status", w->migration) : json_object();
		return true;
	case QMP_QUERY_MIGRATE_CAPABILITIES:
		*data = capabilities(w);
		return true;
	case QMP_QUERY_MIGRATE_PARAMETERS:
		*data = json_deep_copy(w->params);
		return true;
	case QMP_QUERY_NAMED_BLOCK_NODES:
	case QMP_QUERY_BLOCK_JOBS:
	case QMP_QUERY_JOBS:
	case QMP_QUERY_BLOCK_EXPORTS:
	case QMP_QUERY_BLOCK:
		*data = json_array();
		return true;
	default:
		*data = json_object();
		return change(w, cmd, args, err);
	}
}

void op_model_fill(struct op_model_world *w)
{
	w->qemu = w->guest_obeys = w->nodes_active = true;
	w->gives_up = 0.01;
	set_state(w, "running");
	w->whole_after = 1;
	w->caps = json_pack("{s:b, s:b, s:b, s:b, s:b}", "events", 0, "return-path", 0,
			    "late-block-activate", 0, "background-snapshot", 0, "postcopy-ram", 0);
	w->params = json_pack("{s:i, s:i}", "downtime-limit", 300, "max-bandwidth", 134217728);
	w->fds = json_object();
	w->launch_data = json_pack("{s:i, s:i, s:s}", "pid", 4711, "start", 1234, "boot", "boot");
	w->sealed_data = json_pack("{s:i, s:i, s:s, s:s}", "bytes", 1000, "raw-bytes", 4000, "footer",
				   "0011223344556677", "uuid", "00112233445566778899aabbccddeeff");
	w->log = json_array();
	w->trace = json_array();
}
