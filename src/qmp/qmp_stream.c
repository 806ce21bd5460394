/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* qmp_stream.c - A connected stream socket on the event loop */
#include "qmp/qmp_stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_sock.h"

static bool is_transient(int error)
{
	return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static void end_stream(struct qmp_stream *s, int sys)
{
	qmp_stream_close(s);
	/* A peer that left without reading what we sent has left, too. */
	s->ops->ended(s->arg, sys == ECONNRESET || sys == EPIPE ? 0 : sys);
}

static void on_readable(struct ev_loop *loop, struct ev_io *w, int revents)
{
	struct qmp_stream *s = w->data;
	char buf[QMP_READ_TURN];
	ssize_t n = recv(s->fd, buf, sizeof(buf), MSG_DONTWAIT);

	(void)loop;
	(void)revents;
	if (n > 0) {
		if (s->broken)
			ev_feed_event(s->loop, &s->reader, EV_READ);
		s->ops->data(s->arg, buf, (size_t)n);
	} else if (n == 0) {
		end_stream(s, s->broken);
	} else if (!is_transient(errno)) {
		end_stream(s, errno);
	} else if (s->broken) {
		end_stream(s, s->broken);
	}
}

static ssize_t write_some(struct qmp_stream *s)
{
	const char *data = s->out.data + s->out_at;
	size_t n = s->out.len - s->out_at;

	if (s->out_fd >= 0)
		return tp_send_fds(s->fd, data, n, &s->out_fd, 1);
	return send(s->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void on_writable(struct ev_loop *loop, struct ev_io *w, int revents)
{
	struct qmp_stream *s = w->data;
	ssize_t n;

	(void)loop;
	(void)revents;
	if (qmp_stream_is_idle(s))
		s->ops->idle(s->arg);
	if (s->broken)
		return;
	if (qmp_stream_is_idle(s)) {
		ev_io_stop(s->loop, &s->writer);
		return;
	}
	n = write_some(s);
	if (n > 0) {
		tp_close(&s->out_fd);
		s->out_at += (size_t)n;
		if (s->out_at == s->out.len)
			qmp_stream_drop(s);
	} else if (n < 0 && !is_transient(errno)) {
		qmp_stream_fail(s, errno);
	}
}

void qmp_stream_init(struct qmp_stream *s, struct ev_loop *loop, int *fd,
		     const struct qmp_stream_ops *ops, void *arg)
{
	*s = (struct qmp_stream){
		.loop = loop, .ops = ops, .arg = arg, .fd = TP_STEAL_FD(*fd), .out_fd = -1,
		.out = TP_BUF_INIT(QMP_MESSAGE_LIMIT),
	};
	tp_set_nonblock(s->fd, true);
	ev_io_init(&s->reader, on_readable, s->fd, EV_READ);
	ev_io_init(&s->writer, on_writable, s->fd, EV_WRITE);
	s->reader.data = s->writer.data = s;
	ev_io_start(loop, &s->reader);
}

void qmp_stream_close(struct qmp_stream *s)
{
	if (s->fd < 0)
		return;
	/* ev_io_stop also takes back an event fed or pending. */
	ev_io_stop(s->loop, &s->reader);
	ev_io_stop(s->loop, &s->writer);
	qmp_stream_drop(s);
	tp_buf_free(&s->out);
	tp_close(&s->fd);
}

void qmp_stream_kick(struct qmp_stream *s)
{
	if (s->fd >= 0 && !s->broken)
		ev_io_start(s->loop, &s->writer);
}

void qmp_stream_fail(struct qmp_stream *s, int sys)
{
	if (s->fd < 0 || s->broken)
		return;
	/* What was sent to us before is read first; the reader tells the end. */
	s->broken = sys;
	ev_io_stop(s->loop, &s->writer);
	ev_feed_event(s->loop, &s->reader, EV_READ);
}

bool qmp_stream_put(struct qmp_stream *s, const char *text, size_t n, int *fd)
{
	int taken = fd ? TP_STEAL_FD(*fd) : -1;

	if (!tp_buf_add(&s->out, text, n)) {
		tp_close(&taken);
		return false;
	}
	s->out_fd = taken;
	return true;
}

bool qmp_stream_is_idle(const struct qmp_stream *s)
{
	return s->out.len == 0;
}

size_t qmp_stream_written(const struct qmp_stream *s)
{
	return s->out_at;
}

void qmp_stream_drop(struct qmp_stream *s)
{
	tp_close(&s->out_fd);
	tp_buf_drop(&s->out, s->out.len);
	s->out_at = 0;
}

/* After a long turn of the loop its clock is old, and the timer would be early. */
void qmp_start_timer(struct ev_loop *loop, struct ev_timer *timer, double seconds)
{
	ev_timer_stop(loop, timer);
	ev_now_update(loop);
	ev_timer_set(timer, seconds, 0.);
	ev_timer_start(loop, timer);
}
