/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tp_proc.h - Processes named by pid, start time and boot id; pidfds; spawning
 *
 * A pid alone never names a process. `start` is field 22 of /proc/PID/stat.
 */
#ifndef TP_PROC_H
#define TP_PROC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tp_error.h"

#define TP_BOOT_ID 40

struct tp_proc {
	pid_t pid;		/* 0: none */
	uint64_t start;		/* clock ticks after boot */
	char boot[TP_BOOT_ID];	/* /proc/sys/kernel/random/boot_id */
};

const char *tp_boot_id(void);	/* of this boot; read once */
bool tp_proc_start(pid_t pid, uint64_t *start);	/* false: errno, ESRCH if there is none */
/* The process as it is now. */
bool tp_proc_identify(pid_t pid, struct tp_proc *p, struct tp_error *err);
/* As records have it, {"pid", "start", "boot"}: new; and back, from anything. False: it names none. */
json_t *tp_proc_json(const struct tp_proc *p);
bool tp_proc_of_json(const json_t *record, struct tp_proc *p);
/*
 * Opens the pidfd first, then compares the start time and boot id, then trusts. -1 with errno
 * ESRCH: gone. With any other errno (EMFILE, ...) the process may well live: do not act on it.
 */
int tp_proc_open(const struct tp_proc *p);
bool tp_pidfd_kill(int pidfd, int sig);
/*
 * Collects an ended child by its pidfd without blocking. Returns false while it runs. *status as
 * waitpid(2), or -1 where somebody else has reaped it or it is no child (adopted).
 */
bool tp_pidfd_wait(int pidfd, int *status);
/*
 * posix_spawn of /proc/self/fd/<exe_fd> with argv; child: default signal dispositions, empty mask,
 * stdin and stdout /dev/null, stderr as given (-1: /dev/null), and control_fd as descriptor 3.
 * All else is CLOEXEC. Returns the pidfd.
 */
int tp_spawn(int exe_fd, char *const argv[], int control_fd, int stderr_fd, pid_t *pid,
	     struct tp_error *err);

#endif
