/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_image.c - A sealed image whose frames hold arbitrary bytes, for tests of its readers */
#include "fake/fake_image.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "storage/image_format.h"
#include "storage/image_map.h"
#include "storage/image_write.h"

#define DEVICE_BYTES 5000
#define VMDESC_BYTES 700
#define BLOCK_BYTES (64u << 10)
#define WAIT_MS 60000

static void must(bool good, const struct tp_error *err, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fake image: %s: %s\n", what, err->text);
	abort();
}

static void fill(uint8_t *p, size_t n)
{
	uint64_t x = 88172645463325252u;

	for (size_t i = 0; i < n; i += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(p + i, &x, n - i < sizeof(x) ? n - i : sizeof(x));
	}
}

static void submit(struct frame_pool *pool, const uint8_t *data, size_t n, uint16_t flags)
{
	struct tp_error err = TP_ERROR_INIT;
	bool failed = false;
	struct frame_buf *b = frame_pool_get(pool, WAIT_MS, &failed);

	must(b != NULL, &err, "buffer");
	must(frame_buf_grow(b, n, 0, &err), &err, "buffer");
	memcpy(b->data, data, n);
	frame_pool_submit(pool, (uint32_t)n, IMAGE_NO_BLOCK, flags);
}

static void seal(struct image_writer *w, const struct fake_image *f, uint64_t device_at)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image_span spans[] = {
		{ IMAGE_RANGE_DEVICES, device_at, DEVICE_BYTES },
		{ IMAGE_RANGE_VMDESC, device_at + DEVICE_BYTES + 1, VMDESC_BYTES },
	};
	struct image_map map = { .page_bits = 12 };
	struct image_sealed sealed;
	bool done = false;

	must(image_map_add(&map, "pc.ram", 6, BLOCK_BYTES, &err), &err, "block");
	must(image_map_alloc(&map, &err), &err, "map");
	must(frame_pool_finish(image_writer_pool(w), WAIT_MS, &done, &err) && done, &err, "frames");
	must(image_writer_seal(w, &map, spans, 2, IMAGE_STOPPED, &sealed, &err), &err, "seal");
	must(sealed.raw_bytes == f->raw_len, &err, "length");
	image_map_free(&map);
}

void fake_image_make(struct fake_image *f, unsigned frames, size_t frame_bytes)
{
	struct image_writer_options o = { .uuid = { 1, 2, 3 }, .created_us = 1, .threads = 2,
					  .level = 1 };
	uint64_t device_at = (uint64_t)frames * frame_bytes;
	struct tp_error err = TP_ERROR_INIT;
	struct image_writer *w;

	*f = (struct fake_image){ .first_frame = IMAGE_HEADER_SIZE, .frame_raw = frame_bytes };
	f->fd = memfd_create("image", MFD_CLOEXEC);
	f->raw_len = device_at + DEVICE_BYTES + 1 + VMDESC_BYTES;
	f->raw = malloc(f->raw_len);
	must(f->fd >= 0 && f->raw, &err, "file");
	fill(f->raw, f->raw_len);
	f->tail_at = device_at + DEVICE_BYTES - 1;
	o.fd = f->fd;
	w = image_writer_new(&o, &err);
	must(w != NULL, &err, "writer");
	for (unsigned i = 0; i < frames; i++)
		submit(image_writer_pool(w), f->raw + i * frame_bytes, frame_bytes, 0);
	submit(image_writer_pool(w), f->raw + device_at, f->raw_len - device_at, IMAGE_FRAME_DEVICE);
	seal(w, f, device_at);
	if (frames)
		f->frame_bytes = frame_pool_table(image_writer_pool(w))->stored[0];
	image_writer_free(w);
}

void fake_image_free(struct fake_image *f)
{
	close(f->fd);
	free(f->raw);
}

void fake_image_flip(const struct fake_image *f, uint64_t offset)
{
	struct tp_error err = TP_ERROR_INIT;
	uint8_t byte;

	must(tp_pread_all(f->fd, &byte, 1, (off_t)offset, &err), &err, "read");
	byte ^= 0xff;
	must(tp_pwrite_all(f->fd, &byte, 1, (off_t)offset, &err), &err, "write");
}

void fake_image_swap(struct fake_image *f, unsigned a, unsigned b)
{
	off_t at_a = (off_t)(f->first_frame + a * f->frame_bytes);
	off_t at_b = (off_t)(f->first_frame + b * f->frame_bytes);
	uint8_t *one = malloc(f->frame_bytes), *two = malloc(f->frame_bytes);
	struct tp_error err = TP_ERROR_INIT;

	must(one && two, &err, "memory");
	must(tp_pread_all(f->fd, one, f->frame_bytes, at_a, &err) &&
	     tp_pread_all(f->fd, two, f->frame_bytes, at_b, &err) &&
	     tp_pwrite_all(f->fd, one, f->frame_bytes, at_b, &err) &&
	     tp_pwrite_all(f->fd, two, f->frame_bytes, at_a, &err), &err, "swap");
	free(one);
	free(two);
	for (size_t i = 0; i < f->frame_raw; i++) {
		uint8_t *x = &f->raw[a * f->frame_raw + i], *y = &f->raw[b * f->frame_raw + i];
		uint8_t z = *x;

		*x = *y;
		*y = z;
	}
}
