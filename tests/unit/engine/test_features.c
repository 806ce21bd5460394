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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(remembered_by_file), cmocka_unit_test(bounded), cmocka_unit_test(gone_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
