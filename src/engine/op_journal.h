/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_journal.h - <state-dir>/vms/<name>/op.log: the journal of the operation that holds a VM
 *
 * One line a record, "XXXXXXXX {json}\n" with the JSON's CRC32 (zlib's polynomial) in hex, appended
 * by one write(2). A record outlives the daemon by the page cache; the host's death only when it was
 * synced. The file is preallocated (OP_JOURNAL_ROOM, KEEP_SIZE) at each operation's begin and
 * emptied at its end. See journal.md 2-3.
 */
#ifndef OP_JOURNAL_H
#define OP_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

#define OP_JOURNAL_ROOM (64u << 10)

/* dirfd: the VM's state folder. Makes room: fails (InsufficientSpace) before any effect. Returns fd. */
int op_journal_begin(int dirfd, struct tp_error *err);
/* At recovery: goes on with the log as it is; a torn tail is cut off. */
int op_journal_reopen(int dirfd, struct tp_error *err);
bool op_journal_append(int fd, const char *record, const json_t *fields, struct tp_error *err);
bool op_journal_sync(int fd, struct tp_error *err);	/* blocks: worker */
bool op_journal_clear(int fd, struct tp_error *err);	/* truncated to 0 */
/*
 * All good records as an array of {"record": NAME, ...}; *torn: bytes after the last good one (a
 * torn tail is normal). Absent or empty: an empty array. NULL: unreadable.
 */
json_t *op_journal_read(int dirfd, size_t *torn, struct tp_error *err);
/* Absent, empty or only zeros (what a power cut makes of one whose data was not synced): nothing was
 * ever recorded. False with no error: there is something in it. */
bool op_journal_blank(int dirfd, struct tp_error *err);
/* Whether a good commit record is anywhere in it, also behind what is not good. */
bool op_journal_decides(int dirfd);
bool op_journal_drop(int dirfd, struct tp_error *err);	/* as clear, of one that is not open */
/* Sets a damaged log aside as op.log.bad-TIME. */
bool op_journal_set_aside(int dirfd, struct tp_error *err);

#endif
