/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_time.h - Wall and monotonic time, and RFC 3339 UTC text */
#ifndef TP_TIME_H
#define TP_TIME_H

#include <stdbool.h>
#include <stdint.h>

double tp_now_mono(void);		/* CLOCK_MONOTONIC, seconds */
uint64_t tp_now_us(void);		/* CLOCK_REALTIME, microseconds since the epoch */
#define TP_TIME_TEXT 32
/* "2026-11-30T17:05:37.123Z" into buf[TP_TIME_TEXT]; returns buf. */
const char *tp_time_format(uint64_t us, char *buf);
bool tp_time_parse(const char *text, uint64_t *us);
/* "20261130T170537Z" into buf[TP_TIME_TEXT]; returns buf. */
const char *tp_time_stamp(uint64_t us, char *buf);

#endif
