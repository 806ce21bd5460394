/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_mig_info.c - Every migration status, also made-up ones; capabilities and parameters */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "migration/mig_info.h"

static json_t *parse(const char *text)
{
	json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);

	assert_non_null(value);
	return value;
}

static const struct {
	const char *status;
	enum mig_phase phase;
	bool over;
} statuses[] = {
	{ "none", MIG_NONE, true },
	{ "setup", MIG_RUNNING, false },
	{ "cancelling", MIG_CANCELLING, false },
	{ "cancelled", MIG_CANCELLED, true },
	{ "active", MIG_RUNNING, false },
	{ "postcopy-active", MIG_POSTCOPY, false },
	{ "postcopy-device", MIG_POSTCOPY, false },
	{ "postcopy-paused", MIG_POSTCOPY_PAUSED, false },
	{ "postcopy-recover-setup", MIG_POSTCOPY_RECOVER, false },
	{ "postcopy-recover", MIG_POSTCOPY_RECOVER, false },
	{ "completed", MIG_COMPLETED, true },
	{ "failed", MIG_FAILED, true },
	{ "colo", MIG_RUNNING, false },
	{ "pre-switchover", MIG_PRE_SWITCHOVER, false },
	{ "device", MIG_RUNNING, false },
	{ "wait-unplug", MIG_RUNNING, false },
	/* Of a QEMU to come: a good migration must not be aborted for it. */
	{ "quantum-active", MIG_RUNNING, false },
	{ "", MIG_RUNNING, false },
	{ "COMPLETED", MIG_RUNNING, false },
	{ "completed-not", MIG_RUNNING, false },
	{ "fail", MIG_RUNNING, false },
};

static void every_status_has_its_phase(void **state)
{
	(void)state;
	for (size_t i = 0; i < TP_N(statuses); i++) {
		tp_autojson json_t *reply = json_pack("{s:s}", "status", statuses[i].status);
		struct mig_info info;

		if (mig_phase_of(statuses[i].status) != statuses[i].phase)
			fail_msg("phase of \"%s\"", statuses[i].status);
		if (mig_phase_over(statuses[i].phase) != statuses[i].over)
			fail_msg("end of \"%s\"", statuses[i].status);
		mig_info_parse(reply, &info);
		assert_int_equal(info.phase, statuses[i].phase);
		assert_string_equal(info.status, statuses[i].status);
	}
	assert_int_equal(mig_phase_of(NULL), MIG_NONE);
}

/* Any order: what is told depends on the present status alone. */
static void statuses_in_odd_orders(void **state)
{
	struct mig_info info;

	(void)state;
	for (size_t i = 0; i < TP_N(statuses); i++) {
		for (size_t k = 0; k < TP_N(statuses); k++) {
			tp_autojson json_t *one = json_pack("{s:s, s:s}", "status",
				statuses[i].status, "error-desc", "old");
			tp_autojson json_t *two = json_pack("{s:s}", "status", statuses[k].status);

			mig_info_parse(one, &info);
			mig_info_parse(two, &info);
			assert_int_equal(info.phase, statuses[k].phase);
			assert_string_equal(info.error, "");
		}
	}
}

static void info_of_a_running_migration(void **state)
{
	tp_autojson json_t *reply = parse(
		"{\"expected-downtime\": 200, \"status\": \"active\", \"ram\": {\"total\": 537403392,"
		"\"remaining\": 454287360, \"transferred\": 69445870, \"mbps\": 499.3}}");
	struct mig_info info;

	(void)state;
	mig_info_parse(reply, &info);
	assert_int_equal(info.phase, MIG_RUNNING);
	assert_int_equal(info.total, 537403392);
	assert_int_equal(info.remaining, 454287360);
	assert_int_equal(info.transferred, 69445870);
	assert_string_equal(info.error, "");
}

static void info_of_odd_replies(void **state)
{
	static const char *const odd[] = {
		"{}", "[]", "null", "7", "{\"status\": 7}", "{\"status\": null}",
		"{\"ram\": 1}", "{\"ram\": {\"total\": -1, \"remaining\": \"x\"}}",
	};
	tp_autojson json_t *reply = NULL;
	struct mig_info info;

	(void)state;
	for (size_t i = 0; i < TP_N(odd); i++) {
		tp_autojson json_t *value = parse(odd[i]);

		mig_info_parse(value, &info);
		assert_int_equal(info.phase, MIG_NONE);
		assert_int_equal(info.total, 0);
		assert_int_equal(info.remaining, 0);
	}
	mig_info_parse(NULL, &info);
	assert_int_equal(info.phase, MIG_NONE);
	reply = json_pack("{s:s, s:s}", "status", "failed", "error-desc", "abc\ndef");
	mig_info_parse(reply, &info);
	assert_int_equal(info.phase, MIG_FAILED);
	assert_string_equal(info.error, "abc?def");
}

/* 255 bytes of room; the character that would be cut is left out. */
static void texts_end_with_a_whole_character(void **state)
{
	(void)state;
	for (size_t lead = 250; lead <= 258; lead++) {
		char text[300];
		struct mig_info info;
		tp_autojson json_t *reply = NULL;
		size_t n;

		memset(text, 'x', lead);
		strcpy(text + lead, "\xe2\x82\xac");
		reply = json_pack("{s:s}", "error-desc", text);
		mig_info_parse(reply, &info);
		n = strlen(info.error);
		assert_int_equal(n, lead + 3 <= 255 ? lead + 3 : lead < 255 ? lead : 255);
	}
}

static void blockers(void **state)
{
	tp_autojson json_t *reply = parse("{\"blocked-reasons\": [\"VFIO\", 7, \"9p\"]}");
	tp_autojson json_t *two = mig_blockers(reply);
	tp_autojson json_t *none = mig_blockers(NULL);

	(void)state;
	assert_int_equal(json_array_size(two), 2);
	assert_string_equal(json_string_value(json_array_get(two, 1)), "9p");
	assert_true(json_is_array(none));
	assert_int_equal(json_array_size(none), 0);
}

#define CAPS "[{\"capability\": \"xbzrle\", \"state\": true}," \
	"{\"capability\": \"return-path\", \"state\": false}," \
	"{\"capability\": \"background-snapshot\", \"state\": true}," \
	"{\"capability\": \"events\", \"state\": false}]"
/* Two that need nothing, one that says nothing. */
#define CAPS_MORE "[{\"capability\": \"multifd\", \"state\": false}," \
	"{\"capability\": \"late-block-activate\", \"state\": true}," \
	"{\"capability\": \"x-colo\"}]"

static bool state_of(const json_t *arguments, const char *name)
{
	json_t *cap;
	size_t i;

	json_array_foreach(json_object_get(arguments, "capabilities"), i, cap)
		if (!strcmp(tp_json_str(cap, "capability"), name))
			return tp_json_bool(cap, "state", false);
	fail_msg("%s is not set", name);
	return false;
}

static void capabilities_that_differ_are_set(void **state)
{
	static const char *const on[] = { "return-path", "events", NULL };
	static const char *const late[] = { "late-block-activate", NULL };
	static const char *const unknown[] = { "events", "made-up", NULL };
	tp_autojson json_t *reply = parse(CAPS), *more = parse(CAPS_MORE);
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *arguments = mig_caps_arguments(reply, on, &err);
	tp_autojson json_t *one = mig_caps_arguments(more, late, &err);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(one, "capabilities")), 1);
	assert_false(state_of(one, "x-colo"));
	assert_int_equal(json_array_size(json_object_get(arguments, "capabilities")), 4);
	assert_true(state_of(arguments, "return-path"));
	assert_true(state_of(arguments, "events"));
	assert_false(state_of(arguments, "xbzrle"));
	assert_false(state_of(arguments, "background-snapshot"));
	assert_null(mig_caps_arguments(reply, unknown, &err));
	assert_int_equal(err.code, TP_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "made-up"));
}

static void capabilities_are_given_back(void **state)
{
	static const char *const are[] = { "xbzrle", "background-snapshot", NULL };
	static const char *const fewer[] = { "xbzrle", NULL };
	static const char *const more[] = { "xbzrle", "background-snapshot", "events", NULL };
	static const char *const unknown[] = { "xbzrle", "background-snapshot", "made-up", NULL };
	static const char *const none[] = { NULL };
	tp_autojson json_t *reply = parse(CAPS), *nothing = json_array();
	tp_autojson json_t *back = mig_caps_restore(reply), *enabled = mig_caps_enabled(reply);

	(void)state;
	assert_true(json_equal(json_object_get(back, "capabilities"), reply));
	assert_int_equal(json_array_size(enabled), 2);
	assert_string_equal(json_string_value(json_array_get(enabled, 0)), "xbzrle");
	assert_true(mig_caps_are(reply, are));
	assert_false(mig_caps_are(reply, fewer));
	assert_false(mig_caps_are(reply, more));
	assert_false(mig_caps_are(reply, unknown));
	assert_true(mig_caps_are(nothing, none));
}

static void parameters(void **state)
{
	tp_autojson json_t *reply = parse("{\"downtime-limit\": 300, \"max-bandwidth\": 134217728,"
					  "\"announce-max\": 550}");
	tp_autojson json_t *odd = parse("{\"max-bandwidth\": 1}");
	tp_autojson json_t *stopped = mig_params_stopped();
	tp_autojson json_t *back = mig_params_restore(reply), *less = mig_params_restore(odd);

	(void)state;
	assert_int_equal(json_object_size(stopped), 2);
	assert_int_equal(tp_json_int(stopped, "downtime-limit", -1), 0);
	assert_int_equal(tp_json_int(stopped, "max-bandwidth", -1), 0);
	assert_int_equal(json_object_size(back), 2);
	assert_int_equal(tp_json_int(back, "downtime-limit", -1), 300);
	assert_int_equal(tp_json_int(back, "max-bandwidth", -1), 134217728);
	assert_int_equal(json_object_size(less), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_status_has_its_phase),
		cmocka_unit_test(statuses_in_odd_orders),
		cmocka_unit_test(info_of_a_running_migration),
		cmocka_unit_test(info_of_odd_replies),
		cmocka_unit_test(texts_end_with_a_whole_character),
		cmocka_unit_test(blockers),
		cmocka_unit_test(capabilities_that_differ_are_set),
		cmocka_unit_test(capabilities_are_given_back),
		cmocka_unit_test(parameters),
	};

	return cmocka_run_group_tests_name("mig_info", tests, NULL, NULL);
}
