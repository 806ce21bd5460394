/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qcow2.h - Header, extensions, snapshot table and bitmap directory of a qcow2 image
 *
 * Reads only; nothing is believed before it is bounded. Errors have code TP_ECORRUPT and name what
 * is wrong; the caller puts the file's name in front. No locks are taken: QEMU's are on the file.
 */
#ifndef QCOW2_H
#define QCOW2_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

#define QCOW2_NAME_MAX 1023		/* bytes of a backing or data file's name, as in QEMU */
#define QCOW2_FORMAT_MAX 31		/* bytes of the backing format's name */
#define QCOW2_SNAPSHOTS_MAX 65536u
#define QCOW2_BITMAPS_MAX 65535u
#define QCOW2_TABLE_MAX (64u << 20)	/* bytes of a snapshot table or bitmap directory */

#define QCOW2_INCOMPAT_DATA_FILE (1u << 2)

struct qcow2 {
	uint32_t version, cluster_bits, header_length;
	uint64_t virtual_size;
	uint64_t incompatible, compatible, autoclear;
	uint32_t snapshots;
	uint64_t snapshots_offset;
	uint32_t bitmaps;
	uint64_t bitmaps_offset, bitmaps_size;
	char backing[QCOW2_NAME_MAX + 1];		/* "" if there is none */
	char backing_format[QCOW2_FORMAT_MAX + 1];	/* "" if not said */
	char data_file[QCOW2_NAME_MAX + 1];		/* "" if there is none */
};

/* True if the file begins with qcow2's magic; false also when it cannot be read. */
bool qcow2_probe(int fd);
/* fd is borrowed; *q is untouched on failure. */
bool qcow2_read(int fd, struct qcow2 *q, struct tp_error *err);

struct qcow2_sums {
	uint64_t header;	/* XXH64 of header, extensions, backing name (the first cluster) */
	uint64_t snapshots;	/* of the snapshot table's bytes; 0 without snapshots */
	uint64_t bitmaps;	/* of the bitmap directory's bytes; 0 without bitmaps */
};

bool qcow2_sums(int fd, const struct qcow2 *q, struct qcow2_sums *sums, struct tp_error *err);

#endif
