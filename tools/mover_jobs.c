/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_jobs.c - What the data jobs share: their ends and common options */
#include "mover_jobs.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_time.h"
#include "migration/mover_proto.h"

#define BLOCKS_BYTES_MAX (MOVER_MESSAGE_MAX / 2)	/* for the list of RAM blocks */
#define BLOCK_JSON_MAX 48		/* of one block, without its id */

void job_settle(struct control *c, int milliseconds)
{
	double until = tp_now_mono() + milliseconds / 1000.0;
	struct pollfd pfd = { .fd = control_note_fd(c), .events = POLLIN };

	while (!control_flushed(c)) {
		double left = until - tp_now_mono();

		if (left <= 0)
			return;
		poll(&pfd, 1, (int)(left * 1000) + 1);
		control_clear_note(c);
	}
}

void job_fail(struct control *c, const struct tp_error *e)
{
	control_post(c, mover_proto_error(e));
	control_exit(c, MOVER_EXIT_ERROR);
}

void job_done(struct control *c, json_t *value_owned)
{
	control_post(c, value_owned ? json_pack("{s:o}", "done", value_owned) : NULL);
	control_exit(c, 0);
}

bool job_threads(const struct mover_request *r, unsigned *threads, struct tp_error *err)
{
	uint64_t n;
	cpu_set_t set;

	if (!mover_request_number(r, "threads", 0, MOVER_THREADS_MAX, &n, err))
		return false;
	if (n == 0 && sched_getaffinity(0, sizeof(set), &set) == 0)
		n = (uint64_t)CPU_COUNT(&set);
	if (n > MOVER_THREADS_MAX)
		n = MOVER_THREADS_MAX;
	*threads = n ? (unsigned)n : 1;
	return true;
}

json_t *job_blocks(const struct image_block *blocks, unsigned n)
{
	json_t *list = json_array();
	size_t bytes = 0;

	for (unsigned i = 0; i < n; i++) {
		/* A character of an id may become "\u00XX". */
		bytes += 6 * strlen(blocks[i].id) + BLOCK_JSON_MAX;
		if (bytes > BLOCKS_BYTES_MAX)
			break;
		json_array_append_new(list, json_pack("{s:s, s:I}", "id", blocks[i].id, "bytes",
						      (json_int_t)blocks[i].used_length));
	}
	return list;
}
