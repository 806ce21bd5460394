/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * restore_damage.c - Damage that a restore met in its image, kept beside it
 *
 * A load reads what no look before it reads: every frame. What it finds damaged is recorded as a
 * verification would have done: the image is corrupt, and its VM not restorable, until one finds
 * it good.
 */
#include <stdio.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/pool_job.h"
#include "engine/restorable.h"
#include "engine/restore.h"
#include "engine/steps.h"

TP_LOG_SOURCE("engine.restore");

static const char *id_of(const struct job *j)
{
	return tp_json_str(j->in, "id");
}

static bool record_damage(struct job *j, struct tp_error *err)
{
	return pool_verified_write(j->pool, tp_json_str(j->in, "vm"), id_of(j), json_object_get(j->in, "outcome"), err);
}

static void damage_recorded(struct job *j, const struct tp_error *err, void *arg)
{
	struct torpor *t = arg;

	if (err && err->code == TP_ECANCELLED)
		return;
	if (err)
		tp_warn("image %s: its damage cannot be recorded beside it: %s", id_of(j), err->text);
	pools_image_verified(t->pools, tp_json_str(j->in, "pool"), id_of(j), json_object_get(j->in, "outcome"));
	restorable_image_changed(t, id_of(j));
}

void restore_damaged(struct op *op, const char *what)
{
	struct restore *r = op_data(op);
	char at[TP_TIME_TEXT];

	json_decref(r->damage);
	r->damage = json_pack("{s:i, s:s, s:b, s:O?, s:[{s:s}], s:i}", "format", 1, "at",
			      tp_time_format(tp_now_us(), at), "ok", 0, "footer",
			      json_object_get(r->manifest, "footer"), "damage", "what", what, "damaged", 1);
}

/* One that is not recorded is found again by the next restore. */
void restore_keep_damage(struct op *op)
{
	const struct restore *r = op_data(op);
	struct torpor *t = op_engine(op);
	struct tp_error err = TP_ERROR_INIT;
	struct engine_pool *p;
	json_t *in;

	if (!r->damage)
		return;
	p = pools_need(t->pools, tp_json_str(restore_image(op), "pool"), &err);
	in = json_copy(restore_image(op));
	tp_json_set(in, "outcome", json_incref(r->damage));
	if (!p)
		json_decref(in);
	if (!p || !pool_job(p, record_damage, in, damage_recorded, t, &err))
		tp_warn("image %s: its damage cannot be recorded: %s", tp_json_str(restore_image(op), "id"), err.text);
}
