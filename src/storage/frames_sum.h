/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * frames_sum.h - The footer's sum over all frames, by a reader that decodes them in order
 *
 * It ties the frames to the footer: each frame's own checksum only proves that
 * it is a good frame, not that it is this image's.
 */
#ifndef FRAMES_SUM_H
#define FRAMES_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

struct image;
struct frames_sum;

struct frames_sum *frames_sum_new(struct tp_error *err);
void frames_sum_free(struct frames_sum *s);
/* One frame, in order: its raw length and zstd's content checksum. */
void frames_sum_add(struct frames_sum *s, uint32_t raw, uint32_t checksum);
/* Compares with the footer of the opened image. TP_ECORRUPT if they differ. */
bool frames_sum_check(const struct frames_sum *s, const struct image *img, struct tp_error *err);

#endif
