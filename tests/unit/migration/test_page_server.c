/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_page_server.c - Lazy restore against a played QEMU: order, priority, limits */
#include "page_server_rig.h"

/* ---------------------------------------------------------------- the plain course */

static void all_pages_come_and_are_right(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	rig_serve(&r);
	finish(&r);
	/* Zero pages that nobody asked for are not sent. */
	assert_int_equal(r.qemu.pages, fake_guest_data_pages(r.qemu.all));
	assert_int_equal(r.status.requests, 0);
	rig_end(&r);
}

static void held_until_released(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	r.o.hold = true;
	rig_start(&r);
	read_prologue(&r);
	assert_quiet(&r);
	assert_int_equal(r.state, PAGES_PREPARING);
	fake_destination_number(&r.qemu, DEST_PONG, 1);
	await_state(&r, PAGES_HELD);
	assert_quiet(&r);
	page_server_release(r.server);
	read_package(&r);
	fake_destination_number(&r.qemu, DEST_PONG, 2);
	finish(&r);
	rig_end(&r);
}

/* The end is not told before the devices were loaded, and requests are served meanwhile. */
static void pages_are_served_while_devices_are_loaded(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	r.o.bandwidth = 1;
	rig_start(&r);
	begin(&r);
	fake_destination_request(&r.qemu, 720);
	assert_item(&r, DEST_PAGE);
	page_server_bandwidth(r.server, 0);
	while (r.qemu.pages < fake_guest_data_pages(r.qemu.all))
		assert_item(&r, DEST_PAGE);
	while (fake_destination_next(&r.qemu, QUIET_MS) == DEST_PAGE)
		;
	assert_int_equal(r.state, PAGES_LOADING);
	fake_destination_number(&r.qemu, DEST_PONG, 2);
	finish(&r);
	rig_end(&r);
}

/* ---------------------------------------------------------------- requests */

/* A server whose background stands still. */
static void rig_on_demand(struct rig *r)
{
	rig_make(r);
	r->o.bandwidth = 1;
	rig_serve(r);
	await_state(r, PAGES_SERVING);
	/* What was let through before the limit took hold. */
	while (fake_destination_next(&r->qemu, QUIET_MS) == DEST_PAGE)
		;
}

static void a_requested_page_is_next_then_its_neighbours(void **state)
{
	struct rig r;
	uint64_t before;

	(void)state;
	rig_on_demand(&r);
	before = r.qemu.pages;
	/* Frame 50 has pages 800 to 814. */
	fake_destination_request(&r.qemu, 804);
	assert_item(&r, DEST_PAGE);
	assert_int_equal(r.qemu.page, 804);
	assert_item(&r, DEST_PAGE);
	assert_int_equal(r.qemu.page, 806);
	while (fake_destination_next(&r.qemu, QUIET_MS) == DEST_PAGE)
		assert_true(r.qemu.zero ? r.qemu.page / 64 == 804 / 64 : r.qemu.page / 16 == 50);
	/* All 11 of the frame, and the zero pages of the window of 64 pages about it. */
	assert_int_equal(r.qemu.pages - before, 11 + 16);
	rig_stop(&r);
}

static void zero_and_absent_pages_are_answered(void **state)
{
	struct rig r;

	(void)state;
	rig_on_demand(&r);
	fake_destination_request(&r.qemu, 1041);
	assert_item(&r, DEST_PAGE);
	assert_int_equal(r.qemu.page, 1041);
	assert_true(r.qemu.zero);
	while (fake_destination_next(&r.qemu, QUIET_MS) == DEST_PAGE)
		assert_true(r.qemu.zero && r.qemu.page / 64 == 1041 / 64 && r.qemu.page % 16 != 15);
	fake_destination_request(&r.qemu, 1055);
	assert_item(&r, DEST_PAGE);
	assert_int_equal(r.qemu.page, 1055);
	assert_true(r.qemu.zero);
	assert_quiet(&r);
	rig_stop(&r);
}

static void a_request_for_what_is_there_is_not_answered(void **state)
{
	struct rig r;

	(void)state;
	rig_on_demand(&r);
	fake_destination_request(&r.qemu, 804);
	fake_destination_request(&r.qemu, 804);
	assert_item(&r, DEST_PAGE);
	while (fake_destination_next(&r.qemu, QUIET_MS) == DEST_PAGE)
		;
	/* A page that came as a neighbour. */
	fake_destination_request(&r.qemu, 802);
	assert_quiet(&r);
	page_server_status(r.server, &r.status);
	assert_int_equal(r.status.requests, 1);
	rig_stop(&r);
}

/* Every page is requested, in no order, while the background runs: each comes once. */
static void a_storm_of_requests(void **state)
{
	struct rig r;
	uint64_t page = 0, asked = 0;
	enum dest_item item;

	(void)state;
	rig_make(&r);
	rig_serve(&r);
	do {
		for (int i = 0; i < 3 && asked < r.qemu.all; i++, asked++) {
			page = (page + 1361) % r.qemu.all;
			if (!r.qemu.have[page])
				fake_destination_request(&r.qemu, page);
		}
		item = fake_destination_next(&r.qemu, PATIENCE_MS);
	} while (item == DEST_PAGE);
	assert_int_equal(item, DEST_END);
	assert_complete(&r);
	fake_destination_number(&r.qemu, DEST_SHUT, 0);
	assert_true(rig_join(&r));
	assert_true(r.status.requests > 0);
	assert_true(r.status.latency_p50 <= r.status.latency_p99 &&
		    r.status.latency_p99 <= r.status.latency_max);
	rig_end(&r);
}

static void assert_pages(const struct image_pages *is, unsigned block, uint64_t first, uint64_t pages)
{
	assert_int_equal(is->block, block);
	assert_int_equal(is->first, first);
	assert_int_equal(is->pages, pages);
}

static void preferred_ranges_come_first_and_are_told_again(void **state)
{
	static const struct image_pages ranges[] = {
		{ 1, 32, 16 }, { 0, 1600, 16 },
		/* Nonsense is passed over, what is said twice counts once. */
		{ 7, 0, 1 }, { 0, 1999, 2 }, { 0, 5, UINT64_MAX }, { 2, 0, 0 }, { 1, 32, 16 },
	};
	struct image_pages asked[8];
	struct rig r;

	(void)state;
	rig_make(&r);
	rig_open(&r);
	page_server_prefer(r.server, ranges, 7);
	rig_run(&r);
	connect_qemu(&r, false);
	begin(&r);
	for (unsigned i = 0; i < 22; i++) {
		assert_item(&r, DEST_PAGE);
		assert_int_equal(r.qemu.page / 16, i < 11 ? 2032 / 16 : 1600 / 16);
	}
	assert_item(&r, DEST_PAGE);
	assert_int_equal(r.qemu.page, 0);
	fake_destination_request(&r.qemu, 1990);
	fake_destination_number(&r.qemu, DEST_PONG, 2);
	finish(&r);
	assert_int_equal(r.status.preferred, 22);
	assert_int_equal(r.status.preferred_left, 0);
	assert_int_equal(page_server_asked(r.server, asked, 8), 3);
	assert_pages(&asked[0], 0, 1984, 16);
	assert_pages(&asked[1], 1, 32, 16);
	assert_pages(&asked[2], 0, 1600, 16);
	/* Asked once more, it says the same. */
	assert_int_equal(page_server_asked(r.server, asked, 2), 2);
	assert_pages(&asked[1], 1, 32, 16);
	rig_end(&r);
}

static void nap(double seconds)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)(seconds * 1e9) }, NULL);
}

static void ask(struct rig *r, uint64_t page)
{
	fake_destination_request(&r->qemu, page);
	while (!r->qemu.have[page])
		assert_item(r, DEST_PAGE);
}

/* What devices touch counts, then what the guest does, until its first seconds are over. */
static void only_the_first_seconds_count(void **state)
{
	struct image_pages asked[8];
	struct rig r;

	(void)state;
	rig_make(&r);
	r.o.bandwidth = 1;
	r.o.first_seconds = 0.5;
	rig_start(&r);
	begin(&r);
	ask(&r, 1984);
	fake_destination_number(&r.qemu, DEST_PONG, 2);
	await_state(&r, PAGES_SERVING);
	nap(0.6);
	/* Nobody said that the guest runs: they begin with the first request. */
	ask(&r, 1600);
	nap(0.6);
	ask(&r, 1200);
	page_server_running(r.server);
	ask(&r, 800);
	nap(0.6);
	/* It was paused and continued. */
	page_server_running(r.server);
	ask(&r, 400);
	page_server_stop(r.server);
	assert_false(rig_join(&r));
	assert_int_equal(page_server_asked(r.server, asked, 8), 3);
	assert_pages(&asked[0], 0, 1984, 16);
	assert_pages(&asked[1], 0, 1600, 16);
	assert_pages(&asked[2], 0, 800, 16);
	rig_end(&r);
}

/* ---------------------------------------------------------------- bandwidth, stalls */

static void the_background_keeps_to_its_bandwidth(void **state)
{
	double bytes, start, seconds;
	struct rig r;

	(void)state;
	rig_make(&r);
	r.o.bandwidth = 4u << 20;
	rig_serve(&r);
	start = tp_now_mono();
	finish(&r);
	seconds = tp_now_mono() - start;
	bytes = (double)r.status.sent * FAKE_GUEST_PAGE;
	/* All but what may go at once, and one piece. */
	assert_true(seconds >= (bytes - (4u << 20) * 0.05 - 32 * 4104) / (4u << 20));
	rig_end(&r);
}

static void a_qemu_that_does_not_read_costs_no_memory(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	rig_serve(&r);
	await_state(&r, PAGES_SERVING);
	/* The whole image is larger than the socket's buffer. */
	nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
	page_server_status(r.server, &r.status);
	assert_true(r.status.left > 0);
	assert_int_equal(r.state, PAGES_SERVING);
	finish(&r);
	rig_end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_pages_come_and_are_right),
		cmocka_unit_test(held_until_released),
		cmocka_unit_test(pages_are_served_while_devices_are_loaded),
		cmocka_unit_test(a_requested_page_is_next_then_its_neighbours),
		cmocka_unit_test(zero_and_absent_pages_are_answered),
		cmocka_unit_test(a_request_for_what_is_there_is_not_answered),
		cmocka_unit_test(a_storm_of_requests),
		cmocka_unit_test(preferred_ranges_come_first_and_are_told_again),
		cmocka_unit_test(only_the_first_seconds_count),
		cmocka_unit_test(the_background_keeps_to_its_bandwidth),
		cmocka_unit_test(a_qemu_that_does_not_read_costs_no_memory),
	};

	return cmocka_run_group_tests_name("page_server", tests, NULL, NULL);
}
