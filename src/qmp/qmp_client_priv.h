/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* qmp_client_priv.h - What qmp_client.c and qmp_client_io.c share; for nobody else */
#ifndef QMP_CLIENT_PRIV
#error "qmp_client_priv.h belongs to qmp_client.c and qmp_client_io.c"
#endif
#ifndef QMP_CLIENT_PRIV_H
#define QMP_CLIENT_PRIV_H

#include "base/tp_error.h"
#include "qmp/qmp_client.h"
#include "qmp/qmp_frame.h"
#include "qmp/qmp_stream.h"

#define NONCE_SIZE 24		/* "torpor-" and 16 hex digits */
#define LABEL_SIZE 80

enum session { SESSION_GREETING, SESSION_NEGOTIATING, SESSION_READY, SESSION_ENDED };

struct command {
	struct command *next;
	struct qmp_client *client;
	uint64_t id;
	enum qmp_cmd cmd;
	char *name;			/* QMP_USER: the user's command; else NULL */
	char *args;			/* JSON text, or NULL */
	int fd;				/* -1: none, or gone with the command */
	bool with_fd;
	bool oob;			/* may overtake, where the session has it */
	qmp_reply_fn fn;		/* NULL once called, or where nobody asks */
	void *arg;
	double limit;
	struct ev_timer timer;
};

/* A list that is walked from the oldest. */
struct commands {
	struct command *first;
	unsigned n;
};

struct qmp_client {
	struct ev_loop *loop;
	unsigned refs;			/* the owner, and each callback from the loop */
	bool freed;			/* by its owner, who is not called any more */
	enum session state;
	char label[LABEL_SIZE], nonce[NONCE_SIZE];
	uint64_t last_id;
	struct qmp_client_ops ops;
	void *arg;
	struct qmp_stream stream;
	struct qmp_frame frame;
	struct ev_timer greeting_timer;
	double greeting_limit;
	json_t *greeting;		/* its QMP member */
	bool oob;			/* negotiated */
	struct commands waiting, flying;
	struct command *writing;	/* in `flying` too; valid while the stream is not idle */
	json_t *no_data;		/* {} for events without data */
	struct qmp_client_stats stats;
	struct tp_error end;		/* why the session ended */
};

extern const struct qmp_stream_ops qmp_client_stream_ops;

/* args (borrowed) is checked already. The command is in no list and has no timer running. */
struct command *qmp_command_new(struct qmp_client *c, enum qmp_cmd id, const char *name,
				const json_t *args, struct tp_error *err);
void qmp_command_free(struct command *cmd);
const char *qmp_command_name(const struct command *cmd);
/* Calls the callback, unless that was done. The command stays in its list. */
void qmp_command_answer(struct command *cmd, const json_t *reply, const json_t *qemu_error,
			const struct tp_error *err);
void qmp_commands_append(struct commands *list, struct command *cmd);
void qmp_commands_remove(struct commands *list, struct command *cmd);
struct command *qmp_commands_find(const struct commands *list, uint64_t id);	/* or NULL */
/* The greeting is there: sends qmp_capabilities in front of all others. */
void qmp_client_negotiate(struct qmp_client *c);
/* Ends the session with c->end: closes, answers all commands, tells the owner. The caller, or one
 * of its callers, holds a reference. */
void qmp_client_end(struct qmp_client *c);
void qmp_client_ref(struct qmp_client *c);
void qmp_client_unref(struct qmp_client *c);

#endif
