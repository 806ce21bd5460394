/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_bound.c - The largest size that an image of a machine's RAM blocks can have
 *
 * Every page once as a data record, nothing compresses, any order:
 *
 *   R      = pages * (page + 8) + names of the blocks + device margin
 *   frames = R / (target - page - 8) + blocks + 16 (a frame is cut before the
 *            record that does not fit, so it may stay a record short of its
 *            target), and never more than one a record
 *   zstd   = R + 3 bytes for each 128 KiB or part + 24 for each frame
 *   index  = 12 a frame, 2 bits a page, 6 bytes for the longest extent, 1 MiB
 */
#include "image_bound.h"

#include "base/tp_size.h"
#include "image_format.h"

#define ZSTD_BLOCK (128u << 10)
#define ZSTD_BLOCK_HEAD 3
#define ZSTD_FRAME_COST 24
#define RECORD_HEAD 8
#define BLOCK_COST 600		/* its name in the block list and once in records, its index entry */
#define FRAME_INDEX 12
#define EXTENT_MAX 6
#define INDEX_MARGIN (1u << 20)

static uint64_t frames_of(uint64_t raw, uint64_t record, uint64_t pages, unsigned blocks)
{
	uint64_t room = IMAGE_FRAME_TARGET > 2 * record ? IMAGE_FRAME_TARGET - record : 0;
	uint64_t frames = room ? tp_div_up(raw, room) : pages + tp_div_up(raw, IMAGE_FRAME_TARGET);

	return frames + blocks + 16;
}

bool image_bound(uint64_t ram, uint32_t page, unsigned blocks, uint64_t device_margin,
		 uint64_t *bytes)
{
	uint64_t record = (uint64_t)page + RECORD_HEAD;
	uint64_t pages, raw, frames, sum, index;

	if (!page || blocks > IMAGE_BLOCKS_MAX)
		return false;
	/* Each block may end in a part of a page. */
	pages = tp_div_up(ram, page) + blocks;
	if (!tp_mul(pages, record, &raw) ||
	    !tp_add(raw, device_margin ? device_margin : IMAGE_DEVICE_MARGIN, &raw) ||
	    !tp_add(raw, (uint64_t)blocks * BLOCK_COST, &raw))
		return false;
	frames = frames_of(raw, record, pages, blocks);
	if (!tp_mul(tp_div_up(raw, ZSTD_BLOCK) + frames, ZSTD_BLOCK_HEAD, &sum) ||
	    !tp_add(sum, raw, &sum) || !tp_add(sum, frames * ZSTD_FRAME_COST, &sum))
		return false;
	index = frames * FRAME_INDEX + pages / 4 + pages * EXTENT_MAX + INDEX_MARGIN;
	return tp_add(sum, index + IMAGE_HEADER_SIZE + IMAGE_FOOTER_SIZE, bytes);
}
