/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_dry.c - What a dry run found, for people */
#include "cli_dry.h"

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_out.h"
#include "cli_value.h"

#define PHASES_SIZE 65536

/* Nothing is written by a start, and no guest stands still then. */
static void size_line(const char *label, const json_t *estimate, const char *member)
{
	char size[TP_SIZE_TEXT];

	if (tp_json_num(estimate, member, 0) > 0)
		cli_say_line(label, cli_size(json_object_get(estimate, member), size));
}

static void span_line(const char *label, const json_t *estimate, const char *member)
{
	char span[CLI_SPAN_TEXT];

	if (tp_json_num(estimate, member, 0) > 0)
		cli_say_line(label, cli_span(tp_json_num(estimate, member, 0), span));
}

static void phases_line(const json_t *plan)
{
	tp_autobuf struct tp_buf phases = TP_BUF_INIT(PHASES_SIZE);
	json_t *phase;
	size_t i;

	json_array_foreach(plan, i, phase)
		tp_buf_printf(&phases, "%s%s", i ? ", " : "", json_is_string(phase) ? json_string_value(phase) : "-");
	cli_say_line("  phases", phases.data);
}

void cli_say_dry(const json_t *dry)
{
	const json_t *estimate = json_object_get(dry, "estimate");
	json_t *warning;
	size_t i;

	cli_say_line("  mode", tp_json_str(estimate, "mode"));
	size_line("  at most", estimate, "bytes");
	size_line("  expected", estimate, "expected");
	span_line("  takes", estimate, "seconds");
	span_line("  guest halts", estimate, "pause");
	phases_line(json_object_get(dry, "plan"));
	json_array_foreach(json_object_get(dry, "warnings"), i, warning)
		cli_say_line("  warning", json_string_value(warning));
}

void cli_say_blockers(const json_t *dry)
{
	json_t *blocker;
	size_t i;

	json_array_foreach(json_object_get(dry, "blockers"), i, blocker) {
		const char *class_ = tp_json_str(blocker, "class"), *desc = tp_json_str(blocker, "desc");

		cli_say("%-*s%s: %s", CLI_LABEL_WIDTH, "  blocker", class_ ? class_ : "-", desc ? desc : "-");
	}
}

void cli_say_lazy(const json_t *lazy)
{
	const char *why = tp_json_str(lazy, "why");

	if (lazy)
		cli_say("%-*s%s (%s)", CLI_LABEL_WIDTH, "lazy restore",
			tp_json_bool(lazy, "possible", false) ? "yes" : "no", why ? why : "-");
}

enum cli_status cli_dry_status(const json_t *dry)
{
	if (tp_json_bool(dry, "ok", false))
		return CLI_DONE;
	return cli_error_status(json_array_get(json_object_get(dry, "blockers"), 0));
}
