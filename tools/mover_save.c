/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_save.c - Job save: QEMU's migration stream into an image, then the commit's second phase
 *
 * Theory of operation
 *
 *   pumping   bytes go from the stream into the image. Trouble is reported at
 *             once, then the pump reads into nothing: QEMU must not hang on a
 *             reader. The end of the control connection ends the process, so
 *             QEMU sees EPIPE and gives its VM back.
 *   sealed    the image is durable. From here on the process outlives the
 *             engine: closing the stream would make QEMU take its disks back
 *             under an image that may be committed. It holds the stream until
 *             {"finish"}, or, with the engine gone, until QEMU closes it.
 *   answered  SHUT was sent; QEMU completes and closes. Then "done".
 *
 * Bytes that come after the seal are read away, only to see the end behind
 * them: there are none in a stream that was understood.
 */
#include "mover_jobs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "migration/mover_proto.h"
#include "migration/save_pump.h"
#include "mover_fault.h"

#define CLOSE_WAIT 60.0			/* seconds between SHUT and QEMU's closing */
#define LEVEL_MIN (-7)
#define LEVEL_MAX 19

/* @total: expected bytes of guest memory, 0: unknown; @closed: QEMU has closed the stream */
struct save {
	struct control *control;
	struct save_pump_options o;
	uint64_t total;
	bool closed;
};

/* ---------------------------------------------------------------- pumping */

static void on_progress(void *arg, const struct save_progress *p)
{
	struct save *s = arg;
	uint64_t total = p->pages_total ? p->pages_total * p->page_size : s->total;
	uint64_t done = p->records * p->page_size;

	/* Guest memory gone through: a zero page counts as much as another, though it is a few bytes. */
	control_progress(s->control, &(struct mover_progress){
		.done = total && done > total ? total : done, .total = total,
		.stored = p->file_bytes, .sealing = p->sealing,
	});
}

static void on_received(void *arg, uint64_t raw_bytes)
{
	(void)arg;
	fault_bytes(raw_bytes);
}

static void on_failed(void *arg, const struct tp_error *err)
{
	struct save *s = arg;

	control_post(s->control, mover_proto_error(err));
}

static bool read_uuid(const struct mover_request *r, uint8_t uuid[16], struct tp_error *err)
{
	static const char digits[] = "0123456789abcdef";
	const char *text = tp_json_str(r->root, "uuid");

	if (!text || strlen(text) != 32 || strspn(text, digits) != 32)
		return tp_fail(err, TP_EARG, "mover request: \"uuid\" is not 32 digits of hex");
	for (size_t i = 0; i < 16; i++)
		uuid[i] = (uint8_t)((strchr(digits, text[2 * i]) - digits) << 4 |
				    (strchr(digits, text[2 * i + 1]) - digits));
	return true;
}

static bool read_level(const struct mover_request *r, int *level, struct tp_error *err)
{
	const json_t *v = json_object_get(r->root, "level");

	if (v && (!json_is_integer(v) || json_integer_value(v) < LEVEL_MIN ||
		  json_integer_value(v) > LEVEL_MAX))
		return tp_fail(err, TP_EARG, "mover request: \"level\" is no number from %d to %d",
			       LEVEL_MIN, LEVEL_MAX);
	*level = v ? (int)json_integer_value(v) : 1;
	return true;
}

static bool read_options(const struct mover_request *r, struct save *s, struct tp_error *err)
{
	return mover_request_stream(r, &s->o.stream_fd, err) &&
	       mover_request_file(r, "image", true, &s->o.image_fd, err) &&
	       read_uuid(r, s->o.uuid, err) && read_level(r, &s->o.level, err) &&
	       job_threads(r, &s->o.threads, err) &&
	       mover_request_bool(r, "return-path", true, &s->o.return_path, err) &&
	       mover_request_number(r, "limit", 0, INT64_MAX, &s->o.limit_bytes, err) &&
	       mover_request_number(r, "total", 0, INT64_MAX, &s->total, err);
}

/* ---------------------------------------------------------------- sealed */

static json_t *sealed_json(const struct save *s, const struct save_result *r)
{
	static const char *const kinds[] = { "stopped", "live", "background-snapshot" };
	const struct image_sealed *i = &r->image;
	char uuid[33], footer[17];
	json_t *value;

	for (size_t k = 0; k < sizeof(s->o.uuid); k++)
		snprintf(uuid + 2 * k, 3, "%02x", s->o.uuid[k]);
	snprintf(footer, sizeof(footer), "%016llx", (unsigned long long)i->footer_checksum);
	value = json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:I, s:i, s:f}",
			  "bytes", (json_int_t)i->file_bytes, "raw-bytes", (json_int_t)i->raw_bytes,
			  "footer", footer, "uuid", uuid, "pages", (json_int_t)i->pages,
			  "pages-data", (json_int_t)i->pages_data,
			  "pages-zero", (json_int_t)i->pages_zero, "frames", (json_int_t)i->frames,
			  "stream-kind", kinds[r->kind],
			  "device-bytes", (json_int_t)r->device_bytes, "page-size", (int)r->page_size, "seal-seconds", r->seal_seconds);
	/* A name that is no UTF-8 is none. */
	if (!tp_json_set_str(value, "machine", r->machine))
		tp_json_set_str(value, "machine", "");
	tp_json_set(value, "blocks", job_blocks(r->blocks, r->nblocks));
	return value ? json_pack("{s:o}", "sealed", value) : NULL;
}

/* Waits for news of QEMU or the engine, at most so long; -1: until there are some. */
static void wait_for_news(struct save *s, int milliseconds)
{
	struct pollfd pfds[2] = {
		{ .fd = control_note_fd(s->control), .events = POLLIN },
		{ .fd = s->closed ? -1 : s->o.stream_fd, .events = POLLIN },
	};
	char nothing[4096];
	ssize_t n;

	if (poll(pfds, 2, milliseconds) <= 0)
		return;
	control_clear_note(s->control);
	if (!pfds[1].revents)
		return;
	n = read(s->o.stream_fd, nothing, sizeof(nothing));
	s->closed = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

/* Returns the status to answer with; does not return when nobody is left. */
static uint32_t hold(struct save *s)
{
	int64_t status;

	while (!control_finish(s->control, &status)) {
		if (control_ended(s->control) && s->closed)
			_exit(MOVER_EXIT_ORPHAN);
		wait_for_news(s, -1);
	}
	return status >= 0 && status <= UINT32_MAX ? (uint32_t)status : 1;
}

static bool finish(struct save *s, uint32_t status, struct tp_error *err)
{
	double until = tp_now_mono() + CLOSE_WAIT, left;

	if (!s->o.return_path)
		return true;
	if (s->closed || !save_pump_finish(s->o.stream_fd, status, NULL))
		return tp_fail_class(err, TP_EQMP, "QemuError",
				     "QEMU closed the stream before it was told to finish");
	while (!s->closed && (left = until - tp_now_mono()) > 0)
		wait_for_news(s, (int)(left * 1000) + 1);
	/* Nobody is there to decide what to do with a QEMU that is slow. */
	while (!s->closed && control_ended(s->control))
		wait_for_news(s, -1);
	return true;
}

void job_save(const struct mover_request *r, struct control *c)
{
	struct save s = { .control = c };
	struct save_result result;
	struct tp_error err = TP_ERROR_INIT;
	uint32_t status;

	s.o.progress = on_progress;
	s.o.received = on_received;
	s.o.failed = on_failed;
	s.o.arg = &s;
	if (!read_options(r, &s, &err))
		job_fail(c, &err);
	/* The error was told by on_failed(). */
	if (!save_pump_run(&s.o, &result, &err))
		control_exit(c, MOVER_EXIT_ERROR);
	control_outlive(c);
	control_post(c, sealed_json(&s, &result));
	save_result_free(&result);
	fault_sealed(c);
	status = hold(&s);
	if (!finish(&s, status, &err))
		job_fail(c, &err);
	job_done(c, json_object());
}
