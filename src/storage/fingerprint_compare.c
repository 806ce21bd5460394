/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fingerprint_compare.c - How two fingerprints of a disk differ, in a word and in words
 *
 * From the most telling to the least: a snapshot also changes the modification time, but a person
 * is helped by hearing of the snapshot. The first difference ends the search; what cannot be
 * compared does not, as a difference may come behind it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/tp_json.h"
#include "base/tp_text.h"
#include "fingerprint_priv.h"

#define MOMENT_TEXT 40

/* ---- verdicts ---- */

/* A name from a manifest may hold anything, and a text that is cut may end inside a character. */
__attribute__((format(printf, 2, 0)))
static void set_detail(struct fingerprint_change *c, const char *fmt, va_list args)
{
	vsnprintf(c->detail, sizeof(c->detail), fmt, args);
	tp_text_clean(c->detail);
}

bool fingerprint_changed(struct fingerprint_change *c, const char *how, const char *fmt, ...)
{
	va_list args;

	c->verdict = FINGERPRINT_DIFFERENT;
	c->how = how;
	va_start(args, fmt);
	set_detail(c, fmt, args);
	va_end(args);
	return false;
}

bool fingerprint_unproven(struct fingerprint_change *c, const char *fmt, ...)
{
	va_list args;

	if (c->verdict != FINGERPRINT_EQUAL)
		return true;
	c->verdict = FINGERPRINT_UNPROVEN;
	c->how = "unverifiable";
	va_start(args, fmt);
	set_detail(c, fmt, args);
	va_end(args);
	return true;
}

/* ---- values ---- */

/* Also where only one has it. */
static bool differs(const json_t *a, const json_t *b, const char *key)
{
	const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);

	return x != y && !(x && y && json_equal(x, y));
}

bool fingerprint_differs(const json_t *recorded, const json_t *present, const char *key)
{
	return json_object_get(recorded, key) && json_object_get(present, key) &&
	       differs(recorded, present, key);
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

const char *fingerprint_text(const json_t *o, const char *key)
{
	const char *name = tp_json_str(o, key);

	return name ? name : "none";
}

/* ---- qcow2 ---- */

static bool same_table(const json_t *recorded, const json_t *present, const char *key,
		       const char *how, const char *verb, struct fingerprint_change *c)
{
	const json_t *a = json_object_get(recorded, key), *b = json_object_get(present, key);

	return !differs(recorded, present, key) ||
	       fingerprint_changed(c, how, "%s: %lld %s, were %lld", verb,
				   (long long)tp_json_int(b, "count", 0), key,
				   (long long)tp_json_int(a, "count", 0));
}

static bool same_qcow2(const json_t *recorded, const json_t *present, struct fingerprint_change *c)
{
	if (differs(recorded, present, "virtual-size"))
		return fingerprint_changed(c, "resized", "resized: virtual size %lld bytes, was %lld",
					   (long long)tp_json_int(present, "virtual-size", 0),
					   (long long)tp_json_int(recorded, "virtual-size", 0));
	if (!same_table(recorded, present, "snapshots", "snapshotted", "snapshotted", c) ||
	    !same_table(recorded, present, "bitmaps", "bitmap", "bitmap directory changed", c))
		return false;
	if (differs(recorded, present, "backing"))
		return fingerprint_changed(c, "rebased", "rebased: backing file %s, was %s",
					   fingerprint_text(present, "backing"),
					   fingerprint_text(recorded, "backing"));
	if (differs(recorded, present, "data-file"))
		return fingerprint_changed(c, "data-file", "other external data file: %s, was %s",
					   fingerprint_text(present, "data-file"),
					   fingerprint_text(recorded, "data-file"));
	return !differs(recorded, present, "header") ||
	       fingerprint_changed(c, "written", "qcow2 header changed");
}

/* ---- files ---- */

/* On a file system without a device (NFS, btrfs, tmpfs) each mount has another number. */
static bool numbered(const json_t *print)
{
	return major((dev_t)tp_json_int(print, "dev", 0)) != 0;
}

/* A file brought back from a backup has the times of the former one, which puzzles who looks. */
static const char *copy_hint(const json_t *recorded, const json_t *present)
{
	return differs(recorded, present, "size") || differs(recorded, present, "mtime-ns") ? "" :
	       " (of the same length and modification time, as a copy has)";
}

bool fingerprint_same_file(const json_t *recorded, const json_t *present, bool same_boot,
			   struct fingerprint_change *c)
{
	bool born = json_object_get(recorded, "btime-ns") && json_object_get(present, "btime-ns");
	char now[MOMENT_TEXT], then[MOMENT_TEXT];

	if (fingerprint_differs(recorded, present, "ino"))
		return fingerprint_changed(c, "replaced", "replaced by another file: inode %lld, was %lld%s",
					   (long long)tp_json_int(present, "ino", 0),
					   (long long)tp_json_int(recorded, "ino", 0),
					   copy_hint(recorded, present));
	if (born && differs(recorded, present, "btime-ns"))
		return fingerprint_changed(c, "replaced", "replaced by another file: made %s, was %s%s",
					   moment(present, "btime-ns", now),
					   moment(recorded, "btime-ns", then), copy_hint(recorded, present));
	if (!born && same_boot && numbered(recorded) && numbered(present) &&
	    differs(recorded, present, "dev"))
		return fingerprint_changed(c, "replaced", "replaced by a file of another file system");
	return true;
}

bool fingerprint_same_times(const json_t *recorded, const json_t *present,
			    struct fingerprint_change *c)
{
	char now[MOMENT_TEXT], then[MOMENT_TEXT], changed[MOMENT_TEXT];

	if (differs(recorded, present, "mtime-ns"))
		return fingerprint_changed(c, "written", "written since: modification time %s, was %s; "
					   "last change of any kind %s", moment(present, "mtime-ns", now),
					   moment(recorded, "mtime-ns", then),
					   moment(present, "ctime-ns", changed));
	return !differs(recorded, present, "size") ||
	       fingerprint_changed(c, "written", "written since: %lld bytes long, was %lld",
				   (long long)tp_json_int(present, "size", 0),
				   (long long)tp_json_int(recorded, "size", 0));
}

/* The length of a qcow2 file says nothing of the disk in it; that of a raw one is the disk's. */
static bool same_length(const json_t *recorded, const json_t *present, struct fingerprint_change *c)
{
	if (json_object_get(recorded, "qcow2") || !differs(recorded, present, "size"))
		return true;
	return fingerprint_changed(c, "resized", "resized: %lld bytes, were %lld",
				   (long long)tp_json_int(present, "size", 0),
				   (long long)tp_json_int(recorded, "size", 0));
}

static bool same_kind(const json_t *recorded, const json_t *present, struct fingerprint_change *c)
{
	if (differs(recorded, present, "kind"))
		return fingerprint_changed(c, "replaced", "another kind of file: %s, was %s",
					   fingerprint_text(present, "kind"),
					   fingerprint_text(recorded, "kind"));
	return !differs(recorded, present, "format") ||
	       fingerprint_changed(c, "replaced", "another format: %s, was %s",
				   fingerprint_text(present, "format"), fingerprint_text(recorded, "format"));
}

/* One file, without data file and chain. */
static bool same_node(const json_t *recorded, const json_t *present, bool same_boot,
		      struct fingerprint_change *c)
{
	const char *missing = tp_json_str(present, "missing");
	const char *now = tp_json_str(present, "unverifiable");

	if (!json_is_object(recorded) || !json_is_object(present))
		return fingerprint_changed(c, "unverifiable", "its fingerprint is damaged");
	if (missing)
		return fingerprint_changed(c, "missing", "missing: %s", missing);
	if (json_object_get(recorded, "unverifiable"))
		return fingerprint_unproven(c, "%s", fingerprint_text(recorded, "unverifiable"));
	if (now)
		return fingerprint_changed(c, "unverifiable", "can no longer be verified: %s", now);
	return same_kind(recorded, present, c) &&
	       fingerprint_same_file(recorded, present, same_boot, c) &&
	       same_qcow2(json_object_get(recorded, "qcow2"), json_object_get(present, "qcow2"), c) &&
	       same_length(recorded, present, c) && fingerprint_same_times(recorded, present, c) &&
	       fingerprint_same_device(json_object_get(recorded, "device"),
				       json_object_get(present, "device"), same_boot, c);
}

/* ---- what belongs to the file ---- */

/* Puts what became of a part into what is said of the disk. */
static bool part_changed(struct fingerprint_change *c, const char *how, const char *what,
			 const json_t *part, const struct fingerprint_change *of)
{
	fingerprint_changed(c, how, "%s %s changed: %s", what, fingerprint_text(part, "file"), of->detail);
	c->part_how = of->how;
	snprintf(c->part_file, sizeof(c->part_file), "%s", fingerprint_text(part, "file"));
	tp_text_clean(c->part_file);
	return false;
}

static bool part_unproven(struct fingerprint_change *c, const char *what, const json_t *part,
			  const struct fingerprint_change *of)
{
	return of->verdict == FINGERPRINT_EQUAL ||
	       fingerprint_unproven(c, "%s %s: %s", what, fingerprint_text(part, "file"), of->detail);
}

/* One file and its external data file. */
static bool same_file_and_data(const json_t *recorded, const json_t *present, bool same_boot,
			       struct fingerprint_change *c)
{
	const json_t *a = json_object_get(recorded, "data"), *b = json_object_get(present, "data");
	struct fingerprint_change of = { .verdict = FINGERPRINT_EQUAL };

	if (!same_node(recorded, present, same_boot, c))
		return false;
	if (!a && !b)
		return true;
	if (!same_node(a, b, same_boot, &of))
		return part_changed(c, "data-file", "external data file", b ? b : a, &of);
	return part_unproven(c, "external data file", b, &of);
}

static bool same_chain(const json_t *recorded, const json_t *present, bool same_boot,
		       struct fingerprint_change *c)
{
	const json_t *a = json_object_get(recorded, "chain"), *b = json_object_get(present, "chain");
	size_t n = json_array_size(a), m = json_array_size(b);

	for (size_t i = 0; i < n && i < m; i++) {
		const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
		struct fingerprint_change of = { .verdict = FINGERPRINT_EQUAL };

		if (!same_file_and_data(x, y, same_boot, &of))
			return part_changed(c, "chain", "backing file", y, &of);
		part_unproven(c, "backing file", y, &of);
	}
	return n == m || fingerprint_changed(c, "rebased", "rebased: %zu backing files, were %zu", m, n);
}

void fingerprint_compare(const json_t *recorded, const json_t *present, struct fingerprint_change *c)
{
	const char *boot = tp_json_str(recorded, "boot"), *now = tp_json_str(present, "boot");
	bool same_boot = boot && now && strcmp(boot, now) == 0;

	*c = (struct fingerprint_change){ .verdict = FINGERPRINT_EQUAL };
	if (same_file_and_data(recorded, present, same_boot, c))
		same_chain(recorded, present, same_boot, c);
}

/* ---- of a recorded disk ---- */

static void cannot_take(struct fingerprint_change *c, const struct tp_error *why)
{
	if (why->code == TP_ECORRUPT)
		fingerprint_changed(c, "written", "damaged since: %s", why->text);
	else
		fingerprint_changed(c, "unverifiable", "it cannot be examined: %s", why->text);
}

/* The disk that is no longer at its place is whole elsewhere. */
static void look_elsewhere(const json_t *recorded, const char *file, struct fingerprint_change *c)
{
	struct tp_error ignored = TP_ERROR_INIT;
	tp_autojson json_t *there = fingerprint_take(file, tp_json_str(recorded, "format"), &ignored);
	struct fingerprint_change of;

	if (!there)
		return;
	fingerprint_compare(recorded, there, &of);
	if (of.verdict != FINGERPRINT_DIFFERENT)
		fingerprint_changed(c, "moved", "moved: it is %s now, unchanged; move it back to %s, or "
				    "make a symbolic link there",
				    file, fingerprint_text(recorded, "file"));
}

void fingerprint_check(const json_t *recorded, const char *present_file, struct fingerprint_change *c,
		       json_t **now)
{
	const char *file = tp_json_str(recorded, "file");
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *present = NULL;

	*c = (struct fingerprint_change){ .verdict = FINGERPRINT_EQUAL };
	if (!file) {
		fingerprint_changed(c, "unverifiable", "its fingerprint is damaged");
		return;
	}
	present = fingerprint_take(file, tp_json_str(recorded, "format"), &err);
	if (present)
		fingerprint_compare(recorded, present, c);
	else
		cannot_take(c, &err);
	if (c->how && strcmp(c->how, "missing") == 0 && present_file && strcmp(present_file, file) != 0)
		look_elsewhere(recorded, present_file, c);
	if (now)
		*now = TP_STEAL(present);
}

json_t *fingerprint_change_json(const char *disk, const char *file, const struct fingerprint_change *c)
{
	json_t *o = json_pack("{s:s, s:s?, s:s?, s:s}", "disk", disk, "file", file, "how", c->how, "detail",
			      c->detail);

	if (o && c->part_how &&
	    !tp_json_set(o, "part", json_pack("{s:s, s:s}", "file", c->part_file, "how", c->part_how))) {
		json_decref(o);
		return NULL;
	}
	return o;
}
