/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_tail.c - Recognise the end of a migration stream in its opaque device area
 *
 * Theory of operation. Device sections have no length, so the area can only be
 * read from its end: `7e be32 id` (footer of the last section), `00` (EOF), `06
 * be32 n` and n bytes of JSON with nothing after. With a return path QEMU keeps
 * the socket open, so the end must be known while bytes come. JSON as QEMU
 * writes it has no byte below 0x20. Hence only the text after the last such
 * byte can be it, and it begins at most three bytes later (the low bytes of n
 * may be printable, its first is 0): four places to look at, whatever the area
 * holds, and each byte is looked at once while it arrives.
 */
#include "stream_tail.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_size.h"

#define FOOTER 0x7e
#define VMDESC 0x06
#define PLACES 4u		/* the JSON begins 0..3 bytes after the last control byte */
#define VMDESC_HEAD 5u
#define JSON_DEPTH 64

void stream_tail_free(struct stream_tail *t)
{
	free(t->kept);
	memset(t, 0, sizeof(*t));
}

static bool room(struct stream_tail *t, size_t n, struct tp_error *err)
{
	size_t cap = t->cap ? t->cap : 4096;
	uint8_t *kept;

	while (cap < n)
		cap *= 2;
	if (cap == t->cap)
		return true;
	kept = realloc(t->kept, cap);
	if (!kept)
		return tp_fail_nomem(err);
	t->kept = kept;
	t->cap = cap;
	return true;
}

/* Forgets what lies more than STREAM_TAIL_LEAD bytes back. */
static void shorten(struct stream_tail *t)
{
	if (t->n <= STREAM_TAIL_LEAD)
		return;
	memmove(t->kept, t->kept + t->n - STREAM_TAIL_LEAD, STREAM_TAIL_LEAD);
	t->n = STREAM_TAIL_LEAD;
}

/* Of what is kept and the n bytes the last STREAM_TAIL_LEAD. */
static void keep_last(struct stream_tail *t, const uint8_t *p, size_t n)
{
	if (n > STREAM_TAIL_LEAD) {
		p += n - STREAM_TAIL_LEAD;
		n = STREAM_TAIL_LEAD;
	}
	shorten(t);
	memmove(t->kept + t->n, p, n);
	t->n += n;
	shorten(t);
}

static bool append(struct stream_tail *t, const uint8_t *p, size_t n, struct tp_error *err)
{
	if (t->n + n > STREAM_VMDESC_MAX + STREAM_TAIL_LEAD + PLACES)
		t->lost = true;
	if (t->lost) {
		keep_last(t, p, n);
		return true;
	}
	if (!n)
		return true;
	if (!room(t, t->n + n, err))
		return false;
	memcpy(t->kept + t->n, p, n);
	t->n += n;
	return true;
}

bool stream_tail_add(struct stream_tail *t, const uint8_t *p, size_t n, struct tp_error *err)
{
	size_t text = n;	/* where the text at the chunk's end begins; 0 also: no control byte */

	while (text > 0 && p[text - 1] >= 0x20)
		text--;
	t->total += n;
	if (text > 0) {
		size_t lead = text < STREAM_TAIL_LEAD ? text : STREAM_TAIL_LEAD;

		t->lost = false;
		shorten(t);
		if (!append(t, p + text - lead, lead, err))
			return false;
		shorten(t);
		t->run = t->total - (n - text);
	}
	return append(t, p + text, n - text, err);
}

static bool is_vmdesc(const uint8_t *p, size_t n)
{
	json_t *root;
	bool ok;

	if (n < 2 || p[0] != '{' || p[n - 1] != '}')
		return false;
	root = tp_json_parse((const char *)p, n, JSON_DEPTH, NULL);
	ok = json_is_object(root) && json_is_array(json_object_get(root, "devices"));
	json_decref(root);
	return ok;
}

bool stream_tail_vmdesc(const struct stream_tail *t, uint64_t *offset, uint64_t *length)
{
	size_t text = t->n - (size_t)(t->total - t->run);	/* index of t->run in kept */

	if (t->lost || t->total == t->run)
		return false;
	for (size_t at = text; at < text + PLACES && at < t->n; at++) {
		const uint8_t *lead = t->kept + at - STREAM_TAIL_LEAD;
		size_t n = t->n - at;

		if (at < STREAM_TAIL_LEAD || lead[0] != FOOTER || lead[5] || lead[6] != VMDESC ||
		    tp_be32(lead + 7) != n || n > STREAM_VMDESC_MAX || !is_vmdesc(t->kept + at, n))
			continue;
		*offset = t->total - n - VMDESC_HEAD;
		*length = n + VMDESC_HEAD;
		return true;
	}
	return false;
}

bool stream_tail_eof(const struct stream_tail *t)
{
	return !t->lost && t->total == t->run && t->n >= 6 && t->kept[t->n - 1] == 0 &&
	       t->kept[t->n - 6] == FOOTER;
}
