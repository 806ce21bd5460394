/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qcow2.c - Header, extensions, snapshot table and bitmap directory of a qcow2 image
 *
 * Theory of operation (QEMU's docs/interop/qcow2.txt)
 *
 * The first cluster holds the header (72 bytes in version 2, header_length in version 3), the header
 * extensions {be32 type, be32 length, data, padding to 8} up to type 0, and the backing file's name
 * at an offset of its own. The snapshot table is a row of entries of variable length, whose end only
 * a walk finds; the bitmap directory has its length in an extension. All numbers are big-endian.
 *
 * The sums are over bytes, not over meanings: whatever QEMU changes there shows. The dirty bit and
 * the autoclear bits change while a writer has the image open, so sums are comparable only if both
 * were taken with the image closed or inactive.
 */
#include "qcow2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"

#define MAGIC 0x514649fbu
#define HEADER_V2 72
#define HEADER_V3 104
#define CLUSTER_BITS_MIN 9
#define CLUSTER_BITS_MAX 21
#define EXTENSIONS_MAX 64		/* QEMU writes at most six */
#define EXT_END 0
#define EXT_BACKING_FORMAT 0xe2792acau
#define EXT_BITMAPS 0x23852875u
#define EXT_DATA_FILE 0x44415441u
#define SNAPSHOT_HEAD 40
#define SNAPSHOT_EXTRA_MAX 1024		/* QEMU's limit as well */
#define SNAPSHOT_ENTRY_MAX (SNAPSHOT_HEAD + SNAPSHOT_EXTRA_MAX + 2 * 65535 + 7)
#define READ_CHUNK 65536

/* pread that is content with less at the end of the file; -1 on error, which err names. */
static ssize_t read_some(int fd, void *buf, size_t n, uint64_t at, struct tp_error *err)
{
	size_t got = 0;

	if (at > INT64_MAX - n) {
		tp_fail(err, TP_ECORRUPT, "qcow2: offset %llu is out of range", (unsigned long long)at);
		return -1;
	}
	while (got < n) {
		ssize_t r = TEMP_FAILURE_RETRY(pread(fd, (char *)buf + got, n - got,
						     (off_t)(at + got)));

		if (r < 0) {
			tp_fail_sys(err, errno, "qcow2: read at offset %llu",
				    (unsigned long long)(at + got));
			return -1;
		}
		if (r == 0)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

static bool read_exact(int fd, void *buf, size_t n, uint64_t at, const char *what,
		       struct tp_error *err)
{
	ssize_t r = read_some(fd, buf, n, at, err);

	if (r < 0)
		return false;
	if ((size_t)r != n)
		return tp_fail(err, TP_ECORRUPT, "qcow2: the file ends inside its %s", what);
	return true;
}

bool qcow2_probe(int fd)
{
	uint8_t magic[4];
	struct tp_error ignored = TP_ERROR_INIT;

	return read_some(fd, magic, sizeof(magic), 0, &ignored) == (ssize_t)sizeof(magic) &&
	       tp_be32(magic) == MAGIC;
}

static bool copy_text(char *to, size_t max, const uint8_t *from, size_t n, const char *what,
		      struct tp_error *err)
{
	if (n > max || memchr(from, 0, n))
		return tp_fail(err, TP_ECORRUPT, "qcow2: bad %s", what);
	memcpy(to, from, n);
	to[n] = 0;
	return true;
}

static bool parse_bitmaps(struct qcow2 *q, const uint8_t *data, uint32_t n, struct tp_error *err)
{
	if (n != 24)
		return tp_fail(err, TP_ECORRUPT, "qcow2: bitmaps extension of %u bytes", n);
	q->bitmaps = tp_be32(data);
	q->bitmaps_size = tp_be64(data + 8);
	q->bitmaps_offset = tp_be64(data + 16);
	if (q->bitmaps == 0 || q->bitmaps > QCOW2_BITMAPS_MAX || q->bitmaps_size == 0 ||
	    q->bitmaps_size > QCOW2_TABLE_MAX)
		return tp_fail(err, TP_ECORRUPT, "qcow2: bitmap directory of %u bitmaps in %llu bytes",
			       q->bitmaps, (unsigned long long)q->bitmaps_size);
	return true;
}

static bool parse_extension(struct qcow2 *q, uint32_t type, const uint8_t *data, uint32_t n,
			    struct tp_error *err)
{
	switch (type) {
	case EXT_BACKING_FORMAT:
		return copy_text(q->backing_format, QCOW2_FORMAT_MAX, data, n, "backing format", err);
	case EXT_DATA_FILE:
		return copy_text(q->data_file, QCOW2_NAME_MAX, data, n, "data file name", err);
	case EXT_BITMAPS:
		return parse_bitmaps(q, data, n, err);
	default:
		return true;
	}
}

/* Extensions lie between the header and the backing file's name, or the end of the cluster. */
static bool parse_extensions(struct qcow2 *q, const uint8_t *cluster, size_t end,
			     struct tp_error *err)
{
	size_t at = q->header_length;

	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		uint32_t type, n;

		if (end - at < 8)
			return true;	/* full to the brim: no end mark is needed */
		type = tp_be32(cluster + at);
		n = tp_be32(cluster + at + 4);
		at += 8;
		if (type == EXT_END)
			return true;
		if (n > end - at)
			return tp_fail(err, TP_ECORRUPT,
				       "qcow2: header extension 0x%08x runs over its end", type);
		if (!parse_extension(q, type, cluster + at, n, err))
			return false;
		n = (n + 7) & ~7u;
		at = n > end - at ? end : at + n;
	}
	return tp_fail(err, TP_ECORRUPT, "qcow2: more than %d header extensions", EXTENSIONS_MAX);
}

/* The numbers of the header; h holds at least HEADER_V3 bytes (zero beyond the file's end). */
static bool parse_header(struct qcow2 *q, const uint8_t *h, struct tp_error *err)
{
	if (tp_be32(h) != MAGIC)
		return tp_fail(err, TP_ECORRUPT, "qcow2: no such magic at the beginning of the file");
	q->version = tp_be32(h + 4);
	if (q->version != 2 && q->version != 3)
		return tp_fail(err, TP_EUNSUPPORTED, "qcow2: version %u is not known", q->version);
	q->cluster_bits = tp_be32(h + 20);
	if (q->cluster_bits < CLUSTER_BITS_MIN || q->cluster_bits > CLUSTER_BITS_MAX)
		return tp_fail(err, TP_ECORRUPT, "qcow2: cluster size of 2^%u bytes", q->cluster_bits);
	q->virtual_size = tp_be64(h + 24);
	if (q->virtual_size > INT64_MAX)
		return tp_fail(err, TP_ECORRUPT, "qcow2: virtual size of %llu bytes",
			       (unsigned long long)q->virtual_size);
	q->snapshots = tp_be32(h + 60);
	q->snapshots_offset = tp_be64(h + 64);
	if (q->snapshots > QCOW2_SNAPSHOTS_MAX)
		return tp_fail(err, TP_ECORRUPT, "qcow2: %u snapshots", q->snapshots);
	q->header_length = HEADER_V2;
	if (q->version == 3) {
		q->incompatible = tp_be64(h + 72);
		q->compatible = tp_be64(h + 80);
		q->autoclear = tp_be64(h + 88);
		q->header_length = tp_be32(h + 100);
	}
	if (q->header_length < (q->version == 3 ? HEADER_V3 : HEADER_V2) ||
	    q->header_length > 1u << q->cluster_bits)
		return tp_fail(err, TP_ECORRUPT, "qcow2: header of %u bytes", q->header_length);
	return true;
}

static bool parse_cluster(struct qcow2 *q, const uint8_t *cluster, size_t n, struct tp_error *err)
{
	uint64_t backing_at = tp_be64(cluster + 8);
	uint32_t backing_n = tp_be32(cluster + 16);
	size_t end = n;

	if (backing_at && backing_n) {
		if (backing_n > QCOW2_NAME_MAX || backing_at < q->header_length || backing_at > n ||
		    backing_n > n - backing_at)
			return tp_fail(err, TP_ECORRUPT, "qcow2: backing file name of %u bytes at %llu",
				       backing_n, (unsigned long long)backing_at);
		if (!copy_text(q->backing, QCOW2_NAME_MAX, cluster + backing_at, backing_n,
			       "backing file name", err))
			return false;
		end = backing_at;
	}
	return parse_extensions(q, cluster, end, err);
}

bool qcow2_read(int fd, struct qcow2 *q, struct tp_error *err)
{
	struct qcow2 found = { .version = 0 };
	tp_autofree uint8_t *cluster = NULL;
	uint8_t head[HEADER_V3] = { 0 };
	ssize_t n;
	size_t size;

	n = read_some(fd, head, sizeof(head), 0, err);
	if (n < 0)
		return false;
	if (n < HEADER_V2)
		return tp_fail(err, TP_ECORRUPT, "qcow2: the file ends inside its header");
	if (!parse_header(&found, head, err))
		return false;
	size = (size_t)1 << found.cluster_bits;
	cluster = malloc(size);
	if (!cluster)
		return tp_fail_nomem(err);
	n = read_some(fd, cluster, size, 0, err);
	if (n < 0)
		return false;
	if ((size_t)n < found.header_length)
		return tp_fail(err, TP_ECORRUPT, "qcow2: the file ends inside its header");
	if (!parse_cluster(&found, cluster, (size_t)n, err))
		return false;
	*q = found;
	return true;
}

static bool hash_range(XXH64_state_t *hash, int fd, uint64_t at, uint64_t n, const char *what,
		       struct tp_error *err)
{
	tp_autofree uint8_t *buf = malloc(READ_CHUNK);

	if (!buf)
		return tp_fail_nomem(err);
	while (n) {
		size_t part = n < READ_CHUNK ? (size_t)n : READ_CHUNK;

		if (!read_exact(fd, buf, part, at, what, err))
			return false;
		XXH64_update(hash, buf, part);
		at += part;
		n -= part;
	}
	return true;
}

static bool hash_header(XXH64_state_t *hash, int fd, const struct qcow2 *q, struct tp_error *err)
{
	size_t size = (size_t)1 << q->cluster_bits;
	tp_autofree uint8_t *cluster = malloc(size);
	ssize_t n;

	if (!cluster)
		return tp_fail_nomem(err);
	n = read_some(fd, cluster, size, 0, err);
	if (n < 0)
		return false;
	XXH64_update(hash, cluster, (size_t)n);
	return true;
}

/* The length of the entry whose head is given, padded; 0 if it is out of bounds. */
static size_t snapshot_length(const uint8_t *head)
{
	uint32_t extra = tp_be32(head + 36);
	size_t n;

	if (extra > SNAPSHOT_EXTRA_MAX)
		return 0;
	n = SNAPSHOT_HEAD + extra + tp_be16(head + 12) + tp_be16(head + 14);
	return (n + 7) & ~(size_t)7;
}

static bool hash_snapshots(XXH64_state_t *hash, int fd, const struct qcow2 *q, struct tp_error *err)
{
	tp_autofree uint8_t *entry = malloc(SNAPSHOT_ENTRY_MAX);
	uint64_t at = q->snapshots_offset, total = 0;

	if (!entry)
		return tp_fail_nomem(err);
	for (uint32_t i = 0; i < q->snapshots; i++) {
		size_t n, unpadded;

		if (!read_exact(fd, entry, SNAPSHOT_HEAD, at, "snapshot table", err))
			return false;
		n = snapshot_length(entry);
		total += n;
		if (!n || total > QCOW2_TABLE_MAX)
			return tp_fail(err, TP_ECORRUPT, "qcow2: entry %u of the snapshot table is damaged",
				       i);
		/* The last entry's padding may lie beyond the end of the file. */
		unpadded = SNAPSHOT_HEAD + tp_be32(entry + 36) + tp_be16(entry + 12) +
			   tp_be16(entry + 14);
		if (!read_exact(fd, entry, unpadded, at, "snapshot table", err))
			return false;
		XXH64_update(hash, entry, unpadded);
		at += n;
	}
	return true;
}

bool qcow2_sums(int fd, const struct qcow2 *q, struct qcow2_sums *sums, struct tp_error *err)
{
	struct qcow2_sums found = { .header = 0 };
	XXH64_state_t *hash = XXH64_createState();
	bool ok = false;

	if (!hash)
		return tp_fail_nomem(err);
	XXH64_reset(hash, 0);
	if (!hash_header(hash, fd, q, err))
		goto cleanup;
	found.header = XXH64_digest(hash);
	if (q->snapshots) {
		XXH64_reset(hash, 0);
		if (!hash_snapshots(hash, fd, q, err))
			goto cleanup;
		found.snapshots = XXH64_digest(hash);
	}
	if (q->bitmaps) {
		XXH64_reset(hash, 0);
		if (!hash_range(hash, fd, q->bitmaps_offset, q->bitmaps_size, "bitmap directory", err))
			goto cleanup;
		found.bitmaps = XXH64_digest(hash);
	}
	*sums = found;
	ok = true;
cleanup:
	XXH64_freeState(hash);
	return ok;
}
