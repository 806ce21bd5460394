/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_journal.c - op.log: records of the operation that holds a VM
 *
 * Theory of operation. A line is "XXXXXXXX {json}\n", the CRC32 of the JSON first. A reader stops at
 * the first line that is not whole; so nothing may ever follow a torn one: an append that could not
 * be written completely is cut off again. The last part of the room is kept for the records that
 * decide (commit, back, end, ...): resources noted in a long operation cannot use it up.
 */
#include "engine/op_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_time.h"

#define FILE_NAME "op.log"
#define READ_MAX (1u << 20)
#define KEPT_ROOM (12u << 10)	/* not for `enter` and `note` */
#define CRC_TEXT 9		/* "XXXXXXXX " */
#define DEPTH_MAX 64

/* CRC-32 as in zlib, four bits at a time. */
static uint32_t crc32_of(const char *text, size_t n)
{
	static const uint32_t table[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
		0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
		0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < n; i++) {
		crc ^= (unsigned char)text[i];
		crc = (crc >> 4) ^ table[crc & 15];
		crc = (crc >> 4) ^ table[crc & 15];
	}
	return ~crc;
}

int op_journal_begin(int dirfd, struct tp_error *err)
{
	bool fresh = faccessat(dirfd, FILE_NAME, F_OK, 0) != 0;
	tp_autoclose int fd = tp_openat(dirfd, FILE_NAME, O_RDWR | O_CREAT | O_APPEND, 0600, err);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, 0) != 0)
		return tp_fail_sys(err, errno, "empty the journal"), -1;
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, OP_JOURNAL_ROOM) != 0 && errno != EOPNOTSUPP) {
		if (errno == ENOSPC || errno == EDQUOT)
			tp_fail_class(err, TP_ESYS, "InsufficientSpace",
				      "no room for the journal (%u bytes in the state directory): %s",
				      OP_JOURNAL_ROOM, strerror(errno));
		else
			tp_fail_sys(err, errno, "make room for the journal");
		return -1;
	}
	/* A synced record is worth nothing in a file whose name the disk does not have. */
	if (fresh && !tp_fsync(dirfd, "the VM's state folder", err))
		return -1;
	return TP_STEAL_FD(fd);
}

static bool make_line(struct tp_buf *line, const char *record, const json_t *fields,
		      struct tp_error *err)
{
	tp_autojson json_t *object = json_pack("{s:s}", "record", record);
	tp_autofree char *text = NULL;

	if (!object || (fields && json_object_update_missing(object, (json_t *)(uintptr_t)fields)))
		return tp_fail_nomem(err);
	text = json_dumps(object, JSON_COMPACT);
	if (!text || !tp_buf_printf(line, "%08x %s\n", crc32_of(text, strlen(text)), text))
		return tp_fail_nomem(err);
	return true;
}

bool op_journal_append(int fd, const char *record, const json_t *fields, struct tp_error *err)
{
	tp_autobuf struct tp_buf line = TP_BUF_INIT(0);
	bool minor = strcmp(record, "enter") == 0 || strcmp(record, "note") == 0;
	size_t room = OP_JOURNAL_ROOM - (minor ? KEPT_ROOM : 0);
	off_t end = lseek(fd, 0, SEEK_END);
	ssize_t n;
	int sys;

	if (end < 0)
		return tp_fail_sys(err, errno, "append to the journal");
	if (!make_line(&line, record, fields, err))
		return false;
	if ((size_t)end > room || line.len > room - (size_t)end)
		return tp_fail(err, TP_ELIMIT, "the journal has no room for a record (%s, %zu bytes)",
			       record, line.len);
	do {
		n = write(fd, line.data, line.len);
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)line.len)
		return true;
	sys = n < 0 ? errno : ENOSPC;
	if (n > 0 && ftruncate(fd, end) != 0)
		return tp_fail_sys(err, errno, "cut a torn record off the journal");
	return tp_fail_sys(err, sys, "append to the journal");
}

bool op_journal_sync(int fd, struct tp_error *err)
{
	if (fdatasync(fd) != 0)
		return tp_fail_sys(err, errno, "sync the journal");
	return true;
}

bool op_journal_clear(int fd, struct tp_error *err)
{
	if (ftruncate(fd, 0) != 0)
		return tp_fail_sys(err, errno, "empty the journal");
	return true;
}

/* One line of n bytes without its newline; NULL: not whole. */
static json_t *parse_line(const char *line, size_t n)
{
	char want[CRC_TEXT + 1];
	json_t *object;

	if (n <= CRC_TEXT)
		return NULL;
	snprintf(want, sizeof(want), "%08x ", crc32_of(line + CRC_TEXT, n - CRC_TEXT));
	if (memcmp(line, want, CRC_TEXT) != 0)
		return NULL;
	object = tp_json_parse(line + CRC_TEXT, n - CRC_TEXT, DEPTH_MAX, NULL);
	if (tp_json_str(object, "record"))
		return object;
	json_decref(object);
	return NULL;
}

json_t *op_journal_read(int dirfd, size_t *torn, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autojson json_t *records = json_array();
	tp_autofree char *text = NULL;
	size_t n = 0, at = 0;

	*torn = 0;
	if (!records)
		return tp_fail_nomem(err), NULL;
	text = tp_read_file(dirfd, FILE_NAME, READ_MAX, &n, &why);
	if (!text) {
		if (why.sys == ENOENT)
			return TP_STEAL(records);
		if (err && err->code == TP_OK)
			*err = why;
		return NULL;
	}
	while (at < n) {
		const char *end = memchr(text + at, '\n', n - at);
		json_t *record = end ? parse_line(text + at, (size_t)(end - text) - at) : NULL;

		if (!record)
			break;
		if (json_array_append_new(records, record) != 0)
			return tp_fail_nomem(err), NULL;
		at = (size_t)(end - text) + 1;
	}
	*torn = n - at;
	return TP_STEAL(records);
}

bool op_journal_blank(int dirfd, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	size_t n = 0, zeros = 0;
	tp_autofree char *text = tp_read_file(dirfd, FILE_NAME, READ_MAX, &n, &why);

	if (!text && why.sys != ENOENT && err && err->code == TP_OK)
		*err = why;
	if (!text)
		return why.sys == ENOENT;
	while (zeros < n && !text[zeros])
		zeros++;
	return zeros == n;
}

bool op_journal_drop(int dirfd, struct tp_error *err)
{
	tp_autoclose int fd = tp_openat(dirfd, FILE_NAME, O_RDWR, 0, err);

	return fd >= 0 && op_journal_clear(fd, err);
}

bool op_journal_decides(int dirfd)
{
	struct tp_error ignored = TP_ERROR_INIT;
	size_t n = 0;
	tp_autofree char *text = tp_read_file(dirfd, FILE_NAME, READ_MAX, &n, &ignored);
	bool found = false;

	for (size_t at = 0; text && at < n && !found;) {
		const char *end = memchr(text + at, '\n', n - at);
		size_t length = (end ? (size_t)(end - text) : n) - at;
		json_t *record = parse_line(text + at, length);

		found = record && strcmp(tp_json_str(record, "record"), "commit") == 0;
		json_decref(record);
		at += length + 1;
	}
	return found;
}

bool op_journal_set_aside(int dirfd, struct tp_error *err)
{
	char name[sizeof(FILE_NAME) + 8 + TP_TIME_TEXT], stamp[TP_TIME_TEXT];

	snprintf(name, sizeof(name), FILE_NAME ".bad-%s", tp_time_stamp(tp_now_us(), stamp));
	if (renameat(dirfd, FILE_NAME, dirfd, name) != 0)
		return tp_fail_sys(err, errno, "set the journal aside as %s", name);
	return tp_fsync(dirfd, "the VM's state folder", err);
}

int op_journal_reopen(int dirfd, struct tp_error *err)
{
	size_t torn = 0;
	tp_autojson json_t *records = op_journal_read(dirfd, &torn, err);
	tp_autoclose int fd = -1;
	off_t end;

	if (!records)
		return -1;
	fd = tp_openat(dirfd, FILE_NAME, O_RDWR | O_APPEND, 0600, err);
	if (fd < 0)
		return -1;
	end = lseek(fd, 0, SEEK_END);
	if (end < 0 || (torn && ftruncate(fd, end - (off_t)torn) != 0))
		return tp_fail_sys(err, errno, "cut the journal's torn end"), -1;
	return TP_STEAL_FD(fd);
}
