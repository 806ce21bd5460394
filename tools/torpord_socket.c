/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torpord_socket.c - Where clients come in
 *
 * Who may connect at all is the socket file's mode: 0660, and its group as
 * configured; where several groups have roles and no group is configured, 0666.
 * What a client may do is its role, by SO_PEERCRED; one without a role is told
 * so command by command, and there are only a few of them at a time.
 */
#include "torpord_socket.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_log.h"
#include "base/tp_sock.h"
#include "torpord_systemd.h"

TP_LOG_SOURCE("torpord");

#define ACCEPTS_PER_TURN 16
#define RETRY_SECONDS 1.0		/* after a failed accept: descriptors may be free again then */
#define SOCKET_MODE_GROUP 0660
#define SOCKET_MODE_ALL 0666
#define FOLDER_MODE 0755

struct sockets {
	struct ev_loop *loop;
	struct torpor *torpor;
	const struct config *config;
	struct ev_io listeners[SYSTEMD_SOCKETS_MAX];
	size_t n;
	struct ev_timer retry;
	char path[108];			/* ours to remove, or "" */
	dev_t device;
	ino_t inode;
};

/* Connections without a role; outlives `struct sockets`, as connections do. */
static size_t strangers;

static void stranger_left(void *arg)
{
	(void)arg;
	strangers--;
}

/* --- clients --- */

static void refuse(int fd, const char *class_, const char *desc)
{
	char line[256];
	int n = snprintf(line, sizeof(line), "{\"error\": {\"class\": \"%s\", \"desc\": \"%s\"}}\r\n", class_,
			 desc);

	if (send(fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		tp_debug("a refused client did not wait for the reason");
	close(fd);
}

static void welcome(struct sockets *s, int fd)
{
	struct tp_error err = TP_ERROR_INIT;
	struct tp_peer peer;
	enum torpor_role role;
	char name[64];

	if (!tp_peer_of(fd, &peer, &err)) {
		tp_warn("a client is refused: %s", err.text);
		close(fd);
		return;
	}
	role = config_role(s->config, &peer);
	snprintf(name, sizeof(name), "pid %d uid %u", (int)peer.pid, (unsigned)peer.uid);
	if (torpor_connections(s->torpor) >= SOCKET_CONNECTIONS_MAX ||
	    (role == TORPOR_ROLE_NONE && strangers >= SOCKET_STRANGERS_MAX)) {
		tp_warn("connection of %s refused: too many are open", name);
		refuse(fd, "GenericError", "too many clients are connected to torpord; try again later");
		return;
	}
	if (role != TORPOR_ROLE_NONE) {
		torpor_serve(s->torpor, fd, role, name, NULL, NULL);
	} else if (torpor_serve(s->torpor, fd, role, name, stranger_left, NULL)) {
		strangers++;
	}
}

static void accept_some(struct ev_loop *loop, struct ev_io *w, int revents)
{
	struct sockets *s = w->data;

	(void)revents;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			welcome(s, fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EAGAIN && errno != EWOULDBLOCK) {
			tp_err("accept a client: %s", strerror(errno));
			for (size_t l = 0; l < s->n; l++)
				ev_io_stop(loop, &s->listeners[l]);
			ev_timer_again(loop, &s->retry);
		}
		return;
	}
}

static void listen_again(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct sockets *s = w->data;

	(void)revents;
	ev_timer_stop(loop, w);
	for (size_t i = 0; i < s->n; i++)
		ev_io_start(loop, &s->listeners[i]);
}

/* --- the socket file --- */

static gid_t only_group(const struct config *c, bool *several)
{
	gid_t gid = (gid_t)-1;

	*several = false;
	for (size_t i = 0; i < c->ngroups; i++) {
		*several = *several || (gid != (gid_t)-1 && gid != c->groups[i].gid);
		gid = c->groups[i].gid;
	}
	return gid;
}

/* Folders of the default path live until the next boot only: they are made again at each start. */
bool sockets_prepare(const struct config *config, struct tp_error *err)
{
	char folder[PATH_MAX];
	char *slash;
	struct stat st;
	int fd;

	snprintf(folder, sizeof(folder), "%s", config->socket);
	slash = strrchr(folder, '/');
	if (!slash || slash == folder)
		return true;
	*slash = 0;
	if (stat(folder, &st) == 0)
		return true;
	fd = tp_mkdirs(folder, err);
	if (fd < 0)
		return false;
	if (fchmod(fd, FOLDER_MODE) != 0)
		tp_warn("%s: %s", folder, strerror(errno));
	close(fd);
	return true;
}

static int listen_at(struct sockets *s, struct tp_error *err)
{
	const struct config *c = s->config;
	bool several;
	gid_t gid = only_group(c, &several);
	struct stat st;
	int fd;

	if (c->has_socket_group)
		gid = c->socket_group;
	fd = tp_listen_unix(c->socket, several && !c->has_socket_group ? SOCKET_MODE_ALL : SOCKET_MODE_GROUP,
			    err);
	if (fd < 0)
		return -1;
	if ((c->has_socket_group || (gid != (gid_t)-1 && !several)) && chown(c->socket, (uid_t)-1, gid) != 0)
		tp_warn("%s cannot be given to group %u: %s", c->socket, (unsigned)gid, strerror(errno));
	snprintf(s->path, sizeof(s->path), "%s", c->socket);
	if (stat(s->path, &st) == 0) {
		s->device = st.st_dev;
		s->inode = st.st_ino;
	}
	tp_info("listening on %s", s->path);
	return fd;
}

/* Unless another daemon has put its own there meanwhile. */
static void remove_file(struct sockets *s)
{
	struct stat st;

	if (*s->path && stat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode)
		unlink(s->path);
}

/* --- life --- */

struct sockets *sockets_open(struct ev_loop *loop, struct torpor *t, const struct config *config,
			     struct tp_error *err)
{
	struct sockets *s = calloc(1, sizeof(*s));
	int fds[SYSTEMD_SOCKETS_MAX];

	if (!s) {
		tp_fail_nomem(err);
		return NULL;
	}
	s->loop = loop;
	s->torpor = t;
	s->config = config;
	s->n = systemd_sockets(fds);
	if (s->n == 0) {
		fds[0] = listen_at(s, err);
		if (fds[0] < 0) {
			free(s);
			return NULL;
		}
		s->n = 1;
	}
	for (size_t i = 0; i < s->n; i++) {
		ev_io_init(&s->listeners[i], accept_some, fds[i], EV_READ);
		s->listeners[i].data = s;
		ev_io_start(loop, &s->listeners[i]);
	}
	ev_timer_init(&s->retry, listen_again, 0, RETRY_SECONDS);
	s->retry.data = s;
	return s;
}

void sockets_configure(struct sockets *s, const struct config *config)
{
	s->config = config;
}

void sockets_close(struct sockets *s)
{
	if (!s)
		return;
	ev_timer_stop(s->loop, &s->retry);
	for (size_t i = 0; i < s->n; i++) {
		ev_io_stop(s->loop, &s->listeners[i]);
		close(s->listeners[i].fd);
	}
	remove_file(s);
	free(s);
}
