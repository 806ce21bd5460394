/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image_verify.c - torpor image verify: every checksum, record and promise of an image
 *
 * A file is checked here, by all processors. An image that is named by its id is torpord's to check:
 * it notes the result. --all goes from image to image, so that one at a time is read.
 */
#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_error.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_time.h"
#include "cli_damage.h"
#include "cli_follow.h"
#include "cli_out.h"
#include "cli_progress.h"
#include "cli_session.h"
#include "cmd_image.h"
#include "storage/image_damage.h"
#include "storage/pool.h"

#define DAMAGE_TEXT_MAX (1u << 20)

/* ---- files */

struct progress {
	const char *path;
	double raw_bytes, started;
};

static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
	const struct progress *p = arg;
	double part = total ? (double)done / (double)total : 1, seconds = tp_now_mono() - p->started;
	double rate = seconds > 0 ? part * p->raw_bytes / seconds : 0;

	/* Lines are for what takes long. */
	if (cli_progress_mode() == CLI_P_LINES && seconds < CLI_P_LINE_INTERVAL)
		return true;
	cli_progress_show(&(struct cli_figures){
		.label = p->path, .phase = "Verifying", .done = part * p->raw_bytes, .total = p->raw_bytes,
		.percent = 100 * part, .rate = rate, .eta = rate > 0 ? (1 - part) * p->raw_bytes / rate : -1,
		.elapsed = seconds,
	}, false);
	return true;
}

static json_t *good_json(const char *path, const struct image *img, double seconds)
{
	const struct image_info *i = image_info(img);

	return json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:f}", "file", path, "verified", 1, "frames",
			 (json_int_t)i->frames, "pages", (json_int_t)i->pages, "bytes",
			 (json_int_t)i->file_bytes, "raw-bytes", (json_int_t)i->raw_bytes, "seconds", seconds);
}

/* The error as torpord's image-verify has it. */
static json_t *bad_json(const char *path, const struct image *img, const struct image_damages *damages,
			const struct tp_error *err)
{
	json_t *error = cli_error_object(err), *data;

	if (!img || err->code != TP_ECORRUPT)
		return error;
	data = json_pack("{s:s, s:o, s:I}", "file", path, "damage",
			 image_damages_json(img, damages, DAMAGE_TEXT_MAX), "damaged",
			 (json_int_t)damages->total);
	tp_json_set(error, "data", data);
	return error;
}

static void tell_good(const struct cli *cli, const char *path, const struct image *img, double seconds)
{
	const struct image_info *i = image_info(img);
	char size[TP_SIZE_TEXT], span[CLI_SPAN_TEXT];

	if (!cli->quiet && cli->format != CLI_F_JSON)
		cli_say("%s: good: %llu frames, %llu pages, %s in %s", path, (unsigned long long)i->frames,
			(unsigned long long)i->pages, tp_size_format(i->file_bytes, size),
			cli_span(seconds, span));
}

/* An image that is good by itself, but not the one that the manifest beside it names. */
static bool check_manifest(const char *path, const struct image *img, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autojson json_t *manifest = image_beside(path, "manifest.json", MANIFEST_MAX, &why), *list = NULL;

	if (why.code != TP_OK)
		return tp_fail(err, TP_ECORRUPT, "%s", why.text);
	if (!manifest)
		return true;
	list = image_contradictions(path, img, manifest);
	return json_array_size(list) == 0 ||
	       tp_fail(err, TP_ECORRUPT, "%s", json_string_value(json_array_get(list, 0)));
}

static void verify_file(struct cli *cli, const char *path, struct cli_tally *tally)
{
	static struct image_damages damages;
	struct tp_error err = TP_ERROR_INIT;
	struct progress p = { .path = path, .started = tp_now_mono() };
	tp_autoclose int fd = image_open_path(path, &err);
	struct image *img = fd < 0 ? NULL : image_open(fd, &err);
	tp_autojson json_t *value = NULL;
	bool good = false;

	damages.n = 0;
	damages.total = 0;
	if (img) {
		p.raw_bytes = (double)image_info(img)->raw_bytes;
		good = image_verify(img, 0, on_progress, &p, &damages, &err) &&
		       check_manifest(path, img, &err);
	}
	cli_progress_hide();
	if (good) {
		value = good_json(path, img, tp_now_mono() - p.started);
		tell_good(cli, path, img, tp_now_mono() - p.started);
		cli_tally_add(tally, path, CLI_DONE, value);
	} else {
		value = bad_json(path, img, &damages, &err);
		cli_tally_add(tally, path, cli_error(path, value, false), value);
		if (cli->format != CLI_F_JSON)
			cli_say_damage(value, path);
	}
	image_close(img);
}

static int verify_files(struct cli *cli)
{
	struct cli_tally tally = { 0 };

	cli_progress_begin(cli->quiet, cli->format == CLI_F_JSON);
	for (size_t i = 0; i < cli->noperands; i++)
		verify_file(cli, cli->operands[i], &tally);
	return cli_tally_end(cli, &tally, cli->noperands > 1);
}

/* ---- ids */

static bool can_be_verified(const json_t *image)
{
	const char *state = tp_json_str(image, "state");

	return tp_json_str(image, "id") && state &&
	       (strcmp(state, "complete") == 0 || strcmp(state, "consumed") == 0 ||
		strcmp(state, "corrupt") == 0);
}

static int all_images(struct cli *cli, struct cli_names *ids)
{
	tp_autojson json_t *images = NULL;
	json_t *image;
	size_t i;
	int status = cli_ask_list(cli, "query-images", json_object(), "id", &images);

	if (status != CLI_DONE)
		return status;
	ids->many = true;
	ids->names = calloc(json_array_size(images) + 1, sizeof(char *));
	if (!ids->names)
		abort();
	json_array_foreach(images, i, image) {
		if (!can_be_verified(image))
			continue;
		ids->names[ids->n] = strdup(tp_json_str(image, "id"));
		if (!ids->names[ids->n++])
			abort();
	}
	if (ids->n == 0)
		cli_note("there is no image");
	return CLI_DONE;
}

/* As of a file, with "image" and "operation". */
static json_t *good_record(const json_t *record)
{
	json_t *result = json_object_get(record, "result");
	json_t *value = json_is_object(result) ? json_copy(result) : json_object();

	tp_json_set(value, "verified", json_true());
	tp_json_set_str(value, "operation", tp_json_str(record, "id"));
	return value;
}

static int verify_ids(struct cli *cli)
{
	tp_autojson json_t *arguments = json_object();
	struct cli_names ids = { 0 };
	bool all = cli_flag(cli, "all");
	int status = all ? all_images(cli, &ids) : cli_names(cli, &ids);

	if (status == CLI_DONE)
		status = cli_operate_images(cli, "image-verify", arguments, &ids, all, good_record);
	cli_names_free(&ids);
	return status;
}

int cmd_image_verify(struct cli *cli)
{
	size_t files = 0;

	for (size_t i = 0; i < cli->noperands; i++)
		files += image_is_file(cli->operands[i]);
	if (files > 0 && files < cli->noperands)
		return cli_usage(cli, "files (with a '/') and ids of images do not go together");
	return files > 0 ? verify_files(cli) : verify_ids(cli);
}
