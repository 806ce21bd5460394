/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_parse.h - Single-pass parser of QEMU's migration stream, cutting it into frames
 *
 * For stopped, live and background-snapshot saves. The caller reads the stream
 * into a buffer, one frame at a time; the parser never keeps or copies page
 * data. It tells where to cut, which commands to leave out of the stored
 * stream, and fills the page map. The stream is hostile input. What the image
 * cannot hold is refused by name with TP_EUNSUPPORTED.
 */
#ifndef STREAM_PARSE_H
#define STREAM_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "storage/image_index.h"

#define STREAM_NAME_MAX 256
#define STREAM_EARLY_MAX (1u << 20)		/* one early device section */
#define STREAM_DEVICES_MAX (1ull << 30)		/* the device area */

struct stream_parser;

enum stream_event {
	STREAM_MORE,	/* read on; the buffer must hold at least stream_want() bytes in all */
	STREAM_CUT,	/* the first stream_pos() bytes are a frame: take stream_frame(), stream_cut() */
	STREAM_DROP,	/* take stream_drop() bytes at stream_pos() out of the buffer */
	STREAM_FAILED,
};

struct stream_parser *stream_parser_new(uint32_t frame_target, struct tp_error *err);
void stream_parser_free(struct stream_parser *p);

/* buf holds the frame being filled from its first byte; fill bytes are there. */
enum stream_event stream_parse(struct stream_parser *p, const uint8_t *buf, size_t fill,
			       struct tp_error *err);
size_t stream_pos(const struct stream_parser *p);
size_t stream_want(const struct stream_parser *p);
size_t stream_drop(const struct stream_parser *p);
/* What the index says of the frame up to stream_pos(). */
void stream_frame(const struct stream_parser *p, uint16_t *block, uint16_t *flags);
/* The caller took the frame; the rest of its buffer is the beginning of the next one. */
void stream_cut(struct stream_parser *p);

/*
 * The bytes so far are a whole stream with its vmdesc: with a return path QEMU sends no more. All
 * bytes must have been parsed.
 */
bool stream_parse_complete(const struct stream_parser *p);
/* They end with the EOF byte and no vmdesc (suppress-vmdesc): only the end of the socket proves it. */
bool stream_parse_unmarked(const struct stream_parser *p);
/* No more bytes come. false: the stream is cut (TP_ECORRUPT). */
bool stream_parse_finish(struct stream_parser *p, struct tp_error *err);

/* Known from the RAM section on; the map is filled while parsing. */
const struct image_map *stream_map(const struct stream_parser *p);
const char *stream_machine(const struct stream_parser *p);	/* "" until known, or not in the stream */
uint64_t stream_records(const struct stream_parser *p);		/* page records so far */
uint64_t stream_raw(const struct stream_parser *p);		/* bytes parsed so far */
/* After finish. */
const struct image_span *stream_spans(const struct stream_parser *p, unsigned *n);
enum image_kind stream_kind(const struct stream_parser *p);
uint64_t stream_device_bytes(const struct stream_parser *p);

#endif
