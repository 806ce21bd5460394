/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_control.c - A data job's side of the control connection: a thread that sends and listens
 *
 * Theory of operation
 *
 * A pump must never wait for the engine, and the end of the connection must end
 * the job even if the pump is within a long fdatasync. So one thread alone owns
 * the socket. The job leaves messages in a queue and the newest progress in a
 * slot; the thread sends them when the socket takes them, messages first, so
 * that no progress follows the last message. An engine that does not read thus
 * costs a full queue of at most MESSAGES_MAX messages, not a stalled VM.
 *
 * Towards the job the thread leaves flags and makes `note` readable. When the
 * connection ends the process ends at once, unless control_outlive() was called
 * before: both happen under the mutex, so a save is either gone or sealed.
 *
 * With control_serve() the end of a connection is the beginning of waiting for
 * the next one; what was not sent by then is not sent any more.
 */
#include "mover_control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "migration/mover_proto.h"

#define MESSAGES_MAX 8		/* a job posts hello, sealed or held, and one last message */

/*
 * @wake: makes the thread look again; @note: the same for the job
 * @queue: messages from the oldest on; @count: how many
 * @progress_due: there is progress that was not sent; @progress_at: when the last one was sent
 * @report: if not NULL, is the progress; @service: listener -1: none
 * @sock: -1 between two connections of a service
 * @outlive, @ended, @finish, @status: see the header
 */
struct control {
	int sock, wake, note;
	pthread_mutex_t mutex;
	json_t *queue[MESSAGES_MAX];
	size_t count;
	bool progress_due;
	struct mover_progress progress;
	json_t *report;
	double progress_at;
	struct control_service service;
	bool outlive, ended, finish;
	int64_t status;
};

static void raise_event(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));

	(void)n;	/* EAGAIN: it is readable already */
}

static void clear_event(int fd)
{
	uint64_t count;
	ssize_t n = read(fd, &count, sizeof(count));

	(void)n;	/* EAGAIN: it was clear */
}

struct control *control_open(int sock, struct tp_error *err)
{
	struct control *c = calloc(1, sizeof(*c));

	if (!c) {
		tp_fail_nomem(err);
		return NULL;
	}
	c->sock = sock;
	c->service.listener = -1;
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->note = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake < 0 || c->note < 0 || !tp_set_nonblock(sock, true)) {
		tp_fail_sys(err, errno, "prepare the control connection");
		tp_close(&c->wake);
		tp_close(&c->note);
		free(c);
		return NULL;
	}
	pthread_mutex_init(&c->mutex, NULL);
	return c;
}

/* The engine is gone. Mutex held. */
static void connection_ended(struct control *c)
{
	if (!c->outlive && c->service.listener < 0)
		_exit(MOVER_EXIT_ORPHAN);
	while (c->count > 0)
		json_decref(c->queue[--c->count]);
	c->progress_due = false;
	if (c->service.listener >= 0)
		tp_close(&c->sock);
	else
		c->ended = true;
	raise_event(c->note);
}

/* True: sent, or refused for good. Mutex held. */
static bool try_send(struct control *c, const json_t *message)
{
	struct tp_error err = TP_ERROR_INIT;

	switch (mover_proto_send(c->sock, message, NULL, 0, &err)) {
	case MOVER_IO_AGAIN:
		return false;
	case MOVER_IO_OK:
		return true;
	default:
		connection_ended(c);
		return true;
	}
}

static void send_messages(struct control *c)
{
	while (c->count > 0 && try_send(c, c->queue[0])) {
		if (c->count == 0)
			return;
		json_decref(c->queue[0]);
		c->count--;
		memmove(c->queue, c->queue + 1, c->count * sizeof(c->queue[0]));
		if (c->count == 0)
			raise_event(c->note);
	}
}

static json_t *progress_message(const struct mover_progress *p)
{
	json_t *value = json_pack("{s:I, s:I}", "done-bytes", (json_int_t)p->done, "total-bytes",
				  (json_int_t)p->total);

	if (p->stored)
		tp_json_set(value, "stored-bytes", json_integer((json_int_t)p->stored));
	if (p->sealing)
		tp_json_set(value, "sealing", json_true());
	return value ? json_pack("{s:o}", "progress", value) : NULL;
}

static void send_progress(struct control *c)
{
	double now = tp_now_mono();
	json_t *message;

	if (!c->progress_due || now - c->progress_at < MOVER_PROGRESS_INTERVAL)
		return;
	message = c->report ? json_pack("{s:O}", "progress", c->report) :
			      progress_message(&c->progress);
	/* When the socket is full, a newer one takes its place. */
	if (message && try_send(c, message)) {
		c->progress_due = false;
		c->progress_at = now;
	}
	json_decref(message);
}

/* Appends to the queue; a full one, of an engine that does not read, takes no more. Mutex held. */
static void enqueue(struct control *c, json_t *message_owned)
{
	if (c->ended || c->sock < 0 || c->count == MESSAGES_MAX)
		json_decref(message_owned);
	else
		c->queue[c->count++] = message_owned;
}

static void take_message(struct control *c, const json_t *message, int *fds, size_t nfds)
{
	const json_t *finish = json_object_get(message, "finish");
	json_t *answer;

	if (c->service.message) {
		answer = c->service.message(c->service.arg, message, fds, nfds);
		if (answer)
			enqueue(c, answer);
	}
	/* What an older mover does not know is not for it. */
	if (!finish)
		return;
	c->finish = true;
	c->status = tp_json_int(finish, "status", 0);
	raise_event(c->note);
}

static void receive_messages(struct control *c)
{
	while (c->sock >= 0) {
		struct tp_error err = TP_ERROR_INIT;
		json_t *message = NULL;
		int fds[TP_MAX_FDS];
		size_t nfds = c->service.message ? TP_MAX_FDS : 0;

		switch (mover_proto_receive(c->sock, &message, fds, &nfds, &err)) {
		case MOVER_IO_OK:
			take_message(c, message, fds, nfds);
			json_decref(message);
			for (size_t i = 0; i < nfds; i++)
				tp_close(&fds[i]);
			break;
		case MOVER_IO_AGAIN:
			return;
		default:
			/* The engine speaks no nonsense: one that does is as good as gone. */
			connection_ended(c);
			return;
		}
	}
}

/* The youngest connection is the one that counts. */
static void accept_connection(struct control *c)
{
	int fd = accept4(c->service.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	json_t *hello;

	if (fd < 0)
		return;
	connection_ended(c);
	c->sock = fd;
	hello = c->service.hello(c->service.arg);
	if (hello)
		enqueue(c, hello);
}

/* Milliseconds until progress may be sent; -1: nothing to wait for. Mutex held. */
static int progress_wait(const struct control *c)
{
	double wait = c->progress_at + MOVER_PROGRESS_INTERVAL - tp_now_mono();

	if (!c->progress_due)
		return -1;
	return wait < 0 ? (int)(MOVER_PROGRESS_INTERVAL * 1000) : (int)(wait * 1000) + 1;
}

static void *control_main(void *arg)
{
	struct control *c = arg;

	pthread_mutex_lock(&c->mutex);
	while (!c->ended) {
		struct pollfd pfds[3] = {
			{ .fd = c->sock, .events = POLLIN | (c->count > 0 ? POLLOUT : 0) },
			{ .fd = c->wake, .events = POLLIN },
			{ .fd = c->service.listener, .events = POLLIN },
		};
		int wait = progress_wait(c);

		pthread_mutex_unlock(&c->mutex);
		poll(pfds, 3, wait);
		clear_event(c->wake);
		pthread_mutex_lock(&c->mutex);
		if (pfds[2].revents)
			accept_connection(c);
		receive_messages(c);
		send_messages(c);
		if (c->count == 0)
			send_progress(c);
	}
	pthread_mutex_unlock(&c->mutex);
	return NULL;
}

bool control_start(struct control *c, struct tp_error *err)
{
	sigset_t all, before;
	pthread_t thread;
	int e;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	e = pthread_create(&thread, NULL, control_main, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (e)
		return tp_fail_sys(err, e, "start the control thread");
	pthread_detach(thread);
	return true;
}

void control_post(struct control *c, json_t *message_owned)
{
	if (!message_owned)
		_exit(MOVER_EXIT_ERROR);
	pthread_mutex_lock(&c->mutex);
	/* It may be the last message, which progress must not follow. */
	c->progress_due = false;
	enqueue(c, message_owned);
	pthread_mutex_unlock(&c->mutex);
	raise_event(c->wake);
}

void control_report(struct control *c, json_t *value_owned)
{
	bool first;

	pthread_mutex_lock(&c->mutex);
	first = !c->progress_due;
	c->progress_due = c->sock >= 0 && value_owned;
	json_decref(c->report);
	c->report = value_owned;
	pthread_mutex_unlock(&c->mutex);
	if (first)
		raise_event(c->wake);
}

bool control_serve(struct control *c, const struct control_service *service, struct tp_error *err)
{
	int listening = 0;
	socklen_t n = sizeof(listening);

	if (getsockopt(service->listener, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0 || !listening)
		return tp_fail(err, TP_EARG, "mover request: \"listener\" is no listening socket");
	if (!tp_set_nonblock(service->listener, true))
		return tp_fail_sys(err, errno, "prepare the listening socket");
	pthread_mutex_lock(&c->mutex);
	c->service = *service;
	pthread_mutex_unlock(&c->mutex);
	raise_event(c->wake);
	return true;
}

void control_progress(struct control *c, const struct mover_progress *p)
{
	bool first;

	pthread_mutex_lock(&c->mutex);
	first = !c->progress_due;
	c->progress_due = !c->ended;
	c->progress = *p;
	pthread_mutex_unlock(&c->mutex);
	if (first)
		raise_event(c->wake);
}

bool control_flushed(struct control *c)
{
	bool empty;

	pthread_mutex_lock(&c->mutex);
	empty = c->count == 0;
	pthread_mutex_unlock(&c->mutex);
	return empty;
}

void control_outlive(struct control *c)
{
	pthread_mutex_lock(&c->mutex);
	c->outlive = true;
	pthread_mutex_unlock(&c->mutex);
}

bool control_ended(struct control *c)
{
	bool ended;

	pthread_mutex_lock(&c->mutex);
	ended = c->ended;
	pthread_mutex_unlock(&c->mutex);
	return ended;
}

bool control_finish(struct control *c, int64_t *status)
{
	bool finish;

	pthread_mutex_lock(&c->mutex);
	finish = c->finish;
	if (status)
		*status = c->status;
	pthread_mutex_unlock(&c->mutex);
	return finish;
}

int control_note_fd(struct control *c)
{
	return c->note;
}

void control_clear_note(struct control *c)
{
	clear_event(c->note);
}

void control_exit(struct control *c, int status)
{
	struct pollfd pfd = { .fd = c->note, .events = POLLIN };

	while (!control_flushed(c)) {
		poll(&pfd, 1, -1);
		clear_event(c->note);
	}
	_exit(status);
}
