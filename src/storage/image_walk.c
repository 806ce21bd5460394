/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_walk.c - Walk the records of a decoded frame, and name the place of a damage
 *
 * The index says where a frame begins: inside the body of a RAM section or
 * not, and with which block as the current one. The parts that are no records
 * (prologue, block list, early sections, device area) are ranges of the index
 * and are skipped; between them stand only heads and ends of RAM sections, page
 * records and commands.
 */
#include <stdio.h>
#include <string.h>

#include "image_format.h"
#include "image_map.h"
#include "image_priv.h"
#include "image_record.h"

struct walk {
	const struct image_index *x;
	size_t page;			/* bytes */
	unsigned page_bits;
	uint64_t raw;			/* offset of the next item in the stream */
	unsigned block;			/* current one or IMAGE_NO_BLOCK */
	bool in_ram;
	void (*fn)(void *arg, uint64_t page, enum image_class class_);
	void *arg;
};

static const struct image_span *span_at(const struct walk *w)
{
	for (unsigned i = 0; i < w->x->nspans; i++) {
		const struct image_span *s = &w->x->spans[i];

		if (w->raw >= s->offset && w->raw - s->offset < s->length)
			return s;
	}
	return NULL;
}

static unsigned find_block(const struct walk *w, const char *id, size_t n)
{
	struct image_map m = { .nblocks = w->x->nblocks, .blocks = w->x->blocks };
	int i = image_block_id_ok(id, n) ? image_map_find(&m, id, n) : -1;

	return i < 0 ? IMAGE_NO_BLOCK : (unsigned)i;
}

/* Returns the length of the item at p, or 0 with *fault. */
static size_t walk_record(struct walk *w, const uint8_t *p, size_t n, const char **fault)
{
	const struct image_block *b;
	struct ram_record r;
	enum ram_kind kind = ram_record_decode(p, n, w->page, &r);

	*fault = "a record is malformed";
	if (kind == RAM_EOS) {
		w->in_ram = false;
		return r.length;
	}
	if (kind != RAM_PAGE && kind != RAM_ZERO)
		return 0;
	if (r.id)
		w->block = find_block(w, r.id, r.id_length);
	if (w->block == IMAGE_NO_BLOCK)
		return 0;
	b = &w->x->blocks[w->block];
	if (r.address >= b->used_length || (r.address & (w->page - 1))) {
		*fault = "a record's page is outside its block";
		return 0;
	}
	w->fn(w->arg, b->first_page + (r.address >> w->page_bits),
	      kind == RAM_PAGE ? IMAGE_DATA : IMAGE_ZERO);
	return r.length;
}

static size_t walk_top(struct walk *w, const uint8_t *p, size_t n, const char **fault)
{
	*fault = "a section is malformed";
	if ((*p == RAM_SECTION_PART || *p == RAM_SECTION_END) && n >= RAM_PART_HEAD) {
		w->in_ram = true;
		return RAM_PART_HEAD;
	}
	if (*p == RAM_COMMAND && n >= RAM_COMMAND_HEAD) {
		size_t length = RAM_COMMAND_HEAD + (size_t)tp_be16(p + 3);

		return length <= n ? length : 0;
	}
	return 0;
}

static bool walk_items(struct walk *w, const uint8_t *p, size_t n, const char **fault)
{
	while (n) {
		const struct image_span *s = w->in_ram ? NULL : span_at(w);
		size_t length;

		if (s) {
			uint64_t rest = s->length - (w->raw - s->offset);

			length = rest < n ? (size_t)rest : n;
		} else {
			length = w->in_ram ? walk_record(w, p, n, fault) : walk_top(w, p, n, fault);
		}
		if (!length)
			return false;
		p += length;
		n -= length;
		w->raw += length;
	}
	return true;
}

/* The next frame must begin in the state that this one ends in. */
static bool joins_next(const struct walk *w, uint64_t frame)
{
	if (frame + 1 == w->x->frames || span_at(w))
		return true;
	return w->block == w->x->block[frame + 1] &&
	       w->in_ram == !!(w->x->flags[frame + 1] & IMAGE_FRAME_IN_RAM);
}

bool image_walk_frame(const struct image *img, uint64_t frame, const uint8_t *raw,
		      void (*page)(void *arg, uint64_t page, enum image_class class_), void *arg,
		      struct tp_error *err)
{
	struct walk w = {
		.x = &img->x, .page_bits = img->info.page_bits,
		.page = (size_t)1 << img->info.page_bits, .raw = img->x.raw_at[frame],
		.block = img->x.block[frame], .in_ram = img->x.flags[frame] & IMAGE_FRAME_IN_RAM,
		.fn = page, .arg = arg,
	};
	const char *fault = NULL;
	char where[IMAGE_WHERE];

	if (img->x.flags[frame] & IMAGE_FRAME_DEVICE)
		return true;
	/* Inside the block list's section, which is a range, there are no page records. */
	if (span_at(&w))
		w.in_ram = false;
	if (!walk_items(&w, raw, image_frame_raw(img, frame), &fault))
		return tp_fail(err, TP_ECORRUPT, "%s: at raw offset %llu %s",
			       image_where(img, frame, where), (unsigned long long)w.raw, fault);
	if (!joins_next(&w, frame))
		return tp_fail(err, TP_ECORRUPT, "%s: the next frame does not continue it",
			       image_where(img, frame, where));
	return true;
}

static unsigned block_of(const struct image_index *x, uint64_t page)
{
	unsigned i = 0;

	while (i + 1 < x->nblocks && x->blocks[i + 1].first_page <= page)
		i++;
	return i;
}

const char *image_where(const struct image *img, uint64_t frame, char buf[IMAGE_WHERE])
{
	const struct image_index *x = &img->x;
	uint64_t first = UINT64_MAX, end = 0;
	int n = snprintf(buf, IMAGE_WHERE, "frame %llu at offset %llu", (unsigned long long)frame,
			 (unsigned long long)(IMAGE_HEADER_SIZE + x->stored_at[frame]));

	if (x->flags[frame] & IMAGE_FRAME_DEVICE) {
		snprintf(buf + n, IMAGE_WHERE - (size_t)n, " (device state)");
		return buf;
	}
	for (uint64_t i = 0; i < x->runs; i++) {
		if (x->run_frame[i] != frame)
			continue;
		if (first == UINT64_MAX)
			first = x->run_page[i];
		end = i + 1 < x->runs ? x->run_page[i + 1] : x->pages;
	}
	if (first != UINT64_MAX) {
		const struct image_block *b = &x->blocks[block_of(x, first)];

		snprintf(buf + n, IMAGE_WHERE - (size_t)n, " (%s, pages %llu to %llu)", b->id,
			 (unsigned long long)(first - b->first_page),
			 (unsigned long long)(end - 1 - b->first_page));
	}
	return buf;
}
