/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_index.c - The parser of an image's index against any claims of the footer
 *
 * The first 58 bytes are the claims, the rest the decoded body. What is
 * accepted must keep the promises that its readers rely on.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_size.h"
#include "storage/image_format.h"
#include "storage/image_index.h"

#define CLAIMS 58u
#define PAGES_MAX (1u << 20)	/* of an accepted index that is looked through */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool promise)
{
	if (!promise)
		abort();
}

static void check_frames(const struct image_index *x, const struct image_claims *c)
{
	must(x->frames == c->frames && x->stored_at[0] == 0 && x->raw_at[0] == 0);
	for (uint64_t i = 0; i < x->frames; i++) {
		must(x->stored_at[i] < x->stored_at[i + 1] && x->raw_at[i] < x->raw_at[i + 1]);
		must(x->raw_at[i + 1] - x->raw_at[i] <= IMAGE_FRAME_MAX);
		must(x->block[i] == IMAGE_NO_BLOCK || x->block[i] < x->nblocks);
	}
	must(x->stored_at[x->frames] == c->frame_bytes && x->raw_at[x->frames] == c->raw_bytes);
}

static void check_pages(const struct image_index *x, const struct image_claims *c)
{
	uint64_t pages = 0;

	must(x->nblocks == c->blocks);
	for (unsigned i = 0; i < x->nblocks; i++) {
		must(x->blocks[i].first_page == pages && x->blocks[i].id[0]);
		pages += x->blocks[i].used_length >> c->page_bits;
	}
	must(pages == x->pages && pages == c->pages);
	for (uint64_t i = 0; i < x->runs; i++) {
		must(x->run_frame[i] < x->frames && x->run_page[i] < x->pages);
		must(i ? x->run_page[i] > x->run_page[i - 1] : x->run_page[i] == 0);
	}
	must(x->runs > 0 || x->pages == 0);
}

static void check_spans(const struct image_index *x, const struct image_claims *c)
{
	uint64_t end = 0;

	for (unsigned i = 0; i < x->nspans; i++) {
		must(x->spans[i].offset >= end);
		end = x->spans[i].offset + x->spans[i].length;
		must(end >= x->spans[i].offset && end <= c->raw_bytes);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image_claims c;
	struct image_index x;
	struct tp_error err = TP_ERROR_INIT;

	if (size < CLAIMS)
		return 0;
	c = (struct image_claims){
		.frames = tp_le64(data), .raw_bytes = tp_le64(data + 8),
		.frame_bytes = tp_le64(data + 16), .pages = tp_le64(data + 24),
		.pages_data = tp_le64(data + 32), .pages_zero = tp_le64(data + 40),
		.page_bits = tp_le32(data + 48), .blocks = tp_le32(data + 52) & 0xffff,
	};
	if (!image_index_parse(data + CLAIMS, size - CLAIMS, &c, &x, &err)) {
		must(err.code == TP_ECORRUPT || err.code == TP_EUNSUPPORTED || err.code == TP_ELIMIT);
		must(!x.blocks && !x.stored_at && !x.classes && !x.run_page && !x.spans);
		return 0;
	}
	must(size - CLAIMS <= image_index_body_max(&c) || x.pages < PAGES_MAX);
	check_frames(&x, &c);
	check_pages(&x, &c);
	check_spans(&x, &c);
	image_index_free(&x);
	return 0;
}
