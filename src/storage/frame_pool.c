/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * frame_pool.c - Worker threads that compress frames and write them in order
 *
 * Theory of operation. Frames are numbered; frame n uses slot n % size. Three
 * counters cut the numbers into regions:
 *
 *   head <= next <= tail <= head + size
 *   [head, next)  taken by workers: being compressed, done, or being written
 *   [next, tail)  submitted, waiting for a worker
 *   tail          the slot that the producer fills (if it is free)
 *
 * A worker compresses into a scratch buffer of its own and then swaps it with
 * the slot's buffer: the raw bytes become its next scratch, nothing is copied
 * and no second buffer a slot is needed. When the slot at `head` is done, the
 * worker that made it so writes all consecutive done slots with one pwritev
 * while `writing` keeps others away; they go on compressing. The lock is taken
 * a few times a frame (256 KiB), never per page.
 *
 * An image is not read again soon, so it shall not push what is read often out of the page cache: what
 * was written is dropped from it again, DROP_BEHIND bytes later. Nothing waits for that. Pages that are not on
 * the disk by then stay, and go once the image is sealed (image_write.c).
 *
 * After a failure workers drop frames, the producer gets no buffers any more.
 */
#include "frame_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"
#include "image_format.h"
#include "image_read.h"

#define SLOTS_MIN 24u			/* on a busy host a worker may lose its CPU for a while */
#define WRITE_BATCH 32u			/* frames in one pwritev */
#define SYNC_EVERY (8u << 20)		/* bytes after which the kernel is told to start writing */
#define DROP_BEHIND (4 * SYNC_EVERY)	/* by then they should be on the disk */

enum slot_state { SLOT_FREE, SLOT_QUEUED, SLOT_WORKING, SLOT_DONE };

struct slot {
	struct frame_buf buf;
	enum slot_state state;
	uint32_t raw, stored, checksum;
	uint16_t block, flags;
};

struct frame_pool {
	pthread_mutex_t lock;
	pthread_cond_t work;		/* a frame was submitted, or stop */
	pthread_cond_t room;		/* frames were written, or failure */
	bool stop, failed, writing;
	struct tp_error error;
	struct slot *slots;
	unsigned size;
	uint64_t head, next, tail;
	int fd, level;
	uint64_t offset, synced, dropped, limit;
	struct frame_table table;
	XXH64_state_t *sums;
	pthread_t threads[FRAME_THREADS_MAX];
	unsigned nthreads;
};

bool image_write_error(struct tp_error *err, int sys, const char *what, uint64_t offset)
{
	if (sys == ENOSPC || sys == EDQUOT)
		return tp_fail_class(err, TP_ESYS, "InsufficientSpace",
				     "%s at offset %llu: no space left: %s", what,
				     (unsigned long long)offset, strerror(sys));
	return tp_fail_sys(err, sys, "%s at offset %llu", what, (unsigned long long)offset);
}

bool frame_buf_grow(struct frame_buf *b, size_t size, size_t used, struct tp_error *err)
{
	uint8_t *data;

	if (size <= b->cap)
		return true;
	data = malloc(size);
	if (!data) {
		tp_fail_nomem(err);
		return false;
	}
	if (used)
		memcpy(data, b->data, used);
	free(b->data);
	b->data = data;
	b->cap = size;
	return true;
}

/* ---- the table of written frames */

static bool table_grow(struct frame_table *t)
{
	uint64_t cap = t->cap ? t->cap * 2 : 1024;
	void *p;

	if ((p = realloc(t->stored, cap * sizeof(*t->stored))))
		t->stored = p;
	if (p && (p = realloc(t->raw, cap * sizeof(*t->raw))))
		t->raw = p;
	if (p && (p = realloc(t->block, cap * sizeof(*t->block))))
		t->block = p;
	if (p && (p = realloc(t->flags, cap * sizeof(*t->flags))))
		t->flags = p;
	if (!p)
		return false;
	t->cap = cap;
	return true;
}

static bool table_add(struct frame_pool *p, const struct slot *s)
{
	struct frame_table *t = &p->table;
	uint8_t sum[8];

	if (t->n == t->cap && !table_grow(t))
		return false;
	t->stored[t->n] = s->stored;
	t->raw[t->n] = s->raw;
	t->block[t->n] = s->block;
	t->flags[t->n] = s->flags;
	t->n++;
	tp_put_le32(sum, s->raw);
	tp_put_le32(sum + 4, s->checksum);
	XXH64_update(p->sums, sum, sizeof(sum));
	return true;
}

/* ---- writing; all with the lock held but where said */

static void pool_fail(struct frame_pool *p, const struct tp_error *error)
{
	if (!p->failed)
		p->error = *error;
	p->failed = true;
	pthread_cond_broadcast(&p->room);
}

/* Lock not held. */
static bool write_frames(struct frame_pool *p, struct iovec *iov, unsigned n, uint64_t at,
			 struct tp_error *err)
{
	while (n) {
		ssize_t done = pwritev(p->fd, iov, (int)n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return image_write_error(err, done ? errno : ENOSPC, "write of the image", at);
		at += (uint64_t)done;
		for (; n && (size_t)done >= iov->iov_len; iov++, n--)
			done -= (ssize_t)iov->iov_len;
		if (n) {
			iov->iov_base = (uint8_t *)iov->iov_base + done;
			iov->iov_len -= (size_t)done;
		}
	}
	return true;
}

/* Lock not held. Starts the write-back early so that the final fdatasync finds little to do. */
static void start_writeback(struct frame_pool *p, uint64_t end)
{
	if (end - p->synced < SYNC_EVERY)
		return;
	sync_file_range(p->fd, (off_t)p->synced, (off_t)(end - p->synced), SYNC_FILE_RANGE_WRITE);
	p->synced = end;
	if (end - p->dropped < DROP_BEHIND + SYNC_EVERY)
		return;
	posix_fadvise(p->fd, (off_t)p->dropped, (off_t)(end - DROP_BEHIND - p->dropped), POSIX_FADV_DONTNEED);
	/* Once more what was still being written, and the folio that the range ended in. */
	p->dropped = end - DROP_BEHIND - SYNC_EVERY;
}

static unsigned gather(struct frame_pool *p, struct iovec *iov, uint64_t *bytes)
{
	unsigned n = 0;

	*bytes = 0;
	while (n < WRITE_BATCH && n < p->size) {
		struct slot *s = &p->slots[(p->head + n) % p->size];

		if (s->state != SLOT_DONE)
			break;
		iov[n].iov_base = s->buf.data;
		iov[n].iov_len = s->stored;
		*bytes += s->stored;
		n++;
	}
	return n;
}

static void retire(struct frame_pool *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct slot *s = &p->slots[p->head++ % p->size];
		struct tp_error nomem = TP_ERROR_INIT;

		if (!p->failed && !table_add(p, s)) {
			tp_fail_nomem(&nomem);
			pool_fail(p, &nomem);
		}
		s->state = SLOT_FREE;
	}
	pthread_cond_broadcast(&p->room);
}

static void write_ready(struct frame_pool *p)
{
	struct iovec iov[WRITE_BATCH];
	struct tp_error error = TP_ERROR_INIT;
	uint64_t bytes, at;
	unsigned n;
	bool ok;

	if (p->writing)
		return;
	p->writing = true;
	while (!p->failed && (n = gather(p, iov, &bytes))) {
		at = p->offset;
		pthread_mutex_unlock(&p->lock);
		if (p->limit && at + bytes > p->limit)
			ok = image_write_error(&error, ENOSPC, "limit of the image's size", at);
		else
			ok = write_frames(p, iov, n, at, &error);
		if (ok)
			start_writeback(p, at + bytes);
		pthread_mutex_lock(&p->lock);
		if (!ok) {
			pool_fail(p, &error);
			break;
		}
		p->offset = at + bytes;
		retire(p, n);
	}
	p->writing = false;
	pthread_cond_broadcast(&p->room);
}

/* ---- workers */

struct worker {
	struct frame_pool *pool;
	ZSTD_CCtx *ctx;
	struct frame_buf scratch;
};

static bool worker_setup(struct worker *w, struct tp_error *err)
{
	w->ctx = ZSTD_createCCtx();
	if (!w->ctx)
		return tp_fail_nomem(err);
	if (ZSTD_isError(ZSTD_CCtx_setParameter(w->ctx, ZSTD_c_compressionLevel, w->pool->level)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(w->ctx, ZSTD_c_checksumFlag, 1)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(w->ctx, ZSTD_c_contentSizeFlag, 1)))
		return tp_fail(err, TP_EARG, "zstd refuses level %d", w->pool->level);
	return true;
}

/* Lock not held. Compresses and swaps the slot's buffer with the scratch. */
static bool compress_slot(struct worker *w, struct slot *s, struct tp_error *err)
{
	struct frame_buf raw = s->buf;
	size_t n;

	if (!frame_buf_grow(&w->scratch, ZSTD_compressBound(s->raw), 0, err) ||
	    !frame_buf_grow(&w->scratch, raw.cap, 0, err) || !w->scratch.data)
		return false;
	n = ZSTD_compress2(w->ctx, w->scratch.data, w->scratch.cap, raw.data, s->raw);
	if (ZSTD_isError(n))
		return tp_fail(err, TP_ENOMEM, "zstd: %s", ZSTD_getErrorName(n));
	s->stored = (uint32_t)n;
	s->checksum = tp_le32(w->scratch.data + n - 4);
	s->buf = w->scratch;
	w->scratch = raw;
	return true;
}

static void work(struct worker *w)
{
	struct frame_pool *p = w->pool;

	while (!p->stop) {
		struct tp_error error = TP_ERROR_INIT;
		struct slot *s;
		bool ok;

		if (p->next == p->tail || p->failed) {
			pthread_cond_wait(&p->work, &p->lock);
			continue;
		}
		s = &p->slots[p->next++ % p->size];
		s->state = SLOT_WORKING;
		pthread_mutex_unlock(&p->lock);
		ok = compress_slot(w, s, &error);
		pthread_mutex_lock(&p->lock);
		if (!ok) {
			pool_fail(p, &error);
			continue;
		}
		s->state = SLOT_DONE;
		if (s == &p->slots[p->head % p->size])
			write_ready(p);
	}
}

static void *worker_main(void *arg)
{
	struct worker w = { .pool = arg };
	struct tp_error error = TP_ERROR_INIT;
	bool ok = worker_setup(&w, &error);

	pthread_mutex_lock(&w.pool->lock);
	if (ok)
		work(&w);
	else
		pool_fail(w.pool, &error);
	pthread_mutex_unlock(&w.pool->lock);
	ZSTD_freeCCtx(w.ctx);
	free(w.scratch.data);
	return NULL;
}

/* ---- life */

unsigned frame_threads(unsigned asked)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = asked ? asked : cpus > 0 ? (unsigned)cpus : 1;

	return n > FRAME_THREADS_MAX ? FRAME_THREADS_MAX : n;
}

static bool start_threads(struct frame_pool *p, unsigned n, struct tp_error *err)
{
	sigset_t all, before;
	int e = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (p->nthreads < n && !e) {
		e = pthread_create(&p->threads[p->nthreads], NULL, worker_main, p);
		if (!e)
			p->nthreads++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* Fewer threads than asked for do the work too, only slower. */
	return p->nthreads || tp_fail_sys(err, e, "start of compression threads");
}

static bool pool_init(struct frame_pool *p, const struct frame_pool_options *o, unsigned threads,
		      struct tp_error *err)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->work, &attr);
	pthread_cond_init(&p->room, &attr);
	pthread_condattr_destroy(&attr);
	p->fd = o->fd;
	p->offset = p->synced = o->offset;
	p->limit = o->limit;
	p->level = !o->level ? 1 : o->level < FRAME_LEVEL_MIN ? FRAME_LEVEL_MIN :
		   o->level > FRAME_LEVEL_MAX ? FRAME_LEVEL_MAX : o->level;
	p->size = 3 * threads + 2 < SLOTS_MIN ? SLOTS_MIN : 3 * threads + 2;
	p->slots = calloc(p->size, sizeof(*p->slots));
	p->sums = XXH64_createState();
	if (!p->slots || !p->sums)
		return tp_fail_nomem(err);
	XXH64_reset(p->sums, 0);
	for (unsigned i = 0; i < p->size; i++)
		if (!frame_buf_grow(&p->slots[i].buf, o->buffer, 0, err))
			return false;
	return true;
}

struct frame_pool *frame_pool_new(const struct frame_pool_options *o, struct tp_error *err)
{
	struct frame_pool *p = calloc(1, sizeof(*p));
	unsigned threads = frame_threads(o->threads);

	if (!p) {
		tp_fail_nomem(err);
		return NULL;
	}
	if (!pool_init(p, o, threads, err) || !start_threads(p, threads, err)) {
		frame_pool_free(p);
		return NULL;
	}
	return p;
}

void frame_pool_free(struct frame_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->nthreads; i++)
		pthread_join(p->threads[i], NULL);
	for (unsigned i = 0; p->slots && i < p->size; i++)
		free(p->slots[i].buf.data);
	free(p->slots);
	XXH64_freeState(p->sums);
	free(p->table.stored);
	free(p->table.raw);
	free(p->table.block);
	free(p->table.flags);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->room);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* ---- the producer's side */

/* Waits on `room` until the time is over: false. Lock held. */
static bool wait_room(struct frame_pool *p, const struct timespec *until)
{
	return pthread_cond_timedwait(&p->room, &p->lock, until) != ETIMEDOUT;
}

static struct timespec after_ms(int ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000L;
	if (t.tv_nsec >= 1000000000L) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000L;
	}
	return t;
}

struct frame_buf *frame_pool_get(struct frame_pool *p, int timeout_ms, bool *failed)
{
	struct timespec until = after_ms(timeout_ms);
	struct frame_buf *b = NULL;

	pthread_mutex_lock(&p->lock);
	while (!p->failed && p->tail - p->head == p->size && wait_room(p, &until))
		;
	*failed = p->failed;
	if (!p->failed && p->tail - p->head < p->size)
		b = &p->slots[p->tail % p->size].buf;
	pthread_mutex_unlock(&p->lock);
	return b;
}

void frame_pool_submit(struct frame_pool *p, uint32_t raw, uint16_t block, uint16_t flags)
{
	struct slot *s;

	pthread_mutex_lock(&p->lock);
	s = &p->slots[p->tail++ % p->size];
	s->raw = raw;
	s->block = block;
	s->flags = flags;
	s->state = SLOT_QUEUED;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
}

bool frame_pool_failed(struct frame_pool *p, struct tp_error *err)
{
	bool failed;

	pthread_mutex_lock(&p->lock);
	failed = p->failed;
	if (failed && err && err->code == TP_OK)
		*err = p->error;
	pthread_mutex_unlock(&p->lock);
	return failed;
}

uint64_t frame_pool_offset(struct frame_pool *p)
{
	uint64_t offset;

	pthread_mutex_lock(&p->lock);
	offset = p->offset;
	pthread_mutex_unlock(&p->lock);
	return offset;
}

bool frame_pool_finish(struct frame_pool *p, int timeout_ms, bool *done, struct tp_error *err)
{
	struct timespec until = after_ms(timeout_ms);

	pthread_mutex_lock(&p->lock);
	while (!p->failed && (p->head != p->tail || p->writing) && wait_room(p, &until))
		;
	*done = p->head == p->tail && !p->writing;
	pthread_mutex_unlock(&p->lock);
	return !frame_pool_failed(p, err);
}

const struct frame_table *frame_pool_table(const struct frame_pool *p)
{
	return &p->table;
}

uint64_t frame_pool_checksum(const struct frame_pool *p)
{
	return XXH64_digest(p->sums);
}
