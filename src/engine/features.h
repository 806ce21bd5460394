/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * features.h - What a QEMU binary can do, remembered by the binary's file
 *
 * query-qmp-schema is a quarter of a megabyte and costs some 50 ms of a restore; it is the same for
 * every process of one binary. The file behind /proc/PID/exe names it: device, inode, size, mtime.
 * host.json keeps what is known ("features"), for the first restores after a start of the host.
 */
#ifndef FEATURES_H
#define FEATURES_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/tp_error.h"
#include "qmp/qmp_schema.h"

struct torpor;

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

/* As in host.json; and from there: entries that say less or other things than ours are left out. */
json_t *features_json(const struct features_cache *c);
void features_take(struct features_cache *c, const json_t *list);

/* At the start. */
bool features_load(struct torpor *t, struct tp_error *err);
/* Writes what is known, off the loop. Best effort: what is not kept is asked for again. */
void features_store(struct torpor *t);

#endif
