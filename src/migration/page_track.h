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
#include "storage/page_set.h"

/*
 * @sent: a bit a page; @data, @left: pages with content, and those of them that were not sent
 * @first: the preferred ranges; @preferred: a bit for each of their pages with content; @first_data,
 * @first_left: how many these are, and those of them that were not sent
 * @at: how far the preferred ranges, and all pages, were gone through; @before: the last step of it
 */
struct page_track {
	const struct image *img;
	uint64_t pages, data, left;
	uint64_t *sent, *preferred;
	struct image_pages first[PAGE_SET_RANGES_MAX];
	unsigned nfirst;
	uint64_t first_data, first_left, first_sum;
	struct page_cursor {
		unsigned range;
		uint64_t in_range, page;
	} at, before;
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
/* The page that page_track_next() gave last cannot be had now: it is next again. */
void page_track_again(struct page_track *t);
/* These come first, in this order. Ranges that the image does not have, or too many, are passed over. */
void page_track_prefer(struct page_track *t, const struct image_pages *ranges, unsigned n);

#endif
