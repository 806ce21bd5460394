/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_survey.c - What the pages of an image are, by its index alone */
#include "image_survey.h"

#include "image_priv.h"

/* How many pages from `page` on have its class; four at once where a byte says so. */
static uint64_t same_class(const struct image_index *x, uint64_t page, uint64_t end)
{
	enum image_class class_ = image_index_class(x, page);
	uint8_t four = (uint8_t)(0x55 * class_);
	uint64_t at = page + 1;

	while (at < end) {
		if (at % 4 == 0 && end - at >= 4 && x->classes[at / 4] == four)
			at += 4;
		else if (image_index_class(x, at) == class_)
			at++;
		else
			break;
	}
	return at - page;
}

void image_survey(const struct image *img, unsigned block, image_stretch_fn fn, void *arg)
{
	const struct image_index *x = &img->x;
	const struct image_block *b = &x->blocks[block];
	uint64_t at = b->first_page, end = at + (b->used_length >> img->info.page_bits);
	uint64_t run = at < end ? image_index_run(x, at) : 0;

	while (at < end) {
		uint64_t run_end, n;

		while (run + 1 < x->runs && x->run_page[run + 1] <= at)
			run++;
		run_end = run + 1 < x->runs && x->run_page[run + 1] < end ? x->run_page[run + 1] : end;
		n = same_class(x, at, run_end);
		fn(arg, at - b->first_page, n, image_index_class(x, at), x->run_frame[run]);
		at += n;
	}
}

struct counting {
	const struct image *img;
	struct image_shares *shares;
};

static void count(void *arg, uint64_t first, uint64_t pages, enum image_class class_, uint64_t frame)
{
	const struct counting *c = arg;
	double raw;

	(void)first;
	if (class_ == IMAGE_ZERO)
		c->shares->zero += pages;
	else if (class_ != IMAGE_DATA)
		c->shares->absent += pages;
	if (class_ != IMAGE_DATA)
		return;
	c->shares->data += pages;
	raw = (double)image_frame_raw(c->img, frame);
	c->shares->stored += (double)(pages << c->img->info.page_bits) / raw *
			     (double)image_frame_stored(c->img, frame);
}

void image_block_shares(const struct image *img, unsigned block, struct image_shares *shares)
{
	struct image_shares sum = { 0 };
	struct counting c = { img, &sum };

	image_survey(img, block, count, &c);
	*shares = sum;
}
