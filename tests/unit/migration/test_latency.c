/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_latency.c - Percentiles: exact to an eighth over the whole range */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "migration/latency.h"

static void of_nothing(void **state)
{
	struct latency l = { .n = 0 };

	(void)state;
	assert_int_equal(latency_percentile(&l, 0.5), 0);
}

static void a_single_value_is_all_percentiles(void **state)
{
	static const uint32_t values[] = { 0, 7, 8, 1000, 123456789, UINT32_MAX };

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct latency l = { .n = 0 };

		latency_add(&l, values[i]);
		assert_int_equal(latency_percentile(&l, 0), values[i]);
		assert_int_equal(latency_percentile(&l, 0.5), values[i]);
		assert_int_equal(latency_percentile(&l, 1), values[i]);
	}
}

static void never_below_and_an_eighth_above_at_most(void **state)
{
	struct latency l = { .n = 0 };

	(void)state;
	for (uint32_t us = 1; us <= 100000; us++)
		latency_add(&l, us);
	for (unsigned percent = 1; percent < 100; percent++) {
		uint32_t is = 1000 * percent;
		uint32_t told = latency_percentile(&l, percent / 100.0);

		assert_in_range(told, is, is + is / 8 + 1);
	}
	assert_int_equal(latency_percentile(&l, 1), 100000);
	assert_int_equal(l.max, 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_nothing),
		cmocka_unit_test(a_single_value_is_all_percentiles),
		cmocka_unit_test(never_below_and_an_eighth_above_at_most),
	};

	return cmocka_run_group_tests_name("latency", tests, NULL, NULL);
}
