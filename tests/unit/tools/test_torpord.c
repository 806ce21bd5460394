/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_torpord.c - The daemon as a program: options, socket, one daemon a folder, signals, end */
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"

#define LIMIT 20.0		/* seconds for whatever is awaited */
#define OUTPUT_MAX (4u << 20)

static char folder[] = "/tmp/torpord-test-XXXXXX";
static char program[512];
static pid_t running;		/* the one that was started last */

/* --- running it --- */

/* Starts torpord with its output in FOLDER/out and FOLDER/err. args ends with NULL. */
static pid_t start(const char *const *args)
{
	const char *argv[16] = { program };
	char out[128], err[128];
	pid_t pid;

	for (size_t i = 0; args[i]; i++)
		argv[i + 1] = args[i];
	snprintf(out, sizeof(out), "%s/out", folder);
	snprintf(err, sizeof(err), "%s/err", folder);
	pid = running = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int fd1 = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		int fd2 = open(err, O_WRONLY | O_CREAT | O_APPEND, 0600);

		if (dup2(fd1, 1) >= 0 && dup2(fd2, 2) >= 0)
			execv(program, (char **)(uintptr_t)argv);
		_exit(126);
	}
	return pid;
}

static char *text_of(const char *name)
{
	char path[128];
	char *text;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	text = tp_read_path(path, OUTPUT_MAX, NULL, NULL);
	return text ? text : strdup("");
}

/* Exit status; 128 and more: by a signal; -1: it did not end. */
static int finish(pid_t pid)
{
	double end = tp_now_mono() + LIMIT;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (tp_now_mono() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	if (pid == running)
		running = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void clean_output(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/err", folder);
	unlink(path);
}

static int run(const char *const *args)
{
	clean_output();
	return finish(start(args));
}

static void wait_for_text(const char *file, const char *part)
{
	double end = tp_now_mono() + LIMIT;

	for (;;) {
		tp_autofree char *text = text_of(file);

		if (strstr(text, part))
			return;
		if (tp_now_mono() > end)
			fail_msg("'%s' did not come: %s", part, text);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
}

/* --- a daemon in the folder --- */

static char config[128], state_dir[128], runtime_dir[128], socket_path[128];

static pid_t start_daemon(void)
{
	const char *args[] = { "--config", config, "--state-dir", state_dir, "--runtime-dir", runtime_dir, NULL };

	return start(args);
}

static void write_config(const char *text)
{
	FILE *f = fopen(config, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static pid_t ready_daemon(const char *config_text)
{
	pid_t pid;

	clean_output();
	write_config(config_text);
	pid = start_daemon();
	wait_for_text("err", "is ready");
	return pid;
}

/* Connects and reads on until the text came. */
static int connect_and_expect(const char *request, const char *part)
{
	struct timeval limit = { .tv_sec = (time_t)LIMIT };
	struct tp_error err = TP_ERROR_INIT;
	char text[4096];
	size_t n = 0;
	int fd = tp_connect_unix(socket_path, false, &err);

	if (fd < 0)
		fail_msg("%s", err.text);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
	do {
		ssize_t got = recv(fd, text + n, sizeof(text) - 1 - n, 0);

		if (got <= 0)
			fail_msg("'%s' did not come after %zu bytes", part, n);
		n += (size_t)got;
		text[n] = 0;
	} while (!strstr(text, part));
	return fd;
}

static int make_folder(void **state)
{
	const char *build = getenv("TORPOR_BUILD");

	(void)state;
	snprintf(program, sizeof(program), "%s/torpord", build ? build : "build");
	assert_non_null(mkdtemp(folder));
	snprintf(config, sizeof(config), "%s/torpord.json", folder);
	snprintf(state_dir, sizeof(state_dir), "%s/state", folder);
	snprintf(runtime_dir, sizeof(runtime_dir), "%s/run", folder);
	snprintf(socket_path, sizeof(socket_path), "%s/run/torpor.sock", folder);
	return access(program, X_OK);
}

/* A test that failed leaves its daemon. */
static int stop_daemon(void **state)
{
	(void)state;
	if (running > 0 && kill(running, SIGKILL) == 0)
		waitpid(running, NULL, 0);
	running = 0;
	return 0;
}

static int remove_folder(void **state)
{
	char command[160];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

/* --- tests --- */

static void bad_usage_exits_2(void **state)
{
	static const char *const cases[][3] = {
		{ "--nonsense" }, { "argument" }, { "--socket" }, { "--help=1" }, { "--pool", "x" },
		{ "--pool", "a=/p,quota=4Q" }, { "--log-level", "loud" }, { "--log-format", "xml" }, { "-x" },
		{ "--state-dir", "" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++) {
		tp_autofree char *err = NULL;

		assert_int_equal(run(cases[i]), 2);
		err = text_of("err");
		assert_ptr_equal(strstr(err, "torpord: "), err);
		assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);	/* one line */
	}
}

static void explains_itself(void **state)
{
	static const char *const help[] = { "--help", NULL }, *const version[] = { "--version", NULL };
	tp_autofree char *text = NULL, *other = NULL;

	(void)state;
	assert_int_equal(run(help), 0);
	text = text_of("out");
	assert_non_null(strstr(text, "usage: torpord"));
	assert_int_equal(run(version), 0);
	other = text_of("out");
	assert_non_null(strstr(other, TP_VERSION));
}

/* The manual page names each option of --help and no other. */
static void manual_and_help_agree(void **state)
{
	static const char *const help[] = { "--help", NULL };
	tp_autofree char *text = NULL, *manual = tp_read_path("docs/man/torpord.8", OUTPUT_MAX, NULL, NULL);
	size_t in_help = 0, in_manual = 0;

	(void)state;
	if (!manual)
		skip();		/* not run from the top of the source */
	assert_int_equal(run(help), 0);
	text = text_of("out");
	for (const char *p = text; (p = strstr(p, "\n  --")); p++) {
		char name[64] = "", wanted[128];
		size_t n = 0;

		sprintf(name, "%.*s", (int)strcspn(p + 3, " "), p + 3);
		for (const char *c = name; *c; c++)
			n += (size_t)sprintf(wanted + n, *c == '-' ? "\\-" : "%c", *c);
		if (!strstr(manual, wanted))
			fail_msg("the manual lacks %s", name);
		in_help++;
	}
	for (const char *p = manual; (p = strstr(p, "\n.B")); p++)
		in_manual += strncmp(p + strcspn(p, " "), " \\-\\-", 5) == 0;
	assert_int_equal(in_help, in_manual - 1);	/* "as for --pool" */
}

static void prints_its_schema(void **state)
{
	static const char *const print[] = { "--print-schema", NULL };
	tp_autofree char *text = NULL;
	tp_autojson json_t *schema = NULL;

	(void)state;
	assert_int_equal(run(print), 0);
	text = text_of("out");
	schema = json_loads(text, 0, NULL);
	assert_true(json_array_size(json_object_get(schema, "commands")) > 30);
}

static void checks_its_configuration(void **state)
{
	const char *const check[] = { "--config", config, "--check-config", NULL };
	tp_autofree char *err = NULL;

	(void)state;
	write_config("{\"log-level\": \"debug\"}");
	assert_int_equal(run(check), 0);
	write_config("{\"log-levle\": \"debug\"}");
	assert_int_equal(run(check), 1);
	err = text_of("err");
	assert_non_null(strstr(err, config));
	assert_non_null(strstr(err, "log-levle"));
	assert_int_equal(run((const char *const[]){ "--config", "/nonexistent", NULL }), 1);
}

static void serves_and_ends_orderly(void **state)
{
	pid_t pid = ready_daemon("{\"log-level\": \"debug\"}");
	struct stat st;
	char rest[4096];
	ssize_t n;
	int fd;

	(void)state;
	assert_int_equal(stat(socket_path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	fd = connect_and_expect("{\"execute\": \"qmp_capabilities\"}{\"execute\": \"query-version\", \"id\": 1}",
				"\"id\": 1");
	assert_int_equal(kill(pid, SIGUSR1), 0);
	wait_for_text("err", "1 connections");
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(finish(pid), 0);
	assert_int_equal(stat(socket_path, &st), -1);
	/* What was said at the end is not lost, then the connection is closed. */
	n = recv(fd, rest, sizeof(rest) - 1, 0);
	assert_true(n > 0);
	rest[n] = 0;
	assert_non_null(strstr(rest, "TORPOR_SHUTDOWN"));
	assert_int_equal(recv(fd, rest, sizeof(rest), 0), 0);
	tp_close(&fd);
}

static void a_second_daemon_names_the_first(void **state)
{
	pid_t first = ready_daemon("{}"), second;
	char pid_text[32];

	(void)state;
	clean_output();
	second = start_daemon();
	assert_int_equal(finish(second), 1);
	tp_autofree char *err = text_of("err");
	snprintf(pid_text, sizeof(pid_text), "%d", (int)first);
	if (!strstr(err, pid_text))
		fail_msg("%s", err);
	/* The first one's socket is still there and served. */
	int fd = connect_and_expect("", "QMP");

	tp_close(&fd);
	kill(first, SIGINT);
	assert_int_equal(finish(first), 0);
}

static void survives_kill_9(void **state)
{
	pid_t pid = ready_daemon("{}");

	(void)state;
	kill(pid, SIGKILL);
	assert_int_equal(finish(pid), 128 + SIGKILL);
	pid = ready_daemon("{}");
	int fd = connect_and_expect("", "QMP");

	tp_close(&fd);
	kill(pid, SIGTERM);
	assert_int_equal(finish(pid), 0);
}

static void reads_its_configuration_again(void **state)
{
	pid_t pid = ready_daemon("{}");

	(void)state;
	write_config("{\"log-format\": \"json\", \"pool\": [\"more=/tmp/more\"]}");
	kill(pid, SIGHUP);
	wait_for_text("err", "changes of pool take effect when");
	wait_for_text("err", "{\"time\":");
	write_config("{\"log-format\": 7}");
	kill(pid, SIGHUP);
	wait_for_text("err", "stays as it was");
	int fd = connect_and_expect("", "QMP");

	tp_close(&fd);
	kill(pid, SIGTERM);
	assert_int_equal(finish(pid), 0);
}

/* Another user: the role is that of his group, and changes with SIGHUP for new connections. */
static void as_group(const char *group, const char *expected)
{
	static const char request[] = "{\"execute\": \"qmp_capabilities\"}{\"execute\": \"vm-reset\", "
				      "\"arguments\": {\"name\": \"nobody-has-this\"}}";
	gid_t gid = getgrnam(group)->gr_gid;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		char text[4096];
		size_t n = 0;
		int fd;

		if (setgroups(0, NULL) != 0 || setgid(gid) != 0 || setuid(65534) != 0)
			_exit(3);
		fd = tp_connect_unix(socket_path, false, NULL);
		if (fd < 0)
			_exit(4);
		if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0 || shutdown(fd, SHUT_WR) != 0)
			_exit(5);
		for (ssize_t got; (got = recv(fd, text + n, sizeof(text) - 1 - n, 0)) > 0; )
			n += (size_t)got;
		text[n] = 0;
		_exit(strstr(text, expected) ? 0 : 6);
	}
	assert_int_equal(finish(pid), 0);
}

static void roles_are_by_group(void **state)
{
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(folder, 0755), 0);
	pid = ready_daemon("{\"roles\": {\"read\": [\"daemon\"], \"operate\": [\"mail\"]}}");
	as_group("daemon", "PermissionDenied");
	as_group("mail", "NotFound");
	as_group("nogroup", "this connection has \\\"none\\\"");
	write_config("{\"roles\": {\"operate\": [\"daemon\"]}}");
	kill(pid, SIGHUP);
	wait_for_text("err", "was read again");
	as_group("daemon", "NotFound");
	as_group("mail", "PermissionDenied");
	kill(pid, SIGTERM);
	assert_int_equal(finish(pid), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, NULL, stop_daemon)

static void not_under_valgrind(void **state)
{
	(void)state;
	skip();
}

int main(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(not_under_valgrind) };
	const struct CMUnitTest tests[] = {
		TEST(bad_usage_exits_2),
		TEST(explains_itself),
		TEST(manual_and_help_agree),
		TEST(prints_its_schema),
		TEST(checks_its_configuration),
		TEST(serves_and_ends_orderly),
		TEST(a_second_daemon_names_the_first),
		TEST(survives_kill_9),
		TEST(reads_its_configuration_again),
		TEST(roles_are_by_group),
	};
	const char *valgrind = getenv("VALGRIND");

	/* Valgrind would not look into the daemon, which is another process. */
	if (valgrind && *valgrind)
		return cmocka_run_group_tests(none, NULL, NULL);
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
