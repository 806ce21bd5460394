/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_page.h - Find guest pages in an image: page -> class -> frame -> bytes
 *
 * Pages are global page numbers (image_block.first_page). All functions may be called from any
 * thread; none does I/O.
 */
#ifndef IMAGE_PAGE_H
#define IMAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "image_format.h"
#include "image_read.h"

/* O(log n), with frame NULL O(1). *frame is set for IMAGE_DATA. page < info->pages. */
enum image_class image_page_find(const struct image *img, uint64_t page, uint64_t *frame);
/* The first page of class IMAGE_DATA from `page` on; `end` (<= info->pages) if there is none before. */
uint64_t image_page_next_data(const struct image *img, uint64_t page, uint64_t end);
/* The block that a page is in. */
unsigned image_page_block(const struct image *img, uint64_t page);
/* The block with this name, or -1. */
int image_block_find(const struct image *img, const char *id, size_t n);

struct image_page {
	uint64_t page;
	const uint8_t *data;	/* in the frame's bytes */
};

/*
 * The pages whose content a decoded frame holds, ascending: those that the index places in it, with
 * their last record. What the frame has of other pages was overwritten later. *pages is the
 * caller's; TP_ECORRUPT where records and index disagree.
 */
bool image_frame_pages(const struct image *img, uint64_t frame, const uint8_t *raw,
		       struct image_page **pages, size_t *n, struct tp_error *err);

#endif
