/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_verbs.c - The table of verbs and states, cell by cell, against the contract's own words */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/verbs.h"

/* "ok", "=", "-" (no other verb does it), or the verb to use instead; in the order of the states below. */
static const enum vm_state states[] = { VM_SHUTOFF, VM_RUNNING, VM_PAUSED, VM_SUSPENDED, VM_HIBERNATED,
					VM_CRASHED, VM_LOST };
static const struct { enum verb verb; const char *cells[7]; } rows[] = {
	{ VERB_START, { "ok", "=", "vm-resume", "vm-wakeup", "ok", "ok", "vm-resolve" } },
	{ VERB_HIBERNATE, { "vm-start", "ok", "ok", "ok", "=", "vm-start", "vm-resolve" } },
	{ VERB_RESTORE, { "vm-start", "-", "vm-resume", "vm-wakeup", "ok", "vm-start", "vm-resolve" } },
	{ VERB_PAUSE, { "vm-start", "ok", "=", "vm-wakeup", "vm-restore", "vm-start", "vm-resolve" } },
	{ VERB_RESUME, { "vm-start", "=", "ok", "vm-wakeup", "vm-restore", "vm-start", "vm-resolve" } },
	{ VERB_POWERDOWN, { "=", "ok", "vm-resume", "ok", "vm-discard", "=", "vm-resolve" } },
	{ VERB_QUIT, { "=", "ok", "ok", "ok", "=", "ok", "ok" } },
	{ VERB_MONITOR, { "vm-start", "ok", "ok", "ok", "vm-restore", "vm-start", "ok" } },
	{ VERB_DISCARD, { "=", "-", "-", "-", "ok", "=", "vm-resolve" } },
};

static void table(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (size_t k = 0; k < 7; k++) {
			const char *want = rows[i].cells[k], *use;
			enum verb_answer answer = verb_table(rows[i].verb, states[k], &use);

			if (strcmp(want, "ok") == 0)
				assert_int_equal(answer, VERB_OK);
			else if (strcmp(want, "=") == 0)
				assert_int_equal(answer, VERB_UNCHANGED);
			else
				assert_true(answer == VERB_REFUSED &&
					    strcmp(use ? use : "-", want) == 0);
		}
	}
}

static void states_that_pass(void **state)
{
	static const enum vm_state passing[] = { VM_STARTING, VM_HIBERNATING, VM_RESTORING, VM_MIGRATING,
						 VM_INCOMING };
	const char *use;

	(void)state;
	for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
		for (int v = 0; v < VERB_N; v++)
			assert_int_equal(verb_table((enum verb)v, passing[i], &use),
					 v == VERB_QUIT ? VERB_OK : VERB_REFUSED);
}

static void names_and_kinds(void **state)
{
	(void)state;
	for (int v = 0; v < VERB_N; v++)
		assert_non_null(verb_name((enum verb)v));
	assert_int_equal(verb_of_kind("start"), VERB_START);
	assert_int_equal(verb_of_kind("hibernate"), VERB_HIBERNATE);
	assert_int_equal(verb_of_kind("restore"), VERB_RESTORE);
	assert_int_equal(verb_of_kind("powerdown"), VERB_POWERDOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(table), cmocka_unit_test(states_that_pass), cmocka_unit_test(names_and_kinds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
