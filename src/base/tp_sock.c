/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_sock.c - UNIX sockets: pairs, descriptor passing, listening, connecting, peers */
#include "tp_sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tp_cleanup.h"

/* The kernel's own limit of descriptors in a message (SCM_MAX_FD). */
#define KERNEL_MAX_FDS 253
#define BACKLOG 64
/* The kernel's limit of groups of a process (NGROUPS_MAX). */
#define KERNEL_MAX_GROUPS 65536

bool tp_socketpair(int type, int fds[2], struct tp_error *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) != 0)
		return tp_fail_sys(err, errno, "make a socket pair");
	fds[0] = pair[0];
	fds[1] = pair[1];
	return true;
}

ssize_t tp_send_fds(int sock, const void *data, size_t n, const int *fds, size_t nfds)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int) * TP_MAX_FDS)];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	ssize_t sent;

	/* Without a byte a stream socket passes nothing, and says nothing. */
	if (nfds > TP_MAX_FDS || (nfds > 0 && n == 0)) {
		errno = EINVAL;
		return -1;
	}
	if (nfds > 0) {
		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		c = &control.header;
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	do {
		sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent;
}

/* Keeps descriptors of one control message while there is room, closes the others. */
static void take_fds(const struct cmsghdr *c, int *fds, size_t room, size_t *got)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), i;
	const unsigned char *data = CMSG_DATA(c);
	int fd;

	for (i = 0; i < n; i++) {
		memcpy(&fd, data + i * sizeof(fd), sizeof(fd));
		if (*got < room)
			fds[(*got)++] = fd;
		else
			tp_close(&fd);
	}
}

ssize_t tp_recv_fds(int sock, void *data, size_t n, int *fds, size_t *nfds)
{
	/* Room for all that the kernel can send: with less it would drop some without a trace. */
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int) * KERNEL_MAX_FDS)];
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	size_t room = nfds ? *nfds : 0, got = 0;
	struct cmsghdr *c;
	ssize_t received;

	memset(&control, 0, sizeof(control));
	do {
		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
		received = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	} while (received < 0 && errno == EINTR);
	if (nfds)
		*nfds = 0;
	if (received < 0)
		return -1;
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			take_fds(c, fds, room, &got);
	}
	if (msg.msg_flags & MSG_TRUNC) {
		while (got > 0)
			tp_close(&fds[--got]);
		errno = EMSGSIZE;
		return -1;
	}
	if (nfds)
		*nfds = got;
	return received;
}

bool tp_sock_path_ok(const char *path, struct tp_error *err)
{
	size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
	size_t n = path ? strlen(path) : 0;

	if (n == 0)
		return tp_fail(err, TP_EARG, "a socket path is empty");
	if (n > max)
		return tp_fail(err, TP_EARG, "socket path %.64s... has %zu bytes, at most %zu are possible",
			       path, n, max);
	return true;
}

/* type: with SOCK_NONBLOCK, or without. */
static int unix_socket(const char *path, int type, struct sockaddr_un *addr, struct tp_error *err)
{
	int fd;

	if (!tp_sock_path_ok(path, err))
		return -1;
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	memcpy(addr->sun_path, path, strlen(path));
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		tp_fail_sys(err, errno, "make a socket for %s", path);
	return fd;
}

/* Removes a socket that nobody serves; whatever else has the name is left alone. */
static bool unlink_stale(const char *path, int type, struct tp_error *err)
{
	struct sockaddr_un addr;
	tp_autoclose int probe = -1;
	struct stat st;

	if (lstat(path, &st) != 0)
		return errno == ENOENT || tp_fail_sys(err, errno, "listen on %s", path);
	if (!S_ISSOCK(st.st_mode))
		return tp_fail(err, TP_ESTATE, "%s exists and is no socket", path);
	probe = unix_socket(path, type, &addr, err);
	if (probe < 0)
		return false;
	/* EAGAIN: there is a listener, and its queue is full. */
	if (connect(probe, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EAGAIN)
		return tp_fail(err, TP_ESTATE, "another process listens on %s", path);
	if (errno != ECONNREFUSED && errno != ENOENT)
		return tp_fail_sys(err, errno, "listen on %s", path);
	if (unlink(path) != 0 && errno != ENOENT)
		return tp_fail_sys(err, errno, "remove the stale socket %s", path);
	return true;
}

static int listen_unix(const char *path, int type, mode_t mode, struct tp_error *err)
{
	tp_autoclose int fd = -1;
	struct sockaddr_un addr;

	fd = unix_socket(path, type, &addr, err);
	if (fd < 0 || !unlink_stale(path, type, err))
		return -1;
	/*
	 * On Linux the file is born with the socket's mode less the umask: never wider than asked,
	 * not even for an instant. chmod then gives what the umask took.
	 */
	if (fchmod(fd, mode) != 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		tp_fail_sys(err, errno, "listen on %s", path);
		return -1;
	}
	if (chmod(path, mode) != 0 || listen(fd, BACKLOG) != 0) {
		tp_fail_sys(err, errno, "listen on %s", path);
		unlink(path);
		return -1;
	}
	return TP_STEAL_FD(fd);
}

int tp_listen_unix(const char *path, mode_t mode, struct tp_error *err)
{
	return listen_unix(path, SOCK_STREAM | SOCK_NONBLOCK, mode, err);
}

int tp_listen_packets(const char *path, mode_t mode, struct tp_error *err)
{
	return listen_unix(path, SOCK_SEQPACKET | SOCK_NONBLOCK, mode, err);
}

static int connect_unix(const char *path, int type, struct tp_error *err)
{
	tp_autoclose int fd = -1;
	struct sockaddr_un addr;
	int rc;

	fd = unix_socket(path, type, &addr, err);
	if (fd < 0)
		return -1;
	do {
		rc = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
	} while (rc != 0 && errno == EINTR);
	if (rc != 0) {
		tp_fail_sys(err, errno, "connect to %s", path);
		return -1;
	}
	return TP_STEAL_FD(fd);
}

int tp_connect_unix(const char *path, bool nonblock, struct tp_error *err)
{
	return connect_unix(path, SOCK_STREAM | (nonblock ? SOCK_NONBLOCK : 0), err);
}

int tp_connect_packets(const char *path, struct tp_error *err)
{
	return connect_unix(path, SOCK_SEQPACKET | SOCK_NONBLOCK, err);
}

bool tp_set_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return false;
	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return fcntl(fd, F_SETFL, flags) == 0;
}

/* Supplementary groups as they were when the peer connected; of more than fit the first ones. */
static bool peer_groups(int sock, struct tp_peer *peer)
{
	tp_autofree gid_t *all = NULL;
	socklen_t size = sizeof(peer->groups);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &size) == 0) {
		peer->ngroups = size / sizeof(gid_t);
		return true;
	}
	if (errno == ENOPROTOOPT)
		return true;
	if (errno != ERANGE || size > KERNEL_MAX_GROUPS * sizeof(gid_t))
		return false;
	all = malloc(size);
	if (!all || getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, all, &size) != 0)
		return false;
	peer->ngroups = TP_N(peer->groups);
	memcpy(peer->groups, all, sizeof(peer->groups));
	return true;
}

bool tp_peer_of(int sock, struct tp_peer *peer, struct tp_error *err)
{
	struct tp_peer found = { 0 };
	struct ucred cred;
	socklen_t size = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0)
		return tp_fail_sys(err, errno, "read the peer's credentials");
	found.pid = cred.pid;
	found.uid = cred.uid;
	found.gid = cred.gid;
	if (!peer_groups(sock, &found))
		return tp_fail_sys(err, errno, "read the peer's groups");
	*peer = found;
	return true;
}
