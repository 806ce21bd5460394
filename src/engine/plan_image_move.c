/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_image_move.c - An image goes to another pool
 *
 * Theory of operation. A mover copies the stored bytes and checks each frame on the way. The copy has
 * the mark moving.json from its first byte on, so it is no image whatever else it has: not while it
 * grows, not with its manifest. What an interrupted move leaves there stays, and the next move to
 * that pool goes on with it (pool_copy.c, copy_pump.c).
 *
 * The commit record says that the other pool has the image. Before it nothing at the source was
 * touched; after it the way is forward: the source's manifest goes first, then the mark at the copy,
 * then the rest of the source. So at no instant two folders are offered, and at each of them one has
 * the whole image with its manifest; which one it is is what the journal says, later state.json.
 *
 * Where the source's pool is lost meanwhile the image is put on the list of left_behind.h before the
 * copy is offered: when that pool returns, what it has is not taken for the image.
 *
 * The guest is not concerned: a VM that runs has kept images only, and its QEMU may come and go.
 */
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/left_behind.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/restorable.h"
#include "engine/retain.h"
#include "engine/steps.h"
#include "engine/vm_image.h"
#include "migration/mover_proto.h"
#include "storage/image_peek.h"
#include "storage/manifest.h"

#define SILENCE 120.0		/* seconds without progress */
#define ENTRIES_MAX 100000u
#define WITHOUT_QEMU (OP_RES_QEMU | OP_RES_MOVER)	/* its end is none of our business */

struct image_move {
	json_t *manifest, *consumed, *verified;	/* of the source; NULL: absent */
	int source_fd, copy_fd;			/* 0 or -1: none */
	double started;				/* monotonic */
	json_t *entry;				/* of the copy, as offered */
};

static void data_free(void *data)
{
	struct image_move *m = data;

	json_decref(m->manifest);
	json_decref(m->consumed);
	json_decref(m->verified);
	json_decref(m->entry);
	step_fd_close(&m->source_fd);
	step_fd_close(&m->copy_fd);
}

static const char *image_member(struct op *op, const char *member)
{
	return tp_json_str(json_object_get(op_res(op), "image"), member);
}

static const char *target(struct op *op)
{
	return tp_json_str(op_res(op), "to");
}

static json_t *image_job(struct op *op)
{
	return json_incref(json_object_get(op_res(op), "image"));
}

static const char *in_vm(const struct job *j)
{
	return tp_json_str(j->in, "vm");
}

static const char *in_id(const struct job *j)
{
	return tp_json_str(j->in, "id");
}

/* --- preflight --- */

/* A restored VM that has not run still needs it where it is; so does another one's operation. */
static bool is_free(struct op *op, const char *id, struct tp_error *err)
{
	for (const struct vm *vm = op_engine(op)->vms; vm; vm = vm->next) {
		const char *own = vm_image_id(vm);
		const char *used = vm_image_worked_with(vm);

		if (vm->op != op && used && strcmp(used, id) == 0)
			return tp_fail_class(err, TP_ESTATE, "Busy", "image %s is used by operation %s of "
					     "VM %s", id, op_id(vm->op), vm->name);
		if (own && strcmp(own, id) == 0 && tp_json_bool(vm->rest, "consumed", false))
			return tp_fail_class(err, TP_ESTATE, "InvalidState", "VM %s was restored from "
					     "image %s and has not run: resume it, or quit it, before the image "
					     "is moved", vm->name, id);
	}
	return true;
}

static bool choose(struct op *op, struct tp_error *err)
{
	struct torpor *t = op_engine(op);
	const char *id = tp_json_str(op_arguments(op), "image"), *to = tp_json_str(op_arguments(op), "pool");
	struct engine_pool *from = NULL;
	const json_t *entry = pools_image(t->pools, id, &from);
	const char *state = tp_json_str(entry, "state");

	if (!entry)
		return tp_fail_class(err, TP_ESTATE, "NotFound", "no image is named \"%s\"", id);
	if (!pools_need(t->pools, engine_pool_name(from), err) || !pools_need(t->pools, to, err) ||
	    !is_free(op, id, err))
		return false;
	if (strcmp(engine_pool_name(from), to) == 0)
		return tp_fail_class(err, TP_ESTATE, "InvalidState", "image %s is in pool %s already", id, to);
	if (strcmp(state, "partial") == 0)
		return tp_fail_class(err, TP_ESTATE, "InvalidState", "image %s is not finished: it cannot "
				     "be moved", id);
	if (left_behind(t, to, id))
		return tp_fail_class(err, TP_ESTATE, "Blocked", "what an earlier move left of image %s in "
				     "pool %s is still to be removed", id, to);
	return op_note(op, "image", json_pack("{s:s, s:s, s:s}", "id", id, "pool",
					      engine_pool_name(from), "vm", op_vm_name(op))) &&
	       op_note(op, "to", json_string(to));
}

static bool look_job(struct job *j, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	json_t *consumed, *verified;
	json_t *manifest = pool_manifest_read(j->pool, in_vm(j), in_id(j), err);

	if (!manifest)
		return false;
	j->out = json_pack("{s:o}", "manifest", manifest);
	consumed = pool_consumed_read(j->pool, in_vm(j), in_id(j), &why);
	/* A mark that cannot be read is one. */
	if (!consumed && why.code != TP_ESTATE)
		consumed = json_object();
	verified = pool_verified_read(j->pool, in_vm(j), in_id(j), tp_json_str(manifest, "footer"), NULL);
	if (consumed)
		tp_json_set(j->out, "consumed", consumed);
	if (verified)
		tp_json_set(j->out, "verified", verified);
	j->fd = pool_image_open(j->pool, in_vm(j), in_id(j), err);
	return j->fd >= 0;
}

static enum op_verdict preflight(struct op *op, const struct op_event *ev)
{
	struct image_move *m = op_data(op);
	struct tp_error err = TP_ERROR_INIT;
	const json_t *out;

	if (ev->type == OP_ENTER) {
		m->source_fd = m->copy_fd = -1;
		m->started = op_now(op);
		if (!choose(op, &err))
			return op_fail_error(op, &err, json_pack("{s:O, s:O}", "image",
								 json_object_get(op_arguments(op), "image"), "pool",
								 json_object_get(op_arguments(op), "pool")));
		return step_job(op, look_job, image_job(op), image_member(op, "pool"), 0);
	}
	if (!job_of(ev))
		return OP_WAIT;
	out = job_of(ev)->out;
	m->manifest = json_incref(json_object_get(out, "manifest"));
	m->consumed = json_incref(json_object_get(out, "consumed"));
	m->verified = json_incref(json_object_get(out, "verified"));
	m->source_fd = TP_STEAL_FD(job_of(ev)->fd);
	op_result(op, "estimate", json_pack("{s:O, s:n, s:i}", "bytes", json_object_get(m->manifest, "bytes"),
					    "seconds", "pause", 0));
	return OP_NEXT;
}

/* --- create-copy --- */

static bool begin_job(struct job *j, struct tp_error *err)
{
	const struct pool_copy c = { .vm = in_vm(j), .id = in_id(j), .from = tp_json_str(j->in, "pool"),
				     .footer = tp_json_str(j->in, "footer"),
				     .bytes = (uint64_t)tp_json_int(j->in, "bytes", 0) };
	struct pool_shortage shortage;

	j->fd = pool_copy_begin(j->pool, &c, &shortage, err);
	if (j->fd < 0 && shortage.required)
		j->base.error_data = json_pack("{s:I, s:I, s:s}", "required", (json_int_t)shortage.required,
					       "available", (json_int_t)shortage.available, "pool",
					       pool_name(j->pool));
	return j->fd >= 0;
}

static json_t *moving(struct op *op)
{
	const struct image_move *m = op_data(op);

	return json_pack("{s:s, s:O}", "from", image_member(op, "pool"), "bytes",
			 json_object_get(m->manifest, "bytes"));
}

static enum op_verdict create_copy(struct op *op, const struct op_event *ev)
{
	struct image_move *m = op_data(op);
	tp_autojson json_t *mark = NULL;
	json_t *in;

	if (ev->type == OP_ENTER) {
		in = json_copy(json_object_get(op_res(op), "image"));
		tp_json_set(in, "footer", json_incref(json_object_get(m->manifest, "footer")));
		tp_json_set(in, "bytes", json_incref(json_object_get(m->manifest, "bytes")));
		return step_job(op, begin_job, in, target(op), 0);
	}
	if (!job_of(ev))
		return OP_WAIT;
	m->copy_fd = TP_STEAL_FD(job_of(ev)->fd);
	mark = moving(op);
	pools_copy_seen(op_engine(op)->pools, target(op), op_vm_name(op), image_member(op, "id"), mark);
	return OP_NEXT;
}

static bool suspend_job(struct job *j, struct tp_error *err)
{
	return pool_copy_suspend(j->pool, in_vm(j), in_id(j), err);
}

/* What was copied is worth keeping; that it cannot be tidied up now is not worth a stuck operation. */
static enum op_verdict create_copy_undo(struct op *op, const struct op_event *ev)
{
	struct image_move *m = op_data(op);
	struct engine_pool *p = target(op) ? pools_find(op_engine(op)->pools, target(op)) : NULL;

	if (ev->type == OP_ENTER) {
		step_fd_close(&m->copy_fd);
		if (!p || step_job(op, suspend_job, image_job(op), target(op), OPQ_SHOW) != OP_WAIT)
			return OP_NEXT;
		return OP_WAIT;
	}
	if (ev->type != OP_IO)
		return OP_WAIT;
	pools_recheck(op_engine(op)->pools);
	return OP_NEXT;
}

/* --- copy --- */

static enum op_verdict start_mover(struct op *op)
{
	struct image_move *m = op_data(op);
	json_t *request = json_pack("{s:s, s:[s, s], s:O}", "job", "copy", "fds", "source", "image", "footer",
				    json_object_get(m->manifest, "footer"));
	int fds[2];

	fds[0] = TP_STEAL_FD(m->source_fd);
	fds[1] = TP_STEAL_FD(m->copy_fd);
	mover_fault(op, request);
	op_hold(op, OP_RES_MOVER);
	return op_mover_start(op, request, fds, 2);
}

static enum op_verdict copied(struct op *op, const json_t *said)
{
	op_result(op, "bytes", json_incref(json_object_get(said, "bytes")));
	op_result(op, "copied-bytes", json_incref(json_object_get(said, "copied-bytes")));
	op_result(op, "kept-bytes", json_incref(json_object_get(said, "kept-bytes")));
	return OP_NEXT;
}

static enum op_verdict mover_failed(struct op *op, const json_t *said)
{
	struct tp_error err = TP_ERROR_INIT;

	mover_proto_fail(&err, said);
	tp_prefix(&err, "image %s", image_member(op, "id"));
	return op_fail_error(op, &err, json_pack("{s:s, s:s*}", "image", image_member(op, "id"), "where",
						 tp_json_str(said, "where")));
}

static enum op_verdict copy(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return start_mover(op);
	if (ev->type != OP_MOVER)
		return OP_WAIT;
	if (strcmp(ev->name, "hello") == 0)
		mover_note(op, ev);
	mover_progress(op, ev);
	if (strcmp(ev->name, "error") == 0)
		return mover_failed(op, ev->data);
	if (strcmp(ev->name, "done") == 0)
		return copied(op, ev->data);
	if (strcmp(ev->name, "end") == 0)
		return op_fail(op, TP_ESTATE, "IOError", "the mover that copied image %s ended too early",
			       image_member(op, "id"));
	return OP_WAIT;
}

/* Nothing writes into the copy any more when create-copy's undo comes. */
static enum op_verdict copy_undo(struct op *op, const struct op_event *ev)
{
	return mover_stop(op, ev);
}

/* --- write-marks, write-manifest: the copy has all that the source has, and its own mark --- */

static bool footer_job(struct job *j, struct tp_error *err)
{
	const json_t *manifest = json_object_get(j->in, "manifest");
	tp_autoclose int fd = pool_image_open(j->pool, in_vm(j), in_id(j), err);
	struct image_peek found;

	if (fd < 0 || !image_peek(fd, &found, err) || !manifest_matches(manifest, &found, err))
		return tp_prefix(err, "the copy of image %s", in_id(j));
	return pool_copy_marks(j->pool, in_vm(j), in_id(j), json_object_get(j->in, "consumed"),
			       json_object_get(j->in, "verified"), err) &&
	       pool_manifest_write(j->pool, in_vm(j), in_id(j), manifest, err);
}

static enum op_verdict write_manifest(struct op *op, const struct op_event *ev)
{
	struct image_move *m = op_data(op);
	json_t *in;

	if (ev->type != OP_ENTER)
		return ev->type == OP_IO ? OP_NEXT : OP_WAIT;
	in = json_copy(json_object_get(op_res(op), "image"));
	tp_json_set(in, "manifest", json_incref(m->manifest));
	if (m->consumed)
		tp_json_set(in, "consumed", json_incref(m->consumed));
	if (m->verified)
		tp_json_set(in, "verified", json_incref(m->verified));
	return step_job(op, footer_job, in, target(op), 0);
}

static bool unlink_job(struct job *j, struct tp_error *err)
{
	return pool_manifest_unlink(j->pool, in_vm(j), in_id(j), err);
}

/* Tidy only: the mark says that it is no image. */
static enum op_verdict write_manifest_undo(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return step_job(op, unlink_job, image_job(op), target(op), OPQ_SHOW) == OP_WAIT ?
		       OP_WAIT : OP_NEXT;
	return ev->type == OP_IO ? OP_NEXT : OP_WAIT;
}

/* --- commit: the image is in the other pool --- */

static enum op_verdict commit(struct op *op, const struct op_event *ev)
{
	(void)op, (void)ev;
	return OP_NEXT;
}

/* --- the source is an image no more --- */

static enum op_verdict leave_behind(struct op *op, const char *why)
{
	struct op_job *job = left_behind_add(op_engine(op), image_member(op, "pool"), image_member(op, "id"));

	op_warn(op, "what pool %s has of image %s is removed when it can be reached: %s",
		image_member(op, "pool"), image_member(op, "id"), why);
	return job ? op_io(op, job, 0) : op_fail(op, TP_ENOMEM, "GenericError", "out of memory");
}

static enum op_verdict retire_source(struct op *op, const struct op_event *ev)
{
	struct tp_error err = TP_ERROR_INIT;

	if (ev->type == OP_ENTER) {
		if (!pools_need(op_engine(op)->pools, image_member(op, "pool"), &err))
			return leave_behind(op, err.text);
		return step_job(op, unlink_job, image_job(op), image_member(op, "pool"), OPQ_SHOW);
	}
	if (ev->type != OP_IO)
		return OP_WAIT;
	/* Of the list's own job an error fails the step. */
	return ev->err ? leave_behind(op, ev->err->text) : OP_NEXT;
}

/* And how the catalogue has it then. */
static bool offer_job(struct job *j, struct tp_error *err)
{
	tp_autojson json_t *list = NULL;
	json_t *entry;
	size_t i;

	if (!pool_copy_offer(j->pool, in_vm(j), in_id(j), err))
		return false;
	list = pool_catalogue(j->pool, in_vm(j), ENTRIES_MAX, err);
	json_array_foreach(list, i, entry)
		if (strcmp(tp_json_str(entry, "id"), in_id(j)) == 0)
			j->out = json_incref(entry);
	return list != NULL;
}

static enum op_verdict offer_copy(struct op *op, const struct op_event *ev)
{
	struct image_move *m = op_data(op);

	if (ev->type == OP_ENTER)
		return step_job(op, offer_job, image_job(op), target(op), 0);
	if (!job_of(ev))
		return OP_WAIT;
	m->entry = json_incref(job_of(ev)->out);
	return OP_NEXT;
}

static bool remove_job(struct job *j, struct tp_error *err)
{
	return pool_image_remove(j->pool, in_vm(j), in_id(j), err);
}

/* Without its manifest it is nothing but room: the next start sweeps what stays. */
static enum op_verdict remove_source(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER) {
		if (left_behind(op_engine(op), image_member(op, "pool"), image_member(op, "id")) ||
		    step_job(op, remove_job, image_job(op), image_member(op, "pool"), OPQ_SHOW) != OP_WAIT)
			return OP_NEXT;
		return OP_WAIT;
	}
	if (ev->type != OP_IO)
		return OP_WAIT;
	if (ev->err)
		op_warn(op, "the files of image %s stay in pool %s until the next start: %s",
			image_member(op, "id"), image_member(op, "pool"), ev->err->text);
	return OP_NEXT;
}

/* --- the end --- */

static void ended(struct op *op)
{
	struct image_move *m = op_data(op);
	struct vm *vm = op_vm_of(op);
	const char *id = image_member(op, "id");
	json_t *own = json_object_get(vm->rest, "image");

	if (!op_committed(op) || op_going_back(op))
		return;
	if (own && strcmp(tp_json_str(own, "id"), id) == 0) {
		own = json_copy(own);
		tp_json_set_str(own, "pool", target(op));
		vm_rest_set(vm, "image", own);
	}
	pools_image_moved(op_engine(op)->pools, id, image_member(op, "pool"), target(op), m->entry);
	retain_drop_copies(op_engine(op), id);
	restorable_image_changed(op_engine(op), id);
	op_result(op, "image", json_string(id));
	op_result(op, "pool", json_string(target(op)));
	if (m->started > 0)
		op_result(op, "seconds", json_real(op_now(op) - m->started));
}

static const struct op_step steps[] = {
	{ .name = "preflight", .phase = "Preparing", .run = preflight, .limit = 60, .expects = WITHOUT_QEMU },
	{ .name = "whole", .run = prefetch_whole, .undo = prefetch_whole_undo, .limit = 60, .expects = WITHOUT_QEMU },
	{ .name = "create-copy", .run = create_copy, .undo = create_copy_undo, .limit = 60, .undo_limit = 60,
	  .expects = WITHOUT_QEMU },
	{ .name = "copy", .phase = "Copying", .run = copy, .undo = copy_undo, .limit = SILENCE,
	  .undo_limit = 20, .expects = WITHOUT_QEMU },
	{ .name = "write-manifest", .phase = "Verifying", .run = write_manifest, .undo = write_manifest_undo,
	  .limit = 60, .undo_limit = 60, .expects = WITHOUT_QEMU },
	{ .name = "commit", .phase = "Committing", .run = commit, .limit = 30, .flags = OPF_COMMIT,
	  .expects = WITHOUT_QEMU },
	{ .name = "retire-source", .run = retire_source, .limit = 60, .expects = WITHOUT_QEMU },
	{ .name = "offer-copy", .run = offer_copy, .limit = 60, .expects = WITHOUT_QEMU },
	{ .name = "remove-source", .run = remove_source, .limit = 120, .expects = WITHOUT_QEMU },
};

const struct op_plan plan_image_move = {
	.kind = "image-move", .version = 1, .steps = steps, .nsteps = TP_N(steps), .done_phase = "Moved",
	.data_size = sizeof(struct image_move), .data_free = data_free, .ended = ended,
};
