/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_image_verify.c - Verification of an image, beside its VM
 *
 * Theory of operation. Nothing but the image is looked at, so no VM is held and nothing needs a
 * journal (ops_beside.c). A mover in the background class reads every frame and the index; here the
 * manifest is compared with what it found. The outcome is put beside the image, durably: a good one
 * is its "verified" time, a bad one makes it "corrupt" until another verification succeeds. Damage
 * thus ends in two things, the outcome and the operation's failure, in this order.
 *
 * Few run at once; the others wait in their order. One whose image is deleted or goes to another pool
 * is ended by whoever did that (ops_beside_gone); a pool that is lost shows as failed reading, or when
 * the outcome is written.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/image_facts.h"
#include "engine/ops_priv.h"
#include "engine/restorable.h"
#include "engine/steps.h"
#include "migration/mover_proto.h"

#define AT_ONCE 2u		/* movers */
#define LOOK_AGAIN 0.2		/* seconds: is it our turn? */
#define SILENCE 600.0		/* seconds without progress: the idle class may starve for long */
#define DAMAGE_MAX (48u << 10)	/* bytes of JSON: an outcome must fit its file */

struct verification {
	json_t *manifest;
	int image_fd;			/* 0 or -1: none */
	char pool[TP_NAME_MAX + 1];	/* that has it */
	double started;			/* monotonic */
	json_t *found;			/* the mover's word on a whole image */
	json_t *damage;			/* list; NULL: it is good */
	int64_t damaged;		/* how many there are */
	struct tp_error why;		/* the damage as the operation's error */
	char where[128];
};

static void data_free(void *data)
{
	struct verification *v = data;

	json_decref(v->manifest);
	json_decref(v->found);
	json_decref(v->damage);
	step_fd_close(&v->image_fd);
}

static const char *image_id(struct op *op)
{
	return tp_json_str(op_arguments(op), "image");
}

static json_t *image_job(struct op *op)
{
	return json_pack("{s:s, s:s}", "vm", op_vm_name(op), "id", image_id(op));
}

/* The pool that has it now. NULL: failed. */
static const char *image_pool(struct op *op)
{
	struct tp_error err = TP_ERROR_INIT;
	struct engine_pool *p = NULL;

	if (pools_image(op_engine(op)->pools, image_id(op), &p))
		return engine_pool_name(p);
	tp_fail_class(&err, TP_ESTATE, "NotFound", "no image is named \"%s\"", image_id(op));
	op_fail_error(op, &err, json_pack("{s:s}", "image", image_id(op)));
	return NULL;
}

/* --- find, wait --- */

static enum op_verdict find(struct op *op, const struct op_event *ev)
{
	const json_t *entry = pools_image(op_engine(op)->pools, image_id(op), NULL);
	const char *state = tp_json_str(entry, "state"), *pool = image_pool(op);
	struct tp_error err = TP_ERROR_INIT;

	(void)ev;
	if (!pool)
		return OP_FAIL;
	if (!pools_need(op_engine(op)->pools, pool, &err))
		return op_fail_error(op, &err, json_pack("{s:s, s:s}", "image", image_id(op), "pool", pool));
	if (state && strcmp(state, "partial") == 0)
		return op_fail(op, TP_ESTATE, "InvalidState", "image %s is not finished: there is nothing to "
			       "verify", image_id(op));
	op_result(op, "estimate", json_pack("{s:O?, s:n, s:i}", "bytes", json_object_get(entry, "bytes"),
					    "seconds", "pause", 0));
	return OP_NEXT;
}

/* Running ones are listed newest first. */
static unsigned older(struct op *op)
{
	const struct op_run *r = op_engine(op)->ops->running;
	unsigned n = 0;

	while (r && r->op != op)
		r = r->next;
	for (r = r ? r->next : NULL; r; r = r->next)
		n += r->plan == &plan_image_verify && !r->dry && !r->ending;
	return n;
}

static enum op_verdict wait_turn(struct op *op, const struct op_event *ev)
{
	if (ev->type != OP_ENTER && ev->type != OP_TICK)
		return OP_WAIT;
	if (older(op) < AT_ONCE)
		return OP_NEXT;
	op_progress(op);
	return op_sleep(op, LOOK_AGAIN);
}

/* --- open --- */

static bool open_job(struct job *j, struct tp_error *err)
{
	const char *vm = tp_json_str(j->in, "vm"), *id = tp_json_str(j->in, "id");
	json_t *manifest;

	j->base.error_data = json_pack("{s:s, s:s}", "image", id, "where", "manifest.json");
	manifest = pool_manifest_read(j->pool, vm, id, err);
	if (!manifest)
		return false;
	j->out = json_pack("{s:o}", "manifest", manifest);
	tp_json_set_str(j->base.error_data, "where", "memory.zst");
	j->fd = pool_image_open(j->pool, vm, id, err);
	return j->fd >= 0;
}

/* Found bad: the outcome is written first, then the operation fails with this. */
static enum op_verdict damaged(struct op *op, const struct tp_error *err, const char *where,
			       const json_t *list, int64_t count)
{
	struct verification *v = op_data(op);

	v->why = *err;
	snprintf(v->where, sizeof(v->where), "%s", where ? where : "memory.zst");
	json_decref(v->damage);
	v->damage = json_is_array(list) && json_array_size(list) > 0 ? json_deep_copy(list) :
		    json_pack("[{s:s}]", "what", err->text);
	v->damaged = count > 0 ? count : (int64_t)json_array_size(v->damage);
	return OP_NEXT;
}

/* The same, of who does not know which image it reads. */
static enum op_verdict damaged_inside(struct op *op, const struct tp_error *err, const char *where,
				      const json_t *list, int64_t count)
{
	struct verification *v = op_data(op);
	enum op_verdict verdict = damaged(op, err, where, list, count);

	tp_prefix(&v->why, "image %s", image_id(op));
	return verdict;
}

/* A manifest or file that is absent is damage as well, but not once the image was deleted. */
static bool is_damage(struct op *op, const struct tp_error *err)
{
	const char *pool = ((const struct verification *)op_data(op))->pool;

	return err->code == TP_ECORRUPT || (strcmp(tp_error_class(err), "NotFound") == 0 &&
					    pools_image_at(op_engine(op)->pools, pool, image_id(op)));
}

static enum op_verdict open_image(struct op *op, const struct op_event *ev)
{
	struct verification *v = op_data(op);
	const char *pool;

	if (ev->type == OP_ENTER) {
		v->image_fd = -1;
		v->started = op_now(op);
		pool = image_pool(op);
		if (!pool)
			return OP_FAIL;
		snprintf(v->pool, sizeof(v->pool), "%s", pool);
		return step_job(op, open_job, image_job(op), v->pool, OPQ_SHOW);
	}
	if (!job_of(ev))
		return OP_WAIT;
	if (ev->err && is_damage(op, ev->err))
		return damaged(op, ev->err, tp_json_str(ev->error_data, "where"), NULL, 0);
	if (ev->err)
		return op_fail_error(op, ev->err, ev->error_data ? json_deep_copy(ev->error_data) : NULL);
	v->manifest = json_incref(json_object_get(job_of(ev)->out, "manifest"));
	v->image_fd = TP_STEAL_FD(job_of(ev)->fd);
	return OP_NEXT;
}

/* --- verify --- */

static enum op_verdict start_mover(struct op *op)
{
	struct verification *v = op_data(op);
	int fd = TP_STEAL_FD(v->image_fd);
	json_t *request = json_pack("{s:s, s:[s], s:i, s:b}", "job", "verify", "fds", "image", "threads", 0,
				    "background", 1);

	mover_fault(op, request);
	op_hold(op, OP_RES_MOVER);
	return op_mover_start(op, request, &fd, 1);
}

static enum op_verdict compare(struct op *op, const json_t *found)
{
	struct verification *v = op_data(op);
	struct tp_error err = TP_ERROR_INIT;

	v->found = json_deep_copy(found);
	if (image_facts_compare(v->manifest, found, &err))
		return OP_NEXT;
	return damaged_inside(op, &err, "manifest.json", NULL, 0);
}

static enum op_verdict mover_failed(struct op *op, const json_t *said)
{
	struct tp_error err = TP_ERROR_INIT;
	const char *where = tp_json_str(said, "where");

	mover_proto_fail(&err, said);
	if (err.code != TP_ECORRUPT)
		return op_fail_error(op, &err, json_pack("{s:s}", "image", image_id(op)));
	return damaged_inside(op, &err, where, json_object_get(said, "damage"), tp_json_int(said, "damaged", 0));
}

static enum op_verdict verify(struct op *op, const struct op_event *ev)
{
	const struct verification *v = op_data(op);

	if (v->damage)
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return start_mover(op);
	if (ev->type != OP_MOVER)
		return OP_WAIT;
	mover_progress(op, ev);
	if (strcmp(ev->name, "error") == 0)
		return mover_failed(op, ev->data);
	if (strcmp(ev->name, "done") == 0)
		return compare(op, ev->data);
	if (strcmp(ev->name, "end") == 0)
		return op_fail(op, TP_ESTATE, "IOError", "the mover that verified image %s ended too early",
			       image_id(op));
	return OP_WAIT;
}

static enum op_verdict verify_undo(struct op *op, const struct op_event *ev)
{
	return mover_stop(op, ev);
}

/* --- record --- */

static bool record_job(struct job *j, struct tp_error *err)
{
	return pool_verified_write(j->pool, tp_json_str(j->in, "vm"), tp_json_str(j->in, "id"),
				   json_object_get(j->in, "outcome"), err);
}

static json_t *outcome(struct op *op)
{
	const struct verification *v = op_data(op);
	char at[TP_TIME_TEXT];
	json_t *out = json_pack("{s:i, s:s, s:b, s:O?}", "format", 1, "at", tp_time_format(tp_now_us(), at),
				"ok", v->damage == NULL, "footer", json_object_get(v->manifest, "footer"));

	/* What is there of the list, so that it fits. */
	for (size_t n = json_array_size(v->damage); n > 0; n--) {
		tp_json_set(out, "damage", json_incref(v->damage));
		if (json_dumpb(out, NULL, 0, JSON_COMPACT) <= DAMAGE_MAX)
			break;
		json_array_remove(v->damage, n - 1);
	}
	if (v->damage)
		tp_json_set(out, "damaged", json_integer(v->damaged));
	return out;
}

static enum op_verdict fail_damaged(struct op *op)
{
	struct verification *v = op_data(op);

	return op_fail_error(op, &v->why, json_pack("{s:s, s:s, s:O, s:I}", "image", image_id(op), "where",
						    v->where, "damage", v->damage, "damaged",
						    (json_int_t)v->damaged));
}

static enum op_verdict succeeded(struct op *op)
{
	struct verification *v = op_data(op);
	static const char *const members[] = { "frames", "pages", "bytes", "raw-bytes" };

	op_result(op, "image", json_string(image_id(op)));
	for (size_t i = 0; i < TP_N(members); i++)
		op_result(op, members[i], json_incref(json_object_get(v->found, members[i])));
	op_result(op, "seconds", json_real(op_now(op) - v->started));
	return OP_NEXT;
}

static enum op_verdict record(struct op *op, const struct op_event *ev)
{
	struct verification *v = op_data(op);
	json_t *in;

	if (ev->type == OP_ENTER) {
		in = image_job(op);
		tp_json_set(in, "outcome", outcome(op));
		return step_job(op, record_job, in, v->pool, OPQ_SHOW);
	}
	if (!job_of(ev))
		return OP_WAIT;
	/* A full disk, a read-only one: it is known as long as this engine runs. */
	if (ev->err && strcmp(tp_error_class(ev->err), "InsufficientSpace") != 0 && ev->err->sys != EROFS)
		return op_fail_error(op, ev->err, json_pack("{s:s}", "image", image_id(op)));
	if (ev->err)
		op_warn(op, "what was found cannot be recorded beside the image: %s", ev->err->text);
	pools_image_verified(op_engine(op)->pools, v->pool, image_id(op), json_object_get(job_of(ev)->in, "outcome"));
	restorable_image_changed(op_engine(op), image_id(op));
	return v->damage ? fail_damaged(op) : succeeded(op);
}

static const struct op_step steps[] = {
	{ .name = "find", .run = find, .limit = 10 },
	{ .name = "wait-turn", .run = wait_turn, .limit = 60 },
	{ .name = "open", .phase = "Verifying", .run = open_image, .limit = 60 },
	{ .name = "verify", .run = verify, .undo = verify_undo, .limit = SILENCE, .undo_limit = 20,
	  .expects = OP_RES_MOVER },
	{ .name = "record", .run = record, .limit = 60, .expects = OP_RES_MOVER },
};

const struct op_plan plan_image_verify = {
	.kind = "image-verify", .version = 1, .steps = steps, .nsteps = TP_N(steps), .done_phase = "Verified",
	.data_size = sizeof(struct verification), .data_free = data_free,
};
