/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_frame.h - Bytes of a stream to JSON objects: pure, bounded, any cut of the bytes
 *
 * Used in both directions: what QEMU, the agent and the mover send, and what
 * clients of the API send (no newline needed, several objects in one line, one
 * object over several lines, a 0xFF byte resets the parser: QMP's rules).
 * Objects end at their closing brace. Brackets in strings do not count.
 */
#ifndef QMP_FRAME_H
#define QMP_FRAME_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/tp_buf.h"
#include "base/tp_error.h"

enum qmp_frame_result {
	QMP_FRAME_MORE,		/* all bytes taken, no whole object */
	QMP_FRAME_OBJECT,	/* *object is the caller's */
	QMP_FRAME_RESET,	/* a 0xFF byte was read: partial input is dropped */
	QMP_FRAME_BAD,		/* junk: err says what; the parser has resynchronised, go on */
	QMP_FRAME_LIMIT,	/* object too large or too deep: the stream cannot be used any more */
};

#define QMP_FRAME_TOKENS (1u << 20)	/* brackets, commas and colons in one object */

struct qmp_frame {
	struct tp_buf buf;	/* the object being collected */
	size_t scanned;		/* bytes of the present object, else of the last one */
	unsigned depth, depth_max;
	unsigned tokens;	/* separators and opening brackets of the present object */
	bool in_string, escaped;
	bool in_junk;		/* skipping to the end of the line */
	bool dead;
};

void qmp_frame_init(struct qmp_frame *f, size_t max_bytes, unsigned max_depth);
void qmp_frame_free(struct qmp_frame *f);
/*
 * Takes bytes from *data and moves *data, *n on; returns after the first thing found. Call again
 * until MORE. Cost is linear in the bytes given, however they are cut.
 */
enum qmp_frame_result qmp_frame_feed(struct qmp_frame *f, const char **data, size_t *n,
				     json_t **object, struct tp_error *err);
bool qmp_frame_partial(const struct qmp_frame *f);	/* an object is begun and not ended */

#endif
