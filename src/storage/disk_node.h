/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * disk_node.h - One file of a disk: opened for reading, its format's facts at hand
 *
 * Names are those that QEMU takes: a path, "file:PATH", or something with a protocol ("nbd://...",
 * "json:{...}") that is not a file here.
 */
#ifndef DISK_NODE_H
#define DISK_NODE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "qcow2.h"

enum disk_kind {
	DISK_FILE,		/* a regular file, open in fd */
	DISK_BLOCK,		/* a block device, open in fd */
	DISK_MISSING,		/* nothing of that name; why says it */
	DISK_OPAQUE,		/* nothing whose content can be examined here; why says it */
};

struct disk_node {
	enum disk_kind kind;
	char *file;		/* as given, less a leading "file:" */
	char format[QCOW2_FORMAT_MAX + 1];
	char why[128];
	int fd;			/* -1 unless DISK_FILE or DISK_BLOCK */
	struct stat st;
	bool is_qcow2;
	struct qcow2 qcow2;	/* if is_qcow2 */
};

/* To be used before disk_node_open, so that disk_node_close is right on each path. */
#define DISK_NODE_INIT { .fd = -1 }

/*
 * format NULL or "": probed, as QEMU does for a backing file whose format is not recorded. Missing
 * and opaque are no errors; a qcow2 file that is damaged is (TP_ECORRUPT), with its name.
 */
bool disk_node_open(const char *file, const char *format, struct disk_node *node,
		    struct tp_error *err);
void disk_node_close(struct disk_node *node);	/* may be called again */
/*
 * The backing file or external data file `name` of the image `file`: relative names start at the
 * image's folder. A new string, NULL when out of memory.
 */
char *disk_node_resolve(const char *file, const char *name);
/* Size of the file or device in bytes. */
bool disk_node_size(const struct disk_node *node, uint64_t *size, struct tp_error *err);

#endif
