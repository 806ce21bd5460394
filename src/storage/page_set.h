/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_set.h - A set of guest pages as JSON: ranges, in an order
 *
 * {"page-size": BYTES, "blocks": [ID...], "ranges": [[BLOCK, FIRST, PAGES]...]}: BLOCK is an index of
 * "blocks", FIRST and PAGES are numbered in that RAM block. A working set is one, in order of first use.
 * It comes from files and messages that others may have written, and is advice: who uses it checks it,
 * and does without one that does not fit.
 */
#ifndef PAGE_SET_H
#define PAGE_SET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "image_damage.h"

#define PAGE_SET_RANGES_MAX 2000u
#define PAGE_SET_TEXT_MAX (48u << 10)	/* bytes, compact: goes into a message to a mover with what else is there */

/* Types and bounds. ram (may be NULL) is [{"id", "bytes"}]: all ranges must lie in these blocks. */
bool page_set_check(const json_t *set, const json_t *ram, struct tp_error *err);
/* Of a checked set: new, without the ranges that do not lie in ram; NULL if none is left. */
json_t *page_set_fit(const json_t *set, const json_t *ram);
/* Of a checked set: the sum of its ranges. */
uint64_t page_set_pages(const json_t *set);
size_t page_set_ranges(const json_t *set);

/* Into ranges what of a set, which may be anything, lies in this image. Returns how many. */
unsigned page_set_read(const struct image *img, const json_t *set, struct image_pages *ranges, unsigned room);
/* The first n ranges, as far as they find room in a set. NULL: out of memory. */
json_t *page_set_json(const struct image *img, const struct image_pages *ranges, unsigned n);

#endif
