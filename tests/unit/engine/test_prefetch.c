/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_prefetch.c - A VM's page server: lost, started again, taken up by another engine
 *
 * The program starts itself as the mover and plays what the image, a text here, says: "drop" ends with
 * the connection to QEMU, "die" before it, "whole" has sent everything, "corrupt" finds damage, "serve"
 * serves until it is killed, also without an engine; "odd" speaks another protocol then. QEMU is a monitor and a socket.
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
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "engine/launch.h"
#include "engine/ops_priv.h"
#include "engine/prefetch_priv.h"
#include "engine/vm_runtime.h"
#include "fake/fake_monitor.h"
#include "fake/fake_pool.h"
#include "migration/mover_proto.h"

#define GUARD 20.0	/* seconds until a test gives up */

/* --- the page server's part --- */

static int control = MOVER_CONTROL_FD;

static void say(const char *text)
{
	(void)tp_send_fds(control, text, strlen(text), NULL, 0);
}

static void hello(const char *state)
{
	char text[256];

	snprintf(text, sizeof(text), "{\"hello\": {\"protocol\": %d, \"version\": \"test\", \"pid\": %d, \"pages\": "
		 "{\"state\": \"%s\", \"pages\": 4, \"pages-left\": 2}}}", MOVER_PROTOCOL, (int)getpid(), state);
	say(text);
}

/* The next message's first name; "": the engine has gone. */
static const char *hear(int *fds, size_t *nfds)
{
	static char buf[MOVER_MESSAGE_MAX + 1];
	ssize_t n = tp_recv_fds(control, buf, MOVER_MESSAGE_MAX, fds, nfds);
	char *end;

	if (n <= 0)
		return "";
	buf[n] = '\0';
	end = strchr(buf + 2, '"');
	if (end)
		*end = '\0';
	return buf + 2;
}

static void serve(int listener, bool odd)
{
	for (;;) {
		int fds[4];
		size_t nfds = 4;

		if (*hear(fds, &nfds))
			continue;
		close(control);
		control = accept(listener, NULL, NULL);
		if (odd)
			say("{\"hello\": {\"protocol\": 2}}");
		else
			hello("serving");
	}
}

static int mover_main(void)
{
	int fds[4], stream[4];
	size_t nfds = 4, n = 4;
	char play[32] = "";

	hear(fds, &nfds);
	if (nfds != 2 || read(fds[0], play, sizeof(play) - 1) <= 0)
		_exit(91);
	hello("waiting");
	if (strcmp(play, "die") == 0)
		_exit(3);
	if (strcmp(play, "corrupt") == 0) {
		say("{\"error\": {\"class\": \"Corrupt\", \"desc\": \"a frame\", \"damage\": {\"frames\": 1}}}");
		_exit(1);
	}
	say("{\"state\": {\"state\": \"waiting\"}}");
	while (strcmp(hear(stream, &n), "stream") != 0)
		n = 4;
	if (strcmp(play, "drop") == 0)
		_exit(2);
	say("{\"state\": {\"state\": \"serving\", \"pages\": 4, \"pages-left\": 2}}");
	if (strcmp(play, "whole") == 0) {
		say("{\"done\": {\"state\": \"done\", \"pages\": 4, \"pages-left\": 0}}");
		_exit(0);
	}
	serve(fds[1], strcmp(play, "odd") == 0);
	return 0;
}

/* --- the engine's part --- */

struct rig {
	char dir[48];
	struct ev_loop *loop;
	struct torpor *t;
	struct vm *vm;
	struct fake_monitor *qemu;
	int listener, image;
	char id[IMAGE_ID_MAX + 1];
	double until;
};

static void ready(struct qmp_client *c, void *arg)
{
	(void)c, (void)arg;
}

static void event(struct qmp_client *c, const char *name, const json_t *data, void *arg)
{
	(void)c, (void)name, (void)data, (void)arg;
}

static void closed(struct qmp_client *c, const struct tp_error *why, void *arg)
{
	(void)c, (void)why, (void)arg;
}

static const struct qmp_client_ops qmp_ops = { ready, event, closed };

static void make_engine(struct rig *r)
{
	char state[64], run[64], pool[64], text[TORPOR_ERROR_SIZE];
	struct torpor_pool pools[] = { { .name = "default", .path = pool } };
	struct torpor_options o = { .size = sizeof(o), .state_dir = state, .runtime_dir = run,
				    .mover_path = "/proc/self/exe", .pools = pools, .npools = 1 };

	snprintf(state, sizeof(state), "%s/state", r->dir);
	snprintf(run, sizeof(run), "%s/run", r->dir);
	snprintf(pool, sizeof(pool), "%s/pool", r->dir);
	r->t = torpor_new(r->loop, &o, text);
	if (!r->t)
		fail_msg("%s", text);
}

static void make_qemu(struct rig *r)
{
	struct vm_qemu *q = calloc(1, sizeof(*q));
	char path[128];
	int fd;

	assert_non_null(q);
	q->vm = r->vm;
	q->pidfd = -1;
	q->ready = true;
	strcpy(q->status, "running");
	r->qemu = fake_monitor_new(r->loop, &fd);
	q->qmp = qmp_client_new(r->loop, &fd, "vm1", &qmp_ops, q);
	fake_greet(r->qemu, true);
	r->vm->qemu = q;
	assert_true(mkdir(r->vm->run_dir, 0700) == 0 || errno == EEXIST);
	r->listener = tp_listen_unix(launch_socket(r->vm, "pages-qemu", path, sizeof(path)), 0600, NULL);
	assert_true(r->listener >= 0);
}

/* What the next server plays. */
static void play(struct rig *r, const char *what)
{
	assert_int_equal(ftruncate(r->image, 0), 0);
	assert_int_equal(pwrite(r->image, what, strlen(what), 0), (ssize_t)strlen(what));
}

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct tp_error err = TP_ERROR_INIT;

	strcpy(r->dir, "/tmp/torpor-prefetch-XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	r->loop = ev_loop_new(0);
	make_engine(r);
	r->vm = vm_create(r->t, "vm1", NULL, NULL);
	assert_non_null(r->vm);
	r->vm->spec = json_pack("{s:{s:s, s:[]}}", "launch", "binary", "qemu", "args");
	pool_image_id("vm1", tp_now_us(), r->id);
	r->image = fake_pool_image(engine_pool_storage(pools_find(r->t->pools, "default")), "vm1", r->id, "none", 0,
				   &err);
	if (r->image < 0)
		fail_msg("%s", err.text);
	json_decref(r->vm->rest);
	r->vm->rest = json_pack("{s:s, s:{s:{s:s, s:s, s:s}, s:b, s:s, s:I, s:b, s:b}}", "rest", "running", "prefetch",
				"image", "id", r->id, "pool", "default", "vm", "vm1", "keep", 1, "operation", "op-0",
				"began", (json_int_t)tp_now_us(), "until-whole", 0, "ran", 1);
	make_qemu(r);
	r->until = tp_now_mono() + GUARD;
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;
	pid_t server = (pid_t)tp_json_int(tp_json_path(r->vm->rest, "prefetch.server"), "pid", 0);
	char command[80];

	torpor_free(r->t);
	if (server > 1)
		kill(server, SIGKILL);
	fake_monitor_free(r->qemu);
	close(r->listener);
	close(r->image);
	ev_loop_destroy(r->loop);
	snprintf(command, sizeof(command), "rm -rf %s", r->dir);
	assert_int_equal(system(command), 0);
	free(r);
	return 0;
}

static void tick(struct ev_loop *loop, struct ev_timer *w, int events)
{
	(void)loop, (void)w, (void)events;
}

/* One turn of the loop, 20 ms at most. */
static void turn(struct rig *r)
{
	struct ev_timer timer;

	if (tp_now_mono() > r->until)
		fail_msg("nothing comes of it: %s", r->vm->prefetch ? r->vm->prefetch->message : "no prefetch");
	ev_timer_init(&timer, tick, 0.02, 0.);
	ev_timer_start(r->loop, &timer);
	ev_run(r->loop, EVRUN_ONCE);
	ev_timer_stop(r->loop, &timer);
}

static void turn_for(struct rig *r, double seconds)
{
	for (double end = tp_now_mono() + seconds; tp_now_mono() < end;)
		turn(r);
}

static void await_state(struct rig *r, const char *name)
{
	while (!r->vm->prefetch || strcmp(prefetch_state(r->vm->prefetch), name) != 0 || !r->vm->prefetch->server)
		turn(r);
}

/* No server was there: as after the end of one that nobody saw. */
static void adopt(struct rig *r)
{
	prefetch_adopt(r->vm);
	assert_non_null(r->vm->prefetch);
	assert_true(prefetch_away(r->vm));
}

static void waits(struct rig *r)
{
	fake_monitor_on(r->qemu, "query-migrate", "{\"status\": \"postcopy-paused\"}");
}

static void starts_another(void **state)
{
	struct rig *r = *state;

	waits(r);
	fake_monitor_on(r->qemu, "migrate-recover", "{}");
	play(r, "whole");
	adopt(r);
	while (r->vm->prefetch)
		turn(r);
	assert_null(json_object_get(r->vm->rest, "prefetch"));
}

static void server_dies_ten_times(void **state)
{
	struct rig *r = *state;
	double began = tp_now_mono();

	waits(r);
	fake_monitor_on(r->qemu, "migrate-recover", "{}");
	play(r, "drop");
	adopt(r);
	while (r->vm->prefetch->restarts < 6)
		turn(r);
	/* 50, 100, 200, 400 ms... between them. */
	assert_true(tp_now_mono() - began > 0.7);
	assert_true(prefetch_away(r->vm));
	play(r, "serve");
	await_state(r, "serving");
	assert_false(prefetch_away(r->vm));
	assert_true(r->vm->prefetch->backoff <= 0);
	assert_string_equal(r->vm->prefetch->message, "");
}

static void refused(struct rig *r, const char *why)
{
	fake_expect_oob(r->qemu, "migrate-recover", NULL);
	fake_error(r->qemu, "GenericError", why);
}

static void qemu_refuses(void **state)
{
	struct rig *r = *state;
	double began = tp_now_mono();

	waits(r);
	for (int i = 0; i < 4; i++)
		refused(r, "Migrate recover can only be run when postcopy is paused.");
	refused(r, "Migrate recovery is triggered already");
	play(r, "serve");
	adopt(r);
	await_state(r, "serving");
	/* Refused four times: not asked again at once, though it says that it waits. */
	assert_true(tp_now_mono() - began > 0.6);
	assert_int_equal(r->vm->prefetch->restarts, 1);
	assert_null(fake_monitor_problem(r->qemu));
}

static void all_was_in(void **state)
{
	struct rig *r = *state;

	fake_monitor_on(r->qemu, "query-migrate", "{\"status\": \"completed\"}");
	fake_expect_oob(r->qemu, "migrate-recover", NULL);	/* not answered */
	play(r, "serve");
	adopt(r);
	while (r->vm->prefetch)
		turn(r);
	assert_null(json_object_get(r->vm->rest, "prefetch"));
}

static void image_is_away(void **state)
{
	struct rig *r = *state;
	char from[160], to[160];

	waits(r);
	fake_monitor_on(r->qemu, "migrate-recover", "{}");
	play(r, "serve");
	snprintf(from, sizeof(from), "%s/pool/vm1/%s", r->dir, r->id);
	snprintf(to, sizeof(to), "%s/aside", r->dir);
	assert_int_equal(rename(from, to), 0);
	adopt(r);
	while (!strstr(r->vm->prefetch->message, "its image cannot be opened"))
		turn(r);
	turn_for(r, 0.3);
	assert_int_equal(r->vm->prefetch->restarts, 0);
	assert_int_equal(rename(to, from), 0);
	await_state(r, "serving");
	assert_string_equal(r->vm->prefetch->message, "");
}

static void damage_stops_the_guest(void **state)
{
	struct rig *r = *state;

	waits(r);
	fake_monitor_on(r->qemu, "migrate-recover", "{}");
	fake_expect(r->qemu, "stop", NULL);
	fake_return(r->qemu, "{}");
	play(r, "corrupt");
	adopt(r);
	while (!r->vm->prefetch->damaged || r->vm->prefetch->server || fake_monitor_problem(r->qemu))
		turn(r);
	turn_for(r, 0.5);
	/* Tried again, but slowly. */
	assert_int_equal(r->vm->prefetch->restarts, 1);
	assert_non_null(strstr(r->vm->prefetch->message, "is damaged: a frame"));
	assert_null(fake_monitor_problem(r->qemu));
	assert_true(prefetch_away(r->vm));
}

/* The engine ends: the server serves on, and the next one finds it. */
static void another_engine_takes_it_up(void **state)
{
	struct rig *r = *state;
	tp_autojson json_t *rest = NULL;
	pid_t pid;

	waits(r);
	fake_monitor_on(r->qemu, "migrate-recover", "{}");
	play(r, "serve");
	adopt(r);
	await_state(r, "serving");
	pid = mover_pid(r->vm->prefetch->server);
	assert_int_equal(tp_json_int(tp_json_path(r->vm->rest, "prefetch.server"), "pid", 0), pid);
	prefetch_forget(r->vm);
	assert_null(r->vm->prefetch);
	turn_for(r, 0.1);
	assert_int_equal(kill(pid, 0), 0);
	prefetch_adopt(r->vm);
	await_state(r, "serving");
	assert_int_equal(mover_pid(r->vm->prefetch->server), pid);
	assert_int_equal(r->vm->prefetch->restarts, 0);
	assert_false(prefetch_away(r->vm));
}

/* One of another version is ended; QEMU, which waits then, gets one of ours. */
static void one_of_another_version(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	waits(r);
	fake_monitor_on(r->qemu, "migrate-recover", "{}");
	play(r, "odd");
	adopt(r);
	await_state(r, "serving");
	pid = mover_pid(r->vm->prefetch->server);
	prefetch_forget(r->vm);
	play(r, "serve");
	prefetch_adopt(r->vm);
	while (r->vm->prefetch->restarts == 0)
		turn(r);
	await_state(r, "serving");
	assert_int_not_equal(mover_pid(r->vm->prefetch->server), pid);
	assert_true(kill(pid, 0) < 0);
}

static void qemu_ends(void **state)
{
	struct rig *r = *state;
	struct vm_qemu *q;
	pid_t pid;

	waits(r);
	fake_monitor_on(r->qemu, "migrate-recover", "{}");
	play(r, "serve");
	adopt(r);
	await_state(r, "serving");
	pid = mover_pid(r->vm->prefetch->server);
	q = r->vm->qemu;
	r->vm->qemu = NULL;
	prefetch_over(r->vm);
	assert_null(r->vm->prefetch);
	assert_null(json_object_get(r->vm->rest, "prefetch"));
	while (kill(pid, 0) == 0)
		turn(r);
	r->vm->qemu = q;
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(starts_another), T(server_dies_ten_times), T(qemu_refuses), T(all_was_in), T(image_is_away),
		T(damage_stops_the_guest), T(another_engine_takes_it_up),
		T(one_of_another_version), T(qemu_ends),
	};

	if (argc > 1 && strcmp(argv[0], "torpor-mover") == 0)
		return mover_main();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
