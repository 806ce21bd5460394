/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_api_session.c - Connections: bytes in any cut, limits, half-closing, descriptors, slow readers */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "fake/fake_api.h"

#define PAUSE "{'return': {'verb': 'vm_pause'}"

static struct torpor *engine;
static struct fake_peer peer;
static size_t fds_before;

static int setup(void **state)
{
	(void)state;
	fds_before = fake_open_fds();
	engine = fake_torpor_new();
	fake_peer_open(&peer, engine, TORPOR_ROLE_ADMIN);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_peer_close(&peer);
	fake_torpor_free(engine);
	assert_int_equal(fake_open_fds(), fds_before);
	return 0;
}

static bool no_connections(void *arg)
{
	return torpor_connections(arg) == 0;
}

static void greets(void **state)
{
	(void)state;
	fake_peer_expect(&peer, "{'QMP': {'version': {'qemu': {'major': 0, 'minor': 1, 'micro': 0}, "
			 "'package': 'torpor 0.1.0'}, 'capabilities': []}}");
}

static void negotiates_as_qemu_does(void **state)
{
	(void)state;
	json_decref(fake_peer_next(&peer));
	fake_peer_send(&peer, "{\"execute\": \"query-vms\", \"id\": 1}");
	fake_peer_expect(&peer, "{'error': {'class': 'CommandNotFound', 'desc': 'Expecting capabilities "
			 "negotiation with `qmp_capabilities`'}, 'id': 1}");
	fake_peer_send(&peer, "{\"execute\": \"qmp_capabilities\", \"arguments\": {\"enable\": [\"oob\"]}}");
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'Capability oob not available', "
			 "'data': {'retry': 'never'}}}");
	fake_peer_send(&peer, "{\"execute\": \"qmp_capabilities\", \"id\": 2}");
	fake_peer_expect(&peer, "{'return': {}, 'id': 2}");
	fake_peer_send(&peer, "{\"execute\": \"qmp_capabilities\"}");
	fake_peer_expect(&peer, "{'error': {'class': 'CommandNotFound', 'desc': 'Capabilities negotiation is "
			 "already complete, command ignored', 'data': {'retry': 'never'}}}");
}

static void takes_one_byte_at_a_time(void **state)
{
	static const char text[] = "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a}{b\"}, \"id\": 7}";

	(void)state;
	fake_peer_negotiate(&peer);
	for (size_t i = 0; i + 1 < sizeof(text); i++) {
		fake_peer_send_bytes(&peer, text + i, 1);
		fake_settle(engine);
	}
	/* The braces in the name did not count; they make it a bad name. */
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'Parameter `name` expects 1 to 64 "
			 "of letters, digits, `_`, `.` and `-`, not beginning with `.` or `-`', "
			 "'data': {'argument': 'name', 'retry': 'never'}}, 'id': 7}");
}

static void takes_several_in_a_line_and_one_over_lines(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}, \"id\": 1}"
		       "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}, \"id\": 2}\r\n"
		       "{\"execute\":\n\t\"vm-pause\",\n\"arguments\":\n\n{\"name\":\n\"a\"}\n\n}");
	fake_peer_expect(&peer, PAUSE ", 'id': 1}");
	fake_peer_expect(&peer, "{'return': {'verb': 'vm_reset'}, 'id': 2}");
	fake_peer_expect(&peer, PAUSE "}");
}

static void refuses_wrong_forms(void **state)
{
	static const char *const forms[][2] = {
		{ "[1, 2]", "QMP input must be a JSON object" },
		{ "{\"execute\": 1}", "QMP input member `execute` must be a string" },
		{ "{\"arguments\": []}", "QMP input member `arguments` must be an object" },
		{ "{\"foo\": 1}", "QMP input member `foo` is unexpected" },
		{ "{\"exec-oob\": \"query-vms\"}", "QMP input member `exec-oob` is unexpected" },
		{ "{}", "QMP input lacks member `execute`" },
	};
	char text[512];

	(void)state;
	fake_peer_negotiate(&peer);
	for (size_t i = 0; i < TP_N(forms); i++) {
		fake_peer_send(&peer, forms[i][0]);
		snprintf(text, sizeof(text), "{'error': {'class': 'GenericError', 'desc': '%s'}}",
			 forms[i][1]);
		fake_peer_expect(&peer, text);
	}
	fake_peer_send(&peer, "{\"execute\": \"vm-clone\", \"id\": \"x\"}");
	fake_peer_expect(&peer, "{'error': {'class': 'CommandNotFound', 'desc': 'The command vm-clone has not "
			 "been found'}, 'id': 'x'}");
}

static void survives_junk(void **state)
{
	static const char *const junk[] = {
		"garbage\n", "{'single': 1}\n", "\x01\n", "}\n", "{\"a\": \"\xc3\x28\"}\n", "{\"a\": 1,}\n",
		"\"text\"\n", "{\"a\": 1, \"a\": 2}\n",
	};

	(void)state;
	fake_peer_negotiate(&peer);
	for (size_t i = 0; i < TP_N(junk); i++) {
		tp_autojson json_t *error = NULL;

		fake_peer_send(&peer, junk[i]);
		error = fake_peer_next(&peer);
		assert_string_equal(tp_json_str(json_object_get(error, "error"), "class"), "GenericError");
		assert_null(json_object_get(error, "id"));
		fake_peer_send(&peer, "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}");
		fake_peer_expect(&peer, PAUSE "}");
	}
}

static void resets_at_0xff(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "\xff{\"execute\": \"vm-pa\xff\xff{\"execute\": \"vm-pause\", \"arguments\": "
		       "{\"name\": \"a\"}}\xff");
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'JSON parse error, incomplete "
			 "object before a reset byte'}}");
	fake_peer_expect(&peer, PAUSE "}");
	fake_peer_send(&peer, "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}");
	fake_peer_expect(&peer, PAUSE "}");
}

static void returns_ids_of_all_types(void **state)
{
	static const char *const ids[] = {
		"null", "true", "17", "1.5", "'text'", "[1, [2]]", "{'a': {'b': null}}", "''",
		"9223372036854775807",
	};
	char text[256], wanted[256];

	(void)state;
	fake_peer_negotiate(&peer);
	for (size_t i = 0; i < TP_N(ids); i++) {
		snprintf(text, sizeof(text), "{'execute': 'vm-pause', 'arguments': {'name': 'a'}, 'id': %s}",
			 ids[i]);
		for (char *c = text; *c; c++)
			*c = *c == '\'' ? '"' : *c;
		fake_peer_send(&peer, text);
		snprintf(wanted, sizeof(wanted), PAUSE ", 'id': %s}", ids[i]);
		fake_peer_expect(&peer, wanted);
	}
}

static void expect_limit_error(const char *part)
{
	tp_autojson json_t *error = fake_peer_next(&peer);

	assert_string_equal(tp_json_str(json_object_get(error, "error"), "class"), "GenericError");
	assert_non_null(strstr(tp_json_str(json_object_get(error, "error"), "desc"), part));
	assert_null(json_object_get(error, "id"));
	assert_true(fake_peer_ended(&peer));
	shutdown(peer.fd, SHUT_WR);
	assert_true(fake_run(engine, no_connections, engine));
}

static void refuses_2_mib(void **state)
{
	tp_autofree char *big = malloc(2 << 20);

	(void)state;
	memset(big, 'x', 2 << 20);
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"");
	fake_peer_send_bytes(&peer, big, 2 << 20);
	fake_peer_send(&peer, "\", \"id\": 1}{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}");
	expect_limit_error("larger");
}

static void takes_almost_1_mib(void **state)
{
	size_t n = (1 << 20) - 100;
	tp_autofree char *big = malloc(n + 1);
	tp_autojson json_t *reply = NULL;

	(void)state;
	memset(big, 'x', n);
	big[n] = 0;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}, \"id\": \"");
	fake_peer_send(&peer, big);
	fake_peer_send(&peer, "\"}");
	reply = fake_peer_next(&peer);
	assert_string_equal(tp_json_str(reply, "id"), big);
	assert_non_null(json_object_get(reply, "return"));
}

static void refuses_1000_levels(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"vm-pause\", \"id\": ");
	for (int i = 0; i < 1000; i++)
		fake_peer_send(&peer, i % 2 ? "{\"a\": " : "[");
	expect_limit_error("levels");
}

static void a_peer_beyond_the_limit_need_not_read_at_once(void **state)
{
	static const char filler[65536] = { 0 };

	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"id\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[");
	/* Sends on as a blocking client does; nothing is stuck and the error is not lost. */
	for (int i = 0; i < 64; i++)
		fake_peer_send_bytes(&peer, filler, sizeof(filler));
	expect_limit_error("levels");
}

static void half_close_still_gets_replies(void **state)
{
	struct api_call *call;

	(void)state;
	fake_verb = fake_keep;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}, \"id\": 1}"
		       "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"b\"}, \"id\": 2}");
	shutdown(peer.fd, SHUT_WR);
	fake_settle(engine);
	assert_int_equal(fake_nkept, 2);
	assert_int_equal(torpor_connections(engine), 1);
	call = fake_kept[1];
	api_reply(call, NULL);
	fake_peer_expect(&peer, "{'return': {}, 'id': 2}");
	assert_int_equal(torpor_connections(engine), 1);
	api_reply(fake_kept[0], NULL);
	fake_peer_expect(&peer, "{'return': {}, 'id': 1}");
	assert_true(fake_peer_ended(&peer));
	assert_int_equal(torpor_connections(engine), 0);
}

static void all_at_once_and_half_closed(void **state)
{
	(void)state;
	fake_peer_send(&peer, "{\"execute\": \"qmp_capabilities\"}{\"execute\": \"vm-pause\", \"arguments\": "
		       "{\"name\": \"a\"}} {\"execute\": ");
	shutdown(peer.fd, SHUT_WR);
	json_decref(fake_peer_next(&peer));
	fake_peer_expect(&peer, "{'return': {}}");
	fake_peer_expect(&peer, PAUSE "}");
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'JSON parse error, the input ends "
			 "within an object'}}");
	assert_true(fake_peer_ended(&peer));
}

static void a_client_that_is_gone_cancels_nothing(void **state)
{
	struct fake_peer other;

	(void)state;
	fake_peer_open(&other, engine, TORPOR_ROLE_ADMIN);
	fake_verb = fake_keep;
	fake_peer_negotiate(&peer);
	fake_peer_negotiate(&other);
	fake_peer_send(&peer, "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}, \"id\": 1}"
		       "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}}"
		       "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}");
	fake_settle(engine);
	assert_int_equal(fake_nkept, 2);
	tp_close(&peer.fd);
	fake_peer_close(&other);
	/* The peer's end is noticed although a request is outstanding. */
	assert_true(fake_run(engine, no_connections, engine));
	assert_null(api_client(fake_kept[0]));
	assert_int_equal(fake_nkept, 2);
	api_reply(fake_kept[0], json_object());
	api_error(fake_kept[1], &(struct tp_error){ .code = TP_ESTATE, .text = "x" }, NULL);
}

static void limits_outstanding_requests(void **state)
{
	char text[128];

	(void)state;
	fake_verb = fake_keep;
	fake_peer_negotiate(&peer);
	for (int i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}, "
			 "\"id\": %d}", i);
		fake_peer_send(&peer, text);
	}
	fake_settle(engine);
	assert_int_equal(fake_nkept, 64);
	for (int i = 0; i < 200; i++) {
		assert_true((size_t)i < fake_nkept);
		api_reply(fake_kept[i], NULL);
		snprintf(text, sizeof(text), "{'return': {}, 'id': %d}", i);
		fake_peer_expect(&peer, text);
		fake_settle(engine);
	}
	assert_int_equal(fake_nkept, 200);
}

static size_t executed;

static void count_call(struct api_call *call, const char *verb)
{
	(void)verb;
	executed++;
	api_reply(call, NULL);
}

static void a_flood_leaves_turns_to_others(void **state)
{
	struct fake_peer other;
	size_t before = 0, most = 0;

	(void)state;
	executed = 0;
	fake_peer_open(&other, engine, TORPOR_ROLE_ADMIN);
	fake_peer_negotiate(&peer);
	fake_peer_negotiate(&other);
	fake_verb = count_call;
	for (int i = 0; i < 100; i++)
		fake_peer_send(&peer, "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}}");
	while (executed < 100) {
		fake_turn(engine);
		if (executed - before > most)
			most = executed - before;
		before = executed;
	}
	assert_in_range(most, 1, 20);
	for (int i = 0; i < 100; i++)
		fake_peer_expect(&peer, "{'return': {}}");
	fake_peer_close(&other);
}

static void send_with_fds(struct fake_peer *p, const char *text, const int *fds, size_t nfds)
{
	assert_int_equal(tp_send_fds(p->fd, text, strlen(text), fds, nfds), strlen(text));
	fake_settle(engine);
}

static void takes_descriptors(void **state)
{
	static const char getfd[] = "{\"execute\": \"getfd\", \"arguments\": {\"fdname\": \"f\"}}";
	int pipefd[2], both[2];
	size_t before;

	(void)state;
	assert_int_equal(pipe(pipefd), 0);
	both[0] = both[1] = pipefd[0];
	fake_peer_negotiate(&peer);
	before = fake_open_fds();
	fake_peer_send(&peer, getfd);
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'No file descriptor supplied via "
			 "SCM_RIGHTS', 'data': {'retry': 'never'}}}");
	send_with_fds(&peer, getfd, pipefd, 1);
	fake_peer_expect(&peer, "{'return': {}}");
	assert_int_equal(fake_open_fds(), before + 1);
	send_with_fds(&peer, getfd, pipefd, 1);		/* replaces */
	fake_peer_expect(&peer, "{'return': {}}");
	assert_int_equal(fake_open_fds(), before + 1);
	send_with_fds(&peer, getfd, both, 2);
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'More than one file descriptor "
			 "supplied via SCM_RIGHTS', 'data': {'retry': 'never'}}}");
	assert_int_equal(fake_open_fds(), before + 1);
	fake_peer_send(&peer, "{\"execute\": \"closefd\", \"arguments\": {\"fdname\": \"g\"}}");
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'File descriptor named `g` not "
			 "found', 'data': {'retry': 'never'}}}");
	fake_peer_send(&peer, "{\"execute\": \"closefd\", \"arguments\": {\"fdname\": \"f\"}}");
	fake_peer_expect(&peer, "{'return': {}}");
	assert_int_equal(fake_open_fds(), before);
	/* One with a command that takes none, one in a request that comes in two parts. */
	send_with_fds(&peer, "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}", pipefd, 1);
	fake_peer_expect(&peer, PAUSE "}");
	assert_int_equal(fake_open_fds(), before);
	send_with_fds(&peer, "{\"execute\": \"getfd\",", pipefd, 1);
	fake_peer_send(&peer, "\"arguments\": {\"fdname\": \"f\"}}");
	fake_peer_expect(&peer, "{'return': {}}");
	assert_int_equal(fake_open_fds(), before + 1);
	tp_close(&pipefd[0]);
	tp_close(&pipefd[1]);
}

static int taken_fd;

static void take_fd_of_call(struct api_call *call, const char *verb)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)verb;
	taken_fd = api_take_fd(call, "f", &err);
	if (taken_fd < 0)
		api_error(call, &err, NULL);
	else
		api_reply(call, NULL);
}

static void hands_descriptors_over(void **state)
{
	int pipefd[2];

	(void)state;
	assert_int_equal(pipe(pipefd), 0);
	fake_verb = take_fd_of_call;
	fake_peer_negotiate(&peer);
	send_with_fds(&peer, "{\"execute\": \"getfd\", \"arguments\": {\"fdname\": \"f\"}}", pipefd + 1, 1);
	fake_peer_expect(&peer, "{'return': {}}");
	fake_peer_send(&peer, "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}}");
	fake_peer_expect(&peer, "{'return': {}}");
	assert_int_equal(write(taken_fd, "x", 1), 1);
	tp_close(&taken_fd);
	fake_peer_send(&peer, "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}}");
	fake_peer_expect(&peer, "{'error': {'class': 'NotFound', 'desc': 'no file descriptor is named \\'f\\'; "
			 "send it with getfd on this connection first', 'data': {'retry': 'never'}}}");
	tp_close(&pipefd[0]);
	tp_close(&pipefd[1]);
}

static void big_reply(struct api_call *call, const char *verb)
{
	size_t n = strcmp(verb, "vm_reset") == 0 ? (8 << 20) : (1 << 20);
	tp_autofree char *text = malloc(n + 1);

	memset(text, 'y', n);
	text[n] = 0;
	api_reply(call, json_pack("{s:s}", "big", text));
}

static void refuses_a_reply_above_7_mib(void **state)
{
	(void)state;
	fake_verb = big_reply;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}, \"id\": 4}");
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'the reply is larger than 7 MiB; "
			 "ask for less, with limit and after'}, 'id': 4}");
}

static bool one_connection(void *arg)
{
	return torpor_connections(arg) == 1;
}

static void drops_a_slow_reader_and_only_it(void **state)
{
	static const char ask[] = "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}";
	struct fake_peer slow;

	(void)state;
	fake_peer_open(&slow, engine, TORPOR_ROLE_ADMIN);
	fake_verb = big_reply;
	fake_peer_negotiate(&peer);
	fake_peer_negotiate(&slow);
	for (int i = 0; i < 14; i++) {
		fake_peer_send(&slow, ask);
		fake_settle(engine);
	}
	assert_int_equal(torpor_connections(engine), 2);	/* 14 MiB wait: allowed */
	for (int i = 0; i < 4; i++)
		send(slow.fd, ask, strlen(ask), MSG_NOSIGNAL);
	assert_true(fake_run(engine, one_connection, engine));
	fake_verb = NULL;
	fake_peer_send(&peer, "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}");
	fake_peer_expect(&peer, PAUSE "}");
	fake_peer_close(&slow);
}

static void serves_200_idle_clients(void **state)
{
	static struct fake_peer idle[200];

	(void)state;
	for (size_t i = 0; i < TP_N(idle); i++) {
		fake_peer_open(&idle[i], engine, TORPOR_ROLE_READ);
		if (i % 2)
			fake_peer_negotiate(&idle[i]);
	}
	assert_int_equal(torpor_connections(engine), 201);
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}");
	fake_peer_expect(&peer, PAUSE "}");
	api_event(engine, "VM_STATE", "a", false, json_pack("{s:s}", "vm", "a"));
	for (size_t i = 1; i < TP_N(idle); i += 2) {
		tp_autojson json_t *event = fake_peer_next(&idle[i]);

		assert_string_equal(tp_json_str(event, "event"), "VM_STATE");
	}
	for (size_t i = 0; i < TP_N(idle); i++)
		fake_peer_close(&idle[i]);
	assert_true(fake_run(engine, one_connection, engine));
}

static unsigned closings;

static void count_closing(void *arg)
{
	(void)arg;
	closings++;
}

static void tells_that_a_connection_is_over(void **state)
{
	int fds[2], pipefd[2];

	(void)state;
	closings = 0;
	assert_int_equal(pipe(pipefd), 0);
	assert_false(torpor_serve(engine, pipefd[0], TORPOR_ROLE_READ, "a pipe", count_closing, NULL));
	tp_close(&pipefd[1]);
	assert_true(tp_socketpair(SOCK_STREAM, fds, NULL));
	assert_true(torpor_serve(engine, fds[1], TORPOR_ROLE_READ, "a peer", count_closing, NULL));
	tp_close(&fds[0]);
	assert_true(fake_run(engine, one_connection, engine));
	assert_int_equal(closings, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(greets),
		TEST(negotiates_as_qemu_does),
		TEST(takes_one_byte_at_a_time),
		TEST(takes_several_in_a_line_and_one_over_lines),
		TEST(refuses_wrong_forms),
		TEST(survives_junk),
		TEST(resets_at_0xff),
		TEST(returns_ids_of_all_types),
		TEST(refuses_2_mib),
		TEST(takes_almost_1_mib),
		TEST(refuses_1000_levels),
		TEST(a_peer_beyond_the_limit_need_not_read_at_once),
		TEST(half_close_still_gets_replies),
		TEST(all_at_once_and_half_closed),
		TEST(a_client_that_is_gone_cancels_nothing),
		TEST(limits_outstanding_requests),
		TEST(a_flood_leaves_turns_to_others),
		TEST(takes_descriptors),
		TEST(hands_descriptors_over),
		TEST(refuses_a_reply_above_7_mib),
		TEST(drops_a_slow_reader_and_only_it),
		TEST(serves_200_idle_clients),
		TEST(tells_that_a_connection_is_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
