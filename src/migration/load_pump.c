/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * load_pump.c - Eager restore: the image's frames, decoded and verified, into an incoming QEMU
 *
 * Theory of operation
 *
 * Decoder threads take frames in their order, each into a slot of a ring; the
 * caller's thread sends the slots in the same order. Frame n lives in slot
 * n % slots, so a slot is free again once its frame was sent:
 *
 *      SLOT_FREE -> (decoder) SLOT_BUSY -> SLOT_READY | SLOT_FAILED -> (sender) SLOT_FREE
 *
 * Memory is bounded twice: by the number of slots and by LOAD_BYTES_MAX of raw
 * bytes in flight, as a frame may have up to 16 MiB. A frame that alone is over
 * the limit waits until it is the only one.
 *
 * The tail, from `tail_at` on, is not sent but collected until the last frame
 * was decoded and the footer's sum over all frames is known to be right: a QEMU
 * that has got everything else but the tail cannot have finished the load. With
 * `hold` the tail begins at the last byte of the device area; then it is also
 * kept until release() says so, and what comes after it needs no more reading.
 *
 * The first failure in the order of the frames is the one reported, and no byte
 * of a later frame has left by then.
 */
#include "migration/load_pump.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "storage/frames_sum.h"
#include "storage/image_read.h"

#define LOAD_THREADS_MAX 64
#define LOAD_SLOTS_MAX 64
#define LOAD_BYTES_MAX IMAGE_FRAME_MAX	/* raw bytes in flight */
#define LOAD_SLOT_KEEP (1u << 20)	/* a larger buffer of a slot is freed after use */
#define LOAD_TAIL_MAX IMAGE_FRAME_MAX
#define LOAD_POLL_MS 100		/* between two questions to cancelled() */
#define LOAD_HOLD_MS 5			/* between two questions to release(): this delays the VM */
#define LOAD_FORGET (8u << 20)		/* stored bytes after which what was sent leaves the page cache */
#define RANGE_DEVICE_AREA 4

enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_READY, SLOT_FAILED };

/*
 * @buf, @cap: decoded bytes and room for them
 * @len: raw length of the frame that is in it
 */
struct slot {
	enum slot_state state;
	uint8_t *buf;
	size_t cap, len;
	uint32_t checksum;
	struct tp_error err;
};

/*
 * @next: next frame to be decoded; @in_flight: raw bytes in slots that are not free
 * @stop: decoders end; they set nothing any more
 * @sent: offset in the raw stream up to which bytes have left; sender only
 * @tail, @tail_len: collected bytes from @tail_at on; sender only
 */
struct pump {
	const struct load_pump_options *o;
	struct image *img;
	const struct image_info *info;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct slot slots[LOAD_SLOTS_MAX];
	unsigned nslots;
	uint64_t next, in_flight;
	bool stop;
	pthread_t threads[LOAD_THREADS_MAX];
	unsigned nthreads;
	uint64_t sent, tail_at;
	uint8_t *tail;
	size_t tail_len;
	struct frames_sum *sum;
};

/* ---------------------------------------------------------------- decoders */

/* The slot of the next frame once there is room for it, or NULL to end. Mutex held. */
static struct slot *claim_frame(struct pump *p, uint64_t *frame)
{
	while (!p->stop && p->next < p->info->frames) {
		struct slot *s = &p->slots[p->next % p->nslots];
		uint32_t raw = image_frame_raw(p->img, p->next);

		if (s->state == SLOT_FREE &&
		    (p->in_flight == 0 || p->in_flight + raw <= LOAD_BYTES_MAX)) {
			s->state = SLOT_BUSY;
			s->len = raw;
			p->in_flight += raw;
			*frame = p->next++;
			return s;
		}
		pthread_cond_wait(&p->changed, &p->mutex);
	}
	return NULL;
}

static bool slot_room(struct slot *s, struct tp_error *err)
{
	if (s->cap >= s->len)
		return true;
	free(s->buf);
	s->buf = malloc(s->len);
	s->cap = s->buf ? s->len : 0;
	return s->buf ? true : tp_fail_nomem(err);
}

static void *decoder_main(void *arg)
{
	struct pump *p = arg;
	struct tp_error err = TP_ERROR_INIT;
	struct image_decoder *d = image_decoder_new(&err);
	struct slot *s;
	uint64_t frame;

	pthread_mutex_lock(&p->mutex);
	while ((s = claim_frame(p, &frame)) != NULL) {
		bool good;

		pthread_mutex_unlock(&p->mutex);
		s->err = err;
		good = d && slot_room(s, &s->err) &&
		       image_frame_read(p->img, d, frame, s->buf, &s->checksum, &s->err);
		pthread_mutex_lock(&p->mutex);
		s->state = good ? SLOT_READY : SLOT_FAILED;
		pthread_cond_broadcast(&p->changed);
		/* Nothing after a bad frame will be sent. */
		if (!good)
			p->next = p->info->frames;
	}
	pthread_mutex_unlock(&p->mutex);
	image_decoder_free(d);
	return NULL;
}

/* By affinity: sysconf() would open files, which the mover's sandbox forbids. */
static unsigned usable_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : (unsigned)CPU_COUNT(&set);
}

static bool start_decoders(struct pump *p, struct tp_error *err)
{
	unsigned want = p->o->threads ? p->o->threads : usable_cpus();
	sigset_t all, before;
	int e = 0;

	if (want > LOAD_THREADS_MAX)
		want = LOAD_THREADS_MAX;
	if (want > p->info->frames)
		want = (unsigned)p->info->frames;
	p->nslots = want * 3 + 2 > LOAD_SLOTS_MAX ? LOAD_SLOTS_MAX : want * 3 + 2;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (p->nthreads < want) {
		e = pthread_create(&p->threads[p->nthreads], NULL, decoder_main, p);
		if (e)
			break;
		p->nthreads++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* Fewer do as well. */
	return p->nthreads > 0 ? true : tp_fail_sys(err, e, "start a decoder thread");
}

static void stop_decoders(struct pump *p)
{
	pthread_mutex_lock(&p->mutex);
	p->stop = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->mutex);
	while (p->nthreads > 0)
		pthread_join(p->threads[--p->nthreads], NULL);
}

/* ---------------------------------------------------------------- sender */

static bool not_cancelled(struct pump *p, struct tp_error *err)
{
	if (p->o->cancelled && p->o->cancelled(p->o->arg))
		return tp_fail(err, TP_ECANCELLED, "load was cancelled");
	return true;
}

static bool peer_gone(struct pump *p, struct tp_error *err)
{
	return tp_fail_class(err, TP_EQMP, "QemuError",
			     "QEMU closed the migration stream at byte %llu of %llu",
			     (unsigned long long)p->sent, (unsigned long long)p->info->raw_bytes);
}

static bool send_bytes(struct pump *p, const uint8_t *data, size_t n, struct tp_error *err)
{
	while (n > 0) {
		struct pollfd pfd = { .fd = p->o->stream_fd, .events = POLLOUT };
		ssize_t sent = send(p->o->stream_fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent >= 0) {
			p->sent += (size_t)sent;
			data += sent;
			n -= (size_t)sent;
		} else if (errno == EPIPE || errno == ECONNRESET) {
			return peer_gone(p, err);
		} else if (errno != EAGAIN && errno != EINTR) {
			return tp_fail_sys(err, errno, "send to QEMU's migration stream");
		} else {
			poll(&pfd, 1, LOAD_POLL_MS);
		}
		if (!not_cancelled(p, err))
			return false;
	}
	return true;
}

/* Waits for the decoder of a frame. */
static bool await_frame(struct pump *p, struct slot *s, struct tp_error *err)
{
	bool failed;

	pthread_mutex_lock(&p->mutex);
	while (s->state != SLOT_READY && s->state != SLOT_FAILED) {
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += LOAD_POLL_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		pthread_cond_clockwait(&p->changed, &p->mutex, CLOCK_MONOTONIC, &until);
		pthread_mutex_unlock(&p->mutex);
		if (!not_cancelled(p, err))
			return false;
		pthread_mutex_lock(&p->mutex);
	}
	failed = s->state == SLOT_FAILED;
	pthread_mutex_unlock(&p->mutex);
	if (failed && err && err->code == TP_OK)
		*err = s->err;
	return !failed;
}

static void release_slot(struct pump *p, struct slot *s)
{
	if (s->cap > LOAD_SLOT_KEEP) {
		free(s->buf);
		s->buf = NULL;
		s->cap = 0;
	}
	pthread_mutex_lock(&p->mutex);
	p->in_flight -= s->len;
	s->state = SLOT_FREE;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->mutex);
}

/* Sends what lies before the tail, keeps the rest of the frame that begins at raw offset `at`. */
static bool pass_on(struct pump *p, const struct slot *s, uint64_t at, struct tp_error *err)
{
	uint64_t before = p->tail_at > at ? p->tail_at - at : 0;
	size_t now = before < s->len ? (size_t)before : s->len;

	if (!send_bytes(p, s->buf, now, err))
		return false;
	if (s->len - now > p->info->raw_bytes - p->tail_at - p->tail_len)
		return tp_fail(err, TP_ECORRUPT, "frames are longer than the image says");
	memcpy(p->tail + p->tail_len, s->buf + now, s->len - now);
	p->tail_len += s->len - now;
	if (p->o->progress)
		p->o->progress(p->o->arg, p->sent, p->info->raw_bytes);
	return true;
}

/*
 * An image is read once: it shall not push what is read often out of the page cache. From the range before
 * on, as the folio that it ended in stayed.
 */
static void forget(struct pump *p, uint64_t frame, uint64_t from[2])
{
	image_frames_forget(p->img, from[0], frame);
	from[0] = from[1];
	from[1] = frame;
}

static bool send_frames(struct pump *p, struct tp_error *err)
{
	uint64_t at = 0, from[2] = { 0 }, stored = 0;

	for (uint64_t frame = 0; frame < p->info->frames; frame++) {
		struct slot *s = &p->slots[frame % p->nslots];

		if (!await_frame(p, s, err))
			return false;
		frames_sum_add(p->sum, (uint32_t)s->len, s->checksum);
		if (!pass_on(p, s, at, err))
			return false;
		at += s->len;
		release_slot(p, s);
		stored += image_frame_stored(p->img, frame);
		if (stored < LOAD_FORGET && frame + 1 < p->info->frames)
			continue;
		forget(p, frame + 1, from);
		stored = 0;
	}
	return frames_sum_check(p->sum, p->img, err);
}

static bool await_release(struct pump *p, struct tp_error *err)
{
	if (p->o->held)
		p->o->held(p->o->arg);
	while (!p->o->release(p->o->arg)) {
		struct pollfd pfd = { .fd = p->o->stream_fd };

		if (poll(&pfd, 1, LOAD_HOLD_MS) > 0 && pfd.revents & (POLLHUP | POLLERR))
			return peer_gone(p, err);
		if (!not_cancelled(p, err))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------- the whole */

/* Where the bytes begin that are kept until all frames were verified. */
static bool place_tail(struct pump *p, struct tp_error *err)
{
	uint64_t raw = p->info->raw_bytes, at, length;

	if (p->info->frames == 0 || raw == 0)
		return tp_fail(err, TP_ECORRUPT, "image holds no frames");
	if (!p->o->hold) {
		p->tail_at = raw - image_frame_raw(p->img, p->info->frames - 1);
	} else {
		if (!image_range(p->img, RANGE_DEVICE_AREA, 0, &at, &length) || length == 0 ||
		    at >= raw || length > raw - at)
			return tp_fail(err, TP_ECORRUPT, "image has no device area");
		p->tail_at = at + length - 1;
	}
	if (raw - p->tail_at > LOAD_TAIL_MAX)
		return tp_fail(err, TP_ECORRUPT, "%llu bytes follow the image's device area",
			       (unsigned long long)(raw - p->tail_at));
	p->tail = malloc((size_t)(raw - p->tail_at));
	return p->tail ? true : tp_fail_nomem(err);
}

static bool run(struct pump *p, struct tp_error *err)
{
	if (!place_tail(p, err) || !start_decoders(p, err) || !send_frames(p, err))
		return false;
	if (p->o->hold && !await_release(p, err))
		return false;
	if (!send_bytes(p, p->tail, p->tail_len, err))
		return false;
	if (p->o->progress)
		p->o->progress(p->o->arg, p->sent, p->info->raw_bytes);
	return true;
}

static void pump_free(struct pump *p)
{
	stop_decoders(p);
	for (unsigned i = 0; i < LOAD_SLOTS_MAX; i++)
		free(p->slots[i].buf);
	free(p->tail);
	frames_sum_free(p->sum);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->mutex);
	image_close(p->img);
	free(p);
}

bool load_pump_run(const struct load_pump_options *o, struct load_result *r, struct tp_error *err)
{
	struct pump *p = calloc(1, sizeof(*p));
	bool good;

	if (!p)
		return tp_fail_nomem(err);
	p->o = o;
	pthread_mutex_init(&p->mutex, NULL);
	pthread_cond_init(&p->changed, NULL);
	p->img = image_open(o->image_fd, err);
	p->info = p->img ? image_info(p->img) : NULL;
	p->sum = p->img ? frames_sum_new(err) : NULL;
	good = p->sum && run(p, err);
	if (good && r)
		*r = (struct load_result){ p->sent, p->info->file_bytes };
	pump_free(p);
	return good;
}
