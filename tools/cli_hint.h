/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_hint.h - What to try instead, in words of the command line */
#ifndef CLI_HINT_H
#define CLI_HINT_H

#include <jansson.h>

#include "base/tp_buf.h"

/* Wire commands that errors name in data.use, and what they are here; ended by a row without use. */
struct cli_hint {
	const char *use, *verb;
	const char *rest;	/* operands after the name, or "" */
};
extern const struct cli_hint cli_hints[];

/*
 * Messages name arguments as the wire has them: give "keep-running": true. Here they are options: give
 * --keep-running. In b, or the text itself.
 */
const char *cli_own_words(const char *text, struct tp_buf *b);

/* "try: torpor start web1" to stderr if the error names a verb to use; subject: the VM if data.vm is not there. */
void cli_note_hint(const char *subject, const json_t *error);

#endif
