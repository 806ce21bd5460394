/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* page_track.c - Which pages QEMU has, and which come next */
#include "page_track.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_size.h"
#include "storage/image_page.h"

bool page_track_init(struct page_track *t, const struct image *img, struct tp_error *err)
{
	t->img = img;
	t->pages = image_info(img)->pages;
	t->data = t->left = image_info(img)->pages_data;
	t->sent = calloc((size_t)tp_div_up(t->pages, 64) + 1, sizeof(uint64_t));
	t->preferred = calloc((size_t)tp_div_up(t->pages, 64) + 1, sizeof(uint64_t));
	return t->sent && t->preferred ? true : tp_fail_nomem(err);
}

void page_track_free(struct page_track *t)
{
	free(t->sent);
	free(t->preferred);
}

static bool is_preferred(const struct page_track *t, uint64_t page)
{
	return t->preferred[page / 64] >> page % 64 & 1;
}

void page_track_mark(struct page_track *t, uint64_t page)
{
	if (page_track_sent(t, page))
		return;
	t->sent[page / 64] |= (uint64_t)1 << page % 64;
	t->left -= image_page_find(t->img, page, NULL) == IMAGE_DATA;
	t->first_left -= is_preferred(t, page);
}

void page_track_forget(struct page_track *t)
{
	memset(t->sent, 0, (size_t)(tp_div_up(t->pages, 64) * sizeof(uint64_t)));
	t->left = t->data;
	t->first_left = t->first_data;
	t->at = (struct page_cursor){ .page = 0 };
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
	for (; t->at.range < t->nfirst; t->at.range++, t->at.in_range = 0) {
		const struct image_pages *r = &t->first[t->at.range];
		uint64_t begin = image_block(t->img, r->block)->first_page + r->first;

		while (t->at.in_range < r->pages) {
			uint64_t at = image_page_next_data(t->img, begin + t->at.in_range, begin + r->pages);

			t->at.in_range = at - begin + 1;
			if (t->at.in_range > r->pages || page_track_sent(t, at))
				continue;
			*page = at;
			return true;
		}
	}
	return false;
}

bool page_track_next(struct page_track *t, uint64_t *page)
{
	t->before = t->at;
	if (next_first(t, page))
		return true;
	while (t->at.page < t->pages) {
		uint64_t at = image_page_next_data(t->img, t->at.page, t->pages);

		t->at.page = at + 1;
		if (at >= t->pages || page_track_sent(t, at))
			continue;
		*page = at;
		return true;
	}
	/* What was taken up but not sent, as its frame gave way to another, is found in another round. */
	t->at.page = 0;
	return false;
}

void page_track_again(struct page_track *t)
{
	t->at = t->before;
}

static void prefer(struct page_track *t, const struct image_pages *r)
{
	uint64_t begin = image_block(t->img, r->block)->first_page + r->first, end = begin + r->pages;

	t->first[t->nfirst++] = *r;
	t->first_sum += r->pages;
	for (uint64_t page = begin; (page = image_page_next_data(t->img, page, end)) < end; page++) {
		t->first_data += !is_preferred(t, page);
		t->preferred[page / 64] |= (uint64_t)1 << page % 64;
	}
}

void page_track_prefer(struct page_track *t, const struct image_pages *ranges, unsigned n)
{
	for (unsigned i = 0; i < n && t->nfirst < PAGE_SET_RANGES_MAX; i++) {
		const struct image_pages *r = &ranges[i];
		uint64_t pages;

		if (r->block >= image_info(t->img)->blocks)
			continue;
		pages = image_block(t->img, r->block)->used_length >> image_info(t->img)->page_bits;
		/* Ranges that say all of it again and again would cost time. */
		if (r->first < pages && r->pages > 0 && r->pages <= pages - r->first &&
		    r->pages <= t->pages - t->first_sum)
			prefer(t, r);
	}
	t->first_left = t->first_data;
}
