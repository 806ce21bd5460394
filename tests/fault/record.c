/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * record.c - Writes down, in their order, all calls that change a recorded folder
 *
 * RECORD names a file that is mapped by each program with the library in it; its head is a struct
 * log. One lock, shared by all of them, is held from before a call until it is in the log: the log's
 * order is that of the effects. A record is a line "CALL AT SIZE PATH\tOTHER\n" and SIZE bytes of
 * data. Messages that are sent are in it too (call "send"), before they are: so the log tells
 * what had been promised, and when a guest was told to run. tests/fault/powercut.py reads it.
 */
#include "fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_AT 4096

struct log {
	_Atomic uint32_t state;		/* 0: new, 1: being made, 2: ready */
	uint32_t full;			/* something had no room */
	uint64_t used;			/* bytes of records */
	char roots[2][256];		/* the folders */
	pthread_mutex_t lock;
};

static struct log *recorded;
static size_t log_size;

static void make_lock(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	/* One who is killed in between must not stop the others. */
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&recorded->lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static void __attribute__((constructor)) begin(void)
{
	uint32_t fresh = 0;

	recorded = fault_map("RECORD", &log_size);
	if (!recorded)
		return;
	if (atomic_compare_exchange_strong(&recorded->state, &fresh, 1)) {
		make_lock();
		atomic_store(&recorded->state, 2);
	}
	while (atomic_load(&recorded->state) != 2)
		;
}

bool record_on(void)
{
	return recorded != NULL;
}

void record_begin(void)
{
	if (recorded && pthread_mutex_lock(&recorded->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&recorded->lock);
}

void record_end(void)
{
	int saved = errno;

	if (recorded)
		pthread_mutex_unlock(&recorded->lock);
	errno = saved;
}

static bool is_below(const char *path)
{
	for (size_t i = 0; i < sizeof(recorded->roots) / sizeof(recorded->roots[0]); i++) {
		size_t n = strlen(recorded->roots[i]);

		if (n && strncmp(path, recorded->roots[i], n) == 0 && (!path[n] || path[n] == '/'))
			return true;
	}
	return false;
}

/* With the lock held. */
void record_call(const char *call, const char *path, const char *other, int64_t at, const void *data,
		 size_t n)
{
	char head[2 * FAULT_PATH + 128], *to;
	int saved = errno;
	size_t length;

	if (!recorded || (path && !is_below(path)))
		return;
	length = (size_t)snprintf(head, sizeof(head), "%s %lld %zu %s\t%s\n", call, (long long)at, n,
				  path ? path : "", other ? other : "");
	if (DATA_AT + recorded->used + length + n > log_size) {
		recorded->full = 1;
	} else {
		to = (char *)recorded + DATA_AT + recorded->used;
		memcpy(to, head, length);
		if (n)
			memcpy(to + length, data, n);
		recorded->used += length + n;
	}
	errno = saved;
}
