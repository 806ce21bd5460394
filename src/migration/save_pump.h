/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * save_pump.h - Move a migration stream from QEMU's socket into a sealed memory image
 */
#ifndef SAVE_PUMP_H
#define SAVE_PUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "storage/image_read.h"
#include "storage/image_write.h"

struct save_progress {
	uint64_t raw_bytes;		/* of the stream, so far */
	uint64_t file_bytes;		/* of the image, so far */
	uint64_t pages_total;		/* 0: not known yet */
	uint64_t records;		/* page records so far; a live stream repeats pages */
	uint32_t page_size;
	bool sealing;			/* the stream is whole; index, sync */
};

struct save_pump_options {
	int stream_fd, image_fd;	/* borrowed */
	uint8_t uuid[16];
	uint64_t created_us;		/* 0: now */
	int level;			/* of zstd; 0 is 1 */
	unsigned threads;		/* 0: one for each online CPU, at most 16 */
	uint32_t frame_target;		/* 0: IMAGE_FRAME_TARGET */
	uint64_t limit_bytes;		/* the image may not become larger; 0: none */
	/*
	 * QEMU has capability return-path: the end is the stream's own (EOF byte and vmdesc, nothing
	 * after it); the end of the socket before it is an error.
	 */
	bool return_path;
	/* All may be NULL. At most 10 times a second, at once for the first page record and when sealing. */
	void (*progress)(void *arg, const struct save_progress *p);
	/* Asked at least every 100 ms, but not during the final syncs. */
	bool (*cancelled)(void *arg);
	/* After each read: bytes of the stream understood so far. */
	void (*received)(void *arg, uint64_t raw_bytes);
	/* The pump's own trouble, before it drains. */
	void (*failed)(void *arg, const struct tp_error *err);
	void *arg;
};

struct save_result {
	struct image_sealed image;
	struct image_block *blocks;	/* freed by save_result_free() */
	unsigned nblocks;
	uint32_t page_size;
	enum image_kind kind;
	uint64_t device_bytes;		/* device area with vmdesc */
	char machine[256];		/* resolved machine type, or "" */
	double seal_seconds;		/* from the stream's end to the last fsync */
};

/*
 * Returns when the image is sealed and durable. SHUT is not sent: QEMU waits until
 * save_pump_finish(). On trouble of its own (disk, memory, a stream it cannot store) it calls
 * failed() at once and then reads the stream into nothing until cancelled() or the stream's end,
 * because a QEMU whose stream is not read may hang; then it returns false.
 */
bool save_pump_run(const struct save_pump_options *o, struct save_result *out,
		   struct tp_error *err);
void save_result_free(struct save_result *r);
/* Sends SHUT over the return path: 0 is success, else QEMU fails the migration. */
bool save_pump_finish(int stream_fd, uint32_t status, struct tp_error *err);

#endif
