/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_test.h - A small image made frame by frame, without the stream parser */
#ifndef IMAGE_TEST_H
#define IMAGE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_size.h"
#include "storage/image_format.h"
#include "storage/image_read.h"
#include "storage/image_write.h"

#define T_PAGE 4096u
#define T_PAGES 6u		/* of block "ram"; block "rom" has 2 */

struct small_image {
	int fd;
	struct tp_buf raw;		/* the stream */
	uint64_t frame_end[3];
	struct image_map map;
	struct image_span spans[4];
	struct image_sealed sealed;
};

static inline void t_add(struct small_image *t, const void *data, size_t n)
{
	assert_true(tp_buf_add(&t->raw, data, n));
}

static inline void t_record(struct small_image *t, uint64_t word, const char *id, uint8_t seed)
{
	uint8_t head[8], page[T_PAGE], n = id ? (uint8_t)strlen(id) : 0;

	tp_put_be64(head, word | (id ? 0 : 0x20));
	t_add(t, head, 8);
	if (id) {
		t_add(t, &n, 1);
		t_add(t, id, n);
	}
	memset(page, 0, sizeof(page));
	for (unsigned i = 0; seed && i < sizeof(page); i++)
		page[i] = (uint8_t)(seed * 31 + i / 16);
	t_add(t, page, word & 8 ? T_PAGE : 1);
}

static inline void t_stream(struct small_image *t)
{
	t_add(t, "QEVM\0\0\0\3\7\0\0\0\2pc", 15);
	t->spans[0] = (struct image_span){ IMAGE_RANGE_PROLOGUE, 0, 15 };
	t_add(t, "\1\0\0\0\2\3ram\0\0\0\0\0\0\0\4\0\0\0\0\0\0\x80\4", 25);
	t_add(t, "\3ram\0\0\0\0\0\0\x60\0\3rom\0\0\0\0\0\0\x20\0", 24);
	t_add(t, "\0\0\0\0\0\0\0\x10\x7e\0\0\0\2", 13);
	t->spans[1] = (struct image_span){ IMAGE_RANGE_RAM_START, 15, 62 };
	t_add(t, "\2\0\0\0\2", 5);
	t_record(t, 0 * T_PAGE | 8, "ram", 1);
	t_record(t, 1 * T_PAGE | 2, NULL, 0);
	t_record(t, 2 * T_PAGE | 8, NULL, 2);
	t->frame_end[0] = t->raw.len;
	t_record(t, 3 * T_PAGE | 8, NULL, 3);
	t_record(t, 2 * T_PAGE | 2, NULL, 0);	/* zero after data */
	t_record(t, 4 * T_PAGE | 8, NULL, 4);
	t_add(t, "\0\0\0\0\0\0\0\x10\x7e\0\0\0\2\3\0\0\0\2", 18);
	t_record(t, 0 | 2, "rom", 0);
	t_record(t, T_PAGE | 8, NULL, 5);
	t_add(t, "\0\0\0\0\0\0\0\x10\x7e\0\0\0\2", 13);
	t->frame_end[1] = t->raw.len;
	t_add(t, "\4\0\0\0\3\1x\0\0\0\0\0\0\0\1state\x7e\0\0\0\3\0", 26);
	t->spans[2] = (struct image_span){ IMAGE_RANGE_DEVICES, t->frame_end[1], 25 };
	t->spans[3] = (struct image_span){ IMAGE_RANGE_VMDESC, t->raw.len, 5 + 14 };
	t_add(t, "\6\0\0\0\16{\"devices\":[]}", 5 + 14);
	t->frame_end[2] = t->raw.len;
}

static inline void t_submit(struct frame_pool *pool, const struct tp_buf *raw, uint64_t from,
			    uint64_t to, uint16_t block, uint16_t flags)
{
	bool failed;
	struct frame_buf *b = frame_pool_get(pool, 10000, &failed);

	assert_non_null(b);
	assert_true(frame_buf_grow(b, to - from, 0, NULL));
	memcpy(b->data, raw->data + from, to - from);
	frame_pool_submit(pool, (uint32_t)(to - from), block, flags);
}

static inline void t_map(struct small_image *t)
{
	t->map.page_bits = 12;
	assert_true(image_map_add(&t->map, "ram", 3, T_PAGES * T_PAGE, NULL));
	assert_true(image_map_add(&t->map, "rom", 3, 2 * T_PAGE, NULL));
	assert_true(image_map_alloc(&t->map, NULL));
	image_map_set(&t->map, 0, IMAGE_DATA, 0);
	image_map_set(&t->map, 1, IMAGE_ZERO, 0);
	image_map_set(&t->map, 2, IMAGE_DATA, 0);
	image_map_set(&t->map, 3, IMAGE_DATA, 1);
	image_map_set(&t->map, 2, IMAGE_ZERO, 1);
	image_map_set(&t->map, 4, IMAGE_DATA, 1);
	image_map_set(&t->map, 6, IMAGE_ZERO, 1);
	image_map_set(&t->map, 7, IMAGE_DATA, 1);
	assert_int_equal(t->map.repeats, 1);
}

static inline void small_image_seal(struct small_image *t)
{
	struct image_writer_options o = { .fd = t->fd, .created_us = 1234567, .threads = 2 };
	struct tp_error err = TP_ERROR_INIT;
	struct image_writer *w;
	struct frame_pool *pool;
	bool done;

	memcpy(o.uuid, "0123456789abcdef", 16);
	w = image_writer_new(&o, &err);
	if (!w)
		fail_msg("%s", err.text);
	pool = image_writer_pool(w);
	t_submit(pool, &t->raw, 0, t->frame_end[0], IMAGE_NO_BLOCK, IMAGE_FRAME_DATA);
	t_submit(pool, &t->raw, t->frame_end[0], t->frame_end[1], 0,
		 IMAGE_FRAME_DATA | IMAGE_FRAME_IN_RAM);
	t_submit(pool, &t->raw, t->frame_end[1], t->frame_end[2], 1, IMAGE_FRAME_DEVICE);
	assert_true(frame_pool_finish(pool, 10000, &done, NULL));
	assert_true(done);
	if (!image_writer_seal(w, &t->map, t->spans, 4, IMAGE_LIVE, &t->sealed, &err))
		fail_msg("%s", err.text);
	image_writer_free(w);
}

static inline void small_image_make(struct small_image *t)
{
	memset(t, 0, sizeof(*t));
	t->fd = memfd_create("image", MFD_CLOEXEC);
	assert_true(t->fd >= 0);
	t_stream(t);
	t_map(t);
	small_image_seal(t);
}

static inline void small_image_free(struct small_image *t)
{
	close(t->fd);
	tp_buf_free(&t->raw);
	image_map_free(&t->map);
}

/* The whole file; the caller frees. */
static inline uint8_t *file_bytes(int fd, size_t *n)
{
	struct stat st;
	uint8_t *p;

	assert_int_equal(fstat(fd, &st), 0);
	p = malloc((size_t)st.st_size + 1);
	assert_non_null(p);
	assert_int_equal(pread(fd, p, (size_t)st.st_size, 0), st.st_size);
	*n = (size_t)st.st_size;
	return p;
}

static inline void file_replace(int fd, const void *data, size_t n)
{
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, data, n, 0), (ssize_t)n);
}

#endif
