/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* page_asked.c - The pages that a guest asks for first, as few ranges: its working set */
#include "page_asked.h"

#include <stdlib.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"
#include "storage/image_page.h"

#define JOIN_UNITS 3u		/* so many that were not asked for may lie between two of a range */

struct page_unit {
	uint32_t block, nth, order;
};

static uint64_t block_pages(const struct page_asked *a, unsigned block)
{
	return image_block(a->img, block)->used_length >> image_info(a->img)->page_bits;
}

static uint64_t pages_max(const struct page_asked *a)
{
	uint64_t half = image_info(a->img)->pages_data / 2;
	uint64_t most = ASKED_BYTES_MAX >> image_info(a->img)->page_bits;

	return half < most ? half : most;
}

bool page_asked_init(struct page_asked *a, const struct image *img, struct tp_error *err)
{
	unsigned blocks = image_info(img)->blocks;
	uint64_t units = 0;

	a->img = img;
	a->room = (unsigned)tp_div_up(pages_max(a), ASKED_UNIT);
	a->base = calloc(blocks + 1, sizeof(*a->base));
	if (!a->base)
		return tp_fail_nomem(err);
	for (unsigned i = 0; i < blocks; i++) {
		a->base[i] = units;
		units += tp_div_up(block_pages(a, i), ASKED_UNIT);
	}
	a->seen = calloc((size_t)tp_div_up(units, 64) + 1, sizeof(*a->seen));
	a->units = calloc(a->room + 1, sizeof(*a->units));
	return a->seen && a->units ? true : tp_fail_nomem(err);
}

void page_asked_free(struct page_asked *a)
{
	free(a->base);
	free(a->seen);
	free(a->units);
}

static void add_unit(struct page_asked *a, unsigned block, uint64_t nth)
{
	uint64_t unit = a->base[block] + nth;

	if (a->n == a->room || a->seen[unit / 64] >> unit % 64 & 1)
		return;
	a->seen[unit / 64] |= (uint64_t)1 << unit % 64;
	a->units[a->n] = (struct page_unit){ block, (uint32_t)nth, a->n };
	a->n++;
}

void page_asked_add(struct page_asked *a, uint64_t page)
{
	unsigned block = image_page_block(a->img, page);

	add_unit(a, block, (page - image_block(a->img, block)->first_page) / ASKED_UNIT);
}

void page_asked_add_ranges(struct page_asked *a, const struct image_pages *ranges, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct image_pages *r = &ranges[i];
		uint64_t last = (r->first + r->pages - 1) / ASKED_UNIT;

		for (uint64_t nth = r->first / ASKED_UNIT; nth <= last && a->n < a->room; nth++)
			add_unit(a, r->block, nth);
	}
}

/* ---- ranges */

/* Units from the first to the last, with those between; order is that of the earliest. */
struct run {
	uint32_t block, first, last, order;
};

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_place(const void *a, const void *b)
{
	const struct page_unit *x = a, *y = b;

	return x->block != y->block ? compare(x->block, y->block) : compare(x->nth, y->nth);
}

static int by_order(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	return compare(x->order, y->order);
}

/* Units in order of place; runs has room for as many. */
static unsigned join(const struct page_unit *units, unsigned n, struct run *runs)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct page_unit *u = &units[i];
		struct run *run = k ? &runs[k - 1] : NULL;

		if (!run || run->block != u->block || u->nth - run->last > JOIN_UNITS + 1) {
			runs[k++] = (struct run){ u->block, u->nth, u->nth, u->order };
			continue;
		}
		run->last = u->nth;
		if (u->order < run->order)
			run->order = u->order;
	}
	return k;
}

static struct image_pages range_of(const struct page_asked *a, const struct run *run)
{
	uint64_t first = (uint64_t)run->first * ASKED_UNIT, end = ((uint64_t)run->last + 1) * ASKED_UNIT;
	uint64_t pages = block_pages(a, run->block);

	return (struct image_pages){ run->block, first, (end < pages ? end : pages) - first };
}

unsigned page_asked_ranges(const struct page_asked *a, struct image_pages *ranges, unsigned room)
{
	tp_autofree struct page_unit *units = calloc(a->n + 1, sizeof(*units));
	tp_autofree struct run *runs = calloc(a->n + 1, sizeof(*runs));
	uint64_t left = pages_max(a);
	unsigned n, told = 0;

	if (!units || !runs)
		return 0;
	for (unsigned i = 0; i < a->n; i++)
		units[i] = a->units[i];
	qsort(units, a->n, sizeof(*units), by_place);
	n = join(units, a->n, runs);
	qsort(runs, n, sizeof(*runs), by_order);
	/* What was joined counts: it is sent as well. */
	for (; told < n && told < room && left > 0; told++) {
		ranges[told] = range_of(a, &runs[told]);
		if (ranges[told].pages > left)
			ranges[told].pages = left;
		left -= ranges[told].pages;
	}
	return told;
}
