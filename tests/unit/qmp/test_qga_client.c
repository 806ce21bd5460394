/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qga_client.c - The agent's channel: synchronisation, late replies, silence (case B09) */
#include "qga_rig.h"

/* ---- in good order ---- */

static void one_sync_for_commands_in_order(void **state)
{
	struct rig *r = *state;

	for (int i = 0; i < 3; i++)
		ev_run(r->loop, EVRUN_NOWAIT);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 0);
	ask(r, QGA_PING, 0, 0);
	ask(r, QGA_GET_TIME, 1, 0);
	ask(r, QGA_FSFREEZE_STATUS, 2, 0);
	assert_true(qga_client_busy(r->client));
	WAIT_FOR(r, r->a[2].calls);
	assert_true(json_is_object(r->a[0].reply));
	check_time(&r->a[1]);
	assert_string_equal(json_string_value(r->a[2].reply), "thawed");
	assert_false(qga_client_busy(r->client));
	assert_int_equal(fake_agent_count(r->agent, SYNC), 1);
	assert_null(fake_agent_problem(r->agent));
	/* The complaint about our 0xFF was thrown away with all that came before the sync's answer. */
	assert_int_equal(qga_client_dropped(r->client), 0);
}

static void errors_of_the_agent_keep_its_words(void **state)
{
	struct rig *r = *state;

	ask(r, QGA_INFO, 0, 0);
	ask(r, QGA_GET_TIME, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	assert_int_equal(r->a[0].err.code, TP_EQMP);
	assert_string_equal(tp_error_class(&r->a[0].err), "AgentError");
	assert_true(r->a[0].agent_error);
	assert_string_equal(r->a[0].err.text,
			    "guest-info: The command guest-info has not been found");
	/* An error is an answer in good order: no other sync. */
	check_time(&r->a[1]);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 1);
}

static void one_byte_at_a_time(void **state)
{
	struct rig *r = *state;

	fake_agent_tear(r->agent, 1);
	fake_agent_before_sync(r->agent, "{\"ret", 5);
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_time(&r->a[0]);
}

static void desync_makes_the_next_command_sync(void **state)
{
	struct rig *r = *state;

	ask(r, QGA_PING, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	qga_client_desync(r->client);
	say(r, "{\"return\": 7}\n");
	ask(r, QGA_GET_TIME, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	check_time(&r->a[1]);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 2);
}

/* ---- B09 ---- */

static void b09_a_late_reply_before_the_sync(void **state)
{
	struct rig *r = *state;

	fake_agent_before_sync(r->agent, "{\"return\": 2}\n", 14);
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_time(&r->a[0]);
}

static void b09_b_half_a_text_before_the_sync(void **state)
{
	struct rig *r = *state;

	fake_agent_before_sync(r->agent, "{\"return\": {\"x\": \"", 18);
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_time(&r->a[0]);
}

static void b09_c_older_syncs_answer_first(void **state)
{
	static const char old[] = "\xff{\"return\": 4711}\n\xff{\"return\": {}}\n\xff\xff{\"return\": 1}\n";
	struct rig *r = *state;

	fake_agent_before_sync(r->agent, old, sizeof(old) - 1);
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_time(&r->a[0]);
	assert_int_equal(qga_client_dropped(r->client), 3);
}

static void b09_d_an_answer_within_an_old_text(void **state)
{
	static const char old[] = "{\"return\": [1, \"a\xff{\"return\": 9}\n{\"return\": 8";
	struct rig *r = *state;

	fake_agent_tear(r->agent, 2);
	fake_agent_before_sync(r->agent, old, sizeof(old) - 1);
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_time(&r->a[0]);
}

static void b09_freeze_that_ran_late_is_not_credited_to_the_next(void **state)
{
	struct rig *r = *state;

	fake_agent_hold(r->agent, "guest-fsfreeze-freeze");
	ask(r, QGA_FSFREEZE_FREEZE, 0, 4 * SHORT);
	ask(r, QGA_GET_TIME, 1, 0);
	WAIT_FOR(r, r->a[0].calls);
	/* Sent and maybe still carried out: unknown. */
	assert_int_equal(r->a[0].err.code, TP_ETIMEOUT);
	assert_string_equal(tp_error_class(&r->a[0].err), "Timeout");
	assert_true(fake_agent_is_holding(r->agent));
	assert_int_equal(r->a[1].calls, 0);
	for (int i = 0; i < 3; i++)
		ev_run(r->loop, EVRUN_ONCE);
	fake_agent_release(r->agent);
	WAIT_FOR(r, r->a[1].calls);
	check_time(&r->a[1]);
	assert_int_equal(r->a[0].calls, 1);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 2);
}

static void b09_reconnect_while_the_agent_hung(void **state)
{
	/* Recorded from a real one: the freeze's reply, the complaint about our 0xFF, then ours. */
	static const char stale[] = "{\"return\": 1}\n";
	struct rig *r = *state;
	int fd;

	fake_agent_hang(r->agent, true);
	ask(r, QGA_FSFREEZE_FREEZE, 0, SHORT);
	WAIT_FOR(r, r->a[0].calls);
	check_unavailable(&r->a[0]);
	drop_client(r);
	fake_agent_free(r->agent);
	r->agent = fake_agent_new(r->loop, &fd);
	fake_agent_on(r->agent, "guest-fsfreeze-status", "{\"return\": \"frozen\"}");
	r->client = qga_client_new(r->loop, &fd, "vm1", &ops, r);
	say(r, stale);
	ask(r, QGA_FSFREEZE_STATUS, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	assert_string_equal(json_string_value(r->a[1].reply), "frozen");
}

/* ---- silence ---- */

static void no_sync_in_time_means_not_sent(void **state)
{
	struct rig *r = *state;

	qga_client_set_sync_limit(r->client, SHORT);
	fake_agent_hang(r->agent, true);
	ask(r, QGA_GET_TIME, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_unavailable(&r->a[0]);
	assert_int_equal(fake_agent_count(r->agent, "guest-get-time"), 0);
	/* It comes back, answers each sync that waited, and only the last is believed. */
	ask(r, QGA_PING, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	check_unavailable(&r->a[1]);
	qga_client_set_sync_limit(r->client, PATIENCE);
	ask(r, QGA_GET_TIME, 2, PATIENCE);
	ev_run(r->loop, EVRUN_ONCE);
	ev_run(r->loop, EVRUN_ONCE);
	fake_agent_hang(r->agent, false);
	WAIT_FOR(r, r->a[2].calls);
	check_time(&r->a[2]);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 3);
	assert_int_equal(fake_agent_count(r->agent, "guest-ping"), 0);
	assert_int_equal(r->closed, 0);
}

static void a_limit_while_waiting_for_others_means_not_sent(void **state)
{
	struct rig *r = *state;

	fake_agent_hold(r->agent, "guest-fsfreeze-freeze");
	ask(r, QGA_FSFREEZE_FREEZE, 0, 0);
	WAIT_FOR(r, fake_agent_is_holding(r->agent));
	ask(r, QGA_PING, 1, SHORT);
	WAIT_FOR(r, r->a[1].calls);
	check_unavailable(&r->a[1]);
	fake_agent_release(r->agent);
	WAIT_FOR(r, r->a[0].calls);
	assert_int_equal(json_integer_value(r->a[0].reply), 1);
	assert_int_equal(fake_agent_count(r->agent, "guest-ping"), 0);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 1);
}

static void a_command_of_which_a_part_is_written_is_not_sent(void **state)
{
	struct rig *r = *state;
	char *large = calloc(1, 300001);

	assert_non_null(large);
	memset(large, 'x', 300000);
	ask(r, QGA_PING, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	fake_agent_hang(r->agent, true);
	assert_true(qga_client_send(r->client, QGA_FILE_OPEN, json_pack("{s:s}", "path", large), SHORT,
				    answered, &r->a[1], NULL));
	WAIT_FOR(r, r->a[1].calls);
	check_unavailable(&r->a[1]);
	fake_agent_hang(r->agent, false);
	ask(r, QGA_GET_TIME, 2, 0);
	WAIT_FOR(r, r->a[2].calls);
	check_time(&r->a[2]);
	assert_int_equal(fake_agent_count(r->agent, "guest-file-open"), 0);
	assert_null(fake_agent_problem(r->agent));
	free(large);
}

/* ---- commands without a reply ---- */

static void no_reply_is_done_when_forgotten(void **state)
{
	struct rig *r = *state;
	uint64_t id = ask(r, QGA_SUSPEND_DISK, 0, 0);

	WAIT_FOR(r, fake_agent_count(r->agent, "guest-suspend-disk"));
	assert_int_equal(r->a[0].calls, 0);
	qga_client_forget(r->client, id);
	assert_false(qga_client_busy(r->client));
	ask(r, QGA_GET_TIME, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	check_time(&r->a[1]);
	assert_int_equal(r->a[0].calls, 0);
	assert_int_equal(fake_agent_count(r->agent, SYNC), 2);
}

static void no_reply_tells_an_error(void **state)
{
	struct rig *r = *state;

	fake_agent_on(r->agent, "guest-suspend-disk", "{\"error\": {\"class\": \"GenericError\", \"desc\": "
		      "\"hibernation is not supported\"}}");
	ask(r, QGA_SUSPEND_DISK, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	assert_string_equal(tp_error_class(&r->a[0].err), "AgentError");
}

static void no_reply_tells_a_time_out(void **state)
{
	struct rig *r = *state;

	ask(r, QGA_SUSPEND_DISK, 0, 4 * SHORT);
	WAIT_FOR(r, r->a[0].calls);
	assert_int_equal(fake_agent_count(r->agent, "guest-suspend-disk"), 1);
	assert_int_equal(r->a[0].err.code, TP_ETIMEOUT);
}

static void no_reply_and_the_end_is_no_error(void **state)
{
	struct rig *r = *state;

	ask(r, QGA_SUSPEND_DISK, 0, 0);
	ask(r, QGA_PING, 1, 0);
	WAIT_FOR(r, fake_agent_count(r->agent, "guest-suspend-disk"));
	fake_agent_eof(r->agent);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->a[0].calls, 1);
	assert_null(r->a[0].reply);
	assert_int_equal(r->a[0].err.code, TP_OK);
	check_unavailable(&r->a[1]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		UNIT(one_sync_for_commands_in_order),
		UNIT(errors_of_the_agent_keep_its_words),
		UNIT(one_byte_at_a_time),
		UNIT(desync_makes_the_next_command_sync),
		UNIT(b09_a_late_reply_before_the_sync),
		UNIT(b09_b_half_a_text_before_the_sync),
		UNIT(b09_c_older_syncs_answer_first),
		UNIT(b09_d_an_answer_within_an_old_text),
		UNIT(b09_freeze_that_ran_late_is_not_credited_to_the_next),
		UNIT(b09_reconnect_while_the_agent_hung),
		UNIT(no_sync_in_time_means_not_sent),
		UNIT(a_limit_while_waiting_for_others_means_not_sent),
		UNIT(a_command_of_which_a_part_is_written_is_not_sent),
		UNIT(no_reply_is_done_when_forgotten),
		UNIT(no_reply_tells_an_error),
		UNIT(no_reply_tells_a_time_out),
		UNIT(no_reply_and_the_end_is_no_error),
	};

	return cmocka_run_group_tests_name("qga_client", tests, NULL, NULL);
}
