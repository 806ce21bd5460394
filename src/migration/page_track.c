/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* page_track.c - Which pages QEMU has, and which come next */
#include "page_track.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_size.h"
#include "storage/image_page.h"

#define UNIT_PAGES 64u		/* requests are recorded by so many pages: about a frame */

bool page_track_init(struct page_track *t, const struct image *img, struct tp_error *err)
{
	t->img = img;
	t->pages = image_info(img)->pages;
	t->data = t->left = image_info(img)->pages_data;
	t->sent = calloc((size_t)tp_div_up(t->pages, 64) + 1, sizeof(uint64_t));
	t->seen = calloc((size_t)tp_div_up(t->pages, 64 * UNIT_PAGES) + 1, sizeof(uint64_t));
	return t->sent && t->seen ? true : tp_fail_nomem(err);
}

void page_track_free(struct page_track *t)
{
	free(t->sent);
	free(t->seen);
}

void page_track_mark(struct page_track *t, uint64_t page)
{
	if (page_track_sent(t, page))
		return;
	t->sent[page / 64] |= (uint64_t)1 << page % 64;
	t->left -= image_page_find(t->img, page, NULL) == IMAGE_DATA;
}

void page_track_forget(struct page_track *t)
{
	memset(t->sent, 0, (size_t)(tp_div_up(t->pages, 64) * sizeof(uint64_t)));
	t->left = t->data;
	t->next = 0;
	t->at_first = 0;
	t->at_page = 0;
}

void page_track_received(struct page_track *t, unsigned block, uint64_t first, const uint8_t *bits,
			 uint64_t n)
{
	const struct image_block *b = image_block(t->img, block);
	uint64_t pages = b->used_length >> image_info(t->img)->page_bits;

	for (uint64_t i = 0; i < n; i++) {
		for (unsigned bit = 0; bits[i] >> bit; bit++)
			if (bits[i] >> bit & 1 && first + i * 8 + bit < pages)
				page_track_mark(t, b->first_page + first + i * 8 + bit);
	}
}

/* From the preferred ranges. */
static bool next_first(struct page_track *t, uint64_t *page)
{
	for (; t->at_first < t->nfirst; t->at_first++, t->at_page = 0) {
		const struct image_pages *r = &t->first[t->at_first];
		uint64_t begin = image_block(t->img, r->block)->first_page + r->first;

		while (t->at_page < r->pages) {
			uint64_t at = image_page_next_data(t->img, begin + t->at_page, begin + r->pages);

			t->at_page = at - begin + 1;
			if (t->at_page > r->pages || page_track_sent(t, at))
				continue;
			*page = at;
			return true;
		}
	}
	return false;
}

bool page_track_next(struct page_track *t, uint64_t *page)
{
	if (next_first(t, page))
		return true;
	while (t->next < t->pages) {
		uint64_t at = image_page_next_data(t->img, t->next, t->pages);

		t->next = at + 1;
		if (at >= t->pages || page_track_sent(t, at))
			continue;
		*page = at;
		return true;
	}
	/* What was taken up but not sent, as its frame gave way to another, is found in another round. */
	t->next = 0;
	return false;
}

void page_track_prefer(struct page_track *t, const struct image_pages *ranges, unsigned n)
{
	for (unsigned i = 0; i < n && t->nfirst < PAGE_SERVER_RANGES_MAX; i++) {
		const struct image_pages *r = &ranges[i];
		uint64_t pages;

		if (r->block >= image_info(t->img)->blocks)
			continue;
		pages = image_block(t->img, r->block)->used_length >> image_info(t->img)->page_bits;
		if (r->first < pages && r->pages > 0 && r->pages <= pages - r->first)
			t->first[t->nfirst++] = *r;
	}
}

void page_track_ask(struct page_track *t, uint64_t page)
{
	uint64_t unit = page / UNIT_PAGES;

	if (t->seen[unit / 64] >> unit % 64 & 1 || t->nasked == PAGE_SERVER_RANGES_MAX)
		return;
	t->seen[unit / 64] |= (uint64_t)1 << unit % 64;
	t->asked[t->nasked++] = unit;
}

/* A unit may reach over the end of a block; it then counts for the block in which it begins. */
static struct image_pages unit_range(const struct page_track *t, uint64_t unit)
{
	uint64_t first = unit * UNIT_PAGES, pages;
	unsigned block = image_page_block(t->img, first);
	const struct image_block *b = image_block(t->img, block);

	pages = (b->used_length >> image_info(t->img)->page_bits) - (first - b->first_page);
	return (struct image_pages){ block, first - b->first_page, pages < UNIT_PAGES ? pages : UNIT_PAGES };
}

static unsigned add_range(struct image_pages *ranges, unsigned n, const struct image_pages *r)
{
	struct image_pages *last = n ? &ranges[n - 1] : NULL;

	if (last && last->block == r->block && last->first + last->pages == r->first) {
		last->pages += r->pages;
		return n;
	}
	ranges[n] = *r;
	return n + 1;
}

unsigned page_track_asked(const struct page_track *t, struct image_pages *ranges, unsigned room)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->nasked && n < room; i++) {
		struct image_pages r = unit_range(t, t->asked[i]);

		n = add_range(ranges, n, &r);
	}
	for (unsigned i = 0; i < t->nfirst && n < room; i++)
		n = add_range(ranges, n, &t->first[i]);
	return n;
}
