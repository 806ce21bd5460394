/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* page_set.c - A set of guest pages as JSON: ranges, in an order */
#include "page_set.h"

#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "image_format.h"
#include "image_page.h"

#define PAGE_SIZE_MIN 1024
#define PAGE_SIZE_MAX (1 << 30)

/* A range as it stands there; block is an index of the set's blocks. */
static bool parse_range(const json_t *triple, size_t blocks, struct image_pages *r)
{
	json_int_t v[3];

	if (json_array_size(triple) != TP_N(v))
		return false;
	for (size_t i = 0; i < TP_N(v); i++) {
		const json_t *number = json_array_get(triple, i);

		v[i] = json_integer_value(number);
		if (!json_is_integer(number) || v[i] < 0 || v[i] > (json_int_t)IMAGE_PAGES_MAX)
			return false;
	}
	*r = (struct image_pages){ (unsigned)v[0], (uint64_t)v[1], (uint64_t)v[2] };
	return (size_t)v[0] < blocks && v[2] > 0;
}

static const json_t *blocks_of(const json_t *set)
{
	return json_object_get(set, "blocks");
}

static const json_t *ranges_of(const json_t *set)
{
	return json_object_get(set, "ranges");
}

/* ---- checked */

static bool bad(struct tp_error *err, const char *what)
{
	return tp_fail(err, TP_ECORRUPT, "%s", what);
}

static bool check_shape(const json_t *set, struct tp_error *err)
{
	int64_t page_size = tp_json_int(set, "page-size", 0);
	const json_t *blocks = blocks_of(set), *ranges = ranges_of(set);
	struct image_pages r;

	if (!json_is_object(set) || !json_is_array(blocks) || !json_is_array(ranges))
		return bad(err, "not a set of pages");
	if (page_size < PAGE_SIZE_MIN || page_size > PAGE_SIZE_MAX || page_size & (page_size - 1))
		return bad(err, "page-size: not a size of pages");
	if (json_array_size(blocks) > IMAGE_BLOCKS_MAX || json_array_size(ranges) > PAGE_SET_RANGES_MAX ||
	    json_dumpb(set, NULL, 0, JSON_COMPACT) > PAGE_SET_TEXT_MAX)
		return bad(err, "too long");
	for (size_t i = 0; i < json_array_size(blocks); i++)
		if (json_string_length(json_array_get(blocks, i)) == 0)
			return bad(err, "blocks: not a name");
	for (size_t i = 0; i < json_array_size(ranges); i++)
		if (!parse_range(json_array_get(ranges, i), json_array_size(blocks), &r))
			return bad(err, "ranges: not a range of pages");
	return true;
}

/* Pages of the block with this id, 0: there is none. */
static uint64_t block_pages(const json_t *ram, const char *id, int64_t page_size)
{
	for (size_t i = 0; i < json_array_size(ram); i++) {
		const json_t *block = json_array_get(ram, i);
		const char *known = tp_json_str(block, "id");

		if (known && strcmp(known, id) == 0)
			return (uint64_t)tp_json_int(block, "bytes", 0) / (uint64_t)page_size;
	}
	return 0;
}

static bool lies_in(const struct image_pages *r, uint64_t pages)
{
	return r->first < pages && r->pages <= pages - r->first;
}

/* The ranges of a set one by one, with the size of their blocks, each looked up once. */
struct walk {
	const json_t *set;
	size_t at;
	struct image_pages range;
	const char *id;
	bool fits;
	uint64_t pages[IMAGE_BLOCKS_MAX];
};

static void walk_begin(struct walk *w, const json_t *set, const json_t *ram)
{
	int64_t page_size = tp_json_int(set, "page-size", 0);

	w->set = set;
	w->at = 0;
	for (size_t i = 0; i < json_array_size(blocks_of(set)); i++)
		w->pages[i] = block_pages(ram, json_string_value(json_array_get(blocks_of(set), i)), page_size);
}

static bool walk_next(struct walk *w)
{
	size_t blocks = json_array_size(blocks_of(w->set));

	if (!parse_range(json_array_get(ranges_of(w->set), w->at), blocks, &w->range))
		return false;
	w->at++;
	w->id = json_string_value(json_array_get(blocks_of(w->set), w->range.block));
	w->fits = lies_in(&w->range, w->pages[w->range.block]);
	return true;
}

bool page_set_check(const json_t *set, const json_t *ram, struct tp_error *err)
{
	struct walk w;

	if (!check_shape(set, err))
		return false;
	if (!ram)
		return true;
	walk_begin(&w, set, ram);
	while (walk_next(&w))
		if (!w.fits)
			return tp_fail(err, TP_ECORRUPT, "ranges: %zu is not in RAM block %.64s", w.at - 1, w.id);
	return true;
}

uint64_t page_set_pages(const json_t *set)
{
	uint64_t pages = 0;
	struct image_pages r;

	for (size_t i = 0; i < page_set_ranges(set); i++)
		if (parse_range(json_array_get(ranges_of(set), i), json_array_size(blocks_of(set)), &r))
			pages += r.pages;
	return pages;
}

size_t page_set_ranges(const json_t *set)
{
	return json_array_size(ranges_of(set));
}

/* ---- made */

struct builder {
	json_t *set, *blocks, *ranges;	/* the latter two are borrowed */
	size_t bytes;			/* of its text */
};

static void builder_begin(struct builder *b, json_int_t page_size)
{
	b->set = json_pack("{s:I, s:[], s:[]}", "page-size", page_size, "blocks", "ranges");
	b->blocks = json_object_get(b->set, "blocks");
	b->ranges = json_object_get(b->set, "ranges");
	b->bytes = json_dumpb(b->set, NULL, 0, JSON_COMPACT);
}

static bool append(struct builder *b, json_t *list, json_t *item_owned)
{
	size_t bytes = item_owned ? json_dumpb(item_owned, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) + 1 : 0;

	if (!bytes || bytes > PAGE_SET_TEXT_MAX - b->bytes) {
		json_decref(item_owned);
		return false;
	}
	b->bytes += bytes;
	return json_array_append_new(list, item_owned) == 0;
}

/* False: there is no room for it. */
static bool builder_add(struct builder *b, const char *id, const struct image_pages *r)
{
	size_t block = 0;

	while (block < json_array_size(b->blocks) &&
	       strcmp(json_string_value(json_array_get(b->blocks, block)), id) != 0)
		block++;
	if (block == json_array_size(b->blocks) && !append(b, b->blocks, json_string(id)))
		return false;
	return json_array_size(b->ranges) < PAGE_SET_RANGES_MAX &&
	       append(b, b->ranges, json_pack("[I, I, I]", (json_int_t)block, (json_int_t)r->first,
					      (json_int_t)r->pages));
}

json_t *page_set_fit(const json_t *set, const json_t *ram)
{
	struct builder b;
	struct walk w;

	builder_begin(&b, tp_json_int(set, "page-size", 0));
	walk_begin(&w, set, ram);
	while (walk_next(&w))
		if (w.fits && !builder_add(&b, w.id, &w.range))
			break;
	if (json_array_size(b.ranges))
		return b.set;
	json_decref(b.set);
	return NULL;
}

/* ---- of an image */

unsigned page_set_read(const struct image *img, const json_t *set, struct image_pages *ranges, unsigned room)
{
	const struct image_info *info = image_info(img);
	const json_t *blocks = blocks_of(set);
	unsigned n = 0;

	if (tp_json_int(set, "page-size", (int64_t)1 << info->page_bits) != (int64_t)1 << info->page_bits)
		return 0;
	for (size_t i = 0; i < page_set_ranges(set) && n < room; i++) {
		const char *id;
		int block;

		if (!parse_range(json_array_get(ranges_of(set), i), json_array_size(blocks), &ranges[n]))
			continue;
		id = json_string_value(json_array_get(blocks, ranges[n].block));
		block = id ? image_block_find(img, id, strlen(id)) : -1;
		if (block < 0)
			continue;
		ranges[n].block = (unsigned)block;
		n += lies_in(&ranges[n], image_block(img, (unsigned)block)->used_length >> info->page_bits);
	}
	return n;
}

json_t *page_set_json(const struct image *img, const struct image_pages *ranges, unsigned n)
{
	struct builder b;

	builder_begin(&b, (json_int_t)1 << image_info(img)->page_bits);
	for (unsigned i = 0; i < n; i++)
		if (!builder_add(&b, image_block(img, ranges[i].block)->id, &ranges[i]))
			break;
	return b.set;
}
