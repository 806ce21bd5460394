/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_out.h - The page server's outgoing bytes: records of pages, and what the socket did not take
 *
 * Small: what waits here is in the way of the next request.
 */
#ifndef PAGE_OUT_H
#define PAGE_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_buf.h"
#include "base/tp_error.h"
#include "storage/image_read.h"

/*
 * @from: bytes of buf that were sent; @sent: bytes in all
 * @section: id of the RAM section; @open: within one
 * @block: of the last record on this connection, -1: none
 */
struct page_out {
	struct tp_buf buf;
	size_t from;
	uint64_t sent;
	uint32_t section;
	bool open;
	int block;
};

enum page_flush {
	FLUSH_ALL,		/* nothing is left */
	FLUSH_SOME,		/* the socket is full */
	FLUSH_GONE,		/* the connection is broken */
};

/* For a new connection: forgets what the old one did not take. */
void page_out_begin(struct page_out *o);
/* A record of a page, global number; data NULL: a zero page. false: out of memory. */
bool page_out_page(struct page_out *o, const struct image *img, uint64_t page, const void *data);
/* The end of all pages and of the stream. */
bool page_out_finish(struct page_out *o);
enum page_flush page_out_flush(struct page_out *o, int fd);

static inline size_t page_out_waiting(const struct page_out *o)
{
	return o->buf.len - o->from;
}

#endif
