/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * save_pump.c - Move a migration stream from QEMU's socket into a sealed memory image
 *
 * Theory of operation. This thread reads straight into the frame buffer of the
 * pool and parses in place; the pool's threads compress and write. What was
 * read beyond a frame's cut (less than a record, but where the device area
 * begins) moves to the next buffer. When all threads are busy the pump waits
 * for a buffer, does not read, and QEMU waits for the pump: memory is bounded.
 *
 * End of the stream: without a return path the end of the socket. With one QEMU
 * sends all it has and waits, so the end is reached when the bytes so far end
 * in a valid vmdesc and no more come for a moment (SETTLE_MS).
 *
 * Every wait is at most TICK_MS, so that a cancel is seen in time.
 */
#include "save_pump.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_size.h"
#include "base/tp_time.h"
#include "storage/frame_pool.h"
#include "storage/image_bound.h"
#include "stream_parse.h"

#define TICK_MS 50
#define PROGRESS_SECONDS 0.1
#define SETTLE_MS 5
#define UNMARKED_SECONDS 10.0		/* a stream that ended without vmdesc, and nothing comes */
#define DRAIN_BUFFER (256u << 10)
#define WANT_SLACK 4096u

struct pump {
	const struct save_pump_options *o;
	struct image_writer *writer;
	struct frame_pool *pool;
	struct stream_parser *parser;
	struct frame_buf *buf;		/* the frame being filled */
	size_t fill;
	struct frame_buf carry;		/* bytes on their way to the next buffer */
	double ticked, reported, received;
	bool seen_pages, pipe;		/* pipe: the stream is no socket */
	struct tp_error *err;
};

/* ---- cancel and progress */

static bool cancelled(const struct save_pump_options *o)
{
	return o->cancelled && o->cancelled(o->arg);
}

static void report(struct pump *p, bool sealing)
{
	const struct image_map *map = stream_map(p->parser);
	struct save_progress progress = {
		.raw_bytes = stream_raw(p->parser), .file_bytes = frame_pool_offset(p->pool),
		.pages_total = map->pages, .records = stream_records(p->parser),
		.page_size = 1u << map->page_bits, .sealing = sealing,
	};

	p->reported = tp_now_mono();
	if (p->o->progress)
		p->o->progress(p->o->arg, &progress);
}

/* Called at least once in each TICK_MS and after each read. false: cancelled. */
static bool tick(struct pump *p)
{
	double now = tp_now_mono();

	if (!p->seen_pages && stream_records(p->parser)) {
		p->seen_pages = true;
		report(p, false);
	}
	if (now - p->ticked < TICK_MS / 1000.0)
		return true;
	p->ticked = now;
	if (cancelled(p->o))
		return tp_fail(p->err, TP_ECANCELLED, "the save was cancelled");
	if (now - p->reported >= PROGRESS_SECONDS)
		report(p, false);
	return true;
}

/* ---- frames */

static bool next_buffer(struct pump *p)
{
	bool failed = false;

	while (!(p->buf = frame_pool_get(p->pool, TICK_MS, &failed))) {
		if (failed) {
			frame_pool_failed(p->pool, p->err);
			return false;
		}
		if (!tick(p))
			return false;
	}
	p->fill = 0;
	return true;
}

/* The first n bytes of the buffer are a frame; the rest begins the next. */
static bool submit(struct pump *p, size_t n)
{
	size_t rest = p->fill - n;
	uint16_t block, flags;

	if (!frame_buf_grow(&p->carry, rest, 0, p->err))
		return false;
	if (rest)
		memcpy(p->carry.data, p->buf->data + n, rest);
	stream_frame(p->parser, &block, &flags);
	frame_pool_submit(p->pool, (uint32_t)n, block, flags);
	stream_cut(p->parser);
	if (!next_buffer(p) || !frame_buf_grow(p->buf, rest, 0, p->err))
		return false;
	if (rest)
		memcpy(p->buf->data, p->carry.data, rest);
	p->fill = rest;
	return true;
}

static void drop(struct pump *p, size_t at, size_t n)
{
	memmove(p->buf->data + at, p->buf->data + at + n, p->fill - at - n);
	p->fill -= n;
}

static bool parse(struct pump *p)
{
	for (;;) {
		switch (stream_parse(p->parser, p->buf->data, p->fill, p->err)) {
		case STREAM_MORE:
			if (stream_want(p->parser) <= p->buf->cap)
				return true;
			return frame_buf_grow(p->buf, stream_want(p->parser) + WANT_SLACK, p->fill, p->err);
		case STREAM_CUT:
			if (!submit(p, stream_pos(p->parser)))
				return false;
			break;
		case STREAM_DROP:
			drop(p, stream_pos(p->parser), stream_drop(p->parser));
			break;
		case STREAM_FAILED:
			return false;
		}
	}
}

/* ---- reading */

/* As read(2) without blocking; EAGAIN when there is nothing. */
static ssize_t receive(struct pump *p, void *data, size_t n)
{
	ssize_t done = -1;

	if (!p->pipe) {
		done = recv(p->o->stream_fd, data, n, MSG_DONTWAIT);
		p->pipe = done < 0 && errno == ENOTSOCK;
	}
	if (p->pipe) {
		struct pollfd pfd = { .fd = p->o->stream_fd, .events = POLLIN };

		if (poll(&pfd, 1, 0) > 0)
			return read(p->o->stream_fd, data, n);
		errno = EAGAIN;
		return -1;
	}
	return done;
}

/* true: there is something to read (or an end, or an error). */
static bool readable(int fd, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, ms) > 0;
}

/* Nothing to read now. *end: the stream is whole. */
static bool idle(struct pump *p, bool *end)
{
	if (p->o->return_path && stream_parse_complete(p->parser)) {
		*end = !readable(p->o->stream_fd, SETTLE_MS);
		return true;
	}
	if (p->o->return_path && tp_now_mono() - p->received > UNMARKED_SECONDS &&
	    stream_parse_unmarked(p->parser))
		return tp_fail(p->err, TP_EUNSUPPORTED, "the stream has no description at its end "
			       "(suppress-vmdesc): its end cannot be known");
	readable(p->o->stream_fd, TICK_MS);
	return true;
}

static bool end_of_socket(struct pump *p, bool *end)
{
	if (p->o->return_path)
		return tp_fail_class(p->err, TP_EPROTO, "QemuError",
				     "QEMU closed the stream after %llu bytes, before the hand-over",
				     (unsigned long long)stream_raw(p->parser));
	*end = true;
	return true;
}

static bool read_stream(struct pump *p)
{
	bool end = false;

	p->received = tp_now_mono();
	while (!end) {
		ssize_t n = receive(p, p->buf->data + p->fill, p->buf->cap - p->fill);

		if (n > 0) {
			p->fill += (size_t)n;
			if (!parse(p))
				return false;
			p->received = tp_now_mono();
			if (p->o->received)
				p->o->received(p->o->arg, stream_raw(p->parser));
		} else if (n == 0) {
			if (!end_of_socket(p, &end))
				return false;
		} else if (errno == EAGAIN) {
			if (!idle(p, &end))
				return false;
		} else if (errno != EINTR) {
			return tp_fail_sys(p->err, errno, "read of the migration stream");
		}
		if (!tick(p))
			return false;
	}
	return stream_parse_finish(p->parser, p->err);
}

/* ---- sealing */

static bool flush(struct pump *p)
{
	uint16_t block, flags;
	bool done = false;

	if (p->fill) {
		stream_frame(p->parser, &block, &flags);
		frame_pool_submit(p->pool, (uint32_t)p->fill, block, flags);
	}
	while (!done) {
		if (!frame_pool_finish(p->pool, TICK_MS, &done, p->err) || !tick(p))
			return false;
	}
	report(p, true);
	return true;
}

static bool copy_facts(struct pump *p, struct save_result *r)
{
	const struct image_map *map = stream_map(p->parser);

	r->blocks = calloc(map->nblocks + 1, sizeof(*r->blocks));
	if (!r->blocks)
		return tp_fail_nomem(p->err);
	memcpy(r->blocks, map->blocks, map->nblocks * sizeof(*r->blocks));
	r->nblocks = map->nblocks;
	r->page_size = 1u << map->page_bits;
	r->kind = stream_kind(p->parser);
	r->device_bytes = stream_device_bytes(p->parser);
	strcpy(r->machine, stream_machine(p->parser));
	return true;
}

static bool seal(struct pump *p, struct save_result *r)
{
	double start = tp_now_mono();
	const struct image_span *spans;
	unsigned n;

	if (!flush(p) || !copy_facts(p, r))
		return false;
	spans = stream_spans(p->parser, &n);
	if (!image_writer_seal(p->writer, stream_map(p->parser), spans, n, r->kind, &r->image, p->err))
		return false;
	r->seal_seconds = tp_now_mono() - start;
	return true;
}

/* ---- life */

static bool setup(struct pump *p)
{
	const struct save_pump_options *o = p->o;
	struct image_writer_options w = {
		.fd = o->image_fd, .created_us = o->created_us ? o->created_us : tp_now_us(),
		.limit = o->limit_bytes, .threads = o->threads, .level = o->level,
		.frame_target = o->frame_target ? o->frame_target : IMAGE_FRAME_TARGET,
	};

	memcpy(w.uuid, o->uuid, sizeof(w.uuid));
	p->parser = stream_parser_new(w.frame_target, p->err);
	p->writer = p->parser ? image_writer_new(&w, p->err) : NULL;
	if (!p->writer)
		return false;
	p->pool = image_writer_pool(p->writer);
	p->ticked = p->reported = tp_now_mono();
	return next_buffer(p);
}

static void teardown(struct pump *p)
{
	image_writer_free(p->writer);
	stream_parser_free(p->parser);
	free(p->carry.data);
}

/* Reads the stream into nothing until somebody says stop or it ends. */
static void drain(struct pump *p)
{
	uint8_t *nothing = malloc(DRAIN_BUFFER);
	ssize_t n = 1;

	while (nothing && n && !cancelled(p->o)) {
		double until = tp_now_mono() + TICK_MS / 1000.0;

		readable(p->o->stream_fd, TICK_MS);
		do
			n = receive(p, nothing, DRAIN_BUFFER);
		while (n > 0 && tp_now_mono() < until);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			break;
	}
	free(nothing);
}

bool save_pump_run(const struct save_pump_options *o, struct save_result *out,
		   struct tp_error *err)
{
	struct tp_error error = TP_ERROR_INIT;
	struct save_result result = { 0 };
	struct pump p = { .o = o, .err = &error };

	if (setup(&p) && read_stream(&p) && seal(&p, &result)) {
		teardown(&p);
		*out = result;
		return true;
	}
	teardown(&p);
	save_result_free(&result);
	if (error.code != TP_ECANCELLED) {
		if (o->failed)
			o->failed(o->arg, &error);
		drain(&p);
	}
	if (err && err->code == TP_OK)
		*err = error;
	return false;
}

void save_result_free(struct save_result *r)
{
	free(r->blocks);
	memset(r, 0, sizeof(*r));
}

bool save_pump_finish(int stream_fd, uint32_t status, struct tp_error *err)
{
	uint8_t shut[8];
	size_t at = 0;

	tp_put_be16(shut, 1);
	tp_put_be16(shut + 2, 4);
	tp_put_be32(shut + 4, status);
	while (at < sizeof(shut)) {
		ssize_t n = send(stream_fd, shut + at, sizeof(shut) - at, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return tp_fail_sys(err, errno, "answer to QEMU over the return path");
		if (n > 0)
			at += (size_t)n;
	}
	return true;
}
