/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_stream.h - A connected stream socket on the event loop, for the monitor and the agent
 *
 * Reads a bounded amount in each turn of the loop, so that a flood cannot
 * starve others; writes one message at a time and takes EAGAIN for an answer.
 * An end is told only after everything readable has been read, also where
 * writing failed first.
 */
#ifndef QMP_STREAM_H
#define QMP_STREAM_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/tp_buf.h"

#define QMP_READ_TURN (32u << 10)	/* bytes read in one turn of the loop */
#define QMP_MESSAGE_LIMIT (1u << 20)	/* one command's text; QEMU needs 2.6 s for a megabyte */

/* Called from the loop. data and ended may destroy the stream, idle may not. */
struct qmp_stream_ops {
	void (*data)(void *arg, const char *data, size_t n);
	/* The last message is out: put the next one by qmp_stream_put, or do nothing. */
	void (*idle)(void *arg);
	/* Nothing comes any more: sys 0 is the peer's orderly end, else an errno. Closed already. */
	void (*ended)(void *arg, int sys);
};

struct qmp_stream {
	struct ev_loop *loop;
	const struct qmp_stream_ops *ops;
	void *arg;
	struct ev_io reader, writer;
	int fd;			/* -1: closed */
	struct tp_buf out;	/* the message that is being written */
	size_t out_at;
	int out_fd;		/* goes with the first byte; -1: none */
	int broken;		/* errno of the failed write, 0: none */
};

/* Takes *fd and makes it non-blocking. Reading starts at once. */
void qmp_stream_init(struct qmp_stream *s, struct ev_loop *loop, int *fd,
		     const struct qmp_stream_ops *ops, void *arg);
/* Closes. May be called twice. */
void qmp_stream_close(struct qmp_stream *s);
/* Asks for ops->idle in the next turn of the loop. */
void qmp_stream_kick(struct qmp_stream *s);
/* Only while idle. *fd (NULL or -1: none) is taken. false: too large or out of memory. */
bool qmp_stream_put(struct qmp_stream *s, const char *text, size_t n, int *fd);
bool qmp_stream_is_idle(const struct qmp_stream *s);
/* Bytes of the present message that are out; 0 also while idle. */
size_t qmp_stream_written(const struct qmp_stream *s);
/* Makes the stream end with this errno in the next turn of the loop, after all readable data. */
void qmp_stream_fail(struct qmp_stream *s, int sys);
/* Drops what is not written yet of the present message. */
void qmp_stream_drop(struct qmp_stream *s);

/* (Re)starts a timer, from the time it is now and not from when the loop last looked. */
void qmp_start_timer(struct ev_loop *loop, struct ev_timer *timer, double seconds);

#endif
