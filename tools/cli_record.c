/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_record.c - What is said of an operation's record once it has ended */
#include "cli_record.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_time.h"
#include "cli_out.h"

#define LINE_SIZE 4096

json_t *cli_record_error(const json_t *record)
{
	const json_t *error = json_object_get(record, "error");
	const char *class_ = tp_json_str(error, "class"), *desc = tp_json_str(error, "desc");
	json_t *data = json_object_get(error, "data") ? json_deep_copy(json_object_get(error, "data")) :
		       json_object();

	tp_json_set(data, "operation", json_incref(json_object_get(record, "id")));
	tp_json_set(data, "record", json_incref((json_t *)record));
	return json_pack("{s:s, s:s, s:o}", "class", class_ ? class_ : "GenericError", "desc",
			 desc ? desc : "the operation failed", "data", data);
}

void cli_record_warnings(const char *name, const json_t *record)
{
	json_t *warning;
	size_t i;

	json_array_foreach(json_object_get(record, "warnings"), i, warning)
		if (json_is_string(warning))
			cli_note("%s: warning: %s", name, json_string_value(warning));
}

static double seconds_of(const json_t *record)
{
	const char *from = tp_json_str(record, "started"), *to = tp_json_str(record, "ended");
	uint64_t a, b;

	if (!from || !to || !tp_time_parse(from, &a) || !tp_time_parse(to, &b) || b < a)
		return -1;
	return (double)(b - a) / 1e6;
}

/* What has no state in its result is about something else than the VM's life. */
static const char *done_word(const json_t *record)
{
	static const char *const words[][2] = { { "image-verify", "good" }, { "image-move", "moved" } };
	const char *kind = tp_json_str(record, "kind");

	for (size_t i = 0; kind && i < TP_N(words); i++)
		if (strcmp(words[i][0], kind) == 0)
			return words[i][1];
	return "done";
}

/* Of a restore until the guest ran; what came after that (its clock, its memory) nobody waits for. */
static double until_done(const json_t *record)
{
	const json_t *running = json_object_get(json_object_get(record, "result"), "running");

	return json_is_number(running) ? json_number_value(running) : seconds_of(record);
}

/* Milliseconds count here. */
static const char *brief(double seconds, char span[CLI_SPAN_TEXT])
{
	if (seconds >= 1)
		return cli_span(seconds, span);
	snprintf(span, CLI_SPAN_TEXT, "%.0f ms", seconds * 1000);
	return span;
}

static void say_memory(struct tp_buf *b, const json_t *result)
{
	const char *mode = tp_json_str(result, "mode");
	char span[CLI_SPAN_TEXT];

	if (!mode || strcmp(mode, "lazy") != 0)
		return;
	if (json_object_get(result, "whole"))
		tp_buf_printf(b, ", all its memory in %s", brief(tp_json_num(result, "whole", 0), span));
	else
		tp_buf_printf(b, ", its memory comes in meanwhile");
}

void cli_record_say(const char *name, const json_t *record)
{
	const json_t *result = json_object_get(record, "result");
	const char *vm = tp_json_str(record, "vm"), *state = tp_json_str(result, "state");
	const char *image = tp_json_str(result, "image");
	tp_autobuf struct tp_buf b = TP_BUF_INIT(LINE_SIZE);
	char size[TP_SIZE_TEXT], span[CLI_SPAN_TEXT];

	if (tp_json_bool(result, "unchanged", false)) {
		cli_say("%s: nothing to do", vm ? vm : name);
		return;
	}
	tp_buf_printf(&b, "%s: %s", vm ? vm : name, state ? state : done_word(record));
	if (until_done(record) >= 0)
		tp_buf_printf(&b, " in %s", brief(until_done(record), span));
	say_memory(&b, result);
	if (json_object_get(result, "raw-bytes")) {
		tp_buf_printf(&b, ", %s", cli_size(json_object_get(result, "bytes"), size));
		tp_buf_printf(&b, " of %s", cli_size(json_object_get(result, "raw-bytes"), size));
	}
	if (image)
		tp_buf_printf(&b, ", image %s", image);
	cli_say("%s", b.data);
}
