/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_return_path.c - What a QEMU destination says, in one piece and in many
 *
 * The first byte chooses the pieces. Both ways must give the same messages up to the first bad one,
 * and a message never claims bytes that are not there.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "migration/return_path.h"

#define MAX_BYTES (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* @hash: of all messages; bitmaps by their bytes, whatever the pieces */
struct outcome {
	uint64_t hash, messages;
	bool bad;
};

static void note(struct outcome *o, enum return_kind kind, const struct return_message *m)
{
	struct { uint64_t kind, value, start, length; } fields = { 0 };

	if (kind == RETURN_BITMAP_PIECE) {
		for (uint64_t i = 0; i < m->bytes; i++)
			o->hash = XXH64(&m->data[i], 1, o->hash);
		return;
	}
	fields.kind = kind;
	fields.value = m->value;
	fields.start = m->start;
	fields.length = m->length;
	o->hash = XXH64(&fields, sizeof(fields), o->hash);
	if (kind == RETURN_BITMAP)
		o->hash = XXH64(&m->bytes, sizeof(m->bytes), o->hash);
	if (m->id)
		o->hash = XXH64(m->id, strlen(m->id), o->hash);
	o->messages++;
}

/* Takes all messages at p; the rest is moved to the front. */
static size_t take(struct return_path *r, uint8_t *p, size_t n, struct outcome *o)
{
	struct tp_error err = TP_ERROR_INIT;
	struct return_message m;
	size_t at = 0;

	for (;;) {
		/* A copy of its own size: a byte read too far is found. */
		uint8_t *copy = malloc(n - at + 1);
		enum return_kind kind;

		if (!copy)
			abort();
		memcpy(copy, p + at, n - at);
		kind = return_path_next(r, copy, n - at, &m, &err);
		if (m.used > n - at || (kind == RETURN_MORE && m.used > 0))
			abort();
		o->bad |= kind == RETURN_BAD;
		if (o->bad != (err.code != TP_OK))
			abort();
		if (kind != RETURN_MORE && kind != RETURN_BAD)
			note(o, kind, &m);
		free(copy);
		if (kind == RETURN_MORE || kind == RETURN_BAD)
			break;
		at += m.used;
	}
	memmove(p, p + at, n - at);
	return n - at;
}

static struct outcome run(const uint8_t *data, size_t size, size_t piece)
{
	struct return_path r = RETURN_PATH_INIT;
	struct outcome o = { .bad = false };
	uint8_t *buf = malloc(size + 1);
	size_t n = 0;

	if (!buf)
		abort();
	for (size_t at = 0; at < size && !o.bad; at += piece) {
		size_t part = piece < size - at ? piece : size - at;

		memcpy(buf + n, data + at, part);
		n = take(&r, buf, n + part, &o);
	}
	free(buf);
	return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outcome whole, pieces;

	if (size < 2 || size > MAX_BYTES)
		return 0;
	whole = run(data + 1, size - 1, size);
	pieces = run(data + 1, size - 1, data[0] % 40 + 1u);
	if (whole.bad != pieces.bad || whole.messages != pieces.messages || whole.hash != pieces.hash)
		abort();
	return 0;
}
