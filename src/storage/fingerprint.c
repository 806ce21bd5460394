/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fingerprint.c - What a disk's content is known by, without reading it
 *
 * Theory of operation
 *
 * A fingerprint is one object for the top file, its backing files below in `chain`, each:
 *
 *   {file, format, kind: "file"|"block",
 *    dev, ino, btime-ns, size, mtime-ns, ctime-ns	a file
 *    device: {...}				a block device (fingerprint_device.c)
 *    qcow2: {virtual-size, header, snapshots: {count, sum}, bitmaps: {count, sum}, backing, data-file}
 *    data: {...}				its external data file, a raw one
 *    missing: why | unverifiable: why}		in place of all the rest
 *
 * A file is known by its inode number and, as a removed file's number is given to the next one, by its
 * time of birth. Some file systems make inode numbers up as they go: there they are not recorded. The
 * number of the file system's device holds for one mount only, so it counts where there is nothing
 * better. The time of the last change of any kind (ctime) is for messages: chmod, chown, a hard link
 * and a rename set it, and the content stays what it was.
 *
 * The top one has `boot`, as device numbers and the kernel's counters hold within one boot only.
 * The chain ends where the next name is no file of this host: what is beyond is unverifiable.
 */
#include "fingerprint.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_text.h"
#include "fingerprint_priv.h"

#define BOOT_ID_MAX 64

static json_t *hex(uint64_t v)
{
	char text[17];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)v);
	return json_string(text);
}

/* A file's name need not be UTF-8, which JSON must; NULL gives null. */
static bool set_name(json_t *to, const char *key, const char *name)
{
	tp_autofree char *text = name ? strdup(name) : NULL;

	if (text)
		tp_text_clean(text);
	return !(name && !text) && tp_json_set_str(to, key, text);
}

static json_t *nanoseconds(const struct timespec *t)
{
	return json_integer((json_int_t)t->tv_sec * 1000000000 + t->tv_nsec);
}

static bool add_table(json_t *to, const char *key, uint32_t count, uint64_t sum)
{
	json_t *table = json_object();

	return tp_json_set(to, key, table) && tp_json_set(table, "count", json_integer(count)) &&
	       tp_json_set(table, "sum", hex(sum));
}

static bool add_qcow2(json_t *to, const struct disk_node *node, struct tp_error *err)
{
	const struct qcow2 *q = &node->qcow2;
	struct qcow2_sums sums;
	json_t *o = json_object();

	if (!tp_json_set(to, "qcow2", o))
		return tp_fail_nomem(err);
	if (!qcow2_sums(node->fd, q, &sums, err))
		return tp_prefix(err, "%s", node->file);
	if (!tp_json_set(o, "virtual-size", json_integer((json_int_t)q->virtual_size)) ||
	    !tp_json_set(o, "header", hex(sums.header)) ||
	    !add_table(o, "snapshots", q->snapshots, sums.snapshots) ||
	    !add_table(o, "bitmaps", q->bitmaps, sums.bitmaps) ||
	    !set_name(o, "backing", q->backing[0] ? q->backing : NULL) ||
	    !set_name(o, "data-file", q->data_file[0] ? q->data_file : NULL))
		return tp_fail_nomem(err);
	return true;
}

/* True also where the file system knows no such time. */
static bool add_birth(json_t *to, int fd)
{
	struct statx x;
	struct timespec t;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) != 0 || !(x.stx_mask & STATX_BTIME))
		return true;
	t = (struct timespec){ x.stx_btime.tv_sec, x.stx_btime.tv_nsec };
	return tp_json_set(to, "btime-ns", nanoseconds(&t));
}

/* vfat, exfat, FUSE, 9p, SMB: the next mount may number its files in another way. */
static bool inode_is_made_up(int fd)
{
	static const unsigned long types[] = {
		0x4d44, 0x2011bab0, 0x65735546, 0x01021997, 0xfe534d42, 0xff534d42,
	};
	struct statfs fs;

	for (size_t i = 0; fstatfs(fd, &fs) == 0 && i < TP_N(types); i++) {
		if (((unsigned long)fs.f_type & 0xffffffff) == types[i])
			return true;
	}
	return false;
}

bool fingerprint_add_file(json_t *to, int fd, const struct stat *st)
{
	return add_birth(to, fd) &&
	       tp_json_set(to, "dev", json_integer((json_int_t)st->st_dev)) &&
	       (inode_is_made_up(fd) || tp_json_set(to, "ino", json_integer((json_int_t)st->st_ino))) &&
	       tp_json_set(to, "size", json_integer((json_int_t)st->st_size)) &&
	       tp_json_set(to, "mtime-ns", nanoseconds(&st->st_mtim)) &&
	       tp_json_set(to, "ctime-ns", nanoseconds(&st->st_ctim));
}

static bool add_device(json_t *to, const struct disk_node *node)
{
	json_t *device = fingerprint_device(node);

	if (!tp_json_set(to, "kind", json_string("block")))
		return json_decref(device), false;
	return tp_json_set(to, json_is_string(device) ? "unverifiable" : "device", device);
}

/* What node says for itself: without data file and chain. */
static bool add_node(json_t *to, const struct disk_node *node, struct tp_error *err)
{
	bool ok = set_name(to, "file", node->file) && set_name(to, "format", node->format);

	switch (node->kind) {
	case DISK_MISSING:
		ok = ok && set_name(to, "missing", node->why);
		break;
	case DISK_OPAQUE:
		ok = ok && tp_json_set_str(to, "unverifiable", node->why);
		break;
	case DISK_FILE:
		ok = ok && tp_json_set(to, "kind", json_string("file")) &&
		     fingerprint_add_file(to, node->fd, &node->st);
		break;
	case DISK_BLOCK:
		ok = ok && add_device(to, node);
		break;
	}
	if (!ok)
		return tp_fail_nomem(err);
	return !node->is_qcow2 || add_qcow2(to, node, err);
}

static bool add_data_file(json_t *to, const struct disk_node *node, struct tp_error *err)
{
	TP_CLEANUP(disk_node_close) struct disk_node data = DISK_NODE_INIT;
	tp_autofree char *file = NULL;
	json_t *element;

	if (!node->is_qcow2 || !node->qcow2.data_file[0])
		return true;
	file = disk_node_resolve(node->file, node->qcow2.data_file);
	element = json_object();
	if (!tp_json_set(to, "data", element) || !file)
		return tp_fail_nomem(err);
	return disk_node_open(file, "raw", &data, err) && add_node(element, &data, err);
}

static bool add_chain(json_t *top, struct disk_node *node, struct tp_error *err)
{
	json_t *chain = json_array();

	if (!tp_json_set(top, "chain", chain))
		return tp_fail_nomem(err);
	while (node->is_qcow2 && node->qcow2.backing[0]) {
		tp_autofree char *file = disk_node_resolve(node->file, node->qcow2.backing);
		char format[QCOW2_FORMAT_MAX + 1];
		json_t *element = json_object();

		if (!file || json_array_append_new(chain, element) != 0)
			return tp_fail_nomem(err);
		if (json_array_size(chain) > FINGERPRINT_CHAIN_MAX)
			return tp_fail(err, TP_ECORRUPT,
				       "%s: backing chain of more than %d files, or a loop in it",
				       tp_json_str(top, "file"), FINGERPRINT_CHAIN_MAX);
		strcpy(format, node->qcow2.backing_format);
		disk_node_close(node);
		if (!disk_node_open(file, format, node, err) || !add_node(element, node, err) ||
		    !add_data_file(element, node, err))
			return tp_prefix(err, "backing chain of %s", tp_json_str(top, "file"));
	}
	return true;
}

json_t *fingerprint_take(const char *file, const char *format, struct tp_error *err)
{
	TP_CLEANUP(disk_node_close) struct disk_node node = DISK_NODE_INIT;
	tp_autojson json_t *top = json_object();
	tp_autofree char *boot = NULL;

	boot = tp_read_path("/proc/sys/kernel/random/boot_id", BOOT_ID_MAX, NULL, err);
	if (!boot)
		return NULL;
	boot[strcspn(boot, "\n")] = 0;
	if (!tp_json_set_str(top, "boot", boot)) {
		tp_fail_nomem(err);
		return NULL;
	}
	if (!disk_node_open(file, format, &node, err) || !add_node(top, &node, err) ||
	    !add_data_file(top, &node, err) || !add_chain(top, &node, err))
		return NULL;
	return TP_STEAL(top);
}

static bool sync_node(const struct disk_node *node, struct tp_error *err)
{
	if (node->kind == DISK_MISSING)
		return tp_fail(err, TP_ESYS, "%s: %s", node->file, node->why);
	return node->fd < 0 || tp_fsync(node->fd, node->file, err);
}

bool fingerprint_sync(const char *file, const char *format, struct tp_error *err)
{
	TP_CLEANUP(disk_node_close) struct disk_node node = DISK_NODE_INIT;
	TP_CLEANUP(disk_node_close) struct disk_node data = DISK_NODE_INIT;
	tp_autofree char *name = NULL;

	if (!disk_node_open(file, format, &node, err) || !sync_node(&node, err))
		return false;
	if (!node.is_qcow2 || !node.qcow2.data_file[0])
		return true;
	name = disk_node_resolve(node.file, node.qcow2.data_file);
	if (!name)
		return tp_fail_nomem(err);
	return disk_node_open(name, "raw", &data, err) && sync_node(&data, err);
}
