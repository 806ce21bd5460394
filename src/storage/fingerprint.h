/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fingerprint.h - What a disk's content is known by, without reading it
 *
 * Taken after QEMU has inactivated its block nodes and before the commit (qcow2 metadata is still
 * written at `stop`), compared before and after a load. All of it blocks: io_worker only. qcow2 files,
 * and fingerprints that come from a manifest, are hostile input.
 */
#ifndef FINGERPRINT_H
#define FINGERPRINT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

#define FINGERPRINT_CHAIN_MAX 64	/* files of one backing chain */
#define FINGERPRINT_DETAIL 1024
#define FINGERPRINT_NAME 4096

/*
 * format: "qcow2", "raw" (others: as raw). Returns a new object {file, format, chain: [..], ...}.
 * A file that is missing, the top one or one of its chain, gives {"missing": why} there, no error:
 * compared it is different, and manifest_check refuses to record it.
 */
json_t *fingerprint_take(const char *file, const char *format, struct tp_error *err);

enum fingerprint_verdict {
	FINGERPRINT_EQUAL,
	FINGERPRINT_UNPROVEN,	/* nothing differs, but not all of it can be compared */
	FINGERPRINT_DIFFERENT,
};

/*
 * how: "written", "snapshotted", "resized", "rebased", "bitmap", "replaced" (by another file),
 * "device" (another block device), "moved", "missing", "chain" (a backing file changed), "data-file"
 * (its external data file changed), "unverifiable" (also where unproven); NULL where equal.
 */
struct fingerprint_change {
	enum fingerprint_verdict verdict;
	const char *how;
	const char *part_how;			/* of a chain or data-file: what became of that file */
	char part_file[FINGERPRINT_NAME];	/* and its name */
	char detail[FINGERPRINT_DETAIL];	/* for people, one phrase, valid UTF-8; "" where equal */
};

/* What was recorded as unverifiable is unproven, never silently equal. */
void fingerprint_compare(const json_t *recorded, const json_t *present, struct fingerprint_change *c);
/*
 * Takes the present fingerprint of a recorded disk and compares; one that cannot be taken is a
 * change as well. present_file: where the disk is said to be now, may be NULL: found there and
 * not at its recorded place it has moved. *now (may be NULL): the present fingerprint, new, or NULL.
 */
void fingerprint_check(const json_t *recorded, const char *present_file, struct fingerprint_change *c,
		       json_t **now);
/* {disk, file, how, detail, part?: {file, how}}: a member of data.disks. New; NULL: out of memory. */
json_t *fingerprint_change_json(const char *disk, const char *file, const struct fingerprint_change *c);

/* fsync of the file (and of an external data file): with cache=unsafe QEMU's flush is a no-op. */
bool fingerprint_sync(const char *file, const char *format, struct tp_error *err);
/* {format, virtual-size, allocated, backing: [..]} of an image for query-vm; cheap. */
json_t *disk_info(const char *file, const char *format, struct tp_error *err);

#endif
