/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_write.c - Write a memory image: header, frames, index, footer, seal
 *
 * Order of writes (docs/image-format.md): header with sealed size 0, frames,
 * index, footer, fdatasync, header sector with the sealed size, fsync. The
 * header's one sector changes last, so a file with a sealed size has all that
 * comes before it on stable storage.
 */
#include "image_write.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include "base/tp_size.h"
#include "image_bound.h"
#include "image_format.h"

#define BUFFER_SLACK (16u << 10)	/* over the target, for the item that does not fit */

struct image_writer {
	struct image_writer_options o;
	struct image_header header;
	struct frame_pool *pool;
	bool device;		/* a block device: no truncation */
};

static bool put(int fd, const void *data, size_t n, uint64_t at, const char *what,
		struct tp_error *err)
{
	const uint8_t *p = data;

	while (n) {
		ssize_t done = pwrite(fd, p, n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return image_write_error(err, done ? errno : ENOSPC, what, at);
		p += done;
		n -= (size_t)done;
		at += (uint64_t)done;
	}
	return true;
}

static bool write_header(struct image_writer *w, uint64_t sealed, struct tp_error *err)
{
	struct image_header *h = &w->header;

	h->sealed_size = htole64(sealed);
	h->checksum = htole64(XXH64(h, offsetof(struct image_header, checksum), 0));
	return put(w->o.fd, h, sizeof(*h), 0, "write of the image's header", err);
}

static bool begin(struct image_writer *w, struct tp_error *err)
{
	static const uint8_t rest[IMAGE_HEADER_SIZE - sizeof(struct image_header)];
	struct image_header *h = &w->header;
	struct stat st;

	if (fstat(w->o.fd, &st))
		return tp_fail_sys(err, errno, "image file");
	w->device = S_ISBLK(st.st_mode);
	if (!w->device && !S_ISREG(st.st_mode))
		return tp_fail(err, TP_EARG, "the image is neither a regular file nor a block device");
	h->skip_magic = htole32(IMAGE_SKIPPABLE);
	h->skip_length = htole32(IMAGE_HEADER_SIZE - 8);
	memcpy(h->magic, IMAGE_HEADER_MAGIC, IMAGE_MAGIC_SIZE);
	h->major = htole16(IMAGE_MAJOR);
	h->minor = htole16(IMAGE_MINOR);
	h->header_size = htole32(IMAGE_HEADER_SIZE);
	memcpy(h->uuid, w->o.uuid, sizeof(h->uuid));
	h->codec = htole32(IMAGE_CODEC_ZSTD);
	h->frame_target = htole32(w->o.frame_target);
	h->created_us = htole64(w->o.created_us);
	if (!write_header(w, 0, err) ||
	    !put(w->o.fd, rest, sizeof(rest), sizeof(*h), "write of the image's header", err))
		return false;
	/* An older image's footer on the device must be dead before its frames are overwritten. */
	if (w->device && fsync(w->o.fd))
		return image_write_error(err, errno, "sync of the image's header", 0);
	return true;
}

struct image_writer *image_writer_new(const struct image_writer_options *o, struct tp_error *err)
{
	struct image_writer *w = calloc(1, sizeof(*w));
	struct frame_pool_options pool = {
		.fd = o->fd, .offset = IMAGE_HEADER_SIZE, .limit = o->limit,
		.threads = o->threads, .level = o->level,
	};

	if (!w) {
		tp_fail_nomem(err);
		return NULL;
	}
	w->o = *o;
	if (!w->o.frame_target)
		w->o.frame_target = IMAGE_FRAME_TARGET;
	pool.buffer = w->o.frame_target + BUFFER_SLACK;
	if (begin(w, err))
		w->pool = frame_pool_new(&pool, err);
	if (!w->pool) {
		image_writer_free(w);
		return NULL;
	}
	return w;
}

void image_writer_free(struct image_writer *w)
{
	if (!w)
		return;
	frame_pool_free(w->pool);
	free(w);
}

struct frame_pool *image_writer_pool(struct image_writer *w)
{
	return w->pool;
}

static void fill_footer(struct image_writer *w, const struct image_map *map, enum image_kind kind,
			const struct image_sealed *s, struct image_footer *f)
{
	f->skip_magic = htole32(IMAGE_SKIPPABLE);
	f->skip_length = htole32(IMAGE_FOOTER_SIZE - 8);
	memcpy(f->magic, IMAGE_FOOTER_MAGIC, IMAGE_MAGIC_SIZE);
	memcpy(f->uuid, w->o.uuid, sizeof(f->uuid));
	f->frames = htole64(s->frames);
	f->raw_bytes = htole64(s->raw_bytes);
	f->pages = htole64(s->pages);
	f->pages_data = htole64(s->pages_data);
	f->pages_zero = htole64(s->pages_zero);
	f->page_bits = (uint8_t)map->page_bits;
	f->stream_kind = (uint8_t)kind;
	f->blocks = htole16((uint16_t)map->nblocks);
	f->frames_checksum = htole64(frame_pool_checksum(w->pool));
}

static bool write_tail(struct image_writer *w, const struct image_index_source *src,
		       struct image_footer *f, struct image_sealed *s, struct tp_error *err)
{
	uint64_t at = frame_pool_offset(w->pool), length, checksum;

	if (!image_index_write(src, w->o.fd, at, w->o.limit, &length, &checksum, err))
		return false;
	f->index_offset = htole64(at);
	f->index_length = htole64(length);
	f->index_checksum = htole64(checksum);
	s->footer_checksum = XXH64(f, offsetof(struct image_footer, checksum), 0);
	f->checksum = htole64(s->footer_checksum);
	s->file_bytes = at + length + sizeof(*f);
	return put(w->o.fd, f, sizeof(*f), at + length, "write of the image's footer", err);
}

static bool settle(struct image_writer *w, uint64_t size, struct tp_error *err)
{
	/* Gives reserved room back; durable together with the seal. */
	if (!w->device && ftruncate(w->o.fd, (off_t)size))
		return image_write_error(err, errno, "truncation of the image", size);
	if (fdatasync(w->o.fd))
		return image_write_error(err, errno, "sync of the image", size);
	if (!write_header(w, size, err))
		return false;
	if (fsync(w->o.fd))
		return image_write_error(err, errno, "sync of the image's header", 0);
	/* What of it is in the page cache still: see frame_pool.c. */
	posix_fadvise(w->o.fd, 0, 0, POSIX_FADV_DONTNEED);
	return true;
}

bool image_writer_seal(struct image_writer *w, const struct image_map *map,
		       const struct image_span *spans, unsigned nspans, enum image_kind kind,
		       struct image_sealed *out, struct tp_error *err)
{
	const struct frame_table *frames = frame_pool_table(w->pool);
	struct image_index_source src = {
		.map = map, .frames = frames, .spans = spans, .nspans = nspans,
	};
	struct image_sealed s = { .frames = frames->n, .pages = map->pages };
	struct image_footer f = { 0 };
	uint64_t count[4];

	image_map_count(map, count);
	s.pages_data = count[IMAGE_DATA];
	s.pages_zero = count[IMAGE_ZERO];
	for (uint64_t i = 0; i < frames->n; i++)
		s.raw_bytes += frames->raw[i];
	fill_footer(w, map, kind, &s, &f);
	if (!write_tail(w, &src, &f, &s, err) || !settle(w, s.file_bytes, err))
		return false;
	*out = s;
	return true;
}
