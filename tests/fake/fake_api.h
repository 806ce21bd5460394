/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_api.h - An engine without VMs, for tests of the API: every verb answers as the test says
 *
 * Linking a function of this file brings stand-ins for engine_hooks.h and for the handlers of all
 * verbs, so that nothing of the real engine is linked.
 */
#ifndef FAKE_API_H
#define FAKE_API_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/tp_buf.h"
#include "engine/api.h"
#include "torpor.h"

#define FAKE_LIMIT 20.0		/* seconds that a test waits for anything; sanitizers are slow */

/* How verbs answer: NULL: at once with {"verb": NAME}. verb as in "vm_start". */
extern void (*fake_verb)(struct api_call *call, const char *verb);
/* A handler for fake_verb: keeps calls in fake_kept, answered by the test. */
#define FAKE_KEPT_MAX 256
extern struct api_call *fake_kept[FAKE_KEPT_MAX];
extern size_t fake_nkept;
void fake_keep(struct api_call *call, const char *verb);

struct torpor *fake_torpor_new(void);
void fake_torpor_free(struct torpor *t);
/* Turns the loop until done(arg), at most FAKE_LIMIT; false: not done. */
bool fake_run(struct torpor *t, bool (*done)(void *arg), void *arg);
void fake_turn(struct torpor *t);	/* once, without waiting */
/* Turns the loop as long as anything is ready. */
void fake_settle(struct torpor *t);

/* The other end of a connection. */
struct fake_peer {
	struct torpor *t;
	int fd;
	bool eof;
	struct tp_buf in;
};
void fake_peer_open(struct fake_peer *p, struct torpor *t, enum torpor_role role);
void fake_peer_close(struct fake_peer *p);
void fake_peer_send(struct fake_peer *p, const char *text);
void fake_peer_send_bytes(struct fake_peer *p, const void *data, size_t n);	/* however long it takes */
/* The next message; NULL: the connection has ended, or nothing came in time. */
json_t *fake_peer_next(struct fake_peer *p);
/* The same must be it: JSON text with ' for ". Fails the test otherwise. */
void fake_peer_expect(struct fake_peer *p, const char *text);
bool fake_peer_ended(struct fake_peer *p);	/* reads on until the end: nothing more came */
void fake_peer_negotiate(struct fake_peer *p);	/* greeting, qmp_capabilities */

size_t fake_open_fds(void);

#endif
