/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_restore_choice.c - How an image would be restored: what is asked for, its size, rights, memory */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/tp_json.h"
#include "engine/restore.h"
#include "engine/uffd.h"
#include "engine/vm.h"

#define MIB (1ll << 20)

static json_t *manifest(json_int_t bytes, int major, const char *option, const char *value)
{
	return json_pack("{s:I, s:{s:{s:i, s:i}}, s:{s:[s, s]}}", "raw-bytes", bytes, "qemu", "version", "major",
			 major, "minor", 2, "launch", "args", option, value);
}

static struct restore_choice choice(const char *by_spec, const char *asked, json_t *manifest_owned)
{
	struct vm vm = { .spec = json_pack("{s:{s:s}, s:{s:s*}}", "launch", "binary", "q", "restore", "mode", by_spec) };
	struct restore_choice c;

	assert_non_null(vm.spec);
	restore_choice(&vm, manifest_owned, asked, &c);
	json_decref(vm.spec);
	json_decref(manifest_owned);
	return c;
}

static json_t *large(void)
{
	return manifest(256 * MIB, 10, "-m", "1G");
}

static void eager_is_no_fallback(void **state)
{
	struct restore_choice c;

	(void)state;
	c = choice("eager", NULL, large());
	assert_false(c.wanted || c.lazy || c.hand_over);
	assert_string_equal(c.why, "as it is asked for");
	assert_false(choice("lazy", "eager", large()).wanted);
	c = choice(NULL, NULL, manifest(256 * MIB - 1, 10, "-m", "1G"));
	assert_false(c.wanted || c.lazy);
	assert_string_equal(c.why, "less than 256 MiB: a lazy restore would gain nothing");
}

static void lazy_by_wish_or_by_size(void **state)
{
	static const struct { const char *by_spec, *asked; json_int_t bytes; } wanted[] = {
		{ "lazy", NULL, 1 }, { "eager", "lazy", 1 }, { NULL, "lazy", 1 }, { NULL, NULL, 256 * MIB },
		{ "auto", NULL, 256 * MIB }, { "eager", "auto", 256 * MIB },
		{ NULL, "restore", 256 * MIB },		/* a mode of vm-start */
	};
	tp_autojson json_t *m = large();
	struct vm vm = { .spec = json_pack("{s:{s:s}}", "launch", "binary", "q") };
	char why[TP_TEXT_SIZE];
	enum uffd_way way = uffd_way_of(&vm, m, why);

	(void)state;
	for (size_t i = 0; i < TP_N(wanted); i++) {
		struct restore_choice c = choice(wanted[i].by_spec, wanted[i].asked,
						 manifest(wanted[i].bytes, 10, "-m", "1G"));

		if (!c.wanted || c.lazy != (way != UFFD_NONE) || c.hand_over != (way == UFFD_HAND_OVER))
			fail_msg("case %zu: wanted %d, lazy %d, hand over %d", i, c.wanted, c.lazy, c.hand_over);
		assert_string_equal(c.why, why);
	}
	json_decref(vm.spec);
}

static void what_is_in_the_way_is_said(void **state)
{
	static const char file[] = "memory-backend-file,id=m,size=1G,mem-path=/x";
	struct restore_choice c;

	(void)state;
	c = choice("lazy", NULL, manifest(MIB, 10, "-runas", "no-such-user"));
	assert_true(c.wanted && !c.lazy && !c.hand_over);
	assert_string_equal(c.why, "no user \"no-such-user\"");
	c = choice("lazy", NULL, manifest(MIB, 7, "-object", file));
	assert_true(c.wanted && !c.lazy);
	if (choice("lazy", NULL, manifest(MIB, 7, "-m", "1G")).lazy)
		assert_string_equal(c.why, "its memory is a file, which this QEMU cannot take page by page");
	/* QEMU 10 says that itself. */
	assert_int_equal(choice("lazy", NULL, manifest(MIB, 10, "-object", file)).lazy,
			 choice("lazy", NULL, large()).lazy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(eager_is_no_fallback),
		cmocka_unit_test(lazy_by_wish_or_by_size),
		cmocka_unit_test(what_is_in_the_way_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
