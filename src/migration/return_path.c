/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * return_path.c - Parse what a QEMU destination says on the return path of a migration
 *
 *   be16 type, be16 length, data:
 *     1 SHUT be32 | 2 PONG be32 | 3 REQ_PAGES_ID be64 start, be32 length, pstr block
 *     4 REQ_PAGES be64 start, be32 length (block of the last request)
 *     5 RECV_BITMAP pstr block; behind the message: be64 n, n bytes, be64 mark
 *     6 RESUME_ACK be32 1 | 7 SWITCHOVER_ACK
 */
#include "return_path.h"

#include <string.h>

#include "base/tp_size.h"
#include "storage/image_map.h"

#define HEAD 4u
#define REQ_PAGES_SIZE 12u
#define BITMAP_MARK 0x0123456789abcdefu
#define RESUME_ACK_VALUE 1u

enum type {
	SHUT = 1, PONG = 2, REQ_PAGES_ID = 3, REQ_PAGES = 4, RECV_BITMAP = 5, RESUME_ACK = 6,
	SWITCHOVER_ACK = 7,
};

static enum return_kind bad(struct tp_error *err, const char *what)
{
	tp_fail_class(err, TP_EPROTO, "QemuError", "QEMU's return path: %s", what);
	return RETURN_BAD;
}

/* A pstr that fills the n bytes at p exactly. */
static bool take_id(char *id, const uint8_t *p, size_t n)
{
	if (n < 1 || p[0] != n - 1 || !image_block_id_ok((const char *)p + 1, n - 1))
		return false;
	memcpy(id, p + 1, n - 1);
	id[n - 1] = '\0';
	return true;
}

static enum return_kind number(const uint8_t *data, size_t n, struct return_message *m,
			       enum return_kind kind, struct tp_error *err)
{
	if (n != 4)
		return bad(err, "a message has a wrong length");
	m->value = tp_be32(data);
	return kind;
}

static enum return_kind request(struct return_path *r, const uint8_t *data, size_t n, bool named,
				struct return_message *m, struct tp_error *err)
{
	if (named ? n < REQ_PAGES_SIZE + 1 : n != REQ_PAGES_SIZE)
		return bad(err, "a request for pages has a wrong length");
	if (named && !take_id(r->id, data + REQ_PAGES_SIZE, n - REQ_PAGES_SIZE))
		return bad(err, "a request for pages names no RAM block");
	if (!r->id[0])
		return bad(err, "the first request for pages names no RAM block");
	m->id = r->id;
	m->start = tp_be64(data);
	m->length = tp_be32(data + 8);
	return RETURN_REQ_PAGES;
}

/* The message and the length behind it. */
static enum return_kind bitmap(struct return_path *r, const uint8_t *p, size_t n, size_t length,
			       struct return_message *m, struct tp_error *err)
{
	if (!take_id(r->bitmap_id, p + HEAD, length))
		return bad(err, "a bitmap names no RAM block");
	if (n < HEAD + length + 8) {
		m->used = 0;
		return RETURN_MORE;
	}
	m->used += 8;
	m->id = r->bitmap_id;
	m->bytes = tp_be64(p + HEAD + length);
	r->bitmap_left = m->bytes;
	r->in_bitmap = true;
	return RETURN_BITMAP;
}

static enum return_kind bitmap_next(struct return_path *r, const uint8_t *p, size_t n,
				    struct return_message *m, struct tp_error *err)
{
	m->id = r->bitmap_id;
	if (r->bitmap_left > 0) {
		m->data = p;
		m->bytes = n < r->bitmap_left ? n : r->bitmap_left;
		m->used = (size_t)m->bytes;
		r->bitmap_left -= m->bytes;
		return n > 0 ? RETURN_BITMAP_PIECE : RETURN_MORE;
	}
	if (n < 8)
		return RETURN_MORE;
	if (tp_be64(p) != BITMAP_MARK)
		return bad(err, "a bitmap does not end with its mark");
	m->used = 8;
	r->in_bitmap = false;
	return RETURN_BITMAP_END;
}

enum return_kind return_path_next(struct return_path *r, const uint8_t *p, size_t n,
				  struct return_message *m, struct tp_error *err)
{
	size_t length;

	*m = (struct return_message){ .used = 0 };
	if (r->in_bitmap)
		return bitmap_next(r, p, n, m, err);
	if (n < HEAD)
		return RETURN_MORE;
	length = tp_be16(p + 2);
	if (length > RETURN_MESSAGE_MAX - HEAD)
		return bad(err, "a message is too long");
	if (n < HEAD + length)
		return RETURN_MORE;
	m->used = HEAD + length;
	switch ((enum type)tp_be16(p)) {
	case SHUT:
		return number(p + HEAD, length, m, RETURN_SHUT, err);
	case PONG:
		return number(p + HEAD, length, m, RETURN_PONG, err);
	case REQ_PAGES_ID:
		return request(r, p + HEAD, length, true, m, err);
	case REQ_PAGES:
		return request(r, p + HEAD, length, false, m, err);
	case RECV_BITMAP:
		return bitmap(r, p, n, length, m, err);
	case RESUME_ACK:
		if (number(p + HEAD, length, m, RETURN_RESUME_ACK, err) == RETURN_BAD)
			return RETURN_BAD;
		return m->value == RESUME_ACK_VALUE ? RETURN_RESUME_ACK :
						      bad(err, "it does not acknowledge the recovery");
	case SWITCHOVER_ACK:
		return RETURN_OTHER;
	}
	return bad(err, "a message is of no known type");
}
