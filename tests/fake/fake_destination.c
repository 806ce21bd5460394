/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_destination.c - Plays the QEMU that a page server serves, for images of fake_guest_image.h */
#include "fake/fake_destination.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_size.h"
#include "storage/image_record.h"

#define CONFIGURATION 7
#define PACKAGED 7

static void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fake destination: %s\n", what);
	abort();
}

void fake_destination_init(struct fake_destination *d, const struct fake_guest_block *blocks,
			   unsigned nblocks)
{
	*d = (struct fake_destination){ .fd = -1, .blocks = blocks, .nblocks = nblocks };
	for (unsigned i = 0; i < nblocks; i++)
		d->all += blocks[i].pages;
	d->have = calloc(d->all, 1);
	must(d->have, "memory");
}

void fake_destination_detach(struct fake_destination *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

void fake_destination_free(struct fake_destination *d)
{
	fake_destination_detach(d);
	free(d->have);
	tp_buf_free(&d->in);
	tp_buf_free(&d->package);
}

void fake_destination_attach(struct fake_destination *d, int fd_owned, bool recovering)
{
	fake_destination_detach(d);
	d->fd = fd_owned;
	d->in.len = d->at = 0;
	d->block = -1;
	d->in_ram = false;
	d->seen_header = recovering;
}

/* ---- the stream */

static size_t there(const struct fake_destination *d)
{
	return d->in.len - d->at;
}

/* Waits until n bytes are there. DEST_HEADER stands for "they are". */
static enum dest_item need(struct fake_destination *d, size_t n, int ms)
{
	uint8_t chunk[65536];

	while (there(d) < n) {
		struct pollfd pfd = { .fd = d->fd, .events = POLLIN };
		ssize_t got;

		if (poll(&pfd, 1, ms) <= 0)
			return DEST_NOTHING;
		got = recv(d->fd, chunk, sizeof(chunk), 0);
		if (got <= 0)
			return DEST_CLOSED;
		must(tp_buf_add(&d->in, chunk, (size_t)got), "memory");
	}
	return DEST_HEADER;
}

static const uint8_t *take(struct fake_destination *d, size_t n)
{
	const uint8_t *p = (const uint8_t *)d->in.data + d->at;

	d->at += n;
	return p;
}

static void forget_taken(struct fake_destination *d)
{
	if (d->at < (1u << 20))
		return;
	tp_buf_drop(&d->in, d->at);
	d->at = 0;
}

static unsigned block_named(const struct fake_destination *d, const char *id, size_t n)
{
	unsigned i = 0;

	while (i < d->nblocks && (strlen(d->blocks[i].id) != n || memcmp(d->blocks[i].id, id, n) != 0))
		i++;
	must(i < d->nblocks, "a record of an unknown block");
	return i;
}

static void check_page(struct fake_destination *d, const struct ram_record *r, const uint8_t *end)
{
	uint8_t want[FAKE_GUEST_PAGE];

	must(d->block >= 0, "a record without a block");
	must(r->address / FAKE_GUEST_PAGE < d->blocks[d->block].pages, "a page outside its block");
	d->page = r->address / FAKE_GUEST_PAGE;
	for (int i = 0; i < d->block; i++)
		d->page += d->blocks[i].pages;
	d->zero = r->flags & RAM_FLAG_ZERO;
	must(!d->have[d->page], "a page came twice");
	must(d->zero == (fake_guest_class(d->page) != IMAGE_DATA), "a page is of the wrong kind");
	fake_guest_fill(d->page, want);
	must(d->zero || !memcmp(end - FAKE_GUEST_PAGE, want, sizeof(want)), "a page is wrong");
	d->have[d->page] = d->zero ? 2 : 1;
	d->pages++;
}

static enum dest_item next_record(struct fake_destination *d, int ms)
{
	struct ram_record r;
	enum ram_kind kind;
	enum dest_item item;
	const uint8_t *p;

	do {
		kind = ram_record_decode((const uint8_t *)d->in.data + d->at, there(d), FAKE_GUEST_PAGE, &r);
		item = kind == RAM_SHORT ? need(d, r.length, ms) : DEST_HEADER;
		if (item != DEST_HEADER)
			return item;
	} while (kind == RAM_SHORT);
	p = take(d, r.length);
	if (kind == RAM_EOS) {
		must(p[RAM_WORD] == RAM_FOOTER && tp_be32(p + RAM_WORD + 1) == FAKE_GUEST_RAM_ID, "footer");
		d->in_ram = false;
		return fake_destination_next(d, ms);
	}
	must(kind == RAM_PAGE || kind == RAM_ZERO, "an unknown record");
	if (r.id)
		d->block = (int)block_named(d, r.id, r.id_length);
	check_page(d, &r, p + r.length);
	return DEST_PAGE;
}

static enum dest_item next_header(struct fake_destination *d, int ms)
{
	enum dest_item item = need(d, 15, ms);

	if (item != DEST_HEADER)
		return item;
	must(!memcmp(take(d, 15), "QEVM\0\0\0\3\7\0\0\0\2pc", 15), "header");
	d->seen_header = true;
	return DEST_HEADER;
}

static enum dest_item next_command(struct fake_destination *d, int ms)
{
	enum dest_item item = need(d, RAM_COMMAND_HEAD, ms);
	size_t n, more = 0;

	if (item != DEST_HEADER)
		return item;
	n = tp_be16(d->in.data + d->at + 3);
	item = need(d, RAM_COMMAND_HEAD + n, ms);
	if (item != DEST_HEADER)
		return item;
	d->number = tp_be16(d->in.data + d->at + 1);
	must(n <= sizeof(d->data), "a long command");
	memcpy(d->data, d->in.data + d->at + RAM_COMMAND_HEAD, n);
	d->data_n = n;
	if (d->number == PACKAGED) {
		more = tp_be32(d->data);
		item = need(d, RAM_COMMAND_HEAD + n + more, ms);
		if (item != DEST_HEADER)
			return item;
	}
	take(d, RAM_COMMAND_HEAD + n);
	if (d->number != PACKAGED)
		return DEST_COMMAND;
	d->package.len = 0;
	must(tp_buf_add(&d->package, take(d, more), more), "memory");
	return DEST_PACKAGE;
}

static enum dest_item next_blocks(struct fake_destination *d, int ms)
{
	size_t n = 1 + 4 + 4 + 8 + 8 + RAM_EOS_SIZE;
	enum dest_item item;
	const uint8_t *p;

	for (unsigned i = 0; i < d->nblocks; i++)
		n += 1 + strlen(d->blocks[i].id) + 8;
	item = need(d, n, ms);
	if (item != DEST_HEADER)
		return item;
	p = take(d, n);
	must(tp_be64(p + 17) == (d->all * FAKE_GUEST_PAGE | RAM_FLAG_MEM_SIZE), "sum of the blocks");
	p += 25;
	for (unsigned i = 0; i < d->nblocks; i++) {
		must(block_named(d, (const char *)p + 1, *p) == i, "order of the blocks");
		p += 1 + *p;
		must(tp_be64(p) == d->blocks[i].pages * FAKE_GUEST_PAGE, "length of a block");
		p += 8;
	}
	return DEST_BLOCKS;
}

enum dest_item fake_destination_next(struct fake_destination *d, int ms)
{
	enum dest_item item;

	forget_taken(d);
	if (!d->seen_header)
		return next_header(d, ms);
	if (d->in_ram)
		return next_record(d, ms);
	item = need(d, 1, ms);
	if (item != DEST_HEADER)
		return item;
	switch ((uint8_t)d->in.data[d->at]) {
	case RAM_COMMAND:
		return next_command(d, ms);
	case RAM_SECTION_START:
		return next_blocks(d, ms);
	case RAM_SECTION_PART:
	case RAM_SECTION_END:
		item = need(d, RAM_PART_HEAD, ms);
		if (item != DEST_HEADER)
			return item;
		must(tp_be32(take(d, RAM_PART_HEAD) + 1) == FAKE_GUEST_RAM_ID, "id of a RAM section");
		d->in_ram = true;
		return next_record(d, ms);
	case 0:
		take(d, 1);
		return DEST_END;
	}
	must(false, "no section");
	return DEST_CLOSED;
}

/* ---- the return path */

void fake_destination_say(struct fake_destination *d, const void *data, size_t n)
{
	must(send(d->fd, data, n, MSG_NOSIGNAL) == (ssize_t)n || errno == EPIPE, "send");
}

void fake_destination_number(struct fake_destination *d, unsigned type, uint32_t value)
{
	uint8_t p[8];

	tp_put_be16(p, (uint16_t)type);
	tp_put_be16(p + 2, 4);
	tp_put_be32(p + 4, value);
	fake_destination_say(d, p, sizeof(p));
}

void fake_destination_request(struct fake_destination *d, uint64_t page)
{
	uint8_t p[4 + 12 + 256] = { 0, 3 };
	unsigned block = 0;
	size_t n;

	while (page >= d->blocks[block].pages)
		page -= d->blocks[block++].pages;
	n = strlen(d->blocks[block].id);
	tp_put_be16(p + 2, (uint16_t)(13 + n));
	tp_put_be64(p + 4, page * FAKE_GUEST_PAGE);
	tp_put_be32(p + 12, FAKE_GUEST_PAGE);
	p[16] = (uint8_t)n;
	memcpy(p + 17, d->blocks[block].id, n);
	fake_destination_say(d, p, 17 + n);
}

void fake_destination_bitmap(struct fake_destination *d, unsigned block)
{
	size_t bytes = (size_t)tp_div_up(d->blocks[block].pages, 64) * 8;
	size_t n = strlen(d->blocks[block].id), at = 0;
	uint8_t *p = calloc(4 + 1 + n + 8 + bytes + 8, 1);
	uint64_t first = 0;

	must(p, "memory");
	for (unsigned i = 0; i < block; i++)
		first += d->blocks[i].pages;
	p[1] = 5;
	p[3] = (uint8_t)(1 + n);
	p[4] = (uint8_t)n;
	memcpy(p + 5, d->blocks[block].id, n);
	at = 5 + n;
	tp_put_be64(p + at, bytes);
	at += 8;
	for (uint64_t i = 0; i < d->blocks[block].pages; i++)
		if (d->have[first + i])
			p[at + i / 8] |= (uint8_t)(1 << i % 8);
	at += bytes;
	tp_put_be64(p + at, 0x0123456789abcdef);
	fake_destination_say(d, p, at + 8);
	free(p);
}
