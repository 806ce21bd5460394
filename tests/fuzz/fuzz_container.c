/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_container.c - Whole memory images: opened, read, walked, verified, salvaged
 *
 * The input is a recipe (container.h), so that what is behind the checksums is reached. The readers
 * are held against each other: what image_verify() finds whole must be so for all of them.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/container.h"
#include "storage/image_damage.h"
#include "storage/image_format.h"
#include "storage/image_peek.h"
#include "storage/image_priv.h"
#include "storage/image_salvage.h"

#define PAGES_MAX (1u << 20)	/* of an image that is looked through */
#define INPUT_MAX (1u << 18)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

static void must(bool promise)
{
	if (!promise)
		abort();
}

static void see_page(void *arg, uint64_t page, enum image_class class_, const uint8_t *data)
{
	const struct image_info *info = arg;
	static volatile uint8_t sink;

	must(page < info->pages && (class_ == IMAGE_ZERO || class_ == IMAGE_DATA));
	must((class_ == IMAGE_DATA) == (data != NULL));
	if (data)
		sink = (uint8_t)(data[0] + data[((size_t)1 << info->page_bits) - 1]);
	(void)sink;
}

/* Every frame by itself, into exactly the room that it says it needs. */
static bool read_frames(const struct image *img)
{
	struct image_info info = *image_info(img);
	struct tp_error err = TP_ERROR_INIT;
	struct image_decoder *d = image_decoder_new(&err);
	bool good = true;

	must(d);
	for (uint64_t i = 0; i < info.frames; i++) {
		uint32_t raw = image_frame_raw(img, i), sum;
		uint8_t *buf = malloc(raw);
		bool ok;

		must(buf && raw <= IMAGE_FRAME_MAX);
		ok = image_frame_read(img, d, i, buf, &sum, &err) &&
		     image_walk_frame(img, i, buf, see_page, &info, &err);
		must(ok || err.code == TP_ECORRUPT);
		good = good && ok;
		tp_error_clear(&err);
		free(buf);
	}
	image_decoder_free(d);
	return good;
}

static void look_at_parts(const struct image *img)
{
	const struct image_info *info = image_info(img);
	uint64_t offset, length;

	for (unsigned i = 0; i < info->blocks; i++)
		must(image_block(img, i)->first_page <= info->pages);
	for (uint32_t kind = 0; kind < 7; kind++) {
		for (unsigned nth = 0; image_range(img, kind, nth, &offset, &length); nth++)
			must(offset <= info->raw_bytes && length <= info->raw_bytes - offset);
	}
}

static bool verify(const struct image *img)
{
	static struct image_damages damages;
	struct tp_error err = TP_ERROR_INIT;
	bool ok;

	memset(&damages, 0, sizeof(damages));
	ok = image_verify(img, 1, NULL, NULL, &damages, &err);
	must(ok == !damages.total && damages.n <= IMAGE_DAMAGES_MAX && damages.n <= damages.total);
	must(ok || err.code == TP_ECORRUPT);
	for (unsigned i = 0; i < damages.n; i++)
		must(damages.list[i].what[0]);
	return ok;
}

static void salvage(int fd, bool whole, uint64_t frames)
{
	struct tp_error err = TP_ERROR_INIT;
	int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	uint64_t good, lost;

	must(out >= 0 && image_salvage(fd, out, &good, &lost, &err));
	if (whole)
		must(good == frames && !lost);
	close(out);
}

static void look(int fd, unsigned options)
{
	struct tp_error err = TP_ERROR_INIT, peek_err = TP_ERROR_INIT;
	uint64_t checksum = 0, frames = 0;
	uint8_t uuid[16];
	bool peeked = image_footer_peek(fd, &checksum, uuid, &peek_err), whole = false;
	struct image *img = image_open(fd, &err);

	must(peeked || peek_err.code == TP_ECORRUPT || peek_err.code == TP_EUNSUPPORTED);
	must(img || err.code == TP_ECORRUPT || err.code == TP_EUNSUPPORTED || err.code == TP_ELIMIT);
	if (img) {
		must(peeked && checksum == image_info(img)->footer_checksum);
		frames = image_info(img)->frames;
		look_at_parts(img);
		if (image_info(img)->pages <= PAGES_MAX) {
			bool good = read_frames(img);

			whole = verify(img);
			must(good || !whole);
		}
		image_close(img);
	}
	if (options & CONTAINER_SALVAGE)
		salvage(fd, whole, frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned options;
	uint8_t *file;
	size_t n;
	int fd;

	if (size > INPUT_MAX)
		return 0;
	file = container_make(data, size, &n, &options);
	fd = memfd_create("image", MFD_CLOEXEC);
	if (fd < 0 || write(fd, file, n) != (ssize_t)n)
		abort();
	free(file);
	look(fd, options);
	close(fd);
	return 0;
}

/* Changes one item's payload, so that the others stay items; now and then the whole input at random. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	uint8_t item[UINT16_MAX];
	const uint8_t *payload;
	size_t at = 0, n, whole = 0, room, changed;
	unsigned count = 0, nth;

	for (size_t i = 0; (whole = container_next(data + i, size - i, &payload, &n)); i += whole)
		count++;
	if (!count || seed % 16 == 0)
		return LLVMFuzzerMutate(data, size, max);
	nth = seed / 16 % count;
	for (whole = container_next(data, size, &payload, &n); nth--;
	     whole = container_next(data + at, size - at, &payload, &n))
		at += whole;
	room = n + (max - size);
	if (room > sizeof(item))
		room = sizeof(item);
	if (!room)
		return LLVMFuzzerMutate(data, size, max);
	memcpy(item, payload, n);
	changed = LLVMFuzzerMutate(item, n, room);
	memmove(data + at + CONTAINER_ITEM_HEAD + changed, data + at + whole, size - at - whole);
	memcpy(data + at + CONTAINER_ITEM_HEAD, item, changed);
	data[at + 1] = (uint8_t)changed;
	data[at + 2] = (uint8_t)(changed >> 8);
	return size - n + changed;
}
