/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_sock.h - UNIX sockets: pairs, descriptor passing, listening, connecting, peers */
#ifndef TP_SOCK_H
#define TP_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tp_error.h"

#define TP_MAX_FDS 16	/* descriptors in one message */

bool tp_socketpair(int type, int fds[2], struct tp_error *err);	/* AF_UNIX, CLOEXEC */
/* Sends data with descriptors (borrowed). MSG_NOSIGNAL; returns as sendmsg(2), errno set. */
ssize_t tp_send_fds(int sock, const void *data, size_t n, const int *fds, size_t nfds);
/*
 * Receives with descriptors (CLOEXEC); *nfds in: room, out: got. More than the room: the rest is
 * closed. Returns as recvmsg(2); MSG_TRUNC is reported as -1 with EMSGSIZE.
 */
ssize_t tp_recv_fds(int sock, void *data, size_t n, int *fds, size_t *nfds);
bool tp_sock_path_ok(const char *path, struct tp_error *err);	/* fits sun_path */
/* Non-blocking stream sockets, CLOEXEC. listen: unlinks a stale socket first, mode given. */
int tp_listen_unix(const char *path, mode_t mode, struct tp_error *err);
int tp_connect_unix(const char *path, bool nonblock, struct tp_error *err);
/* The same with sockets that keep messages apart (SOCK_SEQPACKET), non-blocking. */
int tp_listen_packets(const char *path, mode_t mode, struct tp_error *err);
int tp_connect_packets(const char *path, struct tp_error *err);
bool tp_set_nonblock(int fd, bool on);
/* SO_PEERCRED with all groups where the kernel gives them (SO_PEERGROUPS). */
struct tp_peer { pid_t pid; uid_t uid; gid_t gid; gid_t groups[64]; size_t ngroups; };
bool tp_peer_of(int sock, struct tp_peer *peer, struct tp_error *err);

#endif
