/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_write.c - The source's side of QEMU's post-copy migration stream, piece by piece
 *
 * All numbers are big-endian; "pstr" is a length byte and the bytes. A command
 * is u8 8, be16 command, be16 length, and has no footer.
 */
#include "stream_write.h"

#include <string.h>

#include "base/tp_size.h"
#include "storage/image_record.h"

#define END_OF_FILE 0u
#define RAM_SECTION_NAME "ram"
#define RAM_SECTION_VERSION 4u
#define PSTR_MAX 255u
#define COMMAND_DATA_MAX (3 + PSTR_MAX + 16)

/* A piece being put together: small ones only. */
struct piece {
	uint8_t bytes[RAM_COMMAND_HEAD + COMMAND_DATA_MAX];
	size_t n;
};

static void put_u8(struct piece *p, unsigned v)
{
	p->bytes[p->n++] = (uint8_t)v;
}

static void put_be16(struct piece *p, unsigned v)
{
	tp_put_be16(p->bytes + p->n, (uint16_t)v);
	p->n += 2;
}

static void put_be32(struct piece *p, uint32_t v)
{
	tp_put_be32(p->bytes + p->n, v);
	p->n += 4;
}

static void put_be64(struct piece *p, uint64_t v)
{
	tp_put_be64(p->bytes + p->n, v);
	p->n += 8;
}

static void put_pstr(struct piece *p, const char *text)
{
	size_t n = strnlen(text, PSTR_MAX);

	put_u8(p, (unsigned)n);
	memcpy(p->bytes + p->n, text, n);
	p->n += n;
}

static bool add(struct tp_buf *b, const struct piece *p)
{
	return tp_buf_add(b, p->bytes, p->n);
}

/* Takes back what was added since the buffer had so many bytes. */
static bool take_back(struct tp_buf *b, size_t before)
{
	b->len = before;
	if (b->data)
		b->data[before] = '\0';
	return false;
}

/* ---- commands */

static struct piece command(enum stream_command command, size_t length)
{
	struct piece p = { .n = 0 };

	put_u8(&p, RAM_COMMAND);
	put_be16(&p, command);
	put_be16(&p, (unsigned)length);
	return p;
}

bool stream_write_command(struct tp_buf *b, enum stream_command bare)
{
	struct piece p = command(bare, 0);

	return add(b, &p);
}

bool stream_write_ping(struct tp_buf *b, uint32_t number)
{
	struct piece p = command(STREAM_PING, 4);

	put_be32(&p, number);
	return add(b, &p);
}

bool stream_write_advise(struct tp_buf *b, uint64_t host_page_sizes, uint64_t page_size)
{
	struct piece p = command(STREAM_POSTCOPY_ADVISE, 16);

	put_be64(&p, host_page_sizes);
	put_be64(&p, page_size);
	return add(b, &p);
}

bool stream_write_discard(struct tp_buf *b, const char *id, uint64_t start, uint64_t length)
{
	struct piece p = command(STREAM_POSTCOPY_DISCARD, 3 + strnlen(id, PSTR_MAX) + 16);

	put_u8(&p, 0);		/* version */
	put_pstr(&p, id);
	put_u8(&p, 0);		/* the name's end */
	put_be64(&p, start);
	put_be64(&p, length);
	return add(b, &p);
}

bool stream_write_recv_bitmap(struct tp_buf *b, const char *id)
{
	struct piece p = command(STREAM_RECV_BITMAP, 1 + strnlen(id, PSTR_MAX));

	put_pstr(&p, id);
	return add(b, &p);
}

/* The whole package or nothing: its length comes first. */
bool stream_write_package(struct tp_buf *b, const void *devices, size_t n, uint32_t ping)
{
	struct piece head = command(STREAM_PACKAGED, 4);
	const size_t listen = RAM_COMMAND_HEAD, run = RAM_COMMAND_HEAD, pong = RAM_COMMAND_HEAD + 4;
	size_t before = b->len;

	if (n > UINT32_MAX - listen - run - pong)
		return false;
	put_be32(&head, (uint32_t)(listen + n + pong + run));
	if (add(b, &head) && stream_write_command(b, STREAM_POSTCOPY_LISTEN) &&
	    tp_buf_add(b, devices, n) && stream_write_ping(b, ping) &&
	    stream_write_command(b, STREAM_POSTCOPY_RUN))
		return true;
	return take_back(b, before);
}

/* ---- RAM sections */

bool stream_write_blocks(struct tp_buf *b, uint32_t section, const struct stream_ram_block *blocks,
			 unsigned n)
{
	struct piece p = { .n = 0 };
	size_t before = b->len;
	uint64_t total = 0;
	bool good;

	for (unsigned i = 0; i < n; i++)
		total += blocks[i].length;
	put_u8(&p, RAM_SECTION_START);
	put_be32(&p, section);
	put_pstr(&p, RAM_SECTION_NAME);
	put_be32(&p, 0);	/* instance */
	put_be32(&p, RAM_SECTION_VERSION);
	put_be64(&p, total | RAM_FLAG_MEM_SIZE);
	good = add(b, &p);
	for (unsigned i = 0; i < n && good; i++) {
		p.n = 0;
		put_pstr(&p, blocks[i].id);
		put_be64(&p, blocks[i].length);
		good = add(b, &p);
	}
	if (good && stream_write_end(b, section))
		return true;
	return take_back(b, before);
}

bool stream_write_part(struct tp_buf *b, uint32_t section, bool last)
{
	struct piece p = { .n = 0 };

	put_u8(&p, last ? RAM_SECTION_END : RAM_SECTION_PART);
	put_be32(&p, section);
	return add(b, &p);
}

static void put_record(struct piece *p, const char *id, uint64_t address, unsigned flag)
{
	put_be64(p, address | flag | (id ? 0 : RAM_FLAG_CONTINUE));
	if (id)
		put_pstr(p, id);
}

bool stream_write_page(struct tp_buf *b, const char *id, uint64_t address, const void *data,
		       size_t page_size)
{
	struct piece p = { .n = 0 };

	put_record(&p, id, address, RAM_FLAG_PAGE);
	return tp_buf_reserve(b, p.n + page_size) && add(b, &p) && tp_buf_add(b, data, page_size);
}

bool stream_write_zero(struct tp_buf *b, const char *id, uint64_t address)
{
	struct piece p = { .n = 0 };

	put_record(&p, id, address, RAM_FLAG_ZERO);
	put_u8(&p, 0);		/* the byte that fills it */
	return add(b, &p);
}

bool stream_write_end(struct tp_buf *b, uint32_t section)
{
	struct piece p = { .n = 0 };

	put_be64(&p, RAM_FLAG_EOS);
	put_u8(&p, RAM_FOOTER);
	put_be32(&p, section);
	return add(b, &p);
}

bool stream_write_eof(struct tp_buf *b)
{
	struct piece p = { .n = 0 };

	put_u8(&p, END_OF_FILE);
	return add(b, &p);
}
