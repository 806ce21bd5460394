/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_format.h - The memory image on disk: constants and fixed structures
 *
 * docs/image-format.md is the reference. All numbers are little-endian; fields
 * are read with le*toh() and written with htole*(). Values are never re-used.
 */
#ifndef IMAGE_FORMAT_H
#define IMAGE_FORMAT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_SKIPPABLE 0x184D2A5Du	/* zstd skippable frame: header, index, footer */
#define IMAGE_ZSTD_MAGIC 0xFD2FB528u
#define IMAGE_HEADER_SIZE 4096u
#define IMAGE_FOOTER_SIZE 128u
#define IMAGE_HEADER_MAGIC "TORPORH1"
#define IMAGE_INDEX_MAGIC "TORPORX1"
#define IMAGE_FOOTER_MAGIC "TORPORF1"
#define IMAGE_MAGIC_SIZE 8
#define IMAGE_MAJOR 1
#define IMAGE_MINOR 0
#define IMAGE_CODEC_ZSTD 1u

/* Incompatible features. */
#define IMAGE_FEATURE_ENCRYPTED 1u
#define IMAGE_FEATURE_PARENTS 2u
#define IMAGE_FEATURE_RAW_FILES 4u
#define IMAGE_FEATURE_EQUIVALENT 8u
#define IMAGE_FEATURES_READABLE IMAGE_FEATURE_EQUIVALENT

/* Index chunks. */
#define IMAGE_CHUNK_LAYERS 1u
#define IMAGE_CHUNK_BLOCKS 2u
#define IMAGE_CHUNK_FRAMES 3u
#define IMAGE_CHUNK_CLASSES 4u
#define IMAGE_CHUNK_EXTENTS 5u
#define IMAGE_CHUNK_RANGES 6u
#define IMAGE_CHUNK_HEAD 16u

/* Frame flags. */
#define IMAGE_FRAME_DATA 1u		/* has data records of guest pages */
#define IMAGE_FRAME_DEVICE 2u		/* device area */
#define IMAGE_FRAME_IN_RAM 4u		/* begins inside the body of a RAM section */
#define IMAGE_FRAME_FLAGS 7u
#define IMAGE_NO_BLOCK 0xFFFFu

/* Range kinds. */
#define IMAGE_RANGE_PROLOGUE 1u
#define IMAGE_RANGE_RAM_START 2u
#define IMAGE_RANGE_EARLY 3u
#define IMAGE_RANGE_DEVICES 4u
#define IMAGE_RANGE_VMDESC 5u

/* Bounds, all checked before anything is allocated. */
#define IMAGE_BLOCKS_MAX 1024u
#define IMAGE_BLOCK_ID_MAX 255u
#define IMAGE_PAGE_BITS_MIN 12u
#define IMAGE_PAGE_BITS_MAX 20u
#define IMAGE_PAGES_MAX ((uint64_t)1 << 32)	/* 16 TiB of 4 KiB pages */
#define IMAGE_FRAMES_MAX (((uint64_t)1 << 31) - 2)
#define IMAGE_INDEX_STORED_MAX ((uint64_t)1 << 30)
#define IMAGE_BODY_MAX ((uint64_t)1 << 31)
#define IMAGE_RANGES_MAX 2048u
#define IMAGE_WINDOW_LOG_MAX 23

enum image_class { IMAGE_ABSENT, IMAGE_ZERO, IMAGE_DATA, IMAGE_RAW };
enum image_kind { IMAGE_STOPPED, IMAGE_LIVE, IMAGE_BACKGROUND };

struct image_header {
	uint32_t skip_magic, skip_length;	/* IMAGE_SKIPPABLE, 4088 */
	char magic[IMAGE_MAGIC_SIZE];
	uint16_t major, minor;
	uint32_t header_size;
	uint8_t uuid[16];
	uint64_t incompatible, compatible;
	uint32_t codec, frame_target;
	uint64_t created_us;
	uint64_t sealed_size;			/* 0 until the image is whole */
	uint8_t cipher[32];
	uint8_t zero[392];
	uint64_t checksum;			/* XXH64 of what is before it */
};

struct image_index_head {
	uint32_t skip_magic, skip_length;
	char magic[IMAGE_MAGIC_SIZE];
	uint64_t body_length, stored_length, checksum;
};

struct image_footer {
	uint32_t skip_magic, skip_length;	/* IMAGE_SKIPPABLE, 120 */
	char magic[IMAGE_MAGIC_SIZE];
	uint8_t uuid[16];
	uint64_t index_offset, index_length;
	uint64_t frames, raw_bytes;
	uint64_t pages, pages_data, pages_zero;
	uint8_t page_bits, stream_kind;
	uint16_t blocks;
	uint32_t zero;
	uint64_t index_checksum;		/* XXH64 of the index's stored bytes */
	uint64_t frames_checksum;		/* XXH64 of {raw length, zstd checksum} of all frames */
	uint64_t zero2;
	uint64_t checksum;
};

static_assert(sizeof(struct image_header) == 512, "one sector");
static_assert(offsetof(struct image_header, magic) == 8, "layout");
static_assert(offsetof(struct image_header, major) == 16, "layout");
static_assert(offsetof(struct image_header, header_size) == 20, "layout");
static_assert(offsetof(struct image_header, uuid) == 24, "layout");
static_assert(offsetof(struct image_header, incompatible) == 40, "layout");
static_assert(offsetof(struct image_header, codec) == 56, "layout");
static_assert(offsetof(struct image_header, created_us) == 64, "layout");
static_assert(offsetof(struct image_header, sealed_size) == 72, "layout");
static_assert(offsetof(struct image_header, cipher) == 80, "layout");
static_assert(offsetof(struct image_header, checksum) == 504, "layout");
static_assert(sizeof(struct image_index_head) == 40, "layout");
static_assert(offsetof(struct image_index_head, body_length) == 16, "layout");
static_assert(sizeof(struct image_footer) == IMAGE_FOOTER_SIZE, "layout");
static_assert(offsetof(struct image_footer, uuid) == 16, "layout");
static_assert(offsetof(struct image_footer, index_offset) == 32, "layout");
static_assert(offsetof(struct image_footer, frames) == 48, "layout");
static_assert(offsetof(struct image_footer, pages) == 64, "layout");
static_assert(offsetof(struct image_footer, page_bits) == 88, "layout");
static_assert(offsetof(struct image_footer, blocks) == 90, "layout");
static_assert(offsetof(struct image_footer, index_checksum) == 96, "layout");
static_assert(offsetof(struct image_footer, frames_checksum) == 104, "layout");
static_assert(offsetof(struct image_footer, checksum) == 120, "layout");

#endif
