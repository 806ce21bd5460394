/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_page.c - Find guest pages in an image: page -> class -> frame -> bytes
 *
 * The index says which frame has a page's last record, the frame's own records
 * say where in it. A page may have several records, in one frame or in many
 * (a live save); the last one in the stream holds its content.
 */
#include "image_page.h"

#include <stdlib.h>

#include "image_map.h"
#include "image_priv.h"

enum image_class image_page_find(const struct image *img, uint64_t page, uint64_t *frame)
{
	const struct image_index *x = &img->x;
	enum image_class class_ = image_index_class(x, page);

	if (frame && class_ == IMAGE_DATA)
		*frame = x->run_frame[image_index_run(x, page)];
	return class_;
}

uint64_t image_page_next_data(const struct image *img, uint64_t page, uint64_t end)
{
	while (page < end && image_index_class(&img->x, page) != IMAGE_DATA)
		page++;
	return page;
}

unsigned image_page_block(const struct image *img, uint64_t page)
{
	const struct image_index *x = &img->x;
	unsigned i = 0;

	/* Blocks without pages begin where the next one does. */
	while (i + 1 < x->nblocks && x->blocks[i + 1].first_page <= page)
		i++;
	return i;
}

int image_block_find(const struct image *img, const char *id, size_t n)
{
	struct image_map m = { .nblocks = img->x.nblocks, .blocks = img->x.blocks };

	return image_block_id_ok(id, n) ? image_map_find(&m, id, n) : -1;
}

/* ---- a frame's pages */

/* @order: of the record in the frame; @data: NULL: a zero record */
struct record {
	uint64_t page;
	uint32_t order;
	const uint8_t *data;
};

struct collection {
	struct record *records;
	size_t n, cap;
	bool sorted, nomem;
};

static void collect(void *arg, uint64_t page, enum image_class class_, const uint8_t *data)
{
	struct collection *c = arg;

	(void)class_;
	if (c->n == c->cap && !c->nomem) {
		size_t cap = c->cap ? c->cap * 2 : 128;
		struct record *more = realloc(c->records, cap * sizeof(*more));

		c->nomem = !more;
		if (more) {
			c->records = more;
			c->cap = cap;
		}
	}
	if (c->nomem)
		return;
	c->sorted &= c->n == 0 || c->records[c->n - 1].page < page;
	c->records[c->n] = (struct record){ page, (uint32_t)c->n, data };
	c->n++;
}

static int by_page(const void *a, const void *b)
{
	const struct record *x = a, *y = b;

	if (x->page != y->page)
		return x->page < y->page ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

/* Keeps what the frame is the place of. */
static bool choose(const struct image *img, uint64_t frame, const struct collection *c,
		   struct image_page *pages, size_t *n, struct tp_error *err)
{
	char where[IMAGE_WHERE];

	*n = 0;
	for (size_t i = 0; i < c->n; i++) {
		const struct record *r = &c->records[i];
		uint64_t home = 0;

		if ((i + 1 < c->n && c->records[i + 1].page == r->page) ||
		    image_page_find(img, r->page, &home) != IMAGE_DATA || home != frame)
			continue;
		if (!r->data)
			return tp_fail(err, TP_ECORRUPT, "%s: the last record of page %llu is a zero page, "
				       "the index says data", image_where(img, frame, where),
				       (unsigned long long)r->page);
		pages[(*n)++] = (struct image_page){ r->page, r->data };
	}
	return true;
}

bool image_frame_pages(const struct image *img, uint64_t frame, const uint8_t *raw,
		       struct image_page **pages, size_t *n, struct tp_error *err)
{
	struct collection c = { .sorted = true };
	struct image_page *list = NULL;
	bool good = image_walk_frame(img, frame, raw, collect, &c, err);

	if (good && !c.nomem)
		list = malloc((c.n + 1) * sizeof(*list));
	if (list) {
		if (!c.sorted)
			qsort(c.records, c.n, sizeof(*c.records), by_page);
		good = choose(img, frame, &c, list, n, err);
	} else if (good) {
		good = tp_fail_nomem(err);
	}
	free(c.records);
	if (!good) {
		free(list);
		return false;
	}
	*pages = list;
	return true;
}
