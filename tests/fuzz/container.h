/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * container.h - A memory image made of a fuzzer's input, with all its checksums right
 *
 * A fuzzer that changes bytes of a whole image only ever meets checksums. So its input is a recipe:
 * items {u8 type, u16 length, bytes} of which the image is made, frames compressed, lengths and sums
 * filled in as a writer would. Payloads of frames and of the index's body are run-length coded, so
 * that guest pages are small in it: {u16 n, n bytes} or {u16 0x8000 | n, one byte n times}.
 */
#ifndef CONTAINER_H
#define CONTAINER_H

#include <stddef.h>
#include <stdint.h>

enum container_item {
	CONTAINER_FRAME = 1,	/* coded raw bytes of the next frame */
	CONTAINER_STORED = 2,	/* the next frame as it stands in the file */
	CONTAINER_BODY = 3,	/* coded body of the index */
	CONTAINER_HEADER = 4,	/* {u16 offset, bytes} over the header, before its checksum */
	CONTAINER_FOOTER = 5,	/* likewise over the footer */
	CONTAINER_HEAD = 6,	/* likewise over the index's head */
	CONTAINER_DAMAGE = 7,	/* {u16, u16 offset, bytes} over the finished file */
	CONTAINER_OPTION = 8,	/* u8 of the bits below */
};

#define CONTAINER_KEEP_LENGTHS 1u	/* of frames, as the body has them */
#define CONTAINER_SALVAGE 2u

#define CONTAINER_ITEM_HEAD 3u
#define CONTAINER_FRAMES_MAX 64u
#define CONTAINER_RAW_MAX (1u << 20)	/* decoded bytes of all items */

/* Makes the image; the caller frees. *n: its length; *options: CONTAINER_* bits. */
uint8_t *container_make(const uint8_t *data, size_t size, size_t *n, unsigned *options);
/* The item at data: its whole length, at most size, and where its payload lies. */
size_t container_next(const uint8_t *data, size_t size, const uint8_t **payload, size_t *length);

#endif
