/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_cli_people.c - What the client says to people, and with which status, against a scripted daemon */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "cli_test.h"

/* --- dry runs --- */

#define CAN "{'ok': true, 'blockers': [], 'warnings': ['QEMU is newer'], 'plan': ['Pausing', 'Saving']," \
	" 'estimate': {'bytes': 1073741824, 'expected': 268435456, 'seconds': 3.25, 'pause': 2.5}}"
#define CAN_LAZILY "{'ok': true, 'blockers': [], 'warnings': [], 'estimate': {'mode': 'lazy', 'seconds': 1}}"
#define CANNOT "{'ok': false, 'blockers': [{'class': 'Blocked', 'desc': 'a block job runs'}]," \
	" 'warnings': [], 'plan': []}"
#define SAME "{'ok': true, 'blockers': [], 'warnings': [], 'plan': [], 'estimate': {'bytes': 0, 'seconds': 0," \
	" 'pause': 0}, 'unchanged': true}"
#define CAN_LINES "  at most     1 GiB\n  expected    256 MiB\n  takes       3.2 s\n  guest halts 2.5 s\n" \
	"  phases      Pausing, Saving\n  warning     QEMU is newer\n"

static void dry_run(struct fake_torpord *d, const char *answer)
{
	FAKE_RUN(d, "hibernate", "web1", "--dry-run");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "vm-hibernate", "{'name': 'web1', 'dry-run': true}");
	fake_torpord_return(d, answer);
}

static void a_dry_run_tells_all(void **state)
{
	struct fake_torpord *d = *state;

	dry_run(d, CAN);
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "web1: nothing is in the way\n" CAN_LINES);
	dry_run(d, CANNOT);
	assert_int_equal(fake_torpord_status(d), 5);
	out_is(d, "web1: cannot be done now\n");
	err_has(d, "torpor: web1: Blocked: a block job runs\n");
	dry_run(d, SAME);
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "web1: nothing to do\n");
	/* Nonsense is no reason to crash. */
	dry_run(d, "{'ok': 1, 'estimate': [], 'plan': [{}], 'warnings': 3, 'blockers': [7]}");
	assert_int_equal(fake_torpord_status(d), 1);
}

/* --- check --- */

#define NOT_NOW "{'class': 'InvalidState', 'desc': 'not for that'}"
#define LAZY(possible, why) \
	"{'restore': {'mode': null, 'why': '', 'lazy': {'possible': " possible ", 'why': '" why "'}}}"

static void check(struct fake_torpord *d, const char *state, const char *start, const char *hibernate,
		  const char *restore, const char *lazy)
{
	tp_autofree char *vm = NULL;
	const char *const answers[] = { start, hibernate, restore };
	static const char *const commands[] = { "vm-start", "vm-hibernate", "vm-restore" };

	assert_true(asprintf(&vm, "{'name': 'a', 'state': '%s', 'reason': 'ok', 'conditions': [{'type': 'Ready', 'status':"
			     " 'True', 'reason': 'Ok', 'message': ''}]}", state) > 0);
	FAKE_RUN(d, "check", "a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vm", NULL);
	fake_torpord_return(d, vm);
	for (unsigned i = 0; i < 3; i++) {
		fake_torpord_expect(d, commands[i], "{'name': 'a', 'dry-run': true}");
		if (strstr(answers[i], "'ok'"))
			fake_torpord_return(d, answers[i]);
		else
			fake_torpord_error(d, answers[i]);
	}
	fake_torpord_expect(d, "query-capacity", "{'name': 'a'}");
	if (lazy)
		fake_torpord_return(d, lazy);
	else
		fake_torpord_error(d, NOT_NOW);
}

static void check_follows_the_state(void **state)
{
	struct fake_torpord *d = *state;

	check(d, "hibernated", CAN, SAME, CAN_LAZILY, LAZY("true", "it is root"));
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "a: hibernated (ok)\nrestore       yes\n  mode        lazy\n  takes       1.0 s\nstart         yes\n" CAN_LINES
	       "hibernate     nothing to do\nlazy restore  yes (it is root)\n"
	       "conditions    Ready True (Ok)\n");

	check(d, "hibernated", CAN, SAME, "{'ok': false, 'blockers': [{'class': 'StaleState', 'desc': 'disk root'}]}",
	      LAZY("true", ""));
	assert_int_equal(fake_torpord_status(d), 1);
	out_has(d, "restore       no\n  blocker     StaleState: disk root\n");

	check(d, "running", SAME, CANNOT, NOT_NOW, LAZY("false", "grant it"));
	assert_int_equal(fake_torpord_status(d), 5);
	out_has(d, "lazy restore  no (grant it)\n");
	out_has(d, "a: running (ok)\nhibernate     no\n  blocker     Blocked: a block job runs\n");
	out_has(d, "restore       no\n  blocker     InvalidState: not for that\n");

	/* A daemon that cannot tell is no reason to fail. */
	check(d, "shutoff", CAN, NOT_NOW, NOT_NOW, NULL);
	assert_int_equal(fake_torpord_status(d), 0);
	out_lacks(d, "lazy");
	out_has(d, "a: shutoff (ok)\nstart         yes\n");
}

/* --- show, op show, host --- */

#define SHOW(state) "{'name': 'web1', 'state': '" state "', 'reason': 'ok', 'last-exit': {'reason': 'exited'," \
	" 'code': 1, 'log-tail': 'first\\nlast'}, 'hibernation': {'phase': 'Hibernated', 'image': 'web1-x'," \
	" 'bytes': 1048576, 'raw-bytes': 4194304}}"

static void show(struct fake_torpord *d, const char *vm)
{
	FAKE_RUN(d, "show", "web1");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vm", NULL);
	fake_torpord_return(d, vm);
	fake_torpord_expect(d, "query-images", "{'vm': 'web1'}");
	fake_torpord_return(d, "[{'id': 'web1-y', 'kind': 'kept', 'state': 'consumed', 'bytes': 1048576, 'pool': 'fast',"
			    " 'path': '/pool/web1/web1-y'}]");
	assert_int_equal(fake_torpord_status(d), 0);
}

static void show_is_text(void **state)
{
	struct fake_torpord *d = *state;

	show(d, SHOW("running"));
	out_has(d, "hibernation   none now; the last one: Hibernated\n              image web1-x, 1 MiB of 4 MiB\n");
	out_has(d, "image         web1-y: kept, consumed, 1 MiB in pool fast\n              /pool/web1/web1-y\n");
	out_has(d, "last exit     reason: exited\n              code: 1\n              log-tail: first\n"
		   "                        last\n");
	out_lacks(d, "{");
	show(d, SHOW("hibernated"));
	out_has(d, "hibernation   Hibernated\n              image web1-x, 1 MiB of 4 MiB\n");
	out_lacks(d, "none now");
	show(d, "{'name': 'web1', 'state': 'hibernated', 'last-exit': {'reason': 'quit', 'code': null, 'signal': 9}}");
	out_has(d, "last exit     hibernated\n");
	out_lacks(d, "signal");
	show(d, "{'name': 'web1', 'state': 'running', 'hibernation': {'phase': 'Failed', 'message': 'no room'}}");
	out_has(d, "hibernation   none now; the last one: Failed\n              no room\n");
	show(d, "{'name': 'web1', 'state': 'shutoff', 'spec': {'launch': {}, 'hibernate': {'level': 3}, 'storage':"
	     " {'quota': 1048576, 'retain': {'count': 2, 'age': 86400}}}}");
	out_has(d, "hibernate     level: 3\nstorage       quota: 1 MiB\n              retain.count: 2\n"
		"              retain.age: 1 d 0 h\n");
	out_lacks(d, "restore");
}

#define CAPACITY "{'name': 'web1', 'worst-case': 2097152, 'exact': true, 'expected': 1048576, 'basis': 'memory'," \
	" 'restore': {'mode': null, 'why': '', 'lazy': {'possible': false, 'why': 'grant it'}}," \
	" 'pools': [{'pool': 'small', 'available': 4194304, 'quota-left': 0," \
	" 'admitted': false, 'guaranteed': true, 'why-not': 'quota'}]}"

/* The pools are many; the VM's own is told. Of a VM that never ran there is no reason, hence none is shown. */
static void capacity_tells_the_vms_pool(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "capacity", "web1");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-capacity", "{'name': 'web1'}");
	fake_torpord_return(d, CAPACITY);
	fake_torpord_expect(d, "query-vm", "{'name': 'web1'}");
	fake_torpord_return(d, "{'name': 'web1', 'spec': {'hibernate': {'pool': 'small'}}}");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "web1\nworst case    2 MiB (exact)\nexpected      1 MiB (by memory)\n"
	       "restore       not known before the VM ran\nlazy restore  no (grant it)\npool          small\n"
	       "POOL   AVAILABLE  QUOTA LEFT  ADMITTED  GUARANTEED  WHY NOT\n"
	       "small  4 MiB      0 B         no        yes         quota\n");
}

static void other_things_are_text(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "op", "show", "op-1");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-operation", NULL);
	fake_torpord_return(d, "{'id': 'op-1', 'result': {'state': 'running', 'whole': 1.25, 'clock': {'method': 'agent',"
			    " 'before': null}}, 'error': {'class': 'QemuExited', 'desc': 'it ended', 'data': {'log-tail':"
			    " 'a\\nb'}}, 'timeline': []}");
	assert_int_equal(fake_torpord_status(d), 0);
	out_has(d, "error         QemuExited: it ended\n  QEMU        a\n              b\n");
	out_has(d, "result        state: running\n              whole: 1.2 s\n              clock.method: agent\n");
	out_lacks(d, "{");

	FAKE_RUN(d, "host");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-host", NULL);
	fake_torpord_return(d, "{'draining': false, 'memory': {'total': 1073741824}, 'qemu': {'vms': 3, 'running': 1}}");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "draining      no\nmemory        1 GiB\nVMs           3 defined, 1 with a QEMU\n");
}

/* --- names that are nobody's, words that torpord refuses --- */

static void lists_of_nobody_fail(void **state)
{
	static const struct { const char *words[4], *command; } cases[] = {
		{ { "ops", "nosuch", NULL }, "query-operations" },
		{ { "image", "ls", "nosuch", NULL }, "query-images" },
	};
	struct fake_torpord *d = *state;

	for (size_t i = 0; i < TP_N(cases); i++) {
		fake_torpord_run(d, cases[i].words);
		fake_torpord_accept(d);
		fake_torpord_expect(d, cases[i].command, NULL);
		fake_torpord_return(d, "[]");
		fake_torpord_expect(d, "query-vm", "{'name': 'nosuch'}");
		fake_torpord_error(d, "{'class': 'NotFound', 'desc': 'no VM is named \\\"nosuch\\\"'}");
		assert_int_equal(fake_torpord_status(d), 1);
		out_is(d, "");
		err_has(d, "no VM is named \"nosuch\"");
	}
	for (int known = 0; known < 2; known++) {
		FAKE_RUN(d, "image", "ls", "--pool", "small", "-o", "name");
		fake_torpord_accept(d);
		fake_torpord_expect(d, "query-images", NULL);
		fake_torpord_return(d, "[]");
		fake_torpord_expect(d, "query-pools", NULL);
		fake_torpord_return(d, known ? "[{'name': 'small'}]" : "[{'name': 'smaller'}, {}]");
		assert_int_equal(fake_torpord_status(d), known ? 0 : 1);
		if (!known)
			err_has(d, "torpor: no pool is named \"small\"\n");
	}
	/* One that is there has an empty list. */
	FAKE_RUN(d, "image", "ls", "web1", "-o", "name");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-images", NULL);
	fake_torpord_return(d, "[]");
	fake_torpord_expect(d, "query-vm", NULL);
	fake_torpord_return(d, "{}");
	assert_int_equal(fake_torpord_status(d), 0);
}

/* What torpord refuses of the command line is bad usage; what it refuses of a file is a failure. */
static void refused_words_are_usage(void **state)
{
	static const struct { const char *words[6], *command, *argument; int status; } cases[] = {
		{ { "pause", "a/b", NULL }, "vm-pause", "name", 2 },
		{ { "image", "rm", "a b", NULL }, "image-delete", "image", 2 },
		{ { "ls", "a/b", NULL }, "query-vms", "names[0]", 2 },
		{ { "image", "ls", "--pool", "a/b", NULL }, "query-images", "pool", 2 },
		{ { "monitor", "a", "x", "--timeout", "0", NULL }, "vm-monitor", "timeout", 2 },
		{ { "set", "a", "hibernate.level=77", NULL }, "vm-set", "merge.hibernate.level", 1 },
		{ { "pause", "a", NULL }, "vm-pause", "timeout", 1 },
	};
	struct fake_torpord *d = *state;

	for (size_t i = 0; i < TP_N(cases); i++) {
		tp_autofree char *error = NULL, *err = NULL;

		assert_true(asprintf(&error, "{'class': 'GenericError', 'desc': 'Parameter is bad', 'data': {'argument':"
				     " '%s'}}", cases[i].argument) > 0);
		fake_torpord_run(d, cases[i].words);
		fake_torpord_accept(d);
		fake_torpord_expect(d, cases[i].command, NULL);
		fake_torpord_error(d, error);
		assert_int_equal(fake_torpord_status(d), cases[i].status);
		err = fake_torpord_err(d);
		assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
	}
}

/* --- wait --- */

static void wait_for(struct fake_torpord *d, const char *state, const char *vm)
{
	FAKE_RUN(d, "wait", "a", "--for", state);
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "query-vms", NULL);
	fake_torpord_return(d, vm);
}

static void wait_ends_with_its_operation(void **state)
{
	struct fake_torpord *d = *state;

	wait_for(d, "state=hibernated", "[{'name': 'a', 'state': 'hibernating', 'operation': {'id': 'op-1', 'kind':"
		 " 'hibernate', 'status': 'running'}}]");
	fake_torpord_event(d, "OPERATION", "{'vm': 'a', 'id': 'op-0', 'kind': 'restore', 'status': 'failed'}");
	fake_torpord_event(d, "OPERATION", "{'vm': 'b', 'id': 'op-2', 'kind': 'hibernate', 'status': 'failed'}");
	fake_torpord_event(d, "OPERATION", "{'vm': 'a', 'id': 'op-1', 'kind': 'hibernate', 'status': 'failed',"
			   " 'error': {'class': 'InsufficientSpace', 'desc': 'the pool is full'}}");
	assert_int_equal(fake_torpord_status(d), 1);
	err_has(d, "torpor: a: hibernate op-1 is failed: InsufficientSpace: the pool is full\n");

	wait_for(d, "state=running", "[{'name': 'a', 'state': 'restoring', 'operation': {'id': 'op-3', 'kind': 'restore',"
		 " 'status': 'stuck', 'error': {'desc': 'QEMU does not end'}}}]");
	assert_int_equal(fake_torpord_status(d), 7);
	err_has(d, "QEMU does not end");

	/* One that succeeds is heard of by its state. */
	wait_for(d, "state=hibernated", "[{'name': 'a', 'state': 'running'}]");
	fake_torpord_event(d, "OPERATION", "{'vm': 'a', 'id': 'op-1', 'kind': 'hibernate', 'status': 'succeeded'}");
	fake_torpord_event(d, "VM_STATE", "{'vm': 'a', 'state': 'hibernated'}");
	assert_int_equal(fake_torpord_status(d), 0);
}

/* --- console --- */

static void console_ends_with_its_input(void **state)
{
	struct fake_torpord *d = *state;
	tp_autoclose int listener = -1, conn = -1;
	tp_autofree char *answer = NULL;
	char path[128], typed[4];
	double asked;

	snprintf(path, sizeof(path), "%s/console.sock", d->dir);
	assert_true(asprintf(&answer, "{'run-dir': '%s', 'state': 'running', 'spec': {'launch': {'console': 'auto'}}}",
			     d->dir) > 0);
	listener = tp_listen_unix(path, 0600, NULL);
	assert_true(listener >= 0 && tp_set_nonblock(listener, false));
	FAKE_RUN(d, "console", "a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vm", NULL);
	fake_torpord_return(d, answer);
	conn = accept(listener, NULL, NULL);
	assert_int_equal(write(d->input, "ls\n", 3), 3);
	assert_int_equal(recv(conn, typed, 3, MSG_WAITALL), 3);
	tp_close(&d->input);
	asked = tp_now_mono();
	assert_int_equal(write(conn, "bin etc\n", 8), 8);
	/* The guest's end stays open: a console never ends by itself. */
	assert_int_equal(fake_torpord_status(d), 0);
	assert_true(tp_now_mono() - asked >= 0.9);
	out_is(d, "bin etc\n");
	unlink(path);
}

/* --- define --- */

static void define_warns_of_what_is_not_there(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *err = NULL;

	FAKE_RUN(d, "define", "a", "--disk", "root=/nonexistent/root.qcow2", "--", "/nonexistent/qemu", "-M", "q35");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-define", NULL);
	fake_torpord_return(d, "{'generation': 1, 'uid': 'u'}");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "a: generation 1\n");
	err_has(d, "torpor: a: warning: /nonexistent/qemu is not there;");
	err_has(d, "torpor: a: warning: disk root: /nonexistent/root.qcow2 is not there;");

	FAKE_RUN(d, "define", "a", "--", "no-such-qemu", "-M", "q35");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-define", NULL);
	fake_torpord_return(d, "{'generation': 1, 'uid': 'u'}");
	assert_int_equal(fake_torpord_status(d), 0);
	err_has(d, "no-such-qemu is not in PATH");

	FAKE_RUN(d, "define", "a", "--disk", "root=/dev/null,format=raw", "--", "sh", "-M", "q35");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-define", NULL);
	fake_torpord_return(d, "{'generation': 1, 'uid': 'u'}");
	assert_int_equal(fake_torpord_status(d), 0);
	err = fake_torpord_err(d);
	assert_string_equal(err, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_dry_run_tells_all), TEST(check_follows_the_state), TEST(show_is_text),
		TEST(capacity_tells_the_vms_pool), TEST(other_things_are_text),
		TEST(lists_of_nobody_fail), TEST(refused_words_are_usage), TEST(wait_ends_with_its_operation),
		TEST(console_ends_with_its_input), TEST(define_warns_of_what_is_not_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
