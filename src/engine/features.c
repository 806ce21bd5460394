/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* features.c - What a QEMU binary can do, remembered by the binary's file */
#include "engine/features.h"

#include <stdio.h>

static bool binary_of(pid_t pid, struct stat *st)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return stat(path, st) == 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool features_recall(const struct features_cache *c, pid_t pid, struct qmp_features *f)
{
	struct stat st;

	if (!binary_of(pid, &st))
		return false;
	for (unsigned i = 0; i < c->count; i++) {
		if (same_file(&c->kept[i].file, &st)) {
			*f = c->kept[i].features;
			return true;
		}
	}
	return false;
}

void features_keep(struct features_cache *c, pid_t pid, const struct qmp_features *f)
{
	struct stat st;

	if (!binary_of(pid, &st))
		return;
	c->kept[c->next].file = st;
	c->kept[c->next].features = *f;
	c->next = (c->next + 1) % FEATURES_KEPT;
	if (c->count < FEATURES_KEPT)
		c->count++;
}
