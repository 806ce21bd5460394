/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_buf.h - A growable byte buffer with a hard limit; text is kept NUL-terminated */
#ifndef TP_BUF_H
#define TP_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "tp_cleanup.h"

struct tp_buf {
	char *data;		/* NULL or NUL-terminated at len */
	size_t len, cap;
	size_t limit;		/* 0: none; beyond it appends fail and the buffer stays as it is */
};

#define TP_BUF_INIT(max) { .limit = (max) }

void tp_buf_free(struct tp_buf *b);	/* also resets it for use again */
/* All return false when over the limit or out of memory, changing nothing. */
bool tp_buf_reserve(struct tp_buf *b, size_t more);
bool tp_buf_add(struct tp_buf *b, const void *data, size_t n);
bool tp_buf_adds(struct tp_buf *b, const char *text);
bool tp_buf_printf(struct tp_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tp_buf_drop(struct tp_buf *b, size_t n);	/* removes n bytes at the front */
char *tp_buf_steal(struct tp_buf *b);		/* the caller frees; never NULL unless out of memory */

#define tp_autobuf TP_CLEANUP(tp_buf_free)

#endif
