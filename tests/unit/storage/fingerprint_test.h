/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fingerprint_test.h - Disks made and changed by QEMU's own tools, and what is said of it */
#ifndef FINGERPRINT_TEST_H
#define FINGERPRINT_TEST_H

#include "pool_test.h"

#include "storage/fingerprint.h"

/* Runs a shell command in a folder. */
static inline int run(const char *folder, const char *command)
{
	char *line;
	int status;

	assert_true(asprintf(&line, "cd '%s' && { %s; } >/dev/null 2>&1", folder, command) > 0);
	status = system(line);
	free(line);
	return status;
}

static inline void must(const char *folder, const char *command)
{
	if (run(folder, command) != 0)
		fail_msg("failed: %s", command);
}

static inline void need_tools(const char *folder)
{
	if (run(folder, "command -v qemu-img && command -v qemu-io") != 0) {
		print_message("needs qemu-img and qemu-io (Debian package qemu-utils)\n");
		skip();
	}
}

static inline json_t *take(const char *folder, const char *file, const char *format)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *print = fingerprint_take(at(folder, file), format, &err);

	assert_ok(print, &err);
	return print;
}

/* As it comes back from a manifest. */
static inline json_t *through_text(json_t *print_owned)
{
	char *text = json_dumps(print_owned, 0);
	json_t *back = json_loads(text, 0, NULL);

	assert_non_null(back);
	free(text);
	json_decref(print_owned);
	return back;
}

static inline void expect_equal(const json_t *before, const json_t *after)
{
	struct fingerprint_change c;

	fingerprint_compare(before, after, &c);
	if (c.verdict != FINGERPRINT_EQUAL)
		fail_msg("not equal: %s: %s", c.how, c.detail);
	assert_null(c.how);
	assert_string_equal(c.detail, "");
}

static inline void expect_verdict(const json_t *before, const json_t *after,
				  enum fingerprint_verdict verdict, const char *how, const char *part)
{
	struct fingerprint_change c;

	fingerprint_compare(before, after, &c);
	if (c.verdict != verdict || !c.how || strcmp(c.how, how) != 0)
		fail_msg("expected \"%s\", found \"%s\": %s", how, c.how ? c.how : "equal", c.detail);
	assert_contains(c.detail, part);
}

static inline void expect_how(const json_t *before, const json_t *after, const char *how,
			      const char *part)
{
	expect_verdict(before, after, FINGERPRINT_DIFFERENT, how, part);
}

static inline void expect_unproven(const json_t *before, const json_t *after, const char *part)
{
	expect_verdict(before, after, FINGERPRINT_UNPROVEN, "unverifiable", part);
}

#endif
