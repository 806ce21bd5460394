/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_map.c - The dense page map kept while an image is written
 */
#include "image_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/tp_size.h"

bool image_block_id_ok(const char *id, size_t n)
{
	if (n < 1 || n > IMAGE_BLOCK_ID_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (id[i] < 0x21 || id[i] > 0x7e)
			return false;
	return true;
}

int image_map_find(const struct image_map *m, const char *id, size_t n)
{
	for (unsigned i = 0; i < m->nblocks; i++)
		if (!strncmp(m->blocks[i].id, id, n) && !m->blocks[i].id[n])
			return (int)i;
	return -1;
}

bool image_map_add(struct image_map *m, const char *id, size_t n, uint64_t used_length,
		   struct tp_error *err)
{
	struct image_block *b;

	if (!image_block_id_ok(id, n))
		return tp_fail(err, TP_ECORRUPT, "RAM block %u has an invalid name", m->nblocks);
	if (image_map_find(m, id, n) >= 0)
		return tp_fail(err, TP_ECORRUPT, "RAM block \"%.*s\" is listed twice", (int)n, id);
	if (m->nblocks == IMAGE_BLOCKS_MAX)
		return tp_fail(err, TP_ELIMIT, "more than %u RAM blocks", IMAGE_BLOCKS_MAX);
	if (used_length & (((uint64_t)1 << m->page_bits) - 1))
		return tp_fail(err, TP_ECORRUPT, "RAM block \"%.*s\": %llu bytes are no whole pages",
			       (int)n, id, (unsigned long long)used_length);
	if ((used_length >> m->page_bits) > IMAGE_PAGES_MAX - m->pages)
		return tp_fail(err, TP_ELIMIT, "RAM block \"%.*s\": more guest memory than an image holds",
			       (int)n, id);
	if (!m->blocks) {
		m->blocks = calloc(IMAGE_BLOCKS_MAX, sizeof(*m->blocks));
		if (!m->blocks)
			return tp_fail_nomem(err);
	}
	b = &m->blocks[m->nblocks++];
	memcpy(b->id, id, n);
	b->id[n] = '\0';
	b->used_length = used_length;
	b->host_page_size = (uint64_t)1 << m->page_bits;
	b->first_page = m->pages;
	m->pages += used_length >> m->page_bits;
	return true;
}

/* Not malloc: the kernel gives memory only for what the stream really has. */
static void *map_pages(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static size_t classes_size(const struct image_map *m)
{
	return tp_div_up(m->pages, 4) + 1;
}

bool image_map_alloc(struct image_map *m, struct tp_error *err)
{
	m->frame_of = map_pages((m->pages + 1) * sizeof(*m->frame_of));
	m->classes = map_pages(classes_size(m));
	if (!m->frame_of || !m->classes)
		return tp_fail_nomem(err);
	return true;
}

void image_map_free(struct image_map *m)
{
	if (m->frame_of)
		munmap(m->frame_of, (m->pages + 1) * sizeof(*m->frame_of));
	if (m->classes)
		munmap(m->classes, classes_size(m));
	free(m->blocks);
	memset(m, 0, sizeof(*m));
}

void image_map_count(const struct image_map *m, uint64_t count[4])
{
	memset(count, 0, 4 * sizeof(*count));
	for (uint64_t page = 0; page < m->pages; page++)
		count[image_map_class(m, page)]++;
}
