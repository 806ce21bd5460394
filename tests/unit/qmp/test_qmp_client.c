/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qmp_client.c - The monitor's faults that real users met (cases B01 to B11) */
#include "qmp_rig.h"

#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_sock.h"

/* What takes a second takes valgrind a minute: it gets a part of the load. */
static unsigned load(unsigned full)
{
	const char *valgrind = getenv("VALGRIND");

	return valgrind && *valgrind ? full / 20 : full;
}

/* ---- B01: events before the greeting ---- */

static void b01_with(struct rig *r, unsigned events)
{
	for (unsigned i = 0; i < events; i++)
		fake_event(r->monitor, "VSERPORT_CHANGE", "{\"open\": false, \"id\": \"ga0\"}");
	fake_greet(r->monitor, true);
	WAIT_FOR(r, r->ready);
	assert_int_equal(r->ready, 1);
	assert_int_equal(r->events, events);
	assert_string_equal(r->last_event, "VSERPORT_CHANGE");
	assert_string_equal(tp_json_str(r->last_data, "id"), "ga0");
	assert_int_equal(qmp_client_stats(r->client)->events, events);
	check_script(r);
}

static void b01_1_event_before_the_greeting(void **state)
{
	b01_with(*state, 1);
}

static void b01_5_events_before_the_greeting(void **state)
{
	b01_with(*state, 5);
}

static void b01_50_events_before_the_greeting(void **state)
{
	b01_with(*state, 50);
}

/* ---- B02: something between a command and its reply ---- */

static void b02_event_between_capabilities_and_reply(void **state)
{
	struct rig *r = *state;

	fake_greeting_only(r->monitor, true);
	fake_expect(r->monitor, "qmp_capabilities", NULL);
	fake_event(r->monitor, "NIC_RX_FILTER_CHANGED", NULL);
	fake_return(r->monitor, "{}");
	fake_expect(r->monitor, "query-status", NULL);
	fake_event(r->monitor, "RESUME", NULL);
	fake_return(r->monitor, "{\"status\": \"running\"}");
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_status(&r->a[0], "running");
	assert_string_equal(r->event_order, "NIC_RX_FILTER_CHANGED RESUME ");
	check_script(r);
}

static void b02_stray_replies_are_dropped_and_counted(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_say(r->monitor, "{\"return\": {}}\r\n");
	fake_say(r->monitor, "{\"return\": {\"status\": \"wrong\"}, \"id\": \"x\"}\r\n");
	fake_say(r->monitor, "{\"return\": {\"status\": \"wrong\"}, \"id\": 2}\r\n");
	fake_say(r->monitor, "{\"return\": {\"status\": \"wrong\"}, \"id\": $0}\r\n");
	fake_say(r->monitor, "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no id\"}}\r\n");
	fake_say(r->monitor, "{\"neither\": 1}\r\n{}\r\n");
	fake_return(r->monitor, "{\"status\": \"paused\"}");
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_status(&r->a[0], "paused");
	assert_int_equal(qmp_client_stats(r->client)->stray, 7);
	assert_int_equal(qmp_client_stats(r->client)->replies, 2);
	assert_int_equal(r->closed, 0);
	check_script(r);
}

static void replies_are_matched_in_any_order(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_expect(r->monitor, "query-version", NULL);
	fake_say(r->monitor, "{\"return\": {\"status\": \"second\"}, \"id\": $2}\r\n"
		 "{\"id\": $1, \"return\": {\"status\": \"first\"}}");
	ask(r, QMP_QUERY_STATUS, 0, 0);
	ask(r, QMP_QUERY_VERSION, 1, 0);
	WAIT_FOR(r, r->a[0].calls && r->a[1].calls);
	check_status(&r->a[0], "first");
	check_status(&r->a[1], "second");
	check_script(r);
}

static void errors_of_qemu_keep_its_words(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "cont", NULL);
	fake_error(r->monitor, "GenericError", "Failed to get \\\"write\\\" lock\\nIs another\\u0001");
	ask(r, QMP_CONT, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	assert_true(r->a[0].qemu_error);
	assert_int_equal(r->a[0].err.code, TP_EQMP);
	assert_string_equal(r->a[0].err.class_, "QemuError");
	assert_string_equal(r->a[0].err.text, "cont: Failed to get \"write\" lock Is another");
	check_script(r);
}

/* ---- B03: a busy monitor ---- */

static void b03_no_greeting_means_another_client(void **state)
{
	struct rig *r = *state;

	qmp_client_set_greeting_limit(r->client, SHORT);
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, r->closed);
	assert_string_equal(tp_error_class(&r->why), "MonitorBusy");
	assert_non_null(strstr(r->why.text, "another client holds it"));
	assert_non_null(strstr(r->why.text, "vm1"));
	assert_int_equal(r->a[0].calls, 1);
	assert_string_equal(tp_error_class(&r->a[0].err), "MonitorBusy");
	check_script(r);
}

static struct qmp_client *attach(struct rig *r, const char *path)
{
	int fd = tp_connect_unix(path, true, NULL);

	assert_true(fd >= 0);
	return qmp_client_new(r->loop, &fd, "vm1", &rig_ops, r);
}

/* A real listening socket that serves one client at a time, as QEMU's does. */
static void b03_attaches_once_the_other_client_left(void **state)
{
	static const char greeting[] = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";
	struct rig *r = *state;
	char path[64];
	int server, other, served;

	snprintf(path, sizeof(path), "/tmp/torpor-test-%d.sock", (int)getpid());
	server = tp_listen_unix(path, 0600, NULL);
	assert_true(server >= 0);
	other = tp_connect_unix(path, true, NULL);
	served = accept(server, NULL, NULL);
	assert_true(other >= 0 && served >= 0);

	rig_drop_client(r);
	r->client = attach(r, path);
	qmp_client_set_greeting_limit(r->client, SHORT);
	WAIT_FOR(r, r->closed);
	assert_string_equal(tp_error_class(&r->why), "MonitorBusy");
	rig_drop_client(r);

	/* The other one leaves; next in the queue is the connection just given up, then ours. */
	close(other);
	close(served);
	r->client = attach(r, path);
	served = accept(server, NULL, NULL);
	assert_true(served >= 0);
	close(served);
	served = accept(server, NULL, NULL);
	assert_true(served >= 0);
	assert_int_equal(write(served, greeting, sizeof(greeting) - 1), sizeof(greeting) - 1);
	WAIT_FOR(r, qmp_client_greeting(r->client));
	close(served);
	close(server);
	unlink(path);
}

static void events_do_not_stand_for_a_greeting(void **state)
{
	struct rig *r = *state;

	qmp_client_set_greeting_limit(r->client, SHORT);
	for (int i = 0; i < 3; i++) {
		fake_delay(r->monitor, SHORT / 5);
		fake_event(r->monitor, "RTC_CHANGE", NULL);
	}
	WAIT_FOR(r, r->closed);
	assert_string_equal(tp_error_class(&r->why), "MonitorBusy");
}

static void silence_after_the_greeting_is_a_timeout(void **state)
{
	struct rig *r = *state;

	qmp_client_set_greeting_limit(r->client, SHORT);
	fake_greeting_only(r->monitor, true);
	fake_expect(r->monitor, "qmp_capabilities", NULL);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->ready, 0);
	assert_int_equal(r->why.code, TP_ETIMEOUT);
	assert_string_equal(tp_error_class(&r->why), "Timeout");
	assert_non_null(strstr(r->why.text, "qmp_capabilities"));
	check_script(r);
}

/* ---- B05: a time-out is "unknown" ---- */

static void b05_late_success_after_the_limit(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "stop", NULL);
	fake_delay(r->monitor, 4 * SHORT);
	fake_return(r->monitor, "{}");
	fake_expect(r->monitor, "query-status", NULL);
	fake_return(r->monitor, "{\"status\": \"paused\"}");
	ask(r, QMP_STOP, 0, SHORT);
	WAIT_FOR(r, r->a[0].calls);
	assert_int_equal(r->a[0].err.code, TP_ETIMEOUT);
	assert_false(r->a[0].qemu_error);
	assert_non_null(strstr(r->a[0].err.text, "stop was not answered"));
	/* The session goes on; the state is read and tells that it worked. */
	ask(r, QMP_QUERY_STATUS, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	check_status(&r->a[1], "paused");
	assert_int_equal(r->a[0].calls, 1);
	assert_int_equal(qmp_client_stats(r->client)->stray, 1);
	check_script(r);
}

static void each_command_has_its_own_limit(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_expect(r->monitor, "query-block", NULL);
	fake_delay(r->monitor, 3 * SHORT);
	fake_say(r->monitor, "{\"return\": {\"status\": \"a\"}, \"id\": $1}"
		 "{\"return\": {\"status\": \"b\"}, \"id\": $2}");
	ask(r, QMP_QUERY_STATUS, 0, SHORT);
	ask(r, QMP_QUERY_BLOCK, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	assert_int_equal(r->a[0].err.code, TP_ETIMEOUT);
	check_status(&r->a[1], "b");
	check_script(r);
}

static void a_command_that_could_not_be_sent_is_never_sent(void **state)
{
	struct rig *r = *state;

	ask(r, QMP_STOP, 0, SHORT);
	WAIT_FOR(r, r->a[0].calls);
	assert_int_equal(r->a[0].err.code, TP_ETIMEOUT);
	assert_non_null(strstr(r->a[0].err.text, "could not be sent"));
	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_return(r->monitor, "{\"status\": \"running\"}");
	ask(r, QMP_QUERY_STATUS, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	check_status(&r->a[1], "running");
	check_script(r);
}

/* ---- B07: EOF ---- */

static void b07_eof_when_idle(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_eof(r->monitor);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->closed, 1);
	assert_string_equal(tp_error_class(&r->why), "QemuExited");
	check_script(r);
}

static void b07_eof_after_shutdown_comes_after_the_event(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "quit", NULL);
	fake_say(r->monitor, "{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": false, \"reason\": "
		 "\"host-qmp-quit\"}}\r\n{\"return\": {}, \"id\": $id}\r\n");
	fake_eof(r->monitor);
	ask(r, QMP_QUIT, 0, 0);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->a[0].calls, 1);
	assert_non_null(r->a[0].reply);
	assert_string_equal(r->last_event, "SHUTDOWN");
	assert_string_equal(tp_error_class(&r->why), "QemuExited");
	check_script(r);
}

static void b07_eof_while_a_command_waits(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "migrate", NULL);
	fake_say(r->monitor, "{\"return\": {\"half\": ");
	fake_eof(r->monitor);
	ask(r, QMP_MIGRATE, 0, 0);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->a[0].calls, 1);
	assert_int_equal(r->replies_at_close, 1);
	assert_string_equal(tp_error_class(&r->a[0].err), "QemuExited");
	assert_non_null(strstr(r->a[0].err.text, "in the middle of a message"));
	check_script(r);
}

static void b07_eof_before_the_greeting(void **state)
{
	struct rig *r = *state;

	fake_eof(r->monitor);
	WAIT_FOR(r, r->closed);
	assert_string_equal(tp_error_class(&r->why), "QemuExited");
	assert_non_null(strstr(r->why.text, "before its greeting"));
}

/* QEMU is dead already: writing fails first, and what it said before is still heard. */
static void b07_readable_data_is_drained_before_the_end(void **state)
{
	static const char greeting[] = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";
	static const char event[] = "{\"event\": \"BLOCK_IO_ERROR\", \"data\": {\"device\": \"disk0\"}}\r\n";
	static const char last[] = "{\"event\": \"SHUTDOWN\"}";
	tp_autobuf struct tp_buf text = TP_BUF_INIT(0);
	struct rig *r = *state;
	int fds[2];

	/* More than is read in one turn. */
	tp_buf_adds(&text, greeting);
	for (int i = 0; i < 1500; i++)
		tp_buf_adds(&text, event);
	tp_buf_adds(&text, last);
	assert_true(tp_socketpair(SOCK_STREAM, fds, NULL));
	assert_int_equal(write(fds[1], text.data, text.len), text.len);
	close(fds[1]);
	rig_drop_client(r);
	r->client = qmp_client_new(r->loop, &fds[0], "vm1", &rig_ops, r);
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->events, 1501);
	assert_string_equal(r->last_event, "SHUTDOWN");
	assert_string_equal(tp_error_class(&r->why), "QemuExited");
	assert_int_equal(r->a[0].calls, 1);
}

/* ---- B08: a flood of events ---- */

/* All events together are 10 MiB of text; sanitizers and valgrind count nothing here. */
static void b08_flood_of_100000_events_costs_no_memory(void **state)
{
	struct rig *r = *state;
	unsigned flood = load(100000);
	size_t before, most = 0;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-migrate", NULL);
	fake_flood(r->monitor, flood);
	fake_say(r->monitor, "{\"return\": {\"status\": \"completed\"}, \"id\": $id}");
	WAIT_FOR(r, r->ready);
	ask(r, QMP_QUERY_MIGRATE, 0, 0);
	before = mallinfo2().uordblks;
	while (r->a[0].calls == 0) {
		ev_run(r->loop, EVRUN_ONCE);
		if (mallinfo2().uordblks > before + most)
			most = mallinfo2().uordblks - before;
	}
	assert_int_equal(r->events, flood);
	assert_int_equal(qmp_client_stats(r->client)->events, flood);
	check_status(&r->a[0], "completed");
	assert_true(most < 256u << 10);
	check_script(r);
}

static unsigned turns;

static void count_turn(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop;
	(void)w;
	(void)revents;
	turns++;
}

/* One turn reads a bounded amount, whatever is there. */
static void b08_a_turn_is_bounded(void **state)
{
	struct rig *r = *state;
	struct ev_timer timer;
	unsigned most = 0;

	fake_greet(r->monitor, false);
	WAIT_FOR(r, r->ready);
	fake_flood(r->monitor, 3000);
	turns = 0;
	ev_timer_init(&timer, count_turn, 0.000001, 0.000001);
	ev_timer_start(r->loop, &timer);
	while (r->events < 3000) {
		unsigned before = r->events;

		ev_run(r->loop, EVRUN_ONCE);
		if (r->events - before > most)
			most = r->events - before;
	}
	ev_timer_stop(r->loop, &timer);
	/* 32 KiB hold fewer than 500 of these events. */
	assert_true(most > 0 && most < 500);
	assert_true(turns >= 3000 / 500);
	check_script(r);
}

/* ---- B09, the monitor's side: another connection's replies ---- */

static void b09_reconnect_gets_the_former_clients_replies(void **state)
{
	struct rig *r = *state;
	int fd;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, fake_monitor_received(r->monitor) == 2);
	rig_drop_client(r);
	assert_int_equal(r->a[0].err.code, TP_ECANCELLED);
	fake_monitor_free(r->monitor);

	/* Same counters, other nonce: what the first one asked for comes to the second. */
	r->monitor = fake_monitor_new(r->loop, &fd);
	r->client = qmp_client_new(r->loop, &fd, "vm1", &rig_ops, r);
	fake_say(r->monitor, "\"id\": \"torpor-0000000000000000-1\"}\r\n");
	fake_greeting_only(r->monitor, false);
	fake_expect(r->monitor, "qmp_capabilities", NULL);
	fake_say(r->monitor, "{\"return\": {}, \"id\": \"torpor-0000000000000000-1\"}\r\n");
	fake_say(r->monitor, "{\"return\": {\"status\": \"old\"}, \"id\": \"torpor-0123456789abcdef-2\"}\r\n");
	fake_return(r->monitor, "{}");
	fake_expect(r->monitor, "query-status", NULL);
	fake_say(r->monitor, "{\"return\": {\"status\": \"old\"}, \"id\": \"torpor-0123456789abcdef-2\"}\r\n");
	fake_return(r->monitor, "{\"status\": \"new\"}");
	ask(r, QMP_QUERY_STATUS, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	check_status(&r->a[1], "new");
	assert_int_equal(r->ready, 2);
	assert_int_equal(qmp_client_stats(r->client)->stray, 3);
	assert_true(qmp_client_stats(r->client)->junk >= 1);
	check_script(r);
}

/* ---- B11: torn and large ---- */

static void b11_one_byte_at_a_time(void **state)
{
	struct rig *r = *state;

	fake_monitor_tear(r->monitor, 1);
	fake_event(r->monitor, "STOP", NULL);
	fake_greet(r->monitor, true);
	fake_expect(r->monitor, "query-status", NULL);
	fake_say(r->monitor, "{\"return\": {\"status\": \"\xe2\x82\xac{\\\"\"}, \"id\": $id}\r\n");
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_status(&r->a[0], "\xe2\x82\xac{\"");
	assert_int_equal(r->events, 1);
	check_script(r);
}

static void b11_two_objects_in_one_read_no_newline(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_say(r->monitor, "{\"event\":\"STOP\"}{\"event\":\"RESUME\"}"
		 "{\"return\":{\"status\":\"x\"},\"id\":$id}");
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	assert_string_equal(r->event_order, "STOP RESUME ");
	check_script(r);
}

static void b11_large_with(struct rig *r, size_t bytes)
{
	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-named-block-nodes", NULL);
	fake_return_big(r->monitor, bytes);
	fake_expect(r->monitor, "query-status", NULL);
	fake_return(r->monitor, "{\"status\": \"running\"}");
	ask(r, QMP_QUERY_NAMED_BLOCK_NODES, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	assert_non_null(r->a[0].reply);
	assert_int_equal(json_string_length(r->a[0].reply), bytes);
	ask(r, QMP_QUERY_STATUS, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	check_status(&r->a[1], "running");
	check_script(r);
}

static void b11_reply_of_9_megabytes(void **state)
{
	b11_large_with(*state, load(9000000));
}

static void b11_reply_of_11_megabytes(void **state)
{
	b11_large_with(*state, load(11000000));
}

static void b11_reply_of_17_megabytes_ends_the_session(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-named-block-nodes", NULL);
	fake_return_big(r->monitor, 17u << 20);
	ask(r, QMP_QUERY_NAMED_BLOCK_NODES, 0, 0);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->a[0].calls, 1);
	assert_int_equal(r->why.code, TP_EPROTO);
	assert_string_equal(tp_error_class(&r->why), "IOError");
	assert_non_null(strstr(r->why.text, "larger than 16777216 bytes"));
}

static void b11_reply_over_its_commands_limit_ends_the_session(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_return_big(r->monitor, qmp_cmd_info(QMP_QUERY_STATUS)->reply_max);
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->a[0].calls, 1);
	assert_int_equal(r->a[0].err.code, TP_EPROTO);
	assert_non_null(strstr(r->why.text, "query-status"));
	check_script(r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		UNIT(b01_1_event_before_the_greeting),
		UNIT(b01_5_events_before_the_greeting),
		UNIT(b01_50_events_before_the_greeting),
		UNIT(b02_event_between_capabilities_and_reply),
		UNIT(b02_stray_replies_are_dropped_and_counted),
		UNIT(replies_are_matched_in_any_order),
		UNIT(errors_of_qemu_keep_its_words),
		UNIT(b03_no_greeting_means_another_client),
		UNIT(b03_attaches_once_the_other_client_left),
		UNIT(events_do_not_stand_for_a_greeting),
		UNIT(silence_after_the_greeting_is_a_timeout),
		UNIT(b05_late_success_after_the_limit),
		UNIT(each_command_has_its_own_limit),
		UNIT(a_command_that_could_not_be_sent_is_never_sent),
		UNIT(b07_eof_when_idle),
		UNIT(b07_eof_after_shutdown_comes_after_the_event),
		UNIT(b07_eof_while_a_command_waits),
		UNIT(b07_eof_before_the_greeting),
		UNIT(b07_readable_data_is_drained_before_the_end),
		UNIT(b08_flood_of_100000_events_costs_no_memory),
		UNIT(b08_a_turn_is_bounded),
		UNIT(b09_reconnect_gets_the_former_clients_replies),
		UNIT(b11_one_byte_at_a_time),
		UNIT(b11_two_objects_in_one_read_no_newline),
		UNIT(b11_reply_of_9_megabytes),
		UNIT(b11_reply_of_11_megabytes),
		UNIT(b11_reply_of_17_megabytes_ends_the_session),
		UNIT(b11_reply_over_its_commands_limit_ends_the_session),
	};

	return cmocka_run_group_tests_name("qmp_client", tests, NULL, NULL);
}
