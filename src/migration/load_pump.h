/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* load_pump.h - Eager restore: the image's frames, decoded and verified, into QEMU's incoming stream */
#ifndef LOAD_PUMP_H
#define LOAD_PUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

struct load_pump_options {
	int stream_fd, image_fd;		/* borrowed */
	unsigned threads;			/* decoders; 0: online CPUs */
	bool hold;				/* keep the last bytes back until release() says true */
	void (*progress)(void *arg, uint64_t done_raw, uint64_t total_raw);
	void (*held)(void *arg);
	bool (*release)(void *arg);		/* asked at least every 100 ms while held */
	bool (*cancelled)(void *arg);		/* asked at least every 100 ms */
	void *arg;
};
struct load_result { uint64_t raw_bytes, file_bytes; };

/* Verifies each frame before its bytes leave, and the footer's sum before the last ones. */
bool load_pump_run(const struct load_pump_options *o, struct load_result *r, struct tp_error *err);

#endif
