/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_restore.c - Restore: a new QEMU goes on where the image was saved
 *
 * Theory of operation. The image may be run once. Its fingerprints are compared
 * before QEMU is started and again when all is loaded, since an incoming QEMU
 * holds no lock on its disks until it activates them. Then "consume" marks the
 * image on the platter; "ran" says that the guest is about to run and is the
 * commit point: before it everything can be undone (QEMU killed and reaped, the
 * image offered again, with new fingerprints where only the activation changed
 * the disks); after it the image is never offered again. Only a `cont` that
 * QEMU refused, with its state read as still paused, takes "ran" back.
 *
 * A VM that stays paused ends here without "ran"; its first `cont` writes it
 * (verbs_run.c). With QEMU before 10.0 the end of the load activates the disks
 * of a VM that is to stay paused: the mover holds the stream's last bytes until
 * the image is consumed. From 10.0 on blockdev-set-active does it afterwards.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/restore.h"
#include "engine/spec.h"
#include "engine/steps.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"
#include "engine/working_set.h"
#include "migration/mig_info.h"
#include "migration/mover_proto.h"
#include "storage/fingerprint.h"

#define POLL_EVERY 0.2		/* seconds */
#define MOVER_WORD 2.0		/* seconds that the mover has after QEMU failed */

static void data_free(void *data)
{
	struct restore *r = data;

	json_decref(r->manifest);
	json_decref(r->damage);
	step_fd_close(&r->image_fd);
	step_fd_close(&r->qemu_end);
}

bool restore_stays_paused(struct op *op)
{
	const struct restore *r = op_data(op);
	const char *state = tp_json_str(r->manifest, "run-state");

	return tp_json_bool(op_arguments(op), "paused", false) || (state && !run_state_runs(state));
}

/* As the journal says it, so that a later engine decides alike. */
bool restore_runs(struct op *op)
{
	return tp_json_bool(op_res(op), "ran", false);
}

json_t *restore_image(struct op *op)
{
	return json_object_get(op_res(op), "image");
}

/* --- launch --- */

static enum op_verdict launch(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	struct vm *vm = op_vm_of(op);

	if (ev->type == OP_ENTER) {
		json_t *launched = json_copy(json_object_get(r->manifest, "launch"));

		tp_json_set(launched, "machine", json_incref(json_object_get(r->manifest, "machine")));
		tp_json_set(launched, "generation", json_incref(json_object_get(r->manifest, "generation")));
		vm_rest_set(vm, "launched", launched);
	}
	return qemu_launch(op, ev, &(struct qemu_launch_how){ .incoming = true, .manifest = r->manifest,
							     .uffd = r->hand_over });
}

static enum op_verdict connect_incoming(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return op_vm(op, "connect", NULL, OPQ_SHOW);
	if (ev->type != OP_VM)
		return OP_WAIT;
	if (!ev->err)
		return OP_NEXT;
	if (strstr(ev->err->text, "unsupported machine type") || strstr(ev->err->text, "Unsupported machine type"))
		return op_fail(op, TP_EUNSUPPORTED, "Incompatible", "VM %s cannot be restored by this QEMU: it does "
			       "not offer machine type %s", op_vm_name(op),
			       tp_json_str(((struct restore *)op_data(op))->manifest, "machine"));
	return op_fail_error(op, ev->err, ev->error_data ? json_deep_copy(ev->error_data) : NULL);
}

/* --- load --- */

static enum op_verdict load_prepare(struct op *op, const struct op_event *ev)
{
	static const char *const late[] = { "events", "late-block-activate", NULL };
	static const char *const early[] = { "events", NULL };
	static const char *const lazy[] = { "events", "late-block-activate", "postcopy-ram", NULL };
	struct restore *r = op_data(op);

	r->hold = (r->lazy || restore_stays_paused(op)) && !op_vm_of(op)->qemu->features.set_active;
	return migration_prepare(op, ev, r->lazy ? lazy : r->hold ? early : late);
}

static enum op_verdict start_mover(struct op *op)
{
	struct restore *r = op_data(op);
	struct tp_error err = TP_ERROR_INIT;
	int fds[2];

	if (!stream_pair(&fds[0], &r->qemu_end, STREAM_BUFFER, &err))
		return op_fail_error(op, &err, NULL);
	fds[1] = TP_STEAL_FD(r->image_fd);
	op_hold(op, OP_RES_MOVER);
	return op_mover_start(op, json_pack("{s:s, s:[s, s], s:i, s:b}", "job", "load", "fds", "stream", "image",
					    "threads", 0, "hold", r->hold), fds, 2);
}

enum op_verdict restore_incoming(struct op *op)
{
	json_t *args = json_pack("{s:s}", "uri", "fd:" RESTORE_LOAD_FD);

	if (op_vm_of(op)->qemu->features.exit_on_error)
		tp_json_set(args, "exit-on-error", json_false());
	return op_qmp(op, QMP_MIGRATE_INCOMING, args);
}

static enum op_verdict qemu_failed(struct op *op, const struct mig_info *info)
{
	return op_fail(op, TP_EQMP, "QemuError", "QEMU of VM %s could not load the image: %s", op_vm_name(op),
		       info->error[0] ? info->error : info->status);
}

/* QEMU fails when the mover closes the stream: the mover, which says why, is a little later. */
enum op_verdict restore_await_mover(struct op *op, const struct mig_info *info)
{
	struct restore *r = op_data(op);

	if (r->failed_at <= 0) {
		r->failed = *info;
		r->failed_at = op_now(op);
	}
	if (r->mover_done || !op_mover_alive(op) || op_now(op) - r->failed_at > MOVER_WORD)
		return qemu_failed(op, &r->failed);
	return op_sleep(op, POLL_EVERY);
}

/* A damage is the image's, wherever it is: named with the place. */
enum op_verdict restore_load_failed(struct op *op, const json_t *said)
{
	const char *id = tp_json_str(restore_image(op), "id"), *where = tp_json_str(said, "where");
	struct restore *r = op_data(op);
	struct tp_error err = TP_ERROR_INIT;

	mover_proto_fail(&err, said);
	if (err.code != TP_ECORRUPT && r->failed_at > 0)
		return qemu_failed(op, &r->failed);
	if (err.code != TP_ECORRUPT)
		return OP_WAIT;		/* the runner fails with the mover's own words */
	restore_damaged(op, err.text);
	tp_prefix(&err, "image %s", id);
	return op_fail_error(op, &err, json_pack("{s:s, s:s}", "image", id, "where", where ? where : "memory.zst"));
}

static enum op_verdict on_load_mover(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);

	if (strcmp(ev->name, "hello") == 0)
		return op_qmp_full(op, QMP_GETFD, json_pack("{s:s}", "fdname", RESTORE_LOAD_FD), &r->qemu_end, 0, 0);
	if (strcmp(ev->name, "error") == 0)
		return restore_load_failed(op, ev->data);
	mover_progress(op, ev);
	if (strcmp(ev->name, "held") == 0)
		return OP_NEXT;
	if (strcmp(ev->name, "done") == 0)
		r->mover_done = true;
	return OP_WAIT;
}

/* Loaded: completed by query-migrate and a run state that is not inmigrate any more. */
static enum op_verdict on_load_reply(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	struct mig_info info;

	if (op_replied(ev, QMP_GETFD))
		return restore_incoming(op);
	if (op_replied(ev, QMP_MIGRATE_INCOMING))
		return op_sleep(op, POLL_EVERY);
	if (op_replied(ev, QMP_QUERY_STATUS)) {
		const char *status = tp_json_str(ev->data, "status");

		if (status && strcmp(status, "inmigrate") != 0 && r->mover_done)
			return OP_NEXT;
		return op_sleep(op, 0.02);
	}
	if (!op_replied(ev, QMP_QUERY_MIGRATE))
		return OP_WAIT;
	mig_info_parse(ev->data, &info);
	if (info.phase == MIG_FAILED || info.phase == MIG_CANCELLED)
		return restore_await_mover(op, &info);
	return info.phase == MIG_COMPLETED ? op_qmp(op, QMP_QUERY_STATUS, NULL) : op_sleep(op, POLL_EVERY);
}

static enum op_verdict wait_loaded(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_MOVER)
		return on_load_mover(op, ev);
	if (ev->type == OP_REPLY)
		return on_load_reply(op, ev);
	if (ev->type == OP_TICK || (ev->type == OP_QEMU_EVENT && strcmp(ev->name, "MIGRATION") == 0))
		return op_qmp(op, QMP_QUERY_MIGRATE, NULL);
	return OP_WAIT;
}

static enum op_verdict serve(struct op *op, const struct op_event *ev)
{
	return ((struct restore *)op_data(op))->lazy ? restore_serve(op, ev) : OP_NEXT;
}

static enum op_verdict load(struct op *op, const struct op_event *ev)
{
	if (((struct restore *)op_data(op))->lazy)
		return OP_NEXT;
	return ev->type == OP_ENTER ? start_mover(op) : wait_loaded(op, ev);
}

static enum op_verdict load_undo(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);

	step_fd_close(&r->qemu_end);
	return mover_stop(op, ev);
}

/* --- consume: the image is not offered again, unless it is undone --- */

static bool mark_consumed(struct job *j, struct tp_error *err)
{
	if (!pool_writable(j->pool, err))
		return false;
	/* From here on a mark may be there, also after an error. */
	j->out = json_pack("{s:b}", "tried", 1);
	return pool_image_consumed(j->pool, tp_json_str(j->in, "vm"), tp_json_str(j->in, "id"),
				   json_object_get(j->in, "why"), err);
}

static json_t *mark(struct op *op, bool ran)
{
	json_t *image = json_copy(restore_image(op));
	char at[TP_TIME_TEXT];

	tp_json_set(image, "why", json_pack("{s:s, s:s, s:b}", "operation", op_id(op), "at",
					    tp_time_format(tp_now_us(), at), "ran", ran));
	return image;
}

/* Refused before anything was written: the undo does not need the pool, which may be away. */
static enum op_verdict not_marked(struct op *op)
{
	op_note(op, "not-marked", json_true());
	return OP_FAIL;
}

static enum op_verdict consume(struct op *op, const struct op_event *ev)
{
	const struct job *j = job_of(ev);

	if (ev->type == OP_ENTER)
		return step_job(op, mark_consumed, mark(op, false), tp_json_str(restore_image(op), "pool"),
				OPQ_SHOW) == OP_FAIL ? not_marked(op) : OP_WAIT;
	if (ev->type != OP_IO)
		return OP_WAIT;
	if (ev->err) {
		op_fail_error(op, ev->err, ev->error_data ? json_deep_copy(ev->error_data) : NULL);
		return j && !j->out ? not_marked(op) : OP_FAIL;
	}
	pools_image_state(op_engine(op)->pools, tp_json_str(restore_image(op), "pool"),
			  tp_json_str(restore_image(op), "id"), "consumed");
	return OP_NEXT;
}

/* QEMU is reaped first; then the disks are fingerprinted anew, as the activation may have changed them. */
static enum op_verdict consume_undo(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return op_vm(op, "kill", NULL, 0);
	if (ev->type == OP_VM && tp_json_bool(op_res(op), "not-marked", false))
		return OP_NEXT;
	if (ev->type == OP_VM)
		return step_job(op, image_unconsume, restore_unconsume_job(op),
				tp_json_str(restore_image(op), "pool"), 0);
	if (ev->type != OP_IO)
		return OP_WAIT;
	pools_image_state(op_engine(op)->pools, tp_json_str(restore_image(op), "pool"),
			  tp_json_str(restore_image(op), "id"), "complete");
	return OP_NEXT;
}

/* --- finish the load of a held stream; activate --- */

static enum op_verdict release_held(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);

	if (!r->hold)
		return OP_NEXT;
	if (r->lazy)
		return restore_release_package(op, ev);
	if (ev->type != OP_ENTER)
		return wait_loaded(op, ev);
	if (op_mover_send(op, json_pack("{s:{}}", "finish")) == OP_FAIL)
		return OP_FAIL;
	return op_sleep(op, POLL_EVERY);
}

/* Nodes of the manifest's disks: a VM that stays paused must hold its locks (10.0 and newer). */
static enum op_verdict activate(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	json_t *disks = json_object_get(r->manifest, "disks");
	void *it;

	if (!restore_stays_paused(op) || r->hold)
		return OP_NEXT;
	if (ev->type != OP_ENTER && ev->type != OP_REPLY)
		return OP_WAIT;
	it = json_object_iter(disks);
	for (size_t i = 0; it && i < r->nodes_done; i++)
		it = json_object_iter_next(disks, it);
	if (!it)
		return OP_NEXT;
	r->nodes_done++;
	return op_qmp(op, QMP_BLOCKDEV_SET_ACTIVE, json_pack("{s:s, s:b}", "node-name", json_object_iter_key(it),
							    "active", 1));
}

/* The fingerprints of a VM that stays paused are those after the activation. */
static enum op_verdict refingerprint(struct op *op, const struct op_event *ev)
{
	if (!restore_stays_paused(op))
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return step_job(op, image_refingerprint, json_incref(restore_image(op)),
				tp_json_str(restore_image(op), "pool"), 0);
	return ev->type == OP_IO ? OP_NEXT : OP_WAIT;
}

/* --- ran: the commit --- */

static bool mark_and_save(struct job *j, struct tp_error *err)
{
	return mark_consumed(j, err) &&
	       state_vm_write((int)tp_json_int(j->in, "dirfd", -1), "state.json", json_object_get(j->in, "rest"), err);
}

static enum op_verdict ran(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	struct vm *vm = op_vm_of(op);
	bool paused = restore_stays_paused(op);
	json_t *in;

	if (ev->type != OP_ENTER)
		return ev->type == OP_IO ? OP_NEXT : OP_WAIT;
	if (!op_note(op, "former", json_pack("{s:O, s:O, s:O*}", "rest", json_object_get(vm->rest, "rest"), "reason",
					     json_object_get(vm->rest, "reason"), "image",
					     json_object_get(vm->rest, "image"))))
		return OP_FAIL;
	vm_rest_text(vm, "running", paused ? "restored-paused" : "ok");
	vm_image_forget(vm);
	vm_rest_set(vm, "image", json_copy(restore_image(op)));
	vm_rest_set(vm, "keep", json_boolean(tp_json_bool(op_res(op), "keep", false)));
	vm_rest_set(vm, "consumed", json_true());
	vm_rest_set(vm, "ran", json_boolean(!paused));
	vm_rest_set(vm, "guest-ran", json_boolean(!paused));
	vm_rest_set(vm, "paused-by", paused ? json_string("restored-paused") : NULL);
	restore_note_prefetch(op);
	if (r->manifest)
		working_set_store(vm, working_set_request(r->manifest));
	if (!op_note(op, "ran", json_boolean(!paused)))
		return OP_FAIL;
	in = mark(op, !paused);
	tp_json_set(in, "rest", json_deep_copy(vm->rest));
	tp_json_set(in, "dirfd", json_integer(vm->dirfd));
	return step_job(op, mark_and_save, in, tp_json_str(restore_image(op), "pool"), 0);
}

static enum op_verdict ran_undo(struct op *op, const struct op_event *ev)
{
	(void)ev;
	if (json_object_get(op_res(op), "former"))
		restore_give_back_rest(op);
	return OP_NEXT;
}

/* --- run --- */

static enum op_verdict refused(struct op *op, const struct op_event *ev)
{
	const char *status = tp_json_str(ev->data, "status");

	if (ev->err || !status || strcmp(status, "paused") != 0)
		return OP_WAIT;		/* unknown: it may run; the limit decides, then it is tried again */
	op_withdraw(op);
	return op_fail(op, TP_EQMP, "QemuError", "QEMU of VM %s refused to run the guest: %s", op_vm_name(op),
		       tp_json_str(op_res(op), "refused"));
}

static enum op_verdict run(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	enum op_verdict v;

	if (!restore_runs(op))
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return op_qmp_full(op, QMP_CONT, NULL, NULL, 0, OPQ_SHOW);
	if (ev->type == OP_REPLY && ev->cmd == QMP_CONT && ev->err && ev->err->code == TP_EQMP) {
		op_note(op, "refused", json_string(ev->err->text));
		return op_qmp_full(op, QMP_QUERY_STATUS, NULL, NULL, 0, OPQ_SHOW);
	}
	if (ev->type == OP_REPLY && json_object_get(op_res(op), "refused"))
		return refused(op, ev);
	/* The event says when; what query-status says comes later, as QEMU has much to do now. */
	v = guest_cont(op, ev);
	if (r->running <= 0 && (v == OP_NEXT || (ev->type == OP_QEMU_EVENT && strcmp(ev->name, "RESUME") == 0)))
		r->running = op_now(op);
	return v;
}

static enum op_verdict announce(struct op *op, const struct op_event *ev)
{
	if (!restore_runs(op))
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return op_qmp_full(op, QMP_ANNOUNCE_SELF, json_pack("{s:i, s:i, s:i, s:i}", "initial", 50, "max",
				550, "rounds", 5, "step", 100), NULL, 5, OPQ_SHOW);
	return ev->type == OP_REPLY ? OP_NEXT : OP_WAIT;
}

static const struct op_step steps[] = {
	{ .name = "verify", .phase = "Verifying", .run = restore_verify, .limit = 120 },
	{ .name = "hook-prepare", .run = hook_prepare, .undo = hook_prepare_undo, .limit = 3600,
	  .undo_limit = 3600 },
	{ .name = "launch", .phase = "Launching", .run = launch, .undo = qemu_launch_undo, .limit = 30,
	  .undo_limit = 30 },
	{ .name = "connect", .run = connect_incoming, .limit = 30, .flags = OPF_QEMU },
	{ .name = "check-cpu", .run = restore_check_cpu, .limit = 20, .flags = OPF_QEMU },
	{ .name = "lazy-possible", .phase = "Loading", .run = restore_lazy_possible, .limit = 10, .flags = OPF_QEMU },
	{ .name = "page-server", .run = restore_page_server, .undo = load_undo, .limit = 60, .undo_limit = 20 },
	{ .name = "load-prepare", .run = load_prepare, .limit = 10, .flags = OPF_QEMU },
	{ .name = "serve", .run = serve, .limit = 60 },
	{ .name = "load", .run = load, .undo = load_undo, .limit = 60, .undo_limit = 20 },
	{ .name = "compare", .run = restore_compare, .limit = 120 },
	{ .name = "consume", .phase = "Resuming", .run = consume, .undo = consume_undo, .limit = 60,
	  .undo_limit = 60, .flags = OPF_SYNC },
	{ .name = "release-held", .run = release_held, .limit = 60, .flags = OPF_QEMU },
	{ .name = "identify", .run = machine_identify, .limit = 10, .flags = OPF_QEMU },
	{ .name = "activate", .run = activate, .limit = 30, .flags = OPF_QEMU },
	{ .name = "refingerprint", .run = refingerprint, .limit = 60 },
	{ .name = "hook-before-run", .run = hook_before_run, .limit = 3600, .flags = OPF_QEMU },
	{ .name = "ran", .run = ran, .undo = ran_undo, .limit = 60, .flags = OPF_COMMIT },
	{ .name = "hand-over", .run = restore_hand_over, .limit = 30, .flags = OPF_QEMU, .expects = OP_RES_MOVER },
	{ .name = "run", .run = run, .limit = 30, .flags = OPF_QEMU },
	{ .name = "announce", .run = announce, .limit = 10, .flags = OPF_QEMU },
	{ .name = "clock", .run = restore_clock, .limit = 20, .flags = OPF_QEMU },
	{ .name = "delete-image", .run = restore_delete, .limit = 60,
	  .expects = OP_RES_QEMU },
};

const struct op_plan plan_restore = {
	.kind = "restore", .version = 1, .steps = steps, .nsteps = TP_N(steps), .done_phase = "Restored",
	.data_size = sizeof(struct restore), .data_free = data_free, .ended = restore_ended,
};
