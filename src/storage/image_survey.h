/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_survey.h - What the pages of an image are, by its index alone */
#ifndef IMAGE_SURVEY_H
#define IMAGE_SURVEY_H

#include <stdint.h>

#include "image_format.h"
#include "image_read.h"

/*
 * Pages first.. of a block that are of one class, and of class IMAGE_DATA also in one frame
 * (otherwise frame says nothing). One after the other, from page 0 to the last; a stretch may be
 * given in several pieces.
 */
typedef void (*image_stretch_fn)(void *arg, uint64_t first, uint64_t pages, enum image_class class_,
				 uint64_t frame);
void image_survey(const struct image *img, unsigned block, image_stretch_fn fn, void *arg);

/* @stored: bytes of the file, the part of each frame that falls on these pages */
struct image_shares {
	uint64_t data, zero, absent;	/* pages */
	double stored;
};

void image_block_shares(const struct image *img, unsigned block, struct image_shares *shares);

#endif
