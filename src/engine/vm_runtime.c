/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vm_runtime.c - QEMU's process: launched, adopted, watched, ended
 *
 * Theory of operation. The mover that sets QEMU up becomes it by exec, so its
 * pid is known from the spawn on and the durable rest names it before QEMU
 * exists. The end is seen by the pidfd; as the last events (SHUTDOWN with its
 * reason) may still stand in the monitor's socket, they are read to EOF first.
 * Then vm_ended() decides what the end means: QEMU's exit status is 0 in nearly
 * all cases and tells nothing.
 */
#include "engine/vm_runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/defer.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/recover.h"
#include "engine/vm_hooks.h"
#include "engine/vm_image.h"
#include "engine/vm_monitor.h"

TP_LOG_SOURCE("engine.vm");

#define EOF_WAIT 1.0		/* seconds for the monitor's EOF after the process has ended */
#define LOG_MAX (8 << 20)	/* bytes of qemu.log; then it begins anew */
#define LOG_TAIL 2048u

void vm_answer(struct vm *vm, struct op *op, uint64_t token, const char *action, const json_t *data,
	       const struct tp_error *err)
{
	tp_autojson json_t *tail = NULL;
	struct op_event ev = { .type = OP_VM, .token = token, .action = action, .data = data, .err = err };

	if (vm->op != op || !op)
		return;
	if (err && strcmp(tp_error_class(err), "QemuExited") == 0) {
		tail = vm_exit_data(vm);
		ev.error_data = tail;
	}
	op_deliver(op, &ev);
}

/* --- the end --- */

json_t *vm_log_tail(const struct vm *vm, size_t lines)
{
	tp_autoclose int fd = openat(vm->dirfd, "qemu.log", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char text[LOG_TAIL + 1];
	struct stat st;
	ssize_t n;
	char *from;

	if (fd < 0 || fstat(fd, &st) < 0)
		return json_string("");
	n = pread(fd, text, LOG_TAIL, st.st_size > (off_t)LOG_TAIL ? st.st_size - LOG_TAIL : 0);
	n = n < 0 ? 0 : n;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	for (from = text + n; from > text; from--)
		if (from[-1] == '\n' && --lines == 0)
			break;
	for (char *p = text; *p; p++)
		*p = (unsigned char)*p < 0x20 && *p != '\n' ? ' ' : (unsigned char)*p > 0x7e ? '?' : *p;
	return json_string(from);
}

void vm_log_trim(struct vm *vm)
{
	tp_autoclose int fd = openat(vm->dirfd, "qemu.log", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	/* QEMU appends: emptied under its feet the file goes on from its beginning. */
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > LOG_MAX && ftruncate(fd, 0) < 0)
		tp_warn("vm=%s cannot shorten qemu.log: %s", vm->name, strerror(errno));
}

json_t *vm_exit_data(const struct vm *vm)
{
	json_t *last = json_object_get(vm->rest, "last-exit");

	return last ? json_deep_copy(last) : json_pack("{s:o}", "log-tail", vm_log_tail(vm, 8));
}

static const char *end_reason(const struct vm_qemu *q, int status, const char **rest)
{
	const char *why = q->shutdown_reason;

	*rest = "shutoff";
	if (q->dying || strcmp(why, "host-qmp-quit") == 0 || strcmp(why, "host-signal") == 0)
		return "quit";
	if (q->panicked || strcmp(why, "guest-panic") == 0)
		return "guest-panicked";
	if (q->shutdown_guest)
		return "guest-shutdown";
	*rest = "crashed";
	return status != -1 && WIFSIGNALED(status) ? "signal" : "exited";
}

static void record_exit(struct vm_qemu *q, int status, const char *reason)
{
	char at[TP_TIME_TEXT];
	json_t *last = json_pack("{s:s, s:s, s:s, s:o}", "reason", reason, "at",
				 tp_time_format(tp_now_us(), at), "shutdown", q->shutdown_reason,
				 "log-tail", vm_log_tail(q->vm, 8));

	if (status != -1 && WIFEXITED(status))
		tp_json_set(last, "code", json_integer(WEXITSTATUS(status)));
	if (status != -1 && WIFSIGNALED(status))
		tp_json_set(last, "signal", json_integer(WTERMSIG(status)));
	vm_rest_set(q->vm, "last-exit", last);
}

static void answer_gone(struct vm_qemu *q, struct vm *vm)
{
	size_t i;
	json_t *item;

	json_array_foreach(q->kill_waiters, i, item)
		vm_answer(vm, q->waiting, (uint64_t)tp_json_int(item, "token", 0), tp_json_str(item, "action"),
			  NULL, NULL);
}

static void drop_sockets(const struct vm *vm)
{
	static const char *const names[] = { "qmp", "agent", "console" };
	char path[128];

	for (size_t i = 0; i < TP_N(names); i++)
		unlink(launch_socket(vm, names[i], path, sizeof(path)));
}

/* The last line of QEMU's own; what follows such a line explains it and alone says nothing. */
static json_t *last_words(const struct vm *vm)
{
	tp_autojson json_t *tail = vm_log_tail(vm, 8);
	const char *text = json_string_value(tail), *line = NULL;

	for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (strncmp(p, "qemu", 4) == 0 || !line)
			line = p;
	return json_stringn(line ? line : "", line ? strcspn(line, "\n") : 0);
}

/* Everything of it was heard: what the VM is from here on. */
static void vm_ended(struct vm_qemu *q, int status)
{
	struct vm *vm = q->vm;
	struct op *waiting = q->waiting;
	uint64_t launch = q->launch_token, connect = q->connect_token;
	const char *rest, *reason = end_reason(q, status, &rest);
	struct tp_error why = TP_ERROR_INIT;

	tp_info("vm=%s pid=%d ended: %s/%s", vm->name, (int)q->proc.pid, rest, reason);
	record_exit(q, status, reason);
	vm->qemu = NULL;
	drop_sockets(vm);
	vm_rest_set(vm, "qemu", NULL);
	prefetch_over(vm);
	if (strcmp(tp_json_str(vm->rest, "rest"), "running") == 0 && !vm_image_give_back(vm, true))
		vm_rest_text(vm, rest, reason);
	vm_rest_save(vm);
	tp_autojson json_t *tail = last_words(vm);
	const char *words = json_string_value(tail);

	tp_fail_class(&why, TP_EQMP, "QemuExited", "QEMU of VM %s has ended%s%s", vm->name,
		      words && *words ? ": " : "", words ? words : "");
	if (launch)
		vm_answer(vm, waiting, launch, "launch", NULL, &why);
	if (connect)
		vm_answer(vm, waiting, connect, "connect", NULL, &why);
	vm_monitor_close(q);
	if (vm->op) {
		tp_autojson json_t *data = vm_exit_data(vm);

		op_lost(vm->op, OP_RES_QEMU, &why, data);
	}
	answer_gone(q, vm);
	vm_qemu_free(q);
	vm_hooks_after(vm);
	recover_settled(vm);
	vm_refresh(vm);
}

void vm_qemu_free(struct vm_qemu *q)
{
	if (!q)
		return;
	ev_io_stop(q->vm->t->loop, &q->ended);
	ev_timer_stop(q->vm->t->loop, &q->retry);
	ev_timer_stop(q->vm->t->loop, &q->eof_wait);
	mover_free(q->mover);
	qmp_client_free(TP_STEAL(q->qmp));
	qga_client_free(TP_STEAL(q->qga));
	tp_close(&q->pidfd);
	json_decref(q->kill_waiters);
	free(q);
}

void vm_process_over(struct vm_qemu *q)
{
	if (!q->exited || q->over)
		return;
	q->over = true;
	ev_timer_stop(q->vm->t->loop, &q->eof_wait);
	vm_ended(q, q->status_code);
}

static void eof_wait_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	(void)loop, (void)events;
	vm_process_over(w->data);
}

static void process_ended(struct vm_qemu *q, int status)
{
	q->exited = true;
	q->status_code = status;
	if (!q->qmp) {
		vm_process_over(q);
		return;
	}
	/* closed() of the monitor comes next, or this timer. */
	ev_timer_set(&q->eof_wait, EOF_WAIT, 0.);
	ev_timer_start(q->vm->t->loop, &q->eof_wait);
}

static void ended_cb(struct ev_loop *loop, struct ev_io *w, int events)
{
	struct vm_qemu *q = w->data;
	int status = -1;

	(void)events;
	if (!tp_pidfd_wait(q->pidfd, &status))
		return;
	ev_io_stop(loop, w);
	process_ended(q, status);
}

static struct vm_qemu *qemu_new(struct vm *vm)
{
	struct vm_qemu *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->vm = vm;
	q->pidfd = -1;
	q->kill_waiters = json_array();
	q->ended.data = q->retry.data = q->eof_wait.data = q;
	ev_init(&q->ended, ended_cb);
	ev_init(&q->eof_wait, eof_wait_cb);
	vm_monitor_init(q);
	vm->qemu = q;
	return q;
}

static void watch(struct vm_qemu *q)
{
	ev_io_set(&q->ended, q->pidfd, EV_READ);
	ev_io_start(q->vm->t->loop, &q->ended);
}

/* --- launch --- */

static void launch_message(struct mover *m, const char *name, const json_t *value, void *arg)
{
	struct vm_qemu *q = arg;
	struct tp_error err = TP_ERROR_INIT;
	const char *class_ = tp_json_str(value, "class");

	(void)m;
	if (strcmp(name, "refused") == 0 && tp_json_str(value, "desc"))
		snprintf(q->refused, sizeof(q->refused), "%s", tp_json_str(value, "desc"));
	if (strcmp(name, "error") != 0 || !q->launch_token)
		return;
	q->dying = true;
	tp_fail_class(&err, TP_ESYS, class_ ? class_ : "IOError", "cannot start QEMU of VM %s: %s", q->vm->name,
		      tp_json_str(value, "desc") ? tp_json_str(value, "desc") : "unknown");
	vm_answer(q->vm, q->waiting, q->launch_token, "launch", NULL, &err);
	q->launch_token = 0;
}

static void launch_execed(struct mover *m, void *arg)
{
	struct vm_qemu *q = arg;
	tp_autojson json_t *data = tp_proc_json(&q->proc);
	uint64_t token = q->launch_token;

	if (q->refused[0])
		tp_json_set(data, "refused", json_string(q->refused));
	q->pidfd = mover_steal_pidfd(m);
	mover_free(TP_STEAL(q->mover));
	watch(q);
	q->launch_token = 0;
	tp_info("vm=%s pid=%d QEMU started", q->vm->name, (int)q->proc.pid);
	vm_answer(q->vm, q->waiting, token, "launch", data, NULL);
}

static void launch_ended(struct mover *m, int status, const char *tail, void *arg)
{
	struct vm_qemu *q = arg;

	(void)tail, (void)m;
	process_ended(q, status);
}

static const struct mover_ops launch_ops = {
	.message = launch_message, .execed = launch_execed, .ended = launch_ended,
};

static uint64_t act_launch(struct vm *vm, struct op *op, const json_t *args, struct tp_error *err)
{
	struct launch l;
	struct launch_options o = { .incoming = tp_json_bool(args, "incoming", false),
				    .uffd = tp_json_bool(args, "uffd", false),
				    .manifest = json_object_get(args, "image") };
	struct vm_qemu *q;

	if (vm->qemu) {
		tp_fail_class(err, TP_ESTATE, "InvalidState", "VM %s has a QEMU already (pid %d)", vm->name,
			      (int)vm->qemu->proc.pid);
		return 0;
	}
	if (!launch_prepare(vm, &o, &l, err))
		return 0;
	q = qemu_new(vm);
	if (q) {
		q->mover = mover_start(&vm->t->mover, TP_STEAL(l.request), l.fds, l.nfds, &launch_ops, q, err);
		l.nfds = 0;
	}
	launch_free(&l);
	if (!q || !q->mover) {
		vm->qemu = NULL;
		vm_qemu_free(q);
		tp_fail_nomem(err);
		return 0;
	}
	tp_proc_identify(mover_pid(q->mover), &q->proc, NULL);
	vm_rest_set(vm, "qemu", tp_proc_json(&q->proc));
	vm_rest_set(vm, "shutdown", NULL);
	vm_rest_save(vm);
	q->waiting = op;
	q->launch_token = ops_token(vm->t);
	return q->launch_token;
}

/* --- other actions --- */

static uint64_t act_wait_gone(struct vm *vm, struct op *op, const char *action, bool kill)
{
	uint64_t token = ops_token(vm->t);

	if (!vm->qemu) {
		defer_answer(vm, op, token, action, NULL, NULL);
		return token;
	}
	vm->qemu->waiting = op;
	json_array_append_new(vm->qemu->kill_waiters,
			      json_pack("{s:I, s:s}", "token", (json_int_t)token, "action", action));
	if (kill)
		vm_qemu_kill(vm);
	return token;
}

static uint64_t act_connect(struct vm *vm, struct op *op, struct tp_error *err)
{
	struct vm_qemu *q = vm->qemu;

	if (!q) {
		tp_fail_class(err, TP_EQMP, "QemuExited", "VM %s has no QEMU", vm->name);
		return 0;
	}
	q->waiting = op;
	if (q->ready) {
		uint64_t token = ops_token(vm->t);

		defer_answer(vm, op, token, "connect", NULL, NULL);
		return token;
	}
	q->connect_token = ops_token(vm->t);
	if (!q->qmp && !vm_monitor_connect(q, NULL))
		vm_monitor_retry(q);	/* refused: it has ended and its end says why, or it is about to accept */
	return q->connect_token;
}

uint64_t vm_action(struct vm *vm, struct op *op, const char *action, json_t *args_owned, struct tp_error *err)
{
	tp_autojson json_t *args = args_owned;

	if (strcmp(action, "launch") == 0)
		return act_launch(vm, op, args, err);
	if (strcmp(action, "connect") == 0)
		return act_connect(vm, op, err);
	if (strcmp(action, "hook") == 0)
		return vm_hook_run(vm, op, tp_json_str(args, "name"), tp_json_str(args, "reason"), err);
	return act_wait_gone(vm, op, strcmp(action, "kill") == 0 ? "kill" : "gone",
			     strcmp(action, "kill") == 0);
}

void vm_qemu_kill(struct vm *vm)
{
	struct vm_qemu *q = vm->qemu;

	if (!q)
		return;
	q->dying = true;
	if (q->mover)
		mover_kill(q->mover, SIGKILL);
	else if (!tp_pidfd_kill(q->pidfd, SIGKILL) && errno != ESRCH)
		tp_err("vm=%s cannot kill pid %d: %s", vm->name, (int)q->proc.pid, strerror(errno));
}

void vm_quits(struct vm *vm)
{
	if (vm->qemu)
		vm->qemu->dying = true;
}

void vm_qemu_forget(struct vm *vm)
{
	prefetch_forget(vm);
	vm_qemu_free(TP_STEAL(vm->qemu));
}

/* --- after a restart of the engine --- */

bool vm_adopt(struct vm *vm, const struct tp_proc *proc)
{
	int pidfd = tp_proc_open(proc);
	struct vm_qemu *q;

	if (pidfd < 0)
		return false;
	q = qemu_new(vm);
	if (!q) {
		tp_close(&pidfd);
		errno = ENOMEM;
		return false;
	}
	q->adopted = true;
	q->proc = *proc;
	q->pidfd = pidfd;
	watch(q);
	tp_info("vm=%s pid=%d taken up", vm->name, (int)proc->pid);
	/* The timer goes on until its monitor answers: connected is not yet alive. */
	vm_monitor_connect(q, NULL);
	vm_monitor_retry(q);
	return true;
}

/* 1: this VM's QEMU, 0: not, -1: errno, nothing can be said. */
static int has_mark(pid_t pid, const char *needle)
{
	struct tp_error why = TP_ERROR_INIT;
	char path[48];
	size_t n = 0;
	tp_autofree char *text = NULL;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	text = tp_read_path(path, 1 << 20, &n, &why);
	if (!text && (why.sys == EMFILE || why.sys == ENFILE || why.sys == ENOMEM)) {
		errno = why.sys;
		return -1;
	}
	return text && memmem(text, n, needle, strlen(needle) + 1);
}

bool vm_find_stray(const struct vm *vm, struct tp_proc *proc)
{
	DIR *dir = opendir("/proc");
	struct dirent *de;
	char needle[TP_NAME_MAX + 128];
	int found = 0, sys;

	if (!dir)
		return false;
	snprintf(needle, sizeof(needle), "TORPOR_QEMU=%s:%s", state_dir_instance(vm->t->state), vm->uid);
	while (found == 0 && (de = readdir(dir))) {
		pid_t pid = (pid_t)strtol(de->d_name, NULL, 10);

		if (pid > 1)
			found = has_mark(pid, needle);
		if (found > 0 && !tp_proc_identify(pid, proc, NULL))
			found = 0;
	}
	sys = found < 0 ? errno : ESRCH;
	closedir(dir);
	errno = sys;
	return found > 0;
}
