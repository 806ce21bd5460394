/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_pools_images.c - Which of two pools' images counts; folders that people copied and moved by hand */
#include "engine_test.h"

#define FOLDER_A "a/" VM "/" ID
#define FOLDER_B "b/" VM "/" ID

/* The row of query-images, new. */
static json_t *row(struct engine_test *e, const char *pool, const char *id)
{
	tp_autojson json_t *all = pools_images(e->t->pools);
	json_t *image, *found = NULL;
	size_t i;

	json_array_foreach(all, i, image) {
		if (strcmp(tp_json_str(image, "pool"), pool) != 0 || strcmp(tp_json_str(image, "id"), id) != 0)
			continue;
		assert_null(found);
		found = json_incref(image);
	}
	return found;
}

static size_t rows(struct engine_test *e)
{
	tp_autojson json_t *all = pools_images(e->t->pools);

	return json_array_size(all);
}

static void assert_row(struct engine_test *e, const char *pool, const char *state, const char *why_not)
{
	tp_autojson json_t *image = row(e, pool, ID);

	assert_non_null(image);
	assert_string_equal(tp_json_str(image, "state"), state);
	assert_int_equal(tp_json_bool(image, "restorable", false), why_not == NULL);
	if (why_not)
		assert_contains(tp_json_str(image, "why-not"), why_not);
	else
		assert_true(json_is_null(json_object_get(image, "why-not")));
}

static void assert_counts(struct engine_test *e, const char *pool)
{
	struct engine_pool *p = NULL;

	assert_non_null(pools_image(e->t->pools, ID, &p));
	assert_string_equal(engine_pool_name(p), pool);
}

static void assert_restorable(struct vm *vm, const char *status, const char *message)
{
	tp_autojson json_t *condition = restorable_condition(vm);

	assert_string_equal(tp_json_str(condition, "status"), status);
	assert_contains(tp_json_str(condition, "message"), message);
}

/* Whichever pool is looked at first. */
static void rest_says_which_counts(void **state)
{
	static const char *const pools[] = { "a", "b" };
	struct engine_test *e = *state;
	struct vm *vm;

	engine_image(e, "a", ID);
	engine_image(e, "b", ID);
	engine_look(e);
	assert_int_equal(rows(e), 2);
	assert_row(e, "a", "complete", NULL);
	assert_row(e, "b", "complete", NULL);
	vm = engine_vm(e, VM, ID, "a");
	for (size_t i = 0; i < TP_N(pools); i++) {
		const char *mine = pools[i], *other = pools[!i];
		char text[80];

		vm_rest_set(vm, "image", json_pack("{s:s, s:s}", "id", ID, "pool", mine));
		snprintf(text, sizeof(text), "VM " VM " has it in pool %s", mine);
		assert_counts(e, mine);
		assert_row(e, mine, "complete", NULL);
		assert_row(e, other, "complete", text);
		assert_int_equal(rows(e), 2);
		assert_false(pools_image_astray(e->t->pools, vm, NULL));
	}
	/* What is done to the one is not done to the other. */
	pools_image_state(e->t->pools, "b", ID, "consumed");
	assert_row(e, "a", "complete", "has it in pool b");
	assert_row(e, "b", "consumed", "restored before");
	pools_image_gone(e->t->pools, "a", ID, NULL);
	assert_null(row(e, "a", ID));
	assert_counts(e, "b");
	engine_pump(e);
}

/* A VM that was restored from another one's image names it as well: the VM of the image's name counts. */
static void two_vms_name_it(void **state)
{
	struct engine_test *e = *state;

	engine_image(e, "a", ID);
	engine_image(e, "b", ID);
	engine_look(e);
	engine_vm(e, "other", ID, "b");
	assert_counts(e, "b");
	engine_vm(e, VM, ID, "a");
	assert_counts(e, "a");
	engine_vm(e, "third", ID, "b");
	assert_counts(e, "a");
	engine_pump(e);
}

static void pool_that_counts_is_away(void **state)
{
	struct engine_test *e = *state;
	struct vm *vm = engine_vm(e, VM, ID, "a");

	engine_image(e, "a", ID);
	engine_image(e, "b", ID);
	engine_look(e);
	assert_int_equal(rename(at(e->dir, "a"), at(e->dir, "away")), 0);
	engine_look(e);
	/* It is known there: the other one is not taken for it. */
	assert_counts(e, "a");
	assert_row(e, "a", "unavailable", "missing");
	assert_row(e, "b", "complete", "has it in pool a");
	assert_false(pools_image_astray(e->t->pools, vm, NULL));
	assert_string_equal(vm_image_pool(vm, false, NULL), "a");
	assert_string_equal(vm_image_pool(vm, true, NULL), "b");
	assert_int_equal(rename(at(e->dir, "away"), at(e->dir, "a")), 0);
	engine_look(e);
	assert_row(e, "a", "complete", NULL);
	assert_string_equal(vm_image_pool(vm, true, NULL), "a");
}

/* Of images that nobody's rest names one that is there is taken. */
static void unclaimed_and_away(void **state)
{
	struct engine_test *e = *state;
	static const char *const pools[] = { "a", "b" };

	engine_image(e, "a", ID);
	engine_image(e, "b", ID);
	engine_look(e);
	for (size_t i = 0; i < TP_N(pools); i++) {
		assert_int_equal(rename(at(e->dir, pools[i]), at(e->dir, "away")), 0);
		engine_look(e);
		assert_counts(e, pools[!i]);
		assert_int_equal(rename(at(e->dir, "away"), at(e->dir, pools[i])), 0);
		engine_look(e);
	}
}

static void moved_by_hand(void **state)
{
	struct engine_test *e = *state;
	struct vm *vm = engine_vm(e, VM, ID, "a");
	struct tp_error err = TP_ERROR_INIT;

	engine_image(e, "a", ID);
	engine_look(e);
	assert_row(e, "a", "complete", NULL);
	assert_int_equal(mkdir(at(e->dir, "b/" VM), 0700), 0);
	assert_int_equal(rename(at(e->dir, FOLDER_A), at(e->dir, FOLDER_B)), 0);
	/* As it is seen by the next look, whichever pool's comes first, without anybody asking. */
	engine_look(e);
	assert_int_equal(rows(e), 1);
	assert_row(e, "b", "complete", "not in pool a any more, but in pool b");
	assert_restorable(vm, "False", "move it back with image-move");
	assert_true(pools_image_astray(e->t->pools, vm, &err));
	assert_failed(&err, "NotFound", "restore it by naming it");
	assert_counts(e, "b");
	assert_null(pools_image_at(e->t->pools, "a", ID));
	/* Who names it gets it. */
	assert_null(vm_image_pool(vm, false, &err));
	assert_failed(&err, "NotFound", "in pool b");
	assert_string_equal(vm_image_pool(vm, true, &err), "b");
	assert_int_equal(rename(at(e->dir, FOLDER_B), at(e->dir, FOLDER_A)), 0);
	engine_look(e);
	assert_int_equal(rows(e), 1);
	assert_row(e, "a", "complete", NULL);
	assert_false(pools_image_astray(e->t->pools, vm, NULL));
}

/* One truth: by its mark it is no image, in the list, for a restore and for the condition. */
static void marked_by_hand(void **state)
{
	struct engine_test *e = *state;
	struct vm *vm = engine_vm(e, VM, ID, "a");

	engine_image(e, "a", ID);
	put_text(e->dir, FOLDER_A "/moving.json", "{}");
	engine_look(e);
	restorable_check(vm);
	engine_pump(e);
	assert_int_equal(rows(e), 1);
	assert_row(e, "a", "partial", "remove that file");
	assert_null(pools_image(e->t->pools, ID, NULL));
	assert_restorable(vm, "False", "remove that file");
	/* Of a VM that does not have its state there it is an unfinished copy of something. */
	vm_rest_set(vm, "image", NULL);
	assert_row(e, "a", "partial", "does not say of what");
	vm_rest_set(vm, "image", json_pack("{s:s, s:s}", "id", ID, "pool", "a"));
	assert_int_equal(unlink(at(e->dir, FOLDER_A "/moving.json")), 0);
	engine_look(e);
	assert_row(e, "a", "complete", NULL);
}

/* Nobody asked: the look at the pool found that the state went and came. */
static void condition_follows_the_pool(void **state)
{
	struct engine_test *e = *state;
	struct vm *vm = engine_vm(e, VM, ID, "a");

	engine_image(e, "a", ID);
	engine_look(e);
	assert_int_equal(rename(at(e->dir, FOLDER_A), at(e->dir, "elsewhere")), 0);
	engine_look(e);
	assert_restorable(vm, "False", "no manifest");
	assert_row(e, "a", "unavailable", "does not have it");
	assert_int_equal(rename(at(e->dir, "elsewhere"), at(e->dir, FOLDER_A)), 0);
	engine_look(e);
	assert_row(e, "a", "complete", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rest_says_which_counts, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(two_vms_name_it, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(pool_that_counts_is_away, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(unclaimed_and_away, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(moved_by_hand, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(marked_by_hand, engine_setup, engine_teardown),
		cmocka_unit_test_setup_teardown(condition_follows_the_pool, engine_setup, engine_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
