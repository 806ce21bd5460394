/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_load.c - Job load: an image's stream into an incoming QEMU */
#include "mover_jobs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "migration/load_pump.h"
#include "migration/mover_proto.h"
#include "mover_fault.h"

#define ERROR_FIRST_MS 200	/* the engine shall hear of an error from us, not QEMU */

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	control_progress(arg, &(struct mover_progress){ .done = done, .total = total });
	fault_bytes(done);
}

static void on_held(void *arg)
{
	control_post(arg, json_pack("{s:{}}", "held"));
}

static bool on_release(void *arg)
{
	return control_finish(arg, NULL);
}

/* The end of the control connection ends the process; nothing else cancels a load. */
static bool on_cancelled(void *arg)
{
	(void)arg;
	return fault_io_error();
}

static bool read_options(const struct mover_request *r, struct load_pump_options *o,
			 struct tp_error *err)
{
	return mover_request_stream(r, &o->stream_fd, err) &&
	       mover_request_file(r, "image", false, &o->image_fd, err) &&
	       job_threads(r, &o->threads, err) &&
	       mover_request_bool(r, "hold", false, &o->hold, err);
}

/* Which frame a damage is in: its text begins with it (image_frame_read). */
static json_t *error_message(const struct tp_error *err)
{
	json_t *message = mover_proto_error(err);
	size_t digits = strncmp(err->text, "frame ", 6) == 0 ? strspn(err->text + 6, "0123456789") : 0;
	char where[40];

	if (err->code != TP_ECORRUPT || digits == 0 || digits > 20)
		return message;
	snprintf(where, sizeof(where), "%.*s", (int)(6 + digits), err->text);
	tp_json_set_str(json_object_get(message, "error"), "where", where);
	return message;
}

void job_load(const struct mover_request *r, struct control *c)
{
	struct load_pump_options o = {
		.progress = on_progress, .held = on_held, .release = on_release,
		.cancelled = on_cancelled, .arg = c,
	};
	struct load_result result;
	struct tp_error err = TP_ERROR_INIT;

	if (!read_options(r, &o, &err))
		job_fail(c, &err);
	if (!load_pump_run(&o, &result, &err)) {
		if (fault_io_error()) {
			tp_error_clear(&err);
			tp_fail_sys(&err, EIO, "read the image");
		}
		control_post(c, error_message(&err));
		job_settle(c, ERROR_FIRST_MS);
		close(o.stream_fd);
		control_exit(c, MOVER_EXIT_ERROR);
	}
	job_done(c, json_pack("{s:I, s:I}", "raw-bytes", (json_int_t)result.raw_bytes,
			      "bytes", (json_int_t)result.file_bytes));
}
