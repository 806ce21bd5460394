/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_api_event.c - Filters, sequence numbers, lost events, the pace of progress */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "fake/fake_api.h"

static struct torpor *engine;
static struct fake_peer peer;

static int setup(void **state)
{
	(void)state;
	engine = fake_torpor_new();
	fake_peer_open(&peer, engine, TORPOR_ROLE_READ);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_peer_close(&peer);
	fake_torpor_free(engine);
	return 0;
}

static void tell(const char *event, const char *vm)
{
	api_event(engine, event, vm, false, json_pack("{s:s*}", "vm", vm));
}

static void progress(const char *op, int percent)
{
	api_event(engine, "OPERATION", "a", true, json_pack("{s:s, s:s, s:i}", "id", op, "vm", "a", "percent",
							    percent));
}

/* The next message is this event with this number. */
static json_t *expect(const char *name, json_int_t seq)
{
	json_t *event = fake_peer_next(&peer);

	assert_non_null(event);
	assert_string_equal(tp_json_str(event, "event"), name);
	assert_int_equal(tp_json_int(json_object_get(event, "data"), "seq", -1), seq);
	assert_true(tp_json_int(json_object_get(event, "timestamp"), "seconds", 0) > 1700000000);
	assert_in_range(tp_json_int(json_object_get(event, "timestamp"), "microseconds", -1), 0, 999999);
	return event;
}

static void expect_only(const char *name, json_int_t seq)
{
	json_decref(expect(name, seq));
}

static void filter(const char *arguments)
{
	char text[512];

	snprintf(text, sizeof(text), "{\"execute\": \"event-filter\", \"arguments\": %s}", arguments);
	fake_peer_send(&peer, text);
	fake_peer_expect(&peer, "{'return': {}}");
}

static void none_before_negotiation(void **state)
{
	(void)state;
	tell("VM_STATE", "a");
	fake_peer_negotiate(&peer);
	tell("VM_STATE", "a");
	expect_only("VM_STATE", 1);
}

static void all_but_qemu_events_by_default(void **state)
{
	tp_autojson json_t *event = NULL;

	(void)state;
	fake_peer_negotiate(&peer);
	tell("QEMU_EVENT", "a");
	tell("POOL", NULL);
	tell("VM_STATE", "a");
	expect_only("POOL", 1);
	event = expect("VM_STATE", 2);
	assert_string_equal(json_string_value(tp_json_path(event, "data.vm")), "a");
}

static void filters_narrow(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	filter("{\"events\": [\"QEMU_EVENT\", \"POOL\"]}");
	tell("VM_STATE", "a");
	tell("QEMU_EVENT", "a");
	tell("POOL", NULL);
	expect_only("QEMU_EVENT", 1);
	expect_only("POOL", 2);
	filter("{\"vms\": [\"b\", \"c\"]}");
	tell("VM_STATE", "a");
	tell("QEMU_EVENT", "b");
	tell("POOL", NULL);
	tell("VM_STATE", "c");
	expect_only("POOL", 3);
	expect_only("VM_STATE", 4);
	filter("{\"events\": []}");
	tell("VM_STATE", "a");
	filter("{}");
	tell("VM_STATE", "a");
	expect_only("VM_STATE", 5);
	fake_peer_send(&peer, "{\"execute\": \"event-filter\", \"arguments\": {\"events\": [\"POOL\", \"X\"]}}");
	fake_peer_expect(&peer, "{'error': {'class': 'GenericError', 'desc': 'Parameter `events[1]` does not "
			 "accept value `X`', 'data': {'argument': 'events[1]', 'retry': 'never'}}}");
}

static void events_come_before_the_reply_that_they_caused(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	fake_peer_send(&peer, "{\"execute\": \"query-vms\"}");
	tell("VM_STATE", "a");		/* the request is not read before the loop turns */
	expect_only("VM_STATE", 1);
	fake_peer_expect(&peer, "{'return': {'verb': 'query_vms'}}");
	tell("VM_STATE", "b");
	expect_only("VM_STATE", 2);
}

static void progress_comes_once_a_second(void **state)
{
	double begin;
	tp_autojson json_t *event = NULL, *other = NULL, *late = NULL;

	(void)state;
	fake_peer_negotiate(&peer);
	begin = tp_now_mono();
	for (int i = 0; i < 50; i++)
		progress("op-1", i);
	progress("op-2", 1);
	event = expect("OPERATION", 1);
	assert_int_equal(json_integer_value(tp_json_path(event, "data.percent")), 0);
	other = expect("OPERATION", 2);
	assert_string_equal(json_string_value(tp_json_path(other, "data.id")), "op-2");
	late = expect("OPERATION", 3);
	assert_true(tp_now_mono() - begin > 0.9);
	assert_int_equal(json_integer_value(tp_json_path(late, "data.percent")), 49);
}

static void news_replace_progress(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	progress("op-1", 1);
	progress("op-1", 2);
	api_event(engine, "OPERATION", "a", false, json_pack("{s:s, s:s}", "id", "op-1", "status", "succeeded"));
	expect_only("OPERATION", 1);
	expect_only("OPERATION", 2);
	/* What was kept is not sent later: when the second is over, the next thing is this event. */
	progress("op-2", 1);
	progress("op-2", 2);
	expect_only("OPERATION", 3);
	tp_autojson json_t *event = expect("OPERATION", 4);
	assert_string_equal(json_string_value(tp_json_path(event, "data.id")), "op-2");
}

static void progress_can_be_left_out(void **state)
{
	(void)state;
	fake_peer_negotiate(&peer);
	filter("{\"progress\": false}");
	progress("op-1", 1);
	api_event(engine, "OPERATION", "a", false, json_pack("{s:s}", "id", "op-1"));
	expect_only("OPERATION", 1);
	tell("VM_STATE", "a");
	expect_only("VM_STATE", 2);
}

/* Events with 1 MiB each, unread: some are left out, the connection stays. */
static void lost_events_are_counted(void **state)
{
	tp_autofree char *text = malloc((1 << 20) + 1);
	json_int_t seq = 0, lost = 0;

	(void)state;
	memset(text, 'z', 1 << 20);
	text[1 << 20] = 0;
	fake_peer_negotiate(&peer);
	for (int i = 0; i < 20; i++)
		api_event(engine, "VM_STATE", "a", false, json_pack("{s:s}", "text", text));
	while (lost == 0) {
		tp_autojson json_t *event = fake_peer_next(&peer);
		const json_t *data = json_object_get(event, "data");

		assert_non_null(event);
		if (strcmp(tp_json_str(event, "event"), "EVENTS_LOST") == 0) {
			lost = tp_json_int(data, "count", 0);
			assert_int_equal(tp_json_int(data, "seq", 0), seq + lost + 1);
		} else {
			assert_int_equal(tp_json_int(data, "seq", 0), seq + 1);
			seq++;
		}
	}
	assert_int_equal(seq + lost, 20);
	assert_in_range(lost, 8, 12);
	tell("VM_STATE", "a");
	expect_only("VM_STATE", 22);
	assert_int_equal(torpor_connections(engine), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(none_before_negotiation),
		TEST(all_but_qemu_events_by_default),
		TEST(filters_narrow),
		TEST(events_come_before_the_reply_that_they_caused),
		TEST(progress_comes_once_a_second),
		TEST(news_replace_progress),
		TEST(progress_can_be_left_out),
		TEST(lost_events_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
