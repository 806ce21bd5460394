/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_table.c - Rows of cells, printed in columns */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_out.h"

#define GAP 2		/* blanks between two columns */

static char *copy(const char *text)
{
	return cli_clean(text && *text ? text : "-");
}

void cli_table_init(struct cli_table *t, const char *const heads[], size_t columns)
{
	*t = (struct cli_table){ .columns = columns };
	cli_table_row(t);
	for (size_t i = 0; i < columns; i++)
		cli_table_set(t, i, heads[i]);
}

void cli_table_free(struct cli_table *t)
{
	for (size_t i = 0; i < t->rows * t->columns; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct cli_table){ 0 };
}

void cli_table_row(struct cli_table *t)
{
	size_t n = t->rows * t->columns;
	char **cells = reallocarray(t->cells, n + t->columns, sizeof(*cells));

	if (!cells)
		abort();
	t->cells = cells;
	for (size_t i = 0; i < t->columns; i++)
		cells[n + i] = copy(NULL);
	t->rows++;
}

void cli_table_set(struct cli_table *t, size_t column, const char *text)
{
	char **cell = &t->cells[(t->rows - 1) * t->columns + column];

	free(*cell);
	*cell = copy(text);
}

void cli_table_text(const struct cli_table *t, struct tp_buf *out)
{
	size_t widths[CLI_COLUMNS] = { 0 };

	for (size_t i = 0; i < t->rows * t->columns; i++) {
		size_t width = cli_width(t->cells[i]);

		if (width > widths[i % t->columns])
			widths[i % t->columns] = width;
	}
	for (size_t i = 0; i < t->rows * t->columns; i++) {
		size_t column = i % t->columns, pad = widths[column] + GAP - cli_width(t->cells[i]);
		bool last = column == t->columns - 1;

		tp_buf_adds(out, t->cells[i]);
		tp_buf_printf(out, "%*s", last ? 0 : (int)pad, "");
		if (last)
			tp_buf_adds(out, "\n");
	}
}

void cli_table_print(const struct cli_table *t)
{
	tp_autobuf struct tp_buf text = TP_BUF_INIT(0);

	cli_table_text(t, &text);
	if (text.data)
		fputs(text.data, stdout);
}
