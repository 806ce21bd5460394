/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_capacity.c - capacity: what the image of a VM may take, and where there is room for it */
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_dry.h"
#include "cli_each.h"
#include "cli_out.h"
#include "cli_session.h"
#include "cli_value.h"

static const char *yes_no(const json_t *object, const char *member)
{
	return tp_json_bool(object, member, false) ? "yes" : "no";
}

static void pool_table(const json_t *pools)
{
	static const char *const heads[] = { "POOL", "AVAILABLE", "QUOTA LEFT", "ADMITTED", "GUARANTEED", "WHY NOT" };
	struct cli_table t;
	json_t *pool;
	size_t i;
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT];

	cli_table_init(&t, heads, TP_N(heads));
	json_array_foreach(pools, i, pool) {
		cli_table_row(&t);
		cli_table_set(&t, 0, tp_json_str(pool, "pool"));
		cli_table_set(&t, 1, cli_size(json_object_get(pool, "available"), a));
		cli_table_set(&t, 2, cli_size(json_object_get(pool, "quota-left"), b));
		cli_table_set(&t, 3, yes_no(pool, "admitted"));
		cli_table_set(&t, 4, yes_no(pool, "guaranteed"));
		cli_table_set(&t, 5, tp_json_str(pool, "why-not"));
	}
	cli_table_print(&t);
	cli_table_free(&t);
}

/* Where a hibernation would go, of the pools in the table. */
static void own_pool_line(struct cli *cli, const char *name)
{
	tp_autojson json_t *vm = NULL, *error = NULL;
	struct tp_error err = TP_ERROR_INIT;
	const char *own;

	vm = cli_conn_call(cli->conn, "query-vm", json_pack("{s:s*}", "name", name), &error, &err);
	own = json_string_value(tp_json_path(vm, "spec.hibernate.pool"));
	if (vm)
		cli_say_line("pool", own ? own : "default");
}

static void show_capacity(struct cli *cli, const json_t *value)
{
	const json_t *restore = json_object_get(value, "restore"), *standing = json_object_get(value, "standing");
	const char *name = tp_json_str(value, "name"), *basis = tp_json_str(value, "basis");
	const char *mode = tp_json_str(restore, "mode"), *why = tp_json_str(restore, "why");
	char size[TP_SIZE_TEXT];

	cli_say("%s", name ? name : "-");
	cli_say("%-*s%s (%s)", CLI_LABEL_WIDTH, "worst case", cli_size(json_object_get(value, "worst-case"), size),
		tp_json_bool(value, "exact", false) ? "exact" : "estimated");
	cli_say("%-*s%s (by %s)", CLI_LABEL_WIDTH, "expected", cli_size(json_object_get(value, "expected"), size),
		basis ? basis : "-");
	if (standing)
		cli_say_line("standing", cli_size(standing, size));
	if (mode)
		cli_say("%-*s%s (%s)", CLI_LABEL_WIDTH, "restore", mode, why && *why ? why : "-");
	else
		cli_say_line("restore", why && *why ? why : "not known before the VM ran");
	cli_say_lazy(json_object_get(restore, "lazy"));
	own_pool_line(cli, name);
	cli_say_line("note", tp_json_str(value, "message"));
	pool_table(json_object_get(value, "pools"));
}

int cmd_capacity(struct cli *cli)
{
	return cli_each_show(cli, "name", show_capacity);
}
