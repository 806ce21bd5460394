/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_damage.c - What is wrong with an image, place by place */
#include "image_damage.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "image_format.h"
#include "image_priv.h"

static_assert(IMAGE_DAMAGE_WHERE <= IMAGE_WHERE, "image_where() writes into the caller's buffer");

#define NO_DATA_MASK 0xAAu	/* of four pages' classes: none of them has data */

/* ---- pages of a frame */

struct finder {
	const struct image_index *x;
	struct image_damage *d;
	struct image_pages range;	/* the one that may still grow */
	uint64_t next_run;		/* a run with this number goes on with it */
	unsigned block;			/* of the last page looked at */
};

static void close_range(struct finder *f)
{
	if (f->range.pages && f->d->nranges++ < IMAGE_DAMAGE_RANGES)
		f->d->ranges[f->d->nranges - 1] = f->range;
	f->range.pages = 0;
}

static void add_page(struct finder *f, uint64_t page)
{
	while (f->block + 1 < f->x->nblocks && f->x->blocks[f->block + 1].first_page <= page)
		f->block++;
	page -= f->x->blocks[f->block].first_page;
	if (f->range.pages && f->range.block != f->block)
		close_range(f);
	if (!f->range.pages)
		f->range = (struct image_pages){ f->block, page, 0 };
	f->range.pages = page - f->range.first + 1;
	f->d->lost++;
}

static void add_run(struct finder *f, uint64_t run)
{
	const struct image_index *x = f->x;
	uint64_t end = run + 1 < x->runs ? x->run_page[run + 1] : x->pages;

	if (run != f->next_run)
		close_range(f);
	f->next_run = run + 1;
	for (uint64_t page = x->run_page[run]; page < end; ) {
		if (page % 4 == 0 && !(x->classes[page / 4] & NO_DATA_MASK)) {
			page += 4;
			continue;
		}
		if (image_index_class(x, page) == IMAGE_DATA)
			add_page(f, page);
		page++;
	}
}

void image_damage_of_frame(const struct image *img, uint64_t frame, struct image_damage *d)
{
	struct finder f = { .x = &img->x, .d = d, .next_run = UINT64_MAX };

	*d = (struct image_damage){
		.frame = frame, .offset = IMAGE_HEADER_SIZE + img->x.stored_at[frame],
		.length = image_frame_stored(img, frame),
	};
	for (uint64_t run = 0; run < img->x.runs; run++)
		if (img->x.run_frame[run] == frame)
			add_run(&f, run);
	close_range(&f);
}

/* ---- as text */

const char *image_damage_where(const struct image *img, const struct image_damage *d,
			       char buf[IMAGE_DAMAGE_WHERE])
{
	const struct image_pages *r = &d->ranges[0];
	int n;

	if (d->frame == IMAGE_NO_FRAME)
		n = snprintf(buf, IMAGE_DAMAGE_WHERE, "%s at offset %" PRIu64,
			     d->offset == img->info.index_offset ? "index" : "footer", d->offset);
	else
		n = snprintf(buf, IMAGE_DAMAGE_WHERE, "frame %" PRIu64 " at offset %" PRIu64, d->frame,
			     d->offset);
	if (d->nranges)
		snprintf(buf + n, IMAGE_DAMAGE_WHERE - (size_t)n, " (%s, pages %" PRIu64 " to %" PRIu64 "%s)",
			 img->x.blocks[r->block].id, r->first, r->first + r->pages - 1,
			 d->nranges > 1 ? ", and more" : "");
	else if (d->frame != IMAGE_NO_FRAME && img->x.flags[d->frame] & IMAGE_FRAME_DEVICE)
		snprintf(buf + n, IMAGE_DAMAGE_WHERE - (size_t)n, " (device state)");
	return buf;
}

const char *image_where(const struct image *img, uint64_t frame, char buf[IMAGE_WHERE])
{
	struct image_damage d;

	image_damage_of_frame(img, frame, &d);
	return image_damage_where(img, &d, buf);
}

bool image_damages_fail(const struct image *img, const struct image_damages *damages,
			struct tp_error *err)
{
	const struct image_damage *d = &damages->list[0];
	char where[IMAGE_DAMAGE_WHERE];

	image_damage_where(img, d, where);
	if (damages->total > 1)
		return tp_fail(err, TP_ECORRUPT, "%" PRIu64 " places are damaged, first %s: %s",
			       damages->total, where, d->what);
	return tp_fail(err, TP_ECORRUPT, "%s is damaged: %s", where, d->what);
}

/* ---- as JSON */

static json_t *range_json(const struct image *img, const struct image_pages *r)
{
	return json_pack("{s:s, s:I, s:I}", "block", img->x.blocks[r->block].id, "first-page",
			 (json_int_t)r->first, "pages", (json_int_t)r->pages);
}

static json_t *ranges_json(const struct image *img, const struct image_damage *d)
{
	json_t *list = json_array();

	for (uint64_t i = 0; i < d->nranges && i < IMAGE_DAMAGE_RANGES; i++)
		json_array_append_new(list, range_json(img, &d->ranges[i]));
	return list;
}

static json_t *damage_json(const struct image *img, const struct image_damage *d, bool ranges)
{
	json_t *o = json_pack("{s:s, s:I, s:I}", "what", d->what, "offset", (json_int_t)d->offset,
			      "length", (json_int_t)d->length), *first;

	if (o && d->frame != IMAGE_NO_FRAME)
		json_object_set_new(o, "frame", json_integer((json_int_t)d->frame));
	if (!o || !d->nranges)
		return o;
	first = range_json(img, &d->ranges[0]);
	json_object_update(o, first);
	json_decref(first);
	json_object_set_new(o, "lost", json_integer((json_int_t)d->lost));
	if (ranges && d->nranges > 1)
		json_object_set_new(o, "ranges", ranges_json(img, d));
	return o;
}

static json_t *list_json(const struct image *img, const struct image_damages *damages, bool ranges)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < damages->n; i++)
		json_array_append_new(list, damage_json(img, &damages->list[i], ranges));
	return list;
}

json_t *image_damages_json(const struct image *img, const struct image_damages *damages, size_t max)
{
	json_t *list = list_json(img, damages, true);

	if (json_dumpb(list, NULL, 0, JSON_COMPACT) > max) {
		json_decref(list);
		list = list_json(img, damages, false);
	}
	while (json_array_size(list) > 1 && json_dumpb(list, NULL, 0, JSON_COMPACT) > max)
		json_array_remove(list, json_array_size(list) - 1);
	return list;
}
