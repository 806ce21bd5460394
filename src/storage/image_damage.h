/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_damage.h - What is wrong with an image, place by place
 *
 * A place is a frame, the index or the footer, with what of guest memory is
 * lost by it: as the index says, since a frame that does not decode cannot
 * tell. Lists are bounded, whatever an image holds; beyond that damages are
 * only counted.
 */
#ifndef IMAGE_DAMAGE_H
#define IMAGE_DAMAGE_H

#include <jansson.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "image_read.h"

#define IMAGE_DAMAGES_MAX 32u
#define IMAGE_DAMAGE_RANGES 4u
#define IMAGE_NO_FRAME UINT64_MAX

/* Pages of one RAM block, numbered in it. */
struct image_pages {
	unsigned block;
	uint64_t first, pages;
};

/*
 * @what: one phrase
 * @offset, @length: of the place, in the file
 * @ranges: the first of them, at most IMAGE_DAMAGE_RANGES; from the first to the last page with
 * data of the place, with the pages in between that are zero or were not sent
 * @nranges: how many there are
 * @lost: pages with data in all ranges
 */
struct image_damage {
	char what[160];
	uint64_t frame;			/* IMAGE_NO_FRAME: the place is none */
	uint64_t offset, length;
	struct image_pages ranges[IMAGE_DAMAGE_RANGES];
	uint64_t nranges, lost;
};

/* @list: frames first, in the file's order; @total: of them and of those that found no room */
struct image_damages {
	unsigned n;
	uint64_t total;
	struct image_damage list[IMAGE_DAMAGES_MAX];
};

/* A damage at a frame: its place, and what the index gives to it. */
void image_damage_of_frame(const struct image *img, uint64_t frame, struct image_damage *d);
#define IMAGE_DAMAGE_WHERE 400
/* "frame 3 at offset 12345 (pc.ram, pages 5 to 9)" into buf, which is returned. */
const char *image_damage_where(const struct image *img, const struct image_damage *d,
			       char buf[IMAGE_DAMAGE_WHERE]);
/* Fails with TP_ECORRUPT: their number, and the first one. Only if there is one. */
bool image_damages_fail(const struct image *img, const struct image_damages *damages,
			struct tp_error *err);
/*
 * [{"what", "frame"?, "offset", "length", "lost"?, "block"?, "first-page"?, "pages"?, "ranges"?}]:
 * block, first-page and pages are the first range; ranges, [{"block", "first-page", "pages"}], are
 * all that are known, where there are several. At most `max` bytes as compact text: ranges are left
 * out before damages are. NULL: out of memory.
 */
json_t *image_damages_json(const struct image *img, const struct image_damages *damages, size_t max);

#endif
