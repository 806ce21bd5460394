/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover.h - The engine's side of torpor-mover: one process a job, its control socket, its end
 */
#ifndef ENGINE_MOVER_H
#define ENGINE_MOVER_H

#include <ev.h>
#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/tp_error.h"
#include "base/tp_proc.h"

struct mover;

struct mover_ops {
	/* name: the message's first member ("progress", "sealed", "done", "error"), value borrowed. */
	void (*message)(struct mover *m, const char *name, const json_t *value, void *arg);
	/*
	 * For launch, hook, tool: the control socket closed without an error: the program runs.
	 * May be NULL for other jobs.
	 */
	void (*execed)(struct mover *m, void *arg);
	/* The process ended (exactly once; the last callback). status as waitpid, -1 unknown; tail: the
	 * end of its stderr, never NULL. An end without "done" or "error" is a crash. */
	void (*ended)(struct mover *m, int status, const char *tail, void *arg);
};

struct mover_context {
	struct ev_loop *loop;
	int exe_fd;		/* torpor-mover, O_PATH, opened once at start */
	char path[256];		/* its path, for messages */
	struct mover_orphans *orphans;	/* freed movers whose processes are still to be reaped */
};

/* Finds and opens the program: path, or beside /proc/self/exe, or LIBEXECDIR (journal.md 7). */
bool mover_context_init(struct mover_context *ctx, struct ev_loop *loop, const char *path_or_null,
			struct tp_error *err);
void mover_context_close(struct mover_context *ctx);
/* request is taken; fds (named in request["fds"]) are taken and closed here after sending. */
struct mover *mover_start(const struct mover_context *ctx, json_t *request_owned, int *fds, size_t nfds,
			  const struct mover_ops *ops, void *arg, struct tp_error *err);
/*
 * Takes up a page server that an earlier engine started: connects at its socket (journal.md 6). It is
 * nobody's child: its status is unknown, nor has it a stderr to be quoted.
 */
struct mover *mover_adopt(const struct mover_context *ctx, const struct tp_proc *proc, const char *socket_path,
			  const char *vm, const struct mover_ops *ops, void *arg, struct tp_error *err);
bool mover_send(struct mover *m, json_t *message_owned, struct tp_error *err);
bool mover_send_fd(struct mover *m, json_t *message_owned, int fd, struct tp_error *err);	/* fd: borrowed */
/* Another owner is told from now on. */
void mover_hand_over(struct mover *m, const struct mover_ops *ops, void *arg);
void mover_kill(struct mover *m, int sig);	/* ended() follows */
/* Gives the process up: no callbacks any more; a data job ends with its control socket. */
void mover_free(struct mover *m);
pid_t mover_pid(const struct mover *m);
/* For launch: hands over the pidfd of the running program (the mover object then only has its end
 * to tell through it: the caller watches it), or -1. */
int mover_steal_pidfd(struct mover *m);

#endif
