/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fingerprint_device.c - What a block device's content is known by
 *
 * Theory of operation
 *
 * A block device has no modification time. Within one boot three numbers of the kernel are as good:
 * diskseq (a new one for each attached disk) and the counts of sectors written and discarded. Across
 * a reboot, or where the device was detached and came back, there are the serial number, the size and
 * a hash of samples: a write between them goes unseen, so that is said as unproven.
 *
 * Behind a loop device is a file, which has all that a device lacks: it is compared instead, and so
 * the device may be detached and attached again, and the host restarted.
 *
 * Writes that go around the device, to the disk below a dm device or over a partition's whole disk,
 * are not in its counts: only the samples may tell them.
 */
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_text.h"
#include "fingerprint_priv.h"

#define SAMPLES 64u
#define SAMPLE_BYTES 4096u
#define SYSFS_MAX 4096
#define STAT_WRITTEN 6		/* of Documentation/block/stat.rst, from 0: sectors written */
#define STAT_DISCARDED 13

/* The text of a file of this device in /sys, one line; NULL if there is none. */
static char *sysfs(const struct disk_node *node, const char *name)
{
	struct tp_error ignored = TP_ERROR_INIT;
	char path[128];
	char *text;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(node->st.st_rdev),
		 minor(node->st.st_rdev), name);
	text = tp_read_path(path, SYSFS_MAX, NULL, &ignored);
	if (text)
		tp_text_clean(text);	/* a disk's serial number is whatever the disk says */
	return text;
}

/* A partition's own folder has no serial: its disk's has. */
static char *serial(const struct disk_node *node)
{
	static const char *const names[] = {
		"serial", "device/serial", "device/wwid", "dm/uuid", "md/uuid", "../serial",
		"../device/serial",
		"../device/wwid",
	};

	for (size_t i = 0; i < TP_N(names); i++) {
		char *text = sysfs(node, names[i]);

		if (text && text[0])
			return text;
		free(text);
	}
	return NULL;
}

static json_t *diskseq(const struct disk_node *node)
{
	tp_autofree char *text = sysfs(node, "diskseq");

	if (!text)
		text = sysfs(node, "../diskseq");
	return text ? json_integer(strtoll(text, NULL, 10)) : NULL;
}

/* Number `field` of the device's statistics; NULL where this kernel keeps none. */
static json_t *statistic(const struct disk_node *node, int field)
{
	tp_autofree char *text = sysfs(node, "stat");
	char *at = text, *end;

	if (!text)
		return NULL;
	for (int i = 0;; i++) {
		long long v = strtoll(at, &end, 10);

		if (end == at)
			return NULL;
		if (i == field)
			return json_integer(v);
		at = end;
	}
}

/*
 * The file behind a loop device: {file, offset, limit} and what is known of a file. JSON null where
 * it is none, or its file is out of reach (deleted, of another mount namespace).
 */
static json_t *loop_file(const struct disk_node *node)
{
	tp_autofree char *file = NULL;
	tp_autoclose int fd = -1;
	struct loop_info64 info = { 0 };
	struct stat st;
	json_t *loop;

	if (ioctl(node->fd, LOOP_GET_STATUS64, &info) != 0)
		return json_null();
	file = sysfs(node, "loop/backing_file");
	if (file)
		fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_ino != info.lo_inode)
		return json_null();
	loop = json_object();
	if (tp_json_set_str(loop, "file", file) && fingerprint_add_file(loop, fd, &st) &&
	    tp_json_set(loop, "offset", json_integer((json_int_t)info.lo_offset)) &&
	    tp_json_set(loop, "limit", json_integer((json_int_t)info.lo_sizelimit)))
		return loop;
	json_decref(loop);
	return NULL;
}

static json_t *samples(const struct disk_node *node, uint64_t size)
{
	uint8_t buf[SAMPLE_BYTES];
	XXH64_state_t *hash = XXH64_createState();
	json_t *sum = NULL;
	char text[17];

	if (!hash)
		return NULL;
	XXH64_reset(hash, 0);
	for (unsigned i = 0; i < SAMPLES; i++) {
		uint64_t at = size < SAMPLE_BYTES ? 0 :
			(size - SAMPLE_BYTES) / (SAMPLES - 1) * i / SAMPLE_BYTES * SAMPLE_BYTES;
		ssize_t n = pread(node->fd, buf, sizeof(buf), (off_t)at);

		if (n < 0)
			goto cleanup;
		XXH64_update(hash, buf, (size_t)n);
	}
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)XXH64_digest(hash));
	sum = json_string(text);
cleanup:
	XXH64_freeState(hash);
	return sum;
}

/* value_owned NULL: there is none, which is fine. */
static bool set_known(json_t *to, const char *key, json_t *value_owned)
{
	return !value_owned || tp_json_set(to, key, value_owned);
}

json_t *fingerprint_device(const struct disk_node *node)
{
	tp_autojson json_t *device = json_object(), *loop = NULL;
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *name = serial(node);
	uint64_t size;

	if (!disk_node_size(node, &size, &why))
		return json_string("its size cannot be read");
	if (fsync(node->fd) != 0)
		return json_string("it cannot be synced");
	loop = loop_file(node);
	if (!loop || (json_is_object(loop) && !tp_json_set(device, "loop", json_incref(loop))) ||
	    !tp_json_set(device, "bytes", json_integer((json_int_t)size)) ||
	    (name && !tp_json_set_str(device, "serial", name)) ||
	    !set_known(device, "diskseq", diskseq(node)) ||
	    !set_known(device, "written", statistic(node, STAT_WRITTEN)) ||
	    !set_known(device, "discarded", statistic(node, STAT_DISCARDED)) ||
	    !set_known(device, "samples", samples(node, size)))
		return NULL;
	if (!json_object_get(device, "samples") &&
	    !(json_object_get(device, "written") && json_object_get(device, "diskseq")))
		return json_string("neither its content nor its write count can be read");
	return TP_STEAL(device);
}

static bool same_loop(const json_t *recorded, const json_t *present, bool same_boot,
		      struct fingerprint_change *c)
{
	struct fingerprint_change of_file = { .verdict = FINGERPRINT_EQUAL };

	if (!fingerprint_same_file(recorded, present, same_boot, &of_file) ||
	    fingerprint_differs(recorded, present, "offset"))
		return fingerprint_changed(c, "device", "another file is behind this loop device: %s, was %s",
					   fingerprint_text(present, "file"),
					   fingerprint_text(recorded, "file"));
	return fingerprint_same_times(recorded, present, c);
}

/* One attached disk since then: what the kernel counted tells all that was written to it. */
static bool same_counts(const json_t *recorded, const json_t *present, struct fingerprint_change *c)
{
	static const char *const counts[] = { "written", "discarded" };

	for (size_t i = 0; i < TP_N(counts); i++) {
		if (fingerprint_differs(recorded, present, counts[i]))
			return fingerprint_changed(c, "written", "written since: count of sectors %s is "
						   "%lld, was %lld", counts[i],
						   (long long)tp_json_int(present, counts[i], 0),
						   (long long)tp_json_int(recorded, counts[i], 0));
	}
	return (json_object_get(recorded, "written") && json_object_get(present, "written")) ||
	       fingerprint_unproven(c, "this kernel counts no writes to it: only samples of its content "
				    "could be compared");
}

bool fingerprint_same_device(const json_t *recorded, const json_t *present, bool same_boot,
			     struct fingerprint_change *c)
{
	const json_t *a = json_object_get(recorded, "loop"), *b = json_object_get(present, "loop");
	bool reattached = fingerprint_differs(recorded, present, "diskseq");
	bool serial_known = json_object_get(recorded, "serial") && json_object_get(present, "serial");

	if (!recorded && !present)
		return true;
	if (fingerprint_differs(recorded, present, "serial"))
		return fingerprint_changed(c, "device", "another device: serial number %s, was %s",
					   fingerprint_text(present, "serial"),
					   fingerprint_text(recorded, "serial"));
	if (same_boot && reattached && !(a && b) && !serial_known)
		return fingerprint_changed(c, "device", "another device was attached under this name");
	if (fingerprint_differs(recorded, present, "bytes"))
		return fingerprint_changed(c, "resized", "resized: %lld bytes, were %lld",
					   (long long)tp_json_int(present, "bytes", 0),
					   (long long)tp_json_int(recorded, "bytes", 0));
	if (a && b)
		return same_loop(a, b, same_boot, c);
	if (fingerprint_differs(recorded, present, "samples"))
		return fingerprint_changed(c, "written", "written since: its content differs");
	if (same_boot && !reattached)
		return same_counts(recorded, present, c);
	return fingerprint_unproven(c, "%s since, and a device keeps no time of its last write: only its "
				    "size and samples of its content could be compared", same_boot ?
				    "it was detached and attached again" : "the host was restarted");
}
