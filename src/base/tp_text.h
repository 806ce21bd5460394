/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_text.h - Foreign text made fit for JSON, logs and terminals */
#ifndef TP_TEXT_H
#define TP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Makes text one line of valid UTF-8 in place, never longer than before: control characters
 * (C0, DEL, C1) become blanks, bytes that are no UTF-8 become '?', a sequence cut off at the end
 * and trailing blanks are removed.
 */
void tp_text_clean(char *text);

/* Length of the UTF-8 sequence at p, of which n bytes are there: 1..4; 0: cut off; -1: invalid. */
int tp_utf8_len(const unsigned char *p, size_t n);

/* A decimal number at *at, behind blanks; *at is then behind it. False: none, or too large. */
bool tp_take_u32(const char **at, uint32_t *value);

#endif
