/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vm_hooks.c - Hooks of a VM
 *
 * A hook is a program run by the mover's job "hook". Its output goes into a
 * pipe, which is read as it comes; the last line is the reason when it fails.
 * prepare and before-run are steps of operations; after-run and release belong
 * to no operation: QEMU's end starts them, "release-due" in the durable rest
 * makes them outlive the engine. A VM has one hook at a time: release of the
 * former run ends before prepare of the next one begins.
 */
#include "engine/vm_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/defer.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine.hook");

#define OUTPUT_KEPT 1024	/* bytes: the end of it */
#define READS_MAX 16		/* a turn of the loop */
#define BACKOFF_FIRST 1.0
#define BACKOFF_MAX 60.0

struct hook {
	struct vm *vm;
	struct op *op;			/* NULL: after QEMU's end */
	uint64_t token;
	char name[16], reason[24];
	struct mover *mover;
	struct ev_timer limit, again;
	double backoff;
	int output;			/* reading end of its stdout and stderr */
	struct ev_io reader;
	char text[OUTPUT_KEPT + 1];
	size_t len;
	struct hook *then;		/* of an operation: waits for this one's end */
	bool timed_out, refused;
	struct tp_error error;		/* what the mover said */
};

static void keep_end(struct hook *h, const char *part, size_t n)
{
	size_t drop;

	if (n > OUTPUT_KEPT) {
		part += n - OUTPUT_KEPT;
		n = OUTPUT_KEPT;
	}
	drop = h->len + n > OUTPUT_KEPT ? h->len + n - OUTPUT_KEPT : 0;
	memmove(h->text, h->text + drop, h->len - drop);
	memcpy(h->text + h->len - drop, part, n);
	h->len += n - drop;
}

static void read_output(struct hook *h)
{
	char part[4096];
	ssize_t n;

	for (int i = 0; i < READS_MAX; i++) {
		n = read(h->output, part, sizeof(part));
		if (n > 0)
			keep_end(h, part, (size_t)n);
		else if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		else
			break;
		if (i + 1 == READS_MAX)
			return;
	}
	ev_io_stop(h->vm->t->loop, &h->reader);
}

static void output_cb(struct ev_loop *loop, struct ev_io *w, int events)
{
	(void)loop, (void)events;
	read_output(w->data);
}

static void close_output(struct hook *h)
{
	ev_io_stop(h->vm->t->loop, &h->reader);
	tp_close(&h->output);
}

static void last_line(struct hook *h, char *line, size_t size)
{
	char *start;

	/* A child of it may hold the pipe open: what stands there is enough. */
	if (h->output >= 0)
		read_output(h);
	while (h->len > 0 && strchr("\n\r ", h->text[h->len - 1]))
		h->len--;
	h->text[h->len] = '\0';
	start = strrchr(h->text, '\n');
	snprintf(line, size, "%.*s", (int)size - 1, start ? start + 1 : h->text);
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
			*p = '?';
}

static bool hook_succeeded(struct hook *h, int status, struct tp_error *err)
{
	char line[200];

	last_line(h, line, sizeof(line));
	if (h->refused)
		return tp_fail_class(err, TP_ESYS, "HookFailed", "hook %s of VM %s: %s", h->name, h->vm->name,
				     h->error.text);
	if (h->timed_out)
		return tp_fail_class(err, TP_ETIMEOUT, "HookFailed", "hook %s of VM %s did not end in time%s%s",
				     h->name, h->vm->name, *line ? ": " : "", line);
	if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	if (status == -1)
		return true;	/* reaped by the host program: nothing is known against it */
	return tp_fail_class(err, TP_ESYS, "HookFailed", "hook %s of VM %s failed (%s %d)%s%s", h->name,
			     h->vm->name, WIFSIGNALED(status) ? "signal" : "exit status",
			     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), *line ? ": " : "", line);
}

/* With the one that waits for it. */
static void hook_free(struct hook *h)
{
	while (h) {
		struct hook *then = h->then;

		ev_timer_stop(h->vm->t->loop, &h->limit);
		ev_timer_stop(h->vm->t->loop, &h->again);
		mover_free(h->mover);
		close_output(h);
		if (h->vm->hook == h)
			h->vm->hook = NULL;
		free(h);
		h = then;
	}
}

static void after_next(struct hook *h, bool ok);
static void start_waiting(struct hook *h);

static void hook_ended(struct mover *m, int status, const char *tail, void *arg)
{
	struct hook *h = arg;
	struct tp_error err = TP_ERROR_INIT;
	bool ok;

	(void)m, (void)tail;
	ev_timer_stop(h->vm->t->loop, &h->limit);
	mover_free(TP_STEAL(h->mover));
	ok = hook_succeeded(h, status, &err);
	close_output(h);
	if (!ok)
		tp_warn("%s", err.text);
	if (!h->op) {
		after_next(h, ok);
		return;
	}
	struct vm *vm = h->vm;
	struct op *op = h->op;
	uint64_t token = h->token;
	struct hook *then = TP_STEAL(h->then);

	hook_free(h);
	if (then)
		start_waiting(then);
	vm_answer(vm, op, token, "hook", NULL, ok ? NULL : &err);
}

static void hook_message(struct mover *m, const char *name, const json_t *value, void *arg)
{
	struct hook *h = arg;

	(void)m;
	if (strcmp(name, "error") != 0)
		return;
	h->refused = true;
	tp_fail(&h->error, TP_ESYS, "%s", tp_json_str(value, "desc") ? tp_json_str(value, "desc") : "failed");
}

static const struct mover_ops hook_ops = { .message = hook_message, .ended = hook_ended };

static void limit_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct hook *h = w->data;

	(void)loop, (void)events;
	h->timed_out = true;
	mover_kill(h->mover, SIGKILL);
}

/* False: could not be run (err), or *absent: the VM has no such hook. */
static bool hook_spawn(struct hook *h, bool *absent, struct tp_error *err)
{
	int pipefd[2];
	struct launch l;

	*absent = false;
	if (pipe2(pipefd, O_CLOEXEC | O_NONBLOCK) < 0)
		return tp_fail_sys(err, errno, "pipe");
	h->output = pipefd[0];
	/* The hook's end blocks as usual. */
	fcntl(pipefd[1], F_SETFL, fcntl(pipefd[1], F_GETFL) & ~O_NONBLOCK);
	if (!launch_hook(h->vm, h->name, h->reason, &pipefd[1], &l, err))
		return false;
	if (!l.request) {
		*absent = true;
		return false;
	}
	h->refused = h->timed_out = false;
	h->len = 0;
	h->mover = mover_start(&h->vm->t->mover, TP_STEAL(l.request), l.fds, l.nfds, &hook_ops, h, err);
	l.nfds = 0;
	launch_free(&l);
	if (!h->mover)
		return false;
	ev_timer_set(&h->limit, launch_hook_timeout(h->vm), 0.);
	ev_timer_start(h->vm->t->loop, &h->limit);
	ev_io_set(&h->reader, h->output, EV_READ);
	ev_io_start(h->vm->t->loop, &h->reader);
	return true;
}

static void again_cb(struct ev_loop *loop, struct ev_timer *w, int events);

static struct hook *hook_new(struct vm *vm, const char *name, const char *reason)
{
	struct hook *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->vm = vm;
	h->output = -1;
	h->backoff = BACKOFF_FIRST;
	snprintf(h->name, sizeof(h->name), "%s", name);
	snprintf(h->reason, sizeof(h->reason), "%s", reason ? reason : "");
	h->limit.data = h->again.data = h->reader.data = h;
	ev_init(&h->reader, output_cb);
	ev_init(&h->limit, limit_cb);
	ev_init(&h->again, again_cb);
	return h;
}

uint64_t vm_hook_run(struct vm *vm, struct op *op, const char *name, const char *reason, struct tp_error *err)
{
	struct hook *h = hook_new(vm, name, reason);
	uint64_t token = ops_token(vm->t);
	bool absent;

	if (!h)
		return tp_fail_nomem(err);
	h->op = op;
	h->token = token;
	if (vm->hook && vm->hook->mover) {
		/* One at a time. That of a step which was given up is not waited for long. */
		if (vm->hook->op)
			mover_kill(vm->hook->mover, SIGKILL);
		hook_free(vm->hook->then);
		vm->hook->then = h;
		return token;
	}
	if (hook_spawn(h, &absent, err)) {
		hook_free(vm->hook);	/* an operation's hook ends an old one's retries */
		vm->hook = h;
		return token;
	}
	hook_free(h);
	if (!absent)
		return 0;
	defer_answer(vm, op, token, "hook", NULL, NULL);
	return token;
}

/* The one before has ended. */
static void start_waiting(struct hook *h)
{
	struct vm *vm = h->vm;
	struct op *op = h->op;
	uint64_t token = h->token;
	struct tp_error err = TP_ERROR_INIT;
	bool absent;

	vm->hook = h;
	if (vm->op == op && hook_spawn(h, &absent, &err))
		return;
	hook_free(h);
	vm_answer(vm, op, token, "hook", NULL, err.code == TP_OK ? NULL : &err);
}

/* --- after QEMU's end --- */

static void after_start(struct hook *h)
{
	struct tp_error err = TP_ERROR_INIT;
	bool absent;

	if (hook_spawn(h, &absent, &err))
		return;
	if (!absent)
		tp_warn("%s", err.text);
	after_next(h, absent);
}

static void again_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct hook *h = w->data;

	(void)loop, (void)events;
	/* Started again meanwhile: due again at its next end. */
	if (h->vm->qemu)
		hook_free(h);
	else
		after_start(h);
}

/* after-run is run once, release until it exits 0. */
static void after_next(struct hook *h, bool ok)
{
	struct vm *vm = h->vm;
	struct hook *then;

	close_output(h);
	if (strcmp(h->name, "after-run") == 0) {
		snprintf(h->name, sizeof(h->name), "release");
		after_start(h);
		return;
	}
	if (!ok && !h->then) {
		ev_timer_set(&h->again, h->backoff, 0.);
		ev_timer_start(vm->t->loop, &h->again);
		h->backoff = h->backoff * 2 > BACKOFF_MAX ? BACKOFF_MAX : h->backoff * 2;
		return;
	}
	then = TP_STEAL(h->then);
	hook_free(h);
	if (ok) {
		vm_rest_set(vm, "release-due", NULL);
		vm_rest_save(vm);
	}
	if (then)
		start_waiting(then);
	else
		ops_next(vm);
}

static void after_begin(struct vm *vm, const char *first)
{
	const char *reason = tp_json_str(vm->rest, "reason");
	struct hook *h = hook_new(vm, first, reason);

	/* A before-run that QEMU did not live to see the end of. */
	if (vm->hook && vm->hook->mover)
		mover_kill(vm->hook->mover, SIGKILL);
	hook_free(vm->hook);
	vm->hook = h;
	if (h)
		after_start(h);
}

static bool has_hook(const struct vm *vm, const char *name)
{
	return json_object_get(tp_json_path(vm->spec, "launch.hooks"), name) != NULL;
}

void vm_hooks_after(struct vm *vm)
{
	bool ran = tp_json_bool(vm->rest, "guest-ran", false);

	vm_rest_set(vm, "guest-ran", NULL);	/* the next one has not */
	if (!has_hook(vm, "after-run") && !has_hook(vm, "release"))
		return;
	/* At once: the engine may end while after-run runs. */
	vm_rest_set(vm, "release-due", json_true());
	vm_rest_save(vm);
	after_begin(vm, ran ? "after-run" : "release");
}

void vm_hooks_resume(struct vm *vm)
{
	if (tp_json_bool(vm->rest, "release-due", false) && !vm->qemu)
		after_begin(vm, "release");
}

void vm_hooks_drop(struct vm *vm)
{
	hook_free(vm->hook);
}
