/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_buf.c - A growable byte buffer with a hard limit */
#include "tp_buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* First allocation; then by doubling. */
#define FIRST_CAP 64

void tp_buf_free(struct tp_buf *b)
{
	free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
}

bool tp_buf_reserve(struct tp_buf *b, size_t more)
{
	size_t need, cap;
	char *data;

	if (__builtin_add_overflow(b->len, more, &need) || (b->limit && need > b->limit))
		return false;
	if (__builtin_add_overflow(need, (size_t)1, &need) || need > PTRDIFF_MAX)
		return false;
	if (need <= b->cap)
		return true;
	cap = b->cap > PTRDIFF_MAX / 2 ? PTRDIFF_MAX : b->cap * 2;
	if (cap < FIRST_CAP)
		cap = FIRST_CAP;
	/* Near the limit no more than it: a buffer of 64 MiB must not take 128. */
	if (b->limit && cap > b->limit && b->limit < PTRDIFF_MAX)
		cap = b->limit + 1;
	if (cap < need)
		cap = need;
	data = realloc(b->data, cap);
	if (!data)
		return false;
	data[b->len] = 0;
	b->data = data;
	b->cap = cap;
	return true;
}

bool tp_buf_add(struct tp_buf *b, const void *data, size_t n)
{
	if (!tp_buf_reserve(b, n))
		return false;
	if (n > 0)
		memcpy(b->data + b->len, data, n);
	b->len += n;
	b->data[b->len] = 0;
	return true;
}

bool tp_buf_adds(struct tp_buf *b, const char *text)
{
	return tp_buf_add(b, text, strlen(text));
}

bool tp_buf_printf(struct tp_buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !tp_buf_reserve(b, (size_t)n))
		return false;
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return true;
}

void tp_buf_drop(struct tp_buf *b, size_t n)
{
	if (!b->data)
		return;
	if (n > b->len)
		n = b->len;
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
	b->data[b->len] = 0;
}

char *tp_buf_steal(struct tp_buf *b)
{
	char *data = b->data ? b->data : calloc(1, 1);

	b->data = NULL;
	b->len = b->cap = 0;
	return data;
}
