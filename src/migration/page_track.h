/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_track.h - Which pages QEMU has, and which come next
 *
 * A page is sent once on a connection: a second copy would end the guest. Pages without content are
 * never due by themselves; QEMU finds them zero at the end.
 */
#ifndef PAGE_TRACK_H
#define PAGE_TRACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "page_server.h"

/*
 * @sent: a bit a page; @data, @left: pages with content, and those of them that were not sent
 * @first: the preferred ranges; @nfirst, @at_first, @at_page: how far these were gone through
 * @next: the same for all others, from page 0 on
 * @asked: units that were asked for, in order; @seen: a bit a unit
 */
struct page_track {
	const struct image *img;
	uint64_t pages, data, left;
	uint64_t *sent;
	struct image_pages first[PAGE_SERVER_RANGES_MAX];
	unsigned nfirst, at_first;
	uint64_t at_page, next;
	uint64_t asked[PAGE_SERVER_RANGES_MAX];
	unsigned nasked;
	uint64_t *seen;
};

/* In place; zeroed before. */
bool page_track_init(struct page_track *t, const struct image *img, struct tp_error *err);
void page_track_free(struct page_track *t);

static inline bool page_track_sent(const struct page_track *t, uint64_t page)
{
	return t->sent[page / 64] >> page % 64 & 1;
}

void page_track_mark(struct page_track *t, uint64_t page);
/* A new connection: nothing was sent but what page_track_received() tells. */
void page_track_forget(struct page_track *t);
/* n bytes of a block's bitmap of received pages, from page `first` of the block on. */
void page_track_received(struct page_track *t, unsigned block, uint64_t first, const uint8_t *bits,
			 uint64_t n);
/* The next page with content that is due and was not sent; false: none. */
bool page_track_next(struct page_track *t, uint64_t *page);

void page_track_prefer(struct page_track *t, const struct image_pages *ranges, unsigned n);
/* The guest asked for this page. */
void page_track_ask(struct page_track *t, uint64_t page);
unsigned page_track_asked(const struct page_track *t, struct image_pages *ranges, unsigned room);

#endif
