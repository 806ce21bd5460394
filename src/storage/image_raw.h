/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_raw.h - Read a range of an image's raw stream, as index ranges name it */
#ifndef IMAGE_RAW_H
#define IMAGE_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_buf.h"
#include "base/tp_error.h"
#include "image_read.h"

/*
 * Appends `length` bytes from raw offset `offset` on. The frames are decoded and verified, one at a
 * time. A range beyond the stream's end is TP_ECORRUPT, more than out's limit TP_ELIMIT.
 */
bool image_raw_read(const struct image *img, uint64_t offset, uint64_t length, struct tp_buf *out,
		    struct tp_error *err);

#endif
