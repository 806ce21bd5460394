/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_text.c - Foreign text made fit for JSON, logs and terminals */
#include "tp_text.h"

#include <stdlib.h>
#include <string.h>

/* How many bytes the first one announces; 0: it announces nothing. */
static size_t announced(unsigned char c)
{
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return 2;
	if (c >= 0xe0 && c <= 0xef)
		return 3;
	if (c >= 0xf0 && c <= 0xf4)
		return 4;
	return 0;
}

/* Overlong forms, surrogates and values above U+10FFFF show in the second byte. */
static int second_ok(unsigned char first, unsigned char second)
{
	unsigned char low = 0x80, high = 0xbf;

	if (first == 0xe0)
		low = 0xa0;
	else if (first == 0xf0)
		low = 0x90;
	else if (first == 0xed)
		high = 0x9f;
	else if (first == 0xf4)
		high = 0x8f;
	return second >= low && second <= high;
}

int tp_utf8_len(const unsigned char *p, size_t n)
{
	size_t len, i;

	if (n == 0)
		return 0;
	len = announced(p[0]);
	if (len == 0)
		return -1;
	for (i = 1; i < len && i < n; i++) {
		if (i == 1 ? !second_ok(p[0], p[1]) : (p[i] & 0xc0) != 0x80)
			return -1;
	}
	return i == len ? (int)len : 0;
}

void tp_text_clean(char *text)
{
	unsigned char *p = (unsigned char *)text;
	size_t n = strlen(text), at = 0, end = 0;
	int len;

	while (at < n) {
		len = tp_utf8_len(p + at, n - at);
		if (len == 0)
			break;
		if (len < 0) {
			p[end++] = '?';
			at++;
		} else if (p[at] < 0x20 || p[at] == 0x7f || (p[at] == 0xc2 && p[at + 1] < 0xa0)) {
			p[end++] = ' ';
			at += (size_t)len;
		} else {
			memmove(p + end, p + at, (size_t)len);
			end += (size_t)len;
			at += (size_t)len;
		}
	}
	while (end > 0 && p[end - 1] == ' ')
		end--;
	p[end] = 0;
}

bool tp_take_u32(const char **at, uint32_t *value)
{
	const char *from = *at + strspn(*at, " ");
	unsigned long long n;
	char *end;

	if (*from < '0' || *from > '9')
		return false;
	n = strtoull(from, &end, 10);
	*value = (uint32_t)n;
	*at = end;
	return n <= UINT32_MAX;
}
