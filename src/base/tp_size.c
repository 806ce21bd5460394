/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_size.c - Sizes and durations as text; independent of the locale */
#include "tp_size.h"

#include <stdio.h>

/* Some 30 years: longer ones are mistakes, and sums of them stay exact in a double. */
#define DURATION_MAX 1e9
#define SECONDS_PER_DAY 86400

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits at *p; moves *p behind them. False if there are none or too many. */
static bool number_parse(const char **p, uint64_t *value)
{
	uint64_t v = 0;

	if (!is_digit(**p))
		return false;
	for (; is_digit(**p); (*p)++) {
		if (!tp_mul(v, 10, &v) || !tp_add(v, (uint64_t)(**p - '0'), &v))
			return false;
	}
	*value = v;
	return true;
}

/* The exponent of two of a unit letter; 0: it is none. */
static unsigned unit_shift(char c)
{
	static const char units[] = "KMGTkmgt";
	const char *at = c ? strchr(units, c) : NULL;

	return at ? 10 * (unsigned)((at - units) % 4 + 1) : 0;
}

bool tp_size_parse(const char *text, uint64_t *bytes)
{
	const char *p = text;
	unsigned shift;
	uint64_t v;

	if (!p || !number_parse(&p, &v))
		return false;
	shift = unit_shift(*p);
	if (shift) {
		p++;
		if (p[0] == 'i' && p[1] == 'B')
			p++;
	}
	if (*p == 'B')
		p++;
	if (*p || !tp_mul(v, UINT64_C(1) << shift, &v))
		return false;
	*bytes = v;
	return true;
}

/* "12" or "12.5" at *p. */
static bool decimal_parse(const char **p, double *value)
{
	double scale = 0.1, v;
	uint64_t whole;

	if (!number_parse(p, &whole))
		return false;
	v = (double)whole;
	if (**p == '.') {
		(*p)++;
		if (!is_digit(**p))
			return false;
		while (is_digit(**p)) {
			v += (*(*p)++ - '0') * scale;
			scale /= 10;
		}
	}
	*value = v;
	return true;
}

static double unit_seconds(char c)
{
	switch (c) {
	case 's': return 1;
	case 'm': return 60;
	case 'h': return 3600;
	case 'd': return SECONDS_PER_DAY;
	default: return 0;
	}
}

bool tp_duration_parse(const char *text, double *seconds)
{
	/* Units descend, so "1m1m" and "5s1h" are mistakes. */
	double sum = 0, last = SECONDS_PER_DAY + 1, unit, v;
	const char *p = text;
	bool bare = false;

	if (!p || !*p)
		return false;
	while (*p) {
		if (bare || !decimal_parse(&p, &v))
			return false;
		bare = !*p;
		unit = bare ? 1 : unit_seconds(*p++);
		/* "1h30" could be minutes or seconds. */
		if (unit <= 0 || unit >= last || (bare && last <= SECONDS_PER_DAY))
			return false;
		sum += v * unit;
		last = unit;
	}
	if (!(sum <= DURATION_MAX))
		return false;
	*seconds = sum;
	return true;
}

const char *tp_size_format(uint64_t bytes, char *buf)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	uint64_t whole, rest, tenths;
	unsigned u = 0;

	while (u < 6 && bytes >> (10 * (u + 1)))
		u++;
	whole = bytes >> (10 * u);
	rest = bytes - (whole << (10 * u));
	/* rest is below 2^60: ten times as much fits. */
	tenths = u ? (rest * 10 + (UINT64_C(1) << (10 * u - 1))) >> (10 * u) : 0;
	if (whole >= 100) {
		whole += tenths >= 5;
		tenths = 0;
	} else if (tenths == 10) {
		whole++;
		tenths = 0;
	}
	if (whole == 1024 && u < 6) {
		whole = 1;
		u++;
	}
	if (tenths)
		snprintf(buf, TP_SIZE_TEXT, "%u.%u %s", (unsigned)whole, (unsigned)tenths, units[u]);
	else
		snprintf(buf, TP_SIZE_TEXT, "%u %s", (unsigned)whole, units[u]);
	return buf;
}
