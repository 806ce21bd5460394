/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_raw.c - Read a range of an image's raw stream, as index ranges name it */
#include "image_raw.h"

#include <stdlib.h>

#include "base/tp_cleanup.h"
#include "image_priv.h"

/* The frame that holds this raw offset, which is inside the stream. */
static uint64_t frame_at(const struct image_index *x, uint64_t offset)
{
	uint64_t low = 0, high = x->frames;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (x->raw_at[middle] <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static bool add_frames(const struct image *img, struct image_decoder *d, uint64_t offset,
		       uint64_t end, struct tp_buf *out, struct tp_error *err)
{
	for (uint64_t frame = frame_at(&img->x, offset); offset < end; frame++) {
		uint64_t at = img->x.raw_at[frame], next = img->x.raw_at[frame + 1];
		uint64_t stop = next < end ? next : end;
		tp_autofree uint8_t *raw = malloc((size_t)(next - at));

		if (!raw)
			return tp_fail_nomem(err);
		if (!image_frame_read(img, d, frame, raw, NULL, err))
			return false;
		if (!tp_buf_add(out, raw + (offset - at), (size_t)(stop - offset)))
			return tp_fail_nomem(err);
		offset = stop;
	}
	return true;
}

bool image_raw_read(const struct image *img, uint64_t offset, uint64_t length, struct tp_buf *out,
		    struct tp_error *err)
{
	struct image_decoder *d;
	bool good;

	if (offset > img->info.raw_bytes || length > img->info.raw_bytes - offset)
		return tp_fail(err, TP_ECORRUPT, "a range of the image lies beyond the end of its stream");
	if (out->limit && length > out->limit - out->len)
		return tp_fail(err, TP_ELIMIT, "a range of the image has %llu bytes, more than is allowed",
			       (unsigned long long)length);
	if (!length)
		return true;
	d = image_decoder_new(err);
	good = d && tp_buf_reserve(out, (size_t)length) &&
	       add_frames(img, d, offset, offset + length, out, err);
	if (d && !good)
		tp_fail_nomem(err);
	image_decoder_free(d);
	return good;
}
