/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_list.c - Lists: ls, ops, image ls, pool ls, df */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_out.h"
#include "cli_session.h"

/* @wide: columns from this one on are shown by -o wide only */
struct list {
	const char *const *heads;
	size_t columns, wide;
	const char *key;		/* what -o name prints */
	void (*row)(struct cli_table *t, const json_t *entry);
};

/* Columns past those that are shown are made and thrown away. */
static void print_table(const struct cli *cli, const struct list *list, const json_t *entries)
{
	size_t shown = cli->format == CLI_F_WIDE ? list->columns : list->wide;
	struct cli_table all, t;
	json_t *entry;
	size_t i;

	cli_table_init(&all, list->heads, list->columns);
	json_array_foreach(entries, i, entry) {
		cli_table_row(&all);
		list->row(&all, entry);
	}
	cli_table_init(&t, list->heads, shown);
	for (size_t r = 1; r < all.rows; r++) {
		cli_table_row(&t);
		for (size_t c = 0; c < shown; c++)
			cli_table_set(&t, c, all.cells[r * all.columns + c]);
	}
	cli_table_print(&t);
	cli_table_free(&t);
	cli_table_free(&all);
}

static int print_list(const struct cli *cli, const struct list *list, const json_t *entries)
{
	json_t *entry;
	size_t i;

	if (cli->format == CLI_F_JSON)
		return cli_print_json(entries);
	if (cli->format != CLI_F_NAME)
		print_table(cli, list, entries);
	else
		json_array_foreach(entries, i, entry)
			cli_say("%s", tp_json_str(entry, list->key) ? tp_json_str(entry, list->key) : "-");
	return cli_flush();
}

/* A number as text, or NULL. */
static const char *number(const json_t *value, char buf[24])
{
	if (!json_is_integer(value))
		return NULL;
	snprintf(buf, 24, "%lld", (long long)json_integer_value(value));
	return buf;
}

/* No quota is null or 0. */
static const char *quota(const json_t *pool, char *buf)
{
	return tp_json_num(pool, "quota", 0) > 0 ? cli_size(json_object_get(pool, "quota"), buf) : NULL;
}

/* "hibernate 45 %" */
static const char *operation_text(const json_t *op, char buf[64])
{
	const char *kind = tp_json_str(op, "kind"), *status = tp_json_str(op, "status");
	double percent = tp_json_num(json_object_get(op, "progress"), "percent", -1);

	if (!kind)
		return NULL;
	if (status && strcmp(status, "stuck") == 0)
		snprintf(buf, 64, "%.40s stuck", kind);
	else if (percent > 0)
		snprintf(buf, 64, "%.40s %.0f %%", kind, percent);
	else
		snprintf(buf, 64, "%.40s", kind);
	return buf;
}

/* --- VMs --- */

static void vm_row(struct cli_table *t, const json_t *vm)
{
	char buf[64], n[24], span[CLI_SPAN_TEXT], size[TP_SIZE_TEXT];
	const char *state = tp_json_str(vm, "state");
	bool hibernated = state && strcmp(state, "hibernated") == 0;

	cli_table_set(t, 0, tp_json_str(vm, "name"));
	cli_table_set(t, 1, state);
	cli_table_set(t, 2, tp_json_str(vm, "reason"));
	cli_table_set(t, 3, cli_since(tp_json_str(vm, "since"), span));
	cli_table_set(t, 4, operation_text(json_object_get(vm, "operation"), buf));
	cli_table_set(t, 5, number(json_object_get(vm, "pid"), n));
	cli_table_set(t, 6, tp_json_str(vm, "agent"));
	cli_table_set(t, 7, tp_json_str(vm, "qemu-version"));
	cli_table_set(t, 8, hibernated ? cli_size(tp_json_path(vm, "hibernation.bytes"), size) : NULL);
	cli_table_set(t, 9, tp_json_str(vm, "uid"));
}

static const char *const vm_heads[] = { "NAME", "STATE", "REASON", "SINCE", "OPERATION", "PID", "AGENT",
					"QEMU", "SAVED", "UID" };
static const struct list vm_list = { vm_heads, TP_N(vm_heads), 5, "name", vm_row };

/* Names that are no VMs: each is told. */
static int missing_names(const struct cli *cli, const json_t *vms)
{
	size_t missing = 0, i;
	json_t *vm;

	for (size_t k = 0; k < cli->noperands; k++) {
		bool found = false;

		json_array_foreach(vms, i, vm)
			found = found || strcmp(tp_json_str(vm, "name") ? tp_json_str(vm, "name") : "",
						cli->operands[k]) == 0;
		if (!found)
			cli_note("no VM is named \"%s\"", cli->operands[k]);
		missing += !found;
	}
	if (missing == 0)
		return CLI_DONE;
	return missing < cli->noperands ? CLI_PARTIAL : CLI_FAILED;
}

static json_t *operands_json(const struct cli *cli)
{
	json_t *names = json_array();

	for (size_t i = 0; i < cli->noperands; i++)
		json_array_append_new(names, json_string(cli->operands[i]));
	return names;
}

/* Whole VMs are asked for only where they are printed. */
static json_t *ls_arguments(const struct cli *cli)
{
	static const char *const fields[] = { "name", "state", "reason", "since", "operation", "pid", "agent",
					      "qemu-version", "hibernation", "uid" };
	json_t *arguments = json_object(), *list = json_array();

	for (size_t i = 0; i < (cli->format == CLI_F_NAME ? 1 : TP_N(fields)); i++)
		json_array_append_new(list, json_string(fields[i]));
	if (cli->format != CLI_F_JSON)
		tp_json_set(arguments, "fields", json_incref(list));
	json_decref(list);
	if (cli_text(cli, "selector"))
		tp_json_set_str(arguments, "selector", cli_text(cli, "selector"));
	if (cli_text(cli, "state"))
		tp_json_set_str(arguments, "state", cli_text(cli, "state"));
	if (cli->noperands > 0)
		tp_json_set(arguments, "names", operands_json(cli));
	return arguments;
}

int cmd_ls(struct cli *cli)
{
	tp_autojson json_t *vms = NULL;
	int status = cli_ask_list(cli, "query-vms", ls_arguments(cli), "name", &vms), missing;

	if (status != CLI_DONE)
		return status;
	missing = cli_text(cli, "state") ? CLI_DONE : missing_names(cli, vms);
	if (missing == CLI_FAILED && cli->format != CLI_F_JSON)
		return missing;
	status = print_list(cli, &vm_list, vms);
	return missing != CLI_DONE ? missing : status;
}

/*
 * Nothing was found of the VM that was named: CLI_DONE if there is such a VM. What was undefined may still have
 * records and images, hence the question comes last.
 */
static int check_named(struct cli *cli, const json_t *found)
{
	tp_autojson json_t *vm = NULL;

	if (cli->noperands == 0 || json_array_size(found) > 0)
		return CLI_DONE;
	return cli_ask(cli, "query-vm", json_pack("{s:s}", "name", cli->operands[0]), NULL, &vm);
}

/* Nothing was found in the pool that was named: CLI_DONE if there is such a pool. */
static int check_pool(struct cli *cli, const json_t *found)
{
	tp_autojson json_t *pools = NULL;
	const char *name = cli_text(cli, "pool");
	json_t *pool;
	size_t i;
	int status;

	if (!name || json_array_size(found) > 0)
		return CLI_DONE;
	status = cli_ask(cli, "query-pools", NULL, NULL, &pools);
	if (status != CLI_DONE)
		return status;
	json_array_foreach(pools, i, pool)
		if (tp_json_str(pool, "name") && strcmp(tp_json_str(pool, "name"), name) == 0)
			return CLI_DONE;
	cli_note("no pool is named \"%s\"", name);
	return CLI_FAILED;
}

/* --- operations --- */

static void op_row(struct cli_table *t, const json_t *op)
{
	char ago[CLI_SPAN_TEXT], percent[24];
	double p = tp_json_num(json_object_get(op, "progress"), "percent", -1);

	snprintf(percent, sizeof(percent), "%.0f %%", p);
	cli_table_set(t, 0, tp_json_str(op, "id"));
	cli_table_set(t, 1, tp_json_str(op, "vm"));
	cli_table_set(t, 2, tp_json_str(op, "kind"));
	cli_table_set(t, 3, tp_json_str(op, "status"));
	cli_table_set(t, 4, tp_json_str(op, "phase"));
	cli_table_set(t, 5, p >= 0 ? percent : NULL);
	cli_table_set(t, 6, cli_since(tp_json_str(op, "started"), ago));
	cli_table_set(t, 7, tp_json_str(json_object_get(op, "error"), "desc"));
}

static const char *const op_heads[] = { "ID", "VM", "KIND", "STATUS", "PHASE", "DONE", "AGO", "ERROR" };
static const struct list op_list = { op_heads, TP_N(op_heads), 7, "id", op_row };

int cmd_ops(struct cli *cli)
{
	tp_autojson json_t *ops = NULL, *arguments = cli_arguments(cli, NULL);
	int status;

	if (cli->noperands > 0)
		tp_json_set(arguments, "vm", json_string(cli->operands[0]));
	status = cli_ask(cli, cli->verb->command, json_incref(arguments), NULL, &ops);
	if (status == CLI_DONE)
		status = check_named(cli, ops);
	return status == CLI_DONE ? print_list(cli, &op_list, ops) : status;
}

/* --- images --- */

static void image_row(struct cli_table *t, const json_t *image)
{
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT], ago[CLI_SPAN_TEXT];

	cli_table_set(t, 0, tp_json_str(image, "id"));
	cli_table_set(t, 1, tp_json_str(image, "vm"));
	cli_table_set(t, 2, tp_json_str(image, "kind"));
	cli_table_set(t, 3, tp_json_str(image, "state"));
	cli_table_set(t, 4, tp_json_bool(image, "restorable", false) ? "yes" : "no");
	cli_table_set(t, 5, cli_size(json_object_get(image, "bytes"), a));
	cli_table_set(t, 6, cli_size(json_object_get(image, "raw-bytes"), b));
	cli_table_set(t, 7, cli_since(tp_json_str(image, "created"), ago));
	cli_table_set(t, 8, tp_json_str(image, "pool"));
	cli_table_set(t, 9, tp_json_str(image, "path"));
	/* A sentence: last, so that it pushes nothing away. */
	cli_table_set(t, 10, tp_json_str(image, "why-not"));
}

static const char *const image_heads[] = { "ID", "VM", "KIND", "STATE", "RESTORABLE", "SIZE", "RAW", "AGE", "POOL",
					   "PATH", "WHY NOT" };
static const struct list image_list = { image_heads, TP_N(image_heads), 8, "id", image_row };

int cmd_image_ls(struct cli *cli)
{
	tp_autojson json_t *images = NULL, *arguments = cli_arguments(cli, NULL);
	int status;

	if (cli->noperands > 0)
		tp_json_set(arguments, "vm", json_string(cli->operands[0]));
	status = cli_ask_list(cli, cli->verb->command, json_incref(arguments), "id", &images);
	if (status == CLI_DONE)
		status = check_named(cli, images);
	if (status == CLI_DONE)
		status = check_pool(cli, images);
	return status == CLI_DONE ? print_list(cli, &image_list, images) : status;
}

/* --- pools --- */

static void pool_row(struct cli_table *t, const json_t *pool)
{
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT], c[TP_SIZE_TEXT], d[TP_SIZE_TEXT];

	cli_table_set(t, 0, tp_json_str(pool, "name"));
	cli_table_set(t, 1, tp_json_str(pool, "state"));
	cli_table_set(t, 2, cli_size(json_object_get(pool, "used"), a));
	cli_table_set(t, 3, cli_size(json_object_get(pool, "available"), b));
	cli_table_set(t, 4, tp_json_str(pool, "path"));
	cli_table_set(t, 5, quota(pool, c));
	cli_table_set(t, 6, cli_size(json_object_get(pool, "low-water"), d));
	cli_table_set(t, 7, tp_json_str(pool, "source"));
	cli_table_set(t, 8, tp_json_str(pool, "message"));
}

static const char *const pool_heads[] = { "NAME", "STATE", "USED", "AVAILABLE", "PATH", "QUOTA", "LOW-WATER", "SOURCE",
					  "MESSAGE" };
static const struct list pool_list = { pool_heads, TP_N(pool_heads), 5, "name", pool_row };

/* As torpord counts what a new image may take. */
static double room(const json_t *pool)
{
	double reserved = tp_json_num(pool, "reserved", 0), limit = tp_json_num(pool, "quota", 0);
	double of_disk = tp_json_num(pool, "available", 0) - reserved;
	double of_quota = limit - tp_json_num(pool, "used", 0) - tp_json_num(pool, "standing", 0) - reserved;
	double least = limit > 0 && of_quota < of_disk ? of_quota : of_disk;

	return least > 0 ? least : 0;
}

/* Of the disk or of the quota, whichever is nearer to its end. */
static double full_percent(const json_t *pool)
{
	double total = tp_json_num(pool, "total", 0), limit = tp_json_num(pool, "quota", 0);
	double taken = tp_json_num(pool, "used", 0) + tp_json_num(pool, "standing", 0) + tp_json_num(pool, "reserved", 0);
	double of_disk = total > 0 ? 100 * (1 - tp_json_num(pool, "available", 0) / total) : 0;
	double of_quota = limit > 0 ? 100 * taken / limit : 0;

	return of_quota > of_disk ? of_quota : of_disk;
}

/* Of a pool that is not there, nothing is known but what is promised. */
static void df_row(struct cli_table *t, const json_t *pool)
{
	static const char *const sizes[] = { "total", "available", "used", "reserved", "standing" };
	static const size_t columns[] = { 3, 4, 6, 7, 8 };
	char text[TP_SIZE_TEXT], percent[24];
	bool there = tp_json_num(pool, "total", 0) > 0;

	snprintf(percent, sizeof(percent), "%.0f %%", full_percent(pool));
	cli_table_set(t, 0, tp_json_str(pool, "name"));
	cli_table_set(t, 1, tp_json_str(pool, "state"));
	cli_table_set(t, 2, there ? tp_size_format(cli_bytes(room(pool)), text) : NULL);
	for (size_t i = 0; i < TP_N(sizes); i++)
		cli_table_set(t, columns[i], there ? cli_size(json_object_get(pool, sizes[i]), text) : NULL);
	cli_table_set(t, 5, there ? percent : NULL);
	cli_table_set(t, 9, quota(pool, text));
	cli_table_set(t, 10, tp_json_str(pool, "path"));
}

static const char *const df_heads[] = { "POOL", "STATE", "ROOM", "SIZE", "AVAILABLE", "FULL", "IMAGES", "RESERVED",
					"STANDING", "QUOTA", "PATH" };
static const struct list df_list = { df_heads, TP_N(df_heads), TP_N(df_heads), "name", df_row };

static int list_pools(struct cli *cli, const struct list *list)
{
	tp_autojson json_t *pools = NULL;
	int status = cli_ask(cli, cli->verb->command, NULL, NULL, &pools);

	return status == CLI_DONE ? print_list(cli, list, pools) : status;
}

int cmd_pool_ls(struct cli *cli)
{
	return list_pools(cli, &pool_list);
}

int cmd_df(struct cli *cli)
{
	return list_pools(cli, &df_list);
}
