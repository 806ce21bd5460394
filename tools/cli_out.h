/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_out.h - What the client prints: JSON, tables, errors; foreign text never reaches a terminal raw */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_buf.h"
#include "base/tp_error.h"
#include "cli_verb.h"

/* Exit status that an error's class (and data) stands for. */
enum cli_status cli_error_status(const json_t *error);
/*
 * "torpor: [subject: ][class: ]desc" to stderr, then what QEMU said and what to try instead, if the error
 * tells; with print, the object to stdout. subject may be NULL. Returns the status.
 */
enum cli_status cli_error(const char *subject, const json_t *error, bool print);
/* A local error, without its class; with --json as such an object on stdout. */
enum cli_status cli_failed(const struct cli *cli, const struct tp_error *err);
/* The status of a refused command: CLI_USAGE where it is about what stood on the command line. */
enum cli_status cli_refusal(const struct cli *cli, const json_t *error, enum cli_status status);
/* Trouble with the connection: CLI_UNREACHABLE. */
enum cli_status cli_unreachable(const struct cli *cli, const struct tp_error *err);
json_t *cli_error_object(const struct tp_error *err);
/* One line "torpor: ..." to stderr, cleaned; over a bar that is shown, too. */
void cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Pretty, one newline at the end; CLI_FAILED if stdout cannot be written. */
enum cli_status cli_print_json(const json_t *value);
/* One line. */
enum cli_status cli_print_json_line(const json_t *value);
/* A line of text to stdout, cleaned. */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Flushes stdout: CLI_DONE, or CLI_FAILED with a line on stderr. */
enum cli_status cli_flush(void);

/* A copy without control characters, the caller frees; text NULL: "-". */
char *cli_clean(const char *text);

/* Rows of cells, printed in columns. */
#define CLI_COLUMNS 12
struct cli_table {
	size_t columns, rows;
	char **cells;
};
void cli_table_init(struct cli_table *t, const char *const heads[], size_t columns);
void cli_table_free(struct cli_table *t);
/* A row of "-", filled by cli_table_set. */
void cli_table_row(struct cli_table *t);
void cli_table_set(struct cli_table *t, size_t column, const char *text);	/* cleaned; NULL, "": "-" */
void cli_table_text(const struct cli_table *t, struct tp_buf *out);
void cli_table_print(const struct cli_table *t);

/* A figure as a number of bytes, whatever came over the wire. */
uint64_t cli_bytes(double figure);
/* "1.4 GiB", or "-" where value is no number. buf[TP_SIZE_TEXT]. */
const char *cli_size(const json_t *value, char *buf);
/* "1.2 s", "3 min 20 s", "2 h 5 min", "4 d 3 h". */
#define CLI_SPAN_TEXT 32
const char *cli_span(double seconds, char *buf);
/* Time since an RFC 3339 text: as cli_span, or "-". */
const char *cli_since(const char *text, char *buf);
/* Columns that text takes on a terminal: its characters. */
size_t cli_width(const char *text);

#endif
