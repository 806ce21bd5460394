/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_bound.h - The largest size that an image of a machine's RAM blocks can have */
#ifndef IMAGE_BOUND_H
#define IMAGE_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#define IMAGE_FRAME_TARGET 262144u
#define IMAGE_DEVICE_MARGIN (64ull << 20)

/*
 * ram: bytes of all migratable RAM blocks (RAM, VRAM, ROMs, pflash, plugged DIMMs); page: bytes;
 * blocks: their number; device_margin: bytes for device state (0: IMAGE_DEVICE_MARGIN).
 * False on overflow.
 */
bool image_bound(uint64_t ram, uint32_t page, unsigned blocks, uint64_t device_margin, uint64_t *bytes);

#endif
