/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_pool_level.c - ok, low, full: thresholds, hysteresis, what counts as room */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "storage/pool_level.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static struct pool_space with(uint64_t available)
{
	return (struct pool_space){ .total = 100 * GIB, .available = available };
}

static enum pool_level level_at(uint64_t available, uint64_t low_water, enum pool_level before)
{
	struct pool_space space = with(available);

	return pool_level(&space, low_water, before);
}

static void low_begins_below_and_ends_a_quarter_above(void **state)
{
	(void)state;
	assert_int_equal(level_at(8 * GIB, 8 * GIB, POOL_OK), POOL_OK);
	assert_int_equal(level_at(8 * GIB - 1, 8 * GIB, POOL_OK), POOL_LOW);
	assert_int_equal(level_at(8 * GIB, 8 * GIB, POOL_LOW), POOL_LOW);
	assert_int_equal(level_at(10 * GIB - 1, 8 * GIB, POOL_LOW), POOL_LOW);
	assert_int_equal(level_at(10 * GIB, 8 * GIB, POOL_LOW), POOL_OK);
	/* From full it is low first, under the rule of low. */
	assert_int_equal(level_at(10 * GIB - 1, 8 * GIB, POOL_FULL), POOL_LOW);
	assert_int_equal(level_at(10 * GIB, 8 * GIB, POOL_FULL), POOL_OK);
}

static void full_has_its_own_threshold(void **state)
{
	uint64_t full = POOL_FULL_BELOW;

	(void)state;
	assert_int_equal(level_at(full - 1, GIB, POOL_OK), POOL_FULL);
	assert_int_equal(level_at(full, GIB, POOL_LOW), POOL_LOW);
	assert_int_equal(level_at(full, GIB, POOL_FULL), POOL_FULL);
	assert_int_equal(level_at(full + full / 4 - 1, GIB, POOL_FULL), POOL_FULL);
	assert_int_equal(level_at(full + full / 4, GIB, POOL_FULL), POOL_LOW);
	assert_int_equal(level_at(0, 0, POOL_OK), POOL_FULL);
	/* "never low" still is full. */
	assert_int_equal(level_at(full, 0, POOL_OK), POOL_OK);
	assert_int_equal(level_at(full - 1, 0, POOL_OK), POOL_FULL);
}

/* A level that changes at each of 1000 images that come and go would be told 1000 times. */
static void nothing_flaps(void **state)
{
	enum pool_level level = POOL_OK;
	unsigned changes = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		enum pool_level now = level_at(5 * GIB + (i % 2 ? 200 * MIB : 0) - 100 * MIB, POOL_LOW_WATER_AUTO,
					       level);

		changes += now != level;
		level = now;
	}
	assert_int_equal(changes, 1);
	assert_int_equal(level, POOL_LOW);
}

static void the_smaller_of_quota_and_disk_counts(void **state)
{
	struct pool_space space = with(50 * GIB);

	(void)state;
	assert_true(pool_left(&space) == 50 * GIB);
	assert_true(pool_low_water(&space, POOL_LOW_WATER_AUTO) == 5 * GIB);
	space.promised = 20 * GIB;
	space.reserved = 15 * GIB;
	space.standing = 10 * GIB;
	assert_true(pool_left(&space) == 30 * GIB);
	space.quota = 60 * GIB;
	space.used = 31 * GIB;
	assert_true(pool_left(&space) == 4 * GIB);
	assert_true(pool_low_water(&space, POOL_LOW_WATER_AUTO) == 3 * GIB);
	assert_true(pool_low_water(&space, 7) == 7);
	space.quota = 400 * GIB;
	assert_true(pool_low_water(&space, POOL_LOW_WATER_AUTO) == 5 * GIB);
	/* Overdrawn is nothing, not much. */
	space.quota = 10 * GIB;
	assert_true(pool_left(&space) == 0);
	space.quota = 0;
	space.promised = 51 * GIB;
	assert_true(pool_left(&space) == 0);
	assert_int_equal(pool_level(&space, 0, POOL_OK), POOL_FULL);
}

/* A memory file system without a limit has the largest size that JSON can say. */
static void without_a_size(void **state)
{
	struct pool_space space = { .total = INT64_MAX, .available = INT64_MAX };

	(void)state;
	assert_int_equal(pool_level(&space, POOL_LOW_WATER_AUTO, POOL_OK), POOL_OK);
	assert_int_equal(pool_level(&space, POOL_LOW_WATER_AUTO, POOL_LOW), POOL_OK);
	assert_int_equal(pool_level(&space, UINT64_MAX - 1, POOL_OK), POOL_LOW);
}

static void names(void **state)
{
	(void)state;
	assert_string_equal(pool_level_name(POOL_OK), "ok");
	assert_string_equal(pool_level_name(POOL_LOW), "low");
	assert_string_equal(pool_level_name(POOL_FULL), "full");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(low_begins_below_and_ends_a_quarter_above),
		cmocka_unit_test(full_has_its_own_threshold),
		cmocka_unit_test(nothing_flaps),
		cmocka_unit_test(the_smaller_of_quota_and_disk_counts),
		cmocka_unit_test(without_a_size),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
