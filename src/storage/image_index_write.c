/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_index_write.c - Write the index of a memory image
 *
 * The body is emitted piece by piece through zstd into the file, so that the
 * largest index needs no more memory than a small one. Its length must be
 * known before (zstd's content size): the extents, the only part of unknown
 * length, are walked twice. The head in front is written last, when stored
 * length and checksum are known.
 */
#include "image_index.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"
#include "image_format.h"

#define INDEX_LEVEL 3
#define INDEX_BUFFER (256u << 10)
#define PIECE (32u << 10)
#define LEB128_MAX 10

struct emitter {
	ZSTD_CCtx *ctx;
	XXH64_state_t *sum;
	uint8_t *buf;
	int fd;
	uint64_t at, stored, limit;
	struct tp_error *err;
};

/* ---- body bytes into the file */

static bool emit_stored(struct emitter *e, const void *data, size_t n)
{
	const uint8_t *p = data;

	XXH64_update(e->sum, data, n);
	if (e->limit && e->at + e->stored + n > e->limit)
		return image_write_error(e->err, ENOSPC, "write of the index", e->at + e->stored);
	while (n) {
		ssize_t done = pwrite(e->fd, p, n, (off_t)(e->at + e->stored));

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return image_write_error(e->err, done ? errno : ENOSPC,
						 "write of the index", e->at + e->stored);
		p += done;
		n -= (size_t)done;
		e->stored += (uint64_t)done;
	}
	return true;
}

static bool emit_flush(struct emitter *e, ZSTD_inBuffer *in, ZSTD_EndDirective mode)
{
	size_t left;

	do {
		ZSTD_outBuffer out = { .dst = e->buf, .size = INDEX_BUFFER };

		left = ZSTD_compressStream2(e->ctx, &out, in, mode);
		if (ZSTD_isError(left))
			return tp_fail(e->err, TP_ENOMEM, "zstd: %s", ZSTD_getErrorName(left));
		if (out.pos && !emit_stored(e, out.dst, out.pos))
			return false;
	} while (mode == ZSTD_e_end ? left : in->pos < in->size);
	return true;
}

static bool emit(struct emitter *e, const void *data, size_t n)
{
	ZSTD_inBuffer in = { .src = data, .size = n };

	return emit_flush(e, &in, ZSTD_e_continue);
}

static uint64_t padded(uint64_t n)
{
	return (n + 7) & ~(uint64_t)7;
}

static bool emit_head(struct emitter *e, uint32_t type, uint64_t length)
{
	uint8_t head[IMAGE_CHUNK_HEAD];

	tp_put_le32(head, type);
	tp_put_le32(head + 4, 1);
	tp_put_le64(head + 8, length);
	return emit(e, head, sizeof(head));
}

static bool emit_padding(struct emitter *e, uint64_t length)
{
	static const uint8_t zero[8];

	return emit(e, zero, padded(length) - length);
}

/* ---- BLOCKS */

#define BLOCK_FIXED (1 + 3 * 8 + 2 * 4)

static uint64_t blocks_length(const struct image_map *m)
{
	uint64_t n = 8;

	for (unsigned i = 0; i < m->nblocks; i++)
		n += BLOCK_FIXED + strlen(m->blocks[i].id);
	return n;
}

static bool emit_blocks(struct emitter *e, const struct image_map *m)
{
	uint8_t buf[IMAGE_BLOCK_ID_MAX + BLOCK_FIXED];
	uint64_t length = blocks_length(m);

	tp_put_le32(buf, m->nblocks);
	tp_put_le32(buf + 4, m->page_bits);
	if (!emit_head(e, IMAGE_CHUNK_BLOCKS, length) || !emit(e, buf, 8))
		return false;
	for (unsigned i = 0; i < m->nblocks; i++) {
		const struct image_block *b = &m->blocks[i];
		size_t n = strlen(b->id);

		buf[0] = (uint8_t)n;
		memcpy(buf + 1, b->id, n);
		tp_put_le64(buf + 1 + n, b->used_length);
		tp_put_le64(buf + 9 + n, b->host_page_size);
		tp_put_le64(buf + 17 + n, UINT64_MAX);
		tp_put_le32(buf + 25 + n, 0);
		tp_put_le32(buf + 29 + n, 0);
		if (!emit(e, buf, n + BLOCK_FIXED))
			return false;
	}
	return emit_padding(e, length);
}

/* ---- FRAMES */

static bool emit_u32s(struct emitter *e, const uint32_t *v, uint64_t n)
{
	uint8_t buf[PIECE];
	size_t fill = 0;

	for (uint64_t i = 0; i < n; i++) {
		tp_put_le32(buf + fill, v[i]);
		fill += 4;
		if (fill == sizeof(buf) && !emit(e, buf, fill))
			return false;
		fill %= sizeof(buf);
	}
	return emit(e, buf, fill);
}

static bool emit_u16s(struct emitter *e, const uint16_t *v, uint64_t n)
{
	uint8_t buf[PIECE];
	size_t fill = 0;

	for (uint64_t i = 0; i < n; i++) {
		tp_put_le16(buf + fill, v[i]);
		fill += 2;
		if (fill == sizeof(buf) && !emit(e, buf, fill))
			return false;
		fill %= sizeof(buf);
	}
	return emit(e, buf, fill);
}

static bool emit_frames(struct emitter *e, const struct frame_table *t)
{
	uint64_t length = t->n * 12;

	return emit_head(e, IMAGE_CHUNK_FRAMES, length) && emit_u32s(e, t->stored, t->n) &&
	       emit_u32s(e, t->raw, t->n) && emit_u16s(e, t->block, t->n) &&
	       emit_u16s(e, t->flags, t->n) && emit_padding(e, length);
}

/* ---- CLASSES */

static bool emit_classes(struct emitter *e, const struct image_map *m)
{
	uint64_t length = tp_div_up(m->pages, 4);

	return emit_head(e, IMAGE_CHUNK_CLASSES, length) && emit(e, m->classes, length) &&
	       emit_padding(e, length);
}

/* ---- EXTENTS */

static size_t leb128(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	do {
		p[n] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
		n++;
	} while (v);
	return n;
}

static size_t extent(uint8_t *p, uint64_t count, uint32_t frame, uint32_t previous)
{
	int64_t delta = (int64_t)frame - previous;
	uint64_t zigzag = delta < 0 ? ((uint64_t)-delta << 1) - 1 : (uint64_t)delta << 1;
	size_t n = leb128(p, count);

	return n + leb128(p + n, zigzag);
}

/*
 * Walks the runs; pages that are not data belong to the run before them (or the first one). With
 * e NULL only *length is made.
 */
static bool walk_extents(struct emitter *e, const struct image_map *m, uint64_t *length)
{
	uint8_t buf[PIECE + 2 * LEB128_MAX];
	uint64_t start = 0, total = 0;
	uint32_t frame = 0, previous = 0;
	bool any = false;
	size_t fill = 0;

	for (uint64_t page = 0; page <= m->pages; page++) {
		bool end = page == m->pages;

		if (!end && image_map_class(m, page) != IMAGE_DATA)
			continue;
		if (!end && (!any || m->frame_of[page] == frame)) {
			frame = m->frame_of[page];
			any = true;
			continue;
		}
		if (page > start)
			fill += extent(buf + fill, page - start, frame, previous);
		if (e && (end || fill >= PIECE) && !emit(e, buf, fill))
			return false;
		if (!e || fill >= PIECE || end) {
			total += fill;
			fill = 0;
		}
		previous = frame;
		start = page;
		frame = end ? 0 : m->frame_of[page];
	}
	*length = total;
	return true;
}

static bool emit_extents(struct emitter *e, const struct image_map *m, uint64_t length)
{
	uint64_t emitted;

	return emit_head(e, IMAGE_CHUNK_EXTENTS, length) && walk_extents(e, m, &emitted) &&
	       emit_padding(e, length);
}

/* ---- RANGES */

#define SPAN_SIZE 24u

static bool emit_ranges(struct emitter *e, const struct image_span *spans, unsigned n)
{
	uint8_t buf[SPAN_SIZE];

	if (!emit_head(e, IMAGE_CHUNK_RANGES, (uint64_t)n * SPAN_SIZE))
		return false;
	for (unsigned i = 0; i < n; i++) {
		tp_put_le32(buf, spans[i].kind);
		tp_put_le32(buf + 4, 0);
		tp_put_le64(buf + 8, spans[i].offset);
		tp_put_le64(buf + 16, spans[i].length);
		if (!emit(e, buf, sizeof(buf)))
			return false;
	}
	return true;
}

/* ---- all */

static bool emit_body(struct emitter *e, const struct image_index_source *src, uint64_t *body)
{
	ZSTD_inBuffer nothing = { 0 };
	uint64_t extents;

	walk_extents(NULL, src->map, &extents);
	*body = 5 * IMAGE_CHUNK_HEAD + padded(blocks_length(src->map)) +
		padded(src->frames->n * 12) + padded(tp_div_up(src->map->pages, 4)) +
		padded(extents) + (uint64_t)src->nspans * SPAN_SIZE;
	if (*body > IMAGE_BODY_MAX)
		return tp_fail(e->err, TP_ELIMIT, "the image's index of %llu bytes is larger than supported",
			       (unsigned long long)*body);
	ZSTD_CCtx_setParameter(e->ctx, ZSTD_c_compressionLevel, INDEX_LEVEL);
	ZSTD_CCtx_setParameter(e->ctx, ZSTD_c_checksumFlag, 1);
	ZSTD_CCtx_setPledgedSrcSize(e->ctx, *body);
	return emit_blocks(e, src->map) && emit_frames(e, src->frames) &&
	       emit_classes(e, src->map) && emit_extents(e, src->map, extents) &&
	       emit_ranges(e, src->spans, src->nspans) && emit_flush(e, &nothing, ZSTD_e_end);
}

static bool write_head(struct emitter *e, uint64_t at, uint64_t body, uint64_t checksum)
{
	struct emitter head = { .sum = e->sum, .fd = e->fd, .at = at, .err = e->err };
	struct image_index_head h = {
		.skip_magic = htole32(IMAGE_SKIPPABLE),
		.skip_length = htole32((uint32_t)(e->stored + sizeof(h) - 8)),
		.body_length = htole64(body),
		.stored_length = htole64(e->stored),
		.checksum = htole64(checksum),
	};

	memcpy(h.magic, IMAGE_INDEX_MAGIC, IMAGE_MAGIC_SIZE);
	return emit_stored(&head, &h, sizeof(h));
}

bool image_index_write(const struct image_index_source *src, int fd, uint64_t at, uint64_t limit,
		       uint64_t *length, uint64_t *checksum, struct tp_error *err)
{
	struct emitter e = {
		.ctx = ZSTD_createCCtx(), .sum = XXH64_createState(), .buf = malloc(INDEX_BUFFER),
		.fd = fd, .at = at + sizeof(struct image_index_head), .limit = limit, .err = err,
	};
	uint64_t body;
	bool ok = e.ctx && e.sum && e.buf;

	if (ok) {
		XXH64_reset(e.sum, 0);
		ok = emit_body(&e, src, &body);
	} else {
		tp_fail_nomem(err);
	}
	if (ok && e.stored > IMAGE_INDEX_STORED_MAX)
		ok = tp_fail(err, TP_ELIMIT, "the image's index is larger than supported");
	if (ok) {
		*checksum = XXH64_digest(e.sum);
		*length = sizeof(struct image_index_head) + e.stored;
		ok = write_head(&e, at, body, *checksum);
	}
	ZSTD_freeCCtx(e.ctx);
	XXH64_freeState(e.sum);
	free(e.buf);
	return ok;
}
