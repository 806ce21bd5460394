/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_value.h - JSON that has no words of its own, for people: in lines under a label, or in one line
 *
 * What a member's name says of its value (bytes, seconds, a rate) decides how it is written.
 */
#ifndef CLI_VALUE_H
#define CLI_VALUE_H

#include <jansson.h>

#define CLI_LABEL_WIDTH 14

/* "label         text"; nothing if there is no text. */
void cli_say_line(const char *label, const char *text);
/*
 * A line for each value in it, by its path: "last exit     code: 0". A text of several lines keeps them.
 * null, and what is empty, prints nothing.
 */
void cli_say_value(const char *label, const json_t *value);
/* The conditions of a VM, one a line. */
void cli_say_conditions(const json_t *vm);
/* "state=running reason=user": the caller frees. */
char *cli_value_line(const json_t *value);

#endif
