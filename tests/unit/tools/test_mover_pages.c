/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_mover_pages.c - Job page-server by the real program: its engines come and go, it stays */
#include "mover_test.h"

#include <sys/resource.h>
#include <sys/un.h>

#include "fake/fake_destination.h"

#define QUIET_MS 200

static const struct fake_guest_block blocks[] = { { "pc.ram", 800 }, { "vga.vram", 32 } };
#define BLOCKS 2u

/* @address: of the listening socket, abstract: no file is left */
struct pages {
	struct fake_guest_image image;
	struct fake_destination qemu;
	struct mover_peer peer;
	struct sockaddr_un address;
	socklen_t address_n;
	int listener;
};

static void pages_make(struct pages *p)
{
	memset(p, 0, sizeof(*p));
	fake_guest_image_make(&p->image, blocks, BLOCKS, 11);
	fake_destination_init(&p->qemu, blocks, BLOCKS);
	p->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	p->address.sun_family = AF_UNIX;
	p->address_n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				   (size_t)snprintf(p->address.sun_path + 1, 60, "torpor-test-pages-%d",
						    (int)getpid()) + 1);
	assert_int_equal(bind(p->listener, (struct sockaddr *)&p->address, p->address_n), 0);
	assert_int_equal(listen(p->listener, 4), 0);
}

/* The other end is QEMU's. */
static int new_stream(struct pages *p, bool recovering)
{
	int pair[2];

	assert_true(tp_socketpair(SOCK_STREAM, pair, NULL));
	fake_destination_attach(&p->qemu, pair[1], recovering);
	return pair[0];
}

static void pages_start(struct pages *p, json_t *more_owned)
{
	tp_autoclose int stream = new_stream(p, false);

	start_job(&p->peer, "page-server", "stream,image,listener",
		  (int[]){ stream, p->image.fd, p->listener }, 3, more_owned);
	assert_hello(&p->peer);
}

static void pages_free(struct pages *p)
{
	mover_peer_free(&p->peer);
	fake_destination_free(&p->qemu);
	fake_guest_image_free(&p->image);
	tp_close(&p->listener);
}

static void await_state(struct pages *p, const char *name)
{
	for (;;) {
		tp_autojson json_t *state = mover_peer_expect(&p->peer, "state");

		assert_non_null(state);
		if (!strcmp(tp_json_str(state, "state"), name))
			return;
	}
}

static void connect_engine(struct pages *p)
{
	mover_peer_close(&p->peer);
	p->peer.control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(p->peer.control, (struct sockaddr *)&p->address, p->address_n), 0);
}

static void assert_pages_hello(struct pages *p, const char *state)
{
	tp_autojson json_t *hello = mover_peer_expect(&p->peer, "hello");

	assert_int_equal(tp_json_int(hello, "protocol", 0), MOVER_PROTOCOL);
	assert_int_equal(tp_json_int(hello, "pid", 0), p->peer.pid);
	assert_string_equal(tp_json_str(json_object_get(hello, "pages"), "state"), state);
	assert_true(tp_json_int(json_object_get(hello, "pages"), "pages-left", -1) >= 0);
}

static void to_package(struct pages *p)
{
	enum dest_item item;

	do
		item = fake_destination_next(&p->qemu, 20000);
	while (item != DEST_COMMAND || p->qemu.number != 2);
	fake_destination_number(&p->qemu, DEST_PONG, 1);
}

static void load(struct pages *p)
{
	to_package(p);
	assert_int_equal(fake_destination_next(&p->qemu, 20000), DEST_PACKAGE);
	fake_destination_number(&p->qemu, DEST_PONG, 2);
}

static void finish(struct pages *p)
{
	enum dest_item item;

	while ((item = fake_destination_next(&p->qemu, 20000)) == DEST_PAGE)
		;
	assert_int_equal(item, DEST_END);
	fake_destination_number(&p->qemu, DEST_SHUT, 0);
}

static void assert_done(struct pages *p)
{
	tp_autojson json_t *done = mover_peer_expect(&p->peer, "done");

	assert_non_null(done);
	assert_int_equal(tp_json_int(done, "pages-left", -1), 0);
	assert_int_equal(tp_json_int(done, "pages-sent", -1), fake_guest_data_pages(832));
	assert_null(mover_peer_receive(&p->peer));
	assert_exit(mover_peer_wait(&p->peer), 0);
}

/* At once, in whatever state it is. */
static void await_preferred(struct pages *p, json_int_t pages)
{
	json_int_t left = pages;

	while (left) {
		tp_autojson json_t *state = mover_peer_expect(&p->peer, "state");

		assert_non_null(state);
		assert_int_equal(tp_json_int(state, "working-set-pages", -1), pages);
		assert_int_equal(tp_json_int(state, "page-size", -1), FAKE_GUEST_PAGE);
		left = tp_json_int(state, "working-set-left", -1);
		assert_true(left >= 0 && left <= pages);
	}
}

static void whole_with_hold_and_working_set(void **state)
{
	tp_autojson json_t *set = NULL, *want = NULL;
	struct pages p;

	(void)state;
	pages_make(&p);
	pages_start(&p, json_pack("{s:b, s:{s:[s, s, s], s:[[i,i,i],[i,i,i],[i,i,i],[i,i,i]]}}", "hold", 1,
				  "working-set", "blocks", "gone", "vga.vram", "pc.ram", "ranges",
				  0, 0, 10, 1, 16, 16, 9, 1, 1, 2, 320, 16));
	to_package(&p);
	await_state(&p, "held");
	assert_int_equal(fake_destination_next(&p.qemu, QUIET_MS), DEST_NOTHING);
	mover_peer_send(&p.peer, json_pack("{s:{}}", "finish"), NULL, 0);
	assert_int_equal(fake_destination_next(&p.qemu, 20000), DEST_PACKAGE);
	fake_destination_number(&p.qemu, DEST_PONG, 2);
	for (unsigned i = 0; i < 22; i++) {
		assert_int_equal(fake_destination_next(&p.qemu, 20000), DEST_PAGE);
		assert_int_equal(p.qemu.page / 16, i < 11 ? 816 / 16 : 320 / 16);
	}
	await_preferred(&p, 22);
	finish(&p);
	await_state(&p, "ending");
	set = mover_peer_expect(&p.peer, "working-set");
	/* Nothing was asked for; what was given comes back as far as it made sense. */
	want = json_pack("{s:i, s:[s, s], s:[[i,i,i],[i,i,i]]}", "page-size", FAKE_GUEST_PAGE, "blocks", "vga.vram",
			 "pc.ram", "ranges", 0, 16, 16, 1, 320, 16);
	assert_true(json_equal(set, want));
	assert_done(&p);
	pages_free(&p);
}

static void its_engines_come_and_go(void **state)
{
	struct pages p;
	int former;

	(void)state;
	pages_make(&p);
	pages_start(&p, json_pack("{s:i}", "bandwidth", 1));
	load(&p);
	await_state(&p, "serving");
	/* A guest stands still for it: it is no nicer than we are. */
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)p.peer.pid), getpriority(PRIO_PROCESS, 0));
	mover_peer_close(&p.peer);
	/* Nobody listens: requests are served. */
	fake_destination_request(&p.qemu, 700);
	do
		assert_int_equal(fake_destination_next(&p.qemu, 20000), DEST_PAGE);
	while (p.qemu.page != 700);
	connect_engine(&p);
	assert_pages_hello(&p, "serving");
	/* A second one takes its place. */
	former = dup(p.peer.control);
	connect_engine(&p);
	assert_pages_hello(&p, "serving");
	assert_int_equal(recv(former, &(char){ 0 }, 1, 0), 0);
	close(former);
	/* One that talks nonsense is dropped, the next one is heard. */
	assert_int_equal(send(p.peer.control, "no", 2, 0), 2);
	assert_null(mover_peer_receive(&p.peer));
	connect_engine(&p);
	assert_pages_hello(&p, "serving");
	mover_peer_send(&p.peer, json_pack("{s:i}", "bandwidth", 0), NULL, 0);
	finish(&p);
	await_state(&p, "ending");
	json_decref(mover_peer_expect(&p.peer, "working-set"));
	assert_done(&p);
	pages_free(&p);
}

static void a_new_connection_to_qemu_is_handed_over(void **state)
{
	tp_autoclose int stream = -1;
	struct pages p;

	(void)state;
	pages_make(&p);
	pages_start(&p, json_pack("{s:i}", "bandwidth", 1));
	load(&p);
	await_state(&p, "serving");
	fake_destination_detach(&p.qemu);
	await_state(&p, "waiting");
	stream = new_stream(&p, true);
	mover_peer_send(&p.peer, json_pack("{s:{}}", "stream"), &stream, 1);
	tp_close(&stream);
	for (unsigned i = 0; i < BLOCKS; i++) {
		assert_int_equal(fake_destination_next(&p.qemu, 20000), DEST_COMMAND);
		fake_destination_bitmap(&p.qemu, i);
	}
	assert_int_equal(fake_destination_next(&p.qemu, 20000), DEST_COMMAND);
	fake_destination_number(&p.qemu, DEST_RESUME_ACK, 1);
	await_state(&p, "serving");
	mover_peer_send(&p.peer, json_pack("{s:i}", "bandwidth", 0), NULL, 0);
	finish(&p);
	await_state(&p, "ending");
	json_decref(mover_peer_expect(&p.peer, "working-set"));
	assert_done(&p);
	pages_free(&p);
}

static void what_cannot_be_obeyed_is_refused(void **state)
{
	struct pages p;
	int pair[2];

	(void)state;
	pages_make(&p);
	pages_start(&p, json_pack("{s:i}", "bandwidth", 1));
	load(&p);
	await_state(&p, "serving");
	mover_peer_send(&p.peer, json_pack("{s:{}}", "stream"), NULL, 0);
	json_decref(mover_peer_expect(&p.peer, "refused"));
	assert_true(tp_socketpair(SOCK_SEQPACKET, pair, NULL));
	mover_peer_send(&p.peer, json_pack("{s:{}}", "stream"), pair, 1);
	json_decref(mover_peer_expect(&p.peer, "refused"));
	/* What was sent in vain is closed over there. */
	tp_close(&pair[0]);
	assert_int_equal(recv(pair[1], &(char){ 0 }, 1, 0), 0);
	tp_close(&pair[1]);
	mover_peer_send(&p.peer, json_pack("{s:i}", "bandwidth", -1), NULL, 0);
	json_decref(mover_peer_expect(&p.peer, "refused"));
	mover_peer_send(&p.peer, json_pack("{s:{}}", "of-the-future"), NULL, 0);
	mover_peer_send(&p.peer, json_pack("{s:{}}", "stop"), NULL, 0);
	json_decref(mover_peer_expect(&p.peer, "working-set"));
	json_decref(mover_peer_expect(&p.peer, "done"));
	assert_exit(mover_peer_wait(&p.peer), 0);
	pages_free(&p);
}

static void damage_is_told_with_its_place(void **state)
{
	tp_autojson json_t *error = NULL;
	const json_t *damage;
	struct pages p;

	(void)state;
	pages_make(&p);
	fake_guest_image_damage(&p.image, 20);
	pages_start(&p, json_pack("{s:i}", "bandwidth", 1));
	load(&p);
	await_state(&p, "serving");
	fake_destination_request(&p.qemu, 322);
	error = mover_peer_expect(&p.peer, "error");
	assert_string_equal(tp_json_str(error, "class"), "Corrupt");
	damage = json_array_get(json_object_get(error, "damage"), 0);
	assert_int_equal(tp_json_int(damage, "frame", -1), 20);
	assert_string_equal(tp_json_str(damage, "block"), "pc.ram");
	assert_int_equal(tp_json_int(damage, "first-page", -1), 320);
	assert_int_equal(tp_json_int(damage, "lost", -1), 11);
	assert_non_null(json_object_get(error, "pages"));
	assert_exit(mover_peer_wait(&p.peer), MOVER_EXIT_ERROR);
	assert_int_equal(p.qemu.have[322], 0);
	pages_free(&p);
}

static void it_needs_a_listening_socket(void **state)
{
	struct pages p;
	int stream;

	(void)state;
	pages_make(&p);
	stream = new_stream(&p, false);
	start_job(&p.peer, "page-server", "stream,image,listener",
		  (int[]){ stream, p.image.fd, stream }, 3, NULL);
	assert_hello(&p.peer);
	assert_job_error(&p.peer, "GenericError", "listening socket", MOVER_EXIT_ERROR);
	close(stream);
	pages_free(&p);
}

static void huge_pages_are_refused_by_name(void **state)
{
	struct pages p;

	(void)state;
	pages_make(&p);
	pages_start(&p, json_pack("{s:{s:i, s:i, s:i}}", "page-sizes", "pc.ram", 4096, "gone", 1 << 21,
				  "vga.vram", 1 << 21));
	assert_job_error(&p.peer, "Unsupported", "vga.vram", MOVER_EXIT_ERROR);
	/* QEMU was told nothing. */
	assert_int_equal(fake_destination_next(&p.qemu, 20000), DEST_CLOSED);
	pages_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_with_hold_and_working_set),
		cmocka_unit_test(its_engines_come_and_go),
		cmocka_unit_test(a_new_connection_to_qemu_is_handed_over),
		cmocka_unit_test(what_cannot_be_obeyed_is_refused),
		cmocka_unit_test(damage_is_told_with_its_place),
		cmocka_unit_test(it_needs_a_listening_socket),
		cmocka_unit_test(huge_pages_are_refused_by_name),
	};

	return run_mover_tests("mover_pages", tests, TP_N(tests));
}
