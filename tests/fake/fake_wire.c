/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_wire.c - The peer's end of a socketpair on the test's own loop */
#include "fake/fake_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/tp_cleanup.h"
#include "base/tp_sock.h"

#define READ_TURN 4096	/* bytes of one turn: they are read one by one */

/* A descriptor belongs to the byte it was sent with: only reads of one byte tell which. */
static void on_readable(struct ev_loop *loop, struct ev_io *io, int revents)
{
	struct fake_wire *w = io->data;

	(void)loop;
	(void)revents;
	for (int i = 0; i < READ_TURN && w->fd >= 0 && ev_is_active(&w->reader); i++) {
		int fds[TP_MAX_FDS];
		size_t nfds = TP_N(fds);
		unsigned char c;
		ssize_t n = tp_recv_fds(w->fd, &c, 1, fds, &nfds);

		if (n <= 0) {
			if (n == 0)
				ev_io_stop(w->loop, &w->reader);
			return;
		}
		for (size_t k = 0; k < nfds; k++)
			tp_close(&fds[k]);
		w->byte(w->arg, c, nfds);
	}
}

static void on_writable(struct ev_loop *loop, struct ev_io *io, int revents)
{
	struct fake_wire *w = io->data;
	size_t left = w->out.len - w->out_at, n = w->tear && w->tear < left ? w->tear : left;
	ssize_t sent = n ? send(w->fd, w->out.data + w->out_at, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

	(void)loop;
	(void)revents;
	if (sent > 0)
		w->out_at += (size_t)sent;
	if (w->out_at < w->out.len)
		return;
	tp_buf_drop(&w->out, w->out.len);
	w->out_at = 0;
	ev_io_stop(w->loop, &w->writer);
	if (w->eof_after_out)
		fake_wire_close(w);
	if (w->drained)
		w->drained(w->arg);
}

void fake_wire_open(struct fake_wire *w, struct ev_loop *loop, int *client_fd)
{
	int fds[2];

	if (!tp_socketpair(SOCK_STREAM, fds, NULL)) {
		perror("socketpair");
		abort();
	}
	tp_set_nonblock(fds[0], true);
	tp_set_nonblock(fds[1], true);
	*client_fd = fds[0];
	w->loop = loop;
	w->fd = fds[1];
	ev_io_init(&w->reader, on_readable, w->fd, EV_READ);
	ev_io_init(&w->writer, on_writable, w->fd, EV_WRITE);
	w->reader.data = w->writer.data = w;
	ev_io_start(loop, &w->reader);
}

void fake_wire_close(struct fake_wire *w)
{
	if (w->fd < 0)
		return;
	ev_io_stop(w->loop, &w->reader);
	ev_io_stop(w->loop, &w->writer);
	tp_buf_free(&w->out);
	tp_close(&w->fd);
}

void fake_wire_say(struct fake_wire *w, const void *data, size_t n)
{
	if (w->fd < 0)
		return;
	if (!tp_buf_add(&w->out, data, n))
		abort();
	ev_io_start(w->loop, &w->writer);
}

void fake_wire_read(struct fake_wire *w, bool on)
{
	if (w->fd < 0)
		return;
	if (on)
		ev_io_start(w->loop, &w->reader);
	else
		ev_io_stop(w->loop, &w->reader);
}
