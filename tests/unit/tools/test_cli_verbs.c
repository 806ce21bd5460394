/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_cli_verbs.c - The client's other verbs against a scripted daemon, bad usage and hostile answers */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "cli_test.h"

static char *file_with(const struct fake_torpord *d, const char *name, const void *data, size_t n)
{
	tp_autoclose int dir = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *path = NULL;

	assert_true(asprintf(&path, "%s/%s", d->dir, name) > 0);
	assert_true(tp_replace_file(dir, name, data, n, false, NULL));
	return path;
}

/* --- usage --- */

static void bad_usage_is_one_line(void **state)
{
	static const char *const lines[][6] = {
		{ NULL }, { "hibernat", NULL }, { "image", "nonsense", NULL }, { "ls", "--nope", NULL }, { "start", NULL },
		{ "start", "a", "--timeout", "x", NULL }, { "start", "a", "--timeout", NULL }, { "define", NULL },
		{ "console", "a", "b", NULL }, { "hibernate", "a", "--level=x", NULL }, { "--json", "log", "a", NULL },
		{ "show", "a", "-o", "wide", NULL }, { "stop", "--force", "--timeout", "3", "a", NULL },
		{ "start", "--mode=nonsense", "a", NULL }, { "start", "a", "--all", NULL },
		{ "wait", "a", "--for", "state=nonsense", NULL }, { "wait", "a", NULL }, { "set", "a", "b", NULL },
		{ "set", "a", "{", NULL }, { "raw", "{}", NULL }, { "raw", "x", "[]", NULL }, { "completion", "csh", NULL },
		{ "ls", "--all=x", NULL }, { "monitor", "a", "b", "c", NULL },
		{ "define", "a", "--disk", "x", "--", NULL }, { "hib\033[2Jernate", NULL },
		{ "hibernate", "a", "--level", "0", NULL }, { "hibernate", "a", "--level", "99", NULL },
		{ "hibernate", "a", "--threads", "17", NULL }, { "hibernate", "a", "--threads", "-1", NULL },
		{ "hibernate", "a", "--level", "99999999999999999999", NULL }, { "ops", "--limit", "0", NULL },
		{ "hibernate", "a", "--timeout", "1h5", NULL }, { "hibernate", "a", "--reserve", "some", NULL },
		{ "restore", "a", "--mode", "mapped", NULL }, { "wait", "a", "--for", "running", NULL },
		{ "ops", "--status", "done", NULL }, { "image", "ls", "--state", "good", NULL },
		{ "undefine", "a", "--images", "burn", NULL }, { "stop", "a", "--busy", "wait", NULL },
	};
	struct fake_torpord *d = *state;

	for (size_t i = 0; i < TP_N(lines); i++) {
		tp_autofree char *err = NULL;

		fake_torpord_run(d, lines[i]);
		assert_int_equal(fake_torpord_status(d), 2);
		out_is(d, "");
		err = fake_torpord_err(d);
		assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
		assert_int_equal(strncmp(err, "torpor: ", 8), 0);
		assert_null(strchr(err, '\033'));
	}
}

static void help_and_version_everywhere(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *out = NULL;

	FAKE_RUN(d, "--version");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "torpor " TP_VERSION "\n");
	FAKE_RUN(d, "restore", "x", "--help");
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	assert_non_null(strstr(out, "usage: torpor restore [OPTION]... NAME...\n"));
	FAKE_RUN(d, "pools", "-h");
	assert_int_equal(fake_torpord_status(d), 0);
	FAKE_RUN(d, "help", "op", "wait");
	assert_int_equal(fake_torpord_status(d), 0);
}

/* --- the connection --- */

static void unreachable_is_3(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "--socket", "/nonexistent/sock", "ls");
	assert_int_equal(fake_torpord_status(d), 3);
	err_has(d, "torpor: torpord cannot be reached: ");
	err_has(d, "/nonexistent/sock");
}

static void broken_answers_are_3(void **state)
{
	static const char *const answers[] = {
		"nonsense\r\n", "[1]\r\n", "{\"id\": -1}\r\n", "{\"return\": {}, \"id\": -1\r\n", "\xff\n",
	};
	struct fake_torpord *d = *state;
	tp_autofree char *deep = calloc(4096, 1);

	for (size_t i = 0; i <= TP_N(answers); i++) {
		const char *answer = i < TP_N(answers) ? answers[i] : deep;

		memset(deep, '[', 300);
		deep[300] = '\n';
		FAKE_RUN(d, "host");
		fake_torpord_accept(d);
		fake_torpord_expect(d, "query-host", NULL);
		fake_torpord_say(d, answer, strlen(answer));
		assert_int_equal(fake_torpord_status(d), 3);
		err_has(d, "torpord cannot be understood");
	}
}

static void endless_answer_is_bounded(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *mib = malloc(1u << 20);

	memset(mib, ' ', 1u << 20);
	FAKE_RUN(d, "host");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-host", NULL);
	for (unsigned i = 0; i < 20; i++)
		fake_torpord_say(d, mib, 1u << 20);
	assert_int_equal(fake_torpord_status(d), 3);
	err_has(d, "more than 16 MiB");
}

static void foreign_text_is_cleaned(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *out = NULL, *err = NULL;

	FAKE_RUN(d, "ls");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vms", NULL);
	fake_torpord_return(d, "[{'name': 'a\\u001b[2J', 'state': 'run\\nning', 'reason': '\\u009b31m'}]");
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	assert_null(strchr(out, '\033'));
	assert_null(strstr(out, "\xc2\x9b"));
	assert_non_null(strstr(out, "run ning"));

	FAKE_RUN(d, "pause", "x");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-pause", "{'name': 'x'}");
	fake_torpord_error(d, "{'class': 'QemuError', 'desc': 'x: \\u001b]0;evil\\u0007'}");
	assert_int_equal(fake_torpord_status(d), 1);
	err = fake_torpord_err(d);
	assert_null(strchr(err, '\033'));
}

/* --- definitions --- */

static void defines_by_line(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *qcow2 = file_with(d, "a,b.img", "QFI\xfb\0\0\0\3", 8), *disk = NULL, *expected = NULL;

	assert_true(asprintf(&disk, "root=%s/a,,b.img,read-only", d->dir) > 0);
	assert_true(asprintf(&expected, "{'name': 'web1', 'spec': {'api': 1, 'launch': {'binary': 'qemu-system-x86_64',"
			     "'args': ['-M', 'q35'], 'disks': {'root': {'file': '%s', 'format': 'qcow2', 'read-only': true},"
			     "'data': {'file': '/x/y.raw', 'format': 'raw'}}, 'agent': 'auto', 'console': 'auto'},"
			     "'labels': {'tier': 'a=b'}}, 'if-generation': 0, 'reset-disks': ['root']}", qcow2) > 0);
	FAKE_RUN(d, "define", "web1", "--disk", disk, "--disk", "data=/x/y.raw", "--agent", "auto", "--console=auto",
		 "--label", "tier=a=b", "--if-generation", "0", "--reset-disk", "root", "--", "-M", "q35");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-define", expected);
	fake_torpord_return(d, "{'generation': 3, 'uid': 'u'}");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "web1: generation 3\n");
	err_has(d, "disk root: format qcow2, by the content");
	unlink(qcow2);
}

static void a_first_word_is_the_binary(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "run", "web1", "--paused", "--", "/opt/qemu", "-M", "pc");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-define", "{'name': 'web1', 'spec': {'api': 1, 'launch': {'binary': '/opt/qemu',"
			    "'args': ['-M', 'pc']}}}");
	fake_torpord_return(d, "{'generation': 1, 'uid': 'u'}");
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "vm-start", "{'name': 'web1', 'paused': true}");
	fake_torpord_return(d, "{'operation': 'op-1'}");
	fake_torpord_expect(d, "operation-wait", NULL);
	fake_torpord_return(d, "{'id': 'op-1', 'vm': 'web1', 'status': 'succeeded', 'result': {'state': 'paused'}}");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "web1: paused\n");
}

static void defines_by_file(void **state)
{
	struct fake_torpord *d = *state;
	static const char bare[] = "{\"launch\": {}}", full[] = "{\"name\": \"n\", \"spec\": {\"launch\": {}}}";
	tp_autofree char *file = file_with(d, "web2.json", bare, strlen(bare));

	FAKE_RUN(d, "define", file);
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-define", "{'name': 'web2', 'spec': {'launch': {}}}");
	fake_torpord_error(d, "{'class': 'GenericError', 'desc': 'launch.args is missing'}");
	assert_int_equal(fake_torpord_status(d), 1);
	err_has(d, "torpor: web2: launch.args is missing\n");

	FAKE_RUN(d, "define", "-");
	assert_int_equal(write(d->input, full, strlen(full)), (int)strlen(full));
	tp_close(&d->input);
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-define", "{'name': 'n', 'spec': {'launch': {}}}");
	fake_torpord_return(d, "{'generation': 1, 'uid': 'u'}");
	assert_int_equal(fake_torpord_status(d), 0);

	FAKE_RUN(d, "define", "/nonexistent.json");
	assert_int_equal(fake_torpord_status(d), 1);
	err_has(d, "/nonexistent.json: cannot be opened");
	unlink(file);
}

static void set_makes_a_merge_patch(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "set", "a", "hibernate.level=3", "hibernate.pool=fast", "labels.a.b=1", "restore=null", "{\"x-a\": [1]}");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-set", "{'name': 'a', 'merge': {'hibernate': {'level': 3, 'pool': 'fast'},"
			    "'labels': {'a.b': '1'}, 'restore': null, 'x-a': [1]}}");
	fake_torpord_return(d, "{'generation': 2, 'uid': 'u'}");
	assert_int_equal(fake_torpord_status(d), 0);

	FAKE_RUN(d, "set", "a", "storage.quota=500M", "storage.retain.age=7d", "shutdown.timeout=3", "x-a=7d",
		 "hibernate.timeout=null");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-set", "{'name': 'a', 'merge': {'storage': {'quota': 524288000, 'retain':"
			    " {'age': 604800.0}}, 'shutdown': {'timeout': 3}, 'x-a': '7d',"
			    " 'hibernate': {'timeout': null}}}");
	fake_torpord_return(d, "{'generation': 3, 'uid': 'u'}");
	assert_int_equal(fake_torpord_status(d), 0);
	FAKE_RUN(d, "set", "a", "storage.quota=lots");
	assert_int_equal(fake_torpord_status(d), 2);
	err_has(d, "torpor: storage.quota: \"lots\" is not of the form SIZE (500M, 40G);");
	FAKE_RUN(d, "set", "a", "storage.retain.age=7w");
	assert_int_equal(fake_torpord_status(d), 2);
}

/* --- lists --- */

static void lists_by_pages(void **state)
{
	struct fake_torpord *d = *state;
	tp_autojson json_t *page = json_array();
	tp_autofree char *text = NULL;

	for (unsigned i = 0; i < 500; i++)
		json_array_append_new(page, json_pack("{s:o}", "name", json_sprintf("vm%03u", i)));
	text = json_dumps(page, 0);
	FAKE_RUN(d, "ls", "-o", "name");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vms", "{'fields': ['name'], 'limit': 500}");
	fake_torpord_return(d, text);
	fake_torpord_expect(d, "query-vms", "{'fields': ['name'], 'limit': 500, 'after': 'vm499'}");
	fake_torpord_return(d, "[{'name': 'vm500'}]");
	assert_int_equal(fake_torpord_status(d), 0);
	free(text);
	text = fake_torpord_out(d);
	assert_int_equal(strlen(text), 501 * 6);

	/* A daemon that gives the same page again ends the list. */
	FAKE_RUN(d, "images", "-o", "name");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-images", NULL);
	free(text);
	text = json_dumps(page, 0);
	for (char *p = text; (p = strstr(p, "name")); )
		memcpy(p, "id  ", 4);
	for (char *p = text; (p = strstr(p, "id  \"")); )
		memcpy(p, "id\"  ", 5);
	fake_torpord_return(d, text);
	fake_torpord_expect(d, "query-images", NULL);
	fake_torpord_return(d, text);
	assert_int_equal(fake_torpord_status(d), 0);
}

static void missing_names_are_told(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "ls", "a", "b", "-o", "name");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vms", "{'fields': ['name'], 'names': ['a', 'b'], 'limit': 500}");
	fake_torpord_return(d, "[{'name': 'a'}]");
	assert_int_equal(fake_torpord_status(d), 6);
	out_is(d, "a\n");
	err_has(d, "no VM is named \"b\"");
}

/* --- waiting --- */

static void wait_takes_state_and_events(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "wait", "a", "b", "--for", "state=running");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", "{'events': ['VM_STATE', 'VM_UNDEFINED', 'OPERATION'], 'progress': false}");
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "query-vms", "{'names': ['a', 'b'], 'fields': ['name', 'state', 'operation'],"
			    " 'limit': 500}");
	fake_torpord_event(d, "VM_STATE", "{'vm': 'a', 'state': 'running'}");
	fake_torpord_return(d, "[{'name': 'a', 'state': 'paused'}, {'name': 'b', 'state': 'shutoff'}]");
	fake_torpord_event(d, "EVENTS_LOST", "{'count': 1}");
	fake_torpord_expect(d, "query-vms", NULL);
	fake_torpord_return(d, "[{'name': 'a', 'state': 'running'}, {'name': 'b', 'state': 'starting'}]");
	fake_torpord_event(d, "VM_STATE", "{'vm': 'b', 'state': 'running'}");
	assert_int_equal(fake_torpord_status(d), 0);
}

static void wait_ends_otherwise(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "wait", "a", "--for", "state=running", "--timeout", "0.3");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "query-vms", NULL);
	fake_torpord_return(d, "[{'name': 'a', 'state': 'paused'}]");
	assert_int_equal(fake_torpord_status(d), 4);
	err_has(d, "a: not running in time");

	FAKE_RUN(d, "wait", "a", "b", "c", "--for", "state=running");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "query-vms", NULL);
	fake_torpord_return(d, "[{'name': 'a', 'state': 'lost'}, {'name': 'b', 'state': 'running'}]");
	assert_int_equal(fake_torpord_status(d), 6);
	err_has(d, "the VM is lost");
	err_has(d, "no VM is named \"c\"");
}

static void events_are_lines(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "events", "a", "-e", "OPERATION", "-e", "VM_STATE", "--no-progress");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", "{'vms': ['a'], 'events': ['OPERATION', 'VM_STATE'], 'progress': false}");
	fake_torpord_return(d, "{}");
	fake_torpord_event(d, "VM_STATE", "{'vm': 'a', 'state': 'running', 'reason': 'ok', 'seq': 1}");
	fake_torpord_event(d, "OPERATION", "{'vm': 'a', 'id': 'op-1', 'kind': 'start', 'status': 'running', 'phase':"
			   " 'Launching', 'progress': {'percent': 3}, 'seq': 2}");
	fake_torpord_event(d, "POOL", "{'pool': 'default', 'state': 'low', 'available': 1048576, 'quota': null,"
			   " 'message': 'nearly full', 'seq': 3}");
	fake_torpord_hang_up(d);
	assert_int_equal(fake_torpord_status(d), 3);
	out_is(d, "2026-11-30T14:46:40.000Z VM_STATE a running (ok)\n"
	       "2026-11-30T14:46:40.000Z OPERATION a op-1 start running, Launching, 3 %\n"
	       "2026-11-30T14:46:40.000Z POOL - pool=default state=low available=\"1 MiB\" message=\"nearly full\"\n");
}

/* --- the rest --- */

static void log_and_console(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *log = file_with(d, "log", "one\n\033two\n", 9), *answer = NULL;
	tp_autoclose int listener = -1, conn = -1;
	char console[128], typed[6] = "";

	assert_true(asprintf(&answer, "{'log': '%s', 'run-dir': '%s', 'state': 'running', 'spec': {'launch': "
			     "{'console': 'auto'}}}", log, d->dir) > 0);
	FAKE_RUN(d, "log", "a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vm", "{'name': 'a'}");
	fake_torpord_return(d, answer);
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "one\n\033two\n");
	unlink(log);

	snprintf(console, sizeof(console), "%s/console.sock", d->dir);
	listener = tp_listen_unix(console, 0600, NULL);
	assert_true(listener >= 0 && tp_set_nonblock(listener, false));
	FAKE_RUN(d, "console", "a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vm", NULL);
	fake_torpord_return(d, answer);
	conn = accept(listener, NULL, NULL);
	assert_int_equal(write(d->input, "hello", 5), 5);
	assert_int_equal(recv(conn, typed, 5, MSG_WAITALL), 5);
	assert_string_equal(typed, "hello");
	tp_close(&d->input);
	assert_int_equal(write(conn, "login:", 6), 6);
	tp_close(&conn);
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "login:");
	unlink(console);
}

static void monitor_and_raw(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "monitor", "a", "query-block", "{\"x\": 1}", "--timeout", "2");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-monitor", "{'name': 'a', 'timeout': 2.0, 'execute': 'query-block', 'arguments': {'x': 1}}");
	fake_torpord_return(d, "[]");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "[]\n");

	FAKE_RUN(d, "raw", "{\"execute\": \"query-vm\", \"arguments\": {\"name\": \"a\"}}");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vm", "{'name': 'a'}");
	fake_torpord_return(d, "{}");
	assert_int_equal(fake_torpord_status(d), 0);
}

static void stop_by_force_quits(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "stop", "--force", "a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-quit", "{'name': 'a'}");
	fake_torpord_return(d, "{}");
	assert_int_equal(fake_torpord_status(d), 0);

	FAKE_RUN(d, "resolve", "a", "nobody");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-resolve", "{'name': 'a', 'owner': 'nobody'}");
	fake_torpord_return(d, "{}");
	assert_int_equal(fake_torpord_status(d), 0);

	FAKE_RUN(d, "image", "rm", "i1");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "image-delete", "{'image': 'i1'}");
	fake_torpord_return(d, "{}");
	assert_int_equal(fake_torpord_status(d), 0);

	FAKE_RUN(d, "image", "rm", "i1", "--pool", "b");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "image-delete", "{'image': 'i1', 'pool': 'b'}");
	fake_torpord_return(d, "{}");
	assert_int_equal(fake_torpord_status(d), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(bad_usage_is_one_line), TEST(help_and_version_everywhere), TEST(unreachable_is_3),
		TEST(broken_answers_are_3), TEST(endless_answer_is_bounded), TEST(foreign_text_is_cleaned),
		TEST(defines_by_line), TEST(a_first_word_is_the_binary), TEST(defines_by_file),
		TEST(set_makes_a_merge_patch), TEST(lists_by_pages), TEST(missing_names_are_told),
		TEST(wait_takes_state_and_events), TEST(wait_ends_otherwise), TEST(events_are_lines),
		TEST(log_and_console), TEST(monitor_and_raw), TEST(stop_by_force_quits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
