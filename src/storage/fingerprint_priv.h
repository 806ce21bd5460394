/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fingerprint_priv.h - What the files of the fingerprint share; included by fingerprint*.c only */
#ifndef FINGERPRINT_PRIV_H
#define FINGERPRINT_PRIV_H

#include <sys/stat.h>

#include "disk_node.h"
#include "fingerprint.h"

/*
 * {dev, ino?, btime-ns?, size, mtime-ns, ctime-ns} of an open file into `to`: which file it is, and
 * when it was written. false: out of memory.
 */
bool fingerprint_add_file(json_t *to, int fd, const struct stat *st);
/* A member's text, or "none". */
const char *fingerprint_text(const json_t *o, const char *key);
/* Both have the member and it differs. */
bool fingerprint_differs(const json_t *recorded, const json_t *present, const char *key);
/* Whether two such are of one file; else why has words. */
bool fingerprint_same_file(const json_t *recorded, const json_t *present, bool same_boot,
			   struct fingerprint_change *c);
/* Neither written nor resized since. */
bool fingerprint_same_times(const json_t *recorded, const json_t *present,
			    struct fingerprint_change *c);

/* Sets c, FINGERPRINT_DIFFERENT, and returns false. */
bool fingerprint_changed(struct fingerprint_change *c, const char *how, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Nothing differs, but it is not proven: keeps what c says already. Returns true. */
bool fingerprint_unproven(struct fingerprint_change *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * {bytes, serial?, diskseq?, written?, discarded?, samples?, loop?}: what of a block device the kernel
 * tells; or a JSON string that says why it cannot be known again. NULL when out of memory. Writes back
 * what is dirty first, so that the counts stand still afterwards.
 */
json_t *fingerprint_device(const struct disk_node *node);
/* false: changed, c says how. */
bool fingerprint_same_device(const json_t *recorded, const json_t *present, bool same_boot,
			     struct fingerprint_change *c);

#endif
