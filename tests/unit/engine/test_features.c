/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_features.c - Features are remembered by the binary's file, not by pid or path */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/features.h"

static void remembered_by_file(void **state)
{
	struct features_cache c = { .count = 0 };
	struct qmp_features f = { .set_active = true }, got = { .set_active = false };

	(void)state;
	assert_false(features_recall(&c, getpid(), &got));
	features_keep(&c, getpid(), &f);
	assert_true(features_recall(&c, getpid(), &got));
	assert_true(got.set_active);
	/* The same path with another content is another binary. */
	c.kept[0].file.st_mtim.tv_nsec++;
	assert_false(features_recall(&c, getpid(), &got));
}

static void bounded(void **state)
{
	struct features_cache c = { .count = 0 };
	struct qmp_features f = { .file_uri = true };

	(void)state;
	for (int i = 0; i < 3 * FEATURES_KEPT; i++)
		features_keep(&c, getpid(), &f);
	assert_int_equal(c.count, FEATURES_KEPT);
	assert_true(features_recall(&c, getpid(), &f));
}

static void gone_process(void **state)
{
	struct features_cache c = { .count = 0 };
	struct qmp_features f = { .file_uri = true };

	(void)state;
	features_keep(&c, -1, &f);
	assert_int_equal(c.count, 0);
	assert_false(features_recall(&c, -1, &f));
}

static void written_and_taken_back(void **state)
{
	struct features_cache c = { .count = 0 }, back = { .count = 0 };
	struct qmp_features f = { .set_active = true, .vm_generation_id = true }, got = { .file_uri = true };
	json_t *list;

	(void)state;
	features_keep(&c, getpid(), &f);
	list = features_json(&c);
	features_take(&back, list);
	assert_true(features_recall(&back, getpid(), &got));
	assert_true(got.set_active && got.vm_generation_id);
	assert_false(got.file_uri || got.return_path || got.exit_on_error || got.late_block_activate);
	json_decref(list);
}

static void what_is_not_understood_is_left_out(void **state)
{
	struct features_cache c = { .count = 0 }, back = { .count = 0 };
	struct qmp_features f = { .set_active = true };
	json_t *list, *number = json_integer(7);

	(void)state;
	features_keep(&c, getpid(), &f);
	/* An older version's, one of a hostile hand, no entry at all; then too many good ones. */
	list = features_json(&c);
	json_object_del(json_array_get(list, 0), "set-active");
	features_take(&back, list);
	json_object_set_new(json_array_get(list, 0), "set-active", json_string("yes"));
	features_take(&back, list);
	json_array_append(list, number);
	features_take(&back, list);
	features_take(&back, NULL);
	features_take(&back, number);
	assert_int_equal(back.count, 0);
	json_array_clear(list);
	for (unsigned i = 0; i < FEATURES_KEPT + 3; i++) {
		json_t *more = features_json(&c);

		json_array_extend(list, more);
		json_decref(more);
	}
	features_take(&back, list);
	assert_int_equal(back.count, FEATURES_KEPT);
	features_keep(&back, getpid(), &f);
	assert_int_equal(back.count, FEATURES_KEPT);
	json_decref(list);
	json_decref(number);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(remembered_by_file), cmocka_unit_test(bounded), cmocka_unit_test(gone_process),
		cmocka_unit_test(written_and_taken_back), cmocka_unit_test(what_is_not_understood_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
