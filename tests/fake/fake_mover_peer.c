/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_mover_peer.c - Plays the engine towards the real torpor-mover program */
#include "fake/fake_mover_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_proc.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "migration/mover_proto.h"

static void die(const char *what)
{
	fprintf(stderr, "mover peer: %s: %s\n", what, strerror(errno));
	abort();
}

/* The program under test: in the build folder, which the test program lies beneath. */
static int open_program(void)
{
	char path[PATH_MAX + 32], self[PATH_MAX];
	const char *build = getenv("TORPOR_BUILD");
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int fd;

	if (n < 0)
		die("/proc/self/exe");
	self[n] = 0;
	for (int i = 0; i < 3 && strrchr(self, '/'); i++)
		*strrchr(self, '/') = 0;
	snprintf(path, sizeof(path), "%s/torpor-mover", build ? build : self);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

void mover_peer_start(struct mover_peer *p)
{
	static char name[] = "torpor-mover";
	char *argv[] = { name, NULL };
	struct tp_error err = TP_ERROR_INIT;
	int exe = open_program(), pair[2];

	p->errors = memfd_create("stderr", MFD_CLOEXEC);
	if (p->errors < 0 || !tp_socketpair(SOCK_SEQPACKET, pair, &err))
		die("socket pair");
	p->control = pair[0];
	p->pidfd = tp_spawn(exe, argv, pair[1], p->errors, &p->pid, &err);
	if (p->pidfd < 0)
		die(err.text);
	close(pair[1]);
	close(exe);
}

void mover_peer_send(struct mover_peer *p, json_t *message_owned, const int *fds, size_t nfds)
{
	struct tp_error err = TP_ERROR_INIT;

	if (mover_proto_send(p->control, message_owned, fds, nfds, &err) == MOVER_IO_BAD)
		die(err.text);
	json_decref(message_owned);
}

json_t *mover_peer_receive(struct mover_peer *p)
{
	struct pollfd pfd = { .fd = p->control, .events = POLLIN };
	struct tp_error err = TP_ERROR_INIT;
	json_t *message = NULL;
	size_t nfds = 0;

	if (poll(&pfd, 1, (int)(MOVER_PEER_WAIT * 1000)) <= 0)
		return NULL;
	if (mover_proto_receive(p->control, &message, NULL, &nfds, &err) != MOVER_IO_OK)
		return NULL;
	return message;
}

json_t *mover_peer_expect(struct mover_peer *p, const char *name)
{
	for (;;) {
		tp_autojson json_t *message = mover_peer_receive(p);
		json_t *value = json_object_get(message, name);

		if (value)
			return json_incref(value);
		if (message && json_object_get(message, "progress"))
			continue;
		fprintf(stderr, "expected \"%s\", got ", name);
		if (message)
			json_dumpf(message, stderr, JSON_COMPACT);
		fputs(message ? "\n" : "the end\n", stderr);
		return NULL;
	}
}

void mover_peer_close(struct mover_peer *p)
{
	tp_close(&p->control);
}

bool mover_peer_running(const struct mover_peer *p)
{
	struct pollfd pfd = { .fd = p->pidfd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 0;
}

int mover_peer_wait(struct mover_peer *p)
{
	struct pollfd pfd = { .fd = p->pidfd, .events = POLLIN };
	int status = -1;
	bool ended = poll(&pfd, 1, (int)(MOVER_PEER_WAIT * 1000)) > 0;

	if (!ended) {
		tp_pidfd_kill(p->pidfd, SIGKILL);
		poll(&pfd, 1, -1);
	}
	tp_pidfd_wait(p->pidfd, &status);
	tp_close(&p->pidfd);
	return ended ? status : -1;
}

void mover_peer_free(struct mover_peer *p)
{
	mover_peer_close(p);
	if (p->pidfd >= 0)
		mover_peer_wait(p);
	tp_close(&p->errors);
}
