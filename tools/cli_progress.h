/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_progress.h - How far long work is: a bar on a terminal, plain lines otherwise
 *
 * Both go to stderr. The bar is one line that is written over and over.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

enum cli_progress_mode { CLI_P_NONE, CLI_P_BAR, CLI_P_LINES };
#define CLI_P_LINE_INTERVAL 2.0		/* seconds between two plain lines that only tell progress */
#define CLI_P_BAR_INTERVAL 0.5		/* seconds between two redraws when nothing comes */

/* Figures below zero are not known. */
struct cli_figures {
	const char *label, *phase;
	double done, total, percent, rate, eta;
	double elapsed;			/* seconds; shown where nothing else is known */
};

/* Bar where stderr is a terminal, else lines unless without_lines. */
void cli_progress_begin(bool quiet, bool without_lines);
enum cli_progress_mode cli_progress_mode(void);
/* Draws the bar anew, or prints a plain line: at once if `news`, else not too often. */
void cli_progress_show(const struct cli_figures *f, bool news);
/* Takes the bar away, so that something else can be printed; the next show brings it back. */
void cli_progress_hide(void);

/* The line of a bar, at most `width` columns, no newline; buf of `size` bytes. Returns buf. */
const char *cli_progress_bar(const struct cli_figures *f, size_t width, char *buf, size_t size);
const char *cli_progress_line(const struct cli_figures *f, char *buf, size_t size);

#endif
