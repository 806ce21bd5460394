/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torpord_log.c - Log lines of daemon and library on stderr
 *
 * Each line is one write(2), so that lines of several threads do not mix.
 */
#include "torpord_log.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_time.h"
#include "torpor.h"

#define LINE_MAX_BYTES 4096

static bool as_json, to_journal;

static const char *level_name(int level)
{
	static const char *const names[] = { "error", "warn", "info", "debug", "trace" };

	return level >= 0 && (size_t)level < TP_N(names) ? names[level] : "info";
}

static int priority(int level)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG, LOG_DEBUG };

	return level >= 0 && (size_t)level < TP_N(priorities) ? priorities[level] : LOG_INFO;
}

/* systemd names the journal's socket in JOURNAL_STREAM, as device and inode of stderr. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char own[64];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st) != 0)
		return false;
	snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(stream, own) == 0;
}

static void put(const char *line, size_t n)
{
	/* Nobody is left to tell when this fails. */
	ssize_t ignored = write(STDERR_FILENO, line, n);

	(void)ignored;
}

static void put_json(const char *time, int level, const char *source, const char *text)
{
	tp_autojson json_t *object = json_pack("{s:s, s:s, s:s, s:s}", "time", time, "level",
					       level_name(level), "source", source, "text", text);
	tp_autofree char *dump = object ? json_dumps(object, JSON_COMPACT) : NULL;
	size_t n = dump ? strlen(dump) : 0;

	if (!dump)
		return;
	dump[n] = '\n';		/* in place of the NUL */
	put(dump, n + 1);
}

static void put_text(const char *time, int level, const char *source, const char *text)
{
	char line[LINE_MAX_BYTES];
	int n;

	if (to_journal)
		n = snprintf(line, sizeof(line) - 1, "<%d>%s: %s", priority(level), source, text);
	else
		n = snprintf(line, sizeof(line) - 1, "%s %-5s %s: %s", time, level_name(level), source, text);
	if (n < 0)
		return;
	if ((size_t)n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n] = '\n';
	put(line, (size_t)n + 1);
}

static void to_stderr(void *arg, int level, const char *source, const char *text)
{
	char time[TP_TIME_TEXT];

	(void)arg;
	tp_time_format(tp_now_us(), time);
	if (as_json)
		put_json(time, level, source, text);
	else
		put_text(time, level, source, text);
}

static void own_sink(void *arg, enum tp_level level, const char *source, const char *text)
{
	to_stderr(arg, (int)level, source, text);
}

void log_setup(enum tp_level level, bool json)
{
	as_json = json;
	to_journal = stderr_is_journal();
	/* The daemon's own files have a copy of the base layer beside the library's. */
	tp_log_set_level(level);
	tp_log_set_sink(own_sink, NULL);
	torpor_set_log(to_stderr, NULL, (int)level);
}
