/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_tail.h - Recognise the end of a migration stream in its opaque device area
 */
#ifndef STREAM_TAIL_H
#define STREAM_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"

#define STREAM_VMDESC_MAX (4u << 20)	/* bytes of JSON */
#define STREAM_TAIL_LEAD 11u		/* footer 5, EOF 1, type 1, be32 length */

struct stream_tail {
	uint64_t total;		/* bytes of the area so far */
	uint64_t run;		/* where the text after the last control byte begins */
	uint8_t *kept;		/* the bytes from STREAM_TAIL_LEAD before it on */
	size_t n, cap;
	bool lost;		/* the text is longer than a vmdesc may be: not kept */
};

bool stream_tail_add(struct stream_tail *t, const uint8_t *p, size_t n, struct tp_error *err);
/*
 * The bytes so far end exactly at the end of a vmdesc: section footer, EOF, type 6, length, JSON
 * object with "devices". Gives its offset (of the type byte) in the area and its length.
 */
bool stream_tail_vmdesc(const struct stream_tail *t, uint64_t *offset, uint64_t *length);
/* The bytes so far end with a section's footer and the EOF byte. */
bool stream_tail_eof(const struct stream_tail *t);
void stream_tail_free(struct stream_tail *t);

#endif
