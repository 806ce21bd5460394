/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * guest_disks.c - The disks of a saved guest: which files, what they were, whether they still are
 *
 * Theory of operation. Memory holds what the guest knows of its disks, so it may only meet them again
 * as they were. At a save each disk's fingerprint goes into the manifest; a restore compares before
 * QEMU is started and once more after the load, as no lock is held in between. A difference refuses,
 * what cannot be compared is said.
 *
 * A fingerprint is of what a name leads to, and the guest's disk is what QEMU has open. Where a file was
 * replaced or removed under a running QEMU these differ, and the restored guest would meet the other one:
 * such a VM is not saved.
 *
 * NVRAM (a pflash device's file) is another matter: its content is a RAM block of the stream and is
 * written back when the guest runs. A change there refuses nothing, but it is lost, and that is said.
 */
#include "engine/guest_disks.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_proc.h"
#include "engine/launch.h"
#include "engine/steps.h"
#include "engine/vm_runtime.h"
#include "storage/fingerprint.h"

#define JSON_DEPTH 64
#define LAYERS_MAX 16			/* filters above a format */

/* --- which files --- */

static bool is_local(const char *driver)
{
	return driver && (strcmp(driver, "file") == 0 || strcmp(driver, "host_device") == 0);
}

/* QEMU's "json:{...}", where options have no other name: the file below, and the format right over it. */
static bool from_json_name(const char *name, char file[PATH_MAX], char format[32])
{
	tp_autojson json_t *options = tp_json_parse(name + 5, strlen(name + 5), JSON_DEPTH, NULL);
	const json_t *layer = options;

	for (int i = 0; layer && i < LAYERS_MAX; i++) {
		const json_t *below = json_object_get(layer, "file");
		const char *path = tp_json_str(below, "filename");

		if (is_local(tp_json_str(below, "driver")) && path) {
			snprintf(file, PATH_MAX, "%s", path);
			snprintf(format, 32, "%s", tp_json_str(layer, "driver") ? tp_json_str(layer, "driver") : "raw");
			return true;
		}
		layer = below;
	}
	return false;
}

/* A relative name begins where QEMU was started. */
static void from_relative_name(struct op *op, const char *name, char file[PATH_MAX])
{
	const struct vm_qemu *q = op_vm_of(op)->qemu;
	char link[64], cwd[PATH_MAX / 2];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/cwd", q ? (int)q->proc.pid : -1);
	n = readlink(link, cwd, sizeof(cwd) - 1);
	snprintf(file, PATH_MAX, "%.*s%s%s", n > 0 ? (int)n : 0, cwd, n > 0 ? "/" : "", name);
}

static void find_file(struct op *op, const json_t *inserted, char file[PATH_MAX], char format[32])
{
	const char *name = tp_json_str(inserted, "file"), *drv = tp_json_str(inserted, "drv");

	snprintf(format, 32, "%s", drv ? drv : "raw");
	if (strncmp(name, "json:", 5) == 0 && from_json_name(name, file, format))
		return;
	/* QEMU's rule: a colon before any slash is a protocol. */
	if (name[0] != '/' && name[strcspn(name, ":/")] != ':')
		from_relative_name(op, name, file);
	else
		snprintf(file, PATH_MAX, "%s", name);
}

static void add_disk(struct op *op, json_t *disks, const json_t *declared, const json_t *entry)
{
	const json_t *inserted = json_object_get(entry, "inserted");
	const char *node = tp_json_str(inserted, "node-name"), *device = tp_json_str(entry, "device");
	const json_t *own = node ? json_object_get(declared, node) : NULL;
	bool nvram = device && strncmp(device, "pflash", 6) == 0, ro = tp_json_bool(inserted, "ro", false);
	const struct vm_qemu *q = op_vm_of(op)->qemu;
	char file[PATH_MAX], format[32];

	/* The firmware itself: nothing is written back to it. */
	if (!tp_json_str(inserted, "file") || (nvram && ro))
		return;
	find_file(op, inserted, file, format);
	if (own) {
		snprintf(file, sizeof(file), "%s", tp_json_str(own, "file"));
		snprintf(format, sizeof(format), "%s", tp_json_str(own, "format"));
	}
	/* The manifest knows two formats; whatever else lies on a file is compared as its bytes. */
	if (strcmp(format, "qcow2") != 0)
		strcpy(format, "raw");
	tp_json_set(disks, node && *node ? node : device, json_pack("{s:s, s:s, s:b, s:b, s:I, s:I}", "file", file,
			"format", format, "read-only", ro, "nvram", nvram, "pid", q ? (json_int_t)q->proc.pid : 0,
			"start", q ? (json_int_t)q->proc.start : 0));
}

json_t *guest_disks(struct op *op, const json_t *block)
{
	tp_autojson json_t *declared = launch_disks(op_vm_of(op));
	json_t *disks = json_object(), *entry;
	size_t i;

	json_array_foreach(block, i, entry)
		add_disk(op, disks, declared, entry);
	return disks;
}

/* --- what they were --- */

static void note(json_t *out, const char *what, const char *node, const char *file, const char *why)
{
	json_array_append_new(json_object_get(out, "notes"), json_sprintf("%s %s (%s): whether it changes until the "
			      "restore will not be seen: %s", what, node, file, why));
}

static bool take_nvram(json_t *out, const char *node, const json_t *disk)
{
	struct tp_error why = TP_ERROR_INIT;
	const char *file = tp_json_str(disk, "file");
	json_t *print = fingerprint_take(file, tp_json_str(disk, "format"), &why);

	if (print && !json_object_get(print, "missing"))
		return tp_json_set(json_object_get(out, "nvram"), node, print);
	note(out, "NVRAM", node, file, print ? tp_json_str(print, "missing") : why.text);
	json_decref(print);
	return true;
}

static bool is_file(int dir, const char *name, const json_t *print)
{
	struct stat st;

	return fstatat(dir, name, &st, 0) == 0 && (json_int_t)st.st_dev == tp_json_int(print, "dev", -1) &&
	       (json_int_t)st.st_ino == tp_json_int(print, "ino", -1);
}

/* Whether the process of the disk has the file open; true also where that cannot be seen. */
static bool has_open(const json_t *disk, const json_t *print)
{
	pid_t pid = (pid_t)tp_json_int(disk, "pid", 0);
	bool found = false;
	uint64_t start;
	struct dirent *e;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	if (!pid || !tp_proc_start(pid, &start) || start != (uint64_t)tp_json_int(disk, "start", 0) ||
	    !(dir = opendir(path)))
		return true;
	while (!found && (e = readdir(dir)))
		found = e->d_name[0] != '.' && is_file(dirfd(dir), e->d_name, print);
	closedir(dir);
	return found;
}

static bool check_open(const json_t *disk, const json_t *print, struct tp_error *err)
{
	const char *file = tp_json_str(disk, "file");
	bool missing = json_object_get(print, "missing");

	/* Of devices, and where inode numbers are made up, a name has no such proof. */
	if (!missing && (tp_json_bool(disk, "read-only", false) || !json_object_get(print, "ino") ||
			 has_open(disk, print)))
		return true;
	return tp_fail_class(err, TP_ESTATE, "InvalidState", "%s is %s the file that QEMU has open: put that one back "
			     "in its place, or the guest would be restored with another disk", file,
			     missing ? "gone, and was" : "not");
}

static bool take_disk(json_t *out, const char *node, const json_t *disk, struct tp_error *err)
{
	const char *file = tp_json_str(disk, "file"), *format = tp_json_str(disk, "format");
	struct fingerprint_change c;
	json_t *print;

	if (!tp_json_bool(disk, "read-only", false) && !fingerprint_sync(file, format, err))
		return false;
	print = fingerprint_take(file, format, err);
	if (!print || !tp_json_set(json_object_get(out, "disks"), node, print))
		return tp_fail_nomem(err);	/* an error already set is kept */
	if (!check_open(disk, print, err))
		return false;
	fingerprint_compare(print, print, &c);
	if (c.verdict == FINGERPRINT_UNPROVEN)
		note(out, "disk", node, file, c.detail);
	return true;
}

bool guest_disks_take(struct job *j, struct tp_error *err)
{
	const char *node;
	json_t *disk;

	j->out = json_pack("{s:{}, s:{}, s:[]}", "disks", "nvram", "notes");
	json_object_foreach(j->in, node, disk) {
		bool ok = tp_json_bool(disk, "nvram", false) ? take_nvram(j->out, node, disk) || tp_fail_nomem(err) :
			  take_disk(j->out, node, disk, err);

		if (!ok)
			return tp_prefix(err, "disk %s", node);
	}
	return true;
}

/* --- whether they still are --- */

static bool add_change(json_t *list, const char *node, const json_t *recorded, const struct fingerprint_change *c)
{
	return json_array_append_new(list, fingerprint_change_json(node, tp_json_str(recorded, "file"), c)) == 0;
}

static bool compare_disk(json_t *out, const char *node, const json_t *recorded, const json_t *declared)
{
	struct fingerprint_change c;

	fingerprint_check(recorded, tp_json_str(json_object_get(declared, node), "file"), &c, NULL);
	return c.verdict == FINGERPRINT_EQUAL ||
	       add_change(json_object_get(out, c.verdict == FINGERPRINT_DIFFERENT ? "stale" : "unproven"), node,
			  recorded, &c);
}

static bool compare_nvram(json_t *out, const char *node, const json_t *recorded)
{
	struct fingerprint_change c;

	fingerprint_check(recorded, NULL, &c, NULL);
	return c.verdict != FINGERPRINT_DIFFERENT || add_change(json_object_get(out, "nvram"), node, recorded, &c);
}

json_t *guest_disks_compare(const json_t *manifest, const json_t *declared)
{
	tp_autojson json_t *out = json_pack("{s:[], s:[], s:[]}", "stale", "unproven", "nvram");
	const char *node;
	json_t *recorded;

	json_object_foreach(json_object_get(manifest, "disks"), node, recorded) {
		if (!compare_disk(out, node, recorded, declared))
			return NULL;
	}
	json_object_foreach(json_object_get(manifest, "nvram"), node, recorded) {
		if (!compare_nvram(out, node, recorded))
			return NULL;
	}
	return TP_STEAL(out);
}

bool guest_disks_retake(json_t *manifest, bool *changed, json_t *changes, struct tp_error *err)
{
	json_t *disks = json_object_get(manifest, "disks"), *recorded;
	const char *node;
	void *tmp;

	*changed = false;
	json_object_foreach_safe(disks, tmp, node, recorded) {
		json_t *now = fingerprint_take(tp_json_str(recorded, "file"), tp_json_str(recorded, "format"), err);
		struct fingerprint_change c;

		if (!now)
			return tp_prefix(err, "disk %s", node);
		fingerprint_compare(recorded, now, &c);
		if (c.verdict != FINGERPRINT_DIFFERENT) {
			json_decref(now);
			continue;
		}
		if (changes)
			json_array_append_new(changes, json_sprintf("disk %s changed while QEMU was ending (%s): its "
								    "new state was recorded", node, c.detail));
		*changed = true;
		if (!tp_json_set(disks, node, now))
			return tp_fail_nomem(err);
	}
	return true;
}
