/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* latency.h - Percentiles of many durations in constant room, exact to an eighth */
#ifndef LATENCY_H
#define LATENCY_H

#include <stdint.h>

#define LATENCY_CLASSES 240u

/* Zeroed to begin with. */
struct latency {
	uint64_t n, counts[LATENCY_CLASSES];
	uint32_t max;
};

void latency_add(struct latency *l, uint32_t us);
/* At most this much took `part` (0..1) of them; 0 if there are none. */
uint32_t latency_percentile(const struct latency *l, double part);

#endif
