/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_copy.c - Job copy: a sealed image into a file of another pool */
#include "mover_jobs.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "mover_fault.h"
#include "storage/image_copy.h"

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	control_progress(arg, &(struct mover_progress){ .done = done, .total = total });
	fault_bytes(done);
}

static bool read_footer(const struct mover_request *r, uint64_t *footer, struct tp_error *err)
{
	const char *text = tp_json_str(r->root, "footer");

	if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return tp_fail(err, TP_EARG, "mover request: \"footer\" is not 16 hexadecimal digits");
	*footer = strtoull(text, NULL, 16);
	return true;
}

void job_copy(const struct mover_request *r, struct control *c)
{
	struct image_copy_options o = { .progress = on_progress, .arg = c };
	struct image_copy_result result;
	struct tp_error err = TP_ERROR_INIT;

	if (!mover_request_file(r, "source", false, &o.source_fd, &err) ||
	    !mover_request_file(r, "image", true, &o.copy_fd, &err) || !read_footer(r, &o.footer, &err) ||
	    !image_copy(&o, &result, &err))
		job_fail(c, &err);
	job_done(c, json_pack("{s:I, s:I, s:I, s:I}", "bytes", (json_int_t)result.file_bytes,
			      "copied-bytes", (json_int_t)result.copied, "kept-bytes", (json_int_t)result.kept,
			      "frames", (json_int_t)result.frames));
}
