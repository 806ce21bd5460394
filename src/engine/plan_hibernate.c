/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_hibernate.c - Hibernate by save: memory and devices into a compressed image
 *
 * Theory of operation. A two-phase commit with QEMU by its return path (proven
 * on 7.2 and 10.0): QEMU sends all it has, inactivates its disks and waits for
 * SHUT; meanwhile the mover seals the image, the disks' fingerprints are taken
 * and the manifest is written. Then the commit record; only after it the mover
 * answers SHUT and QEMU ends.
 *
 * Before the commit a failure ends the mover first, which closes the stream, so
 * that QEMU gives up by itself and activates its disks again; a manifest goes
 * before the guest does (an image must never look whole while the guest runs).
 * After the commit nothing may close the stream while QEMU lives: that would
 * change the disks under a committed image. So any trouble there kills QEMU.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/guest_disks.h"
#include "engine/hibernate.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/room.h"
#include "engine/spec.h"
#include "engine/standing.h"
#include "engine/steps.h"
#include "engine/vm_runtime.h"
#include "engine/working_set.h"
#include "migration/mig_info.h"

#define SAVE_FD "torpor-save"
#define QEMU_HAS_SAY 1.0	/* seconds from the stream's end to the loss of QEMU being seen */
#define POLL_EVERY 0.5		/* seconds between query-migrate while events tell the same */
#define END_WAIT 10.0		/* seconds for each of completed and quit; then SIGKILL */

static const char *const save_caps[] = { "return-path", "events", NULL };

static void data_free(void *data)
{
	struct hibernate *h = data;

	json_decref(h->seen);
	json_decref(h->sealed);
	json_decref(h->disks);
	json_decref(h->working_set);
	json_decref(h->manifest);
	step_fd_close(&h->image_fd);
	step_fd_close(&h->qemu_end);
}

static const char *image_member(struct op *op, const char *member)
{
	return tp_json_str(json_object_get(op_res(op), "image"), member);
}

/* --- create-image --- */

static bool make_image(struct job *j, struct tp_error *err)
{
	struct pool_demand demand = room_demand_of(j->in);
	struct pool_shortage shortage;
	bool guaranteed = false;

	j->fd = pool_image_create(j->pool, &demand, tp_json_str(j->in, "id"), tp_json_str(j->in, "reserve"),
				      &guaranteed, &shortage, err);
	if (j->fd < 0)
		j->base.error_data = room_shortage(&shortage, pool_name(j->pool));
	j->out = json_pack("{s:b}", "guaranteed", guaranteed);
	return j->fd >= 0;
}

/* The file system would keep what is reserved, but cannot reserve. */
static void note_room(struct op *op, const struct hibernate *h, bool guaranteed)
{
	op_result(op, "guaranteed", json_boolean(guaranteed));
	if (h->guaranteed && !guaranteed && strcmp(hibernate_reserve(op), "full") == 0)
		op_warn(op, "room in pool %s is not guaranteed: its file system cannot allocate beforehand",
			hibernate_pool(op));
}

/* Of a VM that was restored and never run: superseded by the new image, unless it is to be kept. */
static bool note_former(struct op *op)
{
	const struct vm *vm = op_vm_of(op);
	json_t *former = json_object_get(vm->rest, "image");
	bool drop = former && tp_json_bool(vm->rest, "consumed", false) && !tp_json_bool(vm->rest, "keep", false);

	return !drop || op_note(op, "former-image", json_incref(former));
}

static enum op_verdict create_image(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);
	struct vm *vm = op_vm_of(op);
	char id[IMAGE_ID_MAX + 1];
	json_t *in;

	if (ev->type == OP_ENTER) {
		h->image_fd = -1;
		pool_image_id(vm->name, tp_now_us(), id);
		if (!op_note(op, "image", json_pack("{s:s, s:s}", "id", id, "pool", hibernate_pool(op))) ||
		    !note_former(op))
			return OP_FAIL;
		in = room_demand(vm, hibernate_pool(op), h->bound);
		tp_json_set_str(in, "id", id);
		tp_json_set_str(in, "reserve", hibernate_reserve(op));
		return step_job(op, make_image, in, hibernate_pool(op), 0);
	}
	if (!job_of(ev))
		return OP_WAIT;
	h->image_fd = TP_STEAL_FD(job_of(ev)->fd);
	note_room(op, h, tp_json_bool(job_of(ev)->out, "guaranteed", false));
	return OP_NEXT;
}

static bool remove_image(struct job *j, struct tp_error *err)
{
	const char *vm = tp_json_str(j->in, "vm"), *id = tp_json_str(j->in, "id");

	return tp_json_bool(j->in, "standing", false) ? pool_image_return(j->pool, vm, id, err) :
							pool_image_remove(j->pool, vm, id, err);
}

static json_t *image_job(struct op *op)
{
	return json_pack("{s:s, s:s}", "vm", op_vm_name(op), "id", image_member(op, "id"));
}

static enum op_verdict create_image_undo(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);
	json_t *in;

	if (ev->type == OP_ENTER) {
		if (!image_member(op, "id"))
			return OP_NEXT;
		step_fd_close(&h->image_fd);
		in = image_job(op);
		/* At recovery as well: what was taken from standing room stands again. */
		tp_json_set(in, "standing", json_boolean(standing_wanted(op_vm_of(op), image_member(op, "pool"))));
		return step_job(op, remove_image, in, image_member(op, "pool"), 0);
	}
	if (ev->type != OP_IO)
		return OP_WAIT;
	/* At recovery the catalogue had found it at the start. */
	pools_image_drop(op_engine(op)->pools, image_member(op, "pool"), image_member(op, "id"));
	return OP_NEXT;
}

/* --- working-set: read while the guest still runs --- */

static enum op_verdict read_working_set(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);
	struct tp_error err = TP_ERROR_INIT;
	struct op_job *job;

	if (ev->type == OP_ENTER) {
		job = working_set_read(op_vm_of(op), &err);
		return job ? op_io(op, job, OPQ_SHOW) : op_fail_error(op, &err, NULL);
	}
	if (ev->type != OP_IO)
		return OP_WAIT;
	json_decref(h->working_set);
	h->working_set = job_of(ev) ? TP_STEAL(job_of(ev)->out) : NULL;
	return OP_NEXT;
}

/* --- pause, capabilities --- */

static enum op_verdict pause_guest(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);

	if (ev->type == OP_ENTER)
		h->paused_at = op_now(op);
	return guest_pause(op, ev);
}

static enum op_verdict prepare(struct op *op, const struct op_event *ev)
{
	return migration_prepare(op, ev, save_caps);
}

/* --- save-state --- */

static enum op_verdict start_mover(struct op *op)
{
	struct hibernate *h = op_data(op);
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *level = hibernate_option(op, "level"), *threads = hibernate_option(op, "threads");
	char uuid[40];
	int fds[2];
	json_t *request;

	if (!stream_pair(&h->qemu_end, &fds[0], STREAM_BUFFER, &err))
		return op_fail_error(op, &err, NULL);
	hibernate_uuid(uuid, sizeof(uuid));
	request = json_pack("{s:s, s:[s, s], s:s, s:O, s:O, s:b, s:I, s:I}", "job", "save", "fds", "stream",
			    "image", "uuid", uuid, "level", level, "threads", threads, "return-path", 1,
			    "limit", (json_int_t)h->limit, "total", (json_int_t)h->ram);
	mover_fault(op, request);
	fds[1] = TP_STEAL_FD(h->image_fd);
	op_hold(op, OP_RES_MOVER);
	if (op_mover_start(op, request, fds, 2) == OP_FAIL) {
		tp_close(&h->qemu_end);
		return OP_FAIL;
	}
	return OP_WAIT;
}

/* The mover's own words: class, desc, and what else it tells. */
static enum op_verdict mover_failed(struct op *op)
{
	const json_t *said = op_mover_said(op, "error"), *image = json_object_get(op_res(op), "image");
	struct tp_error err = TP_ERROR_INIT;
	json_t *data = said ? json_copy((json_t *)said) : NULL;

	tp_fail_class(&err, TP_ESTATE, tp_json_str(said, "class") ? tp_json_str(said, "class") : "IOError", "%s",
		      tp_json_str(said, "desc") ? tp_json_str(said, "desc") : "the mover ended too early");
	if (image)
		tp_prefix(&err, "image \"%s\" in pool \"%s\"", tp_json_str(image, "id"), tp_json_str(image, "pool"));
	json_object_del(data, "class");
	json_object_del(data, "desc");
	return op_fail_error(op, &err, data);
}

/* A stream that QEMU closed has its reason in QEMU's end or its migration's: they have a moment. */
static enum op_verdict on_mover_error(struct op *op, const json_t *data)
{
	struct hibernate *h = op_data(op);
	const char *class_ = tp_json_str(data, "class");

	if (!class_ || strcmp(class_, "QemuError") != 0)
		return mover_failed(op);
	h->stream_cut = true;
	if (op_qemu_alive(op))
		(void)op_qmp_full(op, QMP_QUERY_MIGRATE, NULL, NULL, 0, OPQ_SHOW);
	return op_sleep(op, QEMU_HAS_SAY);
}

static enum op_verdict on_save_mover(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);

	if (strcmp(ev->name, "error") == 0)
		return on_mover_error(op, ev->data);
	if (strcmp(ev->name, "end") == 0)
		return h->stream_cut ? OP_WAIT : mover_failed(op);

	if (strcmp(ev->name, "hello") == 0) {
		mover_note(op, ev);
		/* Only now: QEMU's end goes to QEMU alone, and this copy is closed by the sending. */
		return op_qmp_full(op, QMP_GETFD, json_pack("{s:s}", "fdname", SAVE_FD), &h->qemu_end, 0, 0);
	}
	mover_progress(op, ev);
	if (strcmp(ev->name, "sealed") != 0)
		return OP_WAIT;
	json_decref(h->sealed);
	h->sealed = json_deep_copy(ev->data);
	return OP_NEXT;
}

static enum op_verdict save_state(struct op *op, const struct op_event *ev)
{
	struct mig_info info;

	switch (ev->type) {
	case OP_ENTER:
		return start_mover(op);
	case OP_MOVER:
		return on_save_mover(op, ev);
	case OP_TICK:
		if (((struct hibernate *)op_data(op))->stream_cut)
			return mover_failed(op);
		return op_qmp_full(op, QMP_QUERY_MIGRATE, NULL, NULL, 0, OPQ_SHOW);
	case OP_REPLY:
		break;
	default:
		return OP_WAIT;
	}
	if (op_replied(ev, QMP_GETFD))
		return op_qmp(op, QMP_MIGRATE, json_pack("{s:s}", "uri", "fd:" SAVE_FD));
	if (op_replied(ev, QMP_QUERY_MIGRATE)) {
		mig_info_parse(ev->data, &info);
		if (info.phase == MIG_FAILED || info.phase == MIG_CANCELLED)
			return op_fail(op, TP_EQMP, "QemuError", "QEMU of VM %s could not save its state: %s",
				       op_vm_name(op), info.error[0] ? info.error : info.status);
	}
	return ((struct hibernate *)op_data(op))->stream_cut ? OP_WAIT : op_sleep(op, POLL_EVERY);
}

/*
 * The stream is closed first (the mover's end), then the migration is cancelled, then it has
 * settled; getfd's name is given up, so that no descriptor of a cut save stays in QEMU.
 */
static enum op_verdict save_state_undo(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);
	struct mig_info info;

	if (ev->type == OP_ENTER)
		step_fd_close(&h->qemu_end);
	if (ev->type == OP_ENTER || ev->type == OP_IO || ev->type == OP_MOVER) {
		enum op_verdict stopped = mover_stop(op, ev);

		if (stopped != OP_NEXT)
			return stopped;
		if (!op_qemu_alive(op))
			return OP_NEXT;
		return op_qmp_full(op, QMP_MIGRATE_CANCEL, NULL, NULL, 0, OPQ_SHOW);
	}
	if (ev->type == OP_TICK)
		return op_qmp(op, QMP_QUERY_MIGRATE, NULL);
	if (ev->type == OP_QEMU_EVENT && strcmp(ev->name, "QEMU_GONE") == 0)
		return OP_NEXT;
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	if (ev->cmd == QMP_MIGRATE_CANCEL)
		return op_qmp(op, QMP_QUERY_MIGRATE, NULL);
	if (ev->cmd == QMP_CLOSEFD)
		return OP_NEXT;
	mig_info_parse(ev->data, &info);
	if (!mig_phase_over(info.phase))
		return op_sleep(op, 0.05);
	return op_qmp_full(op, QMP_CLOSEFD, json_pack("{s:s}", "fdname", SAVE_FD), NULL, 0, OPQ_SHOW);
}

/* --- fingerprint, manifest --- */

static enum op_verdict fingerprint(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);
	size_t i;
	json_t *text;

	if (ev->type == OP_ENTER)
		return step_job(op, guest_disks_take, json_incref(json_object_get(h->seen, "files")), NULL, 0);
	if (!job_of(ev))
		return OP_WAIT;
	h->disks = TP_STEAL(job_of(ev)->out);
	json_array_foreach(json_object_get(h->disks, "notes"), i, text)
		op_warn(op, "%s", json_string_value(text));
	return OP_NEXT;
}

static bool put_manifest(struct job *j, struct tp_error *err)
{
	const char *vm = tp_json_str(j->in, "vm"), *id = tp_json_str(j->in, "image");

	return pool_manifest_write(j->pool, vm, id, j->in, err);
}

static enum op_verdict write_manifest(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return step_job(op, put_manifest, hibernate_manifest(op), image_member(op, "pool"), 0);
	return ev->type == OP_IO ? OP_NEXT : OP_WAIT;
}

static bool drop_manifest(struct job *j, struct tp_error *err)
{
	return pool_manifest_unlink(j->pool, tp_json_str(j->in, "vm"), tp_json_str(j->in, "id"), err);
}

/* The mover is reaped before anything of its image goes. */
static enum op_verdict write_manifest_undo(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);

	if (ev->type == OP_ENTER)
		h->mover_stopped = false;
	if (!h->mover_stopped) {
		enum op_verdict stopped = mover_stop(op, ev);

		if (stopped != OP_NEXT)
			return stopped;
		h->mover_stopped = true;
		return step_job(op, drop_manifest, image_job(op), image_member(op, "pool"), 0);
	}
	return ev->type == OP_IO ? OP_NEXT : OP_WAIT;
}

/* --- commit: from here on the VM is its image --- */

static enum op_verdict commit(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);

	(void)ev;
	return op_note(op, "summary", hibernate_summary(op, op_now(op) - h->paused_at)) ? OP_NEXT : OP_FAIL;
}

/* --- terminate --- */

static bool mover_finished(const struct op_event *ev)
{
	return ev->type == OP_MOVER && (strcmp(ev->name, "done") == 0 || strcmp(ev->name, "end") == 0 ||
					strcmp(ev->name, "error") == 0);
}

/* SHUT is answered: QEMU says completed, its disks stay inactive. Only this engine's own mover can. */
static enum op_verdict release_stream(struct op *op, const struct op_event *ev)
{
	struct mig_info info;

	if (ev->type == OP_ENTER) {
		if (!op_mover_alive(op) || !op_qemu_alive(op))
			return OP_NEXT;
		op_sleep(op, END_WAIT);
		return op_mover_send(op, json_pack("{s:{s:i}}", "finish", "status", 0)) == OP_FAIL ? OP_NEXT :
		       op_qmp_full(op, QMP_QUERY_MIGRATE, NULL, NULL, END_WAIT, OPQ_SHOW);
	}
	if (ev->type == OP_TICK || (ev->type == OP_QEMU_EVENT && strcmp(ev->name, "QEMU_GONE") == 0))
		return OP_NEXT;
	if (mover_finished(ev) && strcmp(ev->name, "done") != 0)
		return OP_NEXT;
	if (ev->type == OP_QEMU_EVENT && strcmp(ev->name, "MIGRATION") == 0)
		return op_qmp_full(op, QMP_QUERY_MIGRATE, NULL, NULL, END_WAIT, OPQ_SHOW);
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	mig_info_parse(ev->data, &info);
	((struct hibernate *)op_data(op))->completed = !ev->err && info.phase == MIG_COMPLETED;
	return ev->err || mig_phase_over(info.phase) ? OP_NEXT : OP_WAIT;
}

static enum op_verdict end_qemu(struct op *op, const struct op_event *ev)
{
	struct hibernate *h = op_data(op);

	if (ev->type == OP_QEMU_EVENT && strcmp(ev->name, "QEMU_GONE") == 0)
		return OP_NEXT;
	if (ev->type == OP_VM && strcmp(ev->action, "kill") == 0)
		return OP_NEXT;
	if (ev->type == OP_ENTER) {
		if (!op_qemu_alive(op))
			return OP_NEXT;
		/* Not known to have completed: not one instruction more of its main loop. */
		if (!h->completed || op_late(op))
			return op_vm(op, "kill", NULL, 0);
		vm_quits(op_vm_of(op));
		if (op_qmp_full(op, QMP_QUIT, NULL, NULL, END_WAIT, OPQ_SHOW) == OP_FAIL)
			return op_vm(op, "kill", NULL, 0);
		return op_sleep(op, END_WAIT);
	}
	if (ev->type == OP_TICK)
		return op_vm(op, "kill", NULL, 0);
	return OP_WAIT;
}

/* --- after its end: the mover's, and whether the disks are what the manifest says --- */

static enum op_verdict reap_mover(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER && op_mover_alive(op))
		return op_sleep(op, 2.0);	/* QEMU's end is its end of file: it goes by itself */
	if (ev->type == OP_ENTER || (ev->type == OP_MOVER && strcmp(ev->name, "end") == 0))
		return op_mover_alive(op) ? OP_WAIT : OP_NEXT;
	if (ev->type == OP_TICK)
		op_mover_kill(op);
	return OP_WAIT;
}

static bool check_disks(struct job *j, struct tp_error *err)
{
	const char *vm = tp_json_str(j->in, "vm"), *id = tp_json_str(j->in, "id");
	tp_autojson json_t *manifest = pool_manifest_read(j->pool, vm, id, err);
	bool changed;

	if (!manifest)
		return false;
	j->out = json_array();
	return guest_disks_retake(manifest, &changed, j->out, err) &&
	       (!changed || pool_manifest_write(j->pool, vm, id, manifest, err));
}

static enum op_verdict verify_disks(struct op *op, const struct op_event *ev)
{
	size_t i;
	json_t *text;

	if (ev->type == OP_ENTER)
		return step_job(op, check_disks, image_job(op), image_member(op, "pool"), OPQ_SHOW);
	if (!job_of(ev))
		return OP_WAIT;
	if (ev->err)
		op_warn(op, "the disks could not be compared once more: %s", ev->err->text);
	json_array_foreach(job_of(ev)->out, i, text)
		op_warn(op, "%s", json_string_value(text));
	return OP_NEXT;
}

/* It is marked as consumed, so it is not offered even where it cannot be removed. */
static enum op_verdict drop_former(struct op *op, const struct op_event *ev)
{
	const json_t *former = json_object_get(op_res(op), "former-image");
	const char *id = tp_json_str(former, "id"), *owner = tp_json_str(former, "vm");
	json_t *in;

	if (!id)
		return OP_NEXT;
	if (ev->type == OP_ENTER) {
		in = json_pack("{s:s, s:s}", "vm", owner ? owner : op_vm_name(op), "id", id);
		if (step_job(op, remove_image, in, tp_json_str(former, "pool"), OPQ_SHOW) == OP_WAIT)
			return OP_WAIT;
		op_warn(op, "the former image %s was not deleted: its pool is missing", id);
		return OP_NEXT;
	}
	if (ev->type != OP_IO)
		return OP_WAIT;
	if (ev->err)
		op_warn(op, "the former image %s was not deleted: %s", id, ev->err->text);
	else
		pools_image_drop(op_engine(op)->pools, tp_json_str(former, "pool"), id);
	return OP_NEXT;
}

static const struct op_step steps[] = {
	{ .name = "preflight", .phase = "Preparing", .run = hibernate_preflight, .limit = 30,
	  .flags = OPF_QEMU },
	{ .name = "whole", .run = prefetch_whole, .undo = prefetch_whole_undo, .limit = 60, .flags = OPF_QEMU },
	{ .name = "create-image", .run = create_image, .undo = create_image_undo, .limit = 60,
	  .undo_limit = 60 },
	{ .name = "working-set", .run = read_working_set, .limit = 30 },
	/* Synced: an image that has its manifest, but no commit, must have its journal after a power cut. */
	{ .name = "pause-guest", .phase = "Pausing", .run = pause_guest, .undo = guest_pause_undo, .limit = 30,
	  .undo_limit = 15, .flags = OPF_QEMU | OPF_SYNC },
	{ .name = "set-capabilities", .run = prepare, .undo = migration_prepare_undo, .limit = 10,
	  .undo_limit = 10, .flags = OPF_QEMU },
	{ .name = "save-state", .phase = "Saving", .run = save_state, .undo = save_state_undo, .limit = 60,
	  .undo_limit = 15, .expects = OP_RES_MOVER },
	{ .name = "fingerprint", .phase = "Syncing", .run = fingerprint, .limit = 120 },
	{ .name = "write-manifest", .run = write_manifest, .undo = write_manifest_undo, .limit = 60,
	  .undo_limit = 60, .flags = OPF_BARRIER },
	{ .name = "commit", .phase = "Committing", .run = commit, .limit = 30, .flags = OPF_COMMIT },
	{ .name = "release-stream", .phase = "Terminating", .run = release_stream, .limit = 30,
	  .flags = OPF_QEMU, .expects = OP_RES_QEMU | OP_RES_MOVER },
	{ .name = "end-qemu", .run = end_qemu, .limit = 30, .flags = OPF_QEMU,
	  .expects = OP_RES_QEMU | OP_RES_MOVER },
	{ .name = "reap-mover", .run = reap_mover, .limit = 30, .expects = OP_RES_QEMU | OP_RES_MOVER },
	{ .name = "verify-disks", .run = verify_disks, .limit = 60, .expects = OP_RES_QEMU | OP_RES_MOVER },
	{ .name = "drop-former", .run = drop_former, .limit = 60, .expects = OP_RES_QEMU | OP_RES_MOVER },
};

const struct op_plan plan_hibernate = {
	.kind = "hibernate", .version = 1, .steps = steps, .nsteps = TP_N(steps), .done_phase = "Hibernated",
	.data_size = sizeof(struct hibernate), .data_free = data_free, .ended = hibernate_ended,
};
