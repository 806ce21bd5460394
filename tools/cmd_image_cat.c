/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image_cat.c - torpor image cat: the plain QEMU stream of an image
 *
 * With --salvage what of a damaged one can be read. As long as the index is good, it says what is
 * left out; without it frames are found by their own heads (storage/image_salvage.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_error.h"
#include "base/tp_fs.h"
#include "base/tp_size.h"
#include "cli_out.h"
#include "cmd_image.h"
#include "storage/image_salvage.h"
#include "storage/image_survey.h"

#define TOLD_MAX 32	/* damaged frames that are named each; all are counted */

/*
 * @lost: by frame: it was left out
 */
struct copy {
	const struct image *img;
	bool salvage;
	uint8_t *lost, *buf;
	uint64_t nlost, lost_bytes;
	struct image_decoder *decoder;
};

static bool copy_frame(struct copy *c, uint64_t frame, struct tp_error *err)
{
	struct tp_error damage = TP_ERROR_INIT;
	uint32_t raw = image_frame_raw(c->img, frame);

	if (image_frame_read(c->img, c->decoder, frame, c->buf, NULL, &damage))
		return tp_write_all(STDOUT_FILENO, c->buf, raw, err);
	if (!c->salvage || damage.code == TP_ENOMEM)
		return tp_fail_class(err, damage.code, damage.class_, "%s", damage.text);
	if (c->nlost++ < TOLD_MAX)
		cli_note("left out %u bytes: %s", raw, damage.text);
	c->lost[frame] = 1;
	c->lost_bytes += raw;
	return true;
}

static bool copy_frames(struct copy *c, struct tp_error *err)
{
	uint64_t n = image_info(c->img)->frames;
	uint32_t largest = 1;
	bool ok;

	for (uint64_t i = 0; i < n; i++)
		if (image_frame_raw(c->img, i) > largest)
			largest = image_frame_raw(c->img, i);
	c->decoder = image_decoder_new(err);
	c->buf = malloc(largest);
	c->lost = calloc(n + 1, 1);
	ok = c->decoder && c->buf && c->lost;
	if (!ok)
		tp_fail_nomem(err);
	for (uint64_t i = 0; ok && i < n; i++)
		ok = copy_frame(c, i, err);
	free(c->buf);
	image_decoder_free(c->decoder);
	return ok;
}

/* ---- what was lost */

struct losses {
	const struct copy *copy;
	uint64_t pages, first, last;
};

static void add_loss(void *arg, uint64_t first, uint64_t pages, enum image_class class_, uint64_t frame)
{
	struct losses *l = arg;

	if (class_ != IMAGE_DATA || !l->copy->lost[frame])
		return;
	if (l->pages == 0)
		l->first = first;
	l->pages += pages;
	l->last = first + pages - 1;
}

static void tell_losses(const struct copy *c, const char *path)
{
	const struct image_info *i = image_info(c->img);
	char size[TP_SIZE_TEXT];

	cli_note("%s: %llu of %llu frames left out, %s of the stream", path, (unsigned long long)c->nlost,
		 (unsigned long long)i->frames, tp_size_format(c->lost_bytes, size));
	for (unsigned n = 0; n < i->blocks; n++) {
		struct losses l = { .copy = c };

		image_survey(c->img, n, add_loss, &l);
		if (l.pages > 0)
			cli_note("%s: lost %s, %llu of %llu pages, from page %llu to %llu",
				 image_block(c->img, n)->id,
				 tp_size_format(l.pages << i->page_bits, size), (unsigned long long)l.pages,
				 (unsigned long long)(image_block(c->img, n)->used_length >> i->page_bits),
				 (unsigned long long)l.first, (unsigned long long)l.last);
	}
}

/* ---- all of it */

static int copy_image(const struct cli *cli, const char *path, const struct image *img)
{
	struct copy c = { .img = img, .salvage = cli_flag(cli, "salvage") };
	struct tp_error err = TP_ERROR_INIT;
	bool ok = copy_frames(&c, &err);
	int status = CLI_DONE;

	if (c.nlost > 0)
		tell_losses(&c, path);
	if (!ok)
		status = image_failed(cli, path, &err);
	else if (c.nlost > 0)
		status = c.nlost < image_info(img)->frames ? CLI_PARTIAL : CLI_FAILED;
	free(c.lost);
	return status;
}

/* Header, footer or index cannot be used: the frames are found by their own heads. */
static int salvage_file(const struct cli *cli, const char *path, int fd, const struct tp_error *why)
{
	struct tp_error err = TP_ERROR_INIT;
	uint64_t good = 0, lost = 0;

	cli_note("%s: %s; looking for frames", path, why->text);
	if (!image_salvage(fd, STDOUT_FILENO, &good, &lost, &err))
		return image_failed(cli, path, &err);
	cli_note("%s: %llu frames written, %llu damaged places left out; whose pages is not known without "
		 "the index", path, (unsigned long long)good, (unsigned long long)lost);
	return good ? CLI_PARTIAL : CLI_FAILED;
}

int cmd_image_cat(struct cli *cli)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *path = NULL;
	tp_autoclose int fd = -1;
	struct image *img;
	int status;

	if (isatty(STDOUT_FILENO))
		return cli_usage(cli, "image cat writes binary data; send it to a file or a pipe");
	status = image_path(cli, cli->operands[0], &path);
	if (status != CLI_DONE)
		return status;
	fd = image_open_path(path, &err);
	img = fd < 0 ? NULL : image_open(fd, &err);
	if (img)
		status = copy_image(cli, path, img);
	else if (fd >= 0 && cli_flag(cli, "salvage") && err.code == TP_ECORRUPT)
		status = salvage_file(cli, path, fd, &err);
	else
		status = image_failed(cli, path, &err);
	image_close(img);
	return status;
}
