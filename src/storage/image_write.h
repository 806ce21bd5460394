/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_write.h - Write a memory image: header, frames, index, footer, seal
 */
#ifndef IMAGE_WRITE_H
#define IMAGE_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "frame_pool.h"
#include "image_index.h"

struct image_writer;

struct image_writer_options {
	int fd;			/* O_RDWR, borrowed; room may be reserved (fallocate KEEP_SIZE) */
	uint8_t uuid[16];
	uint64_t created_us;
	uint64_t limit;		/* bytes the file may reach; 0: none */
	uint32_t frame_target;	/* 0: IMAGE_FRAME_TARGET */
	unsigned threads;	/* as frame_pool_options */
	int level;
};

struct image_sealed {
	uint64_t file_bytes, raw_bytes, frames;
	uint64_t pages, pages_data, pages_zero;
	uint64_t footer_checksum;
};

/* Writes the unsealed header and starts the compression threads. */
struct image_writer *image_writer_new(const struct image_writer_options *o, struct tp_error *err);
/* Also stops the threads. The file stays as it is: without a seal it is no image. */
void image_writer_free(struct image_writer *w);
struct frame_pool *image_writer_pool(struct image_writer *w);

/*
 * After frame_pool_finish(): index, footer, reserved room given back, fdatasync, sealed header,
 * fsync. The image is whole when this returns true.
 */
bool image_writer_seal(struct image_writer *w, const struct image_map *map,
		       const struct image_span *spans, unsigned nspans, enum image_kind kind,
		       struct image_sealed *out, struct tp_error *err);

#endif
