/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_pools.c - Pools that go and come, what they hold meanwhile, and the rounds in which they are looked at */
#include "engine_test.h"

#include "base/tp_time.h"
#include "engine/retain.h"
#include "engine/standing.h"

#define MIB (1ull << 20)

static json_t *described(struct engine_test *e, const char *name)
{
	tp_autojson json_t *all = pools_describe(e->t->pools);
	json_t *pool, *found = NULL;
	size_t i;

	json_array_foreach(all, i, pool)
		if (strcmp(tp_json_str(pool, "name"), name) == 0)
			found = json_incref(pool);
	assert_non_null(found);
	return found;
}

static void assert_pool(struct engine_test *e, const char *name, const char *state, const char *message)
{
	tp_autojson json_t *pool = described(e, name);

	assert_string_equal(tp_json_str(pool, "state"), state);
	assert_contains(tp_json_str(pool, "message"), message);
}

static void again(struct engine_test *e)
{
	engine_pump(e);
	torpor_free(e->t);
	engine_open(e);
}

/* --- pools that were there before --- */

static void lost_mount_is_no_new_pool(void **state)
{
	struct engine_test *e = *state;

	/* The first start made both. */
	assert_true(exists(e->dir, "a/.torpor-pool"));
	engine_pump(e);
	torpor_free(e->t);
	assert_int_equal(rename(at(e->dir, "a"), at(e->dir, "away")), 0);
	engine_open(e);
	assert_pool(e, "a", "missing", "where it was before");
	assert_pool(e, "b", "ok", "");
	assert_false(exists(e->dir, "a"));
	/* Nor is what the lost mount leaves bare. */
	assert_int_equal(mkdir(at(e->dir, "a"), 0700), 0);
	engine_look(e);
	assert_pool(e, "a", "missing", "not mounted");
	assert_false(exists(e->dir, "a/.torpor-pool"));
	assert_int_equal(rmdir(at(e->dir, "a")), 0);
	assert_int_equal(rename(at(e->dir, "away"), at(e->dir, "a")), 0);
	engine_look(e);
	assert_pool(e, "a", "ok", "");
}

/* As the message says. */
static void pool_begins_anew(void **state)
{
	struct engine_test *e = *state;

	again(e);
	engine_pump(e);
	torpor_free(e->t);
	assert_int_equal(rename(at(e->dir, "a"), at(e->dir, "away")), 0);
	assert_int_equal(mkdir(at(e->dir, "a"), 0700), 0);
	put_text(e->dir, "a/.torpor-pool", "");
	engine_open(e);
	assert_pool(e, "a", "ok", "");
}

/* What says so is damaged: rather a new pool than none. */
static void record_of_known_pools_is_no_object(void **state)
{
	struct engine_test *e = *state;

	engine_pump(e);
	torpor_free(e->t);
	put_text(e->dir, "state/host.json", "{\"known-pools\": [1]}");
	engine_open(e);
	assert_pool(e, "a", "ok", "");
	engine_pump(e);
	torpor_free(e->t);
	assert_int_equal(rename(at(e->dir, "a"), at(e->dir, "away")), 0);
	engine_open(e);
	assert_pool(e, "a", "missing", "where it was before");
}

static void path_of_the_configuration_is_none(void **state)
{
	struct engine_test *e = *state;
	struct tp_error err = TP_ERROR_INIT;

	assert_false(pools_add(e->t->pools, "c", "/srv/a\tb", 0, &err));
	assert_failed(&err, "GenericError", "control characters");
	assert_null(pools_find(e->t->pools, "c"));
}

/* --- figures --- */

static json_int_t used(struct engine_test *e, const char *name)
{
	tp_autojson json_t *pool = described(e, name);

	return tp_json_int(pool, "used", -1);
}

static void both_pools_of_a_move_are_looked_at(void **state)
{
	struct engine_test *e = *state;
	tp_autojson json_t *res = json_pack("{s:{s:s}, s:s}", "image", "pool", "a", "to", "b");
	tp_autojson json_t *saved = json_pack("{s:{s:s}, s:{s:s}}", "image", "pool", "a", "former-image", "pool", "b");
	json_int_t a, b;

	engine_pump(e);
	engine_image(e, "a", ID);
	engine_image(e, "b", ID2);
	a = used(e, "a");
	b = used(e, "b");
	pools_op_ended(e->t->pools, res);
	engine_pump(e);
	assert_true(used(e, "a") > a && used(e, "b") > b);
	assert_true(pool_image_remove(engine_pool_storage(engine_pool_at(e, "b")), VM, ID2, NULL));
	pools_op_ended(e->t->pools, saved);
	engine_pump(e);
	assert_true(used(e, "a") > a);
	assert_int_equal(used(e, "b"), b);
	pools_op_ended(e->t->pools, NULL);
}

/* --- standing room --- */

static struct vm *standing_vm(struct engine_test *e)
{
	struct vm *vm = engine_vm(e, VM, NULL, NULL);

	json_object_update_new(vm->spec, json_pack("{s:{s:s}, s:{s:b}}", "hibernate", "pool", "a", "storage", "standing", 1));
	return vm;
}

/* What standing.c does a moment later, for at most `limit` seconds; never that it failed. */
static void until_reserved(struct engine_test *e, const struct vm *vm, const char *status, const char *reason,
			   double limit)
{
	double end = tp_now_mono() + limit;

	for (;;) {
		tp_autojson json_t *condition = standing_condition(vm);
		const char *is = tp_json_str(condition, "status"), *why = tp_json_str(condition, "reason");

		if (is && strcmp(is, status) == 0 && (!reason || strcmp(why, reason) == 0))
			return;
		if (tp_now_mono() >= end || (why && strcmp(why, "Failed") == 0))
			fail_msg("%s, %s: %s", is, why, tp_json_str(condition, "message"));
		ev_run(e->loop, EVRUN_ONCE);
	}
}

/* Gone for a moment, between two looks: said as that, and held a few seconds later without being asked. */
static void pool_is_away_for_a_moment(void **state)
{
	struct engine_test *e = *state;
	struct vm *vm = standing_vm(e);
	uint64_t held;

	standing_soon(e->t, true);
	until_reserved(e, vm, "True", NULL, 20);
	held = standing_held(vm);
	if (held < 128 * MIB)
		fail_msg("%llu bytes are held", (unsigned long long)held);
	engine_pump(e);
	assert_int_equal(rename(at(e->dir, "a"), at(e->dir, "away")), 0);
	standing_soon(e->t, true);
	until_reserved(e, vm, "Unknown", "PoolMissing", 20);
	assert_int_equal(standing_held(vm), held);
	assert_int_equal(rename(at(e->dir, "away"), at(e->dir, "a")), 0);
	until_reserved(e, vm, "True", NULL, 25);
	assert_int_equal(standing_held(vm), held);
}

/* --- retention --- */

static struct vm *kept_images(struct engine_test *e, const char *const *pools, size_t n)
{
	struct vm *vm = engine_vm(e, VM, NULL, NULL);
	tp_autojson json_t *why = json_pack("{s:s, s:b}", "operation", "op-1", "ran", 1);
	struct tp_error err = TP_ERROR_INIT;

	json_object_update_new(vm->spec, json_pack("{s:{s:{s:i}}}", "storage", "retain", "count", 1));
	for (size_t i = 0; i < n; i++) {
		const char *id = i ? ID2 : ID;

		engine_image(e, pools[i], id);
		assert_ok(pool_image_consumed(engine_pool_storage(engine_pool_at(e, pools[i])), VM, id, why, &err), &err);
	}
	engine_look(e);
	return vm;
}

/* Without an operation that ends, and without a start. */
static void retained_by_the_hour(void **state)
{
	static const char *const pools[] = { "a", "a" };
	struct engine_test *e = *state;
	double end = tp_now_mono() + 20;

	kept_images(e, pools, 2);
	e->t->images_look_every = 3;
	e->t->housekeeping.repeat = 0.01;
	ev_timer_again(e->loop, &e->t->housekeeping);
	while (exists(e->dir, "a/" VM "/" ID) && tp_now_mono() < end)
		ev_run(e->loop, EVRUN_ONCE);
	assert_true(e->t->housekeepings >= 3);
	assert_false(exists(e->dir, "a/" VM "/" ID));
	assert_true(exists(e->dir, "a/" VM "/" ID2));
	engine_pump(e);
}

/* The newest is one image, however many pools people copied it to. */
static void copies_count_once(void **state)
{
	static const char *const pools[] = { "a", "a", "b" };
	struct engine_test *e = *state;
	struct vm *vm = kept_images(e, pools, 3);

	retain_vm(vm);
	engine_pump(e);
	assert_false(exists(e->dir, "a/" VM "/" ID));
	assert_true(exists(e->dir, "a/" VM "/" ID2));
	assert_true(exists(e->dir, "b/" VM "/" ID2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(lost_mount_is_no_new_pool, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(pool_begins_anew, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(record_of_known_pools_is_no_object, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(path_of_the_configuration_is_none, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(both_pools_of_a_move_are_looked_at, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(pool_is_away_for_a_moment, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(retained_by_the_hour, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(copies_count_once, engine_setup, engine_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
