/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_control.h - A data job's side of the control connection: a thread that sends and listens */
#ifndef MOVER_CONTROL_H
#define MOVER_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

struct control;

/* @stored: bytes of the image, 0: not told; @sealing: the stream is whole */
struct mover_progress {
	uint64_t done, total, stored;
	bool sealing;
};

/*
 * control_open() makes what needs system calls that the sandbox forbids, control_start() the
 * thread, which inherits the sandbox. sock is borrowed and becomes non-blocking. Neither is ever
 * undone: the process ends by control_exit().
 */
struct control *control_open(int sock, struct tp_error *err);
bool control_start(struct control *c, struct tp_error *err);

/* Queues a message; they go in order. Never blocks. NULL, out of memory, ends the process. */
void control_post(struct control *c, json_t *message_owned);
/* Replaces progress that was not sent yet; it is sent at most every MOVER_PROGRESS_INTERVAL. */
void control_progress(struct control *c, const struct mover_progress *p);
/* Whether all that was posted went out (or never can, as the engine is gone). */
bool control_flushed(struct control *c);

/* The same with a ready-made value, for jobs that tell other things. */
void control_report(struct control *c, json_t *value_owned);

/*
 * For a job that outlives its engines: new ones connect at a listening socket. A new connection
 * replaces the present one, and nothing ends when it ends.
 * @listener: borrowed
 * @hello: the first message on a new connection
 * @message: one came, with descriptors: those it takes it sets to -1.
 * Returns an answer or NULL. Both are called by the control's thread, and must not call a
 * control_*() function.
 */
struct control_service {
	int listener;
	json_t *(*hello)(void *arg);
	json_t *(*message)(void *arg, const json_t *message, int *fds, size_t nfds);
	void *arg;
};
bool control_serve(struct control *c, const struct control_service *service, struct tp_error *err);

/* From now on the end of the connection no longer ends the process. */
void control_outlive(struct control *c);
/* The engine is gone. Only after control_outlive(). */
bool control_ended(struct control *c);
/* {"finish"} came; *status (may be NULL) is its "status", 0 without. */
bool control_finish(struct control *c, int64_t *status);
/* Readable when control_flushed(), control_ended() or control_finish() may have changed. */
int control_note_fd(struct control *c);
void control_clear_note(struct control *c);

/* Waits until all was sent, then ends the process. No destructors run: see mover_sandbox.h. */
void control_exit(struct control *c, int status) __attribute__((noreturn));

#endif
