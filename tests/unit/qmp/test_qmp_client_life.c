/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qmp_client_life.c - Callbacks, queue, descriptors, out-of-band, hostile input, traces */
#include "qmp_rig.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_log.h"

/* ---- each callback once, whatever happens ---- */

static void free_cancels_what_is_outstanding(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "stop", NULL);
	ask(r, QMP_STOP, 0, 0);
	WAIT_FOR(r, fake_monitor_received(r->monitor) == 2);
	ask(r, QMP_CONT, 1, 0);
	rig_drop_client(r);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(r->a[i].calls, 1);
		assert_int_equal(r->a[i].err.code, TP_ECANCELLED);
	}
	assert_int_equal(r->closed, 0);
	check_script(r);
}

static void freeing_null_is_allowed(void **state)
{
	(void)state;
	qmp_client_free(NULL);
}

struct hook {
	struct rig *r;
	struct answer answer;
	bool send;
};

static void free_client(void *arg, const json_t *reply, const json_t *qemu_error,
			const struct tp_error *err)
{
	struct hook *h = arg;

	answered(&h->answer, reply, qemu_error, err);
	if (h->send && h->r->client)
		assert_int_equal(qmp_client_send(h->r->client, QMP_STOP, NULL, NULL, 0, answered,
						 &h->r->a[9], NULL), 0);
	rig_drop_client(h->r);
}

static void free_in_a_reply_callback(void **state)
{
	struct rig *r = *state;
	struct hook h = { .r = r };

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_expect(r->monitor, "query-block", NULL);
	fake_say(r->monitor, "{\"return\": {}, \"id\": $1}{\"return\": {}, \"id\": $2}{\"event\": \"STOP\"}");
	qmp_client_send(r->client, QMP_QUERY_STATUS, NULL, NULL, 0, free_client, &h, NULL);
	ask(r, QMP_QUERY_BLOCK, 0, 0);
	WAIT_FOR(r, h.answer.calls);
	assert_null(r->client);
	assert_int_equal(h.answer.calls, 1);
	assert_int_equal(r->a[0].calls, 1);
	assert_int_equal(r->a[0].err.code, TP_ECANCELLED);
	assert_int_equal(r->events, 0);
	assert_int_equal(r->closed, 0);
	json_decref(h.answer.reply);
}

static void free_in_the_callback_of_a_limit(void **state)
{
	struct rig *r = *state;
	struct hook h = { .r = r };

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	qmp_client_send(r->client, QMP_QUERY_STATUS, NULL, NULL, SHORT, free_client, &h, NULL);
	ask(r, QMP_QUERY_BLOCK, 0, 0);
	WAIT_FOR(r, h.answer.calls);
	assert_int_equal(h.answer.err.code, TP_ETIMEOUT);
	assert_int_equal(r->a[0].calls, 1);
}

static void free_in_the_callback_of_an_unsent_ones_limit(void **state)
{
	struct rig *r = *state;
	struct hook h = { .r = r };

	qmp_client_send(r->client, QMP_QUERY_STATUS, NULL, NULL, SHORT, free_client, &h, NULL);
	ask(r, QMP_QUERY_BLOCK, 0, 0);
	WAIT_FOR(r, h.answer.calls);
	assert_int_equal(h.answer.err.code, TP_ETIMEOUT);
	assert_int_equal(r->a[0].calls, 1);
}

/* The first callback frees the client while the end of the session answers all others. */
static void free_in_a_callback_of_the_end(void **state)
{
	struct rig *r = *state;
	struct hook h = { .r = r, .send = true };

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_eof(r->monitor);
	qmp_client_send(r->client, QMP_QUERY_STATUS, NULL, NULL, 0, free_client, &h, NULL);
	for (unsigned i = 0; i < 5; i++)
		ask(r, QMP_QUERY_BLOCK, i, 0);
	WAIT_FOR(r, h.answer.calls);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(r->a[i].calls, 1);
	assert_int_equal(r->a[9].calls, 0);
	assert_int_equal(r->closed, 0);
}

static void free_in_the_event_callback(void **state)
{
	struct rig *r = *state;

	r->free_on_event = true;
	fake_say(r->monitor, "{\"event\": \"A\"}{\"event\": \"B\"}");
	WAIT_FOR(r, r->events);
	assert_null(r->client);
	assert_int_equal(r->events, 1);
}

static void free_in_ready(void **state)
{
	struct rig *r = *state;

	r->free_on_ready = true;
	fake_greet(r->monitor, false);
	WAIT_FOR(r, r->ready);
	assert_null(r->client);
}

static void free_in_closed(void **state)
{
	struct rig *r = *state;

	r->free_on_close = true;
	fake_greet(r->monitor, false);
	fake_eof(r->monitor);
	ask(r, QMP_STOP, 0, 0);
	WAIT_FOR(r, r->closed);
	assert_null(r->client);
	assert_int_equal(r->a[0].calls, 1);
}

static void sending_after_the_end_is_refused_with_the_reason(void **state)
{
	struct rig *r = *state;
	struct tp_error err = TP_ERROR_INIT;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), was = fd;

	fake_greet(r->monitor, false);
	fake_eof(r->monitor);
	WAIT_FOR(r, r->closed);
	assert_int_equal(qmp_client_send(r->client, QMP_GETFD, json_object(), &fd, 0, answered,
					 &r->a[0], &err), 0);
	assert_string_equal(tp_error_class(&err), "QemuExited");
	assert_non_null(strstr(err.text, "getfd"));
	assert_int_equal(r->a[0].calls, 0);
	assert_int_equal(fd, -1);
	assert_int_equal(fcntl(was, F_GETFD), -1);
}

static void a_forgotten_command_is_sent_and_not_told(void **state)
{
	struct rig *r = *state;
	uint64_t id;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "stop", NULL);
	fake_return(r->monitor, "{}");
	fake_expect(r->monitor, "query-status", NULL);
	fake_return(r->monitor, "{\"status\": \"paused\"}");
	id = ask(r, QMP_STOP, 0, 0);
	qmp_client_forget(r->client, id);
	qmp_client_forget(r->client, 4711);
	assert_true(qmp_client_send(r->client, QMP_QUERY_STATUS, NULL, NULL, 0, answered, &r->a[1],
				    NULL) > id);
	WAIT_FOR(r, r->a[1].calls);
	assert_int_equal(r->a[0].calls, 0);
	assert_int_equal(qmp_client_stats(r->client)->stray, 0);
	check_script(r);
}

static void bad_arguments_are_refused(void **state)
{
	struct rig *r = *state;
	struct tp_error err = TP_ERROR_INIT;
	char *large = calloc(1, 600000);

	assert_non_null(large);
	memset(large, 'x', 599999);
	assert_int_equal(qmp_client_send(r->client, QMP_CMD_N, NULL, NULL, 0, NULL, NULL, &err), 0);
	assert_int_equal(err.code, TP_EARG);
	tp_error_clear(&err);
	assert_int_equal(qmp_client_send(r->client, QMP_STOP, json_array(), NULL, 0, NULL, NULL,
					 &err), 0);
	assert_int_equal(err.code, TP_EARG);
	tp_error_clear(&err);
	assert_int_equal(qmp_client_send(r->client, QMP_STOP, json_pack("{s:s}", "a", large), NULL, 0,
					 NULL, NULL, &err), 0);
	assert_int_equal(err.code, TP_ELIMIT);
	tp_error_clear(&err);
	assert_int_equal(qmp_client_send_user(r->client, "stop\",\"x\":\"", NULL, 0, NULL, NULL,
					      &err), 0);
	assert_int_equal(err.code, TP_EARG);
	tp_error_clear(&err);
	assert_int_equal(qmp_client_send_user(r->client, NULL, NULL, 0, NULL, NULL, &err), 0);
	assert_int_equal(err.code, TP_EARG);
	free(large);
}

/* ---- queue ---- */

static void no_more_than_eight_are_in_flight(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, true);
	for (unsigned i = 0; i < 20; i++)
		ask(r, QMP_QUERY_STATUS, i, 0);
	for (unsigned i = 0; i < QMP_IN_FLIGHT; i++)
		fake_expect(r->monitor, "query-status", NULL);
	fake_delay(r->monitor, SHORT);
	for (unsigned i = 1; i <= QMP_IN_FLIGHT; i++) {
		char text[80];

		snprintf(text, sizeof(text), "{\"return\": {\"status\": \"s%u\"}, \"id\": $%u}", i - 1, i);
		fake_say(r->monitor, text);
	}
	for (unsigned i = QMP_IN_FLIGHT; i < 20; i++) {
		fake_expect(r->monitor, "query-status", NULL);
		fake_return(r->monitor, "{\"status\": \"later\"}");
	}
	WAIT_FOR(r, r->a[19].calls);
	check_status(&r->a[0], "s0");
	check_status(&r->a[7], "s7");
	check_status(&r->a[8], "later");
	assert_int_equal(fake_monitor_most_in_flight(r->monitor), QMP_IN_FLIGHT);
	assert_int_equal(qmp_client_stats(r->client)->sent, 21);
	check_script(r);
}

static void the_queue_has_a_limit(void **state)
{
	struct rig *r = *state;
	struct tp_error err = TP_ERROR_INIT;

	for (unsigned i = 0; i < QMP_QUEUE_LIMIT; i++)
		ask(r, QMP_QUERY_STATUS, i, 0);
	assert_int_equal(qmp_client_send(r->client, QMP_STOP, NULL, NULL, 0, answered,
					 &r->a[QMP_QUEUE_LIMIT], &err), 0);
	assert_int_equal(err.code, TP_ELIMIT);
	rig_drop_client(r);
	for (unsigned i = 0; i < QMP_QUEUE_LIMIT; i++)
		assert_int_equal(r->a[i].calls, 1);
	assert_int_equal(r->a[QMP_QUEUE_LIMIT].calls, 0);
}

/* QEMU does not read: nothing blocks, what is written later is still whole. */
static void a_peer_that_does_not_read_blocks_nobody(void **state)
{
	struct rig *r = *state;
	char *large = calloc(1, 300001);

	assert_non_null(large);
	memset(large, 'x', 300000);
	fake_greet(r->monitor, false);
	WAIT_FOR(r, r->ready);
	fake_monitor_read(r->monitor, false);
	assert_true(qmp_client_send(r->client, QMP_QOM_GET, json_pack("{s:s}", "path", large), NULL, 0,
				    answered, &r->a[0], NULL));
	ask(r, QMP_STOP, 1, SHORT);
	WAIT_FOR(r, r->a[1].calls);
	assert_int_equal(r->a[1].err.code, TP_ETIMEOUT);
	assert_non_null(strstr(r->a[1].err.text, "could not be sent"));
	assert_int_equal(r->a[0].calls, 0);
	fake_monitor_read(r->monitor, true);
	fake_expect(r->monitor, "qom-get", NULL);
	fake_return(r->monitor, "{\"status\": \"whole\"}");
	WAIT_FOR(r, r->a[0].calls);
	check_status(&r->a[0], "whole");
	check_script(r);
	free(large);
}

/* ---- out-of-band ---- */

static void oob_passes_the_queue(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, true);
	for (unsigned i = 0; i < QMP_IN_FLIGHT; i++)
		fake_expect(r->monitor, "query-status", NULL);
	fake_expect_oob(r->monitor, "migrate-recover", "{\"uri\": \"unix:/x\"}");
	fake_return(r->monitor, "{}");
	for (unsigned i = 0; i < QMP_IN_FLIGHT + 2; i++)
		ask(r, QMP_QUERY_STATUS, i, 0);
	WAIT_FOR(r, fake_monitor_received(r->monitor) == 1 + QMP_IN_FLIGHT);
	assert_true(qmp_client_send(r->client, QMP_MIGRATE_RECOVER,
				    json_pack("{s:s}", "uri", "unix:/x"), NULL, 0, answered,
				    &r->a[50], NULL));
	WAIT_FOR(r, r->a[50].calls);
	assert_true(qmp_client_has_oob(r->client));
	assert_non_null(r->a[50].reply);
	assert_int_equal(r->a[0].calls, 0);
	check_script(r);
}

static void without_oob_it_waits_its_turn(void **state)
{
	struct rig *r = *state;

	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_return(r->monitor, "{}");
	fake_expect(r->monitor, "migrate-recover", NULL);
	fake_return(r->monitor, "{}");
	ask(r, QMP_QUERY_STATUS, 0, 0);
	ask(r, QMP_MIGRATE_RECOVER, 1, 0);
	WAIT_FOR(r, r->a[1].calls);
	assert_false(qmp_client_has_oob(r->client));
	check_script(r);
}

/* ---- descriptors ---- */

static void a_descriptor_travels_alone(void **state)
{
	struct rig *r = *state;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), was = fd;

	fake_greet(r->monitor, true);
	fake_expect(r->monitor, "query-status", NULL);
	fake_expect(r->monitor, "query-block", NULL);
	fake_delay(r->monitor, SHORT);
	fake_say(r->monitor, "{\"return\": {}, \"id\": $1}");
	fake_delay(r->monitor, SHORT);
	fake_say(r->monitor, "{\"return\": {}, \"id\": $2}");
	fake_expect_fd(r->monitor, "getfd", "{\"fdname\": \"mig\"}");
	fake_delay(r->monitor, SHORT);
	fake_return(r->monitor, "{}");
	fake_expect_oob(r->monitor, "migrate-pause", NULL);
	fake_expect(r->monitor, "migrate", NULL);
	fake_return(r->monitor, "{}");
	ask(r, QMP_QUERY_STATUS, 0, 0);
	ask(r, QMP_QUERY_BLOCK, 1, 0);
	WAIT_FOR(r, fake_monitor_received(r->monitor) == 3);
	assert_true(qmp_client_send(r->client, QMP_GETFD, json_pack("{s:s}", "fdname", "mig"), &fd, 0,
				    answered, &r->a[2], NULL));
	assert_int_equal(fd, -1);
	ask(r, QMP_MIGRATE, 3, 0);
	WAIT_FOR(r, fake_monitor_received(r->monitor) == 4);
	/* Not even out-of-band commands while a descriptor is under way. */
	ask(r, QMP_MIGRATE_PAUSE, 4, 0);
	WAIT_FOR(r, r->a[3].calls);
	assert_non_null(r->a[2].reply);
	assert_int_equal(fcntl(was, F_GETFD), -1);
	check_script(r);
}

static void a_descriptor_is_closed_when_its_command_is_not_sent(void **state)
{
	struct rig *r = *state;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), was = fd;

	assert_true(qmp_client_send(r->client, QMP_GETFD, NULL, &fd, SHORT, answered, &r->a[0], NULL));
	WAIT_FOR(r, r->a[0].calls);
	assert_int_equal(fcntl(was, F_GETFD), -1);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	was = fd;
	assert_true(qmp_client_send(r->client, QMP_GETFD, NULL, &fd, 0, answered, &r->a[1], NULL));
	rig_drop_client(r);
	assert_int_equal(fcntl(was, F_GETFD), -1);
}

static void nothing_follows_an_unanswered_descriptor(void **state)
{
	struct rig *r = *state;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	fake_greet(r->monitor, true);
	fake_expect_fd(r->monitor, "getfd", NULL);
	assert_true(qmp_client_send(r->client, QMP_GETFD, NULL, &fd, SHORT, answered, &r->a[0], NULL));
	WAIT_FOR(r, r->a[0].calls);
	assert_int_equal(r->a[0].err.code, TP_ETIMEOUT);
	ask(r, QMP_CLOSEFD, 1, SHORT);
	WAIT_FOR(r, r->a[1].calls);
	assert_non_null(strstr(r->a[1].err.text, "could not be sent"));
	assert_int_equal(fake_monitor_received(r->monitor), 2);
	/* Its late reply opens the way again. */
	fake_return(r->monitor, "{}");
	fake_expect(r->monitor, "closefd", NULL);
	fake_return(r->monitor, "{}");
	ask(r, QMP_CLOSEFD, 2, 0);
	WAIT_FOR(r, r->a[2].calls);
	check_script(r);
}

/* ---- negotiation ---- */

static void the_version_is_in_the_greeting(void **state)
{
	struct rig *r = *state;
	int major = -1, minor = -1, micro = -1;

	qmp_client_version(r->client, &major, &minor, &micro);
	assert_int_equal(major, 0);
	assert_null(qmp_client_greeting(r->client));
	fake_greet(r->monitor, false);
	WAIT_FOR(r, r->ready);
	qmp_client_version(r->client, &major, &minor, &micro);
	assert_int_equal(major, 7);
	assert_int_equal(minor, 2);
	assert_int_equal(micro, 22);
	assert_non_null(json_object_get(qmp_client_greeting(r->client), "version"));
}

static void refused_negotiation_ends_the_session(void **state)
{
	struct rig *r = *state;

	fake_greeting_only(r->monitor, true);
	fake_expect(r->monitor, "qmp_capabilities", NULL);
	fake_error(r->monitor, "CommandNotFound",
		   "Capabilities negotiation is already complete, command ignored");
	ask(r, QMP_STOP, 0, 0);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->ready, 0);
	assert_int_equal(r->a[0].calls, 1);
	assert_string_equal(r->why.class_, "QemuError");
	check_script(r);
}

static void odd_greetings(void **state)
{
	struct rig *r = *state;

	fake_say(r->monitor, "{\"QMP\": 5}{\"QMP\": null}");
	fake_say(r->monitor, "{\"QMP\": {\"version\": [], \"capabilities\": {\"oob\": 1}}}");
	fake_expect(r->monitor, "qmp_capabilities", "{}");
	fake_say(r->monitor, "{\"QMP\": {\"capabilities\": [\"oob\"]}}");
	fake_return(r->monitor, "{}");
	WAIT_FOR(r, r->ready);
	assert_false(qmp_client_has_oob(r->client));
	assert_int_equal(qmp_client_stats(r->client)->stray, 3);
	check_script(r);
}

/* ---- hostile input ---- */

static void hostile_bytes_do_not_end_the_session(void **state)
{
	static const char nuls[] = "\0\0\0\n";
	struct rig *r = *state;

	fake_monitor_tear(r->monitor, 3);
	fake_say(r->monitor, "junk before all\r\n");
	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "query-status", NULL);
	fake_say(r->monitor, "garbage\n[1,2]\n\"text\"\n12\n}}}}\n");
	fake_say_bytes(r->monitor, nuls, sizeof(nuls) - 1);
	fake_say(r->monitor, "{\"return\": \"\xc3\x28\"}\n{\"event\": \"\xed\xa0\x80\"}\n");
	fake_say(r->monitor, "{\"event\": 5}{\"event\": {}, \"data\": 1}{\"event\": null}\n");
	fake_say(r->monitor, "{\"event\": \"ODD\", \"data\": [1]}\n");
	fake_say(r->monitor, "{\"half\": \xff");
	fake_return(r->monitor, "{\"status\": \"well\"}");
	ask(r, QMP_QUERY_STATUS, 0, 0);
	WAIT_FOR(r, r->a[0].calls);
	check_status(&r->a[0], "well");
	assert_int_equal(r->events, 1);
	assert_string_equal(r->last_event, "ODD");
	assert_int_equal(json_object_size(r->last_data), 0);
	assert_int_equal(qmp_client_stats(r->client)->junk, 10);
	assert_int_equal(qmp_client_stats(r->client)->stray, 3);
	check_script(r);
}

static char *nested(unsigned levels)
{
	struct tp_buf text = TP_BUF_INIT(0);

	tp_buf_adds(&text, "{\"event\": \"DEEP\", \"data\": {\"a\": ");
	for (unsigned i = 2; i < levels; i++)
		tp_buf_adds(&text, "[");
	for (unsigned i = 2; i < levels; i++)
		tp_buf_adds(&text, "]");
	tp_buf_adds(&text, "}}");
	return tp_buf_steal(&text);
}

static void nesting_of_1024_levels_is_read(void **state)
{
	struct rig *r = *state;
	tp_autofree char *text = nested(QMP_DEPTH_LIMIT);

	fake_say(r->monitor, text);
	WAIT_FOR(r, r->events);
	assert_int_equal(r->closed, 0);
}

static void nesting_of_1025_levels_ends_the_session(void **state)
{
	struct rig *r = *state;
	tp_autofree char *text = nested(QMP_DEPTH_LIMIT + 1);

	fake_say(r->monitor, text);
	WAIT_FOR(r, r->closed);
	assert_int_equal(r->events, 0);
	assert_non_null(strstr(r->why.text, "1024 levels"));
}

/* ---- traces ---- */

static struct tp_buf traced;

static void sink(void *arg, enum tp_level level, const char *source, const char *text)
{
	(void)arg;
	(void)level;
	(void)source;
	tp_buf_adds(&traced, text);
	tp_buf_adds(&traced, "\n");
}

static void traces_mask_what_the_table_calls_secret(void **state)
{
	struct rig *r = *state;
	json_t *whole = json_pack("{s:s, s:{s:s}}", "execute", "set_password", "arguments", "password",
				  "hunter2");

	traced = (struct tp_buf)TP_BUF_INIT(0);
	tp_log_set_sink(sink, NULL);
	tp_log_set_level(TP_LOG_TRACE);
	fake_greet(r->monitor, false);
	fake_expect(r->monitor, "qom-get", "{\"path\": \"/visible\"}");
	fake_return(r->monitor, "{\"status\": \"shown\"}");
	fake_expect(r->monitor, "set_password", "{\"password\": \"hunter2\"}");
	fake_return(r->monitor, "{\"echo\": \"hunter2\"}");
	assert_true(qmp_client_send(r->client, QMP_QOM_GET, json_pack("{s:s}", "path", "/visible"),
				    NULL, 0, answered, &r->a[0], NULL));
	assert_true(qmp_client_send(r->client, QMP_USER, whole, NULL, 0, answered, &r->a[1], NULL));
	WAIT_FOR(r, r->a[0].calls && r->a[1].calls);
	tp_log_set_sink(NULL, NULL);
	assert_non_null(traced.data);
	assert_non_null(strstr(traced.data, "/visible"));
	assert_non_null(strstr(traced.data, "shown"));
	assert_non_null(strstr(traced.data, "set_password"));
	assert_null(strstr(traced.data, "hunter2"));
	tp_buf_free(&traced);
	check_script(r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		UNIT(free_cancels_what_is_outstanding),
		UNIT(freeing_null_is_allowed),
		UNIT(free_in_a_reply_callback),
		UNIT(free_in_the_callback_of_a_limit),
		UNIT(free_in_the_callback_of_an_unsent_ones_limit),
		UNIT(free_in_a_callback_of_the_end),
		UNIT(free_in_the_event_callback),
		UNIT(free_in_ready),
		UNIT(free_in_closed),
		UNIT(sending_after_the_end_is_refused_with_the_reason),
		UNIT(a_forgotten_command_is_sent_and_not_told),
		UNIT(bad_arguments_are_refused),
		UNIT(no_more_than_eight_are_in_flight),
		UNIT(the_queue_has_a_limit),
		UNIT(a_peer_that_does_not_read_blocks_nobody),
		UNIT(oob_passes_the_queue),
		UNIT(without_oob_it_waits_its_turn),
		UNIT(a_descriptor_travels_alone),
		UNIT(a_descriptor_is_closed_when_its_command_is_not_sent),
		UNIT(nothing_follows_an_unanswered_descriptor),
		UNIT(the_version_is_in_the_greeting),
		UNIT(refused_negotiation_ends_the_session),
		UNIT(odd_greetings),
		UNIT(hostile_bytes_do_not_end_the_session),
		UNIT(nesting_of_1024_levels_is_read),
		UNIT(nesting_of_1025_levels_ends_the_session),
		UNIT(traces_mask_what_the_table_calls_secret),
	};

	return cmocka_run_group_tests_name("qmp_client_life", tests, NULL, NULL);
}
