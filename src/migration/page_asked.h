/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_asked.h - The pages that a guest asks for first, as few ranges: its working set
 *
 * A request brings its whole frame, so of a frame only the first page is ever asked for. Pages are
 * noted by units, in order of first use; units less than about a frame apart make one range, which has
 * the place of its first one. A set is bounded, so that it does not grow from resume to resume: it is
 * half of the image's content at most, and ASKED_BYTES_MAX; what was asked for now comes first, and of
 * the former set what finds room after it.
 */
#ifndef PAGE_ASKED_H
#define PAGE_ASKED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "storage/image_damage.h"

#define ASKED_UNIT 16u				/* pages: 64 KiB */
#define ASKED_BYTES_MAX ((uint64_t)256 << 20)

/*
 * @base: the first unit of each block; units of blocks do not overlap
 * @seen: a bit a unit
 * @units, @n, @room: those seen, in order
 */
struct page_asked {
	const struct image *img;
	uint64_t *base, *seen;
	struct page_unit *units;
	unsigned n, room;
};

/* In place; zeroed before. */
bool page_asked_init(struct page_asked *a, const struct image *img, struct tp_error *err);
void page_asked_free(struct page_asked *a);
/* page: of the image */
void page_asked_add(struct page_asked *a, uint64_t page);
/* A former set, which lies in the image. */
void page_asked_add_ranges(struct page_asked *a, const struct image_pages *ranges, unsigned n);
/* All in all. Returns how many; none without memory. */
unsigned page_asked_ranges(const struct page_asked *a, struct image_pages *ranges, unsigned room);

#endif
