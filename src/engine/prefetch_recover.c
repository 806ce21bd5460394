/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * prefetch_recover.c - Another page server, another connection, for a QEMU in postcopy-paused
 *
 * Theory of operation
 *
 * Nothing of a page server but the image is needed by the next one: QEMU tells what it has. So where
 * it ended, the image is opened again and a new one is started over it, wholly prepared before
 * QEMU hears of it (QEMU 7.2 does not survive a connection that breaks in the handshake). Only then
 * `migrate-recover` goes to QEMU, out of band, as its main loop may wait for one of the missing pages;
 * QEMU listens at <run-dir>/pages-qemu.sock, and the server gets the connection. Whatever fails is
 * tried again, at most RETRY_MAX apart, for as long as QEMU lives.
 *
 * The server may also have ended because all was in, and its word was lost with an engine: QEMU knows.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_proc.h"
#include "base/tp_sock.h"
#include "engine/launch.h"
#include "engine/pool_job.h"
#include "engine/prefetch_priv.h"
#include "engine/steps.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine.prefetch");

#define RETRY_MIN 0.05		/* seconds */
#define RETRY_MAX 5.0
#define RETRY_DAMAGED 10.0
#define ASK_LIMIT 2.0		/* seconds for QEMU's answers; its main loop may be stuck */

static void soon(struct prefetch *p, double after)
{
	ev_timer_stop(p->vm->t->loop, &p->again);
	ev_now_update(p->vm->t->loop);
	ev_timer_set(&p->again, after, 0.);
	ev_timer_start(p->vm->t->loop, &p->again);
}

/* Later each time, until QEMU is served again. */
static void later(struct prefetch *p)
{
	p->backoff = p->backoff * 2 > RETRY_MIN ? p->backoff * 2 : RETRY_MIN;
	if (p->backoff > RETRY_MAX)
		p->backoff = RETRY_MAX;
	soon(p, p->damaged ? RETRY_DAMAGED : p->backoff);
}

static void later_because(struct prefetch *p, const char *what, const char *why)
{
	char text[sizeof(p->message)];

	snprintf(text, sizeof(text), "%s: %s; it is tried again", what, why);
	if (strcmp(text, p->message) != 0)
		tp_warn("vm=%s %s", p->vm->name, text);
	if (!p->damaged)
		snprintf(p->message, sizeof(p->message), "%s", text);
	later(p);
}

/* The answers come when the VM may have been undefined, or its QEMU be another one. */
static struct prefetch *still(struct vm *vm)
{
	return vm->prefetch && !vm->t->closing ? vm->prefetch : NULL;
}

/* --- the server --- */

static bool open_image(struct job *j, struct tp_error *err)
{
	j->fd = pool_image_open(j->pool, tp_json_str(j->in, "vm"), tp_json_str(j->in, "id"), err);
	return j->fd >= 0;
}

static void note_server(struct prefetch *p)
{
	struct tp_proc proc;

	if (!tp_proc_identify(mover_pid(p->server), &proc, NULL))
		return;
	prefetch_note(p->vm, "server", tp_proc_json(&proc));
	vm_rest_save(p->vm);
}

static void start_server(struct prefetch *p, int image_fd)
{
	struct torpor *t = p->vm->t;
	struct tp_error err = TP_ERROR_INIT;
	char path[128];
	int fds[2] = { image_fd, tp_listen_packets(launch_socket(p->vm, "pages", path, sizeof(path)), 0600, &err) };
	json_int_t bandwidth = p->hurried ? 0 : tp_json_int(prefetch_record(p), "bandwidth", 0);

	if (fds[1] >= 0)
		p->server = mover_start(&t->mover, json_pack("{s:s, s:s, s:O*, s:[s, s], s:b, s:I}", "job",
							     "page-server", "vm", p->vm->name, "op",
							     json_object_get(prefetch_record(p), "operation"), "fds",
							     "image", "listener", "recover", 1, "bandwidth", bandwidth),
					fds, 2, &prefetch_server_ops, p, &err);
	else
		tp_close(&fds[0]);
	if (!p->server) {
		later_because(p, "no page server can be started", err.text);
		return;
	}
	p->restarts++;
	p->done = false;
	tp_info("vm=%s page server %d started (pid %d)", p->vm->name, (int)p->restarts, (int)mover_pid(p->server));
	note_server(p);
}

static void opened(struct job *j, const struct tp_error *err, void *arg)
{
	struct vm *vm = vm_find(arg, tp_json_str(j->in, "of"));
	struct prefetch *p = vm ? still(vm) : NULL;

	if (!p || !p->opening)
		return;
	p->opening = false;
	if (err)
		later_because(p, "its image cannot be opened", err->text);
	else if (!p->server)
		start_server(p, TP_STEAL_FD(j->fd));
}

static void open_then_start(struct prefetch *p)
{
	json_t *in = json_copy(json_object_get(prefetch_record(p), "image"));
	struct tp_error err = TP_ERROR_INIT;
	struct engine_pool *pool = pools_need(p->vm->t->pools, tp_json_str(in, "pool"), &err);

	tp_json_set_str(in, "of", p->vm->name);
	if (pool)
		p->opening = pool_job(pool, open_image, in, opened, p->vm->t, &err);
	else
		json_decref(in);
	if (!p->opening)
		later_because(p, "its image cannot be reached", err.text);
}

/* --- QEMU --- */

static void connect_both(struct prefetch *p)
{
	struct tp_error err = TP_ERROR_INIT;
	char path[128];
	tp_autoclose int fd = tp_connect_unix(launch_socket(p->vm, "pages-qemu", path, sizeof(path)), false, &err);

	if (fd < 0 || !mover_send_fd(p->server, json_pack("{s:{}}", "stream"), fd, &err))
		later_because(p, "QEMU cannot be connected with its page server", err.text);
	else
		soon(p, RETRY_MAX);	/* should nothing come of it */
}

static void recover_done(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct vm *vm = arg;
	struct prefetch *p = still(vm);

	(void)reply, (void)qemu_error;
	if (!p || (err && err->code == TP_ECANCELLED))
		return;
	p->asked = false;
	if (!p->server || strcmp(prefetch_state(p), "waiting") != 0)
		return;		/* it has ended meanwhile: the next one asks again */
	/* 7.2: an earlier call stands, and QEMU listens still. */
	if (!err || strstr(err->text, "triggered already"))
		connect_both(p);
	else
		later(p);	/* not in postcopy-paused yet, or all is in */
}

static void ask_to_recover(struct prefetch *p)
{
	char path[128];
	struct tp_error err = TP_ERROR_INIT;
	struct qmp_client *qmp = p->vm->qemu ? p->vm->qemu->qmp : NULL;

	if (!qmp || !qmp_client_is_ready(qmp)) {
		later(p);
		return;
	}
	launch_socket(p->vm, "pages-qemu", path, sizeof(path));
	p->asked = qmp_client_send(qmp, QMP_MIGRATE_RECOVER, json_pack("{s:s+}", "uri", "unix:", path), NULL, 0,
				   recover_done, p->vm, &err) != 0;
	if (!p->asked)
		later_because(p, "QEMU cannot be asked to go on", err.text);
}

static void migration_known(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct vm *vm = arg;
	const char *status = tp_json_str(reply, "status");

	(void)qemu_error;
	/* That it waits is known, and when it is asked again is not for this to say: it may refuse for long. */
	if (still(vm) && !err && status && strcmp(status, "completed") == 0)
		prefetch_migration_is(vm, status);
}

static void ask_whether_whole(struct prefetch *p)
{
	struct qmp_client *qmp = p->vm->qemu ? p->vm->qemu->qmp : NULL;

	if (qmp)
		qmp_client_send(qmp, QMP_QUERY_MIGRATE, NULL, NULL, ASK_LIMIT, migration_known, p->vm, NULL);
}

void prefetch_migration_is(struct vm *vm, const char *status)
{
	struct prefetch *p = vm->prefetch;

	if (!p)
		return;
	if (strcmp(status, "completed") == 0 && p->away) {
		if (p->server)
			mover_kill(p->server, SIGKILL);
		p->done = true;
		if (!p->server)
			prefetch_completed(p);
	} else if (strcmp(status, "postcopy-paused") == 0 && p->server && !p->asked &&
		   strcmp(prefetch_state(p), "waiting") == 0) {
		p->backoff = 0;
		prefetch_set_away(p, true);
		soon(p, 0.);
	}
}

/* --- the next thing to do --- */

static void again_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct prefetch *p = w->data;

	(void)loop, (void)events;
	if (!p->vm->qemu || p->vm->t->closing || !p->away || p->done)
		return;
	ask_whether_whole(p);
	if (!p->server && !p->opening)
		open_then_start(p);
	else if (p->server && !p->asked && strcmp(prefetch_state(p), "waiting") == 0)
		ask_to_recover(p);
}

void prefetch_recover_init(struct prefetch *p)
{
	ev_timer_init(&p->again, again_cb, 0., 0.);
	p->again.data = p;
}

void prefetch_recover_stop(struct prefetch *p)
{
	ev_timer_stop(p->vm->t->loop, &p->again);
}

void prefetch_lost(struct prefetch *p, const char *why)
{
	bool first = !p->away;

	if (!p->damaged && (first || !p->message[0]))
		snprintf(p->message, sizeof(p->message), "its page server has ended%s%s", *why ? ": " : "", why);
	tp_warn("vm=%s %s", p->vm->name, p->message);
	prefetch_set_away(p, true);
	p->asked = false;
	if (p->damaged || !first)
		later(p);
	else
		soon(p, 0.);
}

void prefetch_wants_stream(struct prefetch *p)
{
	prefetch_set_away(p, true);
	if (!p->asked)
		soon(p, p->backoff);
}

void prefetch_end_left(struct vm *vm)
{
	struct tp_proc proc;
	tp_autoclose int fd = tp_proc_of_json(tp_json_path(vm->rest, "prefetch.server"), &proc) ? tp_proc_open(&proc) :
			      -1;

	if (fd >= 0)
		tp_pidfd_kill(fd, SIGKILL);
	vm_rest_set(vm, "prefetch", NULL);
}

void prefetch_take_up(struct prefetch *p)
{
	struct tp_error err = TP_ERROR_INIT;
	struct tp_proc proc;
	char path[128];

	tp_proc_of_json(json_object_get(prefetch_record(p), "server"), &proc);
	p->server = mover_adopt(&p->vm->t->mover, &proc, launch_socket(p->vm, "pages", path, sizeof(path)), p->vm->name,
				&prefetch_server_ops, p, &err);
	if (p->server)
		tp_info("vm=%s page server (pid %d) taken up", p->vm->name, (int)proc.pid);
	else
		prefetch_lost(p, err.text);
}
