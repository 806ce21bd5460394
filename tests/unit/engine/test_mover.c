/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_mover.c - The engine's side of the mover, against a mover that misbehaves
 *
 * The program starts itself as the mover (its name is then torpor-mover) and plays what the request
 * asks for in "play".
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "engine/mover.h"
#include "migration/mover_proto.h"
#include "unit/base/base_test.h"

#define GUARD 20.0	/* seconds until a test gives up */
#define FLOOD (256u << 10)

/* --- the mover's part --- */

static void say(const char *text)
{
	if (tp_send_fds(MOVER_CONTROL_FD, text, strlen(text), NULL, 0) < 0)
		_exit(90);
}

static void hello(void)
{
	say("{\"hello\": {\"protocol\": 1, \"version\": \"test\", \"pid\": 1}}");
}

/* Waits for a message; the control connection's end is the end. */
static json_t *hear(int *fds, size_t *nfds)
{
	static char buf[MOVER_MESSAGE_MAX];
	ssize_t n = tp_recv_fds(MOVER_CONTROL_FD, buf, sizeof(buf), fds, nfds);

	if (n <= 0)
		_exit(7);
	return tp_json_parse(buf, (size_t)n, 16, NULL);
}

static void play_echo(int *fds, size_t nfds)
{
	json_t *message;
	char text[64];
	ssize_t n;

	hello();
	n = nfds == 1 ? read(fds[0], text, sizeof(text) - 1) : -1;
	if (n < 0)
		_exit(91);
	message = hear(NULL, &(size_t){ 0 });
	if (strcmp(tp_json_str(message, "ask"), "again") != 0 || strncmp(text, "stream", 6) != 0)
		_exit(92);
	say("{\"progress\": {\"done-bytes\": 1}}");
	say("{\"done\": {\"bytes\": 2}}");
	_exit(0);
}

static void play_flood(void)
{
	static char noise[FLOOD];

	memset(noise, 'n', sizeof(noise));
	(void)!write(STDERR_FILENO, "first", 5);
	for (int i = 0; i < 4; i++)
		(void)!write(STDERR_FILENO, noise, sizeof(noise));
	hello();
	abort();
}

static int mover_main(void)
{
	int fds[4];
	size_t nfds = 4;
	json_t *request = hear(fds, &nfds);
	const char *play = tp_json_str(request, "play");

	if (tp_json_int(request, "protocol", 0) != MOVER_PROTOCOL)
		_exit(93);
	if (strcmp(play, "echo") == 0) {
		play_echo(fds, nfds);
	} else if (strcmp(play, "error") == 0) {
		say("{\"error\": {\"class\": \"IOError\", \"desc\": \"no\"}}");
		_exit(1);
	} else if (strcmp(play, "crash") == 0) {
		hello();
		fprintf(stderr, "something\nbroke\001\377");
		fflush(stderr);
		_exit(3);
	} else if (strcmp(play, "flood") == 0) {
		play_flood();
	} else if (strcmp(play, "old") == 0) {
		say("{\"hello\": {\"protocol\": 2}}");
	} else if (strcmp(play, "rude") == 0) {
		say("{\"progress\": {}}");
	} else if (strcmp(play, "junk") == 0) {
		hello();
		say("[1]");
	} else if (strcmp(play, "chatter") == 0) {
		hello();
		say("{\"done\": {}}");
		say("{\"progress\": {}}");
	} else if (strcmp(play, "exec") == 0 || strcmp(play, "refused") == 0) {
		if (*play == 'r')
			say("{\"refused\": {\"desc\": \"no device\"}}");
		close(MOVER_CONTROL_FD);
		pause();
	} else {
		hello();
	}
	hear(NULL, &(size_t){ 0 });	/* until the control connection ends */
	_exit(8);
}

/* --- the test's part --- */

static const char *program;	/* argv[0] */

struct rig {
	struct ev_loop *loop;
	struct mover_context ctx;
	struct mover *m;
	ev_timer guard;
	json_t *said;		/* names, in order */
	char tail[2000];
	int status;
	unsigned ends, execs;
	const char *free_at;	/* frees the mover at this message */
	const char *stop_at;
	bool late;
};

static void on_message(struct mover *m, const char *name, const json_t *value, void *arg)
{
	struct rig *r = arg;

	assert_non_null(value);
	json_array_append_new(r->said, json_string(name));
	if (r->free_at && strcmp(name, r->free_at) == 0) {
		mover_free(m);
		r->m = NULL;
		ev_break(r->loop, EVBREAK_ALL);
	}
	if (r->stop_at && strcmp(name, r->stop_at) == 0)
		ev_break(r->loop, EVBREAK_ALL);
}

static void on_execed(struct mover *m, void *arg)
{
	struct rig *r = arg;

	(void)m;
	r->execs++;
	ev_break(r->loop, EVBREAK_ALL);
}

static void on_ended(struct mover *m, int status, const char *tail, void *arg)
{
	struct rig *r = arg;

	r->ends++;
	r->status = status;
	snprintf(r->tail, sizeof(r->tail), "%s", tail);
	mover_free(m);
	r->m = NULL;
	ev_break(r->loop, EVBREAK_ALL);
}

static const struct mover_ops ops = { on_message, on_execed, on_ended };

static void on_guard(struct ev_loop *loop, ev_timer *w, int events)
{
	(void)events;
	((struct rig *)w->data)->late = true;
	ev_break(loop, EVBREAK_ALL);
}

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct tp_error err = TP_ERROR_INIT;

	r->loop = ev_loop_new(0);
	assert_true(mover_context_init(&r->ctx, r->loop, "/proc/self/exe", &err));
	ev_timer_init(&r->guard, on_guard, GUARD, 0);
	r->guard.data = r;
	ev_timer_start(r->loop, &r->guard);
	r->said = json_array();
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	mover_free(r->m);
	mover_context_close(&r->ctx);
	ev_timer_stop(r->loop, &r->guard);
	ev_loop_destroy(r->loop);
	json_decref(r->said);
	free(r);
	return 0;
}

static void run(struct rig *r)
{
	ev_run(r->loop, 0);
	assert_false(r->late);
}

static void start(struct rig *r, const char *job, const char *play)
{
	struct tp_error err = TP_ERROR_INIT;

	r->m = mover_start(&r->ctx, json_pack("{s:s, s:s, s:s}", "job", job, "vm", "web1", "play", play),
			   NULL, 0, &ops, r, &err);
	if (!r->m)
		fail_msg("%s", err.text);
}

static void assert_said(struct rig *r, const char *names)
{
	tp_autofree char *text = json_dumps(r->said, JSON_COMPACT);

	assert_string_equal(text, names);
}

static void test_talks(void **state)
{
	struct rig *r = *state;
	struct tp_error err = TP_ERROR_INIT;
	int pair[2];

	need_call(pidfd_open);
	assert_true(tp_socketpair(SOCK_STREAM, pair, &err));
	assert_int_equal(write(pair[1], "stream", 6), 6);
	r->stop_at = "hello";
	r->m = mover_start(&r->ctx, json_pack("{s:s, s:s, s:[s]}", "job", "save", "play", "echo", "fds",
					      "stream"), pair, 1, &ops, r, &err);
	assert_non_null(r->m);
	assert_int_equal(pair[0], -1);		/* taken */
	assert_true(mover_pid(r->m) > 0);
	run(r);
	assert_true(mover_send(r->m, json_pack("{s:s}", "ask", "again"), &err));
	run(r);
	assert_said(r, "[\"hello\",\"progress\",\"done\"]");
	assert_int_equal(r->ends, 1);
	assert_true(WIFEXITED(r->status) && WEXITSTATUS(r->status) == 0);
	assert_string_equal(r->tail, "");
	close(pair[1]);
}

static void test_error(void **state)
{
	struct rig *r = *state;

	need_call(pidfd_open);
	start(r, "save", "error");
	run(r);
	assert_said(r, "[\"error\"]");
	assert_int_equal(WEXITSTATUS(r->status), 1);
}

static void test_crash(void **state)
{
	struct rig *r = *state;

	need_call(pidfd_open);
	start(r, "load", "crash");
	run(r);
	assert_said(r, "[\"hello\"]");
	assert_int_equal(WEXITSTATUS(r->status), 3);
	assert_non_null(strstr(r->tail, "something broke"));
	assert_null(strchr(r->tail, '\n'));
}

static void test_flood(void **state)
{
	struct rig *r = *state;

	need_call(pidfd_open);
	start(r, "load", "flood");
	run(r);
	assert_true(WIFSIGNALED(r->status) && WTERMSIG(r->status) == SIGABRT);
	assert_int_equal(r->tail[0], 'n');
	assert_true(strlen(r->tail) > 1000 && strlen(r->tail) < 1600);
}

static void misbehaves(struct rig *r, const char *play, const char *said, const char *words)
{
	r->ends = 0;
	json_array_clear(r->said);
	start(r, "save", play);
	run(r);
	assert_said(r, said);
	assert_int_equal(r->ends, 1);
	assert_true(WIFSIGNALED(r->status) && WTERMSIG(r->status) == SIGKILL);
	assert_non_null(strstr(r->tail, words));
}

static void test_protocol(void **state)
{
	struct rig *r = *state;

	need_call(pidfd_open);
	misbehaves(r, "old", "[]", "another protocol");
	misbehaves(r, "rude", "[]", "another protocol");
	misbehaves(r, "junk", "[\"hello\"]", "no message");
	misbehaves(r, "chatter", "[\"hello\",\"done\"]", "after its last one");
}

static void test_kill(void **state)
{
	struct rig *r = *state;

	need_call(pidfd_open);
	start(r, "save", "wait");
	r->stop_at = "hello";
	run(r);
	mover_kill(r->m, SIGKILL);
	run(r);
	assert_int_equal(r->ends, 1);
	assert_int_equal(WTERMSIG(r->status), SIGKILL);
}

static void end_of_program(struct rig *r)
{
	int pidfd = mover_steal_pidfd(r->m), status;

	assert_int_equal(r->ends, 0);
	assert_true(pidfd >= 0);
	assert_int_equal(mover_steal_pidfd(r->m), -1);
	assert_false(tp_pidfd_wait(pidfd, &status));
	assert_true(tp_pidfd_kill(pidfd, SIGKILL));
	assert_int_equal(waitpid(mover_pid(r->m), &status, 0), mover_pid(r->m));
	close(pidfd);
	mover_free(r->m);
}

static void test_exec(void **state)
{
	struct rig *r = *state;

	need_call(pidfd_open);
	start(r, "launch", "exec");
	run(r);
	assert_int_equal(r->execs, 1);
	end_of_program(r);
	/* It ran without something that it was to have. */
	start(r, "launch", "refused");
	run(r);
	assert_int_equal(r->execs, 2);
	assert_said(r, "[\"refused\"]");
	end_of_program(r);
	/* A program that could not be executed. */
	json_array_clear(r->said);
	start(r, "tool", "error");
	run(r);
	assert_int_equal(r->execs, 2);
	assert_said(r, "[\"error\"]");
}

static bool no_child(void)
{
	return waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
}

/* Given up inside a callback: the job ends with its connection, and is reaped. */
static void test_given_up(void **state)
{
	struct rig *r = *state;

	need_call(pidfd_open);
	start(r, "save", "wait");
	r->free_at = "hello";
	run(r);
	assert_null(r->m);
	while (!no_child() && !r->late)
		ev_run(r->loop, EVRUN_ONCE);
	assert_false(r->late);
	assert_int_equal(r->ends, 0);
}

static void test_free_before_its_end(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	need_call(pidfd_open);
	start(r, "save", "wait");
	pid = mover_pid(r->m);
	mover_free(r->m);
	r->m = NULL;
	mover_context_close(&r->ctx);	/* nobody watches any more: no leak, no crash */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_bad_requests(void **state)
{
	struct rig *r = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *text = calloc(1, MOVER_MESSAGE_MAX + 1);
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	memset(text, 'x', MOVER_MESSAGE_MAX);
	assert_null(mover_start(&r->ctx, json_pack("{s:s, s:s}", "job", "launch", "argv", text), &fd, 1,
				&ops, r, &err));
	assert_int_equal(err.code, TP_ELIMIT);
	assert_int_equal(fd, -1);
	assert_true(no_child());
}

/* The real program, in the build folder: what a tool says, and how it ends. */
static void test_real_tool(void **state)
{
	struct rig *r = *state;
	struct mover_context real;
	struct tp_error err = TP_ERROR_INIT;
	const char *build = getenv("TORPOR_BUILD");
	char path[4096], text[16] = "";
	int out[2];

	need_call(pidfd_open);
	if (build)
		snprintf(path, sizeof(path), "%s/torpor-mover", build);
	else
		snprintf(path, sizeof(path), "%.*s/../../torpor-mover",
			 (int)(strrchr(program, '/') - program), program);
	if (!mover_context_init(&real, r->loop, path, &err))
		fail_msg("%s", err.text);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	r->m = mover_start(&real, json_pack("{s:s, s:[s,s,s], s:{s:s}, s:[s]}", "job", "tool", "argv",
					    "/bin/sh", "-c", "echo $WORD; exit 5", "env", "WORD", "hi",
					    "fds", "stdout"), &out[1], 1, &ops, r, &err);
	assert_non_null(r->m);
	while (r->ends == 0)
		run(r);
	assert_int_equal(r->execs, 1);
	assert_said(r, "[]");
	assert_int_equal(WEXITSTATUS(r->status), 5);
	assert_int_equal(read(out[0], text, sizeof(text) - 1), 3);
	assert_string_equal(text, "hi\n");

	r->m = mover_start(&real, json_pack("{s:s, s:[s], s:{}, s:[]}", "job", "launch", "argv",
					    "/nonexistent/qemu", "env", "fds"), NULL, 0, &ops, r, &err);
	assert_non_null(r->m);
	while (r->ends == 1)
		run(r);
	assert_int_equal(r->execs, 1);
	assert_said(r, "[\"error\"]");
	close(out[0]);
	mover_context_close(&real);
}

static void test_context(void **state)
{
	struct mover_context ctx;
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_false(mover_context_init(&ctx, EV_DEFAULT, "/nonexistent/torpor-mover", &err));
	assert_int_equal(err.sys, ENOENT);
	tp_error_clear(&err);
	assert_false(mover_context_init(&ctx, EV_DEFAULT, "/dev/null", &err));
	assert_non_null(strstr(err.text, "not an executable"));
	mover_context_close(&ctx);
	ev_loop_destroy(EV_DEFAULT);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_talks), T(test_error), T(test_crash), T(test_flood), T(test_protocol),
		T(test_kill), T(test_exec), T(test_given_up), T(test_free_before_its_end),
		T(test_bad_requests), T(test_real_tool), cmocka_unit_test(test_context),
	};

	if (argc > 1 && strcmp(argv[0], "torpor-mover") == 0)
		return mover_main();
	program = argv[0];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
