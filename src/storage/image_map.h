/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_map.h - The dense page map kept while an image is written
 *
 * Per page the frame of its last data record and two bits of class: about
 * 1.06 MiB per GiB of guest RAM whatever the order of the stream, and "the last
 * record wins" is an overwrite. What is never touched takes no memory.
 */
#ifndef IMAGE_MAP_H
#define IMAGE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "image_format.h"
#include "image_read.h"

struct image_map {
	unsigned page_bits, nblocks;
	struct image_block *blocks;	/* in the stream's order; room for IMAGE_BLOCKS_MAX */
	uint64_t pages;
	uint32_t *frame_of;		/* valid for class IMAGE_DATA */
	uint8_t *classes;		/* two bits a page, page 0 in the low ones */
	uint64_t repeats;		/* records of pages that had one already */
};

/* Adds a block before image_map_alloc(); id is checked: printable, unique, at most 255. */
bool image_map_add(struct image_map *m, const char *id, size_t n, uint64_t used_length,
		   struct tp_error *err);
/* Makes the tables for the blocks added. */
bool image_map_alloc(struct image_map *m, struct tp_error *err);
void image_map_free(struct image_map *m);
/* Counts pages by class. */
void image_map_count(const struct image_map *m, uint64_t count[4]);
/* Index of the block with this id, or -1. */
int image_map_find(const struct image_map *m, const char *id, size_t n);
bool image_block_id_ok(const char *id, size_t n);

static inline enum image_class image_map_class(const struct image_map *m, uint64_t page)
{
	return (enum image_class)(m->classes[page >> 2] >> (page & 3) * 2 & 3);
}

static inline void image_map_set(struct image_map *m, uint64_t page, enum image_class class_,
				 uint32_t frame)
{
	uint8_t *byte = &m->classes[page >> 2];
	unsigned shift = (unsigned)(page & 3) * 2;
	unsigned old = *byte >> shift & 3u;

	m->repeats += old != IMAGE_ABSENT;
	*byte = (uint8_t)(*byte ^ (old ^ (unsigned)class_) << shift);
	if (class_ == IMAGE_DATA)
		m->frame_of[page] = frame;
}

#endif
