/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_salvage.c - Find the good frames of an image whose index cannot be used
 *
 * Frames are ordinary zstd frames one behind the other. Where one does not
 * decode, or its checksum is wrong, the next place with zstd's magic number is
 * tried. The index is such a frame, too, and told by its form. A window over
 * the file always holds at least one frame of the largest size, unless the file
 * ends before.
 */
#include "image_salvage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/tp_fs.h"
#include "base/tp_size.h"
#include "image_format.h"
#include "image_read.h"

#define WINDOW ((size_t)64 << 20)
#define SKIPPABLE_MASK 0xFFFFFFF0u
#define SKIPPABLE_BASE 0x184D2A50u
#define CHECKSUM_FLAG 0x04	/* in zstd's frame header descriptor, byte 4 of a frame */

struct scan {
	int fd, out;
	uint8_t *window, *raw;
	size_t size;		/* of the window */
	size_t room;		/* of raw */
	size_t at, end;		/* in the window */
	uint64_t offset;	/* in the file, of the window's end */
	bool eof, damaged;	/* damaged: we are inside a damaged place, counted already */
	ZSTD_DCtx *ctx;
	uint64_t good, lost;
};

static bool refill(struct scan *s, struct tp_error *err)
{
	if (s->eof || s->end - s->at >= ZSTD_compressBound(IMAGE_FRAME_MAX))
		return true;
	memmove(s->window, s->window + s->at, s->end - s->at);
	s->end -= s->at;
	s->at = 0;
	while (!s->eof && s->end < s->size) {
		ssize_t n = pread(s->fd, s->window + s->end, s->size - s->end, (off_t)s->offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return tp_fail_sys(err, errno, "read at offset %llu", (unsigned long long)s->offset);
		s->eof = n == 0;
		s->end += (size_t)n;
		s->offset += (uint64_t)n;
	}
	return true;
}

/* Length of a skippable frame (header, index, footer) at p that is all there, or 0. */
static size_t skippable(const uint8_t *p, size_t n)
{
	if (n < 8 || (tp_le32(p) & SKIPPABLE_MASK) != SKIPPABLE_BASE || tp_le32(p + 4) > n - 8)
		return 0;
	return 8 + (size_t)tp_le32(p + 4);
}

/* Frames are 256 KiB as a rule, and may say to be 16 MiB: room is made as it is needed. */
static bool raw_room(struct scan *s, size_t n)
{
	uint8_t *raw;

	if (n <= s->room)
		return true;
	raw = realloc(s->raw, n);
	if (!raw)
		return false;
	s->raw = raw;
	s->room = n;
	return true;
}

/* Decodes the frame at p into s->raw; returns its length, or 0. */
static size_t good_frame(struct scan *s, const uint8_t *p, size_t n, size_t *raw)
{
	unsigned long long content;
	size_t stored, done;

	/* A checksum is what makes it more than something that happens to decode. */
	if (n < 9 || tp_le32(p) != IMAGE_ZSTD_MAGIC || !(p[4] & CHECKSUM_FLAG))
		return 0;
	stored = ZSTD_findFrameCompressedSize(p, n);
	content = ZSTD_getFrameContentSize(p, n);
	if (ZSTD_isError(stored) || !content || content > IMAGE_FRAME_MAX || !raw_room(s, (size_t)content))
		return 0;
	done = ZSTD_decompressDCtx(s->ctx, s->raw, (size_t)content, p, stored);
	if (ZSTD_isError(done) || done != content)
		return 0;
	*raw = done;
	return stored;
}

/*
 * The body of the index is a zstd frame, too, and is found like one where the head of the index is
 * damaged: a list of chunks from the first to the last byte, as no part of a stream is.
 */
static bool is_index_body(const uint8_t *p, size_t n)
{
	uint32_t last = 0;

	while (n >= IMAGE_CHUNK_HEAD) {
		uint32_t type = tp_le32(p);
		uint64_t length = tp_le64(p + 8);
		size_t whole;

		if (type <= last || length > n - IMAGE_CHUNK_HEAD)
			return false;
		whole = IMAGE_CHUNK_HEAD + (size_t)((length + 7) & ~(uint64_t)7);
		if (whole > n)
			return false;
		last = type;
		p += whole;
		n -= whole;
	}
	return n == 0 && last >= IMAGE_CHUNK_RANGES;
}

static size_t next_magic(const uint8_t *p, size_t n)
{
	uint8_t magic[4];
	const uint8_t *hit;

	tp_put_le32(magic, IMAGE_ZSTD_MAGIC);
	hit = n > 1 ? memmem(p + 1, n - 1, magic, sizeof(magic)) : NULL;
	/* Without a hit its beginning may still be at the end. */
	return hit ? (size_t)(hit - p) : n > sizeof(magic) ? n - sizeof(magic) + 1 : n;
}

static bool step(struct scan *s, struct tp_error *err)
{
	const uint8_t *p = s->window + s->at;
	size_t n = s->end - s->at, raw, length = good_frame(s, p, n, &raw);

	if (length) {
		s->damaged = false;
		s->at += length;
		if (is_index_body(s->raw, raw))
			return true;
		s->good++;
		return tp_write_all(s->out, s->raw, raw, err);
	}
	length = skippable(p, n);
	if (!length) {
		s->lost += !s->damaged;
		s->damaged = true;
		length = next_magic(p, n);
	}
	s->at += length;
	return true;
}

/* All of a small file, else the largest window; of what is no file (a device) the size is not known. */
static size_t window_size(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size < WINDOW ?
		(size_t)st.st_size + 1 : WINDOW;
}

bool image_salvage(int fd, int out, uint64_t *good, uint64_t *lost, struct tp_error *err)
{
	struct scan s = {
		.fd = fd, .out = out, .size = window_size(fd), .ctx = ZSTD_createDCtx(),
		.offset = IMAGE_HEADER_SIZE,
	};
	bool ok;

	s.window = malloc(s.size);
	ok = s.window && s.ctx;
	if (!ok)
		tp_fail_nomem(err);
	else
		ZSTD_DCtx_setParameter(s.ctx, ZSTD_d_windowLogMax, IMAGE_WINDOW_LOG_MAX);
	do
		ok = ok && refill(&s, err) && (s.at == s.end || step(&s, err));
	while (ok && (!s.eof || s.at < s.end));
	*good = s.good;
	*lost = s.lost;
	free(s.window);
	free(s.raw);
	ZSTD_freeDCtx(s.ctx);
	return ok;
}
