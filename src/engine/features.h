/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * features.h - What a QEMU binary can do, remembered by the binary's file
 *
 * query-qmp-schema is a quarter of a megabyte and costs some 50 ms of a restore; it is the same for
 * every process of one binary. The file behind /proc/PID/exe names it: device, inode, size, mtime.
 */
#ifndef FEATURES_H
#define FEATURES_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "qmp/qmp_schema.h"

#define FEATURES_KEPT 8		/* binaries */

struct features_cache {
	struct {
		struct stat file;
		struct qmp_features features;
	} kept[FEATURES_KEPT];
	unsigned count, next;
};

bool features_recall(const struct features_cache *c, pid_t pid, struct qmp_features *f);
void features_keep(struct features_cache *c, pid_t pid, const struct qmp_features *f);

#endif
