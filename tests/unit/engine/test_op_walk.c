/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_op_walk.c - A toy hibernation walked through every fault, and recovered from every cut
 *
 * The plan has what real ones have: file work, questions to QEMU, a mover that outlasts steps, two
 * things awaited at once, a commit point, steps that expect QEMU's end. Its "disk" is two flags.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "fake/op_model.h"

struct disk {
	bool image, manifest;
};

static struct disk disk;

/* --- file work --- */

struct toy_job {
	struct op_job job;
	bool *flag, *other, value;	/* other may be NULL */
};

static bool set_flag(struct op_job *job, struct tp_error *err)
{
	struct toy_job *toy = (struct toy_job *)job;

	(void)err;
	*toy->flag = toy->value;
	if (toy->other)
		*toy->other = toy->value;
	return true;
}

static void free_job(struct op_job *job)
{
	free(job);
}

static enum op_verdict ask_disk(struct op *op, bool *flag, bool *other, bool value)
{
	struct toy_job *toy = calloc(1, sizeof(*toy));

	toy->job.run = set_flag;
	toy->job.free = free_job;
	toy->flag = flag;
	toy->other = other;
	toy->value = value;
	return op_io(op, &toy->job, 0);
}

/* --- steps --- */

static enum op_verdict image_create(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_IO)
		return OP_NEXT;
	if (ev->type != OP_ENTER)
		return OP_WAIT;
	if (!op_note(op, "image", json_string("vm1-image")))
		return OP_FAIL;
	return ask_disk(op, &disk.image, NULL, true);
}

static enum op_verdict image_discard(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_IO || !json_object_get(op_res(op), "image"))
		return OP_NEXT;
	return ev->type == OP_ENTER ? ask_disk(op, &disk.image, &disk.manifest, false) : OP_WAIT;
}

static enum op_verdict pause_guest(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER) {
		op_hold(op, OP_RES_QEMU);
		return op_qmp(op, QMP_STOP, NULL);
	}
	if (op_replied(ev, QMP_STOP))
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	if (!op_replied(ev, QMP_QUERY_STATUS))
		return OP_WAIT;
	return tp_json_bool(ev->data, "running", true) ?
	       op_fail(op, TP_ESTATE, "IOError", "the guest runs on") : OP_NEXT;
}

static enum op_verdict resume_guest(struct op *op, const struct op_event *ev)
{
	if (!tp_json_bool(op_was(op), "running", false) || op_replied(ev, QMP_CONT))
		return OP_NEXT;
	return ev->type == OP_ENTER ? op_qmp(op, QMP_CONT, NULL) : OP_WAIT;
}

static enum op_verdict mover_begin(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER) {
		enum op_verdict v = op_mover_start(op, json_pack("{s:s}", "job", "save"), NULL, 0);

		op_hold(op, OP_RES_MOVER);
		return v;
	}
	return ev->type == OP_MOVER && strcmp(ev->name, "hello") == 0 ? OP_NEXT : OP_WAIT;
}

static enum op_verdict mover_stop(struct op *op, const struct op_event *ev)
{
	if (!op_mover_alive(op))
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		op_mover_kill(op);
	return OP_WAIT;
}

enum { SAVED_QEMU = 1, SAVED_MOVER = 2 };

static enum op_verdict save(struct op *op, const struct op_event *ev)
{
	static const char *const names[] = { "QEMU", "the mover" };
	const char *status = tp_json_str(ev->data, "status");

	switch (ev->type) {
	case OP_ENTER:
		op_want(op, SAVED_QEMU | SAVED_MOVER, names);
		return op_qmp(op, QMP_MIGRATE, json_pack("{s:s}", "uri", "fd:stream"));
	case OP_MOVER:
		if (strcmp(ev->name, "progress") == 0)
			op_progress_bytes(op, (uint64_t)tp_json_int(ev->data, "done-bytes", 0), 4000);
		return strcmp(ev->name, "sealed") == 0 ? op_got(op, SAVED_MOVER) : OP_WAIT;
	case OP_QEMU_EVENT:
		if (strcmp(ev->name, "MIGRATION") != 0)
			return OP_WAIT;
		if (status && strcmp(status, "failed") == 0)
			return op_fail(op, TP_EQMP, "QemuError", "the save failed");
		return status && strcmp(status, "device") == 0 ? op_got(op, SAVED_QEMU) : OP_WAIT;
	default:
		return OP_WAIT;
	}
}

/* Closes the stream first, then cancels, then waits until QEMU says that it is over. */
static enum op_verdict save_cancel(struct op *op, const struct op_event *ev)
{
	const char *status = tp_json_str(ev->data, "status");

	if (ev->type == OP_ENTER) {
		op_mover_kill(op);
		return op_qmp(op, QMP_MIGRATE_CANCEL, NULL);
	}
	if (op_replied(ev, QMP_MIGRATE_CANCEL) || ev->type == OP_TICK)
		return op_qmp(op, QMP_QUERY_MIGRATE, NULL);
	if (!op_replied(ev, QMP_QUERY_MIGRATE))
		return OP_WAIT;
	if (!status || strcmp(status, "failed") == 0 || strcmp(status, "cancelled") == 0)
		return OP_NEXT;
	return op_sleep(op, 0.1);
}

static enum op_verdict seal(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_IO)
		return op_note(op, "manifest", json_true()) ? OP_NEXT : OP_FAIL;
	return ev->type == OP_ENTER ? ask_disk(op, &disk.manifest, NULL, true) : OP_WAIT;
}

static enum op_verdict unseal(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_IO)
		return OP_NEXT;
	return ev->type == OP_ENTER ? ask_disk(op, &disk.manifest, NULL, false) : OP_WAIT;
}

/* Whatever goes wrong here, the next step kills QEMU. */
static enum op_verdict finish_stream(struct op *op, const struct op_event *ev)
{
	if (!op_mover_alive(op) || op_mover_said(op, "done"))
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return op_mover_send(op, json_pack("{s:{s:i}}", "finish", "status", 0));
	return OP_WAIT;
}

static enum op_verdict quit(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_ENTER)
		return op_vm(op, "kill", NULL, 0);
	return ev->type == OP_VM ? OP_NEXT : OP_WAIT;
}

static enum op_verdict tidy(struct op *op, const struct op_event *ev)
{
	static bool unused;

	if (ev->type == OP_IO) {
		op_result(op, "image", json_incref(json_object_get(op_res(op), "image")));
		return OP_NEXT;
	}
	return ev->type == OP_ENTER ? ask_disk(op, &unused, NULL, true) : OP_WAIT;
}

static const struct op_step steps[] = {
	{ "create-image", "Preparing", image_create, image_discard, 10, 10, 0, 0 },
	{ "pause", "Pausing", pause_guest, resume_guest, 10, 10, OPF_QEMU, 0 },
	{ "mover", "Saving", mover_begin, mover_stop, 10, 10, OPF_SYNC, 0 },
	{ "save", NULL, save, save_cancel, 60, 60, OPF_QEMU, 0 },
	{ "seal", "Committing", seal, unseal, 10, 10, OPF_COMMIT | OPF_BARRIER, 0 },
	{ "finish", "Terminating", finish_stream, NULL, 10, 0, OPF_QEMU, OP_RES_QEMU | OP_RES_MOVER },
	{ "quit", NULL, quit, NULL, 10, 0, OPF_QEMU, OP_RES_QEMU | OP_RES_MOVER },
	{ "tidy", NULL, tidy, NULL, 10, 0, 0, OP_RES_QEMU | OP_RES_MOVER },
};

static const struct op_plan plan = {
	.kind = "hibernate", .version = 3, .steps = steps, .nsteps = 8, .done_phase = "Hibernated",
	.data_size = 16,
};

/* --- the case --- */

static void setup(struct op_model_world *w, struct op_options *o)
{
	disk = (struct disk){ false, false };
	o->arguments = json_pack("{s:s}", "name", "vm1");
	o->was = json_pack("{s:b}", "running", strcmp(w->run_state, "running") == 0);
}

static void setup_paused(struct op_model_world *w, struct op_options *o)
{
	strcpy(w->run_state, "paused");
	setup(w, o);
}

static void setup_72(struct op_model_world *w, struct op_options *o)
{
	w->qemu72 = true;
	setup(w, o);
}

static bool runs(const struct op_model_world *w)
{
	return strcmp(w->run_state, "running") == 0;
}

/* A whole image and a running guest at once would be two truths. */
static void effect(struct op_model_world *w, const char *kind, const char *name)
{
	(void)kind;
	(void)name;
	if (disk.manifest && w->qemu && runs(w))
		op_model_fail(w, "a sealed image and a running guest");
}

static void check_gone_back(struct op_model_world *w, const char *status)
{
	const char *class_ = w->op ? tp_error_class(op_error(w->op)) : "";

	if (w->op && (disk.manifest || disk.image))
		op_model_fail(w, "something of the image is left");
	if (w->mover_alive)
		op_model_fail(w, "the mover is left");
	if (w->qemu && (!w->nodes_active || strcmp(w->run_state, status) != 0))
		op_model_fail(w, "QEMU is not back in %s", status);
	if (w->op && !w->qemu && strcmp(class_, "QemuExited") != 0 && w->script.undo_fault == MODEL_NONE)
		op_model_fail(w, "QEMU was lost, but the error is %s", class_);
	if (w->op && w->script.fault == MODEL_CANCEL && op_status(w->op) != OP_CANCELLED)
		op_model_fail(w, "was not cancelled");
	if (w->op && w->script.fault == MODEL_DEADLINE && strcmp(class_, "Timeout") != 0)
		op_model_fail(w, "the deadline is not the error");
}

static void check_as(struct op_model_world *w, const char *status)
{
	if (w->script.fault == MODEL_NONE && (!w->op || op_status(w->op) != OP_SUCCEEDED))
		op_model_fail(w, "failed without a fault");
	if (!w->op || !op_committed(w->op)) {
		check_gone_back(w, status);
		return;
	}
	if (op_status(w->op) != OP_SUCCEEDED)
		op_model_fail(w, "committed, but not succeeded");
	if (!disk.image || !disk.manifest || w->qemu)
		op_model_fail(w, "not hibernated");
}

static void check(struct op_model_world *w)
{
	check_as(w, "running");
}

static void check_paused(struct op_model_world *w)
{
	check_as(w, "paused");
	if (w->guest_ran)
		op_model_fail(w, "the guest ran, but its user had paused it");
}

static const struct op_model_case cases[] = {
	{ .name = "running", .plan = &plan, .setup = setup, .effect = effect, .check = check },
	{ .name = "paused", .plan = &plan, .setup = setup_paused, .effect = effect,
	  .check = check_paused },
	{ .name = "QEMU 7.2", .plan = &plan, .setup = setup_72, .effect = effect, .check = check },
};

static void test_walk(void **state)
{
	struct op_model_count count = { 0 };

	(void)state;
	op_model_walk(&cases[0], &count);
	for (size_t i = 1; i < sizeof(cases) / sizeof(cases[0]); i++)
		op_model_walk_down(&cases[i], &count);
	print_message("%u runs: %u succeeded, %u failed, %u cancelled, %u of them stuck first\n",
		      count.runs, count.succeeded, count.failed, count.cancelled, count.stuck_first);
	assert_true(count.succeeded > 50 && count.failed > 50 && count.cancelled > 50);
	assert_true(count.stuck_first > 20);
}

static void test_recover(void **state)
{
	struct op_model_count count = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		op_model_recover(&cases[i], &count);
	print_message("%u runs: %u succeeded, %u failed\n", count.runs, count.succeeded,
		      count.failed);
	assert_true(count.succeeded > 10 && count.failed > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk), cmocka_unit_test(test_recover),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
