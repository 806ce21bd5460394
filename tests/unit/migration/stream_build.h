/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* stream_build.h - Make migration streams byte by byte, and run them through the save pump */
#ifndef STREAM_BUILD_H
#define STREAM_BUILD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_size.h"
#include "migration/save_pump.h"
#include "storage/image_format.h"
#include "storage/image_read.h"

#define RAM_ID 2u
#define PAGE4K 4096u

/* ---- the stream */

static inline void sb_bytes(struct tp_buf *b, const void *data, size_t n)
{
	assert_true(tp_buf_add(b, data, n));
}

static inline void sb_u8(struct tp_buf *b, unsigned v)
{
	uint8_t byte = (uint8_t)v;

	sb_bytes(b, &byte, 1);
}

static inline void sb_be16(struct tp_buf *b, uint16_t v)
{
	uint8_t p[2];

	tp_put_be16(p, v);
	sb_bytes(b, p, 2);
}

static inline void sb_be32(struct tp_buf *b, uint32_t v)
{
	uint8_t p[4];

	tp_put_be32(p, v);
	sb_bytes(b, p, 4);
}

static inline void sb_be64(struct tp_buf *b, uint64_t v)
{
	uint8_t p[8];

	tp_put_be64(p, v);
	sb_bytes(b, p, 8);
}

static inline void sb_pstr(struct tp_buf *b, const char *text)
{
	sb_u8(b, (unsigned)strlen(text));
	sb_bytes(b, text, strlen(text));
}

static inline void sb_magic(struct tp_buf *b)
{
	sb_be32(b, 0x5145564d);
	sb_be32(b, 3);
}

/* page_bits 0: no subsection. */
static inline void sb_config(struct tp_buf *b, const char *machine, unsigned page_bits)
{
	sb_u8(b, 7);
	sb_be32(b, (uint32_t)strlen(machine));
	sb_bytes(b, machine, strlen(machine));
	if (!page_bits)
		return;
	sb_u8(b, 5);
	sb_pstr(b, "configuration/target-page-bits");
	sb_be32(b, 1);
	sb_be32(b, page_bits);
}

static inline void sb_command(struct tp_buf *b, unsigned cmd, const void *data, size_t n)
{
	sb_u8(b, 8);
	sb_be16(b, (uint16_t)cmd);
	sb_be16(b, (uint16_t)n);
	sb_bytes(b, data, n);
}

static inline void sb_head(struct tp_buf *b, unsigned type, uint32_t id, const char *name,
			   uint32_t version)
{
	sb_u8(b, type);
	sb_be32(b, id);
	sb_pstr(b, name);
	sb_be32(b, 0);
	sb_be32(b, version);
}

static inline void sb_footer(struct tp_buf *b, uint32_t id)
{
	sb_u8(b, 0x7e);
	sb_be32(b, id);
}

static inline void sb_eos(struct tp_buf *b)
{
	sb_be64(b, 0x10);
	sb_footer(b, RAM_ID);
}

struct sb_block {
	const char *id;
	uint64_t length;
};

static inline void sb_ram_start(struct tp_buf *b, const struct sb_block *blocks, unsigned n)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < n; i++)
		total += blocks[i].length;
	sb_head(b, 1, RAM_ID, "ram", 4);
	sb_be64(b, total | 4);
	for (unsigned i = 0; i < n; i++) {
		sb_pstr(b, blocks[i].id);
		sb_be64(b, blocks[i].length);
	}
	sb_eos(b);
}

static inline void sb_part(struct tp_buf *b, unsigned type)
{
	sb_u8(b, type);
	sb_be32(b, RAM_ID);
}

/* id NULL: the same block as the record before. */
static inline void sb_page(struct tp_buf *b, const char *id, uint64_t address, const void *data,
			   size_t page)
{
	sb_be64(b, address | 8 | (id ? 0 : 0x20));
	if (id)
		sb_pstr(b, id);
	sb_bytes(b, data, page);
}

static inline void sb_zero(struct tp_buf *b, const char *id, uint64_t address)
{
	sb_be64(b, address | 2 | (id ? 0 : 0x20));
	if (id)
		sb_pstr(b, id);
	sb_u8(b, 0);
}

static inline uint32_t sb_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static inline void sb_fill(uint8_t *p, size_t n, uint32_t seed)
{
	seed = seed * 2654435761u | 1;
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(sb_random(&seed) >> 9);
}

/* A FULL section with n random bytes. */
static inline void sb_device(struct tp_buf *b, uint32_t id, const char *name, size_t n)
{
	uint8_t *data = malloc(n + 1);

	assert_non_null(data);
	sb_fill(data, n, id);
	sb_head(b, 4, id, name, 1);
	sb_bytes(b, data, n);
	sb_footer(b, id);
	free(data);
}

static inline void sb_vmdesc(struct tp_buf *b, const char *json)
{
	sb_u8(b, 6);
	sb_be32(b, (uint32_t)strlen(json));
	sb_bytes(b, json, strlen(json));
}

#define SB_JSON "{\"page_size\": 4096, \"devices\": [{\"name\": \"timer\", \"instance_id\": 0}]}"

static inline void sb_end(struct tp_buf *b)
{
	sb_device(b, 3, "timer", 40);
	sb_device(b, 4, "cpu", 3000);
	sb_u8(b, 0);
	sb_vmdesc(b, SB_JSON);
}

/* A stopped save: two blocks, a third of the pages each of data, zero, repeated text. */
static inline void sb_plain(struct tp_buf *b, unsigned pages, bool return_path)
{
	struct sb_block blocks[] = { { "pc.ram", pages * 4096ull }, { "vga.vram", 16 * 4096ull } };
	uint8_t page[PAGE4K];

	sb_magic(b);
	sb_config(b, "pc-q35-7.2", 0);
	if (return_path) {
		sb_command(b, 1, NULL, 0);
		sb_command(b, 2, "\0\0\0\1", 4);
	}
	sb_ram_start(b, blocks, 2);
	sb_part(b, 2);
	for (unsigned i = 0; i < pages; i++) {
		const char *id = i ? NULL : "pc.ram";

		sb_fill(page, sizeof(page), i % 3 ? 7 : i);
		if (i % 3 == 1)
			sb_zero(b, id, i * 4096ull);
		else
			sb_page(b, id, i * 4096ull, page, PAGE4K);
		if (i % 50 == 49) {
			sb_eos(b);
			sb_part(b, 2);
		}
	}
	sb_eos(b);
	sb_command(b, 11, NULL, 0);
	sb_part(b, 3);
	for (unsigned i = 0; i < 16; i++)
		sb_zero(b, i ? NULL : "vga.vram", i * 4096ull);
	sb_eos(b);
	sb_end(b);
}

/* ---- feeding the pump */

struct feeder {
	int fd;
	const uint8_t *data;
	size_t n, chunk;
	bool hold;		/* keep the socket open until the other side closes or answers */
	uint8_t answer[8];
	size_t answered;
	pthread_t thread;
};

static inline void *feed_main(void *arg)
{
	struct feeder *f = arg;

	for (size_t at = 0; at < f->n;) {
		size_t n = f->chunk && f->chunk < f->n - at ? f->chunk : f->n - at;
		ssize_t done = send(f->fd, f->data + at, n, MSG_NOSIGNAL);

		if (done <= 0)
			break;
		at += (size_t)done;
	}
	while (f->hold && f->answered < sizeof(f->answer)) {
		ssize_t n = recv(f->fd, f->answer + f->answered, sizeof(f->answer) - f->answered, 0);

		if (n <= 0)
			break;
		f->answered += (size_t)n;
	}
	close(f->fd);
	return NULL;
}

struct rig {
	struct save_pump_options o;
	struct feeder feeder;
	struct save_result result;
	struct tp_error err;
};

static inline void rig_start(struct rig *r, const struct tp_buf *stream, size_t chunk, bool hold)
{
	int fds[2];

	memset(r, 0, sizeof(*r));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	r->o.stream_fd = fds[0];
	r->o.image_fd = memfd_create("image", MFD_CLOEXEC);
	assert_true(r->o.image_fd >= 0);
	memcpy(r->o.uuid, "0123456789abcdef", 16);
	r->o.threads = 2;
	r->o.return_path = hold;
	r->feeder = (struct feeder){ fds[1], (const uint8_t *)stream->data, stream->len, chunk, hold,
				     { 0 }, 0, 0 };
	assert_int_equal(pthread_create(&r->feeder.thread, NULL, feed_main, &r->feeder), 0);
}

static inline bool rig_run(struct rig *r)
{
	bool ok = save_pump_run(&r->o, &r->result, &r->err);

	if (ok && r->o.return_path)
		assert_true(save_pump_finish(r->o.stream_fd, 0, NULL));
	return ok;
}

static inline void rig_end(struct rig *r)
{
	shutdown(r->o.stream_fd, SHUT_RDWR);
	pthread_join(r->feeder.thread, NULL);
	close(r->o.stream_fd);
	close(r->o.image_fd);
	save_result_free(&r->result);
}

/* ---- looking at the image */

/* All frames decoded and joined; the caller frees. */
static inline uint8_t *decode_all(const struct image *img, size_t *n)
{
	const struct image_info *info = image_info(img);
	struct image_decoder *d = image_decoder_new(NULL);
	uint8_t *raw = malloc(info->raw_bytes + 1);
	struct tp_error err = TP_ERROR_INIT;

	assert_non_null(d);
	assert_non_null(raw);
	*n = 0;
	for (uint64_t i = 0; i < info->frames; i++) {
		if (!image_frame_read(img, d, i, raw + *n, NULL, &err))
			fail_msg("%s", err.text);
		*n += image_frame_raw(img, i);
	}
	image_decoder_free(d);
	return raw;
}

/* The image is whole and holds exactly these bytes. */
static inline void assert_image(int fd, const void *want, size_t n)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image *img = image_open(fd, &err);
	uint8_t *raw;
	size_t got;

	if (!img)
		fail_msg("%s", err.text);
	raw = decode_all(img, &got);
	assert_int_equal(got, n);
	assert_memory_equal(raw, want, n);
	free(raw);
	if (!image_verify(img, 2, NULL, NULL, NULL, &err))
		fail_msg("%s", err.text);
	image_close(img);
}

#endif
