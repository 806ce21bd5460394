/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fingerprint.h - What a disk's content is known by, without reading it
 *
 * Taken after QEMU has inactivated its block nodes and before the commit (qcow2
 * metadata is still written at `stop`), compared before and after a load.
 * design.md 4: device + inode, time of birth, size, mtime (ns), for qcow2 the header, the snapshot table and the
 * bitmap directory (XXH64 of the bytes), the whole backing chain and external data file; ctime
 * only for messages. Block devices: serial, size, diskseq, sectors written (within one boot),
 * sampled hashes; else {"unverifiable": why}. Blocks; qcow2 files are hostile input.
 */
#ifndef FINGERPRINT_H
#define FINGERPRINT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

#define FINGERPRINT_CHAIN_MAX 64	/* files of one backing chain */

/*
 * format: "qcow2", "raw" (others: as raw). Returns a new object {file, format, chain: [..], ...}.
 * A file that is missing, the top one or one of its chain, gives {"missing": why} there, no error:
 * compared it is different, and manifest_check refuses to record it.
 */
json_t *fingerprint_take(const char *file, const char *format, struct tp_error *err);
/*
 * How `present` differs from `recorded`: returns true when equal; else false and *how is a new
 * string in words ("written since: modification time ...", "snapshotted", "resized", "other
 * file", "backing file changed: ..."). What was recorded as unverifiable counts as equal.
 */
bool fingerprint_equal(const json_t *recorded, const json_t *present, char **how);
/* fsync of the file (and of an external data file): with cache=unsafe QEMU's flush is a no-op. */
bool fingerprint_sync(const char *file, const char *format, struct tp_error *err);
/* {format, virtual-size, allocated, backing: [..]} of an image for query-vm; cheap. */
json_t *disk_info(const char *file, const char *format, struct tp_error *err);

#endif
