/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_index.c - Parse the index of a memory image
 *
 * Hostile input: every length is compared with what the footer claims, and the
 * claims with the file's size (image_read.c), before anything is allocated.
 */
#include "image_index.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/tp_size.h"
#include "image_format.h"

#define FRAME_ENTRY 12u
#define SPAN_SIZE 24u
#define BLOCK_REST (3 * 8 + 2 * 4)
#define BLOCKS_HEAD 8u

struct chunk {
	const uint8_t *data;
	uint64_t length;
};

struct chunks {
	struct chunk blocks, frames, classes, extents, ranges;
};

uint64_t image_index_body_max(const struct image_claims *c)
{
	uint64_t max = 20 * c->frames + 7 * c->pages + 300 * (uint64_t)c->blocks + (64u << 10);

	return max < IMAGE_BODY_MAX ? max : IMAGE_BODY_MAX;
}

static bool bad(struct tp_error *err, const char *what)
{
	tp_fail(err, TP_ECORRUPT, "the image's index is damaged: %s", what);
	return false;
}

/* ---- the list of chunks */

static struct chunk *chunk_slot(struct chunks *c, uint32_t type)
{
	switch (type) {
	case IMAGE_CHUNK_BLOCKS: return &c->blocks;
	case IMAGE_CHUNK_FRAMES: return &c->frames;
	case IMAGE_CHUNK_CLASSES: return &c->classes;
	case IMAGE_CHUNK_EXTENTS: return &c->extents;
	case IMAGE_CHUNK_RANGES: return &c->ranges;
	default: return NULL;
	}
}

static bool split(const uint8_t *p, size_t n, struct chunks *c, struct tp_error *err)
{
	uint32_t last = 0;

	while (n) {
		uint32_t type;
		uint64_t length, whole;
		struct chunk *slot;

		if (n < IMAGE_CHUNK_HEAD)
			return bad(err, "a chunk is cut");
		type = tp_le32(p);
		length = tp_le64(p + 8);
		if (type <= last)
			return bad(err, "chunks are out of order");
		if (length > n - IMAGE_CHUNK_HEAD)
			return bad(err, "a chunk is longer than the index");
		whole = (length + 7) & ~(uint64_t)7;
		if (whole > n - IMAGE_CHUNK_HEAD)
			return bad(err, "a chunk's padding is cut");
		for (uint64_t i = length; i < whole; i++)
			if (p[IMAGE_CHUNK_HEAD + i])
				return bad(err, "a chunk's padding is not zero");
		slot = chunk_slot(c, type);
		if (slot)
			*slot = (struct chunk){ p + IMAGE_CHUNK_HEAD, length };
		else if (tp_le32(p + 4))
			return tp_fail(err, TP_EUNSUPPORTED,
				       "the image's index needs a feature (chunk %u) of a newer format", type);
		last = type;
		p += IMAGE_CHUNK_HEAD + whole;
		n -= IMAGE_CHUNK_HEAD + whole;
	}
	if (!c->blocks.data || !c->frames.data || !c->classes.data || !c->extents.data ||
	    !c->ranges.data)
		return bad(err, "a chunk is missing");
	return true;
}

/* ---- BLOCKS */

static bool parse_block(struct image_map *m, const uint8_t **p, const uint8_t *end,
			struct tp_error *err)
{
	uint64_t page = (uint64_t)1 << m->page_bits;
	size_t n;

	if (*p == end)
		return bad(err, "the list of RAM blocks is cut");
	n = **p;
	if ((size_t)(end - *p) < 1 + n + BLOCK_REST)
		return bad(err, "the list of RAM blocks is cut");
	if (!image_map_add(m, (const char *)*p + 1, n, tp_le64(*p + 1 + n), err))
		return false;
	m->blocks[m->nblocks - 1].host_page_size = tp_le64(*p + 9 + n);
	if (tp_le64(*p + 9 + n) < page || (tp_le64(*p + 9 + n) & (page - 1)))
		return bad(err, "a host page size is invalid");
	if (tp_le32(*p + 25 + n))
		return tp_fail(err, TP_EUNSUPPORTED, "RAM block \"%s\" is stored in a way not supported",
			       m->blocks[m->nblocks - 1].id);
	*p += 1 + n + BLOCK_REST;
	return true;
}

static bool parse_blocks(struct image_index *x, const struct chunk *c,
			 const struct image_claims *claims, struct tp_error *err)
{
	const uint8_t *p = c->data, *end = p + c->length;
	struct image_map m = { .page_bits = claims->page_bits };
	bool ok = true;

	if (c->length < BLOCKS_HEAD || tp_le32(p) != claims->blocks ||
	    tp_le32(p + 4) != claims->page_bits)
		return bad(err, "the list of RAM blocks contradicts the footer");
	p += BLOCKS_HEAD;
	for (unsigned i = 0; ok && i < claims->blocks; i++)
		ok = parse_block(&m, &p, end, err);
	if (ok && (p != end || m.pages != claims->pages))
		ok = bad(err, "the list of RAM blocks contradicts the footer");
	x->blocks = m.blocks;
	x->nblocks = m.nblocks;
	x->pages = m.pages;
	return ok;
}

/* ---- FRAMES */

static bool frames_alloc(struct image_index *x, uint64_t n, struct tp_error *err)
{
	x->stored_at = malloc((n + 1) * sizeof(*x->stored_at));
	x->raw_at = malloc((n + 1) * sizeof(*x->raw_at));
	x->block = malloc((n + 1) * sizeof(*x->block));
	x->flags = malloc((n + 1) * sizeof(*x->flags));
	if (!x->stored_at || !x->raw_at || !x->block || !x->flags)
		return tp_fail_nomem(err);
	x->frames = n;
	return true;
}

static bool parse_frames(struct image_index *x, const struct chunk *c,
			 const struct image_claims *claims, struct tp_error *err)
{
	uint64_t n = claims->frames, stored_sum = 0, raw_sum = 0;

	if (c->length != n * FRAME_ENTRY)
		return bad(err, "the number of frames contradicts the footer");
	if (!frames_alloc(x, n, err))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		uint32_t stored = tp_le32(c->data + 4 * i);
		uint32_t raw = tp_le32(c->data + 4 * n + 4 * i);

		x->block[i] = tp_le16(c->data + 8 * n + 2 * i);
		x->flags[i] = tp_le16(c->data + 10 * n + 2 * i);
		if (!raw || raw > IMAGE_FRAME_MAX || !stored || stored > ZSTD_compressBound(raw))
			return tp_fail(err, TP_ECORRUPT, "the image's index is damaged: frame %llu has an "
				       "impossible length", (unsigned long long)i);
		if ((x->block[i] != IMAGE_NO_BLOCK && x->block[i] >= x->nblocks) ||
		    (x->flags[i] & ~IMAGE_FRAME_FLAGS))
			return tp_fail(err, TP_ECORRUPT, "the image's index is damaged: frame %llu has an "
				       "invalid start", (unsigned long long)i);
		x->stored_at[i] = stored_sum;
		x->raw_at[i] = raw_sum;
		stored_sum += stored;
		raw_sum += raw;
	}
	x->stored_at[n] = stored_sum;
	x->raw_at[n] = raw_sum;
	if (stored_sum != claims->frame_bytes)
		return bad(err, "the frames' lengths do not add up to the file's");
	if (raw_sum != claims->raw_bytes)
		return bad(err, "the frames' raw lengths do not add up to the footer's");
	return true;
}

/* ---- CLASSES */

static bool parse_classes(struct image_index *x, const struct chunk *c,
			  const struct image_claims *claims, struct tp_error *err)
{
	struct image_map m = { .pages = claims->pages };
	uint64_t count[4];

	if (c->length != tp_div_up(claims->pages, 4))
		return bad(err, "the number of pages contradicts the footer");
	x->classes = malloc(c->length + 1);
	if (!x->classes)
		return tp_fail_nomem(err);
	memcpy(x->classes, c->data, c->length);
	m.classes = x->classes;
	image_map_count(&m, count);
	if (count[IMAGE_RAW])
		return bad(err, "pages in a raw file, which the image has not");
	if (count[IMAGE_DATA] != claims->pages_data || count[IMAGE_ZERO] != claims->pages_zero)
		return bad(err, "the classes of pages contradict the footer");
	if (claims->pages % 4 && c->data[c->length - 1] >> claims->pages % 4 * 2)
		return bad(err, "a class beyond the last page");
	return true;
}

/* ---- EXTENTS */

static bool leb128(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	*v = 0;
	for (unsigned shift = 0; *p < end && shift < 35; shift += 7) {
		uint8_t byte = *(*p)++;

		*v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

/* Each extent is two numbers, each of which ends in a byte without bit 7. */
static uint64_t count_extents(const struct chunk *c)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < c->length; i++)
		n += !(c->data[i] & 0x80);
	return n / 2;
}

static bool parse_extents(struct image_index *x, const struct chunk *c,
			  const struct image_claims *claims, struct tp_error *err)
{
	const uint8_t *p = c->data, *end = p + c->length;
	uint64_t page = 0, count, zigzag;
	int64_t frame = 0;

	x->runs = count_extents(c);
	if (x->runs > claims->pages)
		return bad(err, "more extents than pages");
	x->run_page = malloc((x->runs + 1) * sizeof(*x->run_page));
	x->run_frame = malloc((x->runs + 1) * sizeof(*x->run_frame));
	if (!x->run_page || !x->run_frame)
		return tp_fail_nomem(err);
	for (uint64_t i = 0; i < x->runs; i++) {
		if (!leb128(&p, end, &count) || !leb128(&p, end, &zigzag))
			return bad(err, "an extent is malformed");
		frame += zigzag & 1 ? -(int64_t)(zigzag >> 1) - 1 : (int64_t)(zigzag >> 1);
		if (!count || count > claims->pages - page || frame < 0 ||
		    (uint64_t)frame >= claims->frames)
			return bad(err, "an extent is out of bounds");
		x->run_page[i] = (uint32_t)page;
		x->run_frame[i] = (uint32_t)frame;
		page += count;
	}
	if (p != end || page != claims->pages)
		return bad(err, "the extents do not cover the pages");
	return true;
}

/* ---- RANGES */

static bool parse_ranges(struct image_index *x, const struct chunk *c,
			 const struct image_claims *claims, struct tp_error *err)
{
	uint64_t n = c->length / SPAN_SIZE, end = 0;

	if (c->length % SPAN_SIZE || n > IMAGE_RANGES_MAX)
		return bad(err, "the list of ranges is malformed");
	x->spans = calloc(n + 1, sizeof(*x->spans));
	if (!x->spans)
		return tp_fail_nomem(err);
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *p = c->data + (uint64_t)i * SPAN_SIZE;
		struct image_span *s = &x->spans[i];

		*s = (struct image_span){ tp_le32(p), tp_le64(p + 8), tp_le64(p + 16) };
		if (s->kind < IMAGE_RANGE_PROLOGUE || s->kind > IMAGE_RANGE_VMDESC || tp_le32(p + 4))
			return bad(err, "a range of unknown kind");
		if (s->offset < end || s->offset > claims->raw_bytes ||
		    s->length > claims->raw_bytes - s->offset)
			return bad(err, "a range is out of bounds");
		end = s->offset + s->length;
	}
	x->nspans = (unsigned)n;
	return true;
}

/* ---- use */

uint64_t image_index_run(const struct image_index *x, uint64_t page)
{
	uint64_t low = 0, high = x->runs;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (x->run_page[middle] <= page)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* ---- all */

void image_index_free(struct image_index *x)
{
	free(x->blocks);
	free(x->stored_at);
	free(x->raw_at);
	free(x->block);
	free(x->flags);
	free(x->classes);
	free(x->run_page);
	free(x->run_frame);
	free(x->spans);
	memset(x, 0, sizeof(*x));
}

static bool claims_ok(const struct image_claims *c, struct tp_error *err)
{
	if (c->frames > IMAGE_FRAMES_MAX || c->pages > IMAGE_PAGES_MAX ||
	    c->blocks > IMAGE_BLOCKS_MAX || c->page_bits < IMAGE_PAGE_BITS_MIN ||
	    c->page_bits > IMAGE_PAGE_BITS_MAX)
		return tp_fail(err, TP_ECORRUPT, "the image's footer is damaged: a number is out of bounds");
	return true;
}

bool image_index_parse(const uint8_t *body, size_t n, const struct image_claims *claims,
		       struct image_index *x, struct tp_error *err)
{
	struct chunks c = { 0 };

	memset(x, 0, sizeof(*x));
	if (claims_ok(claims, err) && split(body, n, &c, err) &&
	    parse_blocks(x, &c.blocks, claims, err) && parse_frames(x, &c.frames, claims, err) &&
	    parse_classes(x, &c.classes, claims, err) &&
	    parse_extents(x, &c.extents, claims, err) && parse_ranges(x, &c.ranges, claims, err))
		return true;
	image_index_free(x);
	return false;
}
