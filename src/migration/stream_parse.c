/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * stream_parse.c - Single-pass parser of QEMU's migration stream, cutting it into frames
 *
 * Theory of operation. The stream is a sequence of items: magic, configuration,
 * a section's head, a RAM record, the end of a section, a command; from the
 * first device section after RAM pages on it is opaque (no lengths). The parser
 * stands before an item; it takes it, or asks for more bytes, or has the frame
 * cut before it: where the item would take the frame over its target (an item
 * larger than the target has a frame of its own), and where the device area
 * begins. So a frame begins and ends between items, whatever the pieces in
 * which the stream came.
 *
 * State of `where`:
 *   AT_MAGIC -> AT_CONFIGURATION (if there is one) -> AT_TOP <-> AT_RAM -> AT_DEVICES
 *
 * Left out of the stored stream are the commands OPEN_RETURN_PATH and PING: a
 * stock QEMU that loads it from a file has nobody to answer to.
 */
#include "stream_parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_size.h"
#include "storage/image_record.h"
#include "stream_priv.h"

#define MAGIC 0x5145564du	/* "QEVM" */
#define VERSION 3u
#define MAGIC_SIZE 8u
#define CONFIGURATION 7u
#define END_OF_FILE 0u
#define RAM_VERSION 4u
#define START_HEAD(n) (1 + 4 + 1 + (n) + 4 + 4)

enum command {
	CMD_OPEN_RETURN_PATH = 1, CMD_PING = 2, CMD_SWITCHOVER_START = 11,
};

struct stream_parser *stream_parser_new(uint32_t frame_target, struct tp_error *err)
{
	struct stream_parser *p = calloc(1, sizeof(*p));

	if (!p) {
		tp_fail_nomem(err);
		return NULL;
	}
	p->target = frame_target;
	p->block = -1;
	p->frame_block = IMAGE_NO_BLOCK;
	p->map.page_bits = IMAGE_PAGE_BITS_MIN;
	p->page = (size_t)1 << IMAGE_PAGE_BITS_MIN;
	return p;
}

void stream_parser_free(struct stream_parser *p)
{
	if (!p)
		return;
	image_map_free(&p->map);
	stream_tail_free(&p->tail);
	free(p);
}

bool stream_add_span(struct stream_parser *p, uint32_t kind, uint64_t offset, uint64_t length,
		     struct tp_error *err)
{
	if (p->nspans == IMAGE_RANGES_MAX)
		return tp_fail(err, TP_ELIMIT, "the stream has more than %u early sections",
			       IMAGE_RANGES_MAX);
	p->spans[p->nspans++] = (struct image_span){ kind, offset, length };
	return true;
}

static enum stream_step bad(const struct stream_parser *p, struct tp_error *err, const char *what)
{
	tp_fail(err, TP_ECORRUPT, "the stream is damaged at offset %llu: %s",
		(unsigned long long)stream_here(p), what);
	return STEP_FAILED;
}

/* ---- items */

static enum stream_step magic(struct stream_parser *p, const uint8_t *buf, size_t fill,
			      struct tp_error *err)
{
	enum stream_step step = stream_need(p, MAGIC_SIZE, fill);

	if (step != STEP_DONE)
		return step;
	if (tp_be32(buf) != MAGIC) {
		tp_fail(err, TP_ECORRUPT, "this is no QEMU migration stream");
		return STEP_FAILED;
	}
	if (tp_be32(buf + 4) != VERSION) {
		tp_fail(err, TP_EUNSUPPORTED, "the QEMU migration stream has version %u",
			tp_be32(buf + 4));
		return STEP_FAILED;
	}
	p->pos = MAGIC_SIZE;
	p->where = AT_CONFIGURATION;
	return STEP_DONE;
}

static enum stream_step maybe_configuration(struct stream_parser *p, const uint8_t *buf,
					    size_t fill, struct tp_error *err)
{
	enum stream_step step = stream_need(p, 1, fill);

	if (step != STEP_DONE)
		return step;
	if (buf[p->pos] == CONFIGURATION)
		return stream_configuration(p, buf, fill, err);
	p->where = AT_TOP;
	return stream_add_span(p, IMAGE_RANGE_PROLOGUE, 0, stream_here(p), err) ? STEP_DONE : STEP_FAILED;
}

static enum stream_step start_section(struct stream_parser *p, const uint8_t *buf, size_t fill,
				      struct tp_error *err)
{
	const uint8_t *at = buf + p->pos;
	enum stream_step step = stream_need(p, START_HEAD(1), fill);
	size_t n;

	if (step != STEP_DONE)
		return step;
	n = at[5];
	step = stream_need(p, START_HEAD(n), fill);
	if (step != STEP_DONE)
		return step;
	if (!image_block_id_ok((const char *)at + 6, n))
		return bad(p, err, "a section's name is invalid");
	if (n != 3 || memcmp(at + 6, "ram", 3)) {
		tp_fail(err, TP_EUNSUPPORTED, "the stream has a \"%.*s\" section, which an image cannot hold",
			(int)n, (const char *)at + 6);
		return STEP_FAILED;
	}
	if (tp_be32(at + 6 + n + 4) != RAM_VERSION) {
		tp_fail(err, TP_EUNSUPPORTED, "the stream's RAM section has version %u",
			tp_be32(at + 6 + n + 4));
		return STEP_FAILED;
	}
	if (p->ram_known)
		return bad(p, err, "a second RAM section");
	p->ram_known = true;
	p->ram_id = tp_be32(at + 1);
	p->ram_type = RAM_SECTION_START;
	p->ram_start_at = stream_here(p);
	p->where = AT_RAM;
	p->pos += START_HEAD(n);
	return STEP_DONE;
}

static enum stream_step part_section(struct stream_parser *p, const uint8_t *buf, size_t fill,
				     struct tp_error *err)
{
	const uint8_t *at = buf + p->pos;
	enum stream_step step = stream_need(p, RAM_PART_HEAD, fill);

	if (step != STEP_DONE)
		return step;
	if (!p->ram_known || tp_be32(at + 1) != p->ram_id)
		return bad(p, err, "a part of a section that was not started");
	if (p->ram_end)
		return bad(p, err, "a RAM section after the last one");
	p->ram_part = true;
	p->ram_type = *at;
	p->where = AT_RAM;
	p->pos += RAM_PART_HEAD;
	return STEP_DONE;
}

static enum stream_step command(struct stream_parser *p, const uint8_t *buf, size_t fill,
				struct tp_error *err)
{
	const uint8_t *at = buf + p->pos;
	size_t length;
	unsigned cmd;

	/* Not by stream_need(): what is left out of the stream must not decide where it is cut. */
	p->want = p->pos + RAM_COMMAND_HEAD;
	if (fill < p->want)
		return STEP_MORE;
	cmd = tp_be16(at + 1);
	length = RAM_COMMAND_HEAD + (size_t)tp_be16(at + 3);
	p->want = p->pos + length;
	if (fill < p->want)
		return STEP_MORE;
	switch (cmd) {
	case CMD_OPEN_RETURN_PATH:
	case CMD_PING:
		p->drop = length;
		return STEP_DROP;
	case CMD_SWITCHOVER_START:
		if (stream_need(p, length, fill) == STEP_CUT)
			return STEP_CUT;
		p->pos += length;
		return STEP_DONE;
	default:
		tp_fail(err, TP_EUNSUPPORTED, "the stream has migration command %u%s", cmd,
			cmd >= 3 && cmd <= 10 ? " (post-copy or COLO)" : "");
		return STEP_FAILED;
	}
}

static enum stream_step begin_devices(struct stream_parser *p)
{
	if (p->pos)
		return STEP_CUT;
	p->where = AT_DEVICES;
	p->devices_at = p->base;
	p->frame_flags = IMAGE_FRAME_DEVICE;
	return STEP_DONE;
}

static enum stream_step top(struct stream_parser *p, const uint8_t *buf, size_t fill,
			    struct tp_error *err)
{
	p->want = p->pos + 1;
	if (fill < p->want)
		return STEP_MORE;
	switch (buf[p->pos]) {
	case RAM_SECTION_START:
		return start_section(p, buf, fill, err);
	case RAM_SECTION_PART:
	case RAM_SECTION_END:
		return part_section(p, buf, fill, err);
	case RAM_SECTION_FULL:
		return p->ram_part ? begin_devices(p) : stream_early(p, buf, fill, err);
	case END_OF_FILE:
		return p->ram_part ? begin_devices(p) : bad(p, err, "it ends before any guest memory");
	case RAM_COMMAND:
		return command(p, buf, fill, err);
	default:
		return bad(p, err, "a section of unknown type");
	}
}

static enum stream_step devices(struct stream_parser *p, const uint8_t *buf, size_t fill,
				struct tp_error *err)
{
	size_t n = fill - p->pos;

	if (!n) {
		p->want = p->pos + 1;
		return STEP_MORE;
	}
	if (p->pos == p->target)
		return STEP_CUT;
	if (n > p->target - p->pos)
		n = p->target - p->pos;
	if (p->devices + n > STREAM_DEVICES_MAX) {
		tp_fail(err, TP_ELIMIT, "the stream's device state is larger than %llu bytes",
			STREAM_DEVICES_MAX);
		return STEP_FAILED;
	}
	if (!stream_tail_add(&p->tail, buf + p->pos, n, err))
		return STEP_FAILED;
	p->devices += n;
	p->pos += n;
	return STEP_DONE;
}

enum stream_event stream_parse(struct stream_parser *p, const uint8_t *buf, size_t fill,
			       struct tp_error *err)
{
	enum stream_step step = STEP_DONE;

	while (step == STEP_DONE) {
		switch (p->where) {
		case AT_MAGIC: step = magic(p, buf, fill, err); break;
		case AT_CONFIGURATION: step = maybe_configuration(p, buf, fill, err); break;
		case AT_TOP: step = top(p, buf, fill, err); break;
		case AT_RAM: step = stream_ram(p, buf, fill, err); break;
		case AT_DEVICES: step = devices(p, buf, fill, err); break;
		}
	}
	return step == STEP_MORE ? STREAM_MORE : step == STEP_CUT ? STREAM_CUT :
	       step == STEP_DROP ? STREAM_DROP : STREAM_FAILED;
}

/* ---- what the caller asks */

size_t stream_pos(const struct stream_parser *p)
{
	return p->pos;
}

size_t stream_want(const struct stream_parser *p)
{
	return p->want;
}

size_t stream_drop(const struct stream_parser *p)
{
	return p->drop;
}

void stream_frame(const struct stream_parser *p, uint16_t *block, uint16_t *flags)
{
	*block = p->frame_block;
	*flags = p->frame_flags;
}

void stream_cut(struct stream_parser *p)
{
	p->base += p->pos;
	p->pos = 0;
	p->frame++;
	p->frame_block = p->block < 0 ? IMAGE_NO_BLOCK : (uint16_t)p->block;
	p->frame_flags = p->where == AT_DEVICES ? IMAGE_FRAME_DEVICE :
			 p->where == AT_RAM ? IMAGE_FRAME_IN_RAM : 0;
}

bool stream_parse_complete(const struct stream_parser *p)
{
	uint64_t offset, length;

	return p->where == AT_DEVICES && stream_tail_vmdesc(&p->tail, &offset, &length);
}

bool stream_parse_unmarked(const struct stream_parser *p)
{
	return p->where == AT_DEVICES && stream_tail_eof(&p->tail);
}

bool stream_parse_finish(struct stream_parser *p, struct tp_error *err)
{
	uint64_t offset, length;

	if (p->where != AT_DEVICES)
		return tp_fail(err, TP_ECORRUPT, "the stream ends after %llu bytes, before the device state",
			       (unsigned long long)stream_here(p));
	if (stream_tail_vmdesc(&p->tail, &offset, &length))
		return stream_add_span(p, IMAGE_RANGE_DEVICES, p->devices_at, offset - 1, err) &&
		       stream_add_span(p, IMAGE_RANGE_VMDESC, p->devices_at + offset, length, err);
	if (stream_tail_eof(&p->tail))
		return stream_add_span(p, IMAGE_RANGE_DEVICES, p->devices_at, p->devices - 1, err);
	return tp_fail(err, TP_ECORRUPT, "the stream ends after %llu bytes, inside the device state",
		       (unsigned long long)stream_here(p));
}

const struct image_map *stream_map(const struct stream_parser *p)
{
	return &p->map;
}

const char *stream_machine(const struct stream_parser *p)
{
	return p->machine;
}

uint64_t stream_records(const struct stream_parser *p)
{
	return p->records;
}

uint64_t stream_raw(const struct stream_parser *p)
{
	return stream_here(p);
}

const struct image_span *stream_spans(const struct stream_parser *p, unsigned *n)
{
	*n = p->nspans;
	return p->spans;
}

enum image_kind stream_kind(const struct stream_parser *p)
{
	return !p->ram_end ? IMAGE_BACKGROUND : p->map.repeats ? IMAGE_LIVE : IMAGE_STOPPED;
}

uint64_t stream_device_bytes(const struct stream_parser *p)
{
	return p->devices;
}
