/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_stream.c - The cut of the bytes must not change what is stored
 *
 * The first byte chooses the frame target, the second the pieces; the rest is
 * a migration stream, parsed at once and in pieces. Both must give the same
 * frames, the same verdict, and on success the same spans.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "migration/stream_parse.h"

#define WANT_MAX ((size_t)3 << 20)
#define MAX_BYTES (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
	uint64_t hash;		/* of frames, their starts and cuts */
	unsigned frames;
	bool ok;
	enum tp_code code;
};

static void note_frame(struct outcome *o, const struct stream_parser *p, const uint8_t *buf)
{
	uint16_t start[2];

	stream_frame(p, &start[0], &start[1]);
	o->hash = XXH64(start, sizeof(start), o->hash);
	o->hash = XXH64(buf, stream_pos(p), o->hash);
	o->frames++;
}

/* false: refused. */
static bool settle(struct stream_parser *p, uint8_t *buf, size_t *fill, struct outcome *o,
		   struct tp_error *err)
{
	for (;;) {
		enum stream_event event = stream_parse(p, buf, *fill, err);
		size_t pos = stream_pos(p), n = event == STREAM_CUT ? pos : stream_drop(p);

		if (pos > *fill)
			abort();
		if (event == STREAM_FAILED)
			return false;
		if (event == STREAM_MORE) {
			if (stream_want(p) <= *fill || stream_want(p) > WANT_MAX)
				abort();
			return true;
		}
		if (event == STREAM_CUT) {
			if (!pos)
				abort();
			note_frame(o, p, buf);
			pos = 0;
		}
		if (pos + n > *fill)
			abort();
		memmove(buf + pos, buf + pos + n, *fill - pos - n);
		*fill -= n;
		if (event == STREAM_CUT)
			stream_cut(p);
	}
}

static struct outcome run(const uint8_t *data, size_t size, size_t piece, uint32_t target)
{
	struct outcome o = { .ok = true };
	struct tp_error err = TP_ERROR_INIT;
	struct stream_parser *p = stream_parser_new(target, NULL);
	uint8_t *buf = malloc(size);
	const struct image_span *spans;
	size_t fill = 0;
	unsigned n;

	if (!p || !buf)
		abort();
	for (size_t at = 0; o.ok && at < size; at += piece) {
		size_t part = piece < size - at ? piece : size - at;

		memcpy(buf + fill, data + at, part);
		fill += part;
		o.ok = settle(p, buf, &fill, &o, &err);
	}
	if (o.ok) {
		note_frame(&o, p, buf);
		o.ok = stream_parse_finish(p, &err);
	}
	if (o.ok) {
		spans = stream_spans(p, &n);
		for (unsigned i = 0; i < n; i++) {
			o.hash = XXH64(&spans[i].offset, 8, o.hash);
			o.hash = XXH64(&spans[i].length, 8, o.hash);
		}
	}
	o.code = err.code;
	stream_parser_free(p);
	free(buf);
	return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outcome whole, pieces;
	uint32_t target;

	if (size < 2 || size > MAX_BYTES)
		return 0;
	target = 64u << data[0] % 13;
	whole = run(data + 2, size - 2, size, target);
	pieces = run(data + 2, size - 2, data[1] + 1u, target);
	if (whole.ok != pieces.ok || whole.code != pieces.code)
		abort();
	if (whole.ok && (whole.hash != pieces.hash || whole.frames != pieces.frames))
		abort();
	return 0;
}
