/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_page_server_trouble.c - Lazy restore against a played QEMU: breaks, damage, nonsense */
#include "page_server_rig.h"

/* ---------------------------------------------------------------- broken connections */

/* A new connection: the bitmaps, the acknowledgment. */
static void recover(struct rig *r)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		assert_command(r, 10);
		assert_int_equal(r->qemu.data_n, 1 + strlen(blocks[i].id));
		assert_memory_equal(r->qemu.data + 1, blocks[i].id, strlen(blocks[i].id));
	}
	/* In another order than asked for. */
	for (unsigned i = BLOCKS; i-- > 0;)
		fake_destination_bitmap(&r->qemu, i);
	assert_command(r, 9);
	fake_destination_number(&r->qemu, DEST_RESUME_ACK, 1);
}

static void a_broken_connection_is_recovered(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	rig_serve(&r);
	for (unsigned times = 1; times <= 5; times++) {
		/* What is on the way is lost with the connection. */
		for (unsigned i = 0; i < 37; i++)
			assert_item(&r, DEST_PAGE);
		fake_destination_detach(&r.qemu);
		await_state(&r, PAGES_WAITING);
		connect_qemu(&r, true);
		recover(&r);
		await_state(&r, PAGES_SERVING);
	}
	finish(&r);
	assert_int_equal(r.status.connections, 6);
	rig_end(&r);
}

static void another_server_takes_over(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	rig_serve(&r);
	for (unsigned i = 0; i < 100; i++)
		assert_item(&r, DEST_PAGE);
	page_server_stop(r.server);
	assert_false(rig_join(&r));
	page_server_free(r.server);
	tp_error_clear(&r.err);
	r.o.recover = true;
	rig_open(&r);
	rig_run(&r);
	/* It is ready before anybody connects. */
	page_server_status(r.server, &r.status);
	assert_int_equal(r.status.state, PAGES_WAITING);
	connect_qemu(&r, true);
	recover(&r);
	finish(&r);
	assert_int_equal(r.qemu.pages, fake_guest_data_pages(r.qemu.all));
	rig_end(&r);
}

static void a_break_within_the_recovery_is_recovered(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	rig_serve(&r);
	assert_item(&r, DEST_PAGE);
	fake_destination_detach(&r.qemu);
	await_state(&r, PAGES_WAITING);
	connect_qemu(&r, true);
	assert_command(&r, 10);
	/* Half of a bitmap. */
	fake_destination_say(&r.qemu, "\0\5\0\7\6pc.ram\0\0\0\0\0\0\1\0\xff\xff", 21);
	await_state(&r, PAGES_RECOVERING);
	fake_destination_detach(&r.qemu);
	await_state(&r, PAGES_WAITING);
	connect_qemu(&r, true);
	recover(&r);
	finish(&r);
	rig_end(&r);
}

static void without_qemu_before_the_package_it_ends(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	r.o.hold = true;
	rig_start(&r);
	read_prologue(&r);
	fake_destination_number(&r.qemu, DEST_PONG, 1);
	await_state(&r, PAGES_HELD);
	fake_destination_detach(&r.qemu);
	assert_false(rig_join(&r));
	assert_string_equal(r.err.class_, "QemuError");
	assert_int_equal(r.damage.frame, IMAGE_NO_FRAME);
	rig_end(&r);
}

/* ---------------------------------------------------------------- damage */

static void assert_frame_stayed(struct rig *r, uint64_t frame)
{
	while (fake_destination_next(&r->qemu, QUIET_MS) == DEST_PAGE)
		;
	for (uint64_t page = frame * FRAME_PAGES; page < (frame + 1) * FRAME_PAGES; page++)
		assert_int_not_equal(r->qemu.have[page], 1);
}

static void damage_ends_the_server_and_nothing_of_it_is_sent(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	fake_guest_image_damage(&r.image, 30);
	rig_serve(&r);
	assert_frame_stayed(&r, 30);
	assert_false(rig_join(&r));
	assert_int_equal(r.err.code, TP_ECORRUPT);
	assert_int_equal(r.damage.frame, 30);
	assert_int_equal(r.damage.nranges, 1);
	assert_int_equal(r.damage.ranges[0].block, 0);
	assert_int_equal(r.damage.ranges[0].first, 480);
	assert_int_equal(r.damage.lost, 11);
	/* All before it came; the connection is still there. */
	assert_int_equal(r.qemu.pages, 30 * 11);
	assert_int_equal(fake_destination_next(&r.qemu, QUIET_MS), DEST_NOTHING);
	rig_end(&r);
}

static void damage_that_is_asked_for(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	fake_guest_image_damage(&r.image, 60);
	r.o.bandwidth = 1;
	rig_start(&r);
	begin(&r);
	fake_destination_request(&r.qemu, 962);
	assert_frame_stayed(&r, 60);
	assert_false(rig_join(&r));
	assert_int_equal(r.err.code, TP_ECORRUPT);
	assert_int_equal(r.damage.frame, 60);
	rig_end(&r);
}

static void damaged_devices_are_found_at_once(void **state)
{
	struct rig r;

	(void)state;
	rig_make(&r);
	fake_guest_image_damage(&r.image, r.image.frames - 1);
	assert_null(page_server_new(&r.o, &r.err));
	assert_int_equal(r.err.code, TP_ECORRUPT);
	rig_end(&r);
}

/* ---------------------------------------------------------------- a hostile QEMU */

static void nonsense_ends_the_server(void **state)
{
	static const struct { const char *bytes; size_t n; bool early; } bad[] = {
#define BAD(text, early) { text, sizeof(text) - 1, early }
		BAD("\0\x63\0\0", false),
		/* Requests: block, border, end, length, alignment. */
		BAD("\0\3\0\x11\0\0\0\0\0\0\0\0\0\0\x10\0\4evil", false),
		BAD("\0\3\0\x13\0\0\0\0\0\x7d\0\0\0\0\x10\0\6pc.ram", false),
		BAD("\0\3\0\x13\xff\xff\xff\xff\xff\xff\xf0\0\0\0\x10\0\6pc.ram", false),
		BAD("\0\3\0\x13\0\0\0\0\0\0\0\0\0\0\0\0\6pc.ram", false),
		BAD("\0\3\0\x13\0\0\0\0\0\0\0\0\0\x20\0\0\6pc.ram", false),
		BAD("\0\3\0\x13\0\0\0\0\0\0\0\1\0\0\x10\0\6pc.ram", false),
		/* What is not its turn. */
		BAD("\0\3\0\x13\0\0\0\0\0\0\0\0\0\0\x10\0\6pc.ram", true),
		BAD("\0\2\0\4\0\0\0\2", true),
		BAD("\0\2\0\4\0\0\0\7", false),
		BAD("\0\1\0\4\0\0\0\0", false),
		BAD("\0\1\0\4\0\0\0\1", false),
		BAD("\0\6\0\4\0\0\0\1", false),
		BAD("\0\5\0\7\6pc.ram\0\0\0\0\0\0\1\0", false),
#undef BAD
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rig r;

		rig_make(&r);
		r.o.bandwidth = 1;
		rig_start(&r);
		read_prologue(&r);
		if (!bad[i].early) {
			fake_destination_number(&r.qemu, DEST_PONG, 1);
			read_package(&r);
		}
		fake_destination_say(&r.qemu, bad[i].bytes, bad[i].n);
		if (rig_join(&r))
			fail_msg("message %zu was taken", i);
		assert_string_equal(tp_error_class(&r.err), "QemuError");
		rig_end(&r);
	}
}

static void bad_bitmaps_end_the_recovery(void **state)
{
	static const struct { const char *bytes; size_t n; } bad[] = {
		{ "\0\5\0\5\4evil\0\0\0\0\0\0\1\0", 17 },
		{ "\0\5\0\7\6pc.ram\0\0\0\0\0\0\1\x08", 19 },
		{ "\0\5\0\7\6pc.ram\xff\xff\xff\xff\xff\xff\xff\xff", 19 },
		{ "\0\6\0\4\0\0\0\1", 8 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rig r;

		rig_make(&r);
		r.o.recover = true;
		rig_open(&r);
		rig_run(&r);
		connect_qemu(&r, true);
		assert_command(&r, 10);
		fake_destination_say(&r.qemu, bad[i].bytes, bad[i].n);
		assert_false(rig_join(&r));
		assert_int_equal(r.err.code, TP_EPROTO);
		rig_end(&r);
	}
}

static void *flood_main(void *arg)
{
	struct fake_destination *d = arg;

	for (uint64_t i = 0; i < 3 * d->all; i++)
		fake_destination_request(d, i % d->all);
	return NULL;
}

/* More than the list holds: they wait in the socket, none is lost. */
static void a_flood_of_requests_is_held_up(void **state)
{
	pthread_t flooder;
	struct rig r;

	(void)state;
	rig_make(&r);
	r.o.bandwidth = 1;
	rig_start(&r);
	begin(&r);
	assert_int_equal(pthread_create(&flooder, NULL, flood_main, &r.qemu), 0);
	while (r.qemu.pages < r.qemu.all)
		assert_item(&r, DEST_PAGE);
	pthread_join(flooder, NULL);
	fake_destination_number(&r.qemu, DEST_PONG, 2);
	finish(&r);
	rig_end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_broken_connection_is_recovered),
		cmocka_unit_test(another_server_takes_over),
		cmocka_unit_test(a_break_within_the_recovery_is_recovered),
		cmocka_unit_test(without_qemu_before_the_package_it_ends),
		cmocka_unit_test(damage_ends_the_server_and_nothing_of_it_is_sent),
		cmocka_unit_test(damage_that_is_asked_for),
		cmocka_unit_test(damaged_devices_are_found_at_once),
		cmocka_unit_test(nonsense_ends_the_server),
		cmocka_unit_test(bad_bitmaps_end_the_recovery),
		cmocka_unit_test(a_flood_of_requests_is_held_up),
	};

	return cmocka_run_group_tests_name("page_server_trouble", tests, NULL, NULL);
}
