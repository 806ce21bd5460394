/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_index.h - The index of a memory image: made while saving, parsed with all its bounds
 */
#ifndef IMAGE_INDEX_H
#define IMAGE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "frame_pool.h"
#include "image_map.h"

struct image_span {
	uint32_t kind;			/* IMAGE_RANGE_* */
	uint64_t offset, length;	/* in the raw stream */
};

/* What the index is made of. */
struct image_index_source {
	const struct image_map *map;
	const struct frame_table *frames;
	const struct image_span *spans;	/* by ascending offset */
	unsigned nspans;
};

/*
 * Writes the index (skippable frame and all) to fd at offset `at`, streaming: memory does not
 * depend on the image's size. *length: all of it; *checksum: XXH64 of the stored bytes.
 */
bool image_index_write(const struct image_index_source *src, int fd, uint64_t at, uint64_t limit,
		       uint64_t *length, uint64_t *checksum, struct tp_error *err);

/* What the footer says and the index must agree with. */
struct image_claims {
	uint64_t frames, raw_bytes, frame_bytes;	/* frame_bytes: sum of the stored lengths */
	uint64_t pages, pages_data, pages_zero;
	unsigned page_bits, blocks;
};

struct image_index {
	struct image_block *blocks;
	unsigned nblocks;
	uint64_t frames;
	uint64_t *stored_at;		/* frames + 1 sums of stored lengths, from 0 */
	uint64_t *raw_at;		/* frames + 1 sums of raw lengths */
	uint16_t *block, *flags;	/* of each frame */
	uint64_t pages;
	uint8_t *classes;
	uint32_t *run_page, *run_frame;	/* extents: first page and frame of each run */
	uint64_t runs;
	struct image_span *spans;
	unsigned nspans;
};

/* Largest body that these claims allow. */
uint64_t image_index_body_max(const struct image_claims *c);
/* Parses a decoded body, which is borrowed for the call. On failure *x is empty. */
bool image_index_parse(const uint8_t *body, size_t n, const struct image_claims *c,
		       struct image_index *x, struct tp_error *err);
void image_index_free(struct image_index *x);
/* The run that a page is in: the last one that begins at or before it; 0 where there are none. */
uint64_t image_index_run(const struct image_index *x, uint64_t page);

#endif
