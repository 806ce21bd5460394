/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_show.c - One thing in full, for people: show, op show, check, host, version */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_each.h"
#include "cli_out.h"
#include "cli_session.h"

#define LABEL_WIDTH 14

/* "label         text"; nothing if there is no text. */
static void line(const char *label, const char *text)
{
	if (text && *text)
		cli_say("%-*s%s", LABEL_WIDTH, label, text);
}

static void member_line(const char *label, const json_t *object, const char *member)
{
	const json_t *value = json_object_get(object, member);

	if (json_is_string(value))
		line(label, json_string_value(value));
	else if (json_is_integer(value))
		cli_say("%-*s%lld", LABEL_WIDTH, label, (long long)json_integer_value(value));
}

static void size_line(const char *label, const json_t *value)
{
	char buf[TP_SIZE_TEXT];

	if (json_is_number(value))
		line(label, cli_size(value, buf));
}

/* --- VMs --- */

static void state_lines(const json_t *vm)
{
	const char *state = tp_json_str(vm, "state"), *reason = tp_json_str(vm, "reason");
	char span[CLI_SPAN_TEXT];

	cli_say("%-*s%s (%s) for %s", LABEL_WIDTH, "state", state ? state : "-", reason ? reason : "-",
		cli_since(tp_json_str(vm, "since"), span));
}

static void disk_lines(const json_t *vm)
{
	const char *id;
	json_t *disk;
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT];

	json_object_foreach(json_object_get(vm, "disks"), id, disk) {
		const char *file = tp_json_str(disk, "file"), *format = tp_json_str(disk, "format");

		cli_say("%-*s%s: %s, %s, %s of %s", LABEL_WIDTH, "disk", id, file ? file : "-", format ? format : "-",
			cli_size(json_object_get(disk, "allocated"), a),
			cli_size(json_object_get(disk, "virtual-size"), b));
	}
}

static void operation_line(const json_t *op)
{
	double percent = tp_json_num(json_object_get(op, "progress"), "percent", 0);
	const char *id = tp_json_str(op, "id"), *kind = tp_json_str(op, "kind"), *phase = tp_json_str(op, "phase");

	if (id)
		cli_say("%-*s%s: %s, %s, %.0f %%", LABEL_WIDTH, "operation", id, kind ? kind : "-",
			phase ? phase : "-", percent);
}

static void hibernation_lines(const json_t *h)
{
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT];
	const char *phase = tp_json_str(h, "phase");

	if (!json_is_object(h))
		return;
	line("hibernation", phase);
	member_line("  image", h, "image");
	if (json_is_number(json_object_get(h, "bytes")))
		cli_say("%-*s%s of %s", LABEL_WIDTH, "  size", cli_size(json_object_get(h, "bytes"), a),
			cli_size(json_object_get(h, "raw-bytes"), b));
	member_line("  ended", h, "ended");
	member_line("  message", h, "message");
}

static void condition_lines(const json_t *vm)
{
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(vm, "conditions"), i, c) {
		const char *type = tp_json_str(c, "type"), *status = tp_json_str(c, "status");
		const char *reason = tp_json_str(c, "reason"), *message = tp_json_str(c, "message");

		cli_say("%-*s%s %s (%s)%s%s", LABEL_WIDTH, i == 0 ? "conditions" : "", type ? type : "-",
			status ? status : "-", reason ? reason : "-", message && *message ? ": " : "",
			message ? message : "");
	}
}

static void exit_line(const json_t *last)
{
	tp_autofree char *text = json_is_object(last) ? json_dumps(last, JSON_COMPACT) : NULL;

	line("last exit", text);
}

static void launch_line(const json_t *vm)
{
	const json_t *launch = tp_json_path(vm, "spec.launch");
	tp_autobuf struct tp_buf b = TP_BUF_INIT(1u << 20);
	json_t *arg;
	size_t i;

	if (tp_json_str(launch, "binary"))
		tp_buf_adds(&b, tp_json_str(launch, "binary"));
	json_array_foreach(json_object_get(launch, "args"), i, arg)
		tp_buf_printf(&b, " %s", json_is_string(arg) ? json_string_value(arg) : "-");
	line("launch", b.data);
}

static void label_line(const json_t *vm)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(1u << 20);
	const char *key;
	json_t *value;

	json_object_foreach(json_object_get(vm, "labels"), key, value)
		tp_buf_printf(&b, "%s%s=%s", b.len ? " " : "", key, json_is_string(value) ? json_string_value(value) : "-");
	line("labels", b.data);
}

static void show_vm(const json_t *vm)
{
	member_line("name", vm, "name");
	member_line("uid", vm, "uid");
	state_lines(vm);
	member_line("generation", vm, "generation");
	label_line(vm);
	member_line("pid", vm, "pid");
	member_line("QEMU", vm, "qemu-version");
	member_line("QEMU status", vm, "qemu-status");
	member_line("agent", vm, "agent");
	launch_line(vm);
	disk_lines(vm);
	operation_line(json_object_get(vm, "operation"));
	hibernation_lines(json_object_get(vm, "hibernation"));
	exit_line(json_object_get(vm, "last-exit"));
	member_line("log", vm, "log");
	member_line("run folder", vm, "run-dir");
	condition_lines(vm);
}

/* --- operations --- */

static void timeline_lines(const json_t *op)
{
	json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(op, "timeline"), i, entry) {
		const char *phase = tp_json_str(entry, "phase"), *at = tp_json_str(entry, "at");

		cli_say("%-*s%s  %s", LABEL_WIDTH, i == 0 ? "timeline" : "", at ? at : "-", phase ? phase : "-");
	}
}

static void progress_line(const json_t *progress)
{
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT];

	if (tp_json_num(progress, "total-bytes", 0) > 0)
		cli_say("%-*s%s of %s", LABEL_WIDTH, "progress", cli_size(json_object_get(progress, "done-bytes"), a),
			cli_size(json_object_get(progress, "total-bytes"), b));
}

static void show_op(const json_t *op)
{
	const json_t *error = json_object_get(op, "error");
	tp_autofree char *result = json_object_get(op, "result") ?
				   json_dumps(json_object_get(op, "result"), JSON_COMPACT) : NULL;
	json_t *warning;
	size_t i;

	member_line("id", op, "id");
	member_line("VM", op, "vm");
	member_line("kind", op, "kind");
	member_line("status", op, "status");
	member_line("phase", op, "phase");
	line("committed", tp_json_bool(op, "committed", false) ? "yes" : "no");
	member_line("roll-back", op, "rollback");
	progress_line(json_object_get(op, "progress"));
	member_line("started", op, "started");
	member_line("ended", op, "ended");
	member_line("deadline", op, "deadline");
	if (error)
		cli_say("%-*s%s: %s", LABEL_WIDTH, "error", tp_json_str(error, "class") ? tp_json_str(error, "class") : "-",
			tp_json_str(error, "desc") ? tp_json_str(error, "desc") : "-");
	json_array_foreach(json_object_get(op, "warnings"), i, warning)
		line("warning", json_string_value(warning));
	line("result", result);
	timeline_lines(op);
}

/* --- several of them --- */

struct showing {
	struct cli_tally tally;
	void (*show)(const json_t *value);
	size_t shown;
};

static void show_answer(struct cli *cli, const char *name, const json_t *answer, void *arg)
{
	const json_t *error = json_object_get(answer, "error"), *value = json_object_get(answer, "return");
	struct showing *s = arg;

	if (error) {
		cli_tally_add(&s->tally, name, cli_error(name, error, false), error);
		return;
	}
	cli_tally_add(&s->tally, name, CLI_DONE, value);
	if (cli->format == CLI_F_JSON)
		return;
	if (s->shown++)
		cli_say("%s", "");
	s->show(value);
}

static int show_each(struct cli *cli, const char *member, void (*show)(const json_t *value))
{
	tp_autojson json_t *arguments = json_object();
	struct showing s = { .show = show };
	struct cli_names names;
	int status = cli_names(cli, &names);
	bool many = names.many;

	if (status == CLI_DONE)
		status = cli_each(cli, cli->verb->command, arguments, member, &names, show_answer, &s);
	cli_names_free(&names);
	if (status == CLI_DONE)
		return cli_tally_end(cli, &s.tally, many);
	json_decref(s.tally.list);
	return status;
}

int cmd_show(struct cli *cli)
{
	return show_each(cli, "name", show_vm);
}

int cmd_op_show(struct cli *cli)
{
	return show_each(cli, "id", show_op);
}

/* --- check --- */

static void show_estimate(const json_t *estimate)
{
	char size[TP_SIZE_TEXT], span[CLI_SPAN_TEXT];

	if (json_is_number(json_object_get(estimate, "bytes")))
		line("  takes", cli_size(json_object_get(estimate, "bytes"), size));
	if (json_is_number(json_object_get(estimate, "seconds")))
		line("  lasts", cli_span(tp_json_num(estimate, "seconds", 0), span));
}

static void show_checked(const char *name, const json_t *vm, const json_t *dry)
{
	json_t *entry;
	size_t i;

	cli_say("%s: %s", name, tp_json_bool(dry, "ok", false) ? "can hibernate" : "cannot hibernate");
	json_array_foreach(json_object_get(dry, "blockers"), i, entry) {
		const char *class_ = tp_json_str(entry, "class"), *desc = tp_json_str(entry, "desc");

		cli_say("%-*s%s: %s", LABEL_WIDTH, "  blocker", class_ ? class_ : "-", desc ? desc : "-");
	}
	json_array_foreach(json_object_get(dry, "warnings"), i, entry)
		line("  warning", json_string_value(entry));
	show_estimate(json_object_get(dry, "estimate"));
	condition_lines(vm);
}

/* A refusal of the dry run is what was asked for, too. */
static json_t *refused(const json_t *error)
{
	return json_pack("{s:b, s:[O], s:[], s:[]}", "ok", 0, "blockers", error, "warnings", "plan");
}

static void check_one(struct cli *cli, const char *name, struct cli_tally *tally, struct tp_error *err)
{
	tp_autojson json_t *error = NULL, *value = NULL, *dry = NULL;
	tp_autojson json_t *vm = cli_conn_call(cli->conn, "query-vm", json_pack("{s:s}", "name", name), &error, err);
	enum cli_status status;

	if (!vm) {
		if (error)
			cli_tally_add(tally, name, cli_error(name, error, false), error);
		return;
	}
	dry = cli_conn_call(cli->conn, cli->verb->command, json_pack("{s:s, s:b}", "name", name, "dry-run", 1), &error,
			    err);
	if (!dry && error)
		dry = refused(error);
	if (!dry)
		return;
	value = json_pack("{s:O, s:O}", "hibernate", dry, "conditions", json_object_get(vm, "conditions"));
	status = tp_json_bool(dry, "ok", false) ? CLI_DONE :
		 cli_error_status(json_array_get(json_object_get(dry, "blockers"), 0));
	cli_tally_returned(tally, name, status, value);
	if (cli->format != CLI_F_JSON)
		show_checked(name, vm, dry);
}

int cmd_check(struct cli *cli)
{
	struct cli_tally tally = { 0 };
	struct tp_error err = TP_ERROR_INIT;
	struct cli_names names;
	int status = cli_names(cli, &names);
	bool many = names.many;

	if (status == CLI_DONE)
		status = cli_online(cli);
	for (size_t i = 0; status == CLI_DONE && i < names.n; i++) {
		check_one(cli, names.names[i], &tally, &err);
		if (err.code != TP_OK)
			status = cli_unreachable(cli, &err);
	}
	cli_names_free(&names);
	if (status == CLI_DONE)
		return cli_tally_end(cli, &tally, many);
	json_decref(tally.list);
	return status;
}

/* --- host, version --- */

int cmd_host(struct cli *cli)
{
	tp_autojson json_t *host = NULL;
	int status = cli_ask(cli, cli->verb->command, NULL, NULL, &host);
	json_t *pool;
	size_t i;
	char size[TP_SIZE_TEXT];

	if (status != CLI_DONE)
		return status;
	if (cli->format == CLI_F_JSON)
		return cli_print_json(host);
	line("draining", tp_json_bool(host, "draining", false) ? "yes" : "no");
	size_line("memory", tp_json_path(host, "memory.total"));
	size_line("available", tp_json_path(host, "memory.available"));
	json_array_foreach(json_object_get(host, "pools"), i, pool) {
		const char *name = tp_json_str(pool, "name"), *state = tp_json_str(pool, "state");

		cli_say("%-*s%s: %s, %s available", LABEL_WIDTH, "pool", name ? name : "-", state ? state : "-",
			cli_size(json_object_get(pool, "available"), size));
	}
	if (json_object_get(host, "qemu")) {
		tp_autofree char *text = json_dumps(json_object_get(host, "qemu"), JSON_COMPACT | JSON_ENCODE_ANY);

		line("QEMU", text);
	}
	return cli_flush();
}

int cmd_version(struct cli *cli)
{
	tp_autojson json_t *version = NULL;
	int status;

	if (cli->format != CLI_F_JSON)
		cli_say("client        torpor %s", TP_VERSION);
	fflush(stdout);
	status = cli_ask(cli, cli->verb->command, NULL, NULL, &version);
	if (status != CLI_DONE)
		return status;
	if (cli->format == CLI_F_JSON)
		return cli_print_json(version);
	cli_say("daemon        torpor %s (api %lld), pid %lld on %s",
		tp_json_str(version, "torpor") ? tp_json_str(version, "torpor") : "-",
		(long long)tp_json_int(version, "api", 0), (long long)tp_json_int(version, "pid", 0),
		tp_json_str(version, "host") ? tp_json_str(version, "host") : "-");
	return cli_flush();
}
