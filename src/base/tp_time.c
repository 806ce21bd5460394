/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_time.c - Wall and monotonic time, and RFC 3339 UTC text */
#include "tp_time.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define US_PER_S UINT64_C(1000000)
/* The last second of the year 9999, the last that RFC 3339 can write. */
#define LAST_SECOND UINT64_C(253402300799)

double tp_now_mono(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

uint64_t tp_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec < 0 ? 0 : (uint64_t)ts.tv_sec * US_PER_S + (uint64_t)ts.tv_nsec / 1000;
}

static void split(uint64_t us, struct tm *tm)
{
	uint64_t s = us / US_PER_S;
	time_t t = (time_t)(s > LAST_SECOND ? LAST_SECOND : s);

	if (!gmtime_r(&t, tm))
		memset(tm, 0, sizeof(*tm));
}

const char *tp_time_format(uint64_t us, char *buf)
{
	struct tm tm;
	size_t n;

	split(us, &tm);
	n = strftime(buf, TP_TIME_TEXT, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, TP_TIME_TEXT - n, ".%03uZ", (unsigned)(us % US_PER_S / 1000));
	return buf;
}

const char *tp_time_stamp(uint64_t us, char *buf)
{
	struct tm tm;

	split(us, &tm);
	strftime(buf, TP_TIME_TEXT, "%Y%m%dT%H%M%SZ", &tm);
	return buf;
}

/* Reads n digits at text. */
static bool digits(const char *text, unsigned n, int *value)
{
	int v = 0;

	for (; n > 0; n--, text++) {
		if (*text < '0' || *text > '9')
			return false;
		v = v * 10 + (*text - '0');
	}
	*value = v;
	return true;
}

/* ".123" at p, any number of digits of which six count; moves behind it. */
static bool fraction(const char **p, uint64_t *us)
{
	uint64_t unit = US_PER_S / 10;

	*us = 0;
	if (**p != '.')
		return true;
	(*p)++;
	if (**p < '0' || **p > '9')
		return false;
	for (; **p >= '0' && **p <= '9'; (*p)++, unit /= 10)
		*us += (uint64_t)(**p - '0') * unit;
	return true;
}

bool tp_time_parse(const char *text, uint64_t *us)
{
	static const char shape[] = "0000-00-00T00:00:00";
	struct tm tm = { 0 }, back;
	uint64_t part;
	const char *p;
	time_t t;
	size_t i;

	if (!text)
		return false;
	for (i = 0; i < sizeof(shape) - 1; i++) {
		if (shape[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != shape[i])
			return false;
	}
	digits(text, 4, &tm.tm_year);
	digits(text + 5, 2, &tm.tm_mon);
	digits(text + 8, 2, &tm.tm_mday);
	digits(text + 11, 2, &tm.tm_hour);
	digits(text + 14, 2, &tm.tm_min);
	digits(text + 17, 2, &tm.tm_sec);
	p = text + sizeof(shape) - 1;
	if (!fraction(&p, &part) || strcmp(p, "Z") != 0)
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	back = tm;
	t = timegm(&back);
	/* timegm() accepts the 31st of June and gives another day. */
	if (t < 0 || back.tm_mday != tm.tm_mday || back.tm_mon != tm.tm_mon ||
	    back.tm_hour != tm.tm_hour || back.tm_min != tm.tm_min || back.tm_sec != tm.tm_sec)
		return false;
	*us = (uint64_t)t * US_PER_S + part;
	return true;
}
