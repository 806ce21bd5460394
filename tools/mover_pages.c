/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_pages.c - Job page-server: an image's pages to a guest that runs already
 *
 * Theory of operation
 *
 * The server outlives its engines: whoever connects at the listening socket is
 * told how far it is and may give orders. The control's thread only leaves
 * these with the server, the main thread runs it. The process ends when QEMU
 * has everything, when it was told to stop, or by what page_server_run() calls
 * the end; the reason is told before QEMU sees the connection close.
 */
#include "mover_jobs.h"

#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "migration/mover_proto.h"
#include "migration/page_server.h"
#include "mover_fault.h"
#include "storage/page_set.h"

#define ERROR_FIRST_MS 200	/* the engine shall hear of an error from us, not QEMU */
#define FIRST_SECONDS_MAX 3600u
#define DAMAGE_TEXT_MAX (MOVER_MESSAGE_MAX / 2)

struct pages {
	struct control *control;
	struct page_server *server;
};

/* ---------------------------------------------------------------- what is told */

static json_t *status_json(struct page_server *server)
{
	struct page_server_status s;

	page_server_status(server, &s);
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "state", page_server_state_name(s.state), "page-size",
			 (json_int_t)1 << image_info(page_server_image(server))->page_bits,
			 "working-set-pages", (json_int_t)s.preferred,
			 "working-set-left", (json_int_t)s.preferred_left, "pages", (json_int_t)s.pages,
			 "pages-sent", (json_int_t)s.sent, "pages-left", (json_int_t)s.left,
			 "zero-pages", (json_int_t)s.zeros, "sent-bytes", (json_int_t)s.bytes_sent,
			 "requests", (json_int_t)s.requests, "connections", (json_int_t)s.connections,
			 "latency-p50-us", (json_int_t)s.latency_p50,
			 "latency-p99-us", (json_int_t)s.latency_p99,
			 "latency-max-us", (json_int_t)s.latency_max,
			 "bandwidth", (json_int_t)s.bandwidth);
}

static json_t *wrapped(const char *name, json_t *value_owned)
{
	return value_owned ? json_pack("{s:o}", name, value_owned) : NULL;
}

static void on_changed(void *arg, enum page_server_state state)
{
	struct pages *p = arg;

	if (state != PAGES_DONE)
		control_post(p->control, wrapped("state", status_json(p->server)));
}

static void on_progress(void *arg)
{
	struct pages *p = arg;
	struct page_server_status s;

	control_report(p->control, status_json(p->server));
	page_server_status(p->server, &s);
	fault_bytes(s.bytes_sent);
}

/* ---------------------------------------------------------------- what is heard */

static json_t *on_hello(void *arg)
{
	struct pages *p = arg;
	json_t *status = status_json(p->server);

	return json_pack("{s:{s:i, s:s, s:i, s:o}}", "hello", "protocol", MOVER_PROTOCOL, "version",
			 TP_VERSION, "pid", (int)getpid(), "pages", status);
}

static json_t *refuse(const char *what)
{
	return json_pack("{s:{s:s}}", "refused", "desc", what);
}

static json_t *take_stream(struct pages *p, int *fds, size_t nfds)
{
	if (nfds != 1 || !mover_is_stream(fds[0]))
		return refuse("\"stream\" comes with one descriptor, a stream socket");
	page_server_stream(p->server, TP_STEAL_FD(fds[0]));
	return NULL;
}

static json_t *on_message(void *arg, const json_t *message, int *fds, size_t nfds)
{
	struct pages *p = arg;
	const json_t *bandwidth = json_object_get(message, "bandwidth");

	/* The first three are understood by every version of this job. */
	if (json_object_get(message, "progress"))
		return wrapped("progress", status_json(p->server));
	if (json_object_get(message, "stream"))
		return take_stream(p, fds, nfds);
	if (json_object_get(message, "stop"))
		page_server_stop(p->server);
	if (bandwidth && (!json_is_integer(bandwidth) || json_integer_value(bandwidth) < 0))
		return refuse("\"bandwidth\" is no number of bytes a second");
	if (bandwidth)
		page_server_bandwidth(p->server, (uint64_t)json_integer_value(bandwidth));
	if (json_object_get(message, "finish"))
		page_server_release(p->server);
	if (json_object_get(message, "running"))
		page_server_running(p->server);
	return NULL;
}

/* ---------------------------------------------------------------- working set */

/* It is advice: what it names need not be there. */
static void read_working_set(struct page_server *server, const json_t *value)
{
	static struct image_pages ranges[PAGE_SET_RANGES_MAX];

	page_server_prefer(server, ranges,
			   page_set_read(page_server_image(server), value, ranges, PAGE_SET_RANGES_MAX));
}

static json_t *working_set(struct page_server *server)
{
	static struct image_pages ranges[PAGE_SET_RANGES_MAX];
	unsigned n = page_server_asked(server, ranges, PAGE_SET_RANGES_MAX);

	return wrapped("working-set", page_set_json(page_server_image(server), ranges, n));
}

/* ---------------------------------------------------------------- the job */

static bool read_options(const struct mover_request *r, struct page_server_options *o,
			 struct tp_error *err)
{
	uint64_t first;

	if (!mover_request_number(r, "first-seconds", PAGE_SERVER_FIRST_SECONDS, FIRST_SECONDS_MAX, &first, err))
		return false;
	o->first_seconds = (double)first;
	return mover_request_file(r, "image", false, &o->image_fd, err) && job_threads(r, &o->threads, err) &&
	       mover_request_bool(r, "hold", false, &o->hold, err) &&
	       mover_request_bool(r, "recover", false, &o->recover, err) &&
	       mover_request_number(r, "bandwidth", 0, INT64_MAX, &o->bandwidth, err);
}

/*
 * QEMU takes a host page only whole: with huge pages a request would bring megabytes. The image does
 * not know what the new QEMU has, so the engine says it.
 */
static bool check_page_sizes(const struct image *img, const json_t *sizes, struct tp_error *err)
{
	json_int_t ours = (json_int_t)1 << image_info(img)->page_bits;

	for (unsigned i = 0; i < image_info(img)->blocks; i++) {
		const char *id = image_block(img, i)->id;
		json_int_t theirs = tp_json_int(sizes, id, ours);

		if (theirs != ours)
			return tp_fail(err, TP_EUNSUPPORTED, "RAM block %s has host pages of %lld bytes, which cannot "
				       "be served singly", id, (long long)theirs);
	}
	return true;
}

static bool prepare(const struct mover_request *r, struct pages *p, struct tp_error *err)
{
	struct page_server_options o = { .changed = on_changed, .progress = on_progress, .arg = p };
	struct control_service service = { .hello = on_hello, .message = on_message, .arg = p,
					   .listener = mover_request_fd(r, "listener") };
	int stream = mover_request_fd(r, "stream");

	o.wake_fd = control_note_fd(p->control);
	if (!read_options(r, &o, err) || (stream >= 0 && !mover_request_stream(r, &stream, err)))
		return false;
	p->server = page_server_new(&o, err);
	if (!p->server || !check_page_sizes(page_server_image(p->server),
					    json_object_get(r->root, "page-sizes"), err) ||
	    !control_serve(p->control, &service, err))
		return false;
	read_working_set(p->server, json_object_get(r->root, "working-set"));
	/* From here on nothing that QEMU will need is missing. */
	control_post(p->control, wrapped("state", status_json(p->server)));
	if (stream >= 0)
		page_server_stream(p->server, stream);
	return true;
}

static void fail(struct pages *p, struct image_damage *damage, const struct tp_error *err)
	__attribute__((noreturn));

static void fail(struct pages *p, struct image_damage *damage, const struct tp_error *err)
{
	json_t *message = mover_proto_error(err), *value = json_object_get(message, "error");
	static struct image_damages damages;

	if (damage->frame != IMAGE_NO_FRAME) {
		damages = (struct image_damages){ .n = 1, .total = 1 };
		damages.list[0] = *damage;
		tp_json_set(value, "damage", image_damages_json(page_server_image(p->server), &damages,
								DAMAGE_TEXT_MAX));
	}
	tp_json_set(value, "pages", status_json(p->server));
	control_post(p->control, message);
	job_settle(p->control, ERROR_FIRST_MS);
	control_exit(p->control, MOVER_EXIT_ERROR);
}

void job_page_server(const struct mover_request *r, struct control *c)
{
	struct pages p = { .control = c };
	struct tp_error err = TP_ERROR_INIT;
	struct image_damage damage;
	bool stopped;

	if (!prepare(r, &p, &err))
		job_fail(c, &err);
	stopped = !page_server_run(p.server, &damage, &err);
	if (stopped && err.code != TP_ECANCELLED)
		fail(&p, &damage, &err);
	control_post(c, working_set(p.server));
	job_done(c, status_json(p.server));
}
