/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tp_log.h - Log lines with a source, to one sink given by the host program
 *
 * Without a sink nothing is printed: the library writes nothing to stderr. The
 * sink and the level are process-wide. `TP_LOG_SOURCE("qmp.client")` stands at
 * the top of each file that logs. Context goes into the text as key=value.
 */
#ifndef TP_LOG_H
#define TP_LOG_H

#include <stdarg.h>
#include <stdbool.h>

enum tp_level { TP_LOG_ERROR, TP_LOG_WARN, TP_LOG_INFO, TP_LOG_DEBUG, TP_LOG_TRACE };

typedef void (*tp_log_fn)(void *arg, enum tp_level level, const char *source, const char *text);

void tp_log_set_sink(tp_log_fn fn, void *arg);
void tp_log_set_level(enum tp_level level);
bool tp_log_wants(enum tp_level level);
void tp_log(enum tp_level level, const char *source, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "error", "warn", "info", "debug", "trace"; false if unknown. */
bool tp_level_parse(const char *text, enum tp_level *level);

#define TP_LOG_SOURCE(name) static const char tp_log_source_[] __attribute__((unused)) = name
#define tp_err(...) tp_log(TP_LOG_ERROR, tp_log_source_, __VA_ARGS__)
#define tp_warn(...) tp_log(TP_LOG_WARN, tp_log_source_, __VA_ARGS__)
#define tp_info(...) tp_log(TP_LOG_INFO, tp_log_source_, __VA_ARGS__)
#define tp_debug(...) tp_log(TP_LOG_DEBUG, tp_log_source_, __VA_ARGS__)
#define tp_trace(...) do { if (tp_log_wants(TP_LOG_TRACE)) \
	tp_log(TP_LOG_TRACE, tp_log_source_, __VA_ARGS__); } while (0)

#endif
