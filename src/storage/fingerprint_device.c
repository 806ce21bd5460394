/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fingerprint_device.c - What a block device's content is known by
 *
 * Theory of operation
 *
 * A block device has no modification time. Within one boot two numbers of the kernel are as good:
 * diskseq (a new one for each attached disk) and the count of sectors written, in /sys. Across a
 * reboot there are the serial number, the size and a hash of samples: a write between them goes
 * unseen, so this is a safety net and not a proof.
 */
#include "fingerprint_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_text.h"

#define SAMPLES 64u
#define SAMPLE_BYTES 4096u
#define SYSFS_MAX 4096
#define STAT_WRITTEN 6		/* of Documentation/block/stat.rst: sectors written, from 0 */

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
		"serial", "device/serial", "device/wwid", "dm/uuid", "../serial", "../device/serial",
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

static json_t *written(const struct disk_node *node)
{
	tp_autofree char *text = sysfs(node, "stat");
	char *at = text, *end;

	if (!text)
		return NULL;
	for (int i = 0;; i++) {
		long long v = strtoll(at, &end, 10);

		if (end == at)
			return NULL;
		if (i == STAT_WRITTEN)
			return json_integer(v);
		at = end;
	}
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

json_t *fingerprint_device(const struct disk_node *node)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *name = serial(node);
	tp_autojson json_t *sectors = NULL, *sum = NULL, *seq = NULL;
	json_t *device;
	uint64_t size;

	if (!disk_node_size(node, &size, &why))
		return json_string("its size cannot be read");
	if (fsync(node->fd) != 0)
		return json_string("it cannot be synced");
	sectors = written(node);
	seq = diskseq(node);
	sum = samples(node, size);
	if (!sum && !(sectors && seq))
		return json_string("neither its content nor its write count can be read");
	device = json_object();
	if (!tp_json_set(device, "bytes", json_integer((json_int_t)size)) ||
	    (name && !tp_json_set_str(device, "serial", name)) ||
	    (seq && !tp_json_set(device, "diskseq", json_incref(seq))) ||
	    (sectors && !tp_json_set(device, "written", json_incref(sectors))) ||
	    (sum && !tp_json_set(device, "samples", json_incref(sum)))) {
		json_decref(device);
		return NULL;
	}
	return device;
}

/* Both have the member and it differs. */
static bool differs(const json_t *recorded, const json_t *present, const char *key)
{
	const json_t *a = json_object_get(recorded, key), *b = json_object_get(present, key);

	return a && b && !json_equal(a, b);
}

bool fingerprint_device_equal(const json_t *recorded, const json_t *present, bool same_boot,
			      struct tp_buf *how)
{
	if (differs(recorded, present, "serial") ||
	    (same_boot && differs(recorded, present, "diskseq"))) {
		tp_buf_adds(how, "replaced by another device");
		return false;
	}
	if (differs(recorded, present, "bytes")) {
		tp_buf_printf(how, "resized: %lld bytes, were %lld",
			      (long long)tp_json_int(present, "bytes", 0),
			      (long long)tp_json_int(recorded, "bytes", 0));
		return false;
	}
	if (same_boot && differs(recorded, present, "written")) {
		tp_buf_printf(how, "written since: count of sectors written is %lld, was %lld",
			      (long long)tp_json_int(present, "written", 0),
			      (long long)tp_json_int(recorded, "written", 0));
		return false;
	}
	if (differs(recorded, present, "samples")) {
		tp_buf_adds(how, "written since: its content differs");
		return false;
	}
	return true;
}
