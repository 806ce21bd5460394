/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_image.h - A sealed image whose frames hold arbitrary bytes, for tests of its readers
 *
 * Not a migration stream: image_verify() does not like it, loading does not look inside.
 */
#ifndef FAKE_IMAGE_H
#define FAKE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct fake_image {
	int fd;				/* an unnamed file */
	uint8_t *raw;			/* what `zstd -dc` would print */
	size_t raw_len;
	uint64_t tail_at;		/* raw offset of the device area's last byte */
	uint64_t first_frame, frame_bytes;	/* file offset, stored size of each equal frame */
	size_t frame_raw;		/* its raw size */
};

/*
 * `frames` frames of frame_bytes incompressible bytes each, then one with device area, EOF byte and
 * vmdesc. Aborts the test program on failure.
 */
void fake_image_make(struct fake_image *f, unsigned frames, size_t frame_bytes);
void fake_image_free(struct fake_image *f);
/* Inverts a byte of the file. */
void fake_image_flip(const struct fake_image *f, uint64_t offset);
/* Exchanges two of the equal frames, also in raw: each stays good by itself. */
void fake_image_swap(struct fake_image *f, unsigned a, unsigned b);

#endif
