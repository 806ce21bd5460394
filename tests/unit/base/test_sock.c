/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_sock.c - UNIX sockets: descriptor passing under hostile peers, listening, credentials */
#include "base_test.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/tp_cleanup.h"
#include "base/tp_sock.h"

struct place {
	char path[64], sock[80];
	unsigned fds;
};

static int enter(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p)
		return -1;
	p->fds = open_fds();
	strcpy(p->path, "/tmp/torpor-test-XXXXXX");
	*state = p;
	if (!mkdtemp(p->path))
		return -1;
	snprintf(p->sock, sizeof(p->sock), "%s/s", p->path);
	return 0;
}

static int leave(void **state)
{
	struct place *p = *state;

	unlink(p->sock);
	rmdir(p->path);
	assert_int_equal(access(p->path, F_OK), -1);
	assert_int_equal(open_fds(), p->fds);
	free(p);
	return 0;
}

static void pair(int type, int fds[2])
{
	struct tp_error err = TP_ERROR_INIT;

	assert_true(tp_socketpair(type, fds, &err));
	assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fds[1], F_GETFD), FD_CLOEXEC);
}

static void close_pair(int fds[2])
{
	tp_close(&fds[0]);
	tp_close(&fds[1]);
}

static void pair_errors(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	int fds[2] = { 7, 7 };

	(void)state;
	assert_false(tp_socketpair(12345, fds, &err));
	assert_failed(&err, TP_ESYS, "make a socket pair");
	assert_int_equal(fds[0], 7);
}

static void pass_some(void **state)
{
	int s[2], sent[3], got[TP_MAX_FDS];
	struct stat a, b;
	size_t n = TP_MAX_FDS, i;
	char buf[8];

	(void)state;
	pair(SOCK_STREAM, s);
	for (i = 0; i < 3; i++)
		sent[i] = open(i == 1 ? "/dev/zero" : "/dev/null", O_RDONLY);
	assert_int_equal(tp_send_fds(s[0], "abc", 3, sent, 3), 3);
	assert_int_equal(tp_recv_fds(s[1], buf, sizeof(buf), got, &n), 3);
	assert_memory_equal(buf, "abc", 3);
	assert_int_equal(n, 3);
	for (i = 0; i < 3; i++) {
		assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
		assert_int_equal(fstat(sent[i], &a), 0);
		assert_int_equal(fstat(got[i], &b), 0);
		assert_true(a.st_rdev == b.st_rdev);
		close(sent[i]);
		close(got[i]);
	}
	/* Without any. */
	n = TP_MAX_FDS;
	assert_int_equal(tp_send_fds(s[0], "x", 1, NULL, 0), 1);
	assert_int_equal(tp_recv_fds(s[1], buf, sizeof(buf), got, &n), 1);
	assert_int_equal(n, 0);
	close_pair(s);
}

static void send_limits(void **state)
{
	int s[2], fds[TP_MAX_FDS + 1], got[TP_MAX_FDS];
	size_t n = TP_MAX_FDS, i;
	char byte;

	(void)state;
	pair(SOCK_STREAM, s);
	for (i = 0; i < TP_N(fds); i++)
		fds[i] = s[0];
	errno = 0;
	assert_int_equal(tp_send_fds(s[0], "x", 1, fds, TP_N(fds)), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(tp_send_fds(s[0], "", 0, fds, 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(tp_send_fds(s[0], "x", 1, fds, TP_MAX_FDS), 1);
	assert_int_equal(tp_recv_fds(s[1], &byte, 1, got, &n), 1);
	assert_int_equal(n, TP_MAX_FDS);
	for (i = 0; i < n; i++)
		close(got[i]);
	fds[0] = 1000000;
	assert_int_equal(tp_send_fds(s[0], "x", 1, fds, 1), -1);
	assert_int_equal(errno, EBADF);
	close_pair(s);
}

/* What a peer that is not ours may send: as much as the kernel lets pass. */
static void send_raw(int sock, const char *data, size_t n, size_t nfds)
{
	enum { MOST = 253 };
	static union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int) * MOST)];
	} control;
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = n };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.room, .msg_controllen = CMSG_SPACE(sizeof(int) * nfds),
	};
	int fds[MOST];
	size_t i;

	for (i = 0; i < nfds; i++)
		fds[i] = sock;
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int) * nfds);
	memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * nfds);
	assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), n);
}

static void too_many_are_closed(void **state)
{
	int s[2], got[2];
	unsigned before;
	size_t n = 2;
	char byte;

	(void)state;
	pair(SOCK_STREAM, s);
	before = open_fds();
	send_raw(s[0], "x", 1, 253);
	assert_int_equal(tp_recv_fds(s[1], &byte, 1, got, &n), 1);
	assert_int_equal(n, 2);
	assert_int_equal(open_fds(), before + 2);
	close(got[0]);
	close(got[1]);
	/* No room at all. */
	n = 0;
	send_raw(s[0], "x", 1, 17);
	assert_int_equal(tp_recv_fds(s[1], &byte, 1, NULL, &n), 1);
	assert_int_equal(n, 0);
	send_raw(s[0], "x", 1, 17);
	assert_int_equal(tp_recv_fds(s[1], &byte, 1, NULL, NULL), 1);
	assert_int_equal(open_fds(), before);
	close_pair(s);
}

static void truncated_message(void **state)
{
	int s[2], got[4];
	unsigned before;
	size_t n = 4;
	char buf[4];

	(void)state;
	pair(SOCK_SEQPACKET, s);
	before = open_fds();
	send_raw(s[0], "longer than the buffer", 22, 3);
	errno = 0;
	assert_int_equal(tp_recv_fds(s[1], buf, sizeof(buf), got, &n), -1);
	assert_int_equal(errno, EMSGSIZE);
	assert_int_equal(n, 0);
	assert_int_equal(open_fds(), before);
	/* The next one is not disturbed. */
	n = 4;
	assert_int_equal(tp_send_fds(s[0], "ok", 2, s, 1), 2);
	assert_int_equal(tp_recv_fds(s[1], buf, sizeof(buf), got, &n), 2);
	assert_int_equal(n, 1);
	close(got[0]);
	close_pair(s);
}

static void peer_gone(void **state)
{
	int s[2], got[1];
	size_t n = 1;
	char byte;

	(void)state;
	pair(SOCK_STREAM, s);
	tp_close(&s[1]);
	errno = 0;
	/* By SIGPIPE the test itself would end. */
	assert_int_equal(tp_send_fds(s[0], "x", 1, NULL, 0), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(tp_recv_fds(s[0], &byte, 1, got, &n), 0);
	assert_int_equal(n, 0);
	n = 1;
	assert_int_equal(tp_recv_fds(-1, &byte, 1, got, &n), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(n, 0);
	close_pair(s);
}

static void paths(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	char path[300];

	(void)state;
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	assert_false(tp_sock_path_ok(path, &err));
	assert_failed(&err, TP_EARG, "has 299 bytes, at most 107 are possible");
	assert_int_equal(tp_connect_unix(path, true, &err), -1);
	assert_failed(&err, TP_EARG, "at most 107");
	assert_int_equal(tp_listen_unix(path, 0600, &err), -1);
	assert_failed(&err, TP_EARG, "at most 107");
	path[108] = 0;
	assert_false(tp_sock_path_ok(path, NULL));
	path[107] = 0;
	assert_true(tp_sock_path_ok(path, &err));
	assert_false(tp_sock_path_ok("", &err));
	assert_failed(&err, TP_EARG, "empty");
	assert_false(tp_sock_path_ok(NULL, &err));
}

static void listen_and_connect(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	mode_t mask = umask(077);
	int server = tp_listen_unix(p->sock, 0660, &err), client, accepted;
	struct tp_peer peer;
	struct stat st;

	umask(mask);
	assert_true(server >= 0);
	assert_int_equal(stat(p->sock, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	assert_int_equal(fcntl(server, F_GETFD), FD_CLOEXEC);
	assert_true(fcntl(server, F_GETFL) & O_NONBLOCK);
	client = tp_connect_unix(p->sock, true, &err);
	assert_true(client >= 0);
	assert_int_equal(fcntl(client, F_GETFD), FD_CLOEXEC);
	assert_true(fcntl(client, F_GETFL) & O_NONBLOCK);
	assert_true(tp_set_nonblock(client, false));
	assert_false(fcntl(client, F_GETFL) & O_NONBLOCK);
	assert_true(tp_set_nonblock(client, true));
	assert_false(tp_set_nonblock(-1, true));
	accepted = accept4(server, NULL, NULL, SOCK_CLOEXEC);
	assert_true(accepted >= 0);
	assert_true(tp_peer_of(accepted, &peer, &err));
	assert_int_equal(peer.pid, getpid());
	assert_int_equal(peer.uid, geteuid());
	assert_int_equal(peer.gid, getegid());
	close(client);
	client = tp_connect_unix(p->sock, false, &err);
	assert_true(client >= 0);
	assert_false(fcntl(client, F_GETFL) & O_NONBLOCK);
	close(accepted);
	close(client);
	close(server);
}

static void stale_socket_is_replaced(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	int server = tp_listen_unix(p->sock, 0600, &err);

	assert_true(server >= 0);
	/* One that is served is not taken away. */
	assert_int_equal(tp_listen_unix(p->sock, 0600, &err), -1);
	assert_failed(&err, TP_ESTATE, "another process listens on /tmp");
	close(server);
	assert_int_equal(access(p->sock, F_OK), 0);
	server = tp_listen_unix(p->sock, 0600, &err);
	assert_true(server >= 0);
	close(server);
}

static void other_files_are_left_alone(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	int fd = open(p->sock, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	close(fd);
	assert_int_equal(tp_listen_unix(p->sock, 0600, &err), -1);
	assert_failed(&err, TP_ESTATE, "exists and is no socket");
	assert_int_equal(access(p->sock, F_OK), 0);
	unlink(p->sock);
	assert_int_equal(symlink("/dev/null", p->sock), 0);
	assert_int_equal(tp_listen_unix(p->sock, 0600, &err), -1);
	assert_failed(&err, TP_ESTATE, "exists and is no socket");
}

static void connect_errors(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	char path[128];
	int server;

	assert_int_equal(tp_connect_unix(p->sock, true, &err), -1);
	assert_int_equal(err.sys, ENOENT);
	assert_failed(&err, TP_ESYS, "connect to /tmp/torpor-test-");
	server = tp_listen_unix(p->sock, 0600, &err);
	close(server);
	assert_int_equal(tp_connect_unix(p->sock, true, &err), -1);
	assert_int_equal(err.sys, ECONNREFUSED);
	tp_error_clear(&err);
	snprintf(path, sizeof(path), "%s/absent/s", p->path);
	assert_int_equal(tp_listen_unix(path, 0600, &err), -1);
	assert_failed(&err, TP_ESYS, "listen on");
}

/* A listener whose queue is full: connecting without blocking says so, and it counts as served. */
static void full_queue(void **state)
{
	enum { MOST = 200 };
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	int server = tp_listen_unix(p->sock, 0600, &err), clients[MOST], n;

	for (n = 0; n < MOST; n++) {
		clients[n] = tp_connect_unix(p->sock, true, &err);
		if (clients[n] < 0)
			break;
	}
	assert_in_range(n, 1, MOST - 1);
	assert_int_equal(err.sys, EAGAIN);
	tp_error_clear(&err);
	assert_int_equal(tp_listen_unix(p->sock, 0600, &err), -1);
	assert_failed(&err, TP_ESTATE, "another process listens");
	while (n > 0)
		close(clients[--n]);
	close(server);
}

/* In a child, as groups are the process's: connects with ngroups groups and says what is seen. */
static int groups_seen(size_t ngroups, size_t expected)
{
	gid_t *groups = calloc(ngroups + 1, sizeof(*groups));
	struct tp_peer peer;
	int s[2];
	size_t i;

	for (i = 0; i < ngroups; i++)
		groups[i] = (gid_t)(1000 + i);
	if (setgroups(ngroups, groups) != 0)
		return 77;
	free(groups);
	if (!tp_socketpair(SOCK_STREAM, s, NULL) || !tp_peer_of(s[0], &peer, NULL))
		return 1;
	if (peer.ngroups != expected)
		return 2;
	for (i = 0; i < expected; i++) {
		if (peer.groups[i] != 1000 + i)
			return 3;
	}
	close(s[0]);
	close(s[1]);
	return 0;
}

static void peer_groups(void **state)
{
	static const struct { size_t has, seen; } cases[] = {
		{ 0, 0 }, { 3, 3 }, { 64, 64 }, { 65, 64 }, { 5000, 64 },
	};
	struct tp_peer peer;
	struct tp_error err = TP_ERROR_INIT;
	size_t i;
	int status;
	pid_t child;

	(void)state;
	assert_false(tp_peer_of(-1, &peer, &err));
	assert_failed(&err, TP_ESYS, "read the peer's credentials");
	if (geteuid() != 0)
		skip();
	for (i = 0; i < TP_N(cases); i++) {
		child = fork();
		if (child == 0)
			_exit(groups_seen(cases[i].has, cases[i].seen));
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		if (WEXITSTATUS(status) == 77)
			skip();
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pair_errors),
		cmocka_unit_test_setup_teardown(pass_some, enter, leave),
		cmocka_unit_test_setup_teardown(send_limits, enter, leave),
		cmocka_unit_test_setup_teardown(too_many_are_closed, enter, leave),
		cmocka_unit_test_setup_teardown(truncated_message, enter, leave),
		cmocka_unit_test_setup_teardown(peer_gone, enter, leave),
		cmocka_unit_test(paths),
		cmocka_unit_test_setup_teardown(listen_and_connect, enter, leave),
		cmocka_unit_test_setup_teardown(stale_socket_is_replaced, enter, leave),
		cmocka_unit_test_setup_teardown(other_files_are_left_alone, enter, leave),
		cmocka_unit_test_setup_teardown(connect_errors, enter, leave),
		cmocka_unit_test_setup_teardown(full_queue, enter, leave),
		cmocka_unit_test_setup_teardown(peer_groups, enter, leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
