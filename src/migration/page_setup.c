/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_setup.c - The page server's handshakes: prologue and package, and the recovery
 *
 * The order is QEMU's own as a source (migration/savevm.c, ram.c):
 *
 *   begin     magic, configuration; OPEN_RETURN_PATH; ADVISE; block list; early device sections;
 *             DISCARD of everything; PING. Its PONG says that QEMU can do post-copy at all.
 *   package   LISTEN, devices, PING, RUN. Loading devices touches memory: pages are served from
 *             here on. Its PONG says that the devices were loaded.
 *   recover   RECV_BITMAP of each block, answered by what QEMU has; RESUME, answered by RESUME_ACK.
 *
 * Everything is put together before the first byte goes: a QEMU 7.2 does not
 * survive a connection that breaks during the recovery.
 */
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"
#include "page_server_priv.h"
#include "storage/image_page.h"
#include "storage/image_raw.h"
#include "storage/image_record.h"
#include "stream_parse.h"
#include "stream_write.h"

#define PROLOGUE_MAX (8u << 20)
#define PONG_READY 1u
#define PONG_LOADED 2u

/* ---- putting together */

static bool add_range(struct page_server *s, uint32_t kind, unsigned nth, struct tp_buf *out,
		      struct tp_error *err)
{
	uint64_t offset, length;

	return image_range(s->img, kind, nth, &offset, &length) ?
	       image_raw_read(s->img, offset, length, out, err) :
	       tp_fail(err, TP_ECORRUPT, "the image lacks a part of its stream (kind %u)", kind);
}

/* The id of the RAM section: those of the devices were given beside it. */
static bool find_section(struct page_server *s, struct tp_error *err)
{
	tp_autobuf struct tp_buf start = TP_BUF_INIT(PROLOGUE_MAX);

	if (!add_range(s, IMAGE_RANGE_RAM_START, 0, &start, err))
		return false;
	if (start.len < RAM_PART_HEAD || (uint8_t)start.data[0] != RAM_SECTION_START)
		return tp_fail(err, TP_ECORRUPT, "the image's list of RAM blocks is no RAM section");
	s->out.section = tp_be32(start.data + 1);
	return true;
}

static bool check_blocks(struct page_server *s, struct tp_error *err)
{
	for (unsigned i = 0; i < s->info->blocks; i++) {
		const struct image_block *b = image_block(s->img, i);

		if (b->host_page_size != (uint64_t)1 << s->info->page_bits)
			return tp_fail(err, TP_EUNSUPPORTED,
				       "RAM block %s has pages of %llu bytes, which cannot be served singly",
				       b->id, (unsigned long long)b->host_page_size);
	}
	return true;
}

static bool add_blocks(struct page_server *s, struct tp_buf *b)
{
	struct stream_ram_block blocks[IMAGE_BLOCKS_MAX];

	for (unsigned i = 0; i < s->info->blocks; i++)
		blocks[i] = (struct stream_ram_block){ image_block(s->img, i)->id,
						       image_block(s->img, i)->used_length };
	return stream_write_blocks(b, s->out.section, blocks, s->info->blocks);
}

static bool add_early(struct page_server *s, struct tp_buf *b, struct tp_error *err)
{
	uint64_t offset, length;

	for (unsigned i = 0; image_range(s->img, IMAGE_RANGE_EARLY, i, &offset, &length); i++)
		if (!image_raw_read(s->img, offset, length, b, err))
			return false;
	return true;
}

static bool add_discards(struct page_server *s, struct tp_buf *b)
{
	bool good = true;

	for (unsigned i = 0; i < s->info->blocks && good; i++) {
		const struct image_block *block = image_block(s->img, i);

		if (block->used_length > 0)
			good = stream_write_discard(b, block->id, 0, block->used_length);
	}
	return good;
}

static bool make_prologue(struct page_server *s, struct tp_error *err)
{
	uint64_t page = (uint64_t)1 << s->info->page_bits;
	struct tp_buf *b = &s->prologue;

	return add_range(s, IMAGE_RANGE_PROLOGUE, 0, b, err) &&
	       ((stream_write_command(b, STREAM_OPEN_RETURN_PATH) &&
		 stream_write_advise(b, page, page) && add_blocks(s, b)) || tp_fail_nomem(err)) &&
	       add_early(s, b, err) &&
	       ((add_discards(s, b) && stream_write_ping(b, PONG_READY)) || tp_fail_nomem(err));
}

static bool make_package(struct page_server *s, struct tp_error *err)
{
	tp_autobuf struct tp_buf devices = TP_BUF_INIT(STREAM_DEVICES_MAX);

	return add_range(s, IMAGE_RANGE_DEVICES, 0, &devices, err) &&
	       (stream_write_package(&s->package, devices.data, devices.len, PONG_LOADED) ||
		tp_fail_nomem(err));
}

bool page_setup_prepare(struct page_server *s, struct tp_error *err)
{
	s->prologue.limit = PROLOGUE_MAX;
	return check_blocks(s, err) && find_section(s, err) &&
	       (s->o.recover || (make_prologue(s, err) && make_package(s, err)));
}

/* ---- sending */

bool page_setup_begin(struct page_server *s, struct tp_error *err)
{
	page_server_enter(s, PAGES_PREPARING);
	return tp_buf_add(&s->out.buf, s->prologue.data, s->prologue.len) || tp_fail_nomem(err);
}

bool page_setup_package(struct page_server *s, struct tp_error *err)
{
	page_server_enter(s, PAGES_LOADING);
	if (!tp_buf_add(&s->out.buf, s->package.data, s->package.len))
		return tp_fail_nomem(err);
	tp_buf_free(&s->package);
	tp_buf_free(&s->prologue);
	return true;
}

bool page_setup_recover(struct page_server *s, struct tp_error *err)
{
	page_server_enter(s, PAGES_RECOVERING);
	page_track_forget(&s->track);
	s->bitmaps = 0;
	for (unsigned i = 0; i < s->info->blocks; i++) {
		const struct image_block *b = image_block(s->img, i);

		if (!b->used_length)
			continue;
		if (!stream_write_recv_bitmap(&s->out.buf, b->id))
			return tp_fail_nomem(err);
		s->bitmaps++;
	}
	return true;
}

/* ---- answers */

static bool unexpected(struct tp_error *err, const char *what)
{
	return tp_fail_class(err, TP_EPROTO, "QemuError", "QEMU's return path: %s was not expected",
			     what);
}

static bool pong(struct page_server *s, uint32_t number, struct tp_error *err)
{
	if (number == PONG_READY && s->state == PAGES_PREPARING) {
		page_server_enter(s, PAGES_HELD);
		return true;
	}
	if (number == PONG_LOADED && s->state == PAGES_LOADING) {
		page_server_enter(s, PAGES_SERVING);
		return true;
	}
	return unexpected(err, "a PONG");
}

static bool bitmap_begins(struct page_server *s, const struct return_message *m, struct tp_error *err)
{
	int block = image_block_find(s->img, m->id, strlen(m->id));
	uint64_t pages;

	if (s->state != PAGES_RECOVERING || s->bitmaps == 0)
		return unexpected(err, "a bitmap");
	if (block < 0)
		return tp_fail(err, TP_EPROTO, "QEMU sent the bitmap of RAM block %s, which the image lacks",
			       m->id);
	pages = image_block(s->img, (unsigned)block)->used_length >> s->info->page_bits;
	if (m->bytes != tp_div_up(pages, 64) * 8)
		return tp_fail(err, TP_EPROTO, "QEMU's bitmap of RAM block %s has %llu bytes for %llu pages",
			       m->id, (unsigned long long)m->bytes, (unsigned long long)pages);
	s->bitmap_block = (unsigned)block;
	s->bitmap_at = 0;
	return true;
}

static bool bitmap_ends(struct page_server *s, struct tp_error *err)
{
	if (--s->bitmaps > 0)
		return true;
	return stream_write_command(&s->out.buf, STREAM_POSTCOPY_RESUME) || tp_fail_nomem(err);
}

static bool shut(struct page_server *s, uint32_t status, struct tp_error *err)
{
	if (status != 0)
		return tp_fail_class(err, TP_EQMP, "QemuError", "QEMU failed to load the memory (status %u)",
				     status);
	if (s->state != PAGES_ENDING)
		return unexpected(err, "SHUT");
	page_server_enter(s, PAGES_DONE);
	return true;
}

bool page_setup_message(struct page_server *s, enum return_kind kind, const struct return_message *m,
			struct tp_error *err)
{
	switch (kind) {
	case RETURN_PONG:
		return pong(s, m->value, err);
	case RETURN_SHUT:
		return shut(s, m->value, err);
	case RETURN_BITMAP:
		return bitmap_begins(s, m, err);
	case RETURN_BITMAP_PIECE:
		page_track_received(&s->track, s->bitmap_block, s->bitmap_at, m->data, m->bytes);
		s->bitmap_at += m->bytes * 8;
		return true;
	case RETURN_BITMAP_END:
		return bitmap_ends(s, err);
	case RETURN_RESUME_ACK:
		if (s->state != PAGES_RECOVERING || s->bitmaps > 0)
			return unexpected(err, "RESUME_ACK");
		page_server_enter(s, PAGES_SERVING);
		return true;
	default:
		return true;
	}
}
