/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_wire.h - The peer's end of a socketpair on the test's own loop: torn writes, exact reads */
#ifndef FAKE_WIRE_H
#define FAKE_WIRE_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/tp_buf.h"

struct fake_wire {
	struct ev_loop *loop;
	int fd;			/* -1: closed */
	struct ev_io reader, writer;
	struct tp_buf out;
	size_t out_at;		/* what is written of it */
	size_t tear;		/* most bytes in one write; 0: as many as fit */
	bool eof_after_out;
	/* One byte, with how many descriptors came along (closed by the wire). */
	void (*byte)(void *arg, unsigned char c, size_t nfds);
	void (*drained)(void *arg);	/* all output is written; may be NULL */
	void *arg;
};

/* Aborts the test program where the system gives no socketpair. */
void fake_wire_open(struct fake_wire *w, struct ev_loop *loop, int *client_fd);
void fake_wire_close(struct fake_wire *w);
void fake_wire_say(struct fake_wire *w, const void *data, size_t n);
void fake_wire_read(struct fake_wire *w, bool on);

#endif
