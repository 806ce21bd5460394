/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_read.h - Open, check and read a sealed memory image
 *
 * Opening reads header, footer and index and checks all of it before it is
 * believed (image-format.md section 5); frames are checked when they are
 * decoded. An image is hostile input. Errors have class Corrupt (code
 * TP_ECORRUPT) and name offset, frame, RAM block or page; "newer format" is
 * TP_EUNSUPPORTED. After opening all functions may be called from any thread.
 */
#ifndef IMAGE_READ_H
#define IMAGE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"

#define IMAGE_FRAME_MAX (16u << 20)	/* raw bytes of one frame */

struct image;
struct image_decoder;		/* one a thread: a ZSTD_DCtx and a buffer for the stored bytes */

struct image_block {
	char id[256];
	uint64_t used_length;	/* bytes, multiple of the page size */
	uint64_t host_page_size;
	uint64_t first_page;	/* global page number */
};

struct image_info {
	uint8_t uuid[16];
	uint16_t major, minor;
	uint64_t features, created_us;
	uint32_t frame_target;
	uint64_t file_bytes, raw_bytes;		/* whole file; length of `zstd -dc` */
	uint64_t frames, pages, pages_data, pages_zero;
	unsigned page_bits, stream_kind;	/* 0 stopped, 1 live, 2 background-snapshot */
	unsigned blocks;
	uint64_t index_offset, index_bytes;
	uint64_t footer_checksum;		/* the footer's own XXH64: names this image's content */
};

/* fd is borrowed and must stay open. */
struct image *image_open(int fd, struct tp_error *err);
void image_close(struct image *img);
const struct image_info *image_info(const struct image *img);
const struct image_block *image_block(const struct image *img, unsigned n);	/* n < info->blocks */

struct image_decoder *image_decoder_new(struct tp_error *err);
void image_decoder_free(struct image_decoder *d);
uint64_t image_frame_stored(const struct image *img, uint64_t frame);	/* bytes in the file */
uint32_t image_frame_raw(const struct image *img, uint64_t frame);	/* bytes decoded */
/*
 * Lets the bytes of the frames from `from` to before `to` out of the page cache: they are not read again soon.
 * A hint; at both ends a page may stay.
 */
void image_frames_forget(const struct image *img, uint64_t from, uint64_t to);
/*
 * Decodes frame `frame` (< info->frames) into buf of at least image_frame_raw() bytes; size and
 * zstd's content checksum are verified, and the checksum is handed out for the footer's sum.
 */
bool image_frame_read(const struct image *img, struct image_decoder *d, uint64_t frame,
		      void *buf, uint32_t *checksum, struct tp_error *err);

/*
 * The whole check of `image-verify`: every frame decoded and walked, each page's class and winning
 * record, footer sums. It goes on after a damage; TP_ECORRUPT says how many there are and names the
 * first (frame, file offset, RAM block, pages), damages (image_damage.h; may be NULL) lists them.
 * progress (may be NULL) gets done and total frames; false from it cancels. Memory: 4 bytes a page
 * of the image, 5 a frame, and the largest frame twice a thread.
 */
struct image_damages;
bool image_verify(const struct image *img, unsigned threads,
		  bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
		  struct image_damages *damages, struct tp_error *err);

/* Range kinds of the index (image-format.md, RANGES); false if the image has none such. */
bool image_range(const struct image *img, uint32_t kind, unsigned nth, uint64_t *raw_offset,
		 uint64_t *length);

#endif
