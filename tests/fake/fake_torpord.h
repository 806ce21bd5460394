/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_torpord.h - A scripted daemon for tests of the client: the real program on the other side
 *
 * The test says what is expected and what is answered, one after the other; every wait has a limit and
 * ends the test with a message.
 */
#ifndef FAKE_TORPORD_H
#define FAKE_TORPORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/tp_buf.h"

#define FAKE_TORPORD_LIMIT 30.0		/* seconds of each wait; sanitizers are slow */

/* @request: the last one that was expected */
struct fake_torpord {
	char dir[64], path[96];
	int listener, conn;
	struct tp_buf in;
	json_t *request;
	pid_t client;
	int out, err, input;		/* unnamed files with what the client printed; its stdin's writing end */
};

void fake_torpord_open(struct fake_torpord *d);
void fake_torpord_close(struct fake_torpord *d);
/* Starts build/torpor with these words (ended by NULL) and TORPOR_SOCKET. */
void fake_torpord_run(struct fake_torpord *d, const char *const words[]);
#define FAKE_RUN(d, ...) fake_torpord_run(d, (const char *const []){ __VA_ARGS__, NULL })
/* Accepts, greets, expects qmp_capabilities. */
void fake_torpord_accept(struct fake_torpord *d);
/* The next request is this command, with arguments equal to the JSON (' for "; NULL: any). */
void fake_torpord_expect(struct fake_torpord *d, const char *command, const char *arguments);
/* Answers the last request; value is JSON with ' for ". */
void fake_torpord_return(struct fake_torpord *d, const char *value);
void fake_torpord_error(struct fake_torpord *d, const char *error);
/* Answers a request that was kept: json_incref(d->request). */
void fake_torpord_answer(struct fake_torpord *d, const json_t *request, const char *member, const char *value);
void fake_torpord_event(struct fake_torpord *d, const char *event, const char *data);
void fake_torpord_say(struct fake_torpord *d, const void *data, size_t n);
void fake_torpord_hang_up(struct fake_torpord *d);
/* Waits for the client's end; returns its exit status. */
int fake_torpord_status(struct fake_torpord *d);
/* What it printed so far; the caller frees. */
char *fake_torpord_out(struct fake_torpord *d);
char *fake_torpord_err(struct fake_torpord *d);

#endif
