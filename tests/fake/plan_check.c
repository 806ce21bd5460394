/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* plan_check.c - What must hold at each effect of a real plan, and at its end (journal.md 4) */
#include "fake/plan_world_priv.h"

#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/pools.h"
#include "engine/state_dir.h"
#include "storage/fingerprint.h"
#include "storage/page_set.h"

static const char *rest(void)
{
	return tp_json_str(plan.vm->rest, "rest");
}

static bool rest_is(const char *name)
{
	return strcmp(rest(), name) == 0;
}

static bool runs(const struct op_model_world *w)
{
	return w->qemu && strcmp(w->run_state, "running") == 0;
}

static bool power_cut(const struct op_model_world *w)
{
	return w->recovered && w->script.outage == MODEL_POWER_CUT;
}

/* QEMU was ended by the test. */
static bool may_be_gone(const struct op_model_world *w)
{
	enum op_model_fault fault = w->script.fault, undo = w->script.undo_fault;

	return fault == MODEL_QEMU_LOST || fault == MODEL_QEMU_LOST_AFTER || undo == MODEL_QEMU_LOST ||
	       undo == MODEL_QEMU_LOST_AFTER || w->script.outage != MODEL_QEMU_STAYS;
}

/* On the platter, and not taken back. */
static bool commit_is_durable(const struct op_model_world *w)
{
	bool committed = false;

	for (size_t i = 0; i < w->synced; i++) {
		const char *record = tp_json_str(json_array_get(w->log, i), "record");

		committed = strcmp(record, "commit") == 0 || (committed && strcmp(record, "back") != 0);
	}
	return committed;
}

static bool stays_paused(const struct plan_case *c)
{
	return c->paused || c->stay;
}

/* --- at each effect --- */

static void hibernate_effect(struct op_model_world *w, const struct plan_images *images, bool ends_qemu)
{
	bool durable = commit_is_durable(w);

	if (ends_qemu && (!durable || !images->offered))
		op_model_fail(w, "QEMU is ended without a committed image");
	if (!w->qemu && !may_be_gone(w) && (!durable || !images->offered))
		op_model_fail(w, "neither QEMU nor a committed image");
	if (durable && !images->offered)
		op_model_fail(w, "a committed image is gone");
}

static void restore_effect(struct op_model_world *w, const struct plan_images *images, bool ends_qemu)
{
	if (w->guest_ran && images->offered)
		op_model_fail(w, "the image is offered, though its guest ran");
	if (!w->guest_ran && !images->whole)
		op_model_fail(w, "the image is gone, though its guest never ran");
	if (ends_qemu && w->guest_ran)
		op_model_fail(w, "QEMU is ended, though the guest ran");
}

/* Offered by its files and by what the engine knows not to be the image. */
static void never_two_never_none(struct op_model_world *w, const struct plan_images *from,
				 const struct plan_images *to)
{
	if (from->offered + to->offered > 1)
		op_model_fail(w, "two images are offered");
	if (!from->whole && !to->whole)
		op_model_fail(w, "no whole image is left");
}

static void move_effect(struct op_model_world *w)
{
	struct plan_images from = plan_images_in(PLAN_POOL), to = plan_images_in(PLAN_OTHER);
	bool kept = plan_case_of(w)->keep;

	never_two_never_none(w, &from, &to);
	if (kept && from.offered + to.offered > 0)
		op_model_fail(w, "a kept image is offered");
	if (!kept && !commit_is_durable(w) && !from.offered)
		op_model_fail(w, "the image is not offered where it was, and nothing is committed");
	if (!commit_is_durable(w) && to.offered)
		op_model_fail(w, "the copy is offered, and nothing is committed");
}

void plan_check_effect(struct op_model_world *w, const char *kind, const char *name)
{
	struct plan_images images = plan_images(false);
	bool kill = strcmp(kind, "vm") == 0 && strcmp(name, "kill") == 0;
	bool quit = strcmp(kind, "qmp") == 0 && strcmp(name, "quit") == 0;

	if (images.offered && runs(w))
		op_model_fail(w, "a whole image is offered while the guest runs");
	if (plan_is(w, "hibernate"))
		hibernate_effect(w, &images, kill || quit);
	if (plan_is(w, "restore"))
		restore_effect(w, &images, kill || quit);
	plan_lazy_effect(w, &images);
	if (plan_is(w, "image-move"))
		move_effect(w);
}

/* --- at the end --- */

/* What a restore would look at. */
static void check_offered(struct op_model_world *w, const char *id, bool disks)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *m = pool_manifest_read(plan_pool(), PLAN_VM, id, &err);
	json_t *print;
	const char *node;

	if (!m)
		op_model_fail(w, "manifest: %s", err.text);
	json_object_foreach(json_object_get(m, "disks"), node, print) {
		struct fingerprint_change c;

		fingerprint_check(print, NULL, &c, NULL);
		if (disks && c.verdict != FINGERPRINT_EQUAL)
			op_model_fail(w, "disk %s is not what the manifest says: %s", node, c.detail);
	}
}

/* Its own, without what the image has no block for. An image whose was not to be read is as good. */
static void check_saved_set(struct op_model_world *w, const char *id)
{
	tp_autojson json_t *m = pool_manifest_read(plan_pool(), PLAN_VM, id, NULL);
	const json_t *set = json_object_get(m, "working-set");

	if (set ? page_set_pages(set) != PLAN_PAGES_OWN : w->script.fault == MODEL_NONE)
		op_model_fail(w, "the image has not got the VM's working set");
}

/* pages 0: none. Only where no engine came between what is known and what is written. */
static void check_own_set(struct op_model_world *w, uint64_t pages)
{
	tp_autojson json_t *set = state_vm_read(plan.vm->dirfd, "working-set.json", NULL);

	if (w->script.fault == MODEL_NONE && page_set_pages(set) != pages)
		op_model_fail(w, "the VM's working set has %llu pages", (unsigned long long)page_set_pages(set));
}

static void check_rest_image(struct op_model_world *w, const struct plan_images *images)
{
	const char *id = tp_json_str(json_object_get(plan.vm->rest, "image"), "id");

	if (!id || strcmp(id, images->id) != 0)
		op_model_fail(w, "the durable rest does not name the image");
	if (json_object_get(plan.vm->rest, "consumed") || json_object_get(plan.vm->rest, "ran"))
		op_model_fail(w, "the durable rest says that the image was used");
}

static void hibernated(struct op_model_world *w, const struct plan_images *images)
{
	if (w->qemu)
		op_model_fail(w, "hibernated, and QEMU is there");
	if (w->op && op_status(w->op) != OP_SUCCEEDED)
		op_model_fail(w, "committed, but not succeeded");
	if (images->offered != 1 || images->folders != 1)
		op_model_fail(w, "%u folders, %u images offered", images->folders, images->offered);
	if (!rest_is("hibernated"))
		op_model_fail(w, "hibernated, the durable rest is %s", rest());
	check_rest_image(w, images);
	check_offered(w, images->id, true);
	check_saved_set(w, images->id);
}

/* On 7.2 a VM that was paused stays in postmigrate after a save that came far (design.md 5). */
static bool state_is_back(const struct op_model_world *w, const struct plan_case *c)
{
	if (!c->paused)
		return runs(w);
	return strcmp(w->run_state, "paused") == 0 || (c->old && strcmp(w->run_state, "postmigrate") == 0);
}

static void not_hibernated(struct op_model_world *w, const struct plan_images *images)
{
	const struct plan_case *c = plan_case_of(w);

	/* What no log names is swept away at the engine's start. */
	if ((w->op || plan.record) && images->folders)
		op_model_fail(w, "something of the image is left");
	if (!w->qemu && !may_be_gone(w))
		op_model_fail(w, "QEMU is gone");
	if (!w->qemu && !rest_is(power_cut(w) ? "shutoff" : "crashed"))
		op_model_fail(w, "QEMU was lost, the durable rest is %s", rest());
	if (!w->qemu)
		return;
	if (!rest_is("running"))
		op_model_fail(w, "QEMU is there, the durable rest is %s", rest());
	if (!state_is_back(w, c))
		op_model_fail(w, "the run state is %s", w->run_state);
	if (!w->nodes_active)
		op_model_fail(w, "the block nodes are inactive");
	if (!json_equal(w->caps, plan.caps) || !json_equal(w->params, plan.params))
		op_model_fail(w, "capabilities or parameters are not as before");
}

static void check_hibernate(struct op_model_world *w, bool committed)
{
	struct plan_images images = plan_images(true);

	if (plan_case_of(w)->paused && w->guest_ran)
		op_model_fail(w, "the guest ran, but its user had paused it");
	if (committed)
		hibernated(w, &images);
	else
		not_hibernated(w, &images);
}

static void restored_paused(struct op_model_world *w, const struct plan_images *images)
{
	if (strcmp(w->run_state, "paused") != 0 || w->guest_ran)
		op_model_fail(w, "the guest did not stay paused");
	if (!w->nodes_active)
		op_model_fail(w, "the block nodes are inactive");
	if (!images->whole || images->offered)
		op_model_fail(w, "the image is not kept as consumed");
	if (!rest_is("running") || !tp_json_bool(plan.vm->rest, "consumed", false) ||
	    tp_json_bool(plan.vm->rest, "ran", true))
		op_model_fail(w, "the durable rest is not that of a VM that was restored paused");
	check_offered(w, images->id, true);
}

static void restored(struct op_model_world *w, const struct plan_images *images)
{
	if (!runs(w))
		op_model_fail(w, "restored, the run state is %s", w->run_state);
	if (!rest_is("running") || json_object_get(plan.vm->rest, "image"))
		op_model_fail(w, "restored, the durable rest is %s", rest());
	if (images->offered || (images->folders > 0) != (plan_case_of(w)->keep || plan.vm->prefetch)) {
		/* Its deletion may fail: a warning. */
		if (w->script.fault == MODEL_NONE || images->offered || !images->folders)
			op_model_fail(w, "restored, and the image is %s", images->folders ? "there" : "gone");
	}
}

/* Again what it was before: to be restored. */
static void offered_again(struct op_model_world *w, const struct plan_images *images)
{
	if (w->qemu)
		op_model_fail(w, "QEMU is left");
	if (w->guest_ran)
		op_model_fail(w, "the guest ran");
	if (images->offered != 1)
		op_model_fail(w, "the image is not offered again");
	if (!rest_is("hibernated"))
		op_model_fail(w, "the durable rest is %s", rest());
	check_rest_image(w, images);
	check_offered(w, images->id, !power_cut(w));
}

static void check_restore(struct op_model_world *w, bool committed)
{
	struct plan_images images = plan_images(true);
	bool stays = stays_paused(plan_case_of(w));

	restore_effect(w, &images, false);
	/* What the page server had heard itself, where its end was the restore's. */
	check_own_set(w, w->op && op_mover_said(w->op, "working-set") ? MODEL_PAGES_ASKED : PLAN_PAGES_SAVED);
	if (!committed || (!w->qemu && stays))
		offered_again(w, &images);
	else if (!w->qemu && (!rest_is(power_cut(w) ? "shutoff" : "crashed") || images.offered))
		op_model_fail(w, "QEMU was lost, the durable rest is %s", rest());
	else if (w->qemu && stays)
		restored_paused(w, &images);
	else if (w->qemu)
		restored(w, &images);
}

static void check_start(struct op_model_world *w, bool done)
{
	const char *state = plan_case_of(w)->paused ? "prelaunch" : "running";

	check_own_set(w, 0);
	if (!done && (w->qemu || rest_is("running")))
		op_model_fail(w, "not started, QEMU is %s, the rest %s", w->qemu ? "there" : "gone", rest());
	if (done && w->qemu && (!rest_is("running") || strcmp(w->run_state, state) != 0))
		op_model_fail(w, "started, the run state is %s, the rest %s", w->run_state, rest());
}

static void check_powerdown(struct op_model_world *w, bool done)
{
	if (done && (w->qemu || !rest_is("shutoff")))
		op_model_fail(w, "powered down, QEMU is %s, the rest %s", w->qemu ? "there" : "gone", rest());
	if (!w->qemu && rest_is("running"))
		op_model_fail(w, "QEMU is gone, the rest is running");
	if (w->qemu && (!rest_is("running") || !runs(w)))
		op_model_fail(w, "the guest is not as it was: %s, the rest %s", w->run_state, rest());
}

static void check_rest_pool(struct op_model_world *w, const char *pool)
{
	const json_t *image = json_object_get(plan.vm->rest, "image");
	const char *is = tp_json_str(image, "pool");

	if (plan_case_of(w)->keep && image)
		op_model_fail(w, "the durable rest names an image");
	if (!plan_case_of(w)->keep && (!is || strcmp(is, pool) != 0 || !rest_is("hibernated")))
		op_model_fail(w, "the durable rest is %s, its image in pool %s", rest(), is ? is : "(none)");
}

/* The engine's own list, once both pools were looked at again. */
static void check_listed(struct op_model_world *w, const char *pool)
{
	struct engine_pool *p = NULL;
	const json_t *entry;
	const char *state, *want = plan_case_of(w)->keep ? "consumed" : "complete";

	pools_recheck(plan.t->pools);
	plan_pump();
	entry = pools_image(plan.t->pools, plan.moved, &p);
	state = tp_json_str(entry, "state");
	if (!entry || strcmp(engine_pool_name(p), pool) != 0 || strcmp(state, want) != 0)
		op_model_fail(w, "the image is listed in pool %s, %s", entry ? engine_pool_name(p) : "(none)",
			      entry ? state : "-");
}

static void check_move(struct op_model_world *w, bool committed)
{
	struct plan_images from = plan_images_in(PLAN_POOL), to = plan_images_in(PLAN_OTHER);
	unsigned offered = plan_case_of(w)->keep ? 0 : 1;

	never_two_never_none(w, &from, &to);
	if (committed && (to.whole != 1 || to.offered != offered || from.offered))
		op_model_fail(w, "moved, and %u are whole there, %u offered, %u offered here", to.whole, to.offered,
			      from.offered);
	if (!committed && (from.whole != 1 || from.offered != offered || to.offered))
		op_model_fail(w, "not moved, and %u are whole here, %u offered, %u offered there", from.whole,
			      from.offered, to.offered);
	check_rest_pool(w, committed ? PLAN_OTHER : PLAN_POOL);
	check_listed(w, committed ? PLAN_OTHER : PLAN_POOL);
}

static void check_record(struct op_model_world *w)
{
	tp_autojson json_t *record = op_record(w->op);
	const char *error = tp_json_str(json_object_get(record, "error"), "class");

	if (!tp_json_str(record, "ended") || !tp_json_str(record, "started") || !tp_json_str(record, "phase"))
		op_model_fail(w, "the record is not whole");
	if (op_status(w->op) == OP_CANCELLED && (!error || strcmp(error, "Cancelled") != 0))
		op_model_fail(w, "cancelled, but the error is %s", error ? error : "none");
	if (op_status(w->op) == OP_SUCCEEDED && !json_object_get(record, "result"))
		op_model_fail(w, "succeeded without a result");
	if (w->script.fault == MODEL_NONE && op_status(w->op) != OP_SUCCEEDED)
		op_model_fail(w, "failed without a fault");
}

void plan_check_end(struct op_model_world *w)
{
	bool committed = w->op && op_committed(w->op) && !op_going_back(w->op);
	bool done = w->op && op_status(w->op) == OP_SUCCEEDED;

	if (plan.record) {
		committed = tp_json_bool(plan.record, "committed", false) &&
			    strcmp(tp_json_str(plan.record, "rollback"), "none") == 0;
		done = strcmp(tp_json_str(plan.record, "status"), "succeeded") == 0;
	}
	plan_pump();
	plan_look(w);
	if (w->op)
		check_record(w);
	plan_lazy_end(w);
	if ((w->qemu != 0) != (plan.vm->qemu != NULL))
		op_model_fail(w, "the engine's QEMU is not the model's");
	if (plan_is(w, "hibernate"))
		check_hibernate(w, committed);
	else if (plan_is(w, "restore"))
		check_restore(w, committed);
	else if (plan_is(w, "start"))
		check_start(w, done);
	else if (plan_is(w, "image-move"))
		check_move(w, committed);
	else
		check_powerdown(w, done);
}
