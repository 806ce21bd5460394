/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_salvage.h - Find the good frames of an image whose index cannot be used */
#ifndef IMAGE_SALVAGE_H
#define IMAGE_SALVAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

/*
 * Writes what each good frame of fd decodes to, in order, to the descriptor out. *good: frames
 * written; *lost: damaged places skipped. false: reading, writing or memory failed.
 */
bool image_salvage(int fd, int out, uint64_t *good, uint64_t *lost, struct tp_error *err);

#endif
