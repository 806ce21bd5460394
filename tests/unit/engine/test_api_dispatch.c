/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_api_dispatch.c - Order of answers, roles, clients of the host program, calls that outlive them */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "fake/fake_api.h"

static struct torpor *engine;
static struct fake_peer peer;
static size_t fds_before;

static int setup(void **state)
{
	(void)state;
	fds_before = fake_open_fds();
	engine = fake_torpor_new();
	fake_peer_open(&peer, engine, TORPOR_ROLE_ADMIN);
	fake_verb = fake_keep;
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

#define RESET(more) "{\"execute\": \"vm-reset\", \"arguments\": {\"name\": \"a\"}" more "}"

static void reply(size_t n, const char *word)
{
	api_reply(fake_kept[n], json_pack("{s:s}", "word", word));
}

static void answers_with_id_come_in_any_order(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, RESET(", \"id\": 1") RESET(", \"id\": 2") RESET(", \"id\": 3"));
	fake_settle(engine);
	assert_int_equal(fake_nkept, 3);
	reply(2, "c");
	reply(0, "a");
	reply(1, "b");
	fake_peer_expect(&peer, "{'return': {'word': 'c'}, 'id': 3}");
	fake_peer_expect(&peer, "{'return': {'word': 'a'}, 'id': 1}");
	fake_peer_expect(&peer, "{'return': {'word': 'b'}, 'id': 2}");
}

static void without_id_strictly_in_turn(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, RESET("") "{\"execute\": \"nonsense\"}" "[]" RESET("") RESET(", \"id\": 9"));
	fake_settle(engine);
	/* The second one has not begun; the one with an id has. */
	assert_int_equal(fake_nkept, 2);
	reply(1, "with id");
	fake_peer_expect(&peer, "{'return': {'word': 'with id'}, 'id': 9}");
	reply(0, "first");
	fake_peer_expect(&peer, "{'return': {'word': 'first'}}");
	fake_peer_expect(&peer, "{'error': {'class': 'CommandNotFound', 'desc': 'The command nonsense has not "
			 "been found'}}");
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'QMP input must be a JSON "
			 "object'}}");
	assert_int_equal(fake_nkept, 3);
	reply(2, "second");
	fake_peer_expect(&peer, "{'return': {'word': 'second'}}");
}

static void errors_carry_class_data_and_retry(void **state)
{
	struct tp_error busy = TP_ERROR_INIT, plain = TP_ERROR_INIT, odd = TP_ERROR_INIT;

	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, RESET(", \"id\": 1") RESET(", \"id\": 2") RESET(", \"id\": 3"));
	fake_settle(engine);
	tp_fail_class(&busy, TP_ESTATE, "Busy", "VM \"a\" is being hibernated");
	api_error(fake_kept[0], &busy, json_pack("{s:s}", "operation", "op-1"));
	tp_fail_class(&plain, TP_ESTATE, "InvalidState", "no");
	api_error(fake_kept[1], &plain, json_pack("{s:s}", "retry", "later"));
	tp_fail(&odd, TP_EPROTO, "quoted \xc3( text");
	api_error(fake_kept[2], &odd, NULL);
	fake_peer_expect(&peer, "{'error': {'class': 'Busy', 'desc': 'VM \\'a\\' is being hibernated', 'data': "
			 "{'operation': 'op-1', 'retry': 'later'}}, 'id': 1}");
	fake_peer_expect(&peer, "{'error': {'class': 'InvalidState', 'desc': 'no', 'data': {'retry': "
			 "'later'}}, 'id': 2}");
	tp_autojson json_t *third = fake_peer_next(&peer);
	assert_non_null(tp_json_str(json_object_get(third, "error"), "desc"));
}

static void roles_are_checked(void **state)
{
	struct fake_peer reader, nobody;
	tp_autojson json_t *event = NULL;

	(void)state;
	fake_verb = NULL;
	fake_peer_open(&reader, engine, TORPOR_ROLE_READ);
	fake_peer_negotiate(&reader);
	fake_peer_send(&reader, RESET(""));
	fake_peer_expect(&reader, "{'error': {'class': 'PermissionDenied', 'desc': 'vm-reset needs the role "
			 "\\'operate\\'; this connection has \\'read\\'', 'data': {'role': 'operate', "
			 "'retry': 'never'}}}");
	fake_peer_send(&reader, "{\"execute\": \"query-vms\"}");
	fake_peer_expect(&reader, "{'return': {'verb': 'query_vms'}}");
	fake_peer_open(&nobody, engine, TORPOR_ROLE_NONE);
	fake_peer_negotiate(&nobody);
	fake_peer_send(&nobody, "{\"execute\": \"query-vms\"}");
	fake_peer_expect(&nobody, "{'error': {'class': 'PermissionDenied', 'desc': 'query-vms needs the role "
			 "\\'read\\'; this connection has \\'none\\'', 'data': {'role': 'read', "
			 "'retry': 'never'}}}");
	/* Somebody without a role gets no events either. */
	api_event(engine, "VM_STATE", "a", false, json_pack("{s:s}", "vm", "a"));
	event = fake_peer_next(&reader);
	assert_string_equal(tp_json_str(event, "event"), "VM_STATE");
	shutdown(nobody.fd, SHUT_WR);
	assert_true(fake_peer_ended(&nobody));
	fake_peer_close(&reader);
	fake_peer_close(&nobody);
}

static void answers_about_itself(void **state)
{
	tp_autojson json_t *version = NULL, *commands = NULL, *schema = NULL;

	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"query-version\"}{\"execute\": \"query-commands\"}"
		       "{\"execute\": \"query-qmp-schema\"}{\"execute\": \"query-host\"}");
	version = fake_peer_next(&peer);
	assert_string_equal(json_string_value(tp_json_path(version, "return.torpor")), "0.1.0");
	assert_int_equal(json_integer_value(tp_json_path(version, "return.api")), 1);
	assert_string_equal(json_string_value(tp_json_path(version, "return.host")), "fake");
	commands = fake_peer_next(&peer);
	assert_true(json_array_size(json_object_get(commands, "return")) > 30);
	schema = fake_peer_next(&peer);
	assert_true(json_array_size(json_object_get(schema, "return")) > 100);
	fake_peer_expect(&peer, "{'return': {'draining': false, 'memory': {}, 'pools': [], 'qemu': []}}");
}

/* --- clients of the host program --- */

struct host {
	struct torpor_client *client;
	json_t *messages;
	bool inside, free_in_callback;
};

static void host_message(void *arg, const json_t *message)
{
	struct host *h = arg;

	assert_false(h->inside);
	json_array_append(h->messages, (json_t *)message);
	if (h->free_in_callback) {
		torpor_client_free(h->client);
		h->client = NULL;
	}
}

static void host_execute(struct host *h, const char *text)
{
	tp_autojson json_t *request = json_loads(text, 0, NULL);

	h->inside = true;
	torpor_execute(h->client, request, NULL, 0);
	h->inside = false;
}

static void host_open(struct host *h)
{
	memset(h, 0, sizeof(*h));
	h->messages = json_array();
	h->client = torpor_client_new(engine, TORPOR_ROLE_ADMIN, host_message, h);
	assert_non_null(h->client);
}

static void callbacks_come_from_the_loop(void **state)
{
	struct host h;

	(void)state;
	fake_verb = NULL;
	host_open(&h);
	host_execute(&h, RESET(""));
	host_execute(&h, "{\"execute\": \"vm-pause\", \"arguments\": {\"name\": \"a\"}}");
	host_execute(&h, "[1]");
	assert_int_equal(json_array_size(h.messages), 0);
	fake_settle(engine);
	assert_int_equal(json_array_size(h.messages), 3);
	assert_string_equal(json_string_value(tp_json_path(json_array_get(h.messages, 1), "return.verb")),
			    "vm_pause");
	/* No events unless asked for. */
	api_event(engine, "VM_STATE", "a", false, json_object());
	fake_settle(engine);
	assert_int_equal(json_array_size(h.messages), 3);
	torpor_client_events(h.client, true);
	api_event(engine, "VM_STATE", "a", false, json_object());
	fake_settle(engine);
	assert_int_equal(json_array_size(h.messages), 4);
	torpor_client_free(h.client);
	json_decref(h.messages);
}

static void a_client_may_free_itself_in_its_callback(void **state)
{
	struct host h;

	(void)state;
	fake_verb = NULL;
	host_open(&h);
	h.free_in_callback = true;
	host_execute(&h, RESET(", \"id\": 1"));
	host_execute(&h, RESET(", \"id\": 2"));
	host_execute(&h, RESET(""));
	host_execute(&h, RESET(""));
	fake_settle(engine);
	assert_null(h.client);
	assert_int_equal(json_array_size(h.messages), 1);
	json_decref(h.messages);
}

static void calls_outlive_their_client(void **state)
{
	struct host h;

	(void)state;
	host_open(&h);
	host_execute(&h, RESET(", \"id\": 1"));
	host_execute(&h, RESET(""));
	host_execute(&h, RESET(""));
	assert_int_equal(fake_nkept, 2);
	torpor_client_free(h.client);
	assert_null(api_client(fake_kept[0]));
	assert_non_null(api_args(fake_kept[1]));
	assert_int_equal(api_take_fd(fake_kept[0], "f", NULL), -1);
	reply(0, "into nothing");
	/* The other is not answered at all: the engine's end frees it. */
	json_decref(h.messages);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(answers_with_id_come_in_any_order),
		TEST(without_id_strictly_in_turn),
		TEST(errors_carry_class_data_and_retry),
		TEST(roles_are_checked),
		TEST(answers_about_itself),
		TEST(callbacks_come_from_the_loop),
		TEST(a_client_may_free_itself_in_its_callback),
		TEST(calls_outlive_their_client),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
