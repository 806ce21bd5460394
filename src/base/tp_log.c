/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tp_log.c - Log lines to the one sink of the host program
 *
 * Worker threads log too, hence the atomics; a sink is set before threads
 * start and is not taken away while any runs.
 */
#include "tp_log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tp_text.h"

/* Longer lines are cut; QMP traffic at trace level is what reaches it. */
#define TP_LOG_LINE 2048

static _Atomic(tp_log_fn) sink;
static _Atomic(void *) sink_arg;
static atomic_int max_level = TP_LOG_INFO;

void tp_log_set_sink(tp_log_fn fn, void *arg)
{
	atomic_store(&sink, NULL);
	atomic_store(&sink_arg, arg);
	atomic_store(&sink, fn);
}

void tp_log_set_level(enum tp_level level)
{
	atomic_store(&max_level, (int)level);
}

bool tp_log_wants(enum tp_level level)
{
	return atomic_load(&sink) && (int)level <= atomic_load(&max_level);
}

void tp_log(enum tp_level level, const char *source, const char *fmt, ...)
{
	char text[TP_LOG_LINE];
	int saved = errno;
	tp_log_fn fn;
	va_list ap;
	int n;

	if (!tp_log_wants(level))
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* Guests and images are quoted in lines: none of them may begin a line of its own. */
	tp_text_clean(text);
	fn = atomic_load(&sink);
	if (fn && n >= 0)
		fn(atomic_load(&sink_arg), level, source, text);
	errno = saved;
}

bool tp_level_parse(const char *text, enum tp_level *level)
{
	static const char *const names[] = { "error", "warn", "info", "debug", "trace" };
	size_t i;

	for (i = 0; text && i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) == 0) {
			*level = (enum tp_level)i;
			return true;
		}
	}
	return false;
}
