/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_pool.c - What lies beside an image in a pool: manifest and marks, of any content
 *
 * A pool with one whole image. The first byte of the input chooses a file, the rest is its content.
 * Whatever it is, the pool is listed, the other image with it, and an image that has the mark of
 * having been used, however damaged, is never offered.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "fake/fake_pool.h"
#include "fuzz/container.h"
#include "storage/image_peek.h"
#include "storage/manifest.h"
#include "storage/pool.h"

#define VM "web1"
#define FIRST "web1-20261130T170537Z-0a1b2c"
#define SECOND "web1-20261130T170538Z-ffffff"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct pool *pool;
static char folder[64];
static json_t *manifest;

static void must(bool promise)
{
	if (!promise)
		abort();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_all(void)
{
	pool_close(pool);
	json_decref(manifest);
	nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static json_t *manifest_of(const char *id, int fd)
{
	struct tp_error err = TP_ERROR_INIT;
	struct image_peek found;
	char footer[17], uuid[33];

	must(image_peek(fd, &found, &err));
	snprintf(footer, sizeof(footer), "%016llx", (unsigned long long)found.footer_checksum);
	for (size_t i = 0; i < sizeof(found.uuid); i++)
		snprintf(uuid + 2 * i, 3, "%02x", found.uuid[i]);
	return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:{s:{s:i, s:i}}, s:s,"
			 " s:{s:i}, s:{}}", "format", 1, "image", id, "uuid", uuid, "vm", VM, "uid", "u",
			 "kind", "hibernation", "created", "2026-11-30T17:05:37.123Z", "layout", "stream",
			 "file", "memory.zst", "bytes", (json_int_t)found.file_bytes, "raw-bytes",
			 (json_int_t)found.raw_bytes, "footer", footer, "qemu", "version", "major", 10,
			 "minor", 0, "run-state", "running", "ram", "bytes", 1, "disks");
}

static json_t *put_image(const char *id)
{
	struct tp_error err = TP_ERROR_INIT;
	int fd = fake_pool_image(pool, VM, id, "none", 0, &err);
	unsigned options;
	json_t *m;
	size_t n;
	uint8_t *file = container_make(NULL, 0, &n, &options);

	must(fd >= 0 && write(fd, file, n) == (ssize_t)n);
	free(file);
	m = manifest_of(id, fd);
	close(fd);
	must(m && pool_manifest_write(pool, VM, id, m, &err));
	return m;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct tp_error err = TP_ERROR_INIT;
	char path[80];

	(void)argc;
	(void)argv;
	strcpy(folder, "/tmp/torpor-fuzz-XXXXXX");
	must(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/pool", folder);
	pool = pool_open("default", path, 0, "fuzz", true, &err);
	must(pool);
	manifest = put_image(FIRST);
	json_decref(put_image(SECOND));
	atexit(remove_all);
	return 0;
}

static const char *const files[] = { "manifest.json", "consumed.json", "verified.json", "moving.json" };

static int image_folder(void)
{
	return openat(pool_dirfd(pool), VM "/" FIRST, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void put(int dir, const char *file, const uint8_t *data, size_t size)
{
	int fd = openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
}

static void look(unsigned which)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *list = pool_catalogue(pool, NULL, 10, &err), *mark;
	const char *state = tp_json_str(json_array_get(list, 0), "state");
	char *text = tp_json_text(list);

	must(list && text && json_array_size(list) == 2 && state);
	must(strcmp(tp_json_str(json_array_get(list, 1), "state"), "complete") == 0);
	must(which != 1 || strcmp(state, "consumed") == 0);
	must(which != 3 || strcmp(state, "partial") == 0);
	mark = pool_consumed_read(pool, VM, FIRST, &err);
	must(mark || err.code == TP_ECORRUPT || err.code == TP_ESTATE);
	json_decref(mark);
	json_decref(list);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *good = tp_json_text(manifest);
	unsigned which;
	int dir;

	if (size < 1 || size > MANIFEST_MAX) {
		free(good);
		return 0;
	}
	which = data[0] % 4;
	dir = image_folder();
	must(good && dir >= 0);
	put(dir, files[which], data + 1, size - 1);
	look(which);
	if (which == 0)
		put(dir, files[0], (const uint8_t *)good, strlen(good));
	else
		must(unlinkat(dir, files[which], 0) == 0);
	close(dir);
	free(good);
	return 0;
}
