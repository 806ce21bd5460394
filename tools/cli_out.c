/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_out.c - What the client prints: JSON, text, errors */
#include "cli_out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_text.h"
#include "base/tp_time.h"
#include "cli_hint.h"
#include "cli_progress.h"

#define REAL_DIGITS 15	/* all that a double surely has: 1.1, not 1.1000000000000001 */
#define LOG_LINE 1000	/* bytes shown of a line of QEMU */
#define BYTES_MAX 1e18	/* more is nonsense */
#define MINUTE 60
#define HOUR 3600
#define DAY 86400

char *cli_clean(const char *text)
{
	char *copy = strdup(text ? text : "-");

	if (!copy)
		abort();
	tp_text_clean(copy);
	return copy;
}

__attribute__((format(printf, 1, 0))) static char *format(const char *fmt, va_list ap)
{
	char *text = NULL;

	if (vasprintf(&text, fmt, ap) < 0)
		abort();
	tp_text_clean(text);
	return text;
}

void cli_say(const char *fmt, ...)
{
	tp_autofree char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = format(fmt, ap);
	va_end(ap);
	cli_progress_hide();
	puts(text);
}

void cli_note(const char *fmt, ...)
{
	tp_autofree char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = format(fmt, ap);
	va_end(ap);
	cli_progress_hide();
	fflush(stdout);
	fprintf(stderr, "torpor: %s\n", text);
}

enum cli_status cli_flush(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CLI_DONE;
	cli_note("standard output cannot be written: %s", strerror(errno));
	return CLI_FAILED;
}

/* --- JSON --- */

static enum cli_status print_json(const json_t *value, size_t flags)
{
	/* A terminal might take C1 controls for commands; JSON itself only escapes those below a blank. */
	if (isatty(STDOUT_FILENO))
		flags |= JSON_ENSURE_ASCII;
	cli_progress_hide();
	if (json_dumpf(value, stdout, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(REAL_DIGITS)) == 0)
		putchar('\n');
	return cli_flush();
}

enum cli_status cli_print_json(const json_t *value)
{
	return print_json(value, JSON_INDENT(2));
}

enum cli_status cli_print_json_line(const json_t *value)
{
	return print_json(value, JSON_COMPACT);
}

/* --- errors --- */

static const struct {
	const char *class_;
	enum cli_status status;
} statuses[] = {
	{ "Busy", CLI_AGAIN }, { "Blocked", CLI_AGAIN }, { "Draining", CLI_AGAIN }, { "Conflict", CLI_AGAIN },
	{ "Timeout", CLI_TIMED_OUT }, { "Cancelled", CLI_TIMED_OUT }, { "DrainIncomplete", CLI_PARTIAL },
	{ "RollbackFailed", CLI_STUCK },
};

/* Of one error its class may be hopeless, though most errors of that class pass. */
static bool never_again(const json_t *error)
{
	const char *retry = tp_json_str(json_object_get(error, "data"), "retry");

	return retry && strcmp(retry, "never") == 0;
}

enum cli_status cli_error_status(const json_t *error)
{
	const char *class_ = tp_json_str(error, "class"), *use = tp_json_str(json_object_get(error, "data"), "use");
	const json_t *record = tp_json_path(error, "data.record");
	const char *rollback = tp_json_str(record, "rollback"), *status = tp_json_str(record, "status");

	if ((rollback && strcmp(rollback, "failed") == 0) || (status && strcmp(status, "stuck") == 0) ||
	    (use && strcmp(use, "vm-resolve") == 0))
		return CLI_STUCK;
	for (size_t i = 0; class_ && i < TP_N(statuses); i++)
		if (strcmp(statuses[i].class_, class_) == 0)
			return statuses[i].status == CLI_AGAIN && never_again(error) ? CLI_FAILED : statuses[i].status;
	return CLI_FAILED;
}

json_t *cli_error_object(const struct tp_error *err)
{
	tp_autofree char *text = cli_clean(err->text);

	return json_pack("{s:s, s:s}", "class", tp_error_class(err), "desc", text);
}

/* What QEMU said last, if the error tells. */
static void note_log_tail(const json_t *error)
{
	const char *tail = json_string_value(tp_json_path(error, "data.log-tail"));

	while (tail && *tail) {
		size_t n = strcspn(tail, "\n");

		if (n > 0)
			cli_note("QEMU: %.*s", n > LOG_LINE ? LOG_LINE : (int)n, tail);
		tail += n;
		tail += *tail == '\n';
	}
}

/* Whether name stands in text as a word: "a" does not in "has". */
static bool has_word(const char *text, const char *name)
{
	static const char inner[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	size_t n = strlen(name);

	for (const char *p = text; n > 0 && (p = strstr(p, name)); p++)
		if ((p == text || !strchr(inner, p[-1])) && (!p[n] || !strchr(inner, p[n])))
			return true;
	return false;
}

/* "subject: Class: desc": manuals are sorted by classes. GenericError is none that tells anything. */
static void note_error(const char *subject, const json_t *error)
{
	const char *desc = tp_json_str(error, "desc"), *class_ = tp_json_str(error, "class");
	bool classed = class_ && strcmp(class_, "GenericError") != 0;
	/* Most messages name their object already. */
	bool named = !subject || (desc && has_word(desc, subject));
	tp_autobuf struct tp_buf words = TP_BUF_INIT(1u << 20);

	cli_note("%s%s%s%s%s", named ? "" : subject, named ? "" : ": ", classed ? class_ : "", classed ? ": " : "",
		 desc ? cli_own_words(desc, &words) : "failed, and torpord did not say why");
}

enum cli_status cli_error(const char *subject, const json_t *error, bool print)
{
	note_error(subject, error);
	note_log_tail(error);
	cli_note_hint(subject, error);
	if (print)
		cli_print_json(error);
	return cli_error_status(error);
}

/* The client's own trouble needs no class to be looked up. */
enum cli_status cli_failed(const struct cli *cli, const struct tp_error *err)
{
	tp_autojson json_t *object = cli_error_object(err);

	cli_note("%s", err->text);
	if (cli->format == CLI_F_JSON)
		cli_print_json(object);
	return cli_error_status(object);
}

enum cli_status cli_refusal(const struct cli *cli, const json_t *error, enum cli_status status)
{
	const char *class_ = tp_json_str(error, "class");
	const char *argument = tp_json_str(json_object_get(error, "data"), "argument");

	if (!class_ || strcmp(class_, "GenericError") != 0 || !argument)
		return status;
	return cli_gave(cli, argument) ? CLI_USAGE : status;
}

enum cli_status cli_unreachable(const struct cli *cli, const struct tp_error *err)
{
	cli_failed(cli, err);
	return CLI_UNREACHABLE;
}

/* --- values --- */

uint64_t cli_bytes(double figure)
{
	if (!(figure > 0))
		return 0;
	return figure < BYTES_MAX ? (uint64_t)figure : (uint64_t)BYTES_MAX;
}

const char *cli_size(const json_t *value, char *buf)
{
	if (!json_is_number(value) || json_number_value(value) < 0)
		return "-";
	return tp_size_format(cli_bytes(json_number_value(value)), buf);
}

const char *cli_span(double seconds, char *buf)
{
	long long s = seconds < 1e12 ? (long long)seconds : 1000000000000ll;

	if (seconds < 0)
		return "-";
	if (seconds < 10)
		snprintf(buf, CLI_SPAN_TEXT, "%.1f s", seconds);
	else if (s < MINUTE)
		snprintf(buf, CLI_SPAN_TEXT, "%lld s", s);
	else if (s < HOUR)
		snprintf(buf, CLI_SPAN_TEXT, "%lld min %lld s", s / MINUTE, s % MINUTE);
	else if (s < DAY)
		snprintf(buf, CLI_SPAN_TEXT, "%lld h %lld min", s / HOUR, s % HOUR / MINUTE);
	else
		snprintf(buf, CLI_SPAN_TEXT, "%lld d %lld h", s / DAY, s % DAY / HOUR);
	return buf;
}

const char *cli_since(const char *text, char *buf)
{
	uint64_t at, now = tp_now_us();

	if (!text || !tp_time_parse(text, &at))
		return "-";
	return cli_span(at < now ? (double)(now - at) / 1e6 : 0, buf);
}

size_t cli_width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}
