/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_hint.c - What to try instead, in words of the command line
 *
 * Errors speak of the wire: their data.use is one of its commands. Verbs are no mechanical translation of
 * those (stop is vm-powerdown), hence a table; a test holds it against the verbs and the daemon's table.
 */
#include "cli_hint.h"

#include <string.h>

#include "base/tp_json.h"
#include "cli_out.h"
#include "cli_verb.h"

const struct cli_hint cli_hints[] = {
	{ "vm-start", "start", "" },
	{ "vm-hibernate", "hibernate", "" },
	{ "vm-restore", "restore", "" },
	{ "vm-pause", "pause", "" },
	{ "vm-resume", "resume", "" },
	{ "vm-reset", "reset", "" },
	{ "vm-powerdown", "stop", "" },
	{ "vm-quit", "quit", "" },
	{ "vm-discard", "discard", "" },
	{ "vm-resolve", "resolve", " here|elsewhere|nobody" },
	{ "vm-monitor", "monitor", " COMMAND" },
	{ "query-vm", "show", "" },
	{ .use = NULL },
};

/* --- arguments of the wire --- */

static const struct cli_option *option_of(const char *member, size_t n)
{
	for (const struct cli_verb *v = cli_verbs; v->name; v++)
		for (const struct cli_option *o = v->options; o && o->name; o++)
			if (o->member && strlen(o->member) == n && strncmp(o->member, member, n) == 0)
				return o;
	return NULL;
}

/* `"member": true`, `"member": "value"` at p: as the option into b. Its length, or 0. */
static size_t add_option(struct tp_buf *b, const char *p)
{
	static const char name[] = "abcdefghijklmnopqrstuvwxyz-";
	size_t n = *p == '"' ? strspn(p + 1, name) : 0, value;
	const struct cli_option *o = n && strncmp(p + 1 + n, "\": ", 3) == 0 ? option_of(p + 1, n) : NULL;
	const char *at = p + 1 + n + 3;

	if (!o)
		return 0;
	if (o->kind == CLI_FLAG && strncmp(at, "true", 4) == 0) {
		tp_buf_printf(b, "--%s", o->name);
		return (size_t)(at + 4 - p);
	}
	value = *at == '"' ? strspn(at + 1, name) : 0;
	if (o->kind == CLI_FLAG || !value || at[1 + value] != '"')
		return 0;
	tp_buf_printf(b, "--%s %.*s", o->name, (int)value, at + 1);
	return (size_t)(at + 1 + value + 1 - p);
}

const char *cli_own_words(const char *text, struct tp_buf *b)
{
	for (const char *p = text; *p;) {
		size_t n = add_option(b, p);

		if (!n)
			tp_buf_add(b, p, 1);
		p += n ? n : 1;
	}
	return b->data ? b->data : text;
}

/* --- commands of the wire --- */

void cli_note_hint(const char *subject, const json_t *error)
{
	const json_t *data = json_object_get(error, "data");
	const char *use = tp_json_str(data, "use"), *vm = tp_json_str(data, "vm");

	if (!vm)
		vm = subject ? subject : "NAME";
	for (const struct cli_hint *h = cli_hints; use && h->use; h++)
		if (strcmp(h->use, use) == 0)
			cli_note("try: torpor %s %s%s", h->verb, vm, h->rest);
}
