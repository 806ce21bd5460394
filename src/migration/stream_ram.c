/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_ram.c - RAM sections of QEMU's migration stream: block list and page records
 *
 * ram_fast() is the loop that decides the speed of a save: per page one load
 * and byte swap, two compares of flags, one of the address, one of the frame's
 * room, the update of the page map. All that is unusual (block names, ends,
 * cuts, errors, a record that is not all there) is left to ram_record().
 */
#include <string.h>

#include "base/tp_size.h"
#include "storage/image_record.h"
#include "stream_priv.h"

static enum stream_step bad(const struct stream_parser *p, struct tp_error *err, const char *what)
{
	tp_fail(err, TP_ECORRUPT, "the stream is damaged at offset %llu: %s",
		(unsigned long long)stream_here(p), what);
	return STEP_FAILED;
}

static enum stream_step refuse(struct tp_error *err, unsigned flags)
{
	static const struct { unsigned flag; const char *what; } names[] = {
		{ 0x040, "XBZRLE" }, { 0x080, "RDMA" }, { 0x100, "page compression" },
		{ 0x200, "multifd" }, { 0x001, "an obsolete page format" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (!(flags & names[i].flag))
			continue;
		tp_fail(err, TP_EUNSUPPORTED, "the stream uses %s, which an image cannot hold",
			names[i].what);
		return STEP_FAILED;
	}
	tp_fail(err, TP_ECORRUPT, "the stream has a RAM record of unknown kind 0x%x", flags);
	return STEP_FAILED;
}

/* ---- MEM_SIZE: total, then pstr id and be64 length of each block until the sum is reached */

static bool add_block(struct stream_parser *p, const uint8_t *at, size_t n, uint64_t left,
		      struct tp_error *err)
{
	uint64_t length = tp_be64(at + 1 + n);

	if (length > left)
		return tp_fail(err, TP_ECORRUPT, "the stream's RAM blocks do not add up to its RAM size");
	return image_map_add(&p->map, (const char *)at + 1, n, length, err);
}

static enum stream_step mem_size(struct stream_parser *p, const uint8_t *buf, size_t fill,
				 uint64_t total, struct tp_error *err)
{
	size_t at = RAM_WORD;
	uint64_t left = total;
	enum stream_step step;

	if (p->ram_type != RAM_SECTION_START || p->ram_sized)
		return bad(p, err, "a second list of RAM blocks");
	/* Anew each time that the list was not all there: it is short. */
	p->map.nblocks = 0;
	p->map.pages = 0;
	while (left) {
		const uint8_t *entry = buf + p->pos + at;
		size_t n;

		step = stream_need(p, at + 1, fill);
		if (step != STEP_DONE)
			return step;
		n = *entry;
		step = stream_need(p, at + 1 + n + 8, fill);
		if (step != STEP_DONE)
			return step;
		if (!add_block(p, entry, n, left, err))
			return STEP_FAILED;
		left -= p->map.blocks[p->map.nblocks - 1].used_length;
		at += 1 + n + 8;
	}
	if (!image_map_alloc(&p->map, err))
		return STEP_FAILED;
	p->ram_sized = true;
	p->pos += at;
	return STEP_DONE;
}

/* ---- records */

static enum stream_step end_of_section(struct stream_parser *p, const uint8_t *at,
				       struct tp_error *err)
{
	if (at[RAM_WORD] != RAM_FOOTER) {
		tp_fail(err, TP_EUNSUPPORTED,
			"the stream has no section footers (a machine type before 2.4), which is not supported");
		return STEP_FAILED;
	}
	if (tp_be32(at + RAM_WORD + 1) != p->ram_id)
		return bad(p, err, "a RAM section ends with another section's footer");
	if (!p->ram_sized)
		return bad(p, err, "there is no list of RAM blocks");
	p->pos += RAM_EOS_SIZE;
	p->where = AT_TOP;
	if (p->ram_type == RAM_SECTION_START &&
	    !stream_add_span(p, IMAGE_RANGE_RAM_START, p->ram_start_at,
			     stream_here(p) - p->ram_start_at, err))
		return STEP_FAILED;
	if (p->ram_type == RAM_SECTION_END)
		p->ram_end = true;
	return STEP_DONE;
}

static enum stream_step page_record(struct stream_parser *p, const struct ram_record *r,
				    enum image_class class_, struct tp_error *err)
{
	const struct image_block *b;

	if (!p->ram_sized)
		return bad(p, err, "a page before the list of RAM blocks");
	if (r->id) {
		p->block = image_map_find(&p->map, r->id, r->id_length);
		if (p->block < 0)
			return bad(p, err, "a page of a RAM block that is not in the list");
	}
	if (p->block < 0)
		return bad(p, err, "a page without a RAM block");
	b = &p->map.blocks[p->block];
	if (r->address >= b->used_length || (r->address & (p->page - 1)))
		return bad(p, err, "a page outside its RAM block");
	if (class_ == IMAGE_ZERO && r->fill)
		return bad(p, err, "a page filled with a byte that is not zero");
	image_map_set(&p->map, b->first_page + (r->address >> p->map.page_bits), class_,
		      (uint32_t)p->frame);
	if (class_ == IMAGE_DATA)
		p->frame_flags |= IMAGE_FRAME_DATA;
	p->records++;
	p->pos += r->length;
	return STEP_DONE;
}

static enum stream_step ram_record(struct stream_parser *p, const uint8_t *buf, size_t fill,
				   struct tp_error *err)
{
	const uint8_t *at = buf + p->pos;
	struct ram_record r;
	enum ram_kind kind = ram_record_decode(at, fill - p->pos, p->page, &r);
	enum stream_step step;

	if (kind == RAM_MEM_SIZE)
		return mem_size(p, buf, fill, r.address, err);
	if (kind == RAM_REFUSED)
		return refuse(err, r.flags);
	if (p->frame > IMAGE_FRAMES_MAX)
		return bad(p, err, "more frames than an image holds");
	step = stream_need(p, r.length, fill);
	if (step != STEP_DONE)
		return step;
	if (kind == RAM_EOS)
		return end_of_section(p, at, err);
	return page_record(p, &r, kind == RAM_PAGE ? IMAGE_DATA : IMAGE_ZERO, err);
}

/* Takes all plain records of the current block that are there and fit the frame. */
static void ram_fast(struct stream_parser *p, const uint8_t *buf, size_t fill)
{
	const struct image_block *b = &p->map.blocks[p->block];
	const uint64_t first = b->first_page, length = b->used_length;
	const size_t page = p->page, end = fill < p->target ? fill : p->target;
	const unsigned bits = p->map.page_bits;
	size_t pos = p->pos;
	bool data = false;

	while (pos + RAM_ZERO_CONTINUED <= end) {
		uint64_t word = tp_be64(buf + pos), address = word & ~(uint64_t)RAM_FLAGS;
		unsigned flags = (unsigned)(word & RAM_FLAGS);

		if (address >= length || (address & (page - 1)))
			break;
		if (flags == (RAM_FLAG_PAGE | RAM_FLAG_CONTINUE)) {
			if (end - pos < RAM_WORD + page)
				break;
			image_map_set(&p->map, first + (address >> bits), IMAGE_DATA, (uint32_t)p->frame);
			data = true;
			pos += RAM_WORD + page;
		} else if (flags == (RAM_FLAG_ZERO | RAM_FLAG_CONTINUE) && !buf[pos + RAM_WORD]) {
			image_map_set(&p->map, first + (address >> bits), IMAGE_ZERO, 0);
			pos += RAM_ZERO_CONTINUED;
		} else {
			break;
		}
		p->records++;
	}
	p->pos = pos;
	if (data)
		p->frame_flags |= IMAGE_FRAME_DATA;
}

enum stream_step stream_ram(struct stream_parser *p, const uint8_t *buf, size_t fill,
			    struct tp_error *err)
{
	if (p->block >= 0 && p->pos < fill)
		ram_fast(p, buf, fill);
	return ram_record(p, buf, fill, err);
}
