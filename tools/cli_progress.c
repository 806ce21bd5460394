/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_progress.c - How far long work is: a bar on a terminal, plain lines otherwise */
#include "cli_progress.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_size.h"
#include "base/tp_text.h"
#include "base/tp_time.h"
#include "cli_out.h"

#define LINE_SIZE 512
#define WIDTH_DEFAULT 80
#define WIDTH_MAX 400		/* a wider bar tells nothing more */
#define BAR_MIN 10		/* columns between the brackets; with less room there is no bar */
#define BAR_MAX 40

/* The program has one stderr, hence one progress. */
static struct {
	enum cli_progress_mode mode;
	bool shown;
	double last;
} progress;

void cli_progress_begin(bool quiet, bool without_lines)
{
	const char *term = getenv("TERM");
	bool tty = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;

	if (quiet)
		progress.mode = CLI_P_NONE;
	else if (tty)
		progress.mode = CLI_P_BAR;
	else
		progress.mode = without_lines ? CLI_P_NONE : CLI_P_LINES;
}

enum cli_progress_mode cli_progress_mode(void)
{
	return progress.mode;
}

/* --- texts --- */

/* An estimate has no tenths. */
static const char *few_seconds(double seconds, char *buf)
{
	snprintf(buf, CLI_SPAN_TEXT, "%.0f s", seconds);
	return buf;
}

/* How much is told, where there is less and less room. */
enum detail { ALL, NO_SIZES, PERCENT_ONLY, DETAILS };

/* "512 MiB of 2.0 GiB, 430 MiB/s, 3 s left": what is known of it. */
static void add_figures(struct tp_buf *b, const struct cli_figures *f, enum detail detail)
{
	char size[TP_SIZE_TEXT], span[CLI_SPAN_TEXT];

	if (detail < NO_SIZES && f->done >= 0 && f->total > 0) {
		tp_buf_printf(b, " %s", tp_size_format(cli_bytes(f->done), size));
		tp_buf_printf(b, " of %s", tp_size_format(cli_bytes(f->total), size));
	}
	if (detail < PERCENT_ONLY && f->rate >= 1)
		tp_buf_printf(b, ", %s/s", tp_size_format(cli_bytes(f->rate), size));
	if (detail < PERCENT_ONLY && f->eta >= 0 && f->percent < 100)
		tp_buf_printf(b, ", %s left", f->eta < 10 ? few_seconds(f->eta, span) : cli_span(f->eta, span));
}

static void add_bar(struct tp_buf *b, double percent, size_t width)
{
	size_t full = (size_t)(percent / 100 * (double)width);

	tp_buf_adds(b, " [");
	for (size_t i = 0; i < width; i++)
		tp_buf_adds(b, i < full ? "=" : i == full ? ">" : " ");
	tp_buf_adds(b, "]");
}

/* Cuts after `width` characters. */
static void cut(char *text, size_t width)
{
	for (; *text; text++) {
		if (((unsigned char)*text & 0xc0) == 0x80)
			continue;
		if (width-- == 0) {
			*text = 0;
			return;
		}
	}
}

static void finish(struct tp_buf *b, size_t width, char *buf, size_t size)
{
	snprintf(buf, size, "%s", b->data ? b->data : "");
	tp_text_clean(buf);
	cut(buf, width);
}

/* What stands behind the bar; returns its width. */
static size_t make_tail(struct tp_buf *tail, const struct cli_figures *f, enum detail detail)
{
	tail->len = 0;
	tp_buf_printf(tail, " %3.0f %%", f->percent);
	add_figures(tail, f, detail);
	return cli_width(tail->data);
}

/* Rather a bar than all figures, rather few figures than a line that is cut. */
static void add_fitting(struct tp_buf *head, const struct cli_figures *f, size_t width)
{
	tp_autobuf struct tp_buf tail = TP_BUF_INIT(LINE_SIZE);
	size_t head_width = cli_width(head->data), used;
	unsigned detail;

	for (detail = ALL; detail < DETAILS; detail++) {
		used = head_width + make_tail(&tail, f, detail) + strlen(" []");
		if (width < used + BAR_MIN)
			continue;
		add_bar(head, f->percent, width - used < BAR_MAX ? width - used : BAR_MAX);
		tp_buf_adds(head, tail.data);
		return;
	}
	for (detail = ALL; detail < PERCENT_ONLY && head_width + make_tail(&tail, f, detail) > width; detail++)
		;
	make_tail(&tail, f, detail);
	tp_buf_adds(head, tail.data);
}

const char *cli_progress_bar(const struct cli_figures *f, size_t width, char *buf, size_t size)
{
	tp_autobuf struct tp_buf head = TP_BUF_INIT(LINE_SIZE);
	char span[CLI_SPAN_TEXT];

	tp_buf_printf(&head, "%s %s", f->label, f->phase);
	if (head.data && f->percent >= 0 && f->total > 0)
		add_fitting(&head, f, width);
	else if (f->elapsed >= 0)
		tp_buf_printf(&head, " %s", cli_span(f->elapsed, span));
	finish(&head, width, buf, size);
	return buf;
}

const char *cli_progress_line(const struct cli_figures *f, char *buf, size_t size)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(LINE_SIZE);

	tp_buf_printf(&b, "%s: %s", f->label, f->phase);
	if (f->percent >= 0 && f->total > 0) {
		tp_buf_printf(&b, " %.0f %%,", f->percent);
		add_figures(&b, f, ALL);
	}
	finish(&b, WIDTH_MAX, buf, size);
	return buf;
}

/* --- drawing --- */

static size_t terminal_width(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col < 2)
		return WIDTH_DEFAULT - 1;
	return w.ws_col > WIDTH_MAX ? WIDTH_MAX : w.ws_col - 1u;
}

void cli_progress_show(const struct cli_figures *f, bool news)
{
	char line[LINE_SIZE + 1];
	double now = tp_now_mono();

	if (progress.mode == CLI_P_LINES && (news || now - progress.last >= CLI_P_LINE_INTERVAL)) {
		fprintf(stderr, "%s\n", cli_progress_line(f, line, sizeof(line)));
		progress.last = now;
	} else if (progress.mode == CLI_P_BAR) {
		fflush(stdout);
		fprintf(stderr, "\r%s\033[K", cli_progress_bar(f, terminal_width(), line, sizeof(line)));
		progress.shown = true;
	}
}

void cli_progress_hide(void)
{
	if (!progress.shown)
		return;
	fputs("\r\033[K", stderr);
	progress.shown = false;
}
