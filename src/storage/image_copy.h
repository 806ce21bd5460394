/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_copy.h - A sealed image's bytes into another file, checked on the way */
#ifndef IMAGE_COPY_H
#define IMAGE_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

struct image_copy_options {
	int source_fd, copy_fd;			/* borrowed; the copy is read too */
	uint64_t footer;			/* checksum of the footer that the source must have */
	void (*progress)(void *arg, uint64_t done, uint64_t total);	/* bytes of the file; may be NULL */
	void *arg;
};

struct image_copy_result {
	uint64_t file_bytes, frames;
	uint64_t kept, copied;	/* bytes of frames that were there already; all bytes that were written */
};

/*
 * Goes on behind the frames that the copy has already: those that are whole by the source's index and
 * by their own checksums. Nothing of the copy is trusted, as an earlier try synced nothing. Each frame
 * is checked as it stands in the copy; the header, which makes the file an image, is written last,
 * after all else is on the platter, and synced. Corrupt names the place in the source.
 */
bool image_copy(const struct image_copy_options *o, struct image_copy_result *r, struct tp_error *err);

#endif
