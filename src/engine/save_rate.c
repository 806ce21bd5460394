/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* save_rate.c - How fast a save is, by its compression level */
#include "engine/save_rate.h"

#include <stddef.h>

#include "base/tp_cleanup.h"

double save_rate(int64_t level)
{
	static const struct { int64_t level; double rate; } rates[] = {
		{ 1, 400e6 }, { 3, 250e6 }, { 6, 90e6 }, { 9, 50e6 }, { 12, 20e6 }, { 15, 10e6 },
	};

	for (size_t i = 0; i < TP_N(rates); i++)
		if (level <= rates[i].level)
			return rates[i].rate;
	return 4e6;
}
