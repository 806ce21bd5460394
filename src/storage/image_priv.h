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

/*
 * Walks the records of a decoded frame and calls page() for each page record: class IMAGE_DATA or
 * IMAGE_ZERO, in order. Structure and the state at the next frame's start are checked.
 */
bool image_walk_frame(const struct image *img, uint64_t frame, const uint8_t *raw,
		      void (*page)(void *arg, uint64_t page, enum image_class class_), void *arg,
		      struct tp_error *err);

/* "frame 3 at offset 12345 (pc.ram pages 5..9)": for messages; into buf, which is returned. */
#define IMAGE_WHERE 400
const char *image_where(const struct image *img, uint64_t frame, char buf[IMAGE_WHERE]);

#endif
