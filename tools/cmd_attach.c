/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_attach.c - log, console: what a VM's QEMU and guest say
 *
 * torpord only tells where the log and the socket are; both are opened here, with the rights of the user.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "cli_out.h"
#include "cli_session.h"

#define CHUNK 65536
#define LOOK_MS 200		/* between two looks at a log that is followed */
#define ESCAPE 0x1d		/* Ctrl-] */
#define QUIET_MS 1000		/* without input to come, a guest that says nothing for so long has answered */

static int fail_file(const struct cli *cli, const char *path, int sys, const char *what)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_fail_sys(&err, sys, "%s: %s", path, what);
	return cli_failed(cli, &err);
}

static int query(struct cli *cli, json_t **vm)
{
	return cli_ask(cli, "query-vm", json_pack("{s:s}", "name", cli->operands[0]), cli->operands[0], vm);
}

/* --- log --- */

/* What QEMU and its guest wrote must not steer a terminal: newlines and tabs stay, other controls go. */
static bool put_log(char *data, size_t n)
{
	struct tp_error err = TP_ERROR_INIT;

	if (isatty(STDOUT_FILENO))
		for (size_t i = 0; i < n; i++)
			if (((unsigned char)data[i] < ' ' && data[i] != '\n' && data[i] != '\t') || data[i] == 0x7f ||
			    (unsigned char)data[i] >= 0x80)
				data[i] = '?';
	return tp_write_all(STDOUT_FILENO, data, n, &err);
}

/* Prints from *at to the end. 0, or errno. */
static int copy_log(int fd, off_t *at)
{
	char buf[CHUNK];
	ssize_t n;

	while ((n = pread(fd, buf, sizeof(buf), *at)) > 0) {
		if (!put_log(buf, (size_t)n))
			return EPIPE;
		*at += n;
	}
	return n < 0 ? errno : 0;
}

/* The log is a new file once QEMU is started again. */
static void reopen_if_replaced(const char *path, int *fd, off_t *at)
{
	struct stat named, open_one;
	int fresh;

	if (stat(path, &named) != 0 || fstat(*fd, &open_one) != 0)
		return;
	if (named.st_dev == open_one.st_dev && named.st_ino == open_one.st_ino) {
		if (named.st_size < *at)
			*at = 0;
		return;
	}
	fresh = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fresh < 0)
		return;
	tp_close(fd);
	*fd = fresh;
	*at = 0;
}

static int follow_log(const struct cli *cli, const char *path, int *fd)
{
	off_t at = 0;
	int sys;

	while ((sys = copy_log(*fd, &at)) == 0 && cli_flag(cli, "follow")) {
		poll(NULL, 0, LOOK_MS);
		reopen_if_replaced(path, fd, &at);
	}
	return sys == 0 ? CLI_DONE : fail_file(cli, path, sys, "cannot be copied to standard output");
}

int cmd_log(struct cli *cli)
{
	tp_autojson json_t *vm = NULL;
	tp_autoclose int fd = -1;
	const char *path;
	int status = query(cli, &vm);

	if (status != CLI_DONE)
		return status;
	path = tp_json_str(vm, "log");
	if (!path) {
		cli_note("%s has no log", cli->operands[0]);
		return CLI_FAILED;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 && errno == ENOENT) {
		cli_note("%s has no log yet", cli->operands[0]);
		return CLI_DONE;
	}
	return fd < 0 ? fail_file(cli, path, errno, "cannot be opened") : follow_log(cli, path, &fd);
}

/* --- console --- */

struct terminal {
	bool raw;
	struct termios before;
};

static void make_raw(struct terminal *t)
{
	struct termios raw;

	if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &t->before) != 0)
		return;
	raw = t->before;
	cfmakeraw(&raw);
	t->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void make_cooked(const struct terminal *t)
{
	if (t->raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
}

static bool send_all(int sock, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t sent = send(sock, data, n, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			return false;
		if (sent > 0) {
			data += sent;
			n -= (size_t)sent;
		}
	}
	return true;
}

/* From standard input to the socket; false: end of the session. At end of file *in becomes -1. */
static bool type_in(const struct terminal *t, int *in, int sock)
{
	char buf[CHUNK], *end;
	ssize_t n = read(*in, buf, sizeof(buf));

	if (n < 0)
		return errno == EINTR;
	if (n == 0) {
		*in = -1;
		return !t->raw;
	}
	end = t->raw ? memchr(buf, ESCAPE, (size_t)n) : NULL;
	return send_all(sock, buf, end ? (size_t)(end - buf) : (size_t)n) && !end;
}

/* From the socket to standard output, as it is: a console is a terminal's. */
static bool print_out(int sock)
{
	struct tp_error err = TP_ERROR_INIT;
	char buf[CHUNK];
	ssize_t n = recv(sock, buf, sizeof(buf), 0);

	if (n < 0)
		return errno == EINTR;
	return n > 0 && tp_write_all(STDOUT_FILENO, buf, (size_t)n, &err);
}

/* Until either side ends. Input that has ended (a pipe, /dev/null) leaves the guest the time to answer. */
static void converse(const struct terminal *t, int sock)
{
	int in = STDIN_FILENO;

	for (;;) {
		struct pollfd p[2] = { { .fd = sock, .events = POLLIN }, { .fd = in, .events = POLLIN } };
		int n = poll(p, 2, in < 0 ? QUIET_MS : -1);

		if (n == 0 || (n < 0 && errno != EINTR))
			return;
		if (n < 0)
			continue;
		if (p[0].revents && !print_out(sock))
			return;
		if (p[1].revents && !type_in(t, &in, sock))
			return;
	}
}

/* The console's socket, the caller's text; NULL: the VM has none. */
static json_t *console_path(const json_t *vm)
{
	const char *console = json_string_value(tp_json_path(vm, "spec.launch.console"));
	const char *run_dir = tp_json_str(vm, "run-dir");

	if (!console || !run_dir)
		return NULL;
	return strcmp(console, "auto") == 0 ? json_sprintf("%s/console.sock", run_dir) : json_string(console);
}

int cmd_console(struct cli *cli)
{
	tp_autojson json_t *vm = NULL, *path = NULL;
	tp_autoclose int sock = -1;
	struct terminal terminal = { 0 };
	struct tp_error err = TP_ERROR_INIT;
	int status = query(cli, &vm);

	if (status != CLI_DONE)
		return status;
	path = console_path(vm);
	if (!path) {
		cli_note("%s has no console: its spec's launch.console is not set", cli->operands[0]);
		return CLI_FAILED;
	}
	sock = tp_connect_unix(json_string_value(path), false, &err);
	if (sock < 0) {
		tp_prefix(&err, "the console of %s (%s)", cli->operands[0], tp_json_str(vm, "state"));
		return cli_failed(cli, &err);
	}
	if (isatty(STDIN_FILENO))
		cli_note("connected to the console of %s; Ctrl-] ends", cli->operands[0]);
	make_raw(&terminal);
	converse(&terminal, sock);
	make_cooked(&terminal);
	if (terminal.raw)
		fputs("\n", stderr);
	return CLI_DONE;
}
