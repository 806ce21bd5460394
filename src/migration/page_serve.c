/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_serve.c - What the page server sends next
 *
 * Theory of operation
 *
 * Three things want the connection, in this order:
 *
 *   requests    a thread of the guest stands still. Zero pages need no I/O; for others the frame is
 *               wanted urgently, which the decoders take before all else. The page goes alone.
 *   near        what lies around a requested page is likely to be next: the other pages of its
 *               frame, and the zero pages about it. The youngest place first.
 *   background  all other pages with content, frame by frame, decoded ahead; within the bandwidth.
 *
 * Near and background go in small pieces, and only when the socket took all
 * before them, so that a request has little in front of it.
 */
#include <string.h>

#include "base/tp_time.h"
#include "page_server_priv.h"
#include "storage/image_page.h"

#define PIECE_PAGES 32u			/* of near and background, at a time */
#define NEAR_PAGES 64u			/* in which zero pages go along: an aligned window */
#define WAITING_MAX (256u << 10)	/* bytes; requests wait in their list beyond that */
#define BURST_SECONDS 0.05		/* of a limited bandwidth that may be sent at once */
#define DEBT_SECONDS 1.0		/* for which the background pays at most for requests */
#define PIECE_BYTES (PIECE_PAGES * 4096.0)

/* ---- pages out */

static bool put_page(struct page_server *s, uint64_t page, const void *data, struct tp_error *err)
{
	if (!page_out_page(&s->out, s->img, page, data))
		return tp_fail_nomem(err);
	page_track_mark(&s->track, page);
	s->zeros += !data;
	return true;
}

static const struct image_page *find_page(const struct stored_frame *f, uint64_t page)
{
	size_t low = 0, high = f->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (f->pages[middle].page < page)
			low = middle + 1;
		else
			high = middle;
	}
	return low < f->n && f->pages[low].page == page ? &f->pages[low] : NULL;
}

static bool frame_lacks(struct page_server *s, uint64_t frame, uint64_t page, struct tp_error *err)
{
	s->bad_frame = frame;
	return tp_fail(err, TP_ECORRUPT, "frame %llu lacks page %llu, which the index places in it",
		       (unsigned long long)frame, (unsigned long long)page);
}

/*
 * Up to n pages of a frame that were not sent, from the first one not below `from` on and around.
 * *put: how many.
 */
static bool put_rest(struct page_server *s, const struct stored_frame *f, uint64_t from, size_t n,
		     size_t *put, struct tp_error *err)
{
	size_t start = 0;

	*put = 0;
	while (start < f->n && f->pages[start].page < from)
		start++;
	for (size_t i = 0; i < f->n && *put < n; i++) {
		const struct image_page *p = &f->pages[(start + i) % f->n];

		if (page_track_sent(&s->track, p->page))
			continue;
		if (!put_page(s, p->page, p->data, err))
			return false;
		(*put)++;
	}
	return true;
}

/* ---- requests */

static void near_remove(struct page_server *s, unsigned i)
{
	s->nnear--;
	memmove(&s->near[i], &s->near[i + 1], (s->nnear - i) * sizeof(s->near[0]));
}

/* The youngest is the last; of too many the oldest is given up, the background finds its pages. */
static void near_add(struct page_server *s, uint64_t page, uint64_t frame)
{
	for (unsigned i = 0; i < s->nnear; i++)
		if (frame != NO_FRAME && s->near[i].frame == frame)
			near_remove(s, i--);
	if (s->nnear == PAGES_NEAR) {
		if (s->near[0].frame != NO_FRAME)
			page_store_drop(s->store, s->near[0].frame);
		near_remove(s, 0);
	}
	s->near[s->nnear++] = (struct page_near){ page, frame };
}

static void answered(struct page_server *s, const struct page_request *r)
{
	double us = (tp_now_mono() - r->since) * 1e6;

	latency_add(&s->latency, us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us);
}

/* *done: there is nothing more to do for this request. */
static bool answer(struct page_server *s, const struct page_request *r, bool *done,
		   struct tp_error *err)
{
	const struct image_page *p;
	struct stored_frame f;
	uint64_t frame = NO_FRAME;
	bool good;

	*done = true;
	/* It crossed with the page. */
	if (page_track_sent(&s->track, r->page))
		return true;
	if (image_page_find(s->img, r->page, &frame) != IMAGE_DATA) {
		near_add(s, r->page, NO_FRAME);
		answered(s, r);
		return put_page(s, r->page, NULL, err);
	}
	switch (page_store_get(s->store, frame, &f, err)) {
	case PAGE_READY:
		p = find_page(&f, r->page);
		good = p ? put_page(s, r->page, p->data, err) : frame_lacks(s, frame, r->page, err);
		page_store_put(s->store, frame);
		near_add(s, r->page, frame);
		answered(s, r);
		return good;
	case PAGE_FAILED:
		s->bad_frame = frame;
		return false;
	default:
		*done = false;
		page_store_want(s->store, frame, PAGE_URGENT, NULL);
		return true;
	}
}

static bool answer_requests(struct page_server *s, struct tp_error *err)
{
	unsigned kept = 0, i;
	bool good = true;

	for (i = 0; i < s->nrequests && good && page_out_waiting(&s->out) < WAITING_MAX; i++) {
		bool done;

		good = answer(s, &s->requests[i], &done, err);
		if (!done)
			s->requests[kept++] = s->requests[i];
	}
	memmove(&s->requests[kept], &s->requests[i], (s->nrequests - i) * sizeof(s->requests[0]));
	s->nrequests -= i - kept;
	return good;
}

static bool refuse(struct tp_error *err, const struct return_message *m)
{
	return tp_fail_class(err, TP_EPROTO, "QemuError",
			     "QEMU asked for %u bytes at 0x%llx of RAM block %s, where nothing is",
			     m->length, (unsigned long long)m->start, m->id);
}

/* Devices are loaded each time in the same way; later only the first seconds tell what is needed first. */
static bool counts(struct page_server *s)
{
	double now = tp_now_mono();

	/* The first seconds are over when there is something to recover, as far as anybody knows. */
	if (s->o.recover)
		return false;
	if (s->state == PAGES_SERVING && s->first_until <= 0)
		s->first_until = now + s->o.first_seconds;
	return s->state == PAGES_LOADING || now < s->first_until;
}

bool page_serve_request(struct page_server *s, const struct return_message *m, struct tp_error *err)
{
	uint64_t page_size = (uint64_t)1 << s->info->page_bits, page;
	int block = image_block_find(s->img, m->id, strlen(m->id));
	const struct image_block *b;

	if (block < 0 || (m->start | m->length) & (page_size - 1) || m->length == 0)
		return refuse(err, m);
	b = image_block(s->img, (unsigned)block);
	if (m->start >= b->used_length || m->length > b->used_length - m->start)
		return refuse(err, m);
	/* QEMU asks for its own page size, which is ours (see check_blocks()). */
	if (m->length != page_size)
		return tp_fail_class(err, TP_EPROTO, "QemuError", "QEMU asks for %u bytes at a time, its pages "
				     "were to be of %llu", m->length, (unsigned long long)page_size);
	page = b->first_page + (m->start >> s->info->page_bits);
	if (counts(s))
		page_asked_add(&s->asked, page);
	s->requests[s->nrequests++] = (struct page_request){ page, tp_now_mono() };
	return true;
}

/* ---- near */

/* The zero pages in the window about a page. */
static bool put_zeros(struct page_server *s, uint64_t page, struct tp_error *err)
{
	const struct image_block *b = image_block(s->img, image_page_block(s->img, page));
	uint64_t end = b->first_page + (b->used_length >> s->info->page_bits);
	uint64_t at = page & ~(uint64_t)(NEAR_PAGES - 1);

	if (end > at + NEAR_PAGES)
		end = at + NEAR_PAGES;
	for (at = at < b->first_page ? b->first_page : at; at < end; at++)
		if (!page_track_sent(&s->track, at) &&
		    image_page_find(s->img, at, NULL) == IMAGE_ZERO && !put_page(s, at, NULL, err))
			return false;
	return true;
}

/* A piece of the youngest place. The place is given up when all of it is sent. */
static bool put_near(struct page_server *s, struct tp_error *err)
{
	struct page_near near = s->near[s->nnear - 1];
	struct stored_frame f;
	size_t put = 0;
	bool good;

	if (near.frame == NO_FRAME ||
	    page_store_get(s->store, near.frame, &f, NULL) != PAGE_READY) {
		near_remove(s, s->nnear - 1);
		return put_zeros(s, near.page, err);
	}
	good = put_rest(s, &f, near.page + 1, PIECE_PAGES, &put, err);
	page_store_put(s->store, near.frame);
	if (good && put < PIECE_PAGES) {
		near_remove(s, s->nnear - 1);
		page_store_drop(s->store, near.frame);
		good = put_zeros(s, near.page, err);
	}
	return good;
}

/* ---- background */

static bool is_ahead(const struct page_server *s, uint64_t frame)
{
	for (unsigned i = 0; i < s->nahead; i++)
		if (s->ahead[i].frame == frame)
			return true;
	return false;
}

static void look_ahead(struct page_server *s)
{
	uint64_t page, frame = 0;

	while (s->nahead < PAGES_AHEAD && page_track_next(&s->track, &page)) {
		image_page_find(s->img, page, &frame);
		if (is_ahead(s, frame))
			continue;
		if (!page_store_want(s->store, frame, PAGE_LATER, NULL)) {
			page_track_again(&s->track);
			return;
		}
		s->ahead[s->nahead++] = (struct page_ahead){ page, frame };
	}
}

static void pop_ahead(struct page_server *s)
{
	s->nahead--;
	memmove(&s->ahead[0], &s->ahead[1], s->nahead * sizeof(s->ahead[0]));
}

/* A piece of the first frame that was looked ahead for. *put: false: it is not there yet. */
static bool put_background(struct page_server *s, bool *put, struct tp_error *err)
{
	struct page_ahead a = s->ahead[0];
	struct stored_frame f;
	size_t n = 0;
	bool good;

	*put = false;
	switch (page_store_get(s->store, a.frame, &f, err)) {
	case PAGE_READY:
		break;
	case PAGE_FAILED:
		s->bad_frame = a.frame;
		return false;
	case PAGE_UNKNOWN:
		/* All of it went near a request, or it gave way to an urgent frame. */
		if (page_track_sent(&s->track, a.page))
			pop_ahead(s);
		else
			page_store_want(s->store, a.frame, PAGE_LATER, NULL);
		return true;
	default:
		return true;
	}
	if (!find_page(&f, a.page)) {
		page_store_put(s->store, a.frame);
		return frame_lacks(s, a.frame, a.page, err);
	}
	good = put_rest(s, &f, a.page, PIECE_PAGES, &n, err);
	page_store_put(s->store, a.frame);
	if (good && n < PIECE_PAGES) {
		page_store_drop(s->store, a.frame);
		pop_ahead(s);
	}
	*put = true;
	return good;
}

static double rate(const struct page_server *s)
{
	return (double)s->bandwidth;
}

static void earn(struct page_server *s)
{
	double now = tp_now_mono(), most = rate(s) * BURST_SECONDS;

	s->credit += rate(s) * (now - s->credit_at);
	s->credit_at = now;
	if (s->credit > most)
		s->credit = most;
}

/* A storm of requests shall not keep the background away for long after it. */
static void spend(struct page_server *s, uint64_t bytes)
{
	double most = rate(s) * DEBT_SECONDS;

	if (most < PIECE_BYTES)
		most = PIECE_BYTES;
	s->credit -= (double)bytes;
	if (s->credit < -most)
		s->credit = -most;
}

static bool may_send(struct page_server *s)
{
	if (s->bandwidth == 0)
		return true;
	earn(s);
	return s->credit >= 0;
}

double page_serve_wait(const struct page_server *s)
{
	if (s->bandwidth == 0 || s->credit >= 0 || s->nahead == 0)
		return -1;
	return -s->credit / rate(s);
}

/* ---- all of it */

static bool serving(const struct page_server *s)
{
	return s->state == PAGES_LOADING || s->state == PAGES_SERVING;
}

/* Puts out the next piece into an empty buffer; *idle: there is none now. */
static bool next_piece(struct page_server *s, bool *idle, struct tp_error *err)
{
	bool put = false, good = true;

	*idle = false;
	if (s->nnear > 0)
		return put_near(s, err);
	look_ahead(s);
	if (s->nahead > 0 && may_send(s)) {
		unsigned before = s->nahead;

		good = put_background(s, &put, err);
		*idle = !put && s->nahead == before;
		return good;
	}
	if (s->state == PAGES_SERVING && s->track.left == 0 && s->nrequests == 0) {
		page_server_enter(s, PAGES_ENDING);
		return page_out_finish(&s->out) || tp_fail_nomem(err);
	}
	*idle = true;
	return true;
}

static bool flush(struct page_server *s, bool *gone, bool *all)
{
	uint64_t before = s->out.sent;
	enum page_flush f = page_out_flush(&s->out, s->fd);

	spend(s, s->out.sent - before);
	*gone = f == FLUSH_GONE;
	*all = f == FLUSH_ALL;
	return *all;
}

bool page_serve(struct page_server *s, bool *gone, struct tp_error *err)
{
	bool all;

	s->idle = true;
	if (serving(s) && !answer_requests(s, err))
		return false;
	/* One piece a call: then the return path is looked at again. */
	if (!flush(s, gone, &all) || !serving(s))
		return true;
	if (!next_piece(s, &s->idle, err))
		return false;
	if (!s->idle)
		flush(s, gone, &all);
	return true;
}

void page_serve_reset(struct page_server *s)
{
	s->nrequests = s->nnear = 0;
	s->nahead = 0;
	page_store_drop_all(s->store);
	s->credit = 0;
	s->credit_at = tp_now_mono();
}
