/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_walk.c - Walk the records of a decoded frame
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
	unsigned span;			/* the first that does not end before it */
	unsigned block;			/* current one or IMAGE_NO_BLOCK */
	bool in_ram;
	image_page_fn fn;
	void *arg;
	bool data;			/* a data record was there */
};

/* Spans are in order and the walk only goes on: each is passed once, however many an index lists. */
static const struct image_span *span_at(struct walk *w)
{
	while (w->span < w->x->nspans) {
		const struct image_span *s = &w->x->spans[w->span];

		if (w->raw < s->offset)
			return NULL;
		if (w->raw - s->offset < s->length)
			return s;
		w->span++;
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
	w->data |= kind == RAM_PAGE;
	if (kind == RAM_PAGE)
		w->fn(w->arg, b->first_page + (r.address >> w->page_bits), IMAGE_DATA,
		      p + r.length - w->page);
	else
		w->fn(w->arg, b->first_page + (r.address >> w->page_bits), IMAGE_ZERO, NULL);
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
static bool joins_next(struct walk *w, uint64_t frame)
{
	if (frame + 1 == w->x->frames || span_at(w))
		return true;
	return w->block == w->x->block[frame + 1] &&
	       w->in_ram == !!(w->x->flags[frame + 1] & IMAGE_FRAME_IN_RAM);
}

/* The bytes that each range of the index begins with; enough to find one that lies. */
static bool span_begins(const struct image_span *s, const uint8_t *p)
{
	switch (s->kind) {
	case IMAGE_RANGE_PROLOGUE: return *p == 'Q';	/* "QEVM" */
	case IMAGE_RANGE_RAM_START: return *p == RAM_SECTION_START;
	case IMAGE_RANGE_EARLY:
	case IMAGE_RANGE_DEVICES: return *p == RAM_SECTION_FULL;
	default: return *p == RAM_VMDESC;
	}
}

static bool spans_begin(const struct walk *w, const uint8_t *raw, size_t n)
{
	for (unsigned i = 0; i < w->x->nspans; i++) {
		const struct image_span *s = &w->x->spans[i];

		if (s->length && s->offset >= w->raw && s->offset - w->raw < n &&
		    !span_begins(s, raw + (s->offset - w->raw)))
			return false;
	}
	return true;
}

const char *image_walk_fault(const struct image *img, uint64_t frame, const uint8_t *raw,
			     image_page_fn page, void *arg, uint64_t *at)
{
	struct walk w = {
		.x = &img->x, .page_bits = img->info.page_bits,
		.page = (size_t)1 << img->info.page_bits, .raw = img->x.raw_at[frame],
		.block = img->x.block[frame], .in_ram = img->x.flags[frame] & IMAGE_FRAME_IN_RAM,
		.fn = page, .arg = arg,
	};
	size_t n = image_frame_raw(img, frame);
	const char *fault = NULL;
	bool good;

	*at = w.raw;
	if (!spans_begin(&w, raw, n))
		return "a range of the index does not begin as its kind does";
	if (img->x.flags[frame] & IMAGE_FRAME_DEVICE)
		return NULL;
	/* Inside the block list's section, which is a range, there are no page records. */
	if (span_at(&w))
		w.in_ram = false;
	good = walk_items(&w, raw, n, &fault);
	*at = w.raw;
	if (!good)
		return fault;
	if (!joins_next(&w, frame))
		return "the next frame does not continue it";
	if (w.data != !!(img->x.flags[frame] & IMAGE_FRAME_DATA))
		return w.data ? "it has data pages, which the index denies" :
				"it has no data page, which the index says it has";
	return NULL;
}

bool image_walk_frame(const struct image *img, uint64_t frame, const uint8_t *raw, image_page_fn page,
		      void *arg, struct tp_error *err)
{
	char where[IMAGE_WHERE];
	uint64_t at;
	const char *fault = image_walk_fault(img, frame, raw, page, arg, &at);

	return !fault || tp_fail(err, TP_ECORRUPT, "%s: %s, at raw offset %llu",
				 image_where(img, frame, where), fault, (unsigned long long)at);
}
