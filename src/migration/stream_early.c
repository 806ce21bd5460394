/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_early.c - Device sections before the first RAM pages (virtio-mem's, machine types from 8.0)
 *
 * A FULL section has no length. Its end is found by its footer (0x7e and its
 * own section id) where what follows looks like a section: a heuristic, as
 * device state could hold the same bytes. A wrong guess is found out by what
 * comes next, as then the section there makes no sense, or does no harm, as
 * the stored bytes are the same. The whole section is one item.
 */
#include <string.h>

#include "base/tp_size.h"
#include "storage/image_record.h"
#include "stream_priv.h"

#define FULL_HEAD(n) (1 + 4 + 1 + (n) + 4 + 4)
#define COMMAND_LAST 11		/* SWITCHOVER_START */

enum guess { GUESS_NO, GUESS_YES, GUESS_UNKNOWN };

/* Does a section begin at p? *need: bytes without which that cannot be said. */
static enum guess looks_like_section(const struct stream_parser *p, const uint8_t *at, size_t n,
				     size_t *need)
{
	size_t name;

	*need = 1;
	if (n < 1)
		return GUESS_UNKNOWN;
	*need = RAM_PART_HEAD + 1;
	if (*at != RAM_SECTION_START && *at != RAM_SECTION_FULL && *at != RAM_SECTION_PART &&
	    *at != RAM_SECTION_END && *at != RAM_COMMAND)
		return GUESS_NO;
	if (n < *need)
		return GUESS_UNKNOWN;
	if (*at == RAM_SECTION_PART || *at == RAM_SECTION_END)
		return p->ram_known && tp_be32(at + 1) == p->ram_id ? GUESS_YES : GUESS_NO;
	if (*at == RAM_COMMAND)
		return tp_be16(at + 1) && tp_be16(at + 1) <= COMMAND_LAST ? GUESS_YES : GUESS_NO;
	name = at[RAM_PART_HEAD];
	*need += name;
	if (n < *need)
		return GUESS_UNKNOWN;
	return image_block_id_ok((const char *)at + RAM_PART_HEAD + 1, name) ? GUESS_YES : GUESS_NO;
}

/* Looks for the end from p->scanned on. STEP_DONE: the section has *length bytes. */
static enum stream_step find_end(struct stream_parser *p, const uint8_t *at, size_t n,
				 uint32_t id, size_t *length)
{
	size_t need;

	for (; p->scanned + RAM_FOOTER_SIZE <= n; p->scanned++) {
		const uint8_t *footer = at + p->scanned;

		if (*footer != RAM_FOOTER || tp_be32(footer + 1) != id)
			continue;
		*length = p->scanned + RAM_FOOTER_SIZE;
		switch (looks_like_section(p, at + *length, n - *length, &need)) {
		case GUESS_YES:
			return STEP_DONE;
		case GUESS_UNKNOWN:
			p->want = p->pos + *length + need;
			return STEP_MORE;
		case GUESS_NO:
			break;
		}
	}
	p->want = p->pos + n + 1;
	return STEP_MORE;
}

enum stream_step stream_early(struct stream_parser *p, const uint8_t *buf, size_t fill,
			      struct tp_error *err)
{
	const uint8_t *at = buf + p->pos;
	enum stream_step step = stream_need(p, FULL_HEAD(1), fill);
	size_t length = 0;

	if (step == STEP_DONE)
		step = stream_need(p, FULL_HEAD((size_t)at[RAM_PART_HEAD]), fill);
	if (step != STEP_DONE)
		return step;
	if (p->scanned < FULL_HEAD((size_t)at[RAM_PART_HEAD]))
		p->scanned = FULL_HEAD((size_t)at[RAM_PART_HEAD]);
	step = find_end(p, at, fill - p->pos, tp_be32(at + 1), &length);
	/* Of an unfinished section at least what was scanned belongs to it. */
	if (p->pos && p->pos + (step == STEP_DONE ? length : p->scanned) > p->target)
		return STEP_CUT;
	if ((step == STEP_DONE ? length : p->scanned) > STREAM_EARLY_MAX) {
		tp_fail(err, TP_EUNSUPPORTED,
			"an early device section at offset %llu of the stream is larger than %u bytes",
			(unsigned long long)stream_here(p), STREAM_EARLY_MAX);
		return STEP_FAILED;
	}
	if (step != STEP_DONE)
		return step;
	p->scanned = 0;
	if (!stream_add_span(p, IMAGE_RANGE_EARLY, stream_here(p), length, err))
		return STEP_FAILED;
	p->pos += length;
	return STEP_DONE;
}
