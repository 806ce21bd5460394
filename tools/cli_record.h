/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_record.h - What is said of an operation's record once it has ended */
#ifndef CLI_RECORD_H
#define CLI_RECORD_H

#include <jansson.h>

/* Its error with the data that the wire gives it where a command waits; the caller's. */
json_t *cli_record_error(const json_t *record);
/* "web1: warning: ..." to stderr for each; also of a dry run. */
void cli_record_warnings(const char *name, const json_t *record);
/* "web1: hibernated in 1.2 s, 90 MiB of 512 MiB, image web1-...": of one that succeeded. */
void cli_record_say(const char *name, const json_t *record);

#endif
