/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qga_client.h - The guest agent's channel: one command at a time, synchronised first
 *
 * The agent has no ids and its byte stream outlives our connection: replies to
 * an earlier connection's commands arrive on the next one. So every command is
 * preceded by 0xFF + guest-sync-delimited with a random number unless the last
 * exchange on this connection ended in order; what comes before the 0xFF of the
 * answer is dropped. Never a second command while one is outstanding: queued.
 */
#ifndef QGA_CLIENT_H
#define QGA_CLIENT_H

#include <ev.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "qmp/qmp_client.h"
#include "qmp/qmp_cmds.h"

#define QGA_REPLY_LIMIT (16u << 20)
#define QGA_SYNC_LIMIT 5.0	/* seconds */
#define QGA_QUEUE_LIMIT 16

struct qga_client;
struct qga_client_ops {
	void (*closed)(struct qga_client *c, const struct tp_error *why, void *arg);
};

/* Takes *fd. Nothing is written until the first command. NULL: out of memory. */
struct qga_client *qga_client_new(struct ev_loop *loop, int *fd, const char *label,
				  const struct qga_client_ops *ops, void *arg);
/* As qmp_client_free. */
void qga_client_free(struct qga_client *c);
/*
 * As qmp_client_send; limit counts from now, waiting for others and for the sync included. Errors:
 * AgentUnavailable (no sync in time, or closed), AgentError (the agent's own words), Timeout
 * (command sent, no answer: unknown; the next command syncs first). Whatever the class, the code is
 * TP_ETIMEOUT where the agent may have carried the command out or may do so later.
 * A no_reply command succeeds (reply NULL and err NULL) only by qga_client_forget or the
 * session's end being read by the caller: its callback is called for an error reply or time-out,
 * and with neither reply nor err when the peer closes the channel after the command was sent.
 */
uint64_t qga_client_send(struct qga_client *c, enum qga_cmd cmd, json_t *args_owned, double limit,
			 qmp_reply_fn fn, void *arg, struct tp_error *err);
/*
 * The callback is not called any more. A command that waits is not sent; one that was sent keeps
 * the channel until it is answered or its limit is over, but for a no_reply one, which is done.
 */
void qga_client_forget(struct qga_client *c, uint64_t id);
/* After a restore or a guest reboot: the next command syncs first. */
void qga_client_desync(struct qga_client *c);
/* In place of QGA_SYNC_LIMIT, from the next sync on. */
void qga_client_set_sync_limit(struct qga_client *c, double seconds);
/* Objects and junk that were dropped. */
uint64_t qga_client_dropped(const struct qga_client *c);
bool qga_client_busy(const struct qga_client *c);

#endif
