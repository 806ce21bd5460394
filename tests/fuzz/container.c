/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* container.c - A memory image made of a fuzzer's input, with all its checksums right */
#include "fuzz/container.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

#include "base/tp_size.h"
#include "storage/image_format.h"

#define LEVEL 1
#define FRAME_ENTRY 12u

struct bytes {
	uint8_t *p;
	size_t n, cap;
};

struct making {
	const uint8_t *data;
	size_t size;
	struct bytes file, raw;		/* raw: of the item at hand */
	uint32_t stored[CONTAINER_FRAMES_MAX], raw_length[CONTAINER_FRAMES_MAX];
	unsigned frames, options;
	size_t decoded;
	XXH64_state_t *sum;		/* over the frames, for the footer */
	uint64_t raw_bytes;
	struct image_footer footer;
};

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

static void *add(struct bytes *b, const void *data, size_t n)
{
	if (!b->p || n > b->cap - b->n) {
		b->cap = 2 * (b->n + n) + 64;
		b->p = need(realloc(b->p, b->cap));
	}
	if (data && n)
		memcpy(b->p + b->n, data, n);
	b->n += n;
	return b->p + b->n - n;
}

size_t container_next(const uint8_t *data, size_t size, const uint8_t **payload, size_t *length)
{
	size_t n;

	if (size < CONTAINER_ITEM_HEAD)
		return 0;
	n = tp_le16(data + 1);
	*length = n < size - CONTAINER_ITEM_HEAD ? n : size - CONTAINER_ITEM_HEAD;
	*payload = data + CONTAINER_ITEM_HEAD;
	return CONTAINER_ITEM_HEAD + *length;
}

/* Decodes a payload into m->raw. */
static void decode(struct making *m, const uint8_t *p, size_t n)
{
	m->raw.n = 0;
	while (n > 2) {
		unsigned word = tp_le16(p);
		size_t run = word & 0x7fff, taken = word & 0x8000 ? 1 : run < n - 2 ? run : n - 2;
		size_t length = word & 0x8000 ? run : taken;
		uint8_t *to;

		if (length > CONTAINER_RAW_MAX - m->decoded)
			return;
		m->decoded += length;
		to = add(&m->raw, NULL, length);
		if (word & 0x8000)
			memset(to, p[2], length);
		else
			memcpy(to, p + 2, length);
		p += 2 + taken;
		n -= 2 + taken;
	}
}

/* Payloads of all items of a type, in turn. */
static bool each(const struct making *m, unsigned type, size_t *at, const uint8_t **p, size_t *n)
{
	while (*at < m->size) {
		const uint8_t *item = m->data + *at;
		size_t length = container_next(item, m->size - *at, p, n);

		if (!length)
			return false;
		*at += length;
		if (item[0] == type)
			return true;
	}
	return false;
}

static void patch(const struct making *m, unsigned type, void *over, size_t size)
{
	const uint8_t *p;
	size_t at = 0, n;

	while (each(m, type, &at, &p, &n)) {
		size_t from = n < 2 ? size : tp_le16(p);

		if (from < size)
			memcpy((uint8_t *)over + from, p + 2, n - 2 < size - from ? n - 2 : size - from);
	}
}

static void put_header(struct making *m)
{
	struct image_header h = { .skip_magic = 0 };
	uint8_t *at = add(&m->file, NULL, IMAGE_HEADER_SIZE);

	memset(at, 0, IMAGE_HEADER_SIZE);
	tp_put_le32(&h.skip_magic, IMAGE_SKIPPABLE);
	tp_put_le32(&h.skip_length, IMAGE_HEADER_SIZE - 8);
	memcpy(h.magic, IMAGE_HEADER_MAGIC, IMAGE_MAGIC_SIZE);
	tp_put_le16(&h.major, IMAGE_MAJOR);
	tp_put_le32(&h.header_size, IMAGE_HEADER_SIZE);
	tp_put_le32(&h.codec, IMAGE_CODEC_ZSTD);
	tp_put_le32(&h.frame_target, 262144);
	memcpy(at, &h, sizeof(h));
}

/* The header is sealed when the length is known. */
static void seal_header(struct making *m)
{
	struct image_header h;

	memcpy(&h, m->file.p, sizeof(h));
	tp_put_le64(&h.sealed_size, m->file.n);
	patch(m, CONTAINER_HEADER, &h, offsetof(struct image_header, checksum));
	tp_put_le64(&h.checksum, XXH64(&h, offsetof(struct image_header, checksum), 0));
	memcpy(m->file.p, &h, sizeof(h));
}

static void compress(struct bytes *to, const uint8_t *data, size_t n, bool checksum)
{
	ZSTD_CCtx *ctx = need(ZSTD_createCCtx());
	size_t bound = ZSTD_compressBound(n), done;
	uint8_t *at = add(to, NULL, bound);

	ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, LEVEL);
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, checksum);
	done = ZSTD_compress2(ctx, at, bound, data, n);
	if (ZSTD_isError(done))
		abort();
	ZSTD_freeCCtx(ctx);
	to->n -= bound - done;
}

static void frame_written(struct making *m, size_t from, uint32_t raw)
{
	uint32_t stored = (uint32_t)(m->file.n - from);
	uint8_t item[8] = { 0 };

	m->stored[m->frames] = stored;
	m->raw_length[m->frames++] = raw;
	m->raw_bytes += raw;
	tp_put_le32(item, raw);
	if (stored >= 4)
		memcpy(item + 4, m->file.p + m->file.n - 4, 4);
	XXH64_update(m->sum, item, sizeof(item));
}

static void put_frames(struct making *m)
{
	const uint8_t *p;
	size_t at = 0, n, length;

	for (const uint8_t *item; m->frames < CONTAINER_FRAMES_MAX && at < m->size; at += length) {
		size_t from = m->file.n;

		item = m->data + at;
		length = container_next(item, m->size - at, &p, &n);
		if (!length)
			break;
		if (item[0] == CONTAINER_FRAME) {
			decode(m, p, n);
			compress(&m->file, m->raw.p, m->raw.n, true);
			frame_written(m, from, (uint32_t)m->raw.n);
		} else if (item[0] == CONTAINER_STORED) {
			unsigned long long raw = ZSTD_getFrameContentSize(p, n);

			add(&m->file, p, n);
			frame_written(m, from, raw > UINT32_MAX ? 1 : (uint32_t)raw);
		} else if (item[0] == CONTAINER_OPTION && n) {
			m->options |= *p;
		}
	}
}

/* ---- index: what its chunks say goes into the footer, what the frames are goes into its chunks */

static void count_blocks(struct making *m, const uint8_t *p, uint64_t n)
{
	uint32_t count, bits;
	uint64_t pages = 0;

	if (n < 8)
		return;
	count = tp_le32(p);
	bits = tp_le32(p + 4);
	for (uint64_t at = 8; at < n && bits < 64;) {
		uint64_t id = p[at];

		if (n - at < 1 + id + 8)
			break;
		pages += tp_le64(p + at + 1 + id) >> bits;
		at += 1 + id + 32;
	}
	tp_put_le64(&m->footer.pages, pages);
	m->footer.page_bits = (uint8_t)bits;
	tp_put_le16(&m->footer.blocks, (uint16_t)count);
}

static void count_classes(struct making *m, const uint8_t *p, uint64_t n)
{
	uint64_t count[4] = { 0 };

	for (uint64_t i = 0; i < n * 4; i++)
		count[p[i / 4] >> i % 4 * 2 & 3]++;
	tp_put_le64(&m->footer.pages_zero, count[IMAGE_ZERO]);
	tp_put_le64(&m->footer.pages_data, count[IMAGE_DATA]);
}

static void fill_lengths(const struct making *m, uint8_t *p, uint64_t n)
{
	if (n != m->frames * FRAME_ENTRY || m->options & CONTAINER_KEEP_LENGTHS)
		return;
	for (unsigned i = 0; i < m->frames; i++) {
		tp_put_le32(p + 4 * i, m->stored[i]);
		tp_put_le32(p + 4 * m->frames + 4 * i, m->raw_length[i]);
	}
}

static void join_body(struct making *m, uint8_t *p, size_t n)
{
	while (n >= IMAGE_CHUNK_HEAD) {
		uint64_t length = tp_le64(p + 8), whole;
		uint8_t *chunk = p + IMAGE_CHUNK_HEAD;

		if (length > n - IMAGE_CHUNK_HEAD)
			return;
		if (tp_le32(p) == IMAGE_CHUNK_BLOCKS)
			count_blocks(m, chunk, length);
		else if (tp_le32(p) == IMAGE_CHUNK_CLASSES)
			count_classes(m, chunk, length);
		else if (tp_le32(p) == IMAGE_CHUNK_FRAMES)
			fill_lengths(m, chunk, length);
		whole = (length + 7) & ~(uint64_t)7;
		if (whole > n - IMAGE_CHUNK_HEAD)
			return;
		p = chunk + whole;
		n -= IMAGE_CHUNK_HEAD + whole;
	}
}

static void put_index(struct making *m)
{
	struct image_index_head head = { .skip_magic = 0 };
	size_t from = m->file.n, at = 0, n, stored;
	const uint8_t *p;

	m->raw.n = 0;
	if (each(m, CONTAINER_BODY, &at, &p, &n))
		decode(m, p, n);
	join_body(m, m->raw.p, m->raw.n);
	add(&m->file, NULL, sizeof(head));
	compress(&m->file, m->raw.p, m->raw.n, false);
	stored = m->file.n - from - sizeof(head);
	tp_put_le32(&head.skip_magic, IMAGE_SKIPPABLE);
	tp_put_le32(&head.skip_length, (uint32_t)(sizeof(head) - 8 + stored));
	memcpy(head.magic, IMAGE_INDEX_MAGIC, IMAGE_MAGIC_SIZE);
	tp_put_le64(&head.body_length, m->raw.n);
	tp_put_le64(&head.stored_length, stored);
	tp_put_le64(&head.checksum, XXH64(m->file.p + from + sizeof(head), stored, 0));
	memcpy(&m->footer.index_checksum, &head.checksum, 8);
	patch(m, CONTAINER_HEAD, &head, sizeof(head));
	memcpy(m->file.p + from, &head, sizeof(head));
	tp_put_le64(&m->footer.index_offset, from);
	tp_put_le64(&m->footer.index_length, m->file.n - from);
}

static void put_footer(struct making *m)
{
	struct image_footer *f = &m->footer;

	tp_put_le32(&f->skip_magic, IMAGE_SKIPPABLE);
	tp_put_le32(&f->skip_length, IMAGE_FOOTER_SIZE - 8);
	memcpy(f->magic, IMAGE_FOOTER_MAGIC, IMAGE_MAGIC_SIZE);
	tp_put_le64(&f->frames, m->frames);
	tp_put_le64(&f->raw_bytes, m->raw_bytes);
	tp_put_le64(&f->frames_checksum, XXH64_digest(m->sum));
	patch(m, CONTAINER_FOOTER, f, offsetof(struct image_footer, checksum));
	tp_put_le64(&f->checksum, XXH64(f, offsetof(struct image_footer, checksum), 0));
	add(&m->file, f, sizeof(*f));
}

static void put_damage(const struct making *m)
{
	const uint8_t *p;
	size_t at = 0, n;

	while (each(m, CONTAINER_DAMAGE, &at, &p, &n)) {
		size_t from = n < 4 ? m->file.n : tp_le32(p) % m->file.n;

		if (from < m->file.n)
			memcpy(m->file.p + from, p + 4, n - 4 < m->file.n - from ? n - 4 : m->file.n - from);
	}
}

uint8_t *container_make(const uint8_t *data, size_t size, size_t *n, unsigned *options)
{
	struct making m = { .data = data, .size = size, .sum = need(XXH64_createState()) };

	XXH64_reset(m.sum, 0);
	put_header(&m);
	put_frames(&m);
	put_index(&m);
	put_footer(&m);
	seal_header(&m);
	put_damage(&m);
	XXH64_freeState(m.sum);
	free(m.raw.p);
	*n = m.file.n;
	*options = m.options;
	return m.file.p;
}
