/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_stream.h - A migration stream as QEMU of a stopped guest sends it, made or recorded, and its sender
 *
 * The same call makes the same bytes in each process.
 */
#ifndef FAKE_STREAM_H
#define FAKE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FAKE_PAGE 4096u

/* What the pages hold; FAKE_MIXED: each kind in turn at random, zero pages too. */
enum fake_pages { FAKE_TEXT, FAKE_RANDOM, FAKE_MIXED };

struct fake_stream {
	uint8_t *data;		/* lives as long as the process */
	size_t n;
};

/* One block, pc.ram, of so many MiB. False: errno. */
bool fake_stream_make(struct fake_stream *s, uint64_t mib, enum fake_pages pages);
bool fake_stream_load(struct fake_stream *s, const char *path);
/* A child that plays QEMU: writes the stream into a socket, 64 pieces in a writev; *fd: to read from. */
pid_t fake_stream_feed(const struct fake_stream *s, int *fd);
uint64_t fake_random(void);	/* not random at all */

#endif
