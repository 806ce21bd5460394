/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_verify.c - Check all of an image: every frame, every record, every sum
 *
 * Theory of operation. Threads take frames in order, decode and walk them. The
 * winning record of a page is the last one in the stream: `seen` holds per page
 * (frame + 1) * 2 + is_data, and a thread replaces it only by a later frame's
 * (or, within its own frame, by a later record's), so the result does not
 * depend on which thread comes first. At the end seen is compared with the
 * index. The frames' checksums are kept and summed in order for the footer.
 *
 * A damage stops nothing. Those nearest to the beginning are listed, the others
 * counted. A bad frame's records are not known, so what could be explained by
 * one of them is not held against the index: a page is reported once.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frame_pool.h"
#include "frames_sum.h"
#include "image_damage.h"
#include "image_format.h"
#include "image_priv.h"

#define PROGRESS_NS 50000000L

/*
 * @bad: by frame; each is written by the thread that has the frame
 * @damages, @last_bad, @error, @running: under the lock while threads run
 */
struct verify {
	const struct image *img;
	_Atomic uint32_t *seen;
	uint32_t *checksums;
	uint8_t *bad;
	atomic_uint_fast64_t next, done;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned running;
	struct image_damages *damages;
	uint64_t last_bad;		/* of any_bad */
	bool any_bad;
	struct tp_error error;		/* no damage: memory, descriptors */
};

struct visit {
	struct verify *v;
	uint64_t frame;
};

static void see_page(void *arg, uint64_t page, enum image_class class_, const uint8_t *data)
{
	const struct visit *visit = arg;
	_Atomic uint32_t *seen = &visit->v->seen[page];
	uint32_t mine = (uint32_t)((visit->frame + 1) << 1 | (class_ == IMAGE_DATA));
	uint32_t old = atomic_load_explicit(seen, memory_order_relaxed);

	(void)data;
	while (old >> 1 <= mine >> 1 && !atomic_compare_exchange_weak(seen, &old, mine))
		;
}

/* ---- damages */

/* Keeps the list in the order of frames; those farthest from the beginning give way. */
static void list_frame(struct image_damages *list, uint64_t frame, const char *what)
{
	unsigned at = list->n;

	list->total++;
	while (at > 0 && list->list[at - 1].frame > frame)
		at--;
	if (at == IMAGE_DAMAGES_MAX)
		return;
	if (list->n < IMAGE_DAMAGES_MAX)
		list->n++;
	memmove(&list->list[at + 1], &list->list[at], (list->n - 1 - at) * sizeof(list->list[0]));
	list->list[at].frame = frame;
	snprintf(list->list[at].what, sizeof(list->list[at].what), "%s", what);
}

static void bad_frame(struct verify *v, uint64_t frame, const char *what)
{
	v->bad[frame] = 1;
	pthread_mutex_lock(&v->lock);
	list_frame(v->damages, frame, what);
	if (!v->any_bad || frame > v->last_bad)
		v->last_bad = frame;
	v->any_bad = true;
	pthread_mutex_unlock(&v->lock);
}

/* What the index has of the frames that were listed; only now, as it takes a walk through all runs. */
static void describe_frames(struct verify *v)
{
	for (unsigned i = 0; i < v->damages->n; i++) {
		struct image_damage *d = &v->damages->list[i];
		char what[sizeof(d->what)];

		memcpy(what, d->what, sizeof(what));
		image_damage_of_frame(v->img, d->frame, d);
		memcpy(d->what, what, sizeof(what));
	}
}

/* The next free place, with the index's; NULL: it is only counted. */
static struct image_damage *index_damage(struct verify *v)
{
	struct image_damages *list = v->damages;
	struct image_damage *d = list->n < IMAGE_DAMAGES_MAX ? &list->list[list->n++] : NULL;

	list->total++;
	if (d)
		*d = (struct image_damage){
			.frame = IMAGE_NO_FRAME, .offset = v->img->info.index_offset,
			.length = v->img->info.index_bytes,
		};
	return d;
}

/* ---- frames */

static void fatal(struct verify *v, const struct tp_error *error)
{
	pthread_mutex_lock(&v->lock);
	if (v->error.code == TP_OK)
		v->error = *error;
	pthread_mutex_unlock(&v->lock);
	atomic_store(&v->stop, true);
}

static bool room(uint8_t **buf, size_t *cap, size_t raw, struct tp_error *err)
{
	if (raw <= *cap)
		return true;
	free(*buf);
	*buf = malloc(raw);
	*cap = *buf ? raw : 0;
	return *buf || tp_fail_nomem(err);
}

/* false: err, which is no damage. */
static bool check_frame(struct verify *v, struct image_decoder *d, uint8_t **buf, size_t *cap,
			uint64_t frame, struct tp_error *err)
{
	struct visit visit = { v, frame };
	const char *fault = NULL;
	char what[128];
	uint64_t at;

	if (!room(buf, cap, image_frame_raw(v->img, frame), err))
		return false;
	if (!image_frame_decode(v->img, d, frame, *buf, &v->checksums[frame], &fault, err)) {
		if (!fault)
			return false;
		bad_frame(v, frame, fault);
		return true;
	}
	fault = image_walk_fault(v->img, frame, *buf, see_page, &visit, &at);
	if (fault) {
		snprintf(what, sizeof(what), "%s, at raw offset %llu", fault, (unsigned long long)at);
		bad_frame(v, frame, what);
	}
	return true;
}

static void *verify_main(void *arg)
{
	struct verify *v = arg;
	struct tp_error error = TP_ERROR_INIT;
	struct image_decoder *d = image_decoder_new(&error);
	uint64_t frame;
	uint8_t *buf = NULL;
	size_t cap = 0;

	while (d && !atomic_load(&v->stop) &&
	       (frame = atomic_fetch_add(&v->next, 1)) < v->img->info.frames) {
		if (!check_frame(v, d, &buf, &cap, frame, &error))
			break;
		atomic_fetch_add(&v->done, 1);
	}
	if (error.code != TP_OK)
		fatal(v, &error);
	free(buf);
	image_decoder_free(d);
	pthread_mutex_lock(&v->lock);
	v->running--;
	pthread_cond_signal(&v->ended);
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

/* ---- after all frames */

static const char *const class_names[] = { "not sent", "zero", "data", "in a raw file" };

/* What the frames say of a page; frame counts for IMAGE_DATA only. */
struct finding {
	enum image_class index, found;
	uint32_t index_frame, found_frame;
};

/* Could a record in a bad frame, later than the one that was found, make it good? */
static bool explained(const struct verify *v, const struct finding *f, uint32_t seen)
{
	if (f->index == IMAGE_DATA)
		return v->bad[f->index_frame];
	return f->index == IMAGE_ZERO && v->any_bad && (!seen || v->last_bad >= (seen >> 1) - 1);
}

/* false: index and frames do not agree. */
static bool page_agrees(const struct verify *v, uint64_t page, uint64_t run, struct finding *f)
{
	uint32_t seen = atomic_load_explicit(&v->seen[page], memory_order_relaxed);

	*f = (struct finding){
		.index = image_index_class(&v->img->x, page),
		.found = !seen ? IMAGE_ABSENT : seen & 1 ? IMAGE_DATA : IMAGE_ZERO,
	};
	if (f->index == IMAGE_DATA)
		f->index_frame = v->img->x.run_frame[run];
	if (f->found == IMAGE_DATA)
		f->found_frame = (seen >> 1) - 1;
	return (f->index == f->found && (f->index != IMAGE_DATA || f->index_frame == f->found_frame)) ||
	       explained(v, f, seen);
}

static void describe_finding(const struct finding *f, char *text, size_t size)
{
	if (f->index == IMAGE_DATA && f->found == IMAGE_DATA)
		snprintf(text, size, "it says frame %u, the pages' last records are in frame %u",
			 f->index_frame,
			 f->found_frame);
	else
		snprintf(text, size, "it says %s, by the pages' last records they are %s",
			 class_names[f->index],
			 class_names[f->found]);
}

/* Pages that follow each other and are wrong in the same way are one damage. */
struct findings {
	struct verify *v;
	struct image_damage *d;		/* the last one; NULL: only counted */
	struct finding last;
	uint64_t next;			/* page that would go on with it; 0: none */
	unsigned block;
};

static void add_finding(struct findings *all, uint64_t page, const struct finding *f)
{
	const struct image_index *x = &all->v->img->x;
	unsigned block = all->block;
	bool goes_on;

	while (block + 1 < x->nblocks && x->blocks[block + 1].first_page <= page)
		block++;
	goes_on = all->next && page == all->next && block == all->block && f->index == all->last.index &&
		  f->found == all->last.found && f->index_frame == all->last.index_frame &&
		  f->found_frame == all->last.found_frame;
	if (!goes_on)
		all->d = index_damage(all->v);
	if (!goes_on && all->d) {
		describe_finding(f, all->d->what, sizeof(all->d->what));
		all->d->nranges = 1;
		all->d->ranges[0] = (struct image_pages){ block, page - x->blocks[block].first_page, 0 };
	}
	if (all->d) {
		all->d->ranges[0].pages++;
		all->d->lost += f->index == IMAGE_DATA;
	}
	all->block = block;
	all->last = *f;
	all->next = page + 1;
}

static void check_pages(struct verify *v)
{
	const struct image_index *x = &v->img->x;
	struct findings all = { .v = v };
	struct finding f;
	uint64_t run = 0;

	for (uint64_t page = 0; page < x->pages; page++) {
		while (run + 1 < x->runs && x->run_page[run + 1] <= page)
			run++;
		if (!page_agrees(v, page, run, &f))
			add_finding(&all, page, &f);
	}
}

/* The sum needs the checksum of every frame, which of a bad one is not known. */
static bool check_sums(struct verify *v, struct tp_error *err)
{
	struct frames_sum *sum = v->any_bad ? NULL : frames_sum_new(err);
	struct image_damage *d;

	if (!sum)
		return v->any_bad;
	for (uint64_t i = 0; i < v->img->info.frames; i++)
		frames_sum_add(sum, image_frame_raw(v->img, i), v->checksums[i]);
	if (!frames_sum_check(sum, v->img, NULL)) {
		d = index_damage(v);
		if (d) {
			snprintf(d->what, sizeof(d->what), "%s",
				 "the frames are good, but not those of this image: their sum is not the "
				 "footer's");
			d->offset = v->img->info.file_bytes - IMAGE_FOOTER_SIZE;
			d->length = IMAGE_FOOTER_SIZE;
		}
	}
	frames_sum_free(sum);
	return true;
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
	if (v->error.code != TP_OK) {
		if (err && err->code == TP_OK)
			*err = v->error;
		return false;
	}
	return !cancelled || tp_fail(err, TP_ECANCELLED, "the verification was cancelled");
}

static bool verify_all(struct verify *v, unsigned threads,
		       bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
		       struct tp_error *err)
{
	if (!v->seen || !v->checksums || !v->bad)
		return tp_fail_nomem(err);
	if (!run_threads(v, frame_threads(threads), progress, arg, err))
		return false;
	describe_frames(v);
	check_pages(v);
	return check_sums(v, err) && (!v->damages->total || image_damages_fail(v->img, v->damages, err));
}

bool image_verify(const struct image *img, unsigned threads,
		  bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
		  struct image_damages *damages, struct tp_error *err)
{
	struct image_damages own = { 0 };
	struct verify v = { .img = img, .damages = damages ? damages : &own };
	bool ok;

	v.damages->n = 0;
	v.damages->total = 0;
	v.seen = calloc(img->x.pages + 1, sizeof(*v.seen));
	v.checksums = calloc(img->info.frames, sizeof(*v.checksums));
	v.bad = calloc(img->info.frames, sizeof(*v.bad));
	pthread_mutex_init(&v.lock, NULL);
	pthread_cond_init(&v.ended, NULL);
	ok = verify_all(&v, threads, progress, arg, err);
	pthread_cond_destroy(&v.ended);
	pthread_mutex_destroy(&v.lock);
	free(v.seen);
	free(v.checksums);
	free(v.bad);
	return ok;
}
