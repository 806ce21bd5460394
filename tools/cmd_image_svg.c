/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image_svg.c - A memory map as a picture
 *
 * The darker a place, the more of the file is spent on it. Colours differ in lightness, what was not
 * sent is hatched, and title and description say the same in words. Cells of one class in a block are
 * one path, so that 64 GiB take no more than some hundred kilobytes.
 */
#include <inttypes.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"
#include "cli_out.h"
#include "cmd_image_map.h"

#define CELL 6			/* pixels */
#define MARGIN 32
#define AXIS 76			/* room for addresses */
#define LEFT (MARGIN + AXIS)
#define GRID (MAP_SVG_COLUMNS * CELL)
#define WIDTH (LEFT + GRID + MARGIN)
#define LEGEND_STEP 20
#define SMALL 16		/* blocks of at most so many cells stand on one line with their name */
#define SMALL_STEP 20
#define TICKS 8			/* addresses at each so many rows */

static void text(FILE *out, const char *s)
{
	tp_autofree char *clean = cli_clean(s);

	for (const char *p = clean; *p; p++) {
		switch (*p) {
		case '&': fputs("&amp;", out); break;
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '"': fputs("&quot;", out); break;
		default: putc(*p, out);
		}
	}
}

static double percent(uint64_t part, uint64_t of)
{
	return of ? 100 * (double)part / (double)of : 0;
}

static bool is_small(const struct map_block *b)
{
	return b->ncells <= SMALL;
}

static size_t rows_of(const struct map_block *b)
{
	return (b->ncells + MAP_SVG_COLUMNS - 1) / MAP_SVG_COLUMNS;
}

/* ---- words */

static void shares_text(const struct map_block *b, FILE *out)
{
	bool first = true;

	for (unsigned c = 0; c < MAP_CLASSES; c++) {
		if (b->bytes[c] == 0)
			continue;
		fprintf(out, "%s%.1f %% %s", first ? "" : "; ", percent(b->bytes[c], b->size),
			map_classes[c].word);
		first = false;
	}
}

static void words(const struct map *m, const char *name, FILE *out)
{
	char size[TP_SIZE_TEXT];

	fputs("<title id=\"title\">Memory map of ", out);
	text(out, name);
	fputs("</title>\n<desc id=\"desc\">", out);
	for (unsigned n = 0; n < m->nblocks; n++) {
		const struct map_block *b = &m->blocks[n];

		text(out, b->id);
		fprintf(out, ", %s: ", tp_size_format(b->size, size));
		shares_text(b, out);
		fputs(".\n", out);
	}
	fputs("</desc>\n", out);
}

/* ---- head */

static int height_of(const struct map *m)
{
	int height = MARGIN + 92 + (MAP_CLASSES + 1) * LEGEND_STEP;

	for (unsigned n = 0; n < m->nblocks; n++)
		height += is_small(&m->blocks[n]) ? SMALL_STEP : 44 + (int)rows_of(&m->blocks[n]) * CELL;
	return height + MARGIN;
}

static void begin(const struct map *m, const char *name, FILE *out)
{
	int height = height_of(m);

	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
		     "height=\"%d\""
		" role=\"img\" aria-labelledby=\"title desc\">\n", WIDTH, height, WIDTH, height);
	words(m, name, out);
	fputs("<style>text{font-family:system-ui,"
	      "\"DejaVu Sans\",Helvetica,sans-serif;font-size:12px;fill:#1b2a33}"
	      ".head{font-size:20px;font-weight:600}.sub{fill:#51626d}.name{font-size:14px;font-weight:600}"
	      ".end{text-anchor:end}.cells{shape-rendering:crispEdges}</style>\n"
	      "<defs><pattern id=\"c0\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
	      "<rect width=\"6\" height=\"6\" fill=\"#ffffff\"/>"
	      "<path d=\"M0 6L6 0\" stroke=\"#b9c4ca\"/></pattern></defs>\n", out);
	fprintf(out, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", WIDTH, height);
}

static void fill_of(unsigned c, FILE *out)
{
	if (c == MAP_ABSENT)
		fputs("fill=\"url(#c0)\"", out);
	else
		fprintf(out, "fill=\"%s\"", map_classes[c].colour);
}

static int head(const struct map *m, const char *name, FILE *out)
{
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT], cell[TP_SIZE_TEXT];
	int y = MARGIN + 18;

	fprintf(out, "<text class=\"head\" x=\"%d\" y=\"%d\">", MARGIN, y);
	text(out, name);
	fprintf(out, "</text>\n<text class=\"sub\" x=\"%d\" y=\"%d\">%s of memory, about %s of it stored "
		     "(%.1f %%). "
		"A square is %s; the darker, the more is stored.</text>\n", MARGIN, y + 22,
		tp_size_format(m->all.size, a), tp_size_format((uint64_t)m->all.stored, b),
		percent((uint64_t)m->all.stored, m->all.size),
		tp_size_format(m->scale << m->page_bits, cell));
	return y + 42;
}

/* A bar of all memory by class; returns the y below it. */
static int share_bar(const struct map_block *b, int y, FILE *out)
{
	double x = MARGIN, width = WIDTH - 2 * MARGIN;

	fputs("<g class=\"cells\">", out);
	for (unsigned c = 0; c < MAP_CLASSES; c++) {
		double w = width * percent(b->bytes[c], b->size) / 100;

		fprintf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"14\" ", x, y, w);
		fill_of(c, out);
		fputs("/>", out);
		x += w;
	}
	fprintf(out, "</g>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"14\" fill=\"none\" "
		     "stroke=\"#8a9aa4\"/>\n",
		MARGIN, y, WIDTH - 2 * MARGIN);
	return y + 34;
}

static int legend(const struct map *m, int y, FILE *out)
{
	char size[TP_SIZE_TEXT];

	for (unsigned c = 0; c < MAP_CLASSES; c++, y += LEGEND_STEP) {
		fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" stroke=\"#8a9aa4\" ", MARGIN,
			y - 10);
		fill_of(c, out);
		fprintf(out, "/><text x=\"%d\" y=\"%d\">%s</text><text class=\"end\" x=\"%d\" "
			     "y=\"%d\">%s</text>"
			"<text class=\"end sub\" x=\"%d\" y=\"%d\">%.1f %%</text>\n", MARGIN + 22, y,
			map_classes[c].word, MARGIN + 260, y, tp_size_format(m->all.bytes[c], size),
			MARGIN + 330, y,
			percent(m->all.bytes[c], m->all.size));
	}
	fprintf(out, "<text class=\"sub\" x=\"%d\" y=\"%d\">Well: stored in a third of its size or less; "
		     "badly: in more "
		"than two thirds.</text>\n", MARGIN, y + 2);
	return y + LEGEND_STEP;
}

/* ---- blocks */

/* All cells of one class, neighbours in a row as one rectangle. */
static void class_path(const struct map_block *b, unsigned c, int y, FILE *out)
{
	bool begun = false;

	for (size_t i = 0; i < b->ncells; ) {
		size_t row = i / MAP_SVG_COLUMNS, end = i + 1;

		while (end < b->ncells && end / MAP_SVG_COLUMNS == row && b->cells[end] == b->cells[i])
			end++;
		if (b->cells[i] == c) {
			fputs(begun ? "" : "<path d=\"", out);
			fprintf(out, "M%zu %zuh%zuv%dH%zuz", LEFT + i % MAP_SVG_COLUMNS * CELL,
				(size_t)y + row * CELL, (end - i) * CELL, CELL, LEFT + i % MAP_SVG_COLUMNS * CELL);
			begun = true;
		}
		i = end;
	}
	if (begun) {
		fputs("\" ", out);
		fill_of(c, out);
		fputs("/>\n", out);
	}
}

static void cells(const struct map_block *b, int y, FILE *out)
{
	fputs("<g class=\"cells\"><title>", out);
	text(out, b->id);
	fputs(": ", out);
	shares_text(b, out);
	fputs("</title>\n", out);
	for (unsigned c = 0; c < MAP_CLASSES; c++)
		class_path(b, c, y, out);
	fputs("</g>\n", out);
}

/* @class_: of the name */
static void block_name(const struct map_block *b, int x, int y, const char *class_, FILE *out)
{
	char size[TP_SIZE_TEXT], stored[TP_SIZE_TEXT];

	fprintf(out, "<text x=\"%d\" y=\"%d\"><tspan class=\"%s\">", x, y, class_);
	text(out, b->id);
	fprintf(out, "</tspan><tspan class=\"sub\" dx=\"10\">%s, about %s stored</tspan></text>\n",
		tp_size_format(b->size, size), tp_size_format((uint64_t)b->stored, stored));
}

static int large_block(const struct map *m, const struct map_block *b, int y, FILE *out)
{
	char size[TP_SIZE_TEXT];

	block_name(b, MARGIN, y + 14, "name", out);
	y += 26;
	for (size_t row = 0; row < rows_of(b); row += TICKS)
		fprintf(out, "<text class=\"sub end\" x=\"%d\" y=\"%zu\">%s</text>\n", LEFT - 8,
			(size_t)y + row * CELL + 9,
			row ? tp_size_format((row * MAP_SVG_COLUMNS * m->scale) << m->page_bits, size) : "0");
	cells(b, y, out);
	return y + (int)rows_of(b) * CELL + 18;
}

/* Where the names of small blocks begin: behind the longest of them. */
static int small_names(const struct map *m)
{
	size_t most = 0;

	for (unsigned n = 0; n < m->nblocks; n++)
		if (is_small(&m->blocks[n]) && m->blocks[n].ncells > most)
			most = m->blocks[n].ncells;
	return LEFT + (int)most * CELL + 12;
}

static int small_block(const struct map *m, const struct map_block *b, int y, FILE *out)
{
	cells(b, y + 4, out);
	block_name(b, small_names(m), y + 11, "", out);
	return y + SMALL_STEP;
}

void map_svg(const struct map *m, const char *name, FILE *out)
{
	int y;

	begin(m, name, out);
	y = head(m, name, out);
	y = share_bar(&m->all, y, out);
	y = legend(m, y, out) + 8;
	for (unsigned n = 0; n < m->nblocks; n++)
		if (!is_small(&m->blocks[n]))
			y = large_block(m, &m->blocks[n], y, out);
	for (unsigned n = 0; n < m->nblocks; n++)
		if (is_small(&m->blocks[n]))
			y = small_block(m, &m->blocks[n], y, out);
	fputs("</svg>\n", out);
}
