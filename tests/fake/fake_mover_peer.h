/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_mover_peer.h - Plays the engine towards the real torpor-mover program */
#ifndef FAKE_MOVER_PEER_H
#define FAKE_MOVER_PEER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* @control: our end, -1 once closed; @errors: the program's stderr, an unnamed file */
struct mover_peer {
	int control, pidfd, errors;
	pid_t pid;
};

#define MOVER_PEER_WAIT 20.0	/* seconds; every wait ends then at the latest */

/* Starts build/torpor-mover. What fails here ends the test program: abort(). */
void mover_peer_start(struct mover_peer *p);
/* Sends a request; fds are borrowed. */
void mover_peer_send(struct mover_peer *p, json_t *message_owned, const int *fds, size_t nfds);
/* The next message, the caller's; NULL: the connection ended, or nothing came in time. */
json_t *mover_peer_receive(struct mover_peer *p);
/*
 * Passes over progress until a message whose first member is `name`; returns its value, the
 * caller's. NULL (with the other message on stderr): another one came, or the end.
 */
json_t *mover_peer_expect(struct mover_peer *p, const char *name);
/* Closes the control connection. */
void mover_peer_close(struct mover_peer *p);
bool mover_peer_running(const struct mover_peer *p);
/* The status as waitpid(2); -1 if it did not end in time, and then it is killed. */
int mover_peer_wait(struct mover_peer *p);
/* mover_peer_wait() if that was not done, closes all. */
void mover_peer_free(struct mover_peer *p);

#endif
