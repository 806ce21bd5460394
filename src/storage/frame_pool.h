/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * frame_pool.h - Worker threads that compress frames and write them in order
 *
 * One producer fills buffers and submits them; workers compress; whoever
 * completes the oldest frame writes all that are ready. Buffers form a bounded
 * ring of 3 * threads + 2, at least 24. Threads block all signals.
 */
#ifndef FRAME_POOL_H
#define FRAME_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"

#define FRAME_THREADS_MAX 16u
#define FRAME_LEVEL_MIN (-7)
#define FRAME_LEVEL_MAX 19

/* The number of threads that is meant: 0 is one for each online CPU; at most FRAME_THREADS_MAX. */
unsigned frame_threads(unsigned asked);

struct frame_pool;

struct frame_buf {
	uint8_t *data;
	size_t cap;
};

/* What is known of each written frame, in order; for the index. */
struct frame_table {
	uint32_t *stored, *raw;
	uint16_t *block, *flags;
	uint64_t n, cap;
};

struct frame_pool_options {
	int fd;			/* borrowed */
	uint64_t offset;	/* of the first frame in the file */
	uint64_t limit;		/* bytes the file may reach; 0: none */
	unsigned threads;	/* 0: one for each online CPU; at most FRAME_THREADS_MAX */
	int level;		/* of zstd; clamped to FRAME_LEVEL_MIN..MAX, 0 is 1 */
	size_t buffer;		/* first capacity of each buffer */
};

struct frame_pool *frame_pool_new(const struct frame_pool_options *o, struct tp_error *err);
/* Stops the threads, after the frame each is at; drops what is not written. */
void frame_pool_free(struct frame_pool *p);

/*
 * The buffer to fill next, the same one until it is submitted. Waits until one is free, at most
 * timeout_ms: then NULL with *failed false. NULL with *failed true: see frame_pool_finish().
 */
struct frame_buf *frame_pool_get(struct frame_pool *p, int timeout_ms, bool *failed);
/* Makes room for size bytes, keeping the first `used`. */
bool frame_buf_grow(struct frame_buf *b, size_t size, size_t used, struct tp_error *err);
/* Gives the buffer's first raw bytes (1..IMAGE_FRAME_MAX) away as a frame. */
void frame_pool_submit(struct frame_pool *p, uint32_t raw, uint16_t block, uint16_t flags);
/* A frame was lost: error in the file, disk full or memory. Once set it stays. */
bool frame_pool_failed(struct frame_pool *p, struct tp_error *err);
/* Bytes of the file written so far. */
uint64_t frame_pool_offset(struct frame_pool *p);
/*
 * Waits until all submitted frames are written, at most timeout_ms (*done tells); false on failure.
 */
bool frame_pool_finish(struct frame_pool *p, int timeout_ms, bool *done, struct tp_error *err);
/* After finish. The table lives as long as the pool. */
const struct frame_table *frame_pool_table(const struct frame_pool *p);
/* XXH64 of {u32 raw length, u32 zstd content checksum} of all frames. After finish. */
uint64_t frame_pool_checksum(const struct frame_pool *p);

/* The error for a failed write of the image: InsufficientSpace where it is one. Returns false. */
bool image_write_error(struct tp_error *err, int sys, const char *what, uint64_t offset);

#endif
