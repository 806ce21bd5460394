/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * return_path.h - Parse what a QEMU destination says on the return path of a migration
 *
 * Its bytes are hostile input: a message has at most RETURN_MESSAGE_MAX of them, and only form and
 * order are checked here; whether a block or a range exists is for the caller.
 */
#ifndef RETURN_PATH_H
#define RETURN_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"

#define RETURN_MESSAGE_MAX 512u
#define RETURN_ID_MAX 255u

enum return_kind {
	RETURN_MORE,		/* not all there yet; `used` is 0 */
	RETURN_SHUT,		/* value: 0: the load is complete */
	RETURN_PONG,		/* value: the PING's number */
	RETURN_REQ_PAGES,	/* id, start, length */
	RETURN_BITMAP,		/* id, bytes: the bitmap of received pages follows in pieces */
	RETURN_BITMAP_PIECE,	/* data, bytes: bit 0 of a byte is the first page; 1: received */
	RETURN_BITMAP_END,
	RETURN_RESUME_ACK,
	RETURN_OTHER,		/* known and of no meaning here */
	RETURN_BAD,		/* err is set; nothing after it can be understood */
};

/* id and data are borrowed from parser and input. */
struct return_message {
	size_t used;		/* bytes of the input that this was */
	uint32_t value;
	const char *id;		/* NUL-terminated */
	uint64_t start;
	uint32_t length;
	const uint8_t *data;
	uint64_t bytes;
};

/*
 * @id: block of the last request; "": none yet on this connection
 * @bitmap_left: bytes of a bitmap to come; @in_bitmap: those, or the mark behind them
 */
struct return_path {
	char id[RETURN_ID_MAX + 1];
	char bitmap_id[RETURN_ID_MAX + 1];
	uint64_t bitmap_left;
	bool in_bitmap;
};

#define RETURN_PATH_INIT { .id = "" }

/* Takes one message, or piece of a bitmap, from the n bytes at p. */
enum return_kind return_path_next(struct return_path *r, const uint8_t *p, size_t n,
				  struct return_message *m, struct tp_error *err);

#endif
