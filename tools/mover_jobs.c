/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_jobs.c - What the data jobs share: their ends and common options */
#include "mover_jobs.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>

#include "base/tp_time.h"
#include "migration/mover_proto.h"

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
