/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_log.c - Log lines to one sink */
#include "base_test.h"

#include <errno.h>

#include "base/tp_log.h"

TP_LOG_SOURCE("test.log");

struct seen {
	int lines;
	enum tp_level level;
	char source[32], text[4096];
};

static void remember(void *arg, enum tp_level level, const char *source, const char *text)
{
	struct seen *seen = arg;

	seen->lines++;
	seen->level = level;
	snprintf(seen->source, sizeof(seen->source), "%s", source);
	snprintf(seen->text, sizeof(seen->text), "%s", text);
	errno = EIO;	/* as a sink that writes may */
}

static int reset(void **state)
{
	(void)state;
	tp_log_set_sink(NULL, NULL);
	tp_log_set_level(TP_LOG_INFO);
	return 0;
}

static void silent_without_sink(void **state)
{
	(void)state;
	assert_false(tp_log_wants(TP_LOG_ERROR));
	tp_err("nobody hears this");
}

static void level_decides(void **state)
{
	struct seen seen = { 0 };

	(void)state;
	tp_log_set_sink(remember, &seen);
	tp_debug("no");
	tp_trace("no");
	assert_int_equal(seen.lines, 0);
	tp_info("vm=%s started", "web1");
	assert_int_equal(seen.lines, 1);
	assert_int_equal(seen.level, TP_LOG_INFO);
	assert_string_equal(seen.source, "test.log");
	assert_string_equal(seen.text, "vm=web1 started");
	tp_log_set_level(TP_LOG_TRACE);
	tp_trace("yes");
	assert_int_equal(seen.lines, 2);
	tp_log_set_level(TP_LOG_ERROR);
	tp_warn("no");
	tp_err("yes");
	assert_int_equal(seen.lines, 3);
	assert_int_equal(seen.level, TP_LOG_ERROR);
}

static void line_stays_one_line(void **state)
{
	struct seen seen = { 0 };
	char guest[8192];

	(void)state;
	tp_log_set_sink(remember, &seen);
	tp_info("guest said %s", "ok\n<0> host is on fire\033[0m");
	assert_null(strchr(seen.text, '\n'));
	assert_null(strchr(seen.text, '\033'));
	memset(guest, 'g', sizeof(guest) - 1);
	guest[sizeof(guest) - 1] = 0;
	tp_info("%s", guest);
	assert_true(strlen(seen.text) > 1000);
	assert_true(strlen(seen.text) < sizeof(seen.text) - 1);
}

static void errno_is_kept(void **state)
{
	struct seen seen = { 0 };

	(void)state;
	tp_log_set_sink(remember, &seen);
	errno = ENOSPC;
	tp_err("x");
	assert_int_equal(errno, ENOSPC);
}

static void level_names(void **state)
{
	static const char *const names[] = { "error", "warn", "info", "debug", "trace" };
	enum tp_level level = TP_LOG_WARN;
	int i;

	(void)state;
	for (i = TP_LOG_ERROR; i <= TP_LOG_TRACE; i++) {
		assert_true(tp_level_parse(names[i], &level));
		assert_int_equal(level, i);
	}
	assert_false(tp_level_parse("INFO", &level));
	assert_false(tp_level_parse("", &level));
	assert_false(tp_level_parse(NULL, &level));
	assert_int_equal(level, TP_LOG_TRACE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(silent_without_sink, reset),
		cmocka_unit_test_teardown(level_decides, reset),
		cmocka_unit_test_teardown(line_stays_one_line, reset),
		cmocka_unit_test_teardown(errno_is_kept, reset),
		cmocka_unit_test(level_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
