/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_client.h - One session on QEMU's monitor
 *
 * Greeting, qmp_capabilities (with oob where offered), then commands with ids
 * made of a session nonce and a counter; replies are matched by id only, others
 * are dropped and counted, so that a former client's replies are never believed.
 * Objects are classified by their keys, never by position: events may come
 * before the greeting and between everything. In-band commands are queued and
 * at most QMP_IN_FLIGHT are written before answers; out-of-band ones overtake.
 *
 * Callbacks: each command's reply callback is called exactly once, from the
 * loop, never inside the call that sent it; at the session's end with an error
 * (class QemuExited or MonitorBusy or IOError as fits). Callbacks may call
 * qmp_client_free: the client is kept until they return.
 */
#ifndef QMP_CLIENT_H
#define QMP_CLIENT_H

#include <ev.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "qmp/qmp_cmds.h"

#define QMP_REPLY_LIMIT (16u << 20)	/* one object of QEMU's */
#define QMP_DEPTH_LIMIT 1024u
#define QMP_GREETING_LIMIT 10.0		/* seconds; then MonitorBusy */
#define QMP_QUEUE_LIMIT 256		/* commands waiting */
#define QMP_IN_FLIGHT 8

struct qmp_client;

struct qmp_client_stats {
	uint64_t sent, replies, events, stray, junk;
};

struct qmp_client_ops {
	/* Negotiation is over; commands may be sent (they may be before, too: they wait). */
	void (*ready)(struct qmp_client *c, void *arg);
	/* data is borrowed, an object, never NULL. */
	void (*event)(struct qmp_client *c, const char *name, const json_t *data, void *arg);
	/* The end, exactly once, after all reply callbacks: EOF, protocol error, greeting time-out. */
	void (*closed)(struct qmp_client *c, const struct tp_error *why, void *arg);
};

/*
 * reply: the `return` value (borrowed) or NULL with err set. err->class_ is "QemuError" for errors
 * sent by QEMU; qemu_error is then its error object, else NULL.
 */
typedef void (*qmp_reply_fn)(void *arg, const json_t *reply, const json_t *qemu_error,
			     const struct tp_error *err);

/* Takes *fd (non-blocking stream socket, connected). NULL: out of memory. */
struct qmp_client *qmp_client_new(struct ev_loop *loop, int *fd, const char *label,
				  const struct qmp_client_ops *ops, void *arg);
/* Ends the session: closed() is not called any more; outstanding replies get TP_ECANCELLED
 * callbacks before this returns. NULL is allowed. */
void qmp_client_free(struct qmp_client *c);
/*
 * Sends a command. args (an object, or NULL) is taken, also on failure; *fd (may be NULL or -1) is
 * taken and goes with the command as SCM_RIGHTS (never pipelined with another command). limit:
 * seconds until the callback is called with TP_ETIMEOUT ("unknown", not "failed"; the late reply is
 * dropped and counted; a command that still waited is not sent any more); 0: the command's own.
 * fn may be NULL. QMP_USER takes {"execute": NAME, "arguments": {...}}. Returns an id > 0, or 0
 * with err set: then no callback.
 */
uint64_t qmp_client_send(struct qmp_client *c, enum qmp_cmd cmd, json_t *args_owned, int *fd,
			 double limit, qmp_reply_fn fn, void *arg, struct tp_error *err);
/* A user's command by name (vm-monitor). */
uint64_t qmp_client_send_user(struct qmp_client *c, const char *execute, json_t *args_owned,
			      double limit, qmp_reply_fn fn, void *arg, struct tp_error *err);
/* The callback of this command is not called any more. The command itself stays: it is still sent
 * if it waits (its limit passed, it is not), its reply is awaited and dropped. */
void qmp_client_forget(struct qmp_client *c, uint64_t id);
/* Seconds from now for greeting and negotiation, in place of QMP_GREETING_LIMIT. */
void qmp_client_set_greeting_limit(struct qmp_client *c, double seconds);
bool qmp_client_is_ready(const struct qmp_client *c);
bool qmp_client_has_oob(const struct qmp_client *c);
const json_t *qmp_client_greeting(const struct qmp_client *c);	/* the QMP member, or NULL */
void qmp_client_version(const struct qmp_client *c, int *major, int *minor, int *micro);
const struct qmp_client_stats *qmp_client_stats(const struct qmp_client *c);

#endif
