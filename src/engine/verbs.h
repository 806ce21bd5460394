/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * verbs.h - Which verb is allowed in which state: the table of interface.md 7
 */
#ifndef VERBS_H
#define VERBS_H

#include <jansson.h>
#include <stdbool.h>

#include <ev.h>

#include "base/tp_error.h"
#include "engine/vm.h"
#include "qmp/qmp_cmds.h"

enum verb {
	VERB_START, VERB_HIBERNATE, VERB_RESTORE, VERB_PAUSE, VERB_RESUME, VERB_RESET, VERB_POWERDOWN,
	VERB_QUIT, VERB_MONITOR, VERB_DISCARD, VERB_IMAGE_MOVE, VERB_N
};

enum verb_answer { VERB_OK, VERB_UNCHANGED, VERB_REFUSED };

const char *verb_name(enum verb v);	/* "vm-start" ... */
/* args: of the command (restore with `image`, start with `mode`). Refused: InvalidState with data.use. */
enum verb_answer verb_check(struct vm *vm, enum verb v, const json_t *args, struct tp_error *err, json_t **data);
/* The verb of an operation's plan, by kind. */
enum verb verb_of_kind(const char *kind);
/* For tests: the bare table. use: the verb to use instead, or NULL. */
enum verb_answer verb_table(enum verb v, enum vm_state s, const char **use);

/* --- verbs that answer when done (verbs_sync.c) --- */
struct api_call;
struct sync_call;
typedef void (*sync_fn)(struct sync_call *s);

struct sync_call {
	struct sync_call *next;
	struct api_call *call;
	struct torpor *t;
	char vm[TP_NAME_MAX + 1];
	struct ev_timer timer;
	sync_fn tick;			/* when the timer fires */
	double until, limit;		/* monotonic: of the present stage, of the whole */
	int stage;
	uint64_t qmp;			/* outstanding command, to be forgotten */
	sync_fn then;			/* after the status was read */
	json_t *data;
	void *arg;			/* the verb's own */
};
/* The VM named by the call; NULL: answered. */
struct vm *verb_vm(struct api_call *call);
/* NULL: answered with an error. */
struct sync_call *sync_new(struct api_call *call, struct vm *vm);
struct vm *sync_vm(struct sync_call *s);		/* NULL: undefined meanwhile */
void sync_after(struct sync_call *s, double seconds, sync_fn tick);
void sync_reply(struct sync_call *s, json_t *result_owned);	/* answers and frees */
void sync_error(struct sync_call *s, const struct tp_error *err, json_t *data_owned);
/* Sends the command, then reads the status, then calls `then`; an error answers the call. */
void sync_qmp(struct sync_call *s, enum qmp_cmd cmd, json_t *args_owned, sync_fn then);
/* Frees without an answer: somebody else gives it. */
void sync_forget(struct sync_call *s);
/* Removes an image, or what `pool` (may be NULL) has of it; done is called from the loop. */
bool image_delete_async(struct api_call *call, const char *id, const char *pool,
			void (*done)(struct api_call *call, void *arg, const struct tp_error *err), void *arg,
			struct tp_error *err);
void sync_calls_free(struct torpor *t);

#endif
