/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_verify.c - Check all of an image: every frame, every record, every sum
 *
 * Theory of operation. Threads take frames in order, decode and walk them. The
 * winning record of a page is the last one in the stream: `seen` holds per page
 * (frame + 1) * 2 + is_data, and a thread replaces it only by a later frame's
 * (or, within its own frame, by a later record's), so the result does not
 * depend on which thread comes first. At the end seen is compared with the
 * index. The frames' checksums are kept and summed in order for the footer. Of
 * several damages the one nearest the beginning is reported.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frame_pool.h"
#include "frames_sum.h"
#include "image_format.h"
#include "image_priv.h"

#define PROGRESS_NS 50000000L

struct verify {
	const struct image *img;
	_Atomic uint32_t *seen;
	uint32_t *checksums;
	atomic_uint_fast64_t next, done;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned running;
	uint64_t bad_frame;		/* of error; UINT64_MAX: none */
	struct tp_error error;
};

struct visit {
	struct verify *v;
	uint64_t frame;
};

static void see_page(void *arg, uint64_t page, enum image_class class_)
{
	const struct visit *visit = arg;
	_Atomic uint32_t *seen = &visit->v->seen[page];
	uint32_t mine = (uint32_t)((visit->frame + 1) << 1 | (class_ == IMAGE_DATA));
	uint32_t old = atomic_load_explicit(seen, memory_order_relaxed);

	while (old >> 1 <= mine >> 1 && !atomic_compare_exchange_weak(seen, &old, mine))
		;
}

static void report(struct verify *v, uint64_t frame, const struct tp_error *error)
{
	pthread_mutex_lock(&v->lock);
	if (frame < v->bad_frame) {
		v->bad_frame = frame;
		v->error = *error;
	}
	atomic_store(&v->stop, true);
	pthread_mutex_unlock(&v->lock);
}

static bool check_frame(struct verify *v, struct image_decoder *d, uint8_t **buf, size_t *cap,
			uint64_t frame, struct tp_error *err)
{
	struct visit visit = { v, frame };
	size_t raw = image_frame_raw(v->img, frame);

	if (raw > *cap) {
		free(*buf);
		*buf = malloc(raw);
		*cap = *buf ? raw : 0;
		if (!*buf)
			return tp_fail_nomem(err);
	}
	return image_frame_read(v->img, d, frame, *buf, &v->checksums[frame], err) &&
	       image_walk_frame(v->img, frame, *buf, see_page, &visit, err);
}

static void *verify_main(void *arg)
{
	struct verify *v = arg;
	struct tp_error error = TP_ERROR_INIT;
	struct image_decoder *d = image_decoder_new(&error);
	uint64_t frame = 0;
	uint8_t *buf = NULL;
	size_t cap = 0;

	if (!d)
		report(v, 0, &error);
	while (d && !atomic_load(&v->stop) &&
	       (frame = atomic_fetch_add(&v->next, 1)) < v->img->info.frames) {
		if (!check_frame(v, d, &buf, &cap, frame, &error)) {
			report(v, frame, &error);
			break;
		}
		atomic_fetch_add(&v->done, 1);
	}
	free(buf);
	image_decoder_free(d);
	pthread_mutex_lock(&v->lock);
	v->running--;
	pthread_cond_signal(&v->ended);
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

/* ---- after all frames */

static bool check_page(const struct verify *v, uint64_t page, uint64_t run, struct tp_error *err)
{
	const struct image_index *x = &v->img->x;
	unsigned class_ = x->classes[page >> 2] >> (page & 3) * 2 & 3u;
	uint32_t seen = atomic_load_explicit(&v->seen[page], memory_order_relaxed);
	unsigned found = !seen ? IMAGE_ABSENT : seen & 1 ? IMAGE_DATA : IMAGE_ZERO;

	if (class_ != found)
		return tp_fail(err, TP_ECORRUPT, "page %llu: the index gives it class %u, its last record %u",
			       (unsigned long long)page, class_, found);
	if (found == IMAGE_DATA && x->run_frame[run] != (seen >> 1) - 1)
		return tp_fail(err, TP_ECORRUPT, "page %llu: the index says frame %u, its last record is in frame %u",
			       (unsigned long long)page, x->run_frame[run], (seen >> 1) - 1);
	return true;
}

static bool check_pages(const struct verify *v, struct tp_error *err)
{
	const struct image_index *x = &v->img->x;
	uint64_t run = 0;

	for (uint64_t page = 0; page < x->pages; page++) {
		while (run + 1 < x->runs && x->run_page[run + 1] <= page)
			run++;
		if (!check_page(v, page, run, err))
			return false;
	}
	return true;
}

static bool check_sums(const struct verify *v, struct tp_error *err)
{
	struct frames_sum *sum = frames_sum_new(err);
	bool ok;

	if (!sum)
		return false;
	for (uint64_t i = 0; i < v->img->info.frames; i++)
		frames_sum_add(sum, image_frame_raw(v->img, i), v->checksums[i]);
	ok = frames_sum_check(sum, v->img, err);
	frames_sum_free(sum);
	return ok;
}

/* ---- threads */

static unsigned start(struct verify *v, pthread_t *threads, unsigned n)
{
	sigset_t all, before;
	unsigned i;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (i = 0; i < n; i++) {
		pthread_mutex_lock(&v->lock);
		v->running++;
		pthread_mutex_unlock(&v->lock);
		if (pthread_create(&threads[i], NULL, verify_main, v))
			break;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (i < n) {
		pthread_mutex_lock(&v->lock);
		v->running--;
		pthread_mutex_unlock(&v->lock);
	}
	return i;
}

static bool run_threads(struct verify *v, unsigned n,
			bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
			struct tp_error *err)
{
	pthread_t threads[FRAME_THREADS_MAX];
	unsigned started = start(v, threads, n);
	bool cancelled = false;

	pthread_mutex_lock(&v->lock);
	while (v->running) {
		struct timespec t;

		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += PROGRESS_NS;
		t.tv_sec += t.tv_nsec / 1000000000L;
		t.tv_nsec %= 1000000000L;
		pthread_cond_timedwait(&v->ended, &v->lock, &t);
		if (progress && !cancelled &&
		    !progress(arg, atomic_load(&v->done), v->img->info.frames)) {
			cancelled = true;
			atomic_store(&v->stop, true);
		}
	}
	pthread_mutex_unlock(&v->lock);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	if (!started)
		return tp_fail_sys(err, EAGAIN, "start of verification threads");
	if (v->bad_frame != UINT64_MAX) {
		if (err && err->code == TP_OK)
			*err = v->error;
		return false;
	}
	return !cancelled || tp_fail(err, TP_ECANCELLED, "the verification was cancelled");
}

bool image_verify(const struct image *img, unsigned threads,
		  bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
		  struct tp_error *err)
{
	struct verify v = { .img = img, .bad_frame = UINT64_MAX };
	unsigned n = frame_threads(threads);
	bool ok;

	v.seen = calloc(img->x.pages + 1, sizeof(*v.seen));
	v.checksums = calloc(img->info.frames, sizeof(*v.checksums));
	pthread_mutex_init(&v.lock, NULL);
	pthread_cond_init(&v.ended, NULL);
	if (!v.seen || !v.checksums)
		ok = tp_fail_nomem(err);
	else
		ok = run_threads(&v, n, progress, arg, err) && check_pages(&v, err) &&
		     check_sums(&v, err);
	pthread_cond_destroy(&v.ended);
	pthread_mutex_destroy(&v.lock);
	free(v.seen);
	free(v.checksums);
	return ok;
}
