/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qga_client_life.c - The agent's channel: its end, callbacks, queue, a guest that means harm */
#include "qga_rig.h"

/* ---- the end ---- */

static void eof_says_which_commands_may_have_run(void **state)
{
	struct rig *r = *state;
	struct tp_error err = TP_ERROR_INIT;

	fake_agent_hold(r->agent, "guest-fsfreeze-freeze");
	ask(r, QGA_FSFREEZE_FREEZE, 0, 0);
	ask(r, QGA_PING, 1, 0);
	WAIT_FOR(r, fake_agent_is_holding(r->agent));
	fake_agent_eof(r->agent);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->a[0].calls, 1);
	assert_string_equal(tp_error_class(&r->a[0].err), "AgentUnavailable");
	assert_int_equal(r->a[0].err.code, TP_ETIMEOUT);
	check_unavailable(&r->a[1]);
	assert_string_equal(tp_error_class(&r->why), "AgentUnavailable");
	assert_int_equal(qga_client_send(r->client, QGA_PING, NULL, 0, answered, &r->a[2], &err), 0);
	assert_string_equal(tp_error_class(&err), "AgentUnavailable");
	assert_int_equal(r->a[2].calls, 0);
}

static void free_cancels_what_is_outstanding(void **state)
{
	struct rig *r = *state;

	fake_agent_hold(r->agent, "guest-fsfreeze-freeze");
	ask(r, QGA_FSFREEZE_FREEZE, 0, 0);
	ask(r, QGA_SUSPEND_DISK, 1, 0);
	WAIT_FOR(r, fake_agent_is_holding(r->agent));
	drop_client(r);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(r->a[i].calls, 1);
		assert_int_equal(r->a[i].err.code, TP_ECANCELLED);
	}
	assert_int_equal(r->closed, 0);
	qga_client_free(NULL);
}

static void free_client(void *arg, const json_t *reply, const json_t *agent_error,
			const struct tp_error *err)
{
	struct rig *r = arg;

	(void)reply;
	(void)agent_error;
	(void)err;
	r->free_in_answer++;
	drop_client(r);
}

static void free_in_a_callback(void **state)
{
	struct rig *r = *state;

	assert_true(qga_client_send(r->client, QGA_PING, NULL, 0, free_client, r, NULL));
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, r->free_in_answer);
	assert_null(r->client);
	assert_int_equal(r->free_in_answer, 1);
	assert_int_equal(r->a[0].calls, 1);
	assert_int_equal(r->a[0].err.code, TP_ECANCELLED);
}

static void free_in_the_callback_of_a_limit(void **state)
{
	struct rig *r = *state;

	fake_agent_hang(r->agent, true);
	assert_true(qga_client_send(r->client, QGA_PING, NULL, SHORT, free_client, r, NULL));
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, r->free_in_answer);
	assert_int_equal(r->a[0].calls, 1);
}

static void free_in_a_callback_of_the_end(void **state)
{
	struct rig *r = *state;

	fake_agent_hang(r->agent, true);
	assert_true(qga_client_send(r->client, QGA_PING, NULL, 0, free_client, r, NULL));
	for (unsigned i = 0; i < 3; i++)
		ask(r, QGA_GET_TIME, i, 0);
	fake_agent_eof(r->agent);
	WAIT_FOR(r, r->free_in_answer);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(r->a[i].calls, 1);
	assert_int_equal(r->closed, 0);
}

static void free_in_closed(void **state)
{
	struct rig *r = *state;

	r->free_on_close = true;
	fake_agent_eof(r->agent);
	WAIT_FOR(r, r->closed);
	assert_null(r->client);
}

/* ---- queue, forgetting, refusals ---- */

static void a_forgotten_command_that_waits_is_not_sent(void **state)
{
	struct rig *r = *state;
	uint64_t id, sent;

	fake_agent_hold(r->agent, "guest-get-time");
	sent = ask(r, QGA_GET_TIME, 0, 0);
	id = ask(r, QGA_FSFREEZE_FREEZE, 1, 0);
	ask(r, QGA_PING, 2, 0);
	WAIT_FOR(r, fake_agent_is_holding(r->agent));
	qga_client_forget(r->client, id);
	qga_client_forget(r->client, 4711);
	/* This one was sent: it keeps the channel, so that its reply is recognised. */
	qga_client_forget(r->client, sent);
	assert_true(qga_client_busy(r->client));
	fake_agent_release(r->agent);
	WAIT_FOR(r, r->a[2].calls);
	assert_int_equal(r->a[0].calls, 0);
	assert_int_equal(r->a[1].calls, 0);
	assert_int_equal(fake_agent_count(r->agent, "guest-fsfreeze-freeze"), 0);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 1);
}

static void the_queue_has_a_limit(void **state)
{
	struct rig *r = *state;
	struct tp_error err = TP_ERROR_INIT;

	for (unsigned i = 0; i < QGA_QUEUE_LIMIT; i++)
		ask(r, QGA_PING, i, 0);
	assert_int_equal(qga_client_send(r->client, QGA_PING, NULL, 0, answered, &r->a[31], &err), 0);
	assert_int_equal(err.code, TP_ELIMIT);
	WAIT_FOR(r, r->a[QGA_QUEUE_LIMIT - 1].calls);
	for (unsigned i = 0; i < QGA_QUEUE_LIMIT; i++)
		assert_int_equal(r->a[i].calls, 1);
}

static void bad_commands_are_refused(void **state)
{
	struct rig *r = *state;
	struct tp_error err = TP_ERROR_INIT;

	assert_int_equal(qga_client_send(r->client, QGA_SYNC_DELIMITED, NULL, 0, NULL, NULL, &err), 0);
	assert_int_equal(err.code, TP_EARG);
	tp_error_clear(&err);
	assert_int_equal(qga_client_send(r->client, QGA_CMD_N, NULL, 0, NULL, NULL, &err), 0);
	assert_int_equal(err.code, TP_EARG);
	tp_error_clear(&err);
	assert_int_equal(qga_client_send(r->client, QGA_PING, json_array(), 0, NULL, NULL, &err), 0);
	assert_int_equal(err.code, TP_EARG);
}

/* ---- a guest that means harm ---- */

static void unasked_answers_are_dropped_and_put_us_out_of_step(void **state)
{
	struct rig *r = *state;

	ask(r, QGA_PING, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	say(r, "{\"return\": 666}\n{\"return\": 667}\n");
	WAIT_FOR(r, qga_client_dropped(r->client) == 2);
	ask(r, QGA_GET_TIME, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	check_time(&r->a[1]);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 2);
}

static void complaints_and_old_syncs_are_no_reply(void **state)
{
	struct rig *r = *state;

	fake_agent_hold(r->agent, "guest-get-time");
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, fake_agent_is_holding(r->agent));
	say(r, "{\"error\": {\"class\": \"GenericError\", \"desc\": \"JSON parse error, stray '\\uFFFD'\"}}\n");
	say(r, "\xff{\"return\": 4711}\n");
	say(r, "junk\n{\"neither\": 1}\n");
	WAIT_FOR(r, qga_client_dropped(r->client) == 4);
	assert_int_equal(r->a[0].calls, 0);
	fake_agent_release(r->agent);
	WAIT_FOR(r, r->a[0].calls);
	check_time(&r->a[0]);
}

static void a_flood_before_the_sync_is_not_kept(void **state)
{
	struct rig *r = *state;
	char *large = malloc(20u << 20);

	assert_non_null(large);
	memset(large, '[', 20u << 20);
	fake_agent_before_sync(r->agent, large, 20u << 20);
	ask(r, QGA_GET_TIME, 0, PATIENCE);
	qga_client_set_sync_limit(r->client, PATIENCE);
	WAIT_FOR(r, r->a[0].calls);
	check_time(&r->a[0]);
	assert_int_equal(r->closed, 0);
	free(large);
}

static void a_reply_over_the_limit_ends_the_session(void **state)
{
	struct rig *r = *state;
	char *large = malloc(17u << 20);

	assert_non_null(large);
	memset(large, 'x', 17u << 20);
	memcpy(large, "{\"return\": \"", 12);
	fake_agent_hold(r->agent, "guest-get-time");
	ask(r, QGA_GET_TIME, 0, PATIENCE);
	WAIT_FOR(r, fake_agent_is_holding(r->agent));
	fake_agent_say(r->agent, large, 17u << 20);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->a[0].calls, 1);
	assert_string_equal(tp_error_class(&r->why), "AgentError");
	assert_int_equal(r->a[0].err.code, TP_ETIMEOUT);
	free(large);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		UNIT(eof_says_which_commands_may_have_run),
		UNIT(free_cancels_what_is_outstanding),
		UNIT(free_in_a_callback),
		UNIT(free_in_the_callback_of_a_limit),
		UNIT(free_in_a_callback_of_the_end),
		UNIT(free_in_closed),
		UNIT(a_forgotten_command_that_waits_is_not_sent),
		UNIT(the_queue_has_a_limit),
		UNIT(bad_commands_are_refused),
		UNIT(unasked_answers_are_dropped_and_put_us_out_of_step),
		UNIT(complaints_and_old_syncs_are_no_reply),
		UNIT(a_flood_before_the_sync_is_not_kept),
		UNIT(a_reply_over_the_limit_ends_the_session),
	};

	return cmocka_run_group_tests_name("qga_client_life", tests, NULL, NULL);
}
