/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_page_asked.c - Requests to ranges: their order, what is joined, and that a set stays small */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/tp_cleanup.h"
#include "fake/fake_guest_image.h"
#include "migration/page_asked.h"
#include "storage/image_read.h"

#define RAM 4000u
#define ODD 20u			/* its units end before it does, and those after it begin anew */
#define LAST (RAM + ODD)	/* first page of the last block */

static const struct fake_guest_block blocks[] = { { "ram", RAM }, { "odd", ODD }, { "last", 48 } };

struct rig {
	struct fake_guest_image image;
	struct image *img;
	struct page_asked a;
	struct image_pages ranges[64];
};

static void begin(struct rig *r)
{
	memset(&r->a, 0, sizeof(r->a));
	assert_true(page_asked_init(&r->a, r->img, NULL));
}

static void setup(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	fake_guest_image_make(&r->image, blocks, TP_N(blocks), 11);
	r->img = image_open(r->image.fd, NULL);
	assert_non_null(r->img);
	begin(r);
}

static void teardown(struct rig *r)
{
	page_asked_free(&r->a);
	image_close(r->img);
	fake_guest_image_free(&r->image);
}

static void assert_ranges(struct rig *r, const struct image_pages *want, unsigned n)
{
	assert_int_equal(page_asked_ranges(&r->a, r->ranges, 64), n);
	for (unsigned i = 0; i < n; i++) {
		const struct image_pages *is = &r->ranges[i];

		if (is->block != want[i].block || is->first != want[i].first || is->pages != want[i].pages)
			fail_msg("range %u: block %u, %llu, %llu", i, is->block, (unsigned long long)is->first,
				 (unsigned long long)is->pages);
	}
}

static void ranges_come_in_order_of_first_use(void **state)
{
	static const struct image_pages want[] = { { 0, 1600, 16 }, { 2, 32, 16 }, { 0, 0, 16 }, { 0, 3984, 16 } };
	static const uint64_t pages[] = { 1603, LAST + 47, 15, 1600, 0, RAM - 1, 1615 };
	struct rig r;

	(void)state;
	setup(&r);
	assert_ranges(&r, NULL, 0);
	for (unsigned i = 0; i < TP_N(pages); i++)
		page_asked_add(&r.a, pages[i]);
	assert_ranges(&r, want, 4);
	assert_int_equal(page_asked_ranges(&r.a, r.ranges, 1), 1);
	teardown(&r);
}

/* Less than a frame apart they are one, in the place of the earliest; blocks stay apart. */
static void near_ones_are_joined(void **state)
{
	static const struct image_pages want[] = {
		{ 0, 3936, 64 }, { 0, 640, 144 }, { 1, 0, 20 }, { 0, 320, 16 }, { 0, 400, 16 }, { 2, 0, 16 },
	};
	static const uint64_t pages[] = {
		RAM - 1, 704, RAM + 19, 320, 400, 768, RAM, 640, RAM - 64, LAST,
	};
	struct rig r;

	(void)state;
	setup(&r);
	for (unsigned i = 0; i < TP_N(pages); i++)
		page_asked_add(&r.a, pages[i]);
	assert_ranges(&r, want, TP_N(want));
	teardown(&r);
}

static uint64_t sum(const struct image_pages *ranges, unsigned n)
{
	uint64_t pages = 0;

	for (unsigned i = 0; i < n; i++)
		pages += ranges[i].pages;
	return pages;
}

/* From resume to resume: what was asked for last is first, and all together stays within its bound. */
static void a_set_does_not_grow_for_ever(void **state)
{
	struct image_pages former[64];
	unsigned n = 0;
	uint64_t most;
	struct rig r;

	(void)state;
	setup(&r);
	most = image_info(r.img)->pages_data / 2;
	for (unsigned resume = 0; resume < 12; resume++) {
		uint64_t page = (resume * 7 % 12) * 320;

		page_asked_free(&r.a);
		begin(&r);
		page_asked_add(&r.a, page);
		page_asked_add(&r.a, page + 160);
		page_asked_add_ranges(&r.a, former, n);
		n = page_asked_ranges(&r.a, r.ranges, 64);
		assert_true(sum(r.ranges, n) <= most);
		assert_true(r.ranges[0].block == 0 && r.ranges[0].first == page && r.ranges[0].pages == 16);
		assert_int_equal(r.ranges[1].first, page + 160);
		/* The former ones follow in their order, as long as there is room. */
		for (unsigned i = 0; i + 2 < n && resume > 0; i++)
			assert_int_equal(r.ranges[i + 2].first, former[i].first);
		memcpy(former, r.ranges, sizeof(former));
	}
	assert_int_equal(n, 24);
	for (uint64_t page = 0; page < RAM; page += 32)
		page_asked_add(&r.a, page);
	n = page_asked_ranges(&r.a, r.ranges, 64);
	assert_int_equal(sum(r.ranges, n), most);
	teardown(&r);
}

/* Guests that touch all of their memory are not recorded as such; joined pages count. */
static void the_bound_holds_for_what_was_joined(void **state)
{
	uint64_t most;
	struct rig r;

	(void)state;
	setup(&r);
	most = image_info(r.img)->pages_data / 2;
	for (uint64_t page = 0; page < RAM; page += 64)
		page_asked_add(&r.a, page);
	assert_int_equal(page_asked_ranges(&r.a, r.ranges, 64), 1);
	assert_int_equal(r.ranges[0].first, 0);
	assert_int_equal(r.ranges[0].pages, most);
	page_asked_add_ranges(&r.a, (struct image_pages[]){ { 0, 0, RAM }, { 1, 0, ODD } }, 2);
	assert_int_equal(sum(r.ranges, page_asked_ranges(&r.a, r.ranges, 64)), most);
	teardown(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_come_in_order_of_first_use),
		cmocka_unit_test(near_ones_are_joined),
		cmocka_unit_test(a_set_does_not_grow_for_ever),
		cmocka_unit_test(the_bound_holds_for_what_was_joined),
	};

	return cmocka_run_group_tests_name("page_asked", tests, NULL, NULL);
}
