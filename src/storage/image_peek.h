/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_peek.h - Is a file a sealed memory image, and which: from header and footer alone */
#ifndef IMAGE_PEEK_H
#define IMAGE_PEEK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

/* What names an image, and what a manifest repeats of it. */
struct image_peek {
	uint64_t footer_checksum;
	uint8_t uuid[16];
	uint64_t file_bytes, raw_bytes;
};

/*
 * Header and footer are whole, belong together and to a file of this length. Errors are TP_ECORRUPT,
 * for a newer format TP_EUNSUPPORTED. fd is borrowed and must be a regular file; nothing is set on
 * failure.
 */
bool image_peek(int fd, struct image_peek *found, struct tp_error *err);
/* The same for who only asks which image it is. */
bool image_footer_peek(int fd, uint64_t *footer_checksum, uint8_t uuid[16], struct tp_error *err);

#endif
