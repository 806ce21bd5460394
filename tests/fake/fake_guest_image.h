/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_guest_image.h - A sealed image of a guest's memory whose every page is known by its number
 *
 * A whole migration stream as QEMU makes it: prologue, block list, page records in order, device
 * area, vmdesc. Failures end the test program.
 */
#ifndef FAKE_GUEST_IMAGE_H
#define FAKE_GUEST_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/tp_buf.h"
#include "storage/image_format.h"

#define FAKE_GUEST_PAGE 4096u
#define FAKE_GUEST_RAM_ID 2u
#define FAKE_GUEST_FRAMES 1024u

struct fake_guest_block {
	const char *id;
	uint64_t pages;
};

struct fake_guest_image {
	int fd;				/* an unnamed file */
	uint64_t pages, frames;
	uint64_t frame_at[FAKE_GUEST_FRAMES + 1];	/* file offsets */
	struct tp_buf raw;		/* what `zstd -dc` would print */
	size_t prologue, ram_start, ram_start_bytes, devices, device_bytes;	/* in raw */
};

/* The last frame is the device area's. */
void fake_guest_image_make(struct fake_guest_image *g, const struct fake_guest_block *blocks,
			   unsigned nblocks, unsigned data_pages_per_frame);
void fake_guest_image_free(struct fake_guest_image *g);
/* Inverts a byte in the middle of a frame. */
void fake_guest_image_damage(const struct fake_guest_image *g, uint64_t frame);

/* Of each 16 pages the last is absent, every fourth from page 1 on is zero, the rest is data. */
enum image_class fake_guest_class(uint64_t page);
/* The content of a data page. */
void fake_guest_fill(uint64_t page, uint8_t *buf);
uint64_t fake_guest_data_pages(uint64_t pages);

#endif
