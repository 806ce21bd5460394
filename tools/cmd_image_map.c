/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image_map.c - torpor image map: where memory is zero, was not sent, or is hard to compress
 *
 * On a terminal with colours a character shows two rows of cells; elsewhere one, by shades or by
 * ASCII letters. The scale is chosen so that any memory fills about a screen.
 */
#include "cmd_image_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_error.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_out.h"
#include "cmd_image.h"
#include "migration/image_machine.h"
#include "storage/image_survey.h"
#include "storage/pool.h"

#define WIDTH_DEFAULT 80
#define LABEL 12		/* columns of addresses */
#define TEXT_ROWS 24
#define ROW_MIN 16		/* cells in a row */
#define ROW_MAX 256

/* Colours grow darker with what is stored; distinct in lightness, so also without colour vision. */
const struct map_class_info map_classes[MAP_CLASSES] = {
	[MAP_ABSENT] = { "not sent", "#ffffff", -1, " ", " " },
	[MAP_ZERO] = { "zero", "#e6edf0", 254, "\u00b7", "." },
	[MAP_WELL] = { "compresses well", "#9bd3c6", 115, "\u2591", "-" },
	[MAP_FAIR] = { "compresses fairly", "#2f9599", 30, "\u2592", "o" },
	[MAP_BADLY] = { "compresses badly", "#1f3f66", 24, "\u2588", "#" },
};

/* ---- the model */

struct filling {
	const struct map *m;
	struct map_block *b;
	uint64_t (*shares)[MAP_CLASSES];	/* pages, by cell */
};

static enum map_class class_of(const struct image *img, enum image_class class_, uint64_t frame)
{
	double ratio;

	if (class_ != IMAGE_DATA)
		return class_ == IMAGE_ZERO ? MAP_ZERO : MAP_ABSENT;
	ratio = (double)image_frame_stored(img, frame) / (double)image_frame_raw(img, frame);
	return ratio <= 1.0 / 3 ? MAP_WELL : ratio <= 2.0 / 3 ? MAP_FAIR : MAP_BADLY;
}

static void fill(void *arg, uint64_t first, uint64_t pages, enum image_class class_, uint64_t frame)
{
	const struct filling *f = arg;
	enum map_class c = class_of(f->m->img, class_, frame);

	f->b->bytes[c] += pages << f->m->page_bits;
	while (pages > 0) {
		uint64_t cell = first / f->m->scale, n = (cell + 1) * f->m->scale - first;

		n = n < pages ? n : pages;
		f->shares[cell][c] += n;
		first += n;
		pages -= n;
	}
}

/*
 * Error diffusion: what a class did not get of a cell that it shares, it is owed in the next one that
 * it is in.
 */
static void choose_cells(struct map_block *b, uint64_t (*shares)[MAP_CLASSES])
{
	double owed[MAP_CLASSES] = { 0 };

	for (size_t i = 0; i < b->ncells; i++) {
		uint64_t sum = 0;
		unsigned best = MAP_CLASSES;

		for (unsigned c = 0; c < MAP_CLASSES; c++)
			sum += shares[i][c];
		for (unsigned c = 0; c < MAP_CLASSES; c++) {
			if (!shares[i][c])
				continue;
			owed[c] += (double)shares[i][c] / (double)sum;
			if (best == MAP_CLASSES || owed[c] > owed[best])
				best = c;
		}
		owed[best] -= 1;
		b->cells[i] = (uint8_t)best;
	}
}

static void add_up(struct map_block *all, const struct map_block *b)
{
	all->size += b->size;
	all->stored += b->stored;
	for (unsigned c = 0; c < MAP_CLASSES; c++)
		all->bytes[c] += b->bytes[c];
}

static void make_block(struct map *m, unsigned n)
{
	const struct image_block *from = image_block(m->img, n);
	struct map_block *b = &m->blocks[n];
	struct filling f = { .m = m, .b = b };
	struct image_shares shares = { 0 };

	b->id = from->id;
	b->size = from->used_length;
	b->ncells = tp_div_up(b->size >> m->page_bits, m->scale);
	b->cells = calloc(b->ncells + 1, 1);
	f.shares = calloc(b->ncells + 1, sizeof(*f.shares));
	if (!b->cells || !f.shares)
		abort();
	image_survey(m->img, n, fill, &f);
	image_block_shares(m->img, n, &shares);
	b->stored = shares.stored;
	choose_cells(b, f.shares);
	free(f.shares);
	add_up(&m->all, b);
}

void map_make(struct map *m, const struct image *img, size_t max_cells)
{
	const struct image_info *i = image_info(img);

	*m = (struct map){ .img = img, .page_bits = i->page_bits, .scale = 1, .nblocks = i->blocks };
	while (i->pages / m->scale > max_cells)
		m->scale *= 2;
	m->blocks = calloc(m->nblocks + 1, sizeof(*m->blocks));
	if (!m->blocks)
		abort();
	for (unsigned n = 0; n < m->nblocks; n++)
		make_block(m, n);
}

void map_free(struct map *m)
{
	for (unsigned n = 0; n < m->nblocks; n++)
		free(m->blocks[n].cells);
	free(m->blocks);
}

/* ---- on a terminal */

static void cell_text(const struct map_terminal *t, unsigned c)
{
	fputs(t->unicode ? map_classes[c].shade : map_classes[c].ascii, stdout);
}

/* Two rows of cells in one of characters: the upper half in front, the lower behind. */
static void set_colours(int front, int back)
{
	if (front < 0 || back < 0)
		fputs("\033[0m", stdout);
	if (front >= 0)
		printf("\033[38;5;%dm", front);
	if (back >= 0)
		printf("\033[48;5;%dm", back);
}

static void row_of_pairs(const struct map_block *b, size_t at, size_t row)
{
	unsigned last = UINT32_MAX;

	for (size_t i = at; i < at + row && i < b->ncells; i++) {
		unsigned upper = b->cells[i], lower = i + row < b->ncells ? b->cells[i + row] : MAP_ABSENT;
		int front = map_classes[upper].terminal, back = map_classes[lower].terminal;
		bool only_lower = front < 0 && back >= 0;

		if (last != upper * MAP_CLASSES + lower)
			set_colours(only_lower ? back : front, only_lower ? -1 : back);
		last = upper * MAP_CLASSES + lower;
		fputs(only_lower ? "\u2584" : front < 0 ? " " : "\u2580", stdout);
	}
	fputs("\033[0m\n", stdout);
}

static void print_block(const struct map *m, const struct map_block *b, const struct map_terminal *t,
			size_t row)
{
	size_t step = t->colour ? 2 * row : row;
	char size[TP_SIZE_TEXT];

	cli_say("%s  %s", b->id, tp_size_format(b->size, size));
	for (size_t at = 0; at < b->ncells; at += step) {
		printf("%*s ", LABEL - 1, at ? tp_size_format((at * m->scale) << m->page_bits, size) : "0");
		if (t->colour) {
			row_of_pairs(b, at, row);
			continue;
		}
		for (size_t i = at; i < at + row && i < b->ncells; i++)
			cell_text(t, b->cells[i]);
		puts("");
	}
}

static void print_legend(const struct map *m, const struct map_terminal *t)
{
	for (unsigned c = 0; c < MAP_CLASSES; c++) {
		char size[TP_SIZE_TEXT];

		if (m->all.bytes[c] == 0)
			continue;
		fputs("  ", stdout);
		if (t->colour) {
			set_colours(-1, map_classes[c].terminal);
			putchar(' ');
		} else {
			cell_text(t, c);
		}
		printf("%s  %-20s %9s %5.1f %%\n", t->colour ? "\033[0m" : "", map_classes[c].word,
		       tp_size_format(m->all.bytes[c], size),
		       100 * (double)m->all.bytes[c] / (double)m->all.size);
	}
}

/* A power of two, so that the addresses of rows are round. */
static size_t row_of(size_t width)
{
	size_t row = ROW_MIN;

	while (row < ROW_MAX && 2 * row + LABEL <= width)
		row *= 2;
	return row;
}

void map_print(const struct map *m, const char *name, const struct map_terminal *t)
{
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT], cell[TP_SIZE_TEXT];

	cli_say("%s: %s of memory, %s stored; one %s is %s", name, tp_size_format(m->all.size, a),
		tp_size_format((uint64_t)m->all.stored, b), t->colour ? "half of a character" : "character",
		tp_size_format(m->scale << m->page_bits, cell));
	puts("");
	for (unsigned n = 0; n < m->nblocks; n++)
		print_block(m, &m->blocks[n], t, row_of(t->width));
	puts("");
	print_legend(m, t);
	puts("  well: to a third of its size or less\n  badly: to more than two thirds");
}

/* ---- all of it */

static bool locale_is_utf8(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

	for (size_t i = 0; i < TP_N(names); i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8");
	}
	return false;
}

static struct map_terminal terminal(void)
{
	struct map_terminal t = { .width = WIDTH_DEFAULT };
	const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
	struct winsize w;

	if (!isatty(STDOUT_FILENO))
		return t;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
		t.width = w.ws_col;
	t.unicode = locale_is_utf8();
	t.colour = t.unicode && term && strcmp(term, "dumb") != 0 && !(plain && *plain);
	return t;
}

static int draw_terminal(const struct image *img, const char *name)
{
	struct map_terminal t = terminal();
	struct map m;

	map_make(&m, img, row_of(t.width) * TEXT_ROWS * (t.colour ? 2 : 1));
	map_print(&m, name, &t);
	map_free(&m);
	return (int)cli_flush();
}

static int draw_svg(const struct cli *cli, const struct image *img, const char *name)
{
	const char *to = cli_text(cli, "svg");
	bool standard = strcmp(to, "-") == 0;
	struct tp_error err = TP_ERROR_INIT;
	FILE *out = standard ? stdout : fopen(to, "we");
	struct map m;

	if (!out) {
		tp_fail_sys(&err, errno, "cannot be written");
		return image_failed(cli, to, &err);
	}
	map_make(&m, img, MAP_SVG_CELLS);
	map_svg(&m, name, out);
	map_free(&m);
	if (standard)
		return (int)cli_flush();
	if (ferror(out) | fclose(out)) {
		tp_fail_sys(&err, errno, "cannot be written");
		return image_failed(cli, to, &err);
	}
	return CLI_DONE;
}

/* The picture is the index's: what it points to may be damaged all the same. */
static bool is_sound(const char *path, const struct image *img)
{
	struct tp_error err = TP_ERROR_INIT, ignored = TP_ERROR_INIT;
	tp_autojson json_t *verification = image_verification(path, img, &ignored);
	char machine[IMAGE_MACHINE_MAX];

	if (image_found_damaged(verification))
		cli_note("%s: Corrupt: its last verification found %lld damaged places", path,
			 (long long)tp_json_int(verification, "damaged", 1));
	else if (!image_machine(img, machine, &err))
		cli_note("%s: %s", path, err.text);
	else
		return true;
	return false;
}

int cmd_image_map(struct cli *cli)
{
	struct tp_error err = TP_ERROR_INIT;
	struct tp_error ignored = TP_ERROR_INIT;
	tp_autofree char *path = NULL;
	tp_autojson json_t *manifest = NULL;
	int status = image_path(cli, cli->operands[0], &path);
	tp_autoclose int fd = -1;
	struct image *img;
	const char *name;

	if (status != CLI_DONE)
		return status;
	fd = image_open_path(path, &err);
	img = fd < 0 ? NULL : image_open(fd, &err);
	manifest = image_beside(path, "manifest.json", MANIFEST_MAX, &ignored);
	name = tp_json_str(manifest, "image") ? tp_json_str(manifest, "image") : cli->operands[0];
	if (!img)
		status = image_failed(cli, path, &err);
	else
		status = cli_text(cli, "svg") ? draw_svg(cli, img, name) : draw_terminal(img, name);
	if (img && status == CLI_DONE && !is_sound(path, img))
		status = CLI_FAILED;
	image_close(img);
	return status;
}
