/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * restore_lazy.c - Restore: a guest that runs before its memory is there
 *
 * Theory of operation. The mover plays the source of a post-copy migration (page_server.h): QEMU gets
 * the devices, and each page when it is touched. What is in the way of that is found before QEMU is
 * told to load anything: rights, huge pages, a QEMU that refuses the capability. The VM is then
 * restored eagerly, and a warning says why.
 *
 * With `-S` and late-block-activate QEMU 10 loads the devices and stays paused, the disks untouched:
 * the commit comes afterwards, as in an eager restore. QEMU 7.2 activates the disks with the last
 * command of the package, so the server holds the package back until the image is consumed.
 *
 * Until the commit the server is this operation's; then it is the VM's (prefetch.h).
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/restore.h"
#include "engine/room.h"
#include "engine/spec.h"
#include "engine/steps.h"
#include "engine/uffd.h"
#include "engine/vm_runtime.h"
#include "engine/working_set.h"

#define POLL_EVERY 0.02		/* seconds; for the first second, as the load is a matter of milliseconds */
#define POLL_OFTEN 50u
#define POLL_LATER 0.2
#define AUTO_MIN (256ull << 20)	/* bytes of the stream: below it an eager restore is as good */
#define PAGE 4096u

/* --- is it possible? --- */

static enum op_verdict eagerly(struct op *op, const char *why)
{
	struct restore *r = op_data(op);

	r->lazy = false;
	op_warn(op, "the memory is loaded before the guest runs: %s", why);
	return OP_NEXT;
}

/* QEMU 7.2 takes such memory for post-copy and ends when it is to begin. */
static bool memory_is_a_file(const json_t *args)
{
	size_t i;
	json_t *arg;

	json_array_foreach(args, i, arg)
		if (strstr(json_string_value(arg), "memory-backend-file"))
			return true;
	return false;
}

static bool is_wanted(const struct vm *vm, const json_t *manifest, const char *asked, struct restore_choice *c)
{
	tp_autojson json_t *by_spec = spec_get(vm->spec, "restore.mode");
	const char *mode = asked ? asked : json_string_value(by_spec);
	char size[TP_SIZE_TEXT];

	if (strcmp(mode, "lazy") == 0)
		return true;
	snprintf(c->why, sizeof(c->why), "as it is asked for");
	if (strcmp(mode, "eager") == 0)
		return false;
	/* "auto"; vm-start has modes of its own. */
	snprintf(c->why, sizeof(c->why), "less than %s: a lazy restore would gain nothing",
		 tp_size_format(AUTO_MIN, size));
	return (uint64_t)tp_json_int(manifest, "raw-bytes", 0) >= AUTO_MIN;
}

void restore_choice(const struct vm *vm, const json_t *manifest, const char *asked, struct restore_choice *c)
{
	enum uffd_way way;

	memset(c, 0, sizeof(*c));
	c->wanted = is_wanted(vm, manifest, asked, c);
	if (!c->wanted)
		return;
	way = uffd_way_of(vm, manifest, c->why);
	c->hand_over = way == UFFD_HAND_OVER;
	c->lazy = way != UFFD_NONE;
	if (c->lazy && tp_json_int(tp_json_path(manifest, "qemu.version"), "major", 0) < 8 &&
	    memory_is_a_file(tp_json_path(manifest, "launch.args"))) {
		c->lazy = false;
		snprintf(c->why, sizeof(c->why), "its memory is a file, which this QEMU cannot take page by page");
	}
}

void restore_choose_mode(struct op *op)
{
	struct restore *r = op_data(op);
	struct restore_choice c;

	restore_choice(op_vm_of(op), r->manifest, tp_json_str(op_arguments(op), "mode"), &c);
	r->lazy = c.lazy;
	r->hand_over = c.hand_over;
	if (c.wanted && !c.lazy)
		eagerly(op, c.why);
}

/* --- prepare --- */

static enum op_verdict page_sizes(struct op *op, const json_t *reply)
{
	char block[64], size[TP_SIZE_TEXT], text[160];
	uint64_t bytes;

	if (room_other_pages(json_string_value(reply), PAGE, block, sizeof(block), &bytes)) {
		snprintf(text, sizeof(text), "RAM block %s has pages of %s on this host", block,
			 tp_size_format(bytes, size));
		return eagerly(op, text);
	}
	return op_qmp_full(op, QMP_MIGRATE_SET_CAPABILITIES,
			   json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "postcopy-ram", "state", 1), NULL,
			   0, OPQ_SHOW);
}

enum op_verdict restore_lazy_possible(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	const char *refused = tp_json_str(json_object_get(op_res(op), "qemu"), "refused");
	char text[2 * TP_TEXT_SIZE];

	if (!r->lazy)
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return op_qmp_full(op, QMP_HUMAN_MONITOR, json_pack("{s:s}", "command-line", "info ramblock"), NULL, 0,
				   OPQ_SHOW);
	if (ev->type != OP_REPLY)
		return OP_WAIT;
	if (!ev->err)
		return ev->cmd == QMP_HUMAN_MONITOR ? page_sizes(op, ev->data) : OP_NEXT;
	if (ev->err->code != TP_EQMP)
		return op_fail_error(op, ev->err, NULL);
	/* Why it lacks a right is said by what was to give it. */
	snprintf(text, sizeof(text), "QEMU refuses post-copy: %s%s%s", refused ? "cannot give it the device: " : "",
		 refused ? refused : "", refused ? "" : ev->err->text);
	return eagerly(op, text);
}

/* --- the server --- */

static enum op_verdict start_server(struct op *op)
{
	struct restore *r = op_data(op);
	struct vm *vm = op_vm_of(op);
	struct tp_error err = TP_ERROR_INIT;
	char path[128];
	json_t *request;
	int fds[3];

	if (!stream_pair(&fds[0], &r->qemu_end, 0, &err))
		return op_fail_error(op, &err, NULL);
	r->hold = !vm->qemu->features.set_active;
	/* An eager restore may still need the image. */
	fds[1] = fcntl(r->image_fd, F_DUPFD_CLOEXEC, 3);
	fds[2] = tp_listen_packets(launch_socket(vm, "pages", path, sizeof(path)), 0600, &err);
	if (fds[1] < 0 || fds[2] < 0) {
		tp_close(&fds[0]);
		tp_close(&fds[1]);
		tp_close(&fds[2]);
		return err.code ? op_fail_error(op, &err, NULL) : op_fail(op, TP_ESYS, "IOError", "no descriptor is left");
	}
	request = json_pack("{s:s, s:[s, s, s], s:b, s:I, s:o*}", "job", "page-server", "fds", "stream", "image",
			    "listener", "hold", r->hold, "bandwidth", tp_json_int(op_arguments(op), "bandwidth", 0),
			    "working-set", working_set_request(r->manifest));
	mover_fault(op, request);
	return op_mover_start(op, request, fds, 3);
}

/* What refuses the image here does so before QEMU was told anything. */
static enum op_verdict await_server(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);
	const char *desc = tp_json_str(ev->data, "desc");

	if (strcmp(ev->name, "hello") == 0)
		mover_note(op, ev);
	if (strcmp(ev->name, "error") == 0)
		eagerly(op, desc ? desc : "no page server");
	if (strcmp(ev->name, "end") == 0) {
		if (r->lazy)
			eagerly(op, "the page server ended at once");
		step_fd_close(&r->qemu_end);
		return OP_NEXT;
	}
	if (strcmp(ev->name, "state") != 0)
		return OP_WAIT;
	/* It has all that it needs: from here on its end is the restore's. */
	op_hold(op, OP_RES_MOVER);
	return OP_NEXT;
}

enum op_verdict restore_page_server(struct op *op, const struct op_event *ev)
{
	if (!((struct restore *)op_data(op))->lazy && ev->type == OP_ENTER)
		return OP_NEXT;
	if (ev->type == OP_ENTER)
		return start_server(op);
	return ev->type == OP_MOVER ? await_server(op, ev) : OP_WAIT;
}

/* --- load --- */

static enum op_verdict on_server(struct op *op, const struct op_event *ev)
{
	const struct restore *r = op_data(op);
	const char *state = tp_json_str(ev->data, "state");

	if (strcmp(ev->name, "error") == 0)
		return restore_load_failed(op, ev->data);
	return strcmp(ev->name, "state") == 0 && strcmp(state ? state : "", "held") == 0 && !r->released ? OP_NEXT :
	       OP_WAIT;
}

static enum op_verdict look_again(struct op *op)
{
	struct restore *r = op_data(op);

	return op_sleep(op, r->polls++ < POLL_OFTEN ? POLL_EVERY : POLL_LATER);
}

/* The devices are loaded when QEMU is not inmigrate any more. */
static enum op_verdict on_reply(struct op *op, const struct op_event *ev)
{
	struct mig_info info;

	if (op_replied(ev, QMP_GETFD))
		return restore_incoming(op);
	if (op_replied(ev, QMP_MIGRATE_INCOMING))
		return look_again(op);
	if (op_replied(ev, QMP_QUERY_STATUS)) {
		const char *status = tp_json_str(ev->data, "status");

		if (!status || strcmp(status, "inmigrate") == 0)
			return op_qmp(op, QMP_QUERY_MIGRATE, NULL);
		vm_status_is(op_vm_of(op), status);	/* no event tells it */
		return OP_NEXT;
	}
	if (!op_replied(ev, QMP_QUERY_MIGRATE))
		return OP_WAIT;
	mig_info_parse(ev->data, &info);
	if (info.phase == MIG_FAILED || info.phase == MIG_CANCELLED)
		return restore_await_mover(op, &info);
	return look_again(op);
}

static enum op_verdict wait_devices(struct op *op, const struct op_event *ev)
{
	if (ev->type == OP_MOVER)
		return on_server(op, ev);
	if (ev->type == OP_REPLY)
		return on_reply(op, ev);
	if (ev->type == OP_TICK || (ev->type == OP_QEMU_EVENT && strcmp(ev->name, "MIGRATION") == 0))
		return op_qmp(op, QMP_QUERY_STATUS, NULL);
	return OP_WAIT;
}

enum op_verdict restore_serve(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);

	if (ev->type != OP_ENTER)
		return wait_devices(op, ev);
	return op_qmp_full(op, QMP_GETFD, json_pack("{s:s}", "fdname", RESTORE_LOAD_FD), &r->qemu_end, 0, 0);
}

enum op_verdict restore_release_package(struct op *op, const struct op_event *ev)
{
	struct restore *r = op_data(op);

	if (ev->type != OP_ENTER)
		return wait_devices(op, ev);
	r->released = true;
	if (op_mover_send(op, json_pack("{s:{}}", "finish")) == OP_FAIL)
		return OP_FAIL;
	return look_again(op);
}

/* --- handed over --- */

void restore_note_prefetch(struct op *op)
{
	struct restore *r = op_data(op);
	const char *until = tp_json_str(op_arguments(op), "until");
	json_int_t began = (json_int_t)tp_now_us() - (json_int_t)((op_now(op) - r->started) * 1e6);

	if (!r->lazy)
		return;
	vm_rest_set(op_vm_of(op), "prefetch",
		    json_pack("{s:O, s:b, s:s, s:I, s:b, s:I, s:b, s:O*}", "image", restore_image(op), "keep",
			      tp_json_bool(op_res(op), "keep", false), "operation", op_id(op), "began", began,
			      "until-whole", until && strcmp(until, "whole") == 0, "bandwidth",
			      tp_json_int(op_arguments(op), "bandwidth", 0), "ran", !restore_stays_paused(op), "server",
			      json_object_get(op_res(op), "mover")));
}

/* All came in while the restore was on its way. */
static enum op_verdict whole_already(struct op *op)
{
	struct vm *vm = op_vm_of(op);
	struct restore *r = op_data(op);
	const json_t *set = op_mover_said(op, "working-set");
	struct op_job *job;

	if (set)
		working_set_store(vm, json_deep_copy(set));
	r->whole = op_now(op);
	vm_rest_set(vm, "prefetch", NULL);
	job = vm_rest_job(vm);
	return job ? op_io(op, job, 0) : op_fail(op, TP_ENOMEM, NULL, "out of memory");
}

enum op_verdict restore_hand_over(struct op *op, const struct op_event *ev)
{
	struct vm *vm = op_vm_of(op);

	if (ev->type == OP_IO)
		return OP_NEXT;
	if (ev->type != OP_ENTER)
		return OP_WAIT;
	if (!json_object_get(vm->rest, "prefetch"))
		return OP_NEXT;
	op_phase(op, "Prefetching");
	if (op_mover_said(op, "done"))
		return whole_already(op);
	op_mover_give(op);
	prefetch_adopt(vm);		/* where it has just ended, or was another engine's */
	return OP_NEXT;
}
