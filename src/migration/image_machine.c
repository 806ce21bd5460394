/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_machine.c - Which machine an image was saved from */
#include "image_machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "stream_parse.h"

bool image_machine(const struct image *img, char machine[IMAGE_MACHINE_MAX], struct tp_error *err)
{
	struct image_decoder *d = image_decoder_new(err);
	struct stream_parser *p = d ? stream_parser_new(2 * IMAGE_FRAME_MAX, err) : NULL;
	uint8_t *raw = p ? malloc(image_frame_raw(img, 0)) : NULL;
	bool ok = raw && image_frame_read(img, d, 0, raw, NULL, err);

	if (p && !raw)
		tp_fail_nomem(err);
	if (ok) {
		ok = stream_parse(p, raw, image_frame_raw(img, 0), err) != STREAM_FAILED;
		snprintf(machine, IMAGE_MACHINE_MAX, "%s", stream_machine(p));
	}
	free(raw);
	stream_parser_free(p);
	image_decoder_free(d);
	return ok;
}
