/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * latency.c - Percentiles of many durations in constant room, exact to an eighth
 *
 * Classes: one for each value below 8, then eight for each power of two.
 */
#include "latency.h"

static unsigned class_of(uint32_t us)
{
	unsigned octave;

	if (us < 8)
		return us;
	octave = 31u - (unsigned)__builtin_clz(us) - 3;
	return 8 * octave + 8 + (us >> octave & 7);
}

/* The largest value of a class. */
static uint32_t class_end(unsigned class_)
{
	unsigned octave;

	if (class_ < 8)
		return class_;
	octave = class_ / 8 - 1;
	return (uint32_t)((((uint64_t)8 + class_ % 8 + 1) << octave) - 1);
}

void latency_add(struct latency *l, uint32_t us)
{
	l->n++;
	l->counts[class_of(us)]++;
	if (us > l->max)
		l->max = us;
}

uint32_t latency_percentile(const struct latency *l, double part)
{
	uint64_t want = (uint64_t)((double)l->n * part), seen = 0;

	for (unsigned i = 0; i < LATENCY_CLASSES && l->n > 0; i++) {
		seen += l->counts[i];
		if (seen > want || seen == l->n)
			return class_end(i) < l->max ? class_end(i) : l->max;
	}
	return 0;
}
