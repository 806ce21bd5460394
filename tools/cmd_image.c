/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image.c - `torpor image info|verify|cat FILE`: memory images without a daemon
 */
#include "cmd_image.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_error.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_time.h"
#include "migration/stream_parse.h"
#include "storage/image_format.h"
#include "storage/image_read.h"
#include "storage/image_salvage.h"

enum exit_status { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_PARTIAL = 6 };

#define MACHINE_MAX 256

static const char *const kinds[] = { "stopped", "live", "background-snapshot" };

static int fail(const char *file, bool json, const struct tp_error *err)
{
	tp_autojson json_t *object = NULL;

	fprintf(stderr, "torpor: %s: %s\n", file, err->text);
	if (json) {
		object = json_pack("{s:s, s:s}", "class", tp_error_class(err), "desc", err->text);
		json_dumpf(object, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	return EXIT_FAILED;
}

static int open_file(const char *file, struct tp_error *err)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		tp_fail_sys(err, errno, "cannot be opened");
	return fd;
}

static bool print_json(json_t *object_owned)
{
	tp_autojson json_t *object = object_owned;

	return object && !json_dumpf(object, stdout, JSON_INDENT(2)) && putchar('\n') != EOF &&
	       !fflush(stdout);
}

/* ---- info */

/* The machine type, from the configuration section in the first frame; "" if it is not there. */
static bool read_machine(const struct image *img, char machine[MACHINE_MAX], struct tp_error *err)
{
	struct image_decoder *d = image_decoder_new(err);
	struct stream_parser *p = d ? stream_parser_new(2 * IMAGE_FRAME_MAX, err) : NULL;
	uint8_t *raw = p ? malloc(image_frame_raw(img, 0)) : NULL;
	bool ok = raw && image_frame_read(img, d, 0, raw, NULL, err);

	if (p && !raw)
		tp_fail_nomem(err);
	if (ok) {
		ok = stream_parse(p, raw, image_frame_raw(img, 0), err) != STREAM_FAILED;
		snprintf(machine, MACHINE_MAX, "%s", stream_machine(p));
	}
	free(raw);
	stream_parser_free(p);
	image_decoder_free(d);
	return ok;
}

static const char *uuid_text(const uint8_t uuid[16], char text[33])
{
	for (unsigned i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", uuid[i]);
	return text;
}

static uint64_t device_bytes(const struct image *img)
{
	uint64_t offset, length;

	return image_range(img, IMAGE_RANGE_DEVICES, 0, &offset, &length) ? length : 0;
}

static json_t *info_json(const char *file, const struct image *img, const char *machine)
{
	const struct image_info *i = image_info(img);
	json_t *blocks = json_array();
	char uuid[33], created[TP_TIME_TEXT], footer[17];

	for (unsigned n = 0; n < i->blocks; n++)
		json_array_append_new(blocks, json_pack("{s:s, s:I}", "id", image_block(img, n)->id, "bytes",
							(json_int_t)image_block(img, n)->used_length));
	snprintf(footer, sizeof(footer), "%016llx", (unsigned long long)i->footer_checksum);
	return json_pack("{s:s, s:s, s:{s:i, s:i}, s:s, s:s, s:s, s:s, s:s*, s:I, s:I, s:I, s:I,"
			 " s:i, s:I, s:I, s:I, s:I, s:I, s:o}",
			 "file", file, "state", "complete",
			 "format", "major", i->major, "minor", i->minor,
			 "layout", "stream", "uuid", uuid_text(i->uuid, uuid),
			 "created", tp_time_format(i->created_us, created), "footer", footer,
			 "machine", *machine ? machine : NULL,
			 "bytes", (json_int_t)i->file_bytes, "raw-bytes", (json_int_t)i->raw_bytes,
			 "frames", (json_int_t)i->frames, "frame-target", (json_int_t)i->frame_target,
			 "page-size", 1 << i->page_bits, "pages", (json_int_t)i->pages,
			 "pages-data", (json_int_t)i->pages_data,
			 "pages-zero", (json_int_t)i->pages_zero,
			 "index-bytes", (json_int_t)i->index_bytes,
			 "device-bytes", (json_int_t)device_bytes(img), "blocks", blocks);
}

static void print_pages(const struct image_info *i)
{
	char size[TP_SIZE_TEXT], page[TP_SIZE_TEXT];
	uint64_t absent = i->pages - i->pages_data - i->pages_zero;

	printf("memory    %s in pages of %s: %llu with data, %llu zero",
	       tp_size_format(i->pages << i->page_bits, size),
	       tp_size_format(1ull << i->page_bits, page), (unsigned long long)i->pages_data,
	       (unsigned long long)i->pages_zero);
	if (absent)
		printf(", %llu not sent", (unsigned long long)absent);
	putchar('\n');
}

static void info_text(const char *file, const struct image *img, const char *machine)
{
	const struct image_info *i = image_info(img);
	char uuid[33], created[TP_TIME_TEXT], a[TP_SIZE_TEXT], b[TP_SIZE_TEXT];

	printf("file      %s\n", file);
	printf("format    torpor memory image %u.%u, complete\n", i->major, i->minor);
	printf("uuid      %s\n", uuid_text(i->uuid, uuid));
	printf("created   %s\n", tp_time_format(i->created_us, created));
	printf("machine   %s\n", *machine ? machine : "not recorded");
	printf("stream    %s save, %s with %s of device state\n", kinds[i->stream_kind],
	       tp_size_format(i->raw_bytes, a), tp_size_format(device_bytes(img), b));
	printf("size      %s (%.1f %% of the stream)\n", tp_size_format(i->file_bytes, a),
	       100.0 * (double)i->file_bytes / (double)i->raw_bytes);
	printf("frames    %llu of about %s, index %s\n", (unsigned long long)i->frames,
	       tp_size_format(i->frame_target, a), tp_size_format(i->index_bytes, b));
	print_pages(i);
	for (unsigned n = 0; n < i->blocks; n++)
		printf("block     %s %s\n", image_block(img, n)->id,
		       tp_size_format(image_block(img, n)->used_length, a));
}

int cmd_image_info(const char *file, bool json)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int fd = open_file(file, &err);
	struct image *img = fd < 0 ? NULL : image_open(fd, &err);
	char machine[MACHINE_MAX] = "";
	int status = EXIT_DONE;

	if (!img || !read_machine(img, machine, &err))
		status = fail(file, json, &err);
	else if (json)
		status = print_json(info_json(file, img, machine)) ? EXIT_DONE : EXIT_FAILED;
	else
		info_text(file, img, machine);
	image_close(img);
	return status;
}

/* ---- verify */

static bool show_progress(void *arg, uint64_t done, uint64_t total)
{
	bool *shown = arg;

	if (isatty(STDERR_FILENO)) {
		fprintf(stderr, "\r%3.0f %% verified", 100.0 * (double)done / (double)total);
		*shown = true;
	}
	return true;
}

static int verified(const char *file, const struct image *img, bool json)
{
	const struct image_info *i = image_info(img);
	char a[TP_SIZE_TEXT];

	if (json)
		return print_json(json_pack("{s:s, s:b, s:I, s:I, s:I, s:I}", "file", file, "verified", 1,
					    "frames", (json_int_t)i->frames, "pages", (json_int_t)i->pages,
					    "bytes", (json_int_t)i->file_bytes, "raw-bytes",
					    (json_int_t)i->raw_bytes)) ? EXIT_DONE : EXIT_FAILED;
	printf("%s: good: %llu frames, %llu pages, %s\n", file, (unsigned long long)i->frames,
	       (unsigned long long)i->pages, tp_size_format(i->file_bytes, a));
	return EXIT_DONE;
}

int cmd_image_verify(const char *file, bool json)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int fd = open_file(file, &err);
	struct image *img = fd < 0 ? NULL : image_open(fd, &err);
	bool shown = false, ok = img && image_verify(img, 0, show_progress, &shown, NULL, &err);
	int status;

	if (shown)
		fputs("\r               \r", stderr);
	status = ok ? verified(file, img, json) : fail(file, json, &err);
	image_close(img);
	return status;
}

/* ---- cat */

static bool copy_frame(const struct image *img, struct image_decoder *d, uint64_t frame,
		       uint8_t *buf, bool salvage, uint64_t *lost, struct tp_error *err)
{
	struct tp_error damage = TP_ERROR_INIT;

	if (image_frame_read(img, d, frame, buf, NULL, &damage))
		return tp_write_all(STDOUT_FILENO, buf, image_frame_raw(img, frame), err);
	if (!salvage || damage.code != TP_ECORRUPT)
		return tp_fail(err, damage.code, "%s", damage.text);
	fprintf(stderr, "torpor: left out %u bytes: %s\n", image_frame_raw(img, frame), damage.text);
	(*lost)++;
	return true;
}

static bool copy_frames(const struct image *img, bool salvage, uint64_t *lost,
			struct tp_error *err)
{
	struct image_decoder *d = image_decoder_new(err);
	uint32_t largest = 1;
	uint8_t *buf;
	bool ok;

	for (uint64_t i = 0; i < image_info(img)->frames; i++)
		if (image_frame_raw(img, i) > largest)
			largest = image_frame_raw(img, i);
	buf = malloc(largest);
	ok = d && (buf || tp_fail_nomem(err));
	for (uint64_t i = 0; ok && i < image_info(img)->frames; i++)
		ok = copy_frame(img, d, i, buf, salvage, lost, err);
	free(buf);
	image_decoder_free(d);
	return ok;
}

/* Header, footer or index cannot be used: the frames are found by their own heads. */
static int salvage_file(const char *file, int fd, const struct tp_error *why)
{
	struct tp_error err = TP_ERROR_INIT;
	uint64_t good = 0, lost = 0;

	fprintf(stderr, "torpor: %s: %s; looking for frames\n", file, why->text);
	if (!image_salvage(fd, STDOUT_FILENO, &good, &lost, &err))
		return fail(file, false, &err);
	fprintf(stderr, "torpor: %s: %llu frames written, %llu damaged places left out\n", file,
		(unsigned long long)good, (unsigned long long)lost);
	return good ? EXIT_PARTIAL : EXIT_FAILED;
}

int cmd_image_cat(const char *file, bool salvage)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int fd = -1;
	struct image *img;
	uint64_t lost = 0;
	int status = EXIT_DONE;

	if (isatty(STDOUT_FILENO)) {
		fputs("torpor: image cat writes binary data; send it to a file or a pipe\n", stderr);
		return EXIT_USAGE;
	}
	fd = open_file(file, &err);
	img = fd < 0 ? NULL : image_open(fd, &err);
	if (img && !copy_frames(img, salvage, &lost, &err))
		status = fail(file, false, &err);
	else if (!img)
		status = fd >= 0 && salvage && err.code == TP_ECORRUPT ? salvage_file(file, fd, &err) :
			 fail(file, false, &err);
	else if (lost)
		status = EXIT_PARTIAL;
	image_close(img);
	return status;
}
