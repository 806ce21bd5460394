/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_store.c - Decoded frames of an image, by need: what is urgent is decoded before all else
 *
 * Theory of operation
 *
 * A frame that somebody wants has a slot:
 *
 *      SLOT_FREE -> (want) SLOT_WANTED -> (decoder) SLOT_BUSY -> SLOT_READY | SLOT_FAILED
 *                                                              -> (drop) SLOT_FREE
 *
 * A decoder that is free takes the oldest urgent slot, and only if there is none
 * the oldest other one; so a requested page waits at most for frames that were
 * begun before it was asked for.
 *
 * Room. Frames for later are begun only while all raw bytes are within the
 * limit, or when nothing else is there; so who uses them up makes the next ones
 * come. An urgent frame first takes away what was ready and not used for the
 * longest time, then goes over the limit: by one frame a decoder at most.
 *
 * A read error is tried again twice, as a disk or a network file system may
 * recover; a bad checksum is not.
 */
#include "page_store.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STORE_THREADS_MAX 64
#define READ_TRIES 3
#define READ_PAUSE_MS 100	/* before the first repetition; doubled for the next */

enum slot_state { SLOT_FREE, SLOT_WANTED, SLOT_BUSY, SLOT_READY, SLOT_FAILED };

/*
 * @order: of wanting; @used: when it was looked at last; @started: see struct stored_frame
 * @pinned: somebody looks at it; @dropped: free it once that, or the decoding, ends
 */
struct slot {
	enum slot_state state;
	uint64_t frame, order, used, started;
	bool urgent, pinned, dropped;
	uint8_t *raw;
	size_t raw_bytes, npages;
	struct image_page *pages;
	struct tp_error err;
};

/*
 * @bytes: raw bytes of the slots that are busy or ready
 * @clock: counts wanting and looking, for order and used; @started: decodes begun
 */
struct page_store {
	struct page_store_options o;
	pthread_mutex_t mutex;
	pthread_cond_t work;
	struct slot slots[PAGE_STORE_FRAMES];
	uint64_t bytes, clock, started;
	bool stop;
	pthread_t threads[STORE_THREADS_MAX];
	unsigned nthreads;
};

/* ---- slots; the mutex is held */

static struct slot *find(struct page_store *s, uint64_t frame)
{
	for (size_t i = 0; i < PAGE_STORE_FRAMES; i++)
		if (s->slots[i].state != SLOT_FREE && s->slots[i].frame == frame)
			return &s->slots[i];
	return NULL;
}

static void release(struct page_store *s, struct slot *slot)
{
	if (slot->state == SLOT_READY)
		s->bytes -= slot->raw_bytes;
	free(slot->raw);
	free(slot->pages);
	*slot = (struct slot){ .state = SLOT_FREE };
	pthread_cond_broadcast(&s->work);
}

/* The ready frame that nobody looks at and that was not used for the longest time, or NULL. */
static struct slot *least_used(struct page_store *s)
{
	struct slot *best = NULL;

	for (size_t i = 0; i < PAGE_STORE_FRAMES; i++) {
		struct slot *slot = &s->slots[i];

		if (slot->state == SLOT_READY && !slot->pinned && (!best || slot->used < best->used))
			best = slot;
	}
	return best;
}

/* The wanted slot that is next: urgent ones first, then by age. */
static struct slot *next_wanted(struct page_store *s)
{
	struct slot *best = NULL;

	for (size_t i = 0; i < PAGE_STORE_FRAMES; i++) {
		struct slot *slot = &s->slots[i];

		if (slot->state != SLOT_WANTED)
			continue;
		if (!best || slot->urgent > best->urgent ||
		    (slot->urgent == best->urgent && slot->order < best->order))
			best = slot;
	}
	return best;
}

static bool make_room(struct page_store *s, const struct slot *slot)
{
	struct slot *old;

	while (slot->urgent && s->bytes + slot->raw_bytes > s->o.bytes_max &&
	       (old = least_used(s)) != NULL)
		release(s, old);
	return slot->urgent || s->bytes == 0 || s->bytes + slot->raw_bytes <= s->o.bytes_max;
}

/* A slot for a new frame: a free one, or for an urgent frame what is least of use. */
static struct slot *new_slot(struct page_store *s, enum page_need need)
{
	struct slot *youngest = NULL, *old;

	for (size_t i = 0; i < PAGE_STORE_FRAMES; i++) {
		struct slot *slot = &s->slots[i];

		if (slot->state == SLOT_FREE)
			return slot;
		if (slot->state == SLOT_WANTED && !slot->urgent &&
		    (!youngest || slot->order > youngest->order))
			youngest = slot;
	}
	old = youngest ? youngest : least_used(s);
	if (need != PAGE_URGENT || !old)
		return NULL;
	release(s, old);
	return old;
}

/* ---- decoders */

/* Waits between two tries, unless the store ends. */
static void pause_reading(struct page_store *s, int tries)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (READ_PAUSE_MS << tries) * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_mutex_lock(&s->mutex);
	while (!s->stop && pthread_cond_clockwait(&s->work, &s->mutex, CLOCK_MONOTONIC, &until) == 0)
		;
	pthread_mutex_unlock(&s->mutex);
}

static bool read_frame(struct page_store *s, struct image_decoder *d, struct slot *slot)
{
	struct tp_error err = TP_ERROR_INIT;

	for (int tries = 0; tries < READ_TRIES; tries++) {
		tp_error_clear(&err);
		if (image_frame_read(s->o.img, d, slot->frame, slot->raw, NULL, &err))
			return true;
		if (err.code != TP_ESYS)
			break;
		if (tries + 1 < READ_TRIES)
			pause_reading(s, tries);
	}
	slot->err = err;
	return false;
}

static bool decode(struct page_store *s, struct image_decoder *d, struct slot *slot)
{
	slot->raw = malloc(slot->raw_bytes);
	if (!slot->raw)
		return tp_fail_nomem(&slot->err);
	return read_frame(s, d, slot) &&
	       image_frame_pages(s->o.img, slot->frame, slot->raw, &slot->pages, &slot->npages,
				 &slot->err);
}

/* Takes the next slot to decode; NULL: the store ends. */
static struct slot *claim(struct page_store *s)
{
	struct slot *slot;

	while (!s->stop) {
		slot = next_wanted(s);
		if (slot && make_room(s, slot)) {
			slot->state = SLOT_BUSY;
			slot->started = s->started++;
			s->bytes += slot->raw_bytes;
			return slot;
		}
		pthread_cond_wait(&s->work, &s->mutex);
	}
	return NULL;
}

static void settle(struct page_store *s, struct slot *slot, bool good)
{
	if (good) {
		slot->state = SLOT_READY;
	} else {
		slot->state = SLOT_FAILED;
		s->bytes -= slot->raw_bytes;
		pthread_cond_broadcast(&s->work);
	}
	if (slot->dropped)
		release(s, slot);
}

static void *decoder_main(void *arg)
{
	struct page_store *s = arg;
	struct tp_error err = TP_ERROR_INIT;
	struct image_decoder *d = image_decoder_new(&err);
	struct slot *slot;

	pthread_mutex_lock(&s->mutex);
	while ((slot = claim(s)) != NULL) {
		bool good;

		pthread_mutex_unlock(&s->mutex);
		slot->err = err;
		good = d && decode(s, d, slot);
		pthread_mutex_lock(&s->mutex);
		settle(s, slot, good);
		pthread_mutex_unlock(&s->mutex);
		if (s->o.changed)
			s->o.changed(s->o.arg);
		pthread_mutex_lock(&s->mutex);
	}
	pthread_mutex_unlock(&s->mutex);
	image_decoder_free(d);
	return NULL;
}

/* ---- the store */

static bool start_decoders(struct page_store *s, struct tp_error *err)
{
	unsigned want = s->o.threads > STORE_THREADS_MAX ? STORE_THREADS_MAX : s->o.threads;
	sigset_t all, before;
	int e = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (s->nthreads < want && !e) {
		e = pthread_create(&s->threads[s->nthreads], NULL, decoder_main, s);
		s->nthreads += !e;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* Fewer do as well. */
	return s->nthreads > 0 ? true : tp_fail_sys(err, e, "start a decoder thread");
}

struct page_store *page_store_new(const struct page_store_options *o, struct tp_error *err)
{
	struct page_store *s = calloc(1, sizeof(*s));

	if (!s) {
		tp_fail_nomem(err);
		return NULL;
	}
	s->o = *o;
	if (!s->o.bytes_max)
		s->o.bytes_max = PAGE_STORE_BYTES;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->work, NULL);
	if (!start_decoders(s, err)) {
		page_store_free(s);
		return NULL;
	}
	return s;
}

void page_store_free(struct page_store *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->mutex);
	s->stop = true;
	pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->mutex);
	while (s->nthreads > 0)
		pthread_join(s->threads[--s->nthreads], NULL);
	for (size_t i = 0; i < PAGE_STORE_FRAMES; i++) {
		free(s->slots[i].raw);
		free(s->slots[i].pages);
	}
	pthread_cond_destroy(&s->work);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

bool page_store_want(struct page_store *s, uint64_t frame, enum page_need need, uint64_t *started)
{
	struct slot *slot;

	pthread_mutex_lock(&s->mutex);
	slot = find(s, frame);
	if (!slot) {
		slot = new_slot(s, need);
		if (slot)
			*slot = (struct slot){ .state = SLOT_WANTED, .frame = frame, .order = s->clock++,
					       .raw_bytes = image_frame_raw(s->o.img, frame) };
	}
	if (slot) {
		slot->urgent |= need == PAGE_URGENT;
		slot->dropped = false;
		pthread_cond_broadcast(&s->work);
	}
	if (started)
		*started = s->started;
	pthread_mutex_unlock(&s->mutex);
	return slot != NULL;
}

enum page_answer page_store_get(struct page_store *s, uint64_t frame, struct stored_frame *out,
				struct tp_error *err)
{
	enum page_answer answer = PAGE_UNKNOWN;
	struct slot *slot;

	pthread_mutex_lock(&s->mutex);
	slot = find(s, frame);
	if (slot && slot->state == SLOT_FAILED) {
		answer = PAGE_FAILED;
		if (err && err->code == TP_OK)
			*err = slot->err;
	} else if (slot && slot->state != SLOT_READY) {
		answer = PAGE_PENDING;
	} else if (slot) {
		answer = PAGE_READY;
		slot->pinned = true;
		slot->used = s->clock++;
		*out = (struct stored_frame){ slot->pages, slot->npages, slot->started };
	}
	pthread_mutex_unlock(&s->mutex);
	return answer;
}

void page_store_put(struct page_store *s, uint64_t frame)
{
	struct slot *slot;

	pthread_mutex_lock(&s->mutex);
	slot = find(s, frame);
	if (slot)
		slot->pinned = false;
	pthread_mutex_unlock(&s->mutex);
}

static void drop(struct page_store *s, struct slot *slot)
{
	if (slot->state == SLOT_BUSY)
		slot->dropped = true;
	else if (slot->state != SLOT_FREE)
		release(s, slot);
}

void page_store_drop(struct page_store *s, uint64_t frame)
{
	struct slot *slot;

	pthread_mutex_lock(&s->mutex);
	slot = find(s, frame);
	if (slot)
		drop(s, slot);
	pthread_mutex_unlock(&s->mutex);
}

void page_store_drop_all(struct page_store *s)
{
	pthread_mutex_lock(&s->mutex);
	for (size_t i = 0; i < PAGE_STORE_FRAMES; i++)
		drop(s, &s->slots[i]);
	pthread_mutex_unlock(&s->mutex);
}

uint64_t page_store_bytes(struct page_store *s)
{
	uint64_t bytes;

	pthread_mutex_lock(&s->mutex);
	bytes = s->bytes;
	pthread_mutex_unlock(&s->mutex);
	return bytes;
}
