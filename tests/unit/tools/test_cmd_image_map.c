/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_cmd_image_map.c - Pictures of memory: cells, scales, SVG; for 512 MiB and for 64 GiB
 *
 * The images have an index and a hole where the frames would be: a map does not look there.
 * `test_cmd_image_map FILE GIB` writes one, to look at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"
#include "cmd_image_map.h"
#include "storage/image_format.h"
#include "storage/image_index.h"

#define PAGE 4096u
#define IN_FRAME 64u		/* pages */

struct sparse {
	int fd;
	struct image_map map;
	struct frame_table frames;
	struct image *img;
};

/* What a guest might look like: kernel and caches, a free tail, and something of all along the way. */
static enum image_class page_class(uint64_t page, uint64_t pages)
{
	uint64_t zone = page * 64 / pages, mix = page * 2654435761u >> 7 & 15;

	if (zone < 3 || (zone >= 12 && zone < 30))
		return IMAGE_DATA;
	if (zone >= 40 && zone < 44)
		return IMAGE_ABSENT;
	if (zone >= 30 && zone < 40)
		return mix < 5 ? IMAGE_DATA : IMAGE_ZERO;
	return mix == 0 && page / 4096 % 3 == 0 ? IMAGE_DATA : IMAGE_ZERO;
}

static uint32_t stored_of(uint64_t page, uint64_t pages)
{
	uint64_t zone = page * 64 / pages;
	uint32_t raw = IN_FRAME * (PAGE + 8);

	if (zone < 3)
		return raw / 2;
	if (zone >= 20 && zone < 26)
		return raw - 100;
	return zone >= 12 && page / 3000 % 4 == 0 ? raw / 2 : raw / 5;
}

static void add_frame(struct sparse *s, uint32_t raw, uint32_t stored, uint16_t block)
{
	struct frame_table *t = &s->frames;

	t->raw[t->n] = raw;
	t->stored[t->n] = stored;
	t->block[t->n] = block;
	t->flags[t->n++] = IMAGE_FRAME_DATA | IMAGE_FRAME_IN_RAM;
}

static void add_block(struct sparse *s, unsigned n)
{
	const struct image_block *b = &s->map.blocks[n];
	uint64_t pages = b->used_length / PAGE;
	unsigned in_frame = 0;

	for (uint64_t page = 0; page < pages; page++) {
		enum image_class class_ = page_class(page, pages);

		image_map_set(&s->map, b->first_page + page, class_, (uint32_t)s->frames.n);
		if (class_ == IMAGE_DATA && ++in_frame == IN_FRAME) {
			add_frame(s, IN_FRAME * (PAGE + 8), stored_of(page, pages), (uint16_t)n);
			in_frame = 0;
		}
	}
	if (in_frame)
		add_frame(s, in_frame * (PAGE + 8), in_frame * PAGE / 5, (uint16_t)n);
}

static void write_ends(const struct sparse *s, uint64_t index_at, uint64_t index_length, uint64_t checksum,
		       uint64_t raw)
{
	struct image_header h = {
		.skip_magic = htole32(IMAGE_SKIPPABLE), .skip_length = htole32(IMAGE_HEADER_SIZE - 8),
		.major = htole16(IMAGE_MAJOR), .header_size = htole32(IMAGE_HEADER_SIZE),
		.codec = htole32(IMAGE_CODEC_ZSTD), .frame_target = htole32(262144),
		.sealed_size = htole64(index_at + index_length + IMAGE_FOOTER_SIZE),
	};
	struct image_footer f = {
		.skip_magic = htole32(IMAGE_SKIPPABLE), .skip_length = htole32(IMAGE_FOOTER_SIZE - 8),
		.index_offset = htole64(index_at), .index_length = htole64(index_length),
		.frames = htole64(s->frames.n), .raw_bytes = htole64(raw), .pages = htole64(s->map.pages),
		.page_bits = 12, .blocks = htole16((uint16_t)s->map.nblocks), .index_checksum = htole64(checksum),
	};
	uint64_t count[4];

	image_map_count(&s->map, count);
	f.pages_data = htole64(count[IMAGE_DATA]);
	f.pages_zero = htole64(count[IMAGE_ZERO]);
	memcpy(h.magic, IMAGE_HEADER_MAGIC, IMAGE_MAGIC_SIZE);
	memcpy(f.magic, IMAGE_FOOTER_MAGIC, IMAGE_MAGIC_SIZE);
	h.checksum = htole64(XXH64(&h, offsetof(struct image_header, checksum), 0));
	f.checksum = htole64(XXH64(&f, offsetof(struct image_footer, checksum), 0));
	assert_int_equal(pwrite(s->fd, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(pwrite(s->fd, &f, sizeof(f), (off_t)(index_at + index_length)), sizeof(f));
}

static void sparse_write(struct sparse *s)
{
	uint64_t at = IMAGE_HEADER_SIZE, raw = 0, length, checksum;
	struct image_span span = { IMAGE_RANGE_PROLOGUE, 0, 8 };
	struct image_index_source source = { &s->map, &s->frames, &span, 1 };
	struct tp_error err = TP_ERROR_INIT;

	for (uint64_t i = 0; i < s->frames.n; i++) {
		at += s->frames.stored[i];
		raw += s->frames.raw[i];
	}
	if (!image_index_write(&source, s->fd, at, 0, &length, &checksum, &err))
		fail_msg("%s", err.text);
	write_ends(s, at, length, checksum, raw);
}

/* A RAM of so many bytes, and what else a PC has. */
static void sparse_make(struct sparse *s, int fd, uint64_t ram)
{
	static const struct { const char *id; uint64_t bytes; } more[] = {
		{ "vga.vram", 16 << 20 }, { "/rom@etc/acpi/tables", 128 << 10 }, { "pc.bios", 256 << 10 },
		{ "0000:00:02.0/<virtio>.rom", 256 << 10 }, { "/rom@etc/table-loader", 4 << 10 },
	};
	struct tp_error err = TP_ERROR_INIT;
	uint64_t cap;

	*s = (struct sparse){ .fd = fd };
	s->map.page_bits = 12;
	assert_true(image_map_add(&s->map, "pc.ram", 6, ram, NULL));
	for (size_t i = 0; i < TP_N(more); i++)
		assert_true(image_map_add(&s->map, more[i].id, strlen(more[i].id), more[i].bytes, NULL));
	assert_true(image_map_alloc(&s->map, NULL));
	cap = s->map.pages / IN_FRAME + 16;
	s->frames.stored = calloc(cap, 4);
	s->frames.raw = calloc(cap, 4);
	s->frames.block = calloc(cap, 2);
	s->frames.flags = calloc(cap, 2);
	for (unsigned n = 0; n < s->map.nblocks; n++)
		add_block(s, n);
	sparse_write(s);
	s->img = image_open(fd, &err);
	if (!s->img)
		fail_msg("%s", err.text);
}

static void sparse_free(struct sparse *s)
{
	image_close(s->img);
	image_map_free(&s->map);
	free(s->frames.stored);
	free(s->frames.raw);
	free(s->frames.block);
	free(s->frames.flags);
	close(s->fd);
}

/* ---- cells */

/* As many cells of a class as there is memory of it, but for one. */
static void areas_are_true(const struct map *m)
{
	for (unsigned n = 0; n < m->nblocks; n++) {
		const struct map_block *b = &m->blocks[n];
		double cells[MAP_CLASSES] = { 0 }, bytes = (double)(m->scale << m->page_bits);
		uint64_t sum = 0;

		for (size_t i = 0; i < b->ncells; i++)
			cells[b->cells[i]]++;
		for (unsigned c = 0; c < MAP_CLASSES; c++) {
			double wanted = (double)b->bytes[c] / bytes, wrong = cells[c] - wanted;

			sum += b->bytes[c];
			if (wrong > 4 + wanted / 50 || -wrong > 4 + wanted / 50)
				fail_msg("%s: class %u has %.0f cells, not %.1f", b->id, c, cells[c], wanted);
		}
		assert_int_equal(sum, b->size);
	}
}

static char *svg_of(const struct map *m, size_t *n)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, n);

	assert_non_null(out);
	map_svg(m, "web1 <of> \"x\" & more", out);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void any_size_fills_the_picture(void **state)
{
	static const uint64_t sizes[] = { 512ull << 20, 64ull << 30 };

	(void)state;
	for (size_t i = 0; i < TP_N(sizes); i++) {
		struct sparse s;
		struct map m;
		char *svg;
		size_t n;

		sparse_make(&s, memfd_create("image", MFD_CLOEXEC), sizes[i]);
		map_make(&m, s.img, MAP_SVG_CELLS);
		assert_true(m.blocks[0].ncells > MAP_SVG_CELLS / 2 - 64);
		assert_true(m.blocks[0].ncells <= MAP_SVG_CELLS);
		for (unsigned k = 0; k < m.nblocks; k++)
			assert_true(m.blocks[k].ncells >= 1);
		areas_are_true(&m);
		svg = svg_of(&m, &n);
		assert_true(n < 300000);
		assert_memory_equal(svg, "<svg ", 5);
		assert_string_equal(svg + n - 7, "</svg>\n");
		assert_non_null(strstr(svg, "web1 &lt;of&gt; &quot;x&quot; &amp; more"));
		assert_non_null(strstr(svg, "virtio&gt;.rom"));
		assert_null(strstr(svg, "<virtio>"));
		assert_non_null(strstr(svg, sizes[i] == 64ull << 30 ? "A square is 8 MiB" :
					    "A square is 64 KiB"));
		free(svg);
		map_free(&m);
		sparse_free(&s);
	}
}

/* ---- terminal */

static char *printed(const struct map *m, const struct map_terminal *t)
{
	FILE *out = tmpfile();
	int saved = dup(1);
	char *text = calloc(1, 1 << 20);

	assert_non_null(out);
	assert_non_null(text);
	fflush(stdout);
	dup2(fileno(out), 1);
	map_print(m, "web1", t);
	fflush(stdout);
	dup2(saved, 1);
	close(saved);
	rewind(out);
	text[fread(text, 1, (1 << 20) - 1, out)] = '\0';
	fclose(out);
	return text;
}

static void lines_fit(const char *text, size_t width, bool ascii)
{
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
		size_t columns = 0, n = strcspn(line, "\n");
		bool escape = false;

		for (size_t i = 0; i < n; i++) {
			unsigned char c = (unsigned char)line[i];

			if (ascii)
				assert_in_range(c, ' ', '~');
			escape = escape ? c != 'm' : c == '\033';
			columns += !escape && c != 'm' && (c & 0xc0) != 0x80;
		}
		if (strncmp(line, "web1", 4) != 0 && columns > width)
			fail_msg("%zu columns: %.*s", columns, (int)n, line);
	}
}

static void fits_a_terminal(void **state)
{
	static const struct map_terminal terminals[] = {
		{ 80, false, false }, { 80, false, true }, { 80, true, true }, { 200, true, true },
		{ 44, false, false },
	};
	struct sparse s;

	(void)state;
	sparse_make(&s, memfd_create("image", MFD_CLOEXEC), 512 << 20);
	for (size_t i = 0; i < TP_N(terminals); i++) {
		const struct map_terminal *t = &terminals[i];
		struct map m;
		char *text;

		map_make(&m, s.img, 64 * 24);
		areas_are_true(&m);
		text = printed(&m, t);
		lines_fit(text, t->width, !t->unicode);
		assert_non_null(strstr(text, "pc.ram  512 MiB"));
		assert_non_null(strstr(text, "not sent"));
		assert_non_null(strstr(text, "compresses badly"));
		assert_true(t->colour == !!strchr(text, '\033'));
		free(text);
		map_free(&m);
	}
	sparse_free(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_size_fills_the_picture),
		cmocka_unit_test(fits_a_terminal),
	};

	if (argc == 3) {
		struct sparse s;

		sparse_make(&s, open(argv[1], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600),
			    strtoull(argv[2], NULL, 10) << 30);
		sparse_free(&s);
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
