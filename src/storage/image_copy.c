/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_copy.c - A sealed image's bytes into another file, checked on the way
 *
 * Stored bytes are copied, so the copy is the source bit for bit and names itself by the same footer.
 * A frame is read back from the copy and decoded there: that checks the source's frame, the writing
 * and, of an earlier try's frames, whether they are still what was copied. The frames' sum ties all of
 * them to the footer, the index has been checked by opening the source.
 *
 * What was written is pushed out window by window and then dropped from the page cache, on both
 * sides: a large image must not push out what others work with.
 */
#include "image_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frame_pool.h"
#include "frames_sum.h"
#include "image_format.h"
#include "image_priv.h"

#define WINDOW (8u << 20)
#define PIECE (1u << 20)		/* of what is no frame */

/*
 * @there: the source's index over the copy's bytes
 * @buf: of @cap bytes, for what is copied or decoded
 * @window: up to where bytes were pushed out
 */
struct copy {
	const struct image_copy_options *o;
	struct image_copy_result r;
	struct image *img, there;
	struct image_decoder *decoder;
	struct frames_sum *sum;
	uint8_t *buf;
	size_t cap;
	uint64_t window;
};

static bool room(struct copy *c, size_t n, struct tp_error *err)
{
	if (n <= c->cap)
		return true;
	free(c->buf);
	c->buf = malloc(n);
	c->cap = c->buf ? n : 0;
	return c->buf || tp_fail_nomem(err);
}

static void push_out(struct copy *c, uint64_t end)
{
	off_t from = (off_t)c->window, n = (off_t)(end - c->window);

	sync_file_range(c->o->copy_fd, from, n, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			SYNC_FILE_RANGE_WAIT_AFTER);
	posix_fadvise(c->o->copy_fd, from, n, POSIX_FADV_DONTNEED);
	posix_fadvise(c->o->source_fd, from, n, POSIX_FADV_DONTNEED);
	c->window = end;
}

static bool read_all(int fd, uint8_t *p, size_t n, uint64_t at, struct tp_error *err)
{
	while (n) {
		ssize_t done = pread(fd, p, n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return tp_fail_sys(err, errno, "read of the image at offset %llu",
					   (unsigned long long)at);
		if (!done)
			return tp_fail(err, TP_ECORRUPT, "the image ends at offset %llu",
				       (unsigned long long)at);
		p += done;
		n -= (size_t)done;
		at += (uint64_t)done;
	}
	return true;
}

static bool write_all(int fd, const uint8_t *p, size_t n, uint64_t at, struct tp_error *err)
{
	while (n) {
		ssize_t done = pwrite(fd, p, n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return image_write_error(err, done ? errno : ENOSPC, "write of the copy", at);
		p += done;
		n -= (size_t)done;
		at += (uint64_t)done;
	}
	return true;
}

static bool copy_piece(struct copy *c, uint64_t at, size_t n, struct tp_error *err)
{
	if (!room(c, n, err) || !read_all(c->o->source_fd, c->buf, n, at, err) ||
	    !write_all(c->o->copy_fd, c->buf, n, at, err))
		return false;
	c->r.copied += n;
	if (at + n >= c->window + WINDOW)
		push_out(c, at + n);
	return true;
}

static void tell(const struct copy *c, uint64_t done)
{
	if (c->o->progress)
		c->o->progress(c->o->arg, done, c->img->info.file_bytes);
}

static uint64_t frame_at(const struct copy *c, uint64_t frame)
{
	return IMAGE_HEADER_SIZE + c->img->x.stored_at[frame];
}

/* As it stands in the copy. False with *fault: it is not the source's frame. */
static bool check_frame(struct copy *c, uint64_t frame, const char **fault, struct tp_error *err)
{
	uint32_t raw = image_frame_raw(c->img, frame), checksum;

	*fault = NULL;
	if (!room(c, raw, err) ||
	    !image_frame_decode(&c->there, c->decoder, frame, c->buf, &checksum, fault, err))
		return false;
	frames_sum_add(c->sum, raw, checksum);
	return true;
}

/* Frames that an earlier try has left; the first that is not whole ends them. */
static bool skip_kept(struct copy *c, uint64_t *frame, struct tp_error *err)
{
	const char *fault;
	struct stat st;

	if (fstat(c->o->copy_fd, &st))
		return tp_fail_sys(err, errno, "the copy");
	for (*frame = 0; *frame < c->img->info.frames; (*frame)++) {
		if (frame_at(c, *frame + 1) > (uint64_t)st.st_size)
			break;
		if (!check_frame(c, *frame, &fault, err)) {
			if (!fault)
				return false;
			break;
		}
		tell(c, frame_at(c, *frame + 1));
	}
	c->r.kept = c->img->x.stored_at[*frame];
	c->window = frame_at(c, *frame);
	return true;
}

static bool copy_frames(struct copy *c, uint64_t frame, struct tp_error *err)
{
	char where[IMAGE_WHERE];
	const char *fault;

	for (; frame < c->img->info.frames; frame++) {
		if (!copy_piece(c, frame_at(c, frame), image_frame_stored(c->img, frame), err))
			return false;
		if (!check_frame(c, frame, &fault, err))
			return fault ? tp_fail(err, TP_ECORRUPT, "%s is damaged: %s",
					       image_where(c->img, frame, where), fault) : false;
		tell(c, frame_at(c, frame + 1));
	}
	return frames_sum_check(c->sum, c->img, err);
}

/* Index and footer; then all is on the platter, and the header makes it an image. */
static bool copy_rest(struct copy *c, struct tp_error *err)
{
	uint64_t end = c->img->info.file_bytes;

	for (uint64_t at = c->img->info.index_offset; at < end; at += PIECE)
		if (!copy_piece(c, at, end - at < PIECE ? (size_t)(end - at) : PIECE, err))
			return false;
	if (ftruncate(c->o->copy_fd, (off_t)end) || fdatasync(c->o->copy_fd))
		return image_write_error(err, errno, "sync of the copy", end);
	if (!copy_piece(c, 0, IMAGE_HEADER_SIZE, err))
		return false;
	if (fsync(c->o->copy_fd))
		return image_write_error(err, errno, "sync of the copy", 0);
	tell(c, end);
	return true;
}

static bool run(struct copy *c, struct tp_error *err)
{
	uint64_t frame = 0;

	if (c->img->info.footer_checksum != c->o->footer)
		return tp_fail(err, TP_ECORRUPT, "it is not the file that its manifest names");
	c->there = *c->img;
	c->there.fd = c->o->copy_fd;
	c->r.file_bytes = c->img->info.file_bytes;
	c->r.frames = c->img->info.frames;
	c->decoder = image_decoder_new(err);
	c->sum = c->decoder ? frames_sum_new(err) : NULL;
	return c->sum && skip_kept(c, &frame, err) && copy_frames(c, frame, err) && copy_rest(c, err);
}

bool image_copy(const struct image_copy_options *o, struct image_copy_result *r, struct tp_error *err)
{
	struct copy c = { .o = o, .img = image_open(o->source_fd, err) };
	bool ok = c.img && run(&c, err);

	if (ok)
		*r = c.r;
	frames_sum_free(c.sum);
	image_decoder_free(c.decoder);
	image_close(c.img);
	free(c.buf);
	return ok;
}
