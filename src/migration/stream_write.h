/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_write.h - The source's side of QEMU's post-copy migration stream, piece by piece
 *
 * Each function appends one piece to a buffer; what a piece must follow is said with it. All return
 * false when the buffer's limit or the memory is used up, and change nothing then. Addresses and
 * lengths are bytes within a RAM block; ids are those of RAM blocks, at most 255 bytes.
 */
#ifndef STREAM_WRITE_H
#define STREAM_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_buf.h"

enum stream_command {
	STREAM_OPEN_RETURN_PATH = 1,
	STREAM_PING = 2,
	STREAM_POSTCOPY_ADVISE = 3,
	STREAM_POSTCOPY_LISTEN = 4,
	STREAM_POSTCOPY_RUN = 5,
	STREAM_POSTCOPY_DISCARD = 6,
	STREAM_PACKAGED = 7,
	STREAM_POSTCOPY_RESUME = 9,
	STREAM_RECV_BITMAP = 10,
};

struct stream_ram_block {
	const char *id;
	uint64_t length;
};

/* The bare commands: OPEN_RETURN_PATH, POSTCOPY_RESUME. */
bool stream_write_command(struct tp_buf *b, enum stream_command command);
/* Answered by PONG with the same number. */
bool stream_write_ping(struct tp_buf *b, uint32_t number);
/* After OPEN_RETURN_PATH, before the block list. QEMU drops all its guest memory now. */
bool stream_write_advise(struct tp_buf *b, uint64_t host_page_sizes, uint64_t page_size);
/* RAM section of type START: the block list of machines whose host pages are of the page size. */
bool stream_write_blocks(struct tp_buf *b, uint32_t section, const struct stream_ram_block *blocks,
			 unsigned n);
/* One at least, before LISTEN: without any, QEMU waits for itself for ever. */
bool stream_write_discard(struct tp_buf *b, const char *id, uint64_t start, uint64_t length);
/*
 * LISTEN, the device sections, PING with this number, RUN, as one package: QEMU reads all of it
 * before it obeys any of it.
 */
bool stream_write_package(struct tp_buf *b, const void *devices, size_t n, uint32_t ping);
/* Asks which pages of a block QEMU has: answered by RECV_BITMAP. */
bool stream_write_recv_bitmap(struct tp_buf *b, const char *id);

/* Head of a RAM section of type PART (last: END), records, its end. */
bool stream_write_part(struct tp_buf *b, uint32_t section, bool last);
/* id NULL: the same block as the record before it on this connection. */
bool stream_write_page(struct tp_buf *b, const char *id, uint64_t address, const void *data,
		       size_t page_size);
bool stream_write_zero(struct tp_buf *b, const char *id, uint64_t address);
bool stream_write_end(struct tp_buf *b, uint32_t section);
/* The end of all: QEMU answers SHUT. */
bool stream_write_eof(struct tp_buf *b);

#endif
