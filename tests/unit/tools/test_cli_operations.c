/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_cli_operations.c - The client's long work against a scripted daemon: progress, Ctrl-C, exit statuses */
#include <signal.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "cli_test.h"

static json_t *out_json(struct fake_torpord *d)
{
	tp_autofree char *out = fake_torpord_out(d);
	json_t *value = tp_json_parse(out, strlen(out), 64, NULL);

	assert_non_null(value);
	return value;
}

#define RECORD(status, more) "{'id': 'op-7', 'vm': 'web1', 'kind': 'hibernate', 'phase': 'Hibernated', " \
	"'status': '" status "', 'committed': false, 'rollback': 'none', 'progress': {'percent': 100}, " \
	"'warnings': [], 'started': '2026-11-30T17:00:00.000Z', 'ended': '2026-11-30T17:00:02.500Z'" more "}"
#define RUNNING(phase, percent) "{'id': 'op-7', 'vm': 'web1', 'kind': 'hibernate', 'phase': '" phase "', " \
	"'status': 'running', 'progress': {'done-bytes': 536870912, 'total-bytes': 1073741824, " \
	"'percent': " percent ", 'rate': 104857600, 'eta': 5}}"

/* Until operation-wait of op-7 is what the daemon was asked last. */
static void begin(struct fake_torpord *d, const char *arguments)
{
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "vm-hibernate", arguments);
	fake_torpord_return(d, "{'operation': 'op-7'}");
	fake_torpord_expect(d, "operation-wait", "{'id': 'op-7'}");
}

static void succeeds_with_plain_lines(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "web1", "--level", "3", "--timeout", "1m30s", "--keep", "--busy=queue");
	begin(d, "{'name': 'web1', 'level': 3, 'timeout': 90.0, 'keep': true, 'busy': 'queue'}");
	fake_torpord_event(d, "OPERATION", RUNNING("Saving", "50"));
	fake_torpord_event(d, "OPERATION", RUNNING("Saving", "51"));
	fake_torpord_event(d, "OPERATION", RUNNING("Syncing", "99"));
	fake_torpord_event(d, "VM_STATE", "{'vm': 'web1', 'state': 'hibernated'}");
	fake_torpord_return(d, RECORD("succeeded", ", 'result': {'state': 'hibernated', 'bytes': 1048576, "
				      "'raw-bytes': 4194304, 'image': 'web1-x'}"));
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "web1: hibernated in 2.5 s, 1 MiB of 4 MiB, image web1-x\n");
	err_has(d, "web1: Saving 50 %, 512 MiB of 1 GiB, 100 MiB/s, 5 s left\n"
		   "web1: Syncing 99 %,");
}

static void unchanged_quiet_and_json(void **state)
{
	struct fake_torpord *d = *state;
	tp_autojson json_t *value = NULL;
	tp_autofree char *err = NULL;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, "{'name': 'web1'}");
	fake_torpord_return(d, RECORD("succeeded", ", 'result': {'unchanged': true}"));
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "web1: nothing to do\n");

	FAKE_RUN(d, "-q", "hibernate", "web1");
	begin(d, NULL);
	fake_torpord_event(d, "OPERATION", RUNNING("Saving", "50"));
	fake_torpord_return(d, RECORD("succeeded", ""));
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "");
	err = fake_torpord_err(d);
	assert_string_equal(err, "");

	FAKE_RUN(d, "hibernate", "--json", "web1");
	begin(d, NULL);
	fake_torpord_return(d, RECORD("succeeded", ""));
	assert_int_equal(fake_torpord_status(d), 0);
	value = out_json(d);
	assert_string_equal(tp_json_str(value, "id"), "op-7");
}

static void statuses_by_class(void **state)
{
	static const struct {
		const char *error;
		int status;
	} cases[] = {
		{ "{'class': 'NotFound', 'desc': 'no such'}", 1 }, { "{'class': 'Busy', 'desc': 'busy'}", 5 },
		{ "{'class': 'Blocked', 'desc': 'b'}", 5 }, { "{'class': 'Draining', 'desc': 'b'}", 5 },
		{ "{'class': 'Conflict', 'desc': 'b'}", 5 }, { "{'class': 'Timeout', 'desc': 'late'}", 4 },
		{ "{'class': 'Cancelled', 'desc': 'c'}", 4 }, { "{'class': 'RollbackFailed', 'desc': 'r'}", 7 },
		{ "{'class': 'InvalidState', 'desc': 'lost', 'data': {'use': 'vm-resolve'}}", 7 },
		{ "{'class': 'DrainIncomplete', 'desc': 'some'}", 6 }, { "{}", 1 }, { "[]", 1 },
	};
	struct fake_torpord *d = *state;

	for (size_t i = 0; i < TP_N(cases); i++) {
		FAKE_RUN(d, "hibernate", "web1");
		fake_torpord_accept(d);
		fake_torpord_expect(d, "event-filter", NULL);
		fake_torpord_return(d, "{}");
		fake_torpord_expect(d, "vm-hibernate", NULL);
		fake_torpord_error(d, cases[i].error);
		assert_int_equal(fake_torpord_status(d), cases[i].status);
	}
}

static void a_failed_record_is_an_error(void **state)
{
	struct fake_torpord *d = *state;
	tp_autojson json_t *value = NULL;

	FAKE_RUN(d, "--json", "hibernate", "web1");
	begin(d, NULL);
	fake_torpord_return(d, RECORD("failed", ", 'error': {'class': 'QemuExited', 'desc': 'QEMU of web1 ended',"
				      " 'data': {'code': 1, 'log-tail': 'first\\nlast words\\n'}}"));
	assert_int_equal(fake_torpord_status(d), 1);
	err_has(d, "torpor: QemuExited: QEMU of web1 ended\ntorpor: QEMU: first\ntorpor: QEMU: last words\n");
	value = out_json(d);
	assert_string_equal(tp_json_str(value, "class"), "QemuExited");
	assert_string_equal(json_string_value(tp_json_path(value, "data.operation")), "op-7");
	assert_string_equal(json_string_value(tp_json_path(value, "data.record.status")), "failed");
	assert_int_equal(tp_json_int(json_object_get(value, "data"), "code", 0), 1);
}

static void stuck_is_told_by_event(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, NULL);
	fake_torpord_event(d, "OPERATION", "{'id': 'op-7', 'vm': 'web1', 'phase': 'Terminating', 'status': 'stuck',"
			   " 'error': {'class': 'Timeout', 'desc': 'QEMU of web1 does not end'}}");
	assert_int_equal(fake_torpord_status(d), 7);
	err_has(d, "QEMU of web1 does not end");
	err_has(d, "op-7 is stuck");
}

static void stuck_is_found_after_lost_events(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, NULL);
	fake_torpord_event(d, "EVENTS_LOST", "{'count': 3}");
	fake_torpord_expect(d, "query-operation", "{'id': 'op-7'}");
	fake_torpord_return(d, RECORD("stuck", ""));
	assert_int_equal(fake_torpord_status(d), 7);
}

/* Waits until the client has said this, so that it is known to be that far. */
static void await_err(struct fake_torpord *d, const char *text)
{
	for (unsigned i = 0; i < 3000; i++) {
		tp_autofree char *err = fake_torpord_err(d);

		if (strstr(err, text))
			return;
		usleep(10000);
	}
	err_has(d, text);
}

/* Looked at, turned back: nothing was touched, and the error says all. */
static void refusal_has_no_phases(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, NULL);
	fake_torpord_event(d, "OPERATION", RUNNING("Preparing", "0"));
	fake_torpord_event(d, "OPERATION", RUNNING("RollingBack", "0"));
	fake_torpord_return(d, RECORD("failed", ", 'error': {'class': 'Blocked', 'desc': 'VM web1 has a 9p mount'}"));
	assert_int_equal(fake_torpord_status(d), 5);
	err_is(d, "torpor: Blocked: VM web1 has a 9p mount\n");
}

static void interrupt_cancels_and_waits(void **state)
{
	struct fake_torpord *d = *state;
	tp_autojson json_t *wait = NULL;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, NULL);
	wait = json_incref(d->request);
	fake_torpord_event(d, "OPERATION", RUNNING("Saving", "50"));
	await_err(d, "Saving");
	kill(d->client, SIGINT);
	fake_torpord_expect(d, "operation-cancel", "{'id': 'op-7'}");
	fake_torpord_return(d, "{}");
	fake_torpord_event(d, "OPERATION", RUNNING("RollingBack", "50"));
	await_err(d, "RollingBack");
	fake_torpord_answer(d, wait, "return", RECORD("cancelled", ", 'error': {'class': 'Cancelled', 'desc': 'x'}"));
	assert_int_equal(fake_torpord_status(d), 4);
}

static void interrupt_past_the_commit_point(void **state)
{
	struct fake_torpord *d = *state;
	tp_autojson json_t *wait = NULL;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, NULL);
	wait = json_incref(d->request);
	fake_torpord_event(d, "OPERATION", RUNNING("Committing", "99"));
	await_err(d, "Committing");
	kill(d->client, SIGINT);
	fake_torpord_expect(d, "operation-cancel", NULL);
	fake_torpord_error(d, "{'class': 'InvalidState', 'desc': 'past its commit point'}");
	await_err(d, "cannot be cancelled any more");
	fake_torpord_answer(d, wait, "return", RECORD("succeeded", ""));
	assert_int_equal(fake_torpord_status(d), 0);
}

static void second_interrupt_leaves(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, NULL);
	fake_torpord_event(d, "OPERATION", RUNNING("Saving", "50"));
	await_err(d, "Saving");
	kill(d->client, SIGINT);
	fake_torpord_expect(d, "operation-cancel", NULL);
	fake_torpord_return(d, "{}");
	kill(d->client, SIGINT);
	assert_int_equal(fake_torpord_status(d), 4);
	err_has(d, "torpor op wait op-7");
}

static void detach_and_dry_run(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "web1", "--detach");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "vm-hibernate", "{'name': 'web1'}");
	fake_torpord_return(d, "{'operation': 'op-7'}");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "op-7\n");

	FAKE_RUN(d, "hibernate", "web1", "--dry-run");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "vm-hibernate", "{'name': 'web1', 'dry-run': true}");
	fake_torpord_return(d, "{'ok': false, 'blockers': [{'class': 'Blocked', 'desc': 'a block job runs'},"
			    " {'class': 'InsufficientSpace', 'desc': 'no room'}], 'warnings': [], 'plan': []}");
	assert_int_equal(fake_torpord_status(d), 5);
	err_has(d, "a block job runs");
	err_has(d, "no room");
}

static void several_at_once_are_partial(void **state)
{
	struct fake_torpord *d = *state;
	tp_autojson json_t *a = NULL, *b = NULL, *list = NULL;

	FAKE_RUN(d, "--json", "start", "a", "b");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "vm-start", "{'name': 'a'}");
	a = json_incref(d->request);
	fake_torpord_expect(d, "vm-start", "{'name': 'b'}");
	b = json_incref(d->request);
	fake_torpord_answer(d, b, "error", "{'class': 'Busy', 'desc': 'b is busy'}");
	fake_torpord_answer(d, a, "return", "{'operation': 'op-1'}");
	fake_torpord_expect(d, "operation-wait", "{'id': 'op-1'}");
	fake_torpord_return(d, "{'id': 'op-1', 'vm': 'a', 'status': 'succeeded', 'result': {'state': 'running'}}");
	assert_int_equal(fake_torpord_status(d), 6);
	list = out_json(d);
	assert_int_equal(json_array_size(list), 2);
	assert_non_null(json_object_get(json_array_get(list, 0), "return"));
	assert_non_null(json_object_get(json_array_get(list, 1), "error"));
}

static void all_means_states_that_fit(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "--all", "--detach");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vms", "{'fields': ['name', 'state'], 'limit': 500}");
	fake_torpord_return(d, "[{'name': 'a', 'state': 'shutoff'}, {'name': 'b', 'state': 'running'}]");
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "vm-hibernate", "{'name': 'b'}");
	fake_torpord_return(d, "{'operation': 'op-9'}");
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "op-9\n");
}

/* What is wrong is told with what is right, before torpord is asked; several come in either way. */
static void choices_come_in_lists(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "restore", "a", "--detach", "--allow", "stale-disks,reused-image", "--allow=other-vm");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "vm-restore", "{'name': 'a', 'allow': ['stale-disks', 'reused-image', 'other-vm']}");
	fake_torpord_return(d, "{'operation': 'op-9'}");
	assert_int_equal(fake_torpord_status(d), 0);
	FAKE_RUN(d, "restore", "a", "--allow", "stale-disks,stale");
	assert_int_equal(fake_torpord_status(d), 2);
	err_has(d, "torpor: option --allow: \"stale-disks,stale\" is not of the form"
		" stale-disks|reused-image|incompatible|other-vm, several by commas;");
	FAKE_RUN(d, "restore", "a", "--allow", "");
	assert_int_equal(fake_torpord_status(d), 2);
}

/* Errors speak of the wire; what is to be done about them is told in words of the command line. */
static void errors_tell_what_to_try(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, NULL);
	fake_torpord_return(d, RECORD("failed", ", 'error': {'class': 'InvalidState', 'desc': 'VM web1 is off',"
				      " 'data': {'use': 'vm-start', 'vm': 'web1'}}"));
	assert_int_equal(fake_torpord_status(d), 1);
	err_has(d, "torpor: InvalidState: VM web1 is off\ntorpor: try: torpor start web1\n");
	FAKE_RUN(d, "pause", "web2");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "vm-pause", NULL);
	fake_torpord_error(d, "{'class': 'InvalidState', 'desc': 'it is lost', 'data': {'use': 'vm-resolve'}}");
	assert_int_equal(fake_torpord_status(d), 7);
	err_has(d, "torpor: web2: InvalidState: it is lost\n"
		"torpor: try: torpor resolve web2 here|elsewhere|nobody\n");
}

static void daemon_goes_away(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "hibernate", "web1");
	begin(d, NULL);
	fake_torpord_hang_up(d);
	assert_int_equal(fake_torpord_status(d), 3);
	err_has(d, "op-7 goes on without this client");
	err_has(d, "torpord closed the connection");
}

static void op_wait_follows(void **state)
{
	struct fake_torpord *d = *state;
	tp_autojson json_t *look = NULL;

	FAKE_RUN(d, "op", "wait", "op-7");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "query-operation", "{'id': 'op-7'}");
	look = json_incref(d->request);
	fake_torpord_expect(d, "operation-wait", "{'id': 'op-7'}");
	fake_torpord_answer(d, look, "return", RUNNING("Saving", "10"));
	fake_torpord_return(d, RECORD("succeeded", ", 'result': {'state': 'hibernated'}"));
	assert_int_equal(fake_torpord_status(d), 0);
	out_is(d, "web1: hibernated in 2.5 s\n");

	FAKE_RUN(d, "op", "wait", "op-7", "--timeout", "0.3");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "query-operation", NULL);
	fake_torpord_expect(d, "operation-wait", NULL);
	assert_int_equal(fake_torpord_status(d), 4);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(succeeds_with_plain_lines), TEST(unchanged_quiet_and_json), TEST(statuses_by_class),
		TEST(a_failed_record_is_an_error), TEST(stuck_is_told_by_event),
		TEST(stuck_is_found_after_lost_events), TEST(refusal_has_no_phases), TEST(interrupt_cancels_and_waits),
		TEST(interrupt_past_the_commit_point), TEST(second_interrupt_leaves), TEST(detach_and_dry_run),
		TEST(several_at_once_are_partial), TEST(all_means_states_that_fit), TEST(choices_come_in_lists),
		TEST(errors_tell_what_to_try), TEST(daemon_goes_away),
		TEST(op_wait_follows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
