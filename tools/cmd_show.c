/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_show.c - One thing in full, for people: show, op show, host, version */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "cli_each.h"
#include "cli_out.h"
#include "cli_session.h"
#include "cli_value.h"

static void member_line(const char *label, const json_t *object, const char *member)
{
	const json_t *value = json_object_get(object, member);

	if (json_is_string(value))
		cli_say_line(label, json_string_value(value));
	else if (json_is_integer(value))
		cli_say("%-*s%lld", CLI_LABEL_WIDTH, label, (long long)json_integer_value(value));
}

static void size_line(const char *label, const json_t *value)
{
	char buf[TP_SIZE_TEXT];

	if (json_is_number(value))
		cli_say_line(label, cli_size(value, buf));
}

/* --- VMs --- */

static void state_lines(const json_t *vm)
{
	const char *state = tp_json_str(vm, "state"), *reason = tp_json_str(vm, "reason");
	char span[CLI_SPAN_TEXT];

	cli_say("%-*s%s (%s) for %s", CLI_LABEL_WIDTH, "state", state ? state : "-", reason ? reason : "-",
		cli_since(tp_json_str(vm, "since"), span));
}

static void disk_lines(const json_t *vm)
{
	const char *id;
	json_t *disk;
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT];

	json_object_foreach(json_object_get(vm, "disks"), id, disk) {
		const char *file = tp_json_str(disk, "file"), *format = tp_json_str(disk, "format");

		cli_say("%-*s%s: %s, %s, %s of %s", CLI_LABEL_WIDTH, "disk", id, file ? file : "-", format ? format : "-",
			cli_size(json_object_get(disk, "allocated"), a),
			cli_size(json_object_get(disk, "virtual-size"), b));
	}
}

static void operation_line(const json_t *op)
{
	double percent = tp_json_num(json_object_get(op, "progress"), "percent", 0);
	const char *id = tp_json_str(op, "id"), *kind = tp_json_str(op, "kind"), *phase = tp_json_str(op, "phase");

	if (id)
		cli_say("%-*s%s: %s, %s, %.0f %%", CLI_LABEL_WIDTH, "operation", id, kind ? kind : "-",
			phase ? phase : "-", percent);
}

/* What is saved now, or the record of what was: of that only its VM's state tells. */
static void hibernation_lines(const json_t *vm)
{
	const json_t *h = json_object_get(vm, "hibernation");
	const char *state = tp_json_str(vm, "state"), *image = tp_json_str(h, "image"), *phase = tp_json_str(h, "phase");
	bool now = state && (strcmp(state, "hibernated") == 0 || strcmp(state, "hibernating") == 0);
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT];

	if (!json_is_object(h))
		return;
	cli_say("%-*s%s%s", CLI_LABEL_WIDTH, "hibernation", now ? "" : "none now; the last one: ", phase ? phase : "-");
	if (image && json_is_number(json_object_get(h, "bytes")))
		cli_say("%-*simage %s, %s of %s", CLI_LABEL_WIDTH, "", image, cli_size(json_object_get(h, "bytes"), a),
			cli_size(json_object_get(h, "raw-bytes"), b));
	if (tp_json_str(h, "ended"))
		cli_say("%-*sended %s", CLI_LABEL_WIDTH, "", tp_json_str(h, "ended"));
	cli_say_line("", tp_json_str(h, "message"));
}

/* All images that are there, with where they are: a VM may have some besides the one it would go on from. */
static void image_lines(struct cli *cli, const json_t *vm)
{
	tp_autojson json_t *images = NULL, *error = NULL;
	struct tp_error err = TP_ERROR_INIT;
	json_t *image;
	size_t i;
	char size[TP_SIZE_TEXT];

	images = cli_conn_call(cli->conn, "query-images", json_pack("{s:s*}", "vm", tp_json_str(vm, "name")), &error,
			       &err);
	json_array_foreach(images, i, image) {
		const char *id = tp_json_str(image, "id"), *kind = tp_json_str(image, "kind");
		const char *state = tp_json_str(image, "state"), *pool = tp_json_str(image, "pool");

		cli_say("%-*s%s: %s, %s, %s in pool %s", CLI_LABEL_WIDTH, "image", id ? id : "-", kind ? kind : "-",
			state ? state : "-", cli_size(json_object_get(image, "bytes"), size), pool ? pool : "-");
		cli_say_line("", tp_json_str(image, "path"));
	}
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
	cli_say_line("launch", b.data);
}

static void label_line(const json_t *vm)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(1u << 20);
	const char *key;
	json_t *value;

	json_object_foreach(json_object_get(vm, "labels"), key, value)
		tp_buf_printf(&b, "%s%s=%s", b.len ? " " : "", key, json_is_string(value) ? json_string_value(value) : "-");
	cli_say_line("labels", b.data);
}

/* What was set of the rest of the spec; what was not has its default. */
static void settings_lines(const json_t *spec)
{
	static const char *const parts[] = { "hibernate", "restore", "shutdown", "storage" };

	for (size_t i = 0; i < TP_N(parts); i++)
		if (json_is_object(json_object_get(spec, parts[i])))
			cli_say_value(parts[i], json_object_get(spec, parts[i]));
}

/* Memory that still comes from the image. */
static void prefetch_lines(const json_t *vm)
{
	const json_t *p = json_object_get(vm, "prefetch");
	const char *image = tp_json_str(p, "image"), *state = tp_json_str(p, "state");
	char done[TP_SIZE_TEXT], total[TP_SIZE_TEXT];

	if (!json_is_object(p))
		return;
	cli_say("%-*s%d%%, %s of %s from image %s, %s", CLI_LABEL_WIDTH, "prefetch", (int)tp_json_int(p, "percent", 0),
		cli_size(json_object_get(p, "done-bytes"), done), cli_size(json_object_get(p, "total-bytes"), total),
		image ? image : "-", state && *state ? state : "-");
	cli_say_line("", tp_json_str(p, "message"));
}

/* A hibernation ends QEMU by a signal, once all is saved: that is no crash to be looked into. */
static void exit_lines(const json_t *vm)
{
	const char *state = tp_json_str(vm, "state");
	const char *reason = tp_json_str(json_object_get(vm, "last-exit"), "reason");

	if (state && reason && strcmp(state, "hibernated") == 0 && strcmp(reason, "quit") == 0)
		cli_say_line("last exit", "hibernated");
	else
		cli_say_value("last exit", json_object_get(vm, "last-exit"));
}

static void show_vm(struct cli *cli, const json_t *vm)
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
	settings_lines(json_object_get(vm, "spec"));
	disk_lines(vm);
	operation_line(json_object_get(vm, "operation"));
	prefetch_lines(vm);
	hibernation_lines(vm);
	image_lines(cli, vm);
	exit_lines(vm);
	member_line("log", vm, "log");
	member_line("run folder", vm, "run-dir");
	cli_say_conditions(vm);
}

/* --- operations --- */

static void timeline_lines(const json_t *op)
{
	json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(op, "timeline"), i, entry) {
		const char *phase = tp_json_str(entry, "phase"), *at = tp_json_str(entry, "at");

		cli_say("%-*s%s  %s", CLI_LABEL_WIDTH, i == 0 ? "timeline" : "", at ? at : "-", phase ? phase : "-");
	}
}

static void progress_line(const json_t *progress)
{
	char a[TP_SIZE_TEXT], b[TP_SIZE_TEXT];

	if (tp_json_num(progress, "total-bytes", 0) > 0)
		cli_say("%-*s%s of %s", CLI_LABEL_WIDTH, "progress", cli_size(json_object_get(progress, "done-bytes"), a),
			cli_size(json_object_get(progress, "total-bytes"), b));
}

/* What is in data is for programs, but for what QEMU said last. */
static void error_lines(const json_t *error)
{
	const char *class_ = tp_json_str(error, "class"), *desc = tp_json_str(error, "desc");

	cli_say("%-*s%s: %s", CLI_LABEL_WIDTH, "error", class_ ? class_ : "-", desc ? desc : "-");
	cli_say_value("  QEMU", tp_json_path(error, "data.log-tail"));
}

static void show_op(struct cli *cli, const json_t *op)
{
	const json_t *error = json_object_get(op, "error");
	json_t *warning;
	size_t i;

	(void)cli;
	member_line("id", op, "id");
	member_line("VM", op, "vm");
	member_line("kind", op, "kind");
	member_line("status", op, "status");
	member_line("phase", op, "phase");
	cli_say_line("committed", tp_json_bool(op, "committed", false) ? "yes" : "no");
	member_line("roll-back", op, "rollback");
	if (!tp_json_str(op, "ended"))
		progress_line(json_object_get(op, "progress"));
	member_line("started", op, "started");
	member_line("ended", op, "ended");
	member_line("deadline", op, "deadline");
	if (error)
		error_lines(error);
	json_array_foreach(json_object_get(op, "warnings"), i, warning)
		cli_say_line("warning", json_string_value(warning));
	cli_say_value("result", json_object_get(op, "result"));
	timeline_lines(op);
}

/* --- several of them --- */

int cmd_show(struct cli *cli)
{
	return cli_each_show(cli, "name", show_vm);
}

int cmd_op_show(struct cli *cli)
{
	return cli_each_show(cli, "id", show_op);
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
	cli_say_line("draining", tp_json_bool(host, "draining", false) ? "yes" : "no");
	size_line("memory", tp_json_path(host, "memory.total"));
	size_line("available", tp_json_path(host, "memory.available"));
	json_array_foreach(json_object_get(host, "pools"), i, pool) {
		const char *name = tp_json_str(pool, "name"), *state = tp_json_str(pool, "state");
		bool missing = state && strcmp(state, "missing") == 0;

		cli_say("%-*s%s: %s%s%s%s", CLI_LABEL_WIDTH, "pool", name ? name : "-", state ? state : "-",
			missing ? "" : ", ", missing ? "" : cli_size(json_object_get(pool, "available"), size),
			missing ? "" : " available");
	}
	cli_say("%-*s%lld defined, %lld with a QEMU", CLI_LABEL_WIDTH, "VMs",
		(long long)tp_json_int(json_object_get(host, "qemu"), "vms", 0),
		(long long)tp_json_int(json_object_get(host, "qemu"), "running", 0));
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
