/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool_test.h - A folder for one test, manifests and sealed images for the tests of pools */
#ifndef POOL_TEST_H
#define POOL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/tp_json.h"
#include "base/tp_size.h"
#include "fake/fake_pool.h"
#include "storage/image_format.h"
#include "storage/manifest.h"
#include "storage/pool.h"

#define VM "web1"
#define ID "web1-20261130T170537Z-0a1b2c"
#define ID2 "web1-20261130T170538Z-ffffff"
#define UUID_HEX "000102030405060708090a0b0c0d0e0f"

#define assert_contains(text, part) \
	do { \
		const char *text_ = (text); \
		if (!text_ || !strstr(text_, part)) \
			fail_msg("\"%s\" lacks \"%s\"", text_ ? text_ : "(none)", part); \
	} while (0)

#define assert_failed(err, class_name, part) \
	do { \
		assert_string_equal(tp_error_class(err), class_name); \
		assert_contains((err)->text, part); \
		tp_error_clear(err); \
	} while (0)

#define assert_ok(ok, err) \
	do { \
		if (!(ok)) \
			fail_msg("%s: %s", tp_error_class(err), (err)->text); \
	} while (0)

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void remove_tree(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A new folder, its path in *state. */
static inline int make_folder(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char *path;

	if (asprintf(&path, "%s/torpor-test-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp") < 0)
		return -1;
	*state = mkdtemp(path);
	return *state ? 0 : -1;
}

static inline int drop_folder(void **state)
{
	remove_tree(*state);
	free(*state);
	return 0;
}

/* "folder/a/b..." in one of four static buffers. */
static inline const char *at(const char *folder, const char *rest)
{
	static char bufs[4][4096];
	static unsigned n;
	char *buf = bufs[n++ % 4];

	snprintf(buf, sizeof(bufs[0]), "%s/%s", folder, rest);
	return buf;
}

static inline bool exists(const char *folder, const char *rest)
{
	struct stat st;

	return lstat(at(folder, rest), &st) == 0;
}

static inline mode_t mode_of(const char *folder, const char *rest)
{
	struct stat st;

	assert_int_equal(lstat(at(folder, rest), &st), 0);
	return st.st_mode & 07777;
}

static inline void put_file(const char *folder, const char *rest, const void *data, size_t n)
{
	int fd = open(at(folder, rest), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, n), (ssize_t)n);
	close(fd);
}

static inline void put_text(const char *folder, const char *rest, const char *text)
{
	put_file(folder, rest, text, strlen(text));
}

/* The smallest that passes; members may be changed by the test. */
static inline json_t *manifest_for(const char *vm, const char *id, const char *footer)
{
	json_t *m = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:s,"
			      " s:{s:{s:i, s:i, s:i}}, s:s, s:{s:i}, s:{}}",
			      "format", 1, "image", id, "uuid", UUID_HEX, "vm", vm,
			      "uid", "7b0c1e52-16d5-4e0e-9d0c-2b8d9a5a5f10",
			      "kind", "hibernation", "created", "2026-11-30T17:05:37.123Z",
			      "layout", "stream", "file", "memory.zst", "bytes", 8192,
			      "raw-bytes", 8192, "footer", footer,
			      "qemu", "version", "major", 10, "minor", 0, "micro", 2,
			      "run-state", "running", "ram", "bytes", 1 << 20, "disks");

	assert_non_null(m);
	return m;
}

/* A sealed image of 8192 bytes as far as header and footer go; returns the footer's checksum. */
static inline uint64_t seal_image(int fd, uint16_t major)
{
	struct image_header h = { .skip_magic = 0 };
	struct image_footer f = { .skip_magic = 0 };

	tp_put_le32(&h.skip_magic, IMAGE_SKIPPABLE);
	tp_put_le32(&h.skip_length, IMAGE_HEADER_SIZE - 8);
	memcpy(h.magic, IMAGE_HEADER_MAGIC, IMAGE_MAGIC_SIZE);
	tp_put_le16(&h.major, major);
	tp_put_le32(&h.header_size, IMAGE_HEADER_SIZE);
	tp_put_le64(&h.sealed_size, 8192);
	tp_put_le32(&f.skip_magic, IMAGE_SKIPPABLE);
	tp_put_le32(&f.skip_length, IMAGE_FOOTER_SIZE - 8);
	memcpy(f.magic, IMAGE_FOOTER_MAGIC, IMAGE_MAGIC_SIZE);
	tp_put_le64(&f.raw_bytes, 8192);
	for (uint8_t i = 0; i < 16; i++)
		h.uuid[i] = f.uuid[i] = i;
	tp_put_le64(&h.checksum, XXH64(&h, offsetof(struct image_header, checksum), 0));
	tp_put_le64(&f.checksum, XXH64(&f, offsetof(struct image_footer, checksum), 0));
	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(pwrite(fd, &f, sizeof(f), 8192 - (off_t)sizeof(f)), sizeof(f));
	return tp_le64(&f.checksum);
}

static inline bool room_for(const struct pool *p, uint64_t bytes, struct pool_shortage *shortage,
			    struct tp_error *err)
{
	struct pool_demand d = { .bytes = bytes };

	return pool_room(p, &d, shortage, err);
}

static inline int create_room(struct pool *p, const char *id, const char *mode, uint64_t bytes,
			      struct pool_shortage *shortage, struct tp_error *err)
{
	struct pool_demand d = { .vm = VM, .bytes = bytes };

	return pool_image_create(p, &d, id, mode, NULL, shortage, err);
}

/* A whole image with its manifest. */
static inline void put_image(struct pool *p, const char *vm, const char *id)
{
	struct tp_error err = TP_ERROR_INIT;
	int fd = fake_pool_image(p, vm, id, "none", 0, &err);
	char footer[17];
	json_t *m;

	assert_ok(fd >= 0, &err);
	snprintf(footer, sizeof(footer), "%016llx", (unsigned long long)seal_image(fd, 1));
	close(fd);
	m = manifest_for(vm, id, footer);
	assert_ok(pool_manifest_write(p, vm, id, m, &err), &err);
	json_decref(m);
}

#endif
