/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_conn.h - A connection to torpord: one JSON object a line, requests with ids
 *
 * What comes is bounded: CLI_REPLY_MAX bytes and CLI_REPLY_DEPTH levels a message.
 * Functions block, but never longer than the limits below.
 */
#ifndef CLI_CONN_H
#define CLI_CONN_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

#define CLI_REPLY_MAX (16u << 20)
#define CLI_REPLY_DEPTH 128
#define CLI_GREETING_LIMIT 10.0		/* seconds for greeting and negotiation */
#define CLI_CALL_LIMIT 60.0		/* seconds for a command that is no operation */

struct cli_conn;

/* --socket, else TORPOR_SOCKET, else where torpord of this user listens; the caller frees. */
char *cli_socket_path(const char *option);
/* Connects and negotiates. */
struct cli_conn *cli_conn_open(const char *path, struct tp_error *err);
/* The same on a connected stream socket, which is taken. */
struct cli_conn *cli_conn_on(int fd, struct tp_error *err);
void cli_conn_free(struct cli_conn *c);

/* request: {"execute", "arguments"?, "id"?}; taken. */
bool cli_conn_send(struct cli_conn *c, json_t *request_owned, struct tp_error *err);
/* {"execute": command, "arguments": arguments, "id": id}; arguments may be NULL. */
bool cli_conn_ask(struct cli_conn *c, json_int_t id, const char *command, json_t *arguments_owned,
		  struct tp_error *err);

enum cli_read { CLI_MESSAGE, CLI_LATE, CLI_OTHER, CLI_BROKEN };
/*
 * The next message, the caller's. until: by tp_now_mono(), 0 for no limit; then CLI_LATE.
 * CLI_OTHER: other_fd (-1: none) can be read. CLI_BROKEN: err says why.
 */
enum cli_read cli_conn_read(struct cli_conn *c, double until, int other_fd, json_t **message,
			    struct tp_error *err);

/*
 * Sends a command and passes over events until its answer: the returned value, or NULL and *error
 * is the wire's error object. Trouble with the connection: both NULL, err is set.
 */
json_t *cli_conn_call(struct cli_conn *c, const char *command, json_t *arguments_owned, json_t **error,
		      struct tp_error *err);

#endif
