/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* frames_sum.c - The footer's sum over all frames, by a reader that decodes them in order */
#include "storage/frames_sum.h"

#include <stdlib.h>

#include <xxhash.h>

#include "base/tp_size.h"
#include "storage/image_priv.h"

struct frames_sum {
	XXH64_state_t *state;
};

struct frames_sum *frames_sum_new(struct tp_error *err)
{
	struct frames_sum *s = calloc(1, sizeof(*s));

	if (s)
		s->state = XXH64_createState();
	if (!s || !s->state) {
		free(s);
		tp_fail_nomem(err);
		return NULL;
	}
	XXH64_reset(s->state, 0);
	return s;
}

void frames_sum_free(struct frames_sum *s)
{
	if (!s)
		return;
	XXH64_freeState(s->state);
	free(s);
}

void frames_sum_add(struct frames_sum *s, uint32_t raw, uint32_t checksum)
{
	uint8_t item[8];

	tp_put_le32(item, raw);
	tp_put_le32(item + 4, checksum);
	XXH64_update(s->state, item, sizeof(item));
}

bool frames_sum_check(const struct frames_sum *s, const struct image *img, struct tp_error *err)
{
	if (img->frames_checksum != XXH64_digest(s->state))
		return tp_fail(err, TP_ECORRUPT, "frames do not match the sum in the footer");
	return true;
}
