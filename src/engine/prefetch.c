/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * prefetch.c - A VM whose guest runs while its memory still comes from its image
 *
 * Theory of operation
 *
 * The page server sends what the guest touches, and meanwhile all the rest. For the VM's verbs the
 * guest is a guest like any other; what saves or moves it waits until all is in (prefetch_whole).
 * The end is the server's "done": QEMU then has said that it misses nothing. Where the server ends
 * before that, or loses its connection, QEMU waits in postcopy-paused, and prefetch_recover.c gives it
 * another one. Where QEMU ends the prefetch ends with it: the guest has run, so the image is consumed,
 * and what QEMU had is gone as after a power cut.
 *
 * The image is used until the end, and is deleted then, unless it is kept, or the guest has not run yet
 * (restored paused): that image can still be given back.
 */
#include "engine/prefetch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/launch.h"
#include "engine/ops.h"
#include "engine/prefetch_priv.h"
#include "engine/steps.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"
#include "engine/working_set.h"

TP_LOG_SOURCE("engine.prefetch");

#define POLL_EVERY 0.1		/* seconds; while an operation waits */

json_t *prefetch_record(const struct prefetch *p)
{
	return json_object_get(p->vm->rest, "prefetch");
}

void prefetch_note(struct vm *vm, const char *key, json_t *value_owned)
{
	json_t *record = json_object_get(vm->rest, "prefetch");

	tp_json_set(record, key, value_owned);
	vm_rest_set(vm, "prefetch", json_incref(record));	/* it is to be written */
}

const char *prefetch_state(const struct prefetch *p)
{
	const char *state = tp_json_str(p->status, "state");

	return state ? state : "";
}

static uint64_t figure(const struct prefetch *p, const char *name)
{
	return (uint64_t)tp_json_int(p->status, name, 0);
}

/* Seconds since the command. */
static double since_began(const struct prefetch *p)
{
	int64_t began = tp_json_int(prefetch_record(p), "began", 0), now = (int64_t)tp_now_us();

	return now > began ? (double)(now - began) / 1e6 : 0;
}

/* --- its record --- */

/* The times that are known. */
static void set_times(const struct prefetch *p, json_t *record)
{
	json_t *result = json_object_get(record, "result");

	if (!result)
		tp_json_set(record, "result", result = json_object());
	if (p->preferred_at > 0)
		tp_json_set(result, "working-set", json_real(p->preferred_at));
	if (p->whole_at > 0)
		tp_json_set(result, "whole", json_real(p->whole_at));
}

static bool waits_for_whole(const struct prefetch *p)
{
	return tp_json_bool(prefetch_record(p), "until-whole", false);
}

void prefetch_shape_record(const struct vm *vm, json_t *record)
{
	const struct prefetch *p = vm->prefetch;
	const char *op = p ? tp_json_str(prefetch_record(p), "operation") : NULL;
	json_t *timeline = json_object_get(record, "timeline");
	size_t n = json_array_size(timeline);

	if (!op || strcmp(op, tp_json_str(record, "id")) != 0 ||
	    strcmp(tp_json_str(record, "status"), "succeeded") != 0)
		return;
	set_times(p, record);
	if (p->finished || !waits_for_whole(p))
		return;
	tp_json_set_str(record, "status", "running");
	tp_json_set_str(record, "phase", "Prefetching");
	tp_json_set(record, "ended", NULL);
	if (n && strcmp(tp_json_str(json_array_get(timeline, n - 1), "phase"), "Restored") == 0)
		json_array_remove(timeline, n - 1);
}

static void end_record(json_t *record, const struct tp_error *err)
{
	char at[TP_TIME_TEXT];
	const char *phase = err ? "Failed" : "Restored";

	tp_time_format(tp_now_us(), at);
	tp_json_set_str(record, "status", err ? "failed" : "succeeded");
	tp_json_set_str(record, "phase", phase);
	tp_json_set_str(record, "ended", at);
	json_array_append_new(json_object_get(record, "timeline"), json_pack("{s:s, s:s}", "phase", phase, "at", at));
	if (err)
		tp_json_set(record, "error", json_pack("{s:s, s:s, s:{}}", "class", tp_error_class(err), "desc",
						       err->text, "data"));
}

/* err: the memory never came in. */
static void amend_record(const struct prefetch *p, const struct tp_error *err)
{
	struct torpor *t = p->vm->t;
	const char *id = tp_json_str(prefetch_record(p), "operation");
	tp_autojson json_t *known = id ? ops_record(t, id) : NULL, *record = known ? json_deep_copy(known) : NULL;

	if (!record)
		return;		/* too many came after it */
	set_times(p, record);
	if (strcmp(tp_json_str(record, "status"), "running") == 0)
		end_record(record, err);
	ops_amend(t, record);
}

/* --- the end --- */

/* Its restore holds the VM still. */
static bool restores(const struct prefetch *p)
{
	const char *id = tp_json_str(prefetch_record(p), "operation");

	return p->vm->op && id && strcmp(op_id(p->vm->op), id) == 0;
}

static void drop_image(struct prefetch *p)
{
	json_t *record = prefetch_record(p);

	if (tp_json_bool(record, "ran", false) && !tp_json_bool(record, "keep", false))
		vm_image_drop(p->vm, json_incref(json_object_get(record, "image")));
}

static void release(struct prefetch *p)
{
	struct vm *vm = p->vm;

	prefetch_recover_stop(p);
	mover_free(p->server);
	json_decref(p->status);
	json_decref(p->damage);
	free(p);
	vm->prefetch = NULL;
}

static void unlink_sockets(const struct vm *vm)
{
	char path[128];

	unlink(launch_socket(vm, "pages", path, sizeof(path)));
	unlink(launch_socket(vm, "pages-qemu", path, sizeof(path)));
}

/* What only the damage had stopped goes on, now that the image has proved to be whole. */
static void go_on(struct prefetch *p)
{
	struct qmp_client *qmp = p->vm->qemu ? p->vm->qemu->qmp : NULL;

	if (qmp && tp_json_bool(prefetch_record(p), "stopped", false))
		qmp_client_send(qmp, QMP_CONT, NULL, NULL, 0, NULL, NULL, NULL);
}

void prefetch_completed(struct prefetch *p)
{
	struct vm *vm = p->vm;

	if (p->whole_at <= 0)
		p->whole_at = since_began(p);
	p->finished = true;
	if (restores(p))
		return;		/* prefetch_op_ended() comes */
	tp_info("vm=%s all its memory is in, %.3f s after the command", vm->name, p->whole_at);
	amend_record(p, NULL);
	drop_image(p);
	go_on(p);
	release(p);
	unlink_sockets(vm);
	vm_rest_set(vm, "prefetch", NULL);
	vm_rest_save(vm);
	vm_refresh(vm);
}

void prefetch_op_ended(struct vm *vm)
{
	if (vm->prefetch && vm->prefetch->finished)
		prefetch_completed(vm->prefetch);
}

void prefetch_over(struct vm *vm)
{
	struct prefetch *p = vm->prefetch;
	struct tp_error why = TP_ERROR_INIT;

	if (!p) {
		prefetch_end_left(vm);
		return;
	}
	tp_fail_class(&why, TP_EQMP, "QemuExited", "QEMU of VM %s ended before all its memory was in", vm->name);
	if (p->server)
		mover_kill(p->server, SIGKILL);
	if (!restores(p))
		amend_record(p, &why);
	release(p);
	unlink_sockets(vm);
	vm_rest_set(vm, "prefetch", NULL);
}

void prefetch_forget(struct vm *vm)
{
	if (vm->prefetch)
		release(vm->prefetch);
}

/* --- the server's words --- */

void prefetch_set_away(struct prefetch *p, bool away)
{
	if (p->away == away)
		return;
	p->away = away;
	if (!away)
		p->message[0] = '\0';
	vm_refresh(p->vm);
}

static json_t *progress(const struct prefetch *p)
{
	uint64_t page = figure(p, "page-size"), total = figure(p, "pages") * page;
	uint64_t left = figure(p, "pages-left") * page, done = total > left ? total - left : 0;
	json_t *out = json_pack("{s:I, s:I}", "done-bytes", (json_int_t)done, "total-bytes", (json_int_t)total);
	bool moves = p->rate > 0 && !p->away;

	tp_json_set(out, "percent", total ? json_integer((json_int_t)((double)done * 100 / (double)total)) : json_null());
	tp_json_set(out, "rate", moves ? json_integer((json_int_t)p->rate) : json_null());
	tp_json_set(out, "eta", moves ? json_real((double)left / p->rate) : json_null());
	return out;
}

/* Who waits until the VM is whole sees how it comes in. */
static void tell_progress(const struct prefetch *p)
{
	struct torpor *t = p->vm->t;
	const char *id = tp_json_str(prefetch_record(p), "operation");
	tp_autojson json_t *known = !p->vm->op && waits_for_whole(p) ? ops_record(t, id) : NULL;
	tp_autojson json_t *record = known ? json_copy(known) : NULL;

	if (!record || strcmp(tp_json_str(record, "status"), "running") != 0)
		return;
	tp_json_set(record, "progress", progress(p));
	ops_progress(t, record);
}

static void measure(struct prefetch *p)
{
	uint64_t sent = figure(p, "pages-sent");
	double now = tp_now_mono(), passed = now - p->rate_at;

	if (p->preferred_at <= 0 && figure(p, "working-set-pages") && !figure(p, "working-set-left"))
		p->preferred_at = since_began(p);
	if (passed < 1)
		return;
	if (p->rate_at > 0 && sent >= p->rate_pages)
		p->rate = (double)((sent - p->rate_pages) * figure(p, "page-size")) / passed;
	p->rate_at = now;
	p->rate_pages = sent;
	tell_progress(p);
}

/*
 * What the guest would see in place of the lost pages is wrong, so it does not go on: a vCPU that
 * touches one waits for ever, and the others are stopped.
 */
static void damage_is(struct prefetch *p, const json_t *error)
{
	const char *desc = tp_json_str(error, "desc"), *image = tp_json_str(json_object_get(prefetch_record(p), "image"),
									    "id");

	p->damaged = true;
	json_decref(p->damage);
	p->damage = json_deep_copy(json_object_get(error, "damage"));
	snprintf(p->message, sizeof(p->message), "image %s is damaged: %s. The guest cannot go on without these pages. "
		 "Put the image right (or its pool back) and it goes on by itself; image cat --salvage writes what can "
		 "be read; vm-quit gives the VM up", image, desc ? desc : "its pages cannot be read");
	tp_err("vm=%s %s", p->vm->name, p->message);
	if (!vm_running(p->vm) || !p->vm->qemu->qmp ||
	    !qmp_client_send(p->vm->qemu->qmp, QMP_STOP, NULL, NULL, 0, NULL, NULL, NULL))
		return;
	prefetch_note(p->vm, "stopped", json_true());
	vm_rest_save(p->vm);
}

/* Of an image that was damaged nothing is believed before all of it is in. */
static void served(struct prefetch *p)
{
	p->backoff = 0;
	if (!p->damaged)
		prefetch_set_away(p, false);
}

static void status_is(struct prefetch *p, const json_t *status)
{
	const char *state;

	json_decref(p->status);
	p->status = json_deep_copy(status);
	state = prefetch_state(p);
	measure(p);
	if (strcmp(state, "waiting") == 0)
		prefetch_wants_stream(p);
	else if (strcmp(state, "serving") == 0 || strcmp(state, "loading") == 0 || strcmp(state, "ending") == 0)
		served(p);
}

static void server_says(struct mover *m, const char *name, const json_t *value, void *arg)
{
	struct prefetch *p = arg;

	(void)m;
	if (strcmp(name, "hello") == 0) {
		if (json_object_get(value, "pages"))
			status_is(p, json_object_get(value, "pages"));
	} else if (strcmp(name, "state") == 0 || strcmp(name, "progress") == 0) {
		status_is(p, value);
	} else if (strcmp(name, "working-set") == 0) {
		working_set_store(p->vm, json_deep_copy(value));
	} else if (strcmp(name, "done") == 0) {
		json_decref(p->status);
		p->status = json_deep_copy(value);
		measure(p);
		p->done = true;
	} else if (strcmp(name, "error") == 0) {
		const char *class_ = tp_json_str(value, "class");

		if (class_ && strcmp(class_, "Corrupt") == 0)
			damage_is(p, value);
		else
			snprintf(p->message, sizeof(p->message), "%s", tp_json_str(value, "desc") ?
				 tp_json_str(value, "desc") : "the page server failed");
	}
}

static void server_ended(struct mover *m, int status, const char *tail, void *arg)
{
	struct prefetch *p = arg;

	(void)m, (void)status;
	mover_free(p->server);
	p->server = NULL;
	if (p->done)
		prefetch_completed(p);
	else
		prefetch_lost(p, tail);
}

const struct mover_ops prefetch_server_ops = { .message = server_says, .ended = server_ended };

/* --- begun, taken up --- */

static struct prefetch *new(struct vm *vm)
{
	struct prefetch *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->vm = vm;
	prefetch_recover_init(p);
	vm->prefetch = p;
	return p;
}

void prefetch_take(struct vm *vm, struct mover *server_owned)
{
	struct prefetch *p = new(vm);

	if (!p) {
		mover_free(server_owned);	/* it serves on; the next engine takes it up */
		return;
	}
	p->server = server_owned;
	mover_hand_over(p->server, &prefetch_server_ops, p);
	mover_send(p->server, json_pack("{s:{}}", "progress"), NULL);
	/* Its RESUME came while the server was the restore's. */
	if (vm_running(vm))
		prefetch_resumed(vm);
}

void prefetch_adopt(struct vm *vm)
{
	struct prefetch *p;

	if (!json_object_get(vm->rest, "prefetch") || vm->prefetch)
		return;
	p = new(vm);
	if (p)
		prefetch_take_up(p);
}

/* --- what others ask --- */

bool prefetch_away(const struct vm *vm)
{
	return vm->prefetch && vm->prefetch->away;
}

bool prefetch_uses(const struct vm *vm, const char *image)
{
	const char *id = tp_json_str(tp_json_path(vm->rest, "prefetch.image"), "id");

	return id && strcmp(id, image) == 0;
}

json_t *prefetch_describe(const struct vm *vm)
{
	static const char *const figures[] = { "pages", "pages-left", "requests", "bandwidth", "working-set-pages",
					       "working-set-left" };
	const struct prefetch *p = vm->prefetch;
	json_t *out;

	if (!p)
		return json_null();
	out = progress(p);
	tp_json_set(out, "image", json_incref(tp_json_path(prefetch_record(p), "image.id")));
	tp_json_set(out, "operation", json_incref(json_object_get(prefetch_record(p), "operation")));
	tp_json_set_str(out, "state", p->away ? "waiting" : prefetch_state(p));
	for (size_t i = 0; i < TP_N(figures); i++)
		tp_json_set(out, figures[i], json_integer((json_int_t)figure(p, figures[i])));
	tp_json_set(out, "restarts", json_integer((json_int_t)p->restarts));
	if (p->damage)
		tp_json_set(out, "damage", json_incref(p->damage));
	tp_json_set(out, "message", p->message[0] ? json_string(p->message) : json_null());
	return out;
}

void prefetch_resumed(struct vm *vm)
{
	if (vm->prefetch && vm->prefetch->server)
		mover_send(vm->prefetch->server, json_pack("{s:{}}", "running"), NULL);
}

bool prefetch_ran(struct vm *vm, bool keep)
{
	if (!json_object_get(vm->rest, "prefetch"))
		return false;
	prefetch_note(vm, "ran", json_true());
	prefetch_note(vm, "keep", json_boolean(keep));
	return true;
}

/* --- all of it, now --- */

static void hurry(struct vm *vm, bool on)
{
	struct prefetch *p = vm->prefetch;
	json_int_t bandwidth = p ? tp_json_int(prefetch_record(p), "bandwidth", 0) : 0;

	if (!p || p->hurried == on)
		return;
	p->hurried = on;
	if (p->server && bandwidth)
		mover_send(p->server, json_pack("{s:I}", "bandwidth", on ? (json_int_t)0 : bandwidth), NULL);
}

enum op_verdict prefetch_whole(struct op *op, const struct op_event *ev)
{
	struct vm *vm = op_vm_of(op);

	if (!vm->prefetch)
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		hurry(vm, true);
	if (ev->type != OP_ENTER && ev->type != OP_TICK)
		return OP_WAIT;
	if (vm->prefetch->damaged)
		return op_fail(op, TP_ESTATE, "Corrupt", "%s", vm->prefetch->message);
	/* What comes in is progress. */
	if (figure(vm->prefetch, "pages-sent") != vm->prefetch->waited_pages)
		op_progress(op);
	vm->prefetch->waited_pages = figure(vm->prefetch, "pages-sent");
	return op_sleep(op, POLL_EVERY);
}

enum op_verdict prefetch_whole_undo(struct op *op, const struct op_event *ev)
{
	(void)ev;
	hurry(op_vm_of(op), false);
	return OP_NEXT;
}
