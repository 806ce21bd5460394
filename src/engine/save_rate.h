/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* save_rate.h - How fast a save is, by its compression level: for estimates and default deadlines only */
#ifndef SAVE_RATE_H
#define SAVE_RATE_H

#include <stdint.h>

double save_rate(int64_t level);	/* bytes of RAM a second, on two cores */

#endif
