/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image_map.h - Guest memory as cells of one size, for pictures
 *
 * A cell stands for `scale` pages (a power of two) and has one class. Where pages of several classes
 * share a cell, the classes of a row of cells are chosen so that areas stay true: what is a third of
 * the memory is a third of the picture.
 */
#ifndef CMD_IMAGE_MAP_H
#define CMD_IMAGE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "storage/image_read.h"

/* In the order of what a page costs in the image. */
enum map_class { MAP_ABSENT, MAP_ZERO, MAP_WELL, MAP_FAIR, MAP_BADLY, MAP_CLASSES };

/* @word: as in "well compressed" */
struct map_class_info {
	const char *word, *colour;
	int terminal;		/* of 256 colours */
	const char *shade, *ascii;
};
extern const struct map_class_info map_classes[MAP_CLASSES];

/* @cells: ncells classes; @bytes: of memory, by class; @stored: about, in the file */
struct map_block {
	const char *id;
	uint8_t *cells;
	size_t ncells;
	uint64_t size, bytes[MAP_CLASSES];
	double stored;
};

struct map {
	const struct image *img;
	unsigned page_bits;
	uint64_t scale;
	struct map_block *blocks;
	unsigned nblocks;
	struct map_block all;	/* sums; without cells */
};

/* At most about max_cells cells, but one for each block. Aborts where there is no memory. */
void map_make(struct map *m, const struct image *img, size_t max_cells);
void map_free(struct map *m);

/* Width in columns; colour, and other characters than ASCII. */
struct map_terminal {
	size_t width;
	bool colour, unicode;
};
void map_print(const struct map *m, const char *name, const struct map_terminal *t);

/* cmd_image_svg.c */
#define MAP_SVG_COLUMNS 128
#define MAP_SVG_CELLS (MAP_SVG_COLUMNS * 112)
void map_svg(const struct map *m, const char *name, FILE *out);

#endif
