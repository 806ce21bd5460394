/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_config.c - The configuration section of QEMU's migration stream
 *
 *   u8 7, be32 n, machine name, then subsections: u8 5, pstr name, be32 version, payload
 *
 * It is one item; its end is known by the byte after it, which is no 5.
 */
#include <string.h>

#include "base/tp_size.h"
#include "stream_priv.h"

#define SUBSECTION 5
#define CAPABILITIES_MAX 64u
#define UUID_SIZE 16u
#define CONFIGURATION_MAX 65536u

struct cursor {
	const uint8_t *p;
	size_t n, at;		/* at > n: what was asked for is not there yet */
};

/* NULL: not there; c->at then says how many bytes are needed. */
static const uint8_t *take(struct cursor *c, size_t n)
{
	const uint8_t *p = c->p + c->at;

	if (c->at > c->n)
		return NULL;
	c->at += n;
	return c->at <= c->n ? p : NULL;
}

static const uint8_t *take_pstr(struct cursor *c, size_t *n)
{
	const uint8_t *length = take(c, 1);

	*n = length ? *length : 0;
	return length ? take(c, *n) : NULL;
}

static bool is(const uint8_t *p, size_t n, const char *name)
{
	return n == strlen(name) && !memcmp(p, name, n);
}

static bool capabilities(struct cursor *c, struct tp_error *err)
{
	const uint8_t *p = take(c, 4);
	uint32_t count = p ? tp_be32(p) : 0;

	if (count > CAPABILITIES_MAX)
		return tp_fail(err, TP_ECORRUPT, "the stream's configuration lists %u capabilities", count);
	for (uint32_t i = 0; i < count; i++) {
		size_t n;
		const uint8_t *name = take_pstr(c, &n);

		if (name && !image_block_id_ok((const char *)name, n))
			return tp_fail(err, TP_ECORRUPT, "a capability's name in the stream is invalid");
		if (name)
			return tp_fail(err, TP_EUNSUPPORTED,
				       "the stream was made with capability \"%.*s\", which an image cannot hold",
				       (int)n, (const char *)name);
	}
	return true;
}

static bool page_bits(struct stream_parser *p, struct cursor *c, struct tp_error *err)
{
	const uint8_t *bits = take(c, 4);
	uint32_t n = bits ? tp_be32(bits) : IMAGE_PAGE_BITS_MIN;

	if (n < IMAGE_PAGE_BITS_MIN || n > IMAGE_PAGE_BITS_MAX)
		return tp_fail(err, TP_EUNSUPPORTED, "guest pages of 2^%u bytes are not supported", n);
	p->map.page_bits = n;
	p->page = (size_t)1 << n;
	return true;
}

/* false: an error is set. */
static bool subsection(struct stream_parser *p, struct cursor *c, struct tp_error *err)
{
	size_t n;
	const uint8_t *name = take_pstr(c, &n), *version = take(c, 4);

	if (!name || !version)
		return true;
	if (tp_be32(version) != 1)
		return tp_fail(err, TP_EUNSUPPORTED, "a subsection of the stream's configuration has version %u",
			       tp_be32(version));
	if (is(name, n, "configuration/target-page-bits"))
		return page_bits(p, c, err);
	if (is(name, n, "configuration/capabilities"))
		return capabilities(c, err);
	if (is(name, n, "configuration/uuid")) {
		take(c, UUID_SIZE);
		return true;
	}
	return tp_fail(err, TP_EUNSUPPORTED, "the stream's configuration has an unknown subsection");
}

static bool machine(struct stream_parser *p, struct cursor *c, struct tp_error *err)
{
	const uint8_t *length = take(c, 4), *name;
	uint32_t n = length ? tp_be32(length) : 0;

	if (n >= sizeof(p->machine))
		return tp_fail(err, TP_ECORRUPT, "the stream's machine name has %u bytes", n);
	name = take(c, n);
	if (!name)
		return true;
	if (!image_block_id_ok((const char *)name, n))
		return tp_fail(err, TP_ECORRUPT, "the stream's machine name is invalid");
	memcpy(p->machine, name, n);
	p->machine[n] = '\0';
	return true;
}

enum stream_step stream_configuration(struct stream_parser *p, const uint8_t *buf, size_t fill,
				      struct tp_error *err)
{
	struct cursor c = { .p = buf + p->pos, .n = fill - p->pos };
	const uint8_t *next;

	take(&c, 1);
	if (!machine(p, &c, err))
		return STEP_FAILED;
	for (;;) {
		next = take(&c, 1);
		if (!next || *next != SUBSECTION)
			break;
		if (!subsection(p, &c, err))
			return STEP_FAILED;
		if (c.at > CONFIGURATION_MAX) {
			tp_fail(err, TP_ECORRUPT, "the stream's configuration is larger than %u bytes",
				CONFIGURATION_MAX);
			return STEP_FAILED;
		}
	}
	if (!next) {
		p->want = p->pos + c.at;
		return STEP_MORE;
	}
	p->pos += c.at - 1;
	p->where = AT_TOP;
	return stream_add_span(p, IMAGE_RANGE_PROLOGUE, 0, stream_here(p), err) ? STEP_DONE : STEP_FAILED;
}
