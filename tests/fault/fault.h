/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fault.h - Between the files of the preloaded library */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FAULT_PATH 8192

/* What is to become of a call. */
struct fault {
	int error;		/* it fails with this; 0: it is made */
	int64_t limit;		/* it transfers only so much; -1: all */
	int64_t value;		/* what it answers instead, e.g. a type of file system; -1: nothing */
};

/* failcall.c; waits where the call is to be late. errno is as it was. */
struct fault fault_of(const char *call, const char *path);

/* record.c: around each call that changes something. What is not below a recorded folder, and
 * everything where nothing is recorded, is left out. */
bool record_on(void);
void record_begin(void);
void record_call(const char *call, const char *path, const char *other, int64_t at, const void *data,
		 size_t n);
void record_end(void);

/* fault_path.c: of a descriptor, or of name in the folder dirfd. In the mover's sandbox no link can be
 * read; there those are known that came by message. */
void fault_path(int dirfd, const char *name, char path[FAULT_PATH]);
void fault_path_keep(int fd);
void fault_path_drop(int fd);

/* Shared memory by the name of an environment variable; NULL: there is none. */
void *fault_map(const char *variable, size_t *size);

#endif
