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
