/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_image.c - Which file an operand of the image verbs means, and what lies beside it */
#include "cmd_image.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_error.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "cli_out.h"
#include "cli_session.h"
#include "storage/pool.h"

#define IMAGE_FILE "memory.zst"
#define DEPTH_MAX 32		/* levels of nesting in the files beside an image */

bool image_is_file(const char *operand)
{
	return strchr(operand, '/') != NULL;
}

static char *join(const char *folder, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", folder, name) < 0)
		abort();
	return path;
}

/* ---- ids */

static int no_id(const struct cli *cli, const char *operand)
{
	struct tp_error err = TP_ERROR_INIT;

	if (access(operand, F_OK) == 0)
		tp_fail(&err, TP_EARG, "\"%.100s\" is taken for the id of an image; as a file it is ./%.100s",
			operand, operand);
	else
		tp_fail(&err, TP_EARG, "\"%.100s\" is no id of an image (see torpor image ls), and without "
			"a '/' no file", operand);
	return (int)cli_failed(cli, &err);
}

static int not_known(const struct cli *cli, const char *id)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_fail_class(&err, TP_EARG, "NotFound", "torpord knows no image %s", id);
	return (int)cli_failed(cli, &err);
}

static int path_of_id(struct cli *cli, const char *id, char **path)
{
	tp_autojson json_t *images = NULL;
	char vm[TP_NAME_MAX + 1];
	json_t *image;
	size_t i;
	int status;

	if (!pool_image_id_ok(id) || !pool_image_vm(id, vm))
		return no_id(cli, id);
	status = cli_ask_list(cli, "query-images", json_pack("{s:s}", "vm", vm), "id", &images);
	if (status != CLI_DONE)
		return status;
	json_array_foreach(images, i, image) {
		const char *one = tp_json_str(image, "id"), *folder = tp_json_str(image, "path");

		if (one && folder && strcmp(one, id) == 0) {
			*path = join(folder, IMAGE_FILE);
			return CLI_DONE;
		}
	}
	return not_known(cli, id);
}

int image_path(struct cli *cli, const char *operand, char **path)
{
	if (!image_is_file(operand))
		return path_of_id(cli, operand, path);
	*path = strdup(operand);
	if (!*path)
		abort();
	return CLI_DONE;
}

/* ---- files */

static bool is_folder(const char *path, struct tp_error *err)
{
	tp_autofree char *file = join(path, IMAGE_FILE);
	struct stat st;

	if (stat(file, &st) == 0)
		return tp_fail(err, TP_EARG, "is a folder; the image is the file %s in it", IMAGE_FILE);
	return tp_fail(err, TP_EARG, "is a folder without an image");
}

static bool openable(const char *path, const struct stat *st, struct tp_error *err)
{
	if (S_ISREG(st->st_mode) || S_ISBLK(st->st_mode))
		return true;
	return S_ISDIR(st->st_mode) ? is_folder(path, err) :
	       tp_fail(err, TP_EARG, "is neither a file nor a block device");
}

int image_open_path(const char *path, struct tp_error *err)
{
	struct stat st;
	int fd;

	if (stat(path, &st) != 0) {
		tp_fail_sys(err, errno, "cannot be opened");
		return -1;
	}
	if (!openable(path, &st, err))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		tp_fail_sys(err, errno, "cannot be opened");
	/* It may be another one by now. */
	else if (fstat(fd, &st) != 0 || !openable(path, &st, err))
		tp_close(&fd);
	return fd;
}

int image_failed(const struct cli *cli, const char *path, const struct tp_error *err)
{
	tp_autojson json_t *object = cli_error_object(err);

	return (int)cli_error(path, object, cli->format == CLI_F_JSON);
}

json_t *image_beside(const char *path, const char *file, size_t max, struct tp_error *why)
{
	const char *slash = strrchr(path, '/');
	tp_autofree char *folder = slash == path ? strdup("/") :
				   strndup(path, slash ? (size_t)(slash - path) : 0);
	tp_autoclose int dir = open(folder && *folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *text = NULL;
	json_t *value = NULL;
	size_t n;

	if (dir < 0)
		return NULL;
	text = tp_read_file(dir, file, max, &n, &err);
	if (text)
		value = tp_json_parse(text, n, DEPTH_MAX, &err);
	if (value && !json_is_object(value)) {
		json_decref(TP_STEAL(value));
		tp_fail(&err, TP_ECORRUPT, "it is no JSON object");
	}
	if (!value && err.sys != ENOENT) {
		*why = err;
		tp_prefix(why, "%s", file);
	}
	return value;
}

json_t *image_verification(const char *path, const struct image *img, struct tp_error *why)
{
	json_t *verification = image_beside(path, "verified.json", IMAGE_MARK_MAX, why);
	const char *of = tp_json_str(verification, "footer");
	char footer[17];

	if (!img || !of)
		return verification;
	snprintf(footer, sizeof(footer), "%016" PRIx64, image_info(img)->footer_checksum);
	if (strcmp(of, footer) != 0)
		json_decref(TP_STEAL(verification));
	return verification;
}

bool image_found_damaged(const json_t *verification)
{
	return verification && !tp_json_bool(verification, "ok", false);
}

/* ---- manifest and image */

static void differ(json_t *list, const char *what, const char *manifest, const char *image)
{
	json_array_append_new(list, json_sprintf("the manifest says %s %.100s, the image %s", what, manifest,
						 image));
}

static void differ_number(json_t *list, const char *what, int64_t manifest, uint64_t image)
{
	if (manifest >= 0 && (uint64_t)manifest != image)
		json_array_append_new(list, json_sprintf("the manifest says %lld %s, the image %llu",
							 (long long)manifest, what, (unsigned long long)image));
}

static void compare_names(json_t *list, const struct image_info *i, const json_t *manifest)
{
	const char *uuid = tp_json_str(manifest, "uuid"), *footer = tp_json_str(manifest, "footer");
	char own_uuid[33], own_footer[17];

	for (size_t k = 0; k < sizeof(i->uuid); k++)
		snprintf(own_uuid + 2 * k, 3, "%02x", i->uuid[k]);
	snprintf(own_footer, sizeof(own_footer), "%016llx", (unsigned long long)i->footer_checksum);
	if (uuid && strcmp(uuid, own_uuid) != 0)
		differ(list, "uuid", uuid, own_uuid);
	if (footer && strcmp(footer, own_footer) != 0)
		differ(list, "footer", footer, own_footer);
}

static void compare_blocks(json_t *list, const struct image *img, const json_t *blocks)
{
	unsigned n = image_info(img)->blocks;

	if (!json_is_array(blocks))
		return;
	differ_number(list, "RAM blocks", (int64_t)json_array_size(blocks), n);
	for (unsigned k = 0; k < n && k < json_array_size(blocks); k++) {
		const struct image_block *b = image_block(img, k);
		const char *id = tp_json_str(json_array_get(blocks, k), "id");
		char what[300];

		snprintf(what, sizeof(what), "bytes of RAM block %s", b->id);
		if (id && strcmp(id, b->id) != 0)
			differ(list, "RAM block", id, b->id);
		else
			differ_number(list, what, tp_json_int(json_array_get(blocks, k), "bytes", -1),
				      b->used_length);
	}
}

/* The folders are <pool>/<vm>/<id>: a copy somewhere else has no such name. */
static void compare_folder(json_t *list, const char *path, const char *id)
{
	const char *end = strrchr(path, '/'), *name = end;

	while (name && name > path && name[-1] != '/')
		name--;
	if (!id || !name || end == name)
		return;
	tp_autofree char *folder = strndup(name, (size_t)(end - name));

	if (folder && pool_image_id_ok(folder) && strcmp(folder, id) != 0)
		json_array_append_new(list, json_sprintf("the manifest is that of %.100s, the folder is "
							 "named %s", id,
							 folder));
}

json_t *image_contradictions(const char *path, const struct image *img, const json_t *manifest)
{
	const struct image_info *i = image_info(img);
	json_t *list = json_array();

	compare_names(list, i, manifest);
	differ_number(list, "bytes", tp_json_int(manifest, "bytes", -1), i->file_bytes);
	differ_number(list, "bytes of the stream", tp_json_int(manifest, "raw-bytes", -1), i->raw_bytes);
	compare_blocks(list, img, tp_json_path(manifest, "ram.blocks"));
	compare_folder(list, path, tp_json_str(manifest, "image"));
	return list;
}
