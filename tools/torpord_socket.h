/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* torpord_socket.h - Where clients come in: listening, who they are, how many */
#ifndef TORPORD_SOCKET_H
#define TORPORD_SOCKET_H

#include <ev.h>
#include <stdbool.h>

#include "base/tp_error.h"
#include "torpor.h"
#include "torpord_config.h"

#define SOCKET_CONNECTIONS_MAX 1024
#define SOCKET_STRANGERS_MAX 16		/* of them without any role */

struct sockets;

/* Makes the socket's folder, so that users who may connect can reach it. */
bool sockets_prepare(const struct config *config, struct tp_error *err);
/*
 * Listens on the configured socket, or on those that the service manager handed over. config and t
 * must live until sockets_close.
 */
struct sockets *sockets_open(struct ev_loop *loop, struct torpor *t, const struct config *config,
			     struct tp_error *err);
/* From now on roles are those of this configuration. */
void sockets_configure(struct sockets *s, const struct config *config);
/* No new clients; removes the socket's name if it is ours. Connections go on. */
void sockets_close(struct sockets *s);

#endif
