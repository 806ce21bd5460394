/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_priv.h - What the readers of an image share: not for other files */
#ifndef IMAGE_PRIV_H
#define IMAGE_PRIV_H

#include "image_index.h"
#include "image_read.h"

struct image {
	int fd;
	struct image_info info;
	struct image_index x;
	uint64_t frames_checksum;
};

static inline enum image_class image_index_class(const struct image_index *x, uint64_t page)
{
	return (enum image_class)(x->classes[page >> 2] >> (page & 3) * 2 & 3);
}

/*
 * image_frame_read() for those who go on after a damage: false with *fault, a phrase that is to be
 * copied before the next call, or with err, which is not the image's.
 */
bool image_frame_decode(const struct image *img, struct image_decoder *d, uint64_t frame, void *buf,
			uint32_t *checksum, const char **fault, struct tp_error *err);

/* In order: class IMAGE_DATA with the page's bytes in the frame, or IMAGE_ZERO with NULL. */
typedef void (*image_page_fn)(void *arg, uint64_t page, enum image_class class_, const uint8_t *data);

/*
 * Walks the records of a decoded frame and calls page() for each page record. Structure, the
 * index's word on the frame and the state at the next frame's start are checked. NULL, or a phrase;
 * *at: offset in the raw stream that it is about.
 */
const char *image_walk_fault(const struct image *img, uint64_t frame, const uint8_t *raw,
			     image_page_fn page, void *arg, uint64_t *at);
/* The same with an error that names the place. */
bool image_walk_frame(const struct image *img, uint64_t frame, const uint8_t *raw, image_page_fn page,
		      void *arg, struct tp_error *err);

/* "frame 3 at offset 12345 (pc.ram, pages 5 to 9)": for messages; into buf, which is returned. */
#define IMAGE_WHERE 400
const char *image_where(const struct image *img, uint64_t frame, char buf[IMAGE_WHERE]);

#endif
