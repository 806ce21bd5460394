/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_damage.c - Damages of an image, for people */
#include "cli_damage.h"

#include <stdio.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_out.h"

static const char *const heads[] = { "FRAME", "OFFSET", "BYTES", "BLOCK", "PAGES", "WITH DATA", "DAMAGE" };

static const char *number(const json_t *o, const char *key, char buf[24])
{
	const json_t *value = json_object_get(o, key);

	if (!json_is_integer(value))
		return NULL;
	snprintf(buf, 24, "%lld", (long long)json_integer_value(value));
	return buf;
}

static void set_pages(struct cli_table *t, const json_t *range)
{
	int64_t first = tp_json_int(range, "first-page", -1), pages = tp_json_int(range, "pages", 0);
	char text[48];

	if (first < 0 || pages < 1)
		return;
	snprintf(text, sizeof(text), "%lld-%lld", (long long)first, (long long)first + pages - 1);
	cli_table_set(t, 3, tp_json_str(range, "block"));
	cli_table_set(t, 4, text);
}

static void add_damage(struct cli_table *t, const json_t *d)
{
	const json_t *ranges = json_object_get(d, "ranges");
	char text[24];

	cli_table_row(t);
	cli_table_set(t, 0, number(d, "frame", text));
	cli_table_set(t, 1, number(d, "offset", text));
	cli_table_set(t, 2, number(d, "length", text));
	set_pages(t, d);
	cli_table_set(t, 5, number(d, "lost", text));
	cli_table_set(t, 6, tp_json_str(d, "what"));
	for (size_t i = 1; i < json_array_size(ranges); i++) {
		cli_table_row(t);
		set_pages(t, json_array_get(ranges, i));
	}
}

void cli_say_damage(const json_t *error, const char *image)
{
	const json_t *data = json_object_get(error, "data"), *list = json_object_get(data, "damage");
	int64_t n = (int64_t)json_array_size(list), all = tp_json_int(data, "damaged", n);
	struct cli_table t;

	if (n < 1)
		return;
	cli_table_init(&t, heads, TP_N(heads));
	for (int64_t i = 0; i < n; i++)
		add_damage(&t, json_array_get(list, (size_t)i));
	cli_table_print(&t);
	cli_table_free(&t);
	if (all > n)
		cli_say("and %lld more", (long long)(all - n));
	cli_say("No VM can be restored from it; a copy of it may still be good.");
	cli_say("torpor image cat --salvage %s > STREAM writes what can be read of it.", image);
	cli_say("torpor discard VM gives up the state of a hibernated VM, torpor image rm ID any other "
		"image.");
}
