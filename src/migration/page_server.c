/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_server.c - Lazy restore: the loop, its states and its connections
 *
 * Theory of operation
 *
 * One thread owns connection, requests and the account of what was sent; the
 * decoders of page_store.c and whoever gives orders wake it by an eventfd.
 *
 *   WAITING (first connection) -> PREPARING -> (PONG) HELD -> (release) LOADING
 *        -> (PONG) SERVING -> (all sent) ENDING -> (SHUT) DONE
 *   LOADING, SERVING, ENDING, RECOVERING -> (connection broken) WAITING
 *   WAITING (any later connection) -> RECOVERING -> (RESUME_ACK) SERVING
 *
 * From LOADING on a broken connection is no failure: the guest's state is then
 * in QEMU and in what was not sent, nowhere else. QEMU waits in
 * postcopy-paused, and so does the server for a new connection; it then asks
 * QEMU what it has, as bytes on the way were lost.
 *
 * What cannot be sent because the image is damaged ends the server: whatever
 * the guest would see in that place is wrong.
 */
#include "page_server.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_time.h"
#include "page_server_priv.h"

#define PUBLISH_SECONDS 0.05
#define POLL_MS_MAX 1000

const char *page_server_state_name(enum page_server_state state)
{
	static const char *const names[] = {
		[PAGES_WAITING] = "waiting", [PAGES_PREPARING] = "preparing", [PAGES_HELD] = "held",
		[PAGES_LOADING] = "loading", [PAGES_RECOVERING] = "recovering",
		[PAGES_SERVING] = "serving", [PAGES_ENDING] = "ending", [PAGES_DONE] = "done",
	};

	return names[state];
}

/* ---------------------------------------------------------------- orders and status */

static void wake(void *arg)
{
	struct page_server *s = arg;
	uint64_t one = 1;
	ssize_t n = write(s->o.wake_fd, &one, sizeof(one));

	(void)n;	/* EAGAIN: it is readable already */
}

void page_server_stream(struct page_server *s, int fd_owned)
{
	pthread_mutex_lock(&s->mutex);
	tp_close(&s->orders.stream);
	s->orders.stream = fd_owned;
	pthread_mutex_unlock(&s->mutex);
	wake(s);
}

void page_server_release(struct page_server *s)
{
	pthread_mutex_lock(&s->mutex);
	s->orders.release = true;
	pthread_mutex_unlock(&s->mutex);
	wake(s);
}

void page_server_running(struct page_server *s)
{
	pthread_mutex_lock(&s->mutex);
	s->orders.running = true;
	pthread_mutex_unlock(&s->mutex);
	wake(s);
}

void page_server_bandwidth(struct page_server *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->mutex);
	s->orders.bandwidth = bytes;
	pthread_mutex_unlock(&s->mutex);
	wake(s);
}

void page_server_stop(struct page_server *s)
{
	pthread_mutex_lock(&s->mutex);
	s->orders.stop = true;
	pthread_mutex_unlock(&s->mutex);
	wake(s);
}

void page_server_status(struct page_server *s, struct page_server_status *status)
{
	pthread_mutex_lock(&s->mutex);
	*status = s->status;
	pthread_mutex_unlock(&s->mutex);
}

static void publish(struct page_server *s)
{
	struct page_server_status status = {
		.state = s->state, .pages = s->track.data, .left = s->track.left,
		.sent = s->track.data - s->track.left, .zeros = s->zeros, .bytes_sent = s->out.sent,
		.preferred = s->track.first_data, .preferred_left = s->track.first_left,
		.requests = s->latency.n, .connections = s->connections,
		.latency_p50 = latency_percentile(&s->latency, 0.5),
		.latency_p99 = latency_percentile(&s->latency, 0.99),
		.latency_max = s->latency.max, .bandwidth = s->bandwidth,
	};

	pthread_mutex_lock(&s->mutex);
	s->status = status;
	pthread_mutex_unlock(&s->mutex);
	s->published_at = tp_now_mono();
	s->published_bytes = s->out.sent;
}

void page_server_enter(struct page_server *s, enum page_server_state state)
{
	s->state = state;
	publish(s);
	if (s->o.changed)
		s->o.changed(s->o.arg, state);
}

/* Who waits for the preferred pages hears of their end at once. */
static void publish_now_and_then(struct page_server *s)
{
	if (!s->preferred_told && s->track.first_data > 0 && s->track.first_left == 0) {
		s->preferred_told = true;
		page_server_enter(s, s->state);
		return;
	}
	if (tp_now_mono() - s->published_at < PUBLISH_SECONDS)
		return;
	publish(s);
	if (s->o.progress)
		s->o.progress(s->o.arg);
}

/* ---------------------------------------------------------------- connections */

/* The connection is broken; was that to be borne? */
static bool lose_connection(struct page_server *s, struct tp_error *err)
{
	if (s->state == PAGES_PREPARING || s->state == PAGES_HELD)
		return tp_fail_class(err, TP_EQMP, "QemuError", "QEMU closed the migration stream before it "
				     "was given the devices");
	tp_close(&s->fd);
	page_server_enter(s, PAGES_WAITING);
	return true;
}

static bool take_connection(struct page_server *s, int fd, struct tp_error *err)
{
	if (s->state == PAGES_PREPARING || s->state == PAGES_HELD || s->state == PAGES_DONE) {
		close(fd);
		return true;
	}
	tp_close(&s->fd);
	s->fd = fd;
	page_out_begin(&s->out);
	s->back = (struct return_path)RETURN_PATH_INIT;
	s->in_n = 0;
	page_serve_reset(s);
	if (s->connections++ == 0 && !s->o.recover)
		return page_setup_begin(s, err);
	return page_setup_recover(s, err);
}

static bool obey(struct page_server *s, struct tp_error *err)
{
	bool stop, release, running;
	int stream;

	pthread_mutex_lock(&s->mutex);
	stop = s->orders.stop;
	release = s->orders.release;
	running = s->orders.running;
	s->bandwidth = s->orders.bandwidth;
	stream = TP_STEAL_FD(s->orders.stream);
	pthread_mutex_unlock(&s->mutex);
	if (stop) {
		tp_close(&stream);
		return tp_fail(err, TP_ECANCELLED, "the page server was stopped");
	}
	if (running && !s->ran) {
		s->ran = true;
		s->first_until = tp_now_mono() + s->o.first_seconds;
	}
	if (stream >= 0 && !take_connection(s, stream, err))
		return false;
	if (s->state == PAGES_HELD && (release || !s->o.hold))
		return page_setup_package(s, err);
	return true;
}

/* ---------------------------------------------------------------- return path */

static bool take_message(struct page_server *s, enum return_kind kind, const struct return_message *m,
			 struct tp_error *err)
{
	if (kind != RETURN_REQ_PAGES)
		return page_setup_message(s, kind, m, err);
	if (s->state == PAGES_PREPARING || s->state == PAGES_HELD)
		return tp_fail_class(err, TP_EPROTO, "QemuError", "QEMU asks for memory that it was not "
				     "promised");
	return page_serve_request(s, m, err);
}

static bool parse_input(struct page_server *s, struct tp_error *err)
{
	size_t at = 0;
	bool good = true;

	/* A full list of requests holds up what comes after them. */
	while (good && s->state != PAGES_DONE && s->nrequests < PAGES_REQUESTS) {
		struct return_message m;
		enum return_kind kind = return_path_next(&s->back, s->in + at, s->in_n - at, &m, err);

		if (kind == RETURN_MORE)
			break;
		good = kind != RETURN_BAD && take_message(s, kind, &m, err);
		at += m.used;
	}
	s->held_up = s->nrequests == PAGES_REQUESTS;
	s->in_n -= at;
	memmove(s->in, s->in + at, s->in_n);
	return good;
}

/* What is there, at most a buffer's fill. *gone: nothing more will come. */
static bool read_input(struct page_server *s, bool *gone, struct tp_error *err)
{
	ssize_t n;

	*gone = false;
	if (s->in_n == sizeof(s->in))
		return parse_input(s, err);
	do
		n = recv(s->fd, s->in + s->in_n, sizeof(s->in) - s->in_n, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	*gone = n == 0 || (n < 0 && errno != EAGAIN);
	s->in_n += n > 0 ? (size_t)n : 0;
	return parse_input(s, err);
}

/* ---------------------------------------------------------------- the loop */

static void sleep_until_news(struct page_server *s)
{
	struct pollfd pfds[2] = {
		{ .fd = s->o.wake_fd, .events = POLLIN },
		{ .fd = s->fd },
	};
	double wait = page_serve_wait(s);
	int ms = POLL_MS_MAX;
	uint64_t count;
	ssize_t n;

	if (wait >= 0 && wait * 1000 < ms)
		ms = (int)(wait * 1000) + 1;
	if (s->in_n < sizeof(s->in))
		pfds[1].events |= POLLIN;
	if (page_out_waiting(&s->out) > 0)
		pfds[1].events |= POLLOUT;
	/* What was sent last is to be seen soon. */
	if (s->out.sent != s->published_bytes && ms > (int)(PUBLISH_SECONDS * 1000))
		ms = (int)(PUBLISH_SECONDS * 1000);
	if (page_out_waiting(&s->out) == 0 &&
	    (!s->idle || (s->held_up && s->nrequests < PAGES_REQUESTS)))
		ms = 0;
	poll(pfds, 2, ms);
	if (!(pfds[0].revents & POLLIN))
		return;
	n = read(s->o.wake_fd, &count, sizeof(count));
	(void)n;	/* EAGAIN: somebody else was faster */
}

static bool step(struct page_server *s, struct tp_error *err)
{
	bool gone = false;

	s->idle = true;
	if (!obey(s, err))
		return false;
	if (s->fd >= 0 && !read_input(s, &gone, err))
		return false;
	if (s->fd >= 0 && !gone && s->state != PAGES_DONE && !page_serve(s, &gone, err))
		return false;
	if (gone && s->state != PAGES_DONE)
		return lose_connection(s, err);
	publish_now_and_then(s);
	return true;
}

static void tell_damage(const struct page_server *s, struct image_damage *damage,
			const struct tp_error *err)
{
	*damage = (struct image_damage){ .frame = IMAGE_NO_FRAME };
	if (s->bad_frame == NO_FRAME)
		return;
	image_damage_of_frame(s->img, s->bad_frame, damage);
	snprintf(damage->what, sizeof(damage->what), "%.*s", (int)sizeof(damage->what) - 1, err->text);
}

bool page_server_run(struct page_server *s, struct image_damage *damage, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;

	while (step(s, &why)) {
		if (s->state == PAGES_DONE)
			return true;
		if (s->state != PAGES_HELD || s->o.hold)
			sleep_until_news(s);
	}
	publish(s);
	if (damage)
		tell_damage(s, damage, &why);
	if (err && err->code == TP_OK)
		*err = why;
	return false;
}

/* ---------------------------------------------------------------- making and ending */

static bool server_open(struct page_server *s, struct tp_error *err)
{
	struct page_store_options store = { .threads = s->o.threads, .changed = wake, .arg = s };

	s->img = image_open(s->o.image_fd, err);
	if (!s->img)
		return false;
	s->info = image_info(s->img);
	store.img = s->img;
	s->store = page_store_new(&store, err);
	return s->store && page_track_init(&s->track, s->img, err) && page_asked_init(&s->asked, s->img, err) &&
	       page_setup_prepare(s, err);
}

struct page_server *page_server_new(const struct page_server_options *o, struct tp_error *err)
{
	struct page_server *s = calloc(1, sizeof(*s));

	if (!s) {
		tp_fail_nomem(err);
		return NULL;
	}
	s->o = *o;
	s->fd = s->orders.stream = -1;
	s->orders.bandwidth = s->bandwidth = o->bandwidth;
	s->bad_frame = NO_FRAME;
	pthread_mutex_init(&s->mutex, NULL);
	if (!server_open(s, err)) {
		page_server_free(s);
		return NULL;
	}
	publish(s);
	return s;
}

void page_server_free(struct page_server *s)
{
	if (!s)
		return;
	page_store_free(s->store);
	page_track_free(&s->track);
	page_asked_free(&s->asked);
	tp_buf_free(&s->out.buf);
	tp_buf_free(&s->prologue);
	tp_buf_free(&s->package);
	tp_close(&s->fd);
	tp_close(&s->orders.stream);
	image_close(s->img);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

const struct image *page_server_image(const struct page_server *s)
{
	return s->img;
}

void page_server_prefer(struct page_server *s, const struct image_pages *ranges, unsigned n)
{
	page_track_prefer(&s->track, ranges, n);
}

unsigned page_server_asked(struct page_server *s, struct image_pages *ranges, unsigned room)
{
	page_asked_add_ranges(&s->asked, s->track.first, s->track.nfirst);
	return page_asked_ranges(&s->asked, ranges, room);
}
