/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_time.c - Times as text and back */
#include "base_test.h"

#include <time.h>

#include "base/tp_time.h"

static void formats(void **state)
{
	char buf[TP_TIME_TEXT];

	(void)state;
	assert_string_equal(tp_time_format(0, buf), "1970-01-01T00:00:00.000Z");
	assert_string_equal(tp_time_format(UINT64_C(1796058337123999), buf), "2026-11-30T17:05:37.123Z");
	assert_string_equal(tp_time_stamp(UINT64_C(1796058337123999), buf), "20261130T170537Z");
	/* What no clock gives still makes a text that fits. */
	assert_string_equal(tp_time_format(UINT64_MAX, buf), "9999-12-31T23:59:59.551Z");
	assert_string_equal(tp_time_stamp(UINT64_MAX, buf), "99991231T235959Z");
}

static void time_zone_does_not_matter(void **state)
{
	char buf[TP_TIME_TEXT];
	uint64_t us;

	(void)state;
	setenv("TZ", "Asia/Kathmandu", 1);
	tzset();
	assert_string_equal(tp_time_format(0, buf), "1970-01-01T00:00:00.000Z");
	assert_true(tp_time_parse("1970-01-01T00:00:00Z", &us));
	assert_int_equal(us, 0);
	unsetenv("TZ");
	tzset();
}

static void parses(void **state)
{
	static const struct { const char *text; uint64_t us; } good[] = {
		{ "1970-01-01T00:00:00Z", 0 },
		{ "2026-11-30T17:05:37.123Z", UINT64_C(1796058337123000) },
		{ "2026-11-30T17:05:37.123456Z", UINT64_C(1796058337123456) },
		{ "2026-11-30T17:05:37.123456789Z", UINT64_C(1796058337123456) },
		{ "2024-02-29T00:00:00.5Z", UINT64_C(1709164800500000) },
		{ "9999-12-31T23:59:59Z", UINT64_C(253402300799000000) },
	};
	static const char *const bad[] = {
		"", "Z", "2026-11-30", "2026-11-30T17:05:37", "2026-11-30T17:05:37+00:00",
		"2026-11-30 17:05:37Z", "2026-11-30T17:05:37.Z", "2026-11-30T17:05:37.12x",
		"2026-11-31T00:00:00Z", "2025-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
		"2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-01T24:00:00Z",
		"2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z", "1969-12-31T23:59:59Z",
		"0000-00-00T00:00:00Z", "+026-11-30T17:05:37Z", "2026-11-30T17:05:37ZZ",
		"2026-11-30T17:05:37z", " 2026-11-30T17:05:37Z", "2026-11-30T17:05:3",
	};
	uint64_t us;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(tp_time_parse(good[i].text, &us));
		assert_true(us == good[i].us);
	}
	us = 7;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (tp_time_parse(bad[i], &us))
			fail_msg("\"%s\" was accepted", bad[i]);
	}
	assert_false(tp_time_parse(NULL, &us));
	assert_int_equal(us, 7);
}

static void round_trip(void **state)
{
	char buf[TP_TIME_TEXT];
	uint64_t us, back;

	(void)state;
	/* A prime step of some 11 years, in milliseconds. */
	for (us = 1000; us < UINT64_C(253402300799000000); us += UINT64_C(349999999999) * 1000) {
		assert_true(tp_time_parse(tp_time_format(us, buf), &back));
		assert_true(back == us);
	}
}

static void clocks_advance(void **state)
{
	double mono = tp_now_mono();
	uint64_t us = tp_now_us();

	(void)state;
	assert_true(mono > 0);
	assert_true(us > UINT64_C(1600000000000000));
	assert_true(tp_now_mono() >= mono);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(formats),
		cmocka_unit_test(time_zone_does_not_matter),
		cmocka_unit_test(parses),
		cmocka_unit_test(round_trip),
		cmocka_unit_test(clocks_advance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
