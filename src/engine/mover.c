/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover.c - The engine's side of torpor-mover: one process a job
 *
 * Theory of operation. A mover is watched through two descriptors: its control socket (messages, end
 * of file) and its pidfd (the end). The end of the process is told last and once: when the pidfd
 * becomes readable, what is left in the socket is read first. End of file on the socket before that
 * means, for launch, hook and tool, that the program was executed; for the other jobs it says
 * nothing, the end follows.
 *
 * Its stderr is a memory file of fixed size which the process cannot make larger; the write position
 * is shared, so it tells how much was written.
 *
 * Callbacks may free the mover: while one runs, freeing only marks it. A mover that is freed while
 * its process lives becomes an orphan: it is watched on, silently, to be reaped.
 */
#include "engine/mover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_sock.h"
#include "base/tp_text.h"
#include "migration/mover_proto.h"

TP_LOG_SOURCE("engine.mover");

#define STDERR_ROOM (64u << 10)
#define TAIL_MAX 1500		/* bytes of stderr that are quoted */
#define DEPTH_MAX 16
#define PROGRAM "torpor-mover"

struct mover_orphans {
	struct mover *first;
};

struct mover {
	struct ev_loop *loop;
	ev_io control, end;
	int sock, pidfd, stderr_fd;
	pid_t pid;
	const struct mover_ops *ops;
	void *arg;
	char job[24], vm[72];
	bool execs;		/* launch, hook, tool: no hello, end of file means exec */
	bool greeted, final, told_exec, ended;
	unsigned depth;		/* callbacks that run */
	bool freed;
	struct mover_orphans *orphans;
	struct mover *next;	/* among the orphans */
	char said[160];		/* why the engine killed it */
	char buf[MOVER_MESSAGE_MAX + 1];
};

/* --- the program --- */

static int open_program(const char *path, struct tp_error *err)
{
	tp_autoclose int fd = open(path, O_PATH | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return tp_fail_sys(err, errno, "open the mover %s", path), -1;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
		return tp_fail(err, TP_EARG, "the mover %s is not an executable file", path), -1;
	return TP_STEAL_FD(fd);
}

/* The folder of the running program, unless others could put a program there. */
static bool own_folder(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	struct stat st;
	char *slash;

	if (n <= 0)
		return false;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return stat(path[0] ? path : "/", &st) == 0 && !(st.st_mode & 022) &&
	       (st.st_uid == 0 || st.st_uid == geteuid());
}

bool mover_context_init(struct mover_context *ctx, struct ev_loop *loop, const char *path_or_null,
			struct tp_error *err)
{
	char path[PATH_MAX + sizeof("/" PROGRAM)], folder[PATH_MAX];

	*ctx = (struct mover_context){ .loop = loop, .exe_fd = -1 };
	if (path_or_null)
		snprintf(path, sizeof(path), "%s", path_or_null);
	else if (own_folder(folder, sizeof(folder)))
		snprintf(path, sizeof(path), "%s/" PROGRAM, folder);
	else
		path[0] = '\0';
	if (!path_or_null && (!path[0] || access(path, X_OK) != 0))
		snprintf(path, sizeof(path), "%s/" PROGRAM, TP_LIBEXECDIR);
	ctx->exe_fd = open_program(path, err);
	if (ctx->exe_fd < 0)
		return false;
	snprintf(ctx->path, sizeof(ctx->path), "%.*s", (int)sizeof(ctx->path) - 1, path);
	ctx->orphans = calloc(1, sizeof(*ctx->orphans));
	if (ctx->orphans)
		return true;
	tp_close(&ctx->exe_fd);
	return tp_fail_nomem(err);
}

/* --- ends --- */

static void stop_control(struct mover *m)
{
	ev_io_stop(m->loop, &m->control);
	tp_close(&m->sock);
}

static void destroy(struct mover *m)
{
	stop_control(m);
	ev_io_stop(m->loop, &m->end);
	tp_close(&m->pidfd);
	tp_close(&m->stderr_fd);
	free(m);
}

static void reap_orphan(struct ev_loop *loop, ev_io *watcher, int revents)
{
	struct mover *m = watcher->data, **link = &m->orphans->first;
	int status;

	(void)revents;
	if (!tp_pidfd_wait(m->pidfd, &status))
		return;
	while (*link != m)
		link = &(*link)->next;
	*link = m->next;
	ev_ref(loop);
	destroy(m);
}

/* A loop that only waits for orphans may end. */
static void orphan(struct mover *m)
{
	stop_control(m);
	ev_io_stop(m->loop, &m->end);
	ev_set_cb(&m->end, reap_orphan);
	ev_io_start(m->loop, &m->end);
	ev_unref(m->loop);
	m->next = m->orphans->first;
	m->orphans->first = m;
}

static void give_up(struct mover *m)
{
	int status;

	if (m->ended || m->pidfd < 0 || tp_pidfd_wait(m->pidfd, &status))
		destroy(m);
	else
		orphan(m);
}

void mover_context_close(struct mover_context *ctx)
{
	struct mover *m, *next;

	tp_close(&ctx->exe_fd);
	for (m = ctx->orphans ? ctx->orphans->first : NULL; m; m = next) {
		next = m->next;
		ev_ref(ctx->loop);
		destroy(m);
	}
	free(ctx->orphans);
	ctx->orphans = NULL;
}

void mover_free(struct mover *m)
{
	if (!m)
		return;
	if (m->depth > 0)
		m->freed = true;
	else
		give_up(m);
}

/* False: the owner has freed the mover in the callback; it is gone. */
static bool leave(struct mover *m)
{
	if (--m->depth > 0 || !m->freed)
		return !m->freed;
	give_up(m);
	return false;
}

/* --- what it says --- */

static bool tell(struct mover *m, const char *name, const json_t *value)
{
	if (strcmp(name, "done") == 0 || strcmp(name, "error") == 0)
		m->final = true;
	m->depth++;
	m->ops->message(m, name, value, m->arg);
	return leave(m);
}

/* It does not keep to the protocol: its end is told as that of a crash. */
static bool reject(struct mover *m, const char *why)
{
	snprintf(m->said, sizeof(m->said), "%s", why);
	tp_warn("vm=%s mover %s (pid %jd): %s", m->vm, m->job, (intmax_t)m->pid, why);
	tp_pidfd_kill(m->pidfd, SIGKILL);
	stop_control(m);
	return true;
}

static bool take_message(struct mover *m, size_t n)
{
	tp_autojson json_t *message = tp_json_parse(m->buf, n, DEPTH_MAX, NULL);
	void *first = json_object_iter(message);
	const char *name = first ? json_object_iter_key(first) : NULL;
	json_t *value = first ? json_object_iter_value(first) : NULL;

	if (!name)
		return reject(m, "it sent what is no message");
	if (m->final)
		return reject(m, "it sent a message after its last one");
	if (!m->execs && !m->greeted && strcmp(name, "error") != 0) {
		if (strcmp(name, "hello") != 0 ||
		    tp_json_int(value, "protocol", 0) != MOVER_PROTOCOL)
			return reject(m, "it speaks another protocol (is it of another version?)");
		m->greeted = true;
	}
	return tell(m, name, value);
}

static bool control_over(struct mover *m)
{
	stop_control(m);
	if (!m->execs || m->final || m->told_exec || !m->ops->execed)
		return true;
	m->told_exec = true;
	m->depth++;
	m->ops->execed(m, m->arg);
	return leave(m);
}

/* Reads what is there. False: the mover is gone. */
static bool read_control(struct mover *m)
{
	while (m->sock >= 0) {
		size_t nfds = 0;
		ssize_t n = tp_recv_fds(m->sock, m->buf, MOVER_MESSAGE_MAX, NULL, &nfds);
		bool here;

		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return true;
		if (n < 0 && errno == EMSGSIZE)
			here = reject(m, "it sent a message that is too long");
		else if (n <= 0)
			here = control_over(m);
		else
			here = take_message(m, (size_t)n);
		if (!here)
			return false;
	}
	return true;
}

static void on_control(struct ev_loop *loop, ev_io *watcher, int revents)
{
	(void)loop;
	(void)revents;
	read_control(watcher->data);
}

static void read_tail(const struct mover *m, char *tail, size_t size)
{
	off_t end = m->stderr_fd >= 0 ? lseek(m->stderr_fd, 0, SEEK_CUR) : 0;
	off_t from = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
	ssize_t n = end > 0 ? pread(m->stderr_fd, tail, (size_t)(end - from), from) : 0;

	tail[n > 0 ? n : 0] = '\0';
	tp_text_clean(tail);
}

static void on_end(struct ev_loop *loop, ev_io *watcher, int revents)
{
	struct mover *m = watcher->data;
	char tail[TAIL_MAX + 1], text[TAIL_MAX + sizeof(m->said) + 4];
	int status;

	(void)revents;
	if (!read_control(m) || m->pidfd < 0 || !tp_pidfd_wait(m->pidfd, &status))
		return;
	ev_io_stop(loop, &m->end);
	stop_control(m);
	m->ended = true;
	read_tail(m, tail, sizeof(tail));
	snprintf(text, sizeof(text), "%s%s%s", m->said, m->said[0] && tail[0] ? ": " : "", tail);
	tp_debug("vm=%s mover %s (pid %jd) ended: %d", m->vm, m->job, (intmax_t)m->pid, status);
	m->depth++;
	m->ops->ended(m, status, text, m->arg);
	leave(m);
}

/* --- starting --- */

static bool send_message(int sock, const json_t *message, const int *fds, size_t nfds,
			 struct tp_error *err)
{
	tp_autofree char *text = json_dumps(message, JSON_COMPACT);
	size_t n = text ? strlen(text) : 0;

	if (!text)
		return tp_fail_nomem(err);
	if (n > MOVER_MESSAGE_MAX)
		return tp_fail(err, TP_ELIMIT, "a message to the mover has %zu bytes, at most %d are possible",
			       n, MOVER_MESSAGE_MAX);
	if (tp_send_fds(sock, text, n, fds, nfds) < 0)
		return tp_fail_sys(err, errno, "send to the mover");
	return true;
}

/* A file in memory that takes STDERR_ROOM bytes and no more. */
static int make_stderr(struct tp_error *err)
{
	tp_autoclose int fd = memfd_create("mover-stderr", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, STDERR_ROOM) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
		return tp_fail_sys(err, errno, "make a file for the mover's messages"), -1;
	return TP_STEAL_FD(fd);
}

static struct mover *make(const struct mover_context *ctx, const json_t *request,
			  const struct mover_ops *ops, void *arg)
{
	const char *job = tp_json_str(request, "job"), *vm = tp_json_str(request, "vm");
	struct mover *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->loop = ctx->loop;
	m->orphans = ctx->orphans;
	m->sock = m->pidfd = m->stderr_fd = -1;
	m->ops = ops;
	m->arg = arg;
	snprintf(m->job, sizeof(m->job), "%s", job ? job : "");
	snprintf(m->vm, sizeof(m->vm), "%s", vm ? vm : "-");
	m->execs = strcmp(m->job, "launch") == 0 || strcmp(m->job, "hook") == 0 ||
		   strcmp(m->job, "tool") == 0;
	return m;
}

static void watch(struct mover *m)
{
	ev_io_init(&m->control, on_control, m->sock, EV_READ);
	m->control.data = m;
	ev_io_start(m->loop, &m->control);
	ev_io_init(&m->end, on_end, m->pidfd, EV_READ);
	m->end.data = m;
	ev_io_start(m->loop, &m->end);
}

/* The request waits in the socket before the process exists: a process without one cannot be. */
static bool spawn(const struct mover_context *ctx, struct mover *m, const json_t *request,
		  const int *fds, size_t nfds, struct tp_error *err)
{
	char name[] = PROGRAM;
	char *argv[] = { name, m->job, NULL };
	tp_autoclose int theirs = -1;
	int pair[2];

	if (nfds > TP_MAX_FDS)
		return tp_fail(err, TP_ELIMIT, "too many descriptors for the mover");
	if (!tp_socketpair(SOCK_SEQPACKET, pair, err))
		return false;
	m->sock = pair[0];
	theirs = pair[1];
	if (!tp_set_nonblock(m->sock, true))
		return tp_fail_sys(err, errno, "prepare the mover's socket");
	m->stderr_fd = make_stderr(err);
	if (m->stderr_fd < 0 || !send_message(m->sock, request, fds, nfds, err))
		return false;
	m->pidfd = tp_spawn(ctx->exe_fd, argv, theirs, m->stderr_fd, &m->pid, err);
	return m->pidfd >= 0;
}

static void close_all(int *fds, size_t nfds)
{
	for (size_t i = 0; i < nfds; i++)
		tp_close(&fds[i]);
}

struct mover *mover_start(const struct mover_context *ctx, json_t *request_owned, int *fds, size_t nfds,
			  const struct mover_ops *ops, void *arg, struct tp_error *err)
{
	tp_autojson json_t *request = request_owned;
	struct mover *m = make(ctx, request, ops, arg);
	bool ok;

	if (!m) {
		close_all(fds, nfds);
		tp_fail_nomem(err);
		return NULL;
	}
	if (!json_object_get(request, "protocol"))
		tp_json_set(request, "protocol", json_integer(MOVER_PROTOCOL));
	ok = spawn(ctx, m, request, fds, nfds, err);
	close_all(fds, nfds);
	if (ok) {
		watch(m);
		tp_debug("vm=%s mover %s: pid %jd", m->vm, m->job, (intmax_t)m->pid);
		return m;
	}
	tp_prefix(err, "start the mover (%s)", ctx->path);
	tp_close(&m->sock);
	tp_close(&m->stderr_fd);
	free(m);
	return NULL;
}

struct mover *mover_adopt(const struct mover_context *ctx, const struct tp_proc *proc, const char *socket_path,
			  const char *vm, const struct mover_ops *ops, void *arg, struct tp_error *err)
{
	tp_autojson json_t *request = json_pack("{s:s, s:s}", "job", "page-server", "vm", vm);
	struct mover *m = make(ctx, request, ops, arg);

	if (!m) {
		tp_fail_nomem(err);
		return NULL;
	}
	m->pid = proc->pid;
	m->pidfd = tp_proc_open(proc);
	if (m->pidfd < 0)
		tp_fail_sys(err, errno, "look at the page server (pid %d)", (int)proc->pid);
	else
		m->sock = tp_connect_packets(socket_path, err);
	if (m->sock >= 0) {
		watch(m);
		return m;
	}
	tp_close(&m->pidfd);
	free(m);
	return NULL;
}

static bool send_with(struct mover *m, json_t *message_owned, const int *fd, struct tp_error *err)
{
	tp_autojson json_t *message = message_owned;

	if (m->sock < 0)
		return tp_fail(err, TP_ESTATE, "the mover's connection has ended");
	return send_message(m->sock, message, fd, fd ? 1 : 0, err);
}

bool mover_send(struct mover *m, json_t *message_owned, struct tp_error *err)
{
	return send_with(m, message_owned, NULL, err);
}

bool mover_send_fd(struct mover *m, json_t *message_owned, int fd, struct tp_error *err)
{
	return send_with(m, message_owned, &fd, err);
}

void mover_hand_over(struct mover *m, const struct mover_ops *ops, void *arg)
{
	m->ops = ops;
	m->arg = arg;
}

void mover_kill(struct mover *m, int sig)
{
	if (m->pidfd >= 0 && !m->ended)
		tp_pidfd_kill(m->pidfd, sig);
}

pid_t mover_pid(const struct mover *m)
{
	return m->pid;
}

int mover_steal_pidfd(struct mover *m)
{
	ev_io_stop(m->loop, &m->end);
	return TP_STEAL_FD(m->pidfd);
}
