/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* page_server_rig.h - A page server in a thread, and the played QEMU that it serves */
#ifndef PAGE_SERVER_RIG_H
#define PAGE_SERVER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "fake/fake_destination.h"
#include "migration/page_server.h"

#define PATIENCE_MS 20000
#define QUIET_MS 80		/* in which nothing comes that should not */
#define FRAME_PAGES 16u		/* of the guest; 11 are data */

static const struct fake_guest_block blocks[] = {
	{ "pc.ram", 2000 }, { "vga.vram", 160 }, { "/rom@etc/acpi/tables", 32 },
};
#define BLOCKS 3u

struct rig {
	struct fake_guest_image image;
	struct fake_destination qemu;
	struct page_server_options o;
	struct page_server *server;
	struct page_server_status status;
	struct image_damage damage;
	struct tp_error err;
	pthread_t thread;
	atomic_int state;
	atomic_bool good, ended;
};

static inline void on_changed(void *arg, enum page_server_state state)
{
	((struct rig *)arg)->state = (int)state;
}

static inline void *server_main(void *arg)
{
	struct rig *r = arg;

	r->good = page_server_run(r->server, &r->damage, &r->err);
	r->ended = true;
	return NULL;
}

static inline void rig_make(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	fake_guest_image_make(&r->image, blocks, BLOCKS, 11);
	fake_destination_init(&r->qemu, blocks, BLOCKS);
	r->o = (struct page_server_options){ .image_fd = r->image.fd, .threads = 2, .first_seconds = 3600,
					     .changed = on_changed, .arg = r };
	r->o.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_true(r->o.wake_fd >= 0);
}

static inline void rig_open(struct rig *r)
{
	r->server = page_server_new(&r->o, &r->err);
	if (!r->server)
		fail_msg("%s", r->err.text);
}

static inline void rig_run(struct rig *r)
{
	assert_int_equal(pthread_create(&r->thread, NULL, server_main, r), 0);
}

static inline void connect_qemu(struct rig *r, bool recovering)
{
	int fds[2];

	assert_true(tp_socketpair(SOCK_STREAM, fds, NULL));
	fake_destination_attach(&r->qemu, fds[1], recovering);
	page_server_stream(r->server, fds[0]);
}

static inline void rig_start(struct rig *r)
{
	rig_open(r);
	rig_run(r);
	connect_qemu(r, false);
}

/* The server is to end by itself. */
static inline bool rig_join(struct rig *r)
{
	pthread_join(r->thread, NULL);
	page_server_status(r->server, &r->status);
	return r->good;
}

static inline void rig_end(struct rig *r)
{
	page_server_free(r->server);
	fake_destination_free(&r->qemu);
	fake_guest_image_free(&r->image);
	close(r->o.wake_fd);
}

static inline void rig_stop(struct rig *r)
{
	page_server_stop(r->server);
	assert_false(rig_join(r));
	assert_int_equal(r->err.code, TP_ECANCELLED);
	rig_end(r);
}

static inline void await_state(struct rig *r, enum page_server_state state)
{
	for (int ms = 0; r->state != (int)state && ms < PATIENCE_MS; ms++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	assert_string_equal(page_server_state_name((enum page_server_state)r->state),
			    page_server_state_name(state));
}

static inline void assert_item(struct rig *r, enum dest_item item)
{
	assert_int_equal(fake_destination_next(&r->qemu, PATIENCE_MS), item);
}

static inline void assert_command(struct rig *r, unsigned number)
{
	assert_item(r, DEST_COMMAND);
	assert_int_equal(r->qemu.number, number);
}

static inline void assert_quiet(struct rig *r)
{
	assert_int_equal(fake_destination_next(&r->qemu, QUIET_MS), DEST_NOTHING);
}

/* Up to and with the PING that asks whether all was understood. */
static inline void read_prologue(struct rig *r)
{
	assert_item(r, DEST_HEADER);
	assert_command(r, 1);
	assert_command(r, 3);
	assert_memory_equal(r->qemu.data, "\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0", 16);
	assert_item(r, DEST_BLOCKS);
	for (unsigned i = 0; i < BLOCKS; i++)
		assert_command(r, 6);
	assert_command(r, 2);
}

static inline void read_package(struct rig *r)
{
	const char *p;

	assert_item(r, DEST_PACKAGE);
	p = r->qemu.package.data;
	assert_int_equal(r->qemu.package.len, 5 + r->image.device_bytes + 9 + 5);
	assert_memory_equal(p, "\x08\0\4\0\0", 5);
	assert_memory_equal(p + 5, r->image.raw.data + r->image.devices, r->image.device_bytes);
	assert_memory_equal(p + 5 + r->image.device_bytes, "\x08\0\2\0\4\0\0\0\2\x08\0\5\0\0", 14);
}

static inline void begin(struct rig *r)
{
	read_prologue(r);
	fake_destination_number(&r->qemu, DEST_PONG, 1);
	read_package(r);
}

/* Started, loaded, serving. */
static inline void rig_serve(struct rig *r)
{
	rig_start(r);
	begin(r);
	fake_destination_number(&r->qemu, DEST_PONG, 2);
}

static inline void read_all(struct rig *r)
{
	enum dest_item item;

	while ((item = fake_destination_next(&r->qemu, PATIENCE_MS)) == DEST_PAGE)
		;
	assert_int_equal(item, DEST_END);
}

static inline void assert_complete(struct rig *r)
{
	for (uint64_t page = 0; page < r->qemu.all; page++)
		if (fake_guest_class(page) == IMAGE_DATA && r->qemu.have[page] != 1)
			fail_msg("page %llu is missing", (unsigned long long)page);
}

/* Finishes what is being served. */
static inline void finish(struct rig *r)
{
	read_all(r);
	assert_complete(r);
	fake_destination_number(&r->qemu, DEST_SHUT, 0);
	if (!rig_join(r))
		fail_msg("%s", r->err.text);
	assert_int_equal(r->status.state, PAGES_DONE);
	assert_int_equal(r->status.left, 0);
	assert_int_equal(r->status.sent, fake_guest_data_pages(r->qemu.all));
}

#endif
