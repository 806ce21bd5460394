/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_destination.h - Plays the QEMU that a page server serves, for images of fake_guest_image.h
 *
 * Whoever tests reads the stream item by item and answers by hand. Each page is compared with what
 * it must hold, and a page that comes twice ends the test program, as it would end a guest.
 */
#ifndef FAKE_DESTINATION_H
#define FAKE_DESTINATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_buf.h"
#include "fake/fake_guest_image.h"

enum dest_item {
	DEST_NOTHING,		/* within the time */
	DEST_CLOSED,
	DEST_HEADER,		/* magic and configuration */
	DEST_COMMAND,		/* `number` is the command; its data are in `data` */
	DEST_BLOCKS,
	DEST_PACKAGE,		/* `package`: all of it */
	DEST_PAGE,		/* `page`; `zero` */
	DEST_END,		/* the EOF byte */
};

/*
 * @have: by page: 0 not yet, 1 content, 2 zero; @pages: how many came, of either kind
 * @block: of the last record; @in_ram: within a section
 */
struct fake_destination {
	int fd;
	const struct fake_guest_block *blocks;
	unsigned nblocks;
	uint64_t all, pages;
	uint8_t *have;
	struct tp_buf in, package;
	size_t at;
	int block;
	bool in_ram, seen_header;
	unsigned number;
	uint8_t data[600];
	size_t data_n;
	uint64_t page;
	bool zero;
};

void fake_destination_init(struct fake_destination *d, const struct fake_guest_block *blocks,
			   unsigned nblocks);
void fake_destination_free(struct fake_destination *d);
/* A connection, taken; recovering: no header comes. What was received stays. */
void fake_destination_attach(struct fake_destination *d, int fd_owned, bool recovering);
void fake_destination_detach(struct fake_destination *d);
/* The next item of the stream, waiting at most so long. RAM sections' heads and ends are no items. */
enum dest_item fake_destination_next(struct fake_destination *d, int ms);

void fake_destination_say(struct fake_destination *d, const void *data, size_t n);
void fake_destination_number(struct fake_destination *d, unsigned type, uint32_t value);
#define DEST_SHUT 1u
#define DEST_PONG 2u
#define DEST_RESUME_ACK 6u
void fake_destination_request(struct fake_destination *d, uint64_t page);
void fake_destination_bitmap(struct fake_destination *d, unsigned block);

#endif
