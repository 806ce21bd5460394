/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_spec.c - Members of a VM's spec that people write with units
 *
 * The wire has bytes and seconds. What a verb's option takes as 500M or 7d, KEY=VALUE takes, too; a test holds
 * the table against the schema.
 */
#include "cli_spec.h"

#include <string.h>

#include "base/tp_json.h"
#include "base/tp_size.h"

const struct cli_spec_unit cli_spec_units[] = {
	{ "launch.hooks.timeout", CLI_DURATION },
	{ "hibernate.timeout", CLI_DURATION },
	{ "shutdown.timeout", CLI_DURATION },
	{ "storage.quota", CLI_SIZE },
	{ "storage.retain.age", CLI_DURATION },
	{ .path = NULL },
};

json_t *cli_spec_value(const char *path, const char *text, struct tp_error *err)
{
	const struct cli_spec_unit *u = cli_spec_units;
	uint64_t bytes;
	double seconds;

	while (u->path && strcmp(u->path, path) != 0)
		u++;
	if (!u->path)
		return json_string(text);
	if (u->kind == CLI_SIZE && tp_size_parse(text, &bytes) && bytes <= INT64_MAX)
		return json_integer((json_int_t)bytes);
	if (u->kind == CLI_DURATION && tp_duration_parse(text, &seconds))
		return json_real(seconds);
	tp_fail(err, TP_EARG, "%s: \"%.80s\" is not of the form %s", path, text,
		u->kind == CLI_SIZE ? "SIZE (500M, 40G)" : "TIME (90, 5m, 7d)");
	return NULL;
}
