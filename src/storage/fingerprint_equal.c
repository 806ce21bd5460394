/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fingerprint_equal.c - How two fingerprints of a disk differ, in words
 *
 * From the most telling to the least: a snapshot also changes the modification time, but a person
 * is helped by hearing of the snapshot.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/tp_buf.h"
#include "base/tp_json.h"
#include "fingerprint.h"
#include "fingerprint_device.h"

#define WORDS_MAX 4096
#define MOMENT_TEXT 40

static bool differs(const json_t *a, const json_t *b, const char *key)
{
	const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);

	return x != y && !(x && y && json_equal(x, y));
}

/* With nanoseconds: two writes may be less than a millisecond apart. */
static const char *moment(const json_t *o, const char *key, char buf[MOMENT_TEXT])
{
	int64_t ns = tp_json_int(o, key, 0);
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	size_t n = 0;

	if (ns >= 0 && gmtime_r(&seconds, &tm))
		n = strftime(buf, MOMENT_TEXT, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, MOMENT_TEXT - n, ".%09dZ", (int)(ns >= 0 ? ns % 1000000000 : 0));
	return buf;
}

static const char *name_or_none(const json_t *o, const char *key)
{
	const char *name = tp_json_str(o, key);

	return name ? name : "none";
}

static bool table_equal(const json_t *recorded, const json_t *present, const char *key,
			const char *verb, struct tp_buf *how)
{
	const json_t *a = json_object_get(recorded, key), *b = json_object_get(present, key);

	if (!differs(recorded, present, key))
		return true;
	tp_buf_printf(how, "%s: %lld %s, were %lld", verb, (long long)tp_json_int(b, "count", 0), key,
		      (long long)tp_json_int(a, "count", 0));
	return false;
}

static bool qcow2_equal(const json_t *recorded, const json_t *present, struct tp_buf *how)
{
	if (differs(recorded, present, "virtual-size")) {
		tp_buf_printf(how, "resized: virtual size %lld bytes, was %lld",
			      (long long)tp_json_int(present, "virtual-size", 0),
			      (long long)tp_json_int(recorded, "virtual-size", 0));
		return false;
	}
	if (!table_equal(recorded, present, "snapshots", "snapshotted", how) ||
	    !table_equal(recorded, present, "bitmaps", "bitmap directory changed", how))
		return false;
	if (differs(recorded, present, "backing")) {
		tp_buf_printf(how, "rebased: backing file %s, was %s", name_or_none(present, "backing"),
			      name_or_none(recorded, "backing"));
		return false;
	}
	if (differs(recorded, present, "data-file")) {
		tp_buf_printf(how, "other external data file: %s, was %s",
			      name_or_none(present, "data-file"), name_or_none(recorded, "data-file"));
		return false;
	}
	if (differs(recorded, present, "header")) {
		tp_buf_adds(how, "qcow2 header changed");
		return false;
	}
	return true;
}

/* On a file system without a device (NFS, btrfs, tmpfs) each mount has another number. */
static bool numbered(const json_t *print)
{
	return major((dev_t)tp_json_int(print, "dev", 0)) != 0;
}

static bool identity_equal(const json_t *recorded, const json_t *present, bool same_boot,
			   struct tp_buf *how)
{
	char now[MOMENT_TEXT], then[MOMENT_TEXT];

	if (differs(recorded, present, "kind")) {
		tp_buf_printf(how, "another kind of file: %s, was %s", name_or_none(present, "kind"),
			      name_or_none(recorded, "kind"));
		return false;
	}
	if (differs(recorded, present, "ino")) {
		tp_buf_printf(how, "replaced by another file: inode %lld, was %lld",
			      (long long)tp_json_int(present, "ino", 0),
			      (long long)tp_json_int(recorded, "ino", 0));
		return false;
	}
	if (json_object_get(recorded, "btime-ns") && json_object_get(present, "btime-ns") &&
	    differs(recorded, present, "btime-ns")) {
		tp_buf_printf(how, "replaced by another file: made %s, was %s",
			      moment(present, "btime-ns", now), moment(recorded, "btime-ns", then));
		return false;
	}
	if (same_boot && numbered(recorded) && numbered(present) &&
	    differs(recorded, present, "dev")) {
		tp_buf_adds(how, "replaced by a file of another file system");
		return false;
	}
	if (differs(recorded, present, "format")) {
		tp_buf_printf(how, "another format: %s, was %s", name_or_none(present, "format"),
			      name_or_none(recorded, "format"));
		return false;
	}
	return true;
}

static bool times_equal(const json_t *recorded, const json_t *present, struct tp_buf *how)
{
	char now[MOMENT_TEXT], then[MOMENT_TEXT], changed[MOMENT_TEXT];

	if (!json_object_get(recorded, "qcow2") && differs(recorded, present, "size")) {
		tp_buf_printf(how, "resized: %lld bytes, were %lld",
			      (long long)tp_json_int(present, "size", 0),
			      (long long)tp_json_int(recorded, "size", 0));
		return false;
	}
	if (!differs(recorded, present, "mtime-ns") && !differs(recorded, present, "size"))
		return true;
	tp_buf_printf(how, "written since: modification time %s, was %s; last change of any kind %s",
		      moment(present, "mtime-ns", now), moment(recorded, "mtime-ns", then),
		      moment(present, "ctime-ns", changed));
	return false;
}

/* One file, without data file and chain. */
static bool node_equal(const json_t *recorded, const json_t *present, bool same_boot,
		       struct tp_buf *how)
{
	const char *missing = tp_json_str(present, "missing");
	const char *unverifiable = tp_json_str(present, "unverifiable");

	if (!json_is_object(recorded) || !json_is_object(present)) {
		tp_buf_adds(how, "fingerprint is damaged");
		return false;
	}
	if (missing) {
		tp_buf_printf(how, "missing: %s", missing);
		return false;
	}
	if (json_object_get(recorded, "unverifiable"))
		return true;
	if (unverifiable) {
		tp_buf_printf(how, "can no longer be verified: %s", unverifiable);
		return false;
	}
	return identity_equal(recorded, present, same_boot, how) &&
	       qcow2_equal(json_object_get(recorded, "qcow2"), json_object_get(present, "qcow2"),
			   how) &&
	       times_equal(recorded, present, how) &&
	       fingerprint_device_equal(json_object_get(recorded, "device"),
					json_object_get(present, "device"), same_boot, how);
}

/* One file and its external data file. */
static bool file_equal(const json_t *recorded, const json_t *present, bool same_boot,
		       struct tp_buf *how)
{
	const json_t *a = json_object_get(recorded, "data"), *b = json_object_get(present, "data");
	tp_autobuf struct tp_buf words = TP_BUF_INIT(WORDS_MAX);

	if (!node_equal(recorded, present, same_boot, how))
		return false;
	if ((!a && !b) || node_equal(a, b, same_boot, &words))
		return true;
	tp_buf_printf(how, "external data file %s changed: %s", name_or_none(b ? b : a, "file"),
		      words.data ? words.data : "");
	return false;
}

static bool chain_equal(const json_t *recorded, const json_t *present, bool same_boot,
			struct tp_buf *how)
{
	const json_t *a = json_object_get(recorded, "chain"), *b = json_object_get(present, "chain");
	size_t n = json_array_size(a), m = json_array_size(b);

	for (size_t i = 0; i < n && i < m; i++) {
		const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
		tp_autobuf struct tp_buf words = TP_BUF_INIT(WORDS_MAX);

		if (file_equal(x, y, same_boot, &words))
			continue;
		tp_buf_printf(how, "backing file %s changed: %s", name_or_none(y, "file"),
			      words.data ? words.data : "");
		return false;
	}
	if (n == m)
		return true;
	tp_buf_printf(how, "rebased: %zu backing files, were %zu", m, n);
	return false;
}

bool fingerprint_equal(const json_t *recorded, const json_t *present, char **how)
{
	const char *boot = tp_json_str(recorded, "boot"), *now = tp_json_str(present, "boot");
	bool same_boot = boot && now && strcmp(boot, now) == 0;
	tp_autobuf struct tp_buf words = TP_BUF_INIT(WORDS_MAX);

	if (file_equal(recorded, present, same_boot, &words) &&
	    chain_equal(recorded, present, same_boot, &words))
		return true;
	if (how)
		*how = words.data ? tp_buf_steal(&words) : strdup("changed");
	return false;
}
