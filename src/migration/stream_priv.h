/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* stream_priv.h - What the files of the stream parser share: not for other files */
#ifndef STREAM_PRIV_H
#define STREAM_PRIV_H

#include "stream_parse.h"
#include "stream_tail.h"

enum stream_where { AT_MAGIC, AT_CONFIGURATION, AT_TOP, AT_RAM, AT_DEVICES };

struct stream_parser {
	enum stream_where where;
	size_t pos;			/* parsed bytes of the frame */
	size_t want, drop;
	size_t target;
	uint64_t base;			/* raw offset of the frame */
	uint64_t frame;			/* its number */
	uint16_t frame_block, frame_flags;
	int block;			/* current one, -1: none yet */
	size_t page;
	struct image_map map;
	uint64_t records;
	char machine[STREAM_NAME_MAX];
	uint32_t ram_id;
	uint8_t ram_type;		/* of the RAM section that we are in */
	bool ram_known, ram_sized, ram_part, ram_end;
	size_t scanned;			/* of an early section, from pos */
	struct image_span spans[IMAGE_RANGES_MAX];
	unsigned nspans;
	uint64_t ram_start_at;		/* raw offset of the RAM START section */
	uint64_t devices_at, devices;	/* raw offset and bytes of the device area */
	struct stream_tail tail;
};

/* What became of the item at pos. */
enum stream_step { STEP_DONE, STEP_MORE, STEP_CUT, STEP_DROP, STEP_FAILED };

/*
 * An item of at least n bytes begins at pos: is it to be cut off, is it there? STEP_DONE: it is.
 * The cut depends only on the item's length, not on how much of it has come.
 */
static inline enum stream_step stream_need(struct stream_parser *p, size_t n, size_t fill)
{
	if (p->pos && p->pos + n > p->target)
		return STEP_CUT;
	if (fill - p->pos >= n)
		return STEP_DONE;
	p->want = p->pos + n;
	return STEP_MORE;
}

static inline uint64_t stream_here(const struct stream_parser *p)
{
	return p->base + p->pos;
}

bool stream_add_span(struct stream_parser *p, uint32_t kind, uint64_t offset, uint64_t length,
		     struct tp_error *err);
/* stream_config.c: the item at pos, type 7. */
enum stream_step stream_configuration(struct stream_parser *p, const uint8_t *buf, size_t fill,
				      struct tp_error *err);
/* stream_ram.c: records, block list, end of the section. */
enum stream_step stream_ram(struct stream_parser *p, const uint8_t *buf, size_t fill,
			    struct tp_error *err);
/* stream_early.c: a FULL section before the first PART. */
enum stream_step stream_early(struct stream_parser *p, const uint8_t *buf, size_t fill,
			      struct tp_error *err);

#endif
