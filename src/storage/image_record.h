/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_record.h - Records in the body of a RAM section of QEMU's migration stream
 *
 * A record is a be64 word (page address | flags in the low 12 bits), without
 * CONTINUE the name of its block, and its payload. Used by the parser of the
 * incoming stream and by readers that walk a decoded frame.
 */
#ifndef IMAGE_RECORD_H
#define IMAGE_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/tp_size.h"

#define RAM_SECTION_START 1u
#define RAM_SECTION_PART 2u
#define RAM_SECTION_END 3u
#define RAM_SECTION_FULL 4u
#define RAM_VMDESC 6u
#define RAM_COMMAND 8u
#define RAM_FOOTER 0x7eu
#define RAM_PART_HEAD 5u		/* type, be32 section id */
#define RAM_FOOTER_SIZE 5u		/* RAM_FOOTER, be32 section id */
#define RAM_COMMAND_HEAD 5u		/* type, be16 command, be16 length */

#define RAM_FLAG_ZERO 0x002u
#define RAM_FLAG_MEM_SIZE 0x004u
#define RAM_FLAG_PAGE 0x008u
#define RAM_FLAG_EOS 0x010u
#define RAM_FLAG_CONTINUE 0x020u
#define RAM_FLAGS 0xfffu

#define RAM_WORD 8u
#define RAM_ZERO_CONTINUED (RAM_WORD + 1)	/* word and the byte 0 */
#define RAM_EOS_SIZE (RAM_WORD + RAM_FOOTER_SIZE)

enum ram_kind { RAM_SHORT, RAM_PAGE, RAM_ZERO, RAM_EOS, RAM_MEM_SIZE, RAM_REFUSED };

struct ram_record {
	uint64_t address;
	unsigned flags;
	const char *id;		/* NULL: the block of the record before */
	size_t id_length;
	size_t length;		/* all of it; of RAM_SHORT: bytes needed to know more */
	uint8_t fill;		/* of RAM_ZERO */
};

/* RAM_MEM_SIZE and RAM_REFUSED have only address and flags. RAM_EOS includes the section's footer. */
static inline enum ram_kind ram_record_decode(const uint8_t *p, size_t n, size_t page,
					      struct ram_record *r)
{
	uint64_t word;
	size_t head = RAM_WORD;

	*r = (struct ram_record){ .length = RAM_WORD };
	if (n < RAM_WORD)
		return RAM_SHORT;
	word = tp_be64(p);
	r->flags = (unsigned)(word & RAM_FLAGS);
	r->address = word & ~(uint64_t)RAM_FLAGS;
	if (r->flags == RAM_FLAG_EOS && !r->address) {
		r->length = RAM_EOS_SIZE;
		return n < r->length ? RAM_SHORT : RAM_EOS;
	}
	if (r->flags == RAM_FLAG_MEM_SIZE)
		return RAM_MEM_SIZE;
	if ((r->flags & ~RAM_FLAG_CONTINUE) != RAM_FLAG_PAGE &&
	    (r->flags & ~RAM_FLAG_CONTINUE) != RAM_FLAG_ZERO)
		return RAM_REFUSED;
	if (!(r->flags & RAM_FLAG_CONTINUE)) {
		r->length = RAM_WORD + 1;
		if (n < r->length)
			return RAM_SHORT;
		r->id = (const char *)p + RAM_WORD + 1;
		r->id_length = p[RAM_WORD];
		head = RAM_WORD + 1 + r->id_length;
	}
	r->length = head + (r->flags & RAM_FLAG_PAGE ? page : 1);
	if (n < r->length)
		return RAM_SHORT;
	r->fill = p[head];
	return r->flags & RAM_FLAG_PAGE ? RAM_PAGE : RAM_ZERO;
}

#endif
