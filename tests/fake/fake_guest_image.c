/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_guest_image.c - A sealed image of a guest's memory whose every page is known by its number */
#include "fake/fake_guest_image.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_size.h"
#include "storage/image_map.h"
#include "storage/image_write.h"

#define WAIT_MS 60000
#define DEVICE_BYTES 3000u
#define VMDESC "{\"devices\": []}"

static void must(bool good, const struct tp_error *err, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fake guest image: %s: %s\n", what, err ? err->text : "");
	abort();
}

enum image_class fake_guest_class(uint64_t page)
{
	if (page % 16 == 15)
		return IMAGE_ABSENT;
	return page % 4 == 1 ? IMAGE_ZERO : IMAGE_DATA;
}

void fake_guest_fill(uint64_t page, uint8_t *buf)
{
	uint64_t x = (page + 1) * 0x9e3779b97f4a7c15u;

	for (size_t i = 0; i < FAKE_GUEST_PAGE; i += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(buf + i, &x, sizeof(x));
	}
}

uint64_t fake_guest_data_pages(uint64_t pages)
{
	uint64_t n = 0;

	for (uint64_t page = 0; page < pages; page++)
		n += fake_guest_class(page) == IMAGE_DATA;
	return n;
}

/* ---- the stream */

static void add(struct fake_guest_image *g, const void *data, size_t n)
{
	must(tp_buf_add(&g->raw, data, n), NULL, "memory");
}

static void add_u8(struct fake_guest_image *g, uint8_t v)
{
	add(g, &v, 1);
}

static void add_be32(struct fake_guest_image *g, uint32_t v)
{
	uint8_t p[4];

	tp_put_be32(p, v);
	add(g, p, sizeof(p));
}

static void add_be64(struct fake_guest_image *g, uint64_t v)
{
	uint8_t p[8];

	tp_put_be64(p, v);
	add(g, p, sizeof(p));
}

static void add_pstr(struct fake_guest_image *g, const char *text)
{
	add_u8(g, (uint8_t)strlen(text));
	add(g, text, strlen(text));
}

static void add_head(struct fake_guest_image *g, uint8_t type, uint32_t id, const char *name,
		     uint32_t version)
{
	add_u8(g, type);
	add_be32(g, id);
	add_pstr(g, name);
	add_be32(g, 0);
	add_be32(g, version);
}

static void add_end(struct fake_guest_image *g)
{
	add_be64(g, 0x10);
	add_u8(g, 0x7e);
	add_be32(g, FAKE_GUEST_RAM_ID);
}

static void add_start(struct fake_guest_image *g, const struct fake_guest_block *blocks,
		      unsigned nblocks)
{
	uint64_t total = 0;

	add(g, "QEVM\0\0\0\3\7\0\0\0\2pc", 15);
	g->prologue = g->raw.len;
	for (unsigned i = 0; i < nblocks; i++)
		total += blocks[i].pages * FAKE_GUEST_PAGE;
	g->ram_start = g->raw.len;
	add_head(g, 1, FAKE_GUEST_RAM_ID, "ram", 4);
	add_be64(g, total | 4);
	for (unsigned i = 0; i < nblocks; i++) {
		add_pstr(g, blocks[i].id);
		add_be64(g, blocks[i].pages * FAKE_GUEST_PAGE);
	}
	add_end(g);
	g->ram_start_bytes = g->raw.len - g->ram_start;
}

static void add_page(struct fake_guest_image *g, const char *id, uint64_t address, uint64_t page,
		     enum image_class class_)
{
	uint8_t bytes[FAKE_GUEST_PAGE];

	add_be64(g, address | (class_ == IMAGE_DATA ? 8 : 2) | (id ? 0 : 0x20));
	if (id)
		add_pstr(g, id);
	fake_guest_fill(page, bytes);
	if (class_ == IMAGE_DATA)
		add(g, bytes, sizeof(bytes));
	else
		add_u8(g, 0);
}

static void add_devices(struct fake_guest_image *g)
{
	uint8_t bytes[DEVICE_BYTES];

	g->devices = g->raw.len;
	add_head(g, 4, 3, "cpu", 1);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	add(g, bytes, sizeof(bytes));
	add_u8(g, 0x7e);
	add_be32(g, 3);
	g->device_bytes = g->raw.len - g->devices;
	add_u8(g, 0);
	add_u8(g, 6);
	add_be32(g, sizeof(VMDESC) - 1);
	add(g, VMDESC, sizeof(VMDESC) - 1);
}

/* ---- frames */

/* @from: raw offset of the frame being filled; @block: current one where it begins */
struct maker {
	struct fake_guest_image *g;
	struct frame_pool *pool;
	struct image_map map;
	size_t from;
	uint16_t block, flags;
};

static void cut(struct maker *m, uint16_t next_block, uint16_t next_flags)
{
	struct tp_error err = TP_ERROR_INIT;
	size_t n = m->g->raw.len - m->from;
	bool failed = false;
	struct frame_buf *b = frame_pool_get(m->pool, WAIT_MS, &failed);

	must(b && m->g->frames < FAKE_GUEST_FRAMES, &err, "too many frames");
	must(frame_buf_grow(b, n, 0, &err), &err, "buffer");
	memcpy(b->data, m->g->raw.data + m->from, n);
	frame_pool_submit(m->pool, (uint32_t)n, m->block, m->flags);
	m->g->frames++;
	m->from = m->g->raw.len;
	m->block = next_block;
	m->flags = next_flags;
}

static void add_pages(struct maker *m, const struct fake_guest_block *blocks, unsigned nblocks,
		      unsigned per_frame)
{
	struct fake_guest_image *g = m->g;
	unsigned in_frame = 0;

	for (unsigned i = 0; i < nblocks; i++) {
		const char *id = blocks[i].id;

		for (uint64_t k = 0; k < blocks[i].pages; k++, g->pages++) {
			enum image_class class_ = fake_guest_class(g->pages);

			if (class_ == IMAGE_ABSENT)
				continue;
			if (class_ == IMAGE_DATA && in_frame++ == per_frame) {
				cut(m, id ? (uint16_t)(i - 1) : (uint16_t)i, IMAGE_FRAME_IN_RAM);
				in_frame = 1;
			}
			if (class_ == IMAGE_DATA)
				m->flags |= IMAGE_FRAME_DATA;
			add_page(g, id, k * FAKE_GUEST_PAGE, g->pages, class_);
			image_map_set(&m->map, g->pages, class_, (uint32_t)g->frames);
			id = NULL;
		}
	}
	add_end(g);
	cut(m, (uint16_t)(nblocks - 1), IMAGE_FRAME_DEVICE);
}

static void seal(struct maker *m, struct image_writer *w)
{
	struct fake_guest_image *g = m->g;
	struct image_span spans[] = {
		{ IMAGE_RANGE_PROLOGUE, 0, g->prologue },
		{ IMAGE_RANGE_RAM_START, g->ram_start, g->ram_start_bytes },
		{ IMAGE_RANGE_DEVICES, g->devices, g->device_bytes },
		{ IMAGE_RANGE_VMDESC, g->devices + g->device_bytes + 1, 5 + sizeof(VMDESC) - 1 },
	};
	struct tp_error err = TP_ERROR_INIT;
	struct image_sealed sealed;
	bool done = false;

	must(frame_pool_finish(m->pool, WAIT_MS, &done, &err) && done, &err, "frames");
	must(image_writer_seal(w, &m->map, spans, 4, IMAGE_STOPPED, &sealed, &err), &err, "seal");
	g->frame_at[0] = IMAGE_HEADER_SIZE;
	for (uint64_t i = 0; i < g->frames; i++)
		g->frame_at[i + 1] = g->frame_at[i] + frame_pool_table(m->pool)->stored[i];
}

void fake_guest_image_make(struct fake_guest_image *g, const struct fake_guest_block *blocks,
			   unsigned nblocks, unsigned data_pages_per_frame)
{
	struct image_writer_options o = { .uuid = { 7 }, .created_us = 1, .threads = 2, .level = 1 };
	struct maker m = { .g = g, .map = { .page_bits = 12 }, .block = IMAGE_NO_BLOCK };
	struct tp_error err = TP_ERROR_INIT;
	struct image_writer *w;

	*g = (struct fake_guest_image){ .fd = memfd_create("image", MFD_CLOEXEC) };
	o.fd = g->fd;
	w = image_writer_new(&o, &err);
	must(g->fd >= 0 && w, &err, "writer");
	m.pool = image_writer_pool(w);
	for (unsigned i = 0; i < nblocks; i++)
		must(image_map_add(&m.map, blocks[i].id, strlen(blocks[i].id),
				   blocks[i].pages * FAKE_GUEST_PAGE, &err), &err, "block");
	must(image_map_alloc(&m.map, &err), &err, "map");
	add_start(g, blocks, nblocks);
	add_u8(g, 3);
	add_be32(g, FAKE_GUEST_RAM_ID);
	add_pages(&m, blocks, nblocks, data_pages_per_frame);
	add_devices(g);
	cut(&m, IMAGE_NO_BLOCK, 0);
	seal(&m, w);
	image_map_free(&m.map);
	image_writer_free(w);
}

void fake_guest_image_free(struct fake_guest_image *g)
{
	close(g->fd);
	tp_buf_free(&g->raw);
}

void fake_guest_image_damage(const struct fake_guest_image *g, uint64_t frame)
{
	off_t at = (off_t)(g->frame_at[frame] + (g->frame_at[frame + 1] - g->frame_at[frame]) / 2);
	struct tp_error err = TP_ERROR_INIT;
	uint8_t byte;

	must(tp_pread_all(g->fd, &byte, 1, at, &err), &err, "read");
	byte ^= 0xff;
	must(tp_pwrite_all(g->fd, &byte, 1, at, &err), &err, "write");
}
