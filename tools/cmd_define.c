/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_define.c - define, run, set: specs from files and command lines
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "cli_follow.h"
#include "cli_out.h"
#include "cli_session.h"
#include "cli_spec.h"

#define DEFAULT_BINARY "qemu-system-x86_64"
#define FILE_MAX (1u << 20)	/* torpord takes no longer request */
#define FILE_DEPTH 64
#define QCOW2_MAGIC "QFI\xfb"
#define QCOW2_MAGIC_SIZE 4

/* --- disks --- */

static bool has_suffix(const char *file, const char *suffix)
{
	size_t n = strlen(file), m = strlen(suffix);

	return n >= m && strcmp(file + n - m, suffix) == 0;
}

/* NULL: the file cannot be read. */
static const char *format_by_content(const char *file)
{
	tp_autoclose int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char magic[QCOW2_MAGIC_SIZE];
	ssize_t n = fd < 0 ? -1 : pread(fd, magic, sizeof(magic), 0);

	if (n < 0)
		return NULL;
	return n == (ssize_t)sizeof(magic) && memcmp(magic, QCOW2_MAGIC, sizeof(magic)) == 0 ? "qcow2" : "raw";
}

/*
 * The suffix decides where it is clear. The content is believed only of other names, and said: the guest of
 * a raw disk can write what looks like another format.
 */
static const char *guess_format(const char *id, const char *file)
{
	const char *format;

	if (has_suffix(file, ".qcow2"))
		return "qcow2";
	if (has_suffix(file, ".raw"))
		return "raw";
	format = format_by_content(file);
	if (format)
		cli_note("disk %s: format %s, by the content of %s; format=raw or format=qcow2 says for sure", id,
			 format, file);
	return format;
}

/* The next part up to a comma, of which two mean one; moves *text behind it. NULL: no more. */
static char *next_part(const char **text)
{
	char *part, *to;

	if (!*text)
		return NULL;
	part = to = calloc(1, strlen(*text) + 1);
	if (!part)
		abort();
	for (; **text && (**text != ',' || (*text)[1] == ','); (*text)++) {
		*to++ = **text;
		*text += **text == ',';
	}
	*to = 0;
	*text = **text ? *text + 1 : NULL;
	return part;
}

static bool take_disk_option(json_t *disk, const char *id, const char *part, struct tp_error *err)
{
	if (strncmp(part, "format=", 7) == 0)
		return tp_json_set_str(disk, "format", part + 7) || tp_fail(err, TP_EARG, "--disk %s: format", id);
	if (strcmp(part, "read-only") == 0)
		return tp_json_set(disk, "read-only", json_true());
	return tp_fail(err, TP_EARG, "--disk %s: \"%s\" is neither format=FORMAT nor read-only", id, part);
}

/* ID=FILE[,format=FORMAT][,read-only] */
static bool take_disk(json_t *disks, const char *text, struct tp_error *err)
{
	size_t n = strcspn(text, "=");
	tp_autofree char *id = strndup(text, n), *file = NULL;
	const char *rest = text[n] ? text + n + 1 : NULL, *format;
	json_t *disk;

	if (!id)
		return tp_fail_nomem(err);
	file = next_part(&rest);
	if (!file || !*id || !*file)
		return tp_fail(err, TP_EARG, "--disk %s: not of the form ID=FILE", text);
	if (json_object_get(disks, id))
		return tp_fail(err, TP_EARG, "--disk %s: given twice", id);
	disk = json_object();
	if (!tp_json_set(disks, id, disk))
		return tp_fail(err, TP_EARG, "--disk %s: not UTF-8", text);
	tp_json_set(disk, "file", cli_absolute(file));
	while (rest) {
		tp_autofree char *part = next_part(&rest);

		if (!take_disk_option(disk, id, part, err))
			return false;
	}
	if (json_object_get(disk, "format"))
		return true;
	format = guess_format(id, file);
	if (!format)
		return tp_fail(err, TP_EARG, "--disk %s: %s cannot be read to find its format (%s); give format=", id,
			       file, strerror(errno));
	return tp_json_set_str(disk, "format", format);
}

/* --- a spec from a command line --- */

static json_t *arguments_of(const struct cli *cli, json_t *launch)
{
	json_t *args = json_array();
	size_t i = 0;

	if (cli->nafter > 0 && cli->after[0][0] != '-') {
		const char *binary = cli->after[i++];

		tp_json_set(launch, "binary", strchr(binary, '/') ? cli_absolute(binary) : json_string(binary));
	} else {
		tp_json_set_str(launch, "binary", DEFAULT_BINARY);
	}
	for (; i < cli->nafter; i++)
		json_array_append_new(args, json_string(cli->after[i]));
	return args;
}

static void set_socket(const struct cli *cli, json_t *launch, const char *option)
{
	const char *value = cli_text(cli, option);

	if (value)
		tp_json_set(launch, option, strcmp(value, "auto") == 0 ? json_string(value) : cli_absolute(value));
}

static bool take_label(json_t *labels, const char *text, struct tp_error *err)
{
	size_t n = strcspn(text, "=");
	tp_autofree char *key = strndup(text, n);

	if (!key)
		return tp_fail_nomem(err);
	if (!*key || !text[n] || !tp_json_set(labels, key, json_string(text + n + 1)))
		return tp_fail(err, TP_EARG, "--label %s: not of the form KEY=VALUE", text);
	return true;
}

/* Members that were given more than once; fn takes each into *object. */
static bool take_each(const struct cli *cli, const char *option, json_t *object,
		      bool (*fn)(json_t *object, const char *text, struct tp_error *err), struct tp_error *err)
{
	json_t *text;
	size_t i;

	json_array_foreach(json_object_get(cli->options, option), i, text)
		if (!fn(object, json_string_value(text), err))
			return false;
	return true;
}

static json_t *spec_of_line(const struct cli *cli, struct tp_error *err)
{
	json_t *launch = json_object(), *disks = json_object(), *labels = json_object();
	tp_autojson json_t *spec = json_pack("{s:i, s:o}", "api", 1, "launch", launch);

	tp_json_set(launch, "args", arguments_of(cli, launch));
	tp_json_set(launch, "disks", disks);
	tp_json_set(spec, "labels", labels);
	set_socket(cli, launch, "agent");
	set_socket(cli, launch, "console");
	if (!take_each(cli, "disk", disks, take_disk, err) || !take_each(cli, "label", labels, take_label, err))
		return NULL;
	if (json_object_size(disks) == 0)
		json_object_del(launch, "disks");
	if (json_object_size(labels) == 0)
		json_object_del(spec, "labels");
	return TP_STEAL(spec);
}

/* --- a spec from a file --- */

static char *read_all(int fd, size_t *n, struct tp_error *err)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(FILE_MAX);
	char part[4096];
	ssize_t got;

	while ((got = read(fd, part, sizeof(part))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			tp_fail_sys(err, errno, "cannot be read");
			return NULL;
		}
		if (!tp_buf_add(&b, part, (size_t)got)) {
			tp_fail(err, TP_ELIMIT, "is longer than %u KiB", FILE_MAX >> 10);
			return NULL;
		}
	}
	*n = b.len;
	return tp_buf_steal(&b);
}

static json_t *read_json(const char *file, struct tp_error *err)
{
	bool standard = strcmp(file, "-") == 0;
	tp_autoclose int fd = standard ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	tp_autofree char *text = NULL;
	size_t n;

	if (fd < 0) {
		tp_fail_sys(err, errno, "cannot be opened");
		return NULL;
	}
	text = read_all(fd, &n, err);
	return text ? tp_json_parse(text, n, FILE_DEPTH, err) : NULL;
}

/* A bare spec is of the VM that the file is named after. */
static char *name_of_file(const char *file)
{
	const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
	size_t n = strlen(base);

	return strndup(base, has_suffix(base, ".json") ? n - 5 : n);
}

/* {"name", "spec"} of a file. */
static json_t *definition_of_file(const char *file, struct tp_error *err)
{
	tp_autojson json_t *content = read_json(file, err);
	tp_autofree char *name = name_of_file(file);

	if (content && !json_is_object(content))
		tp_fail(err, TP_EARG, "is no JSON object");
	else if (content && json_object_get(content, "spec"))
		return TP_STEAL(content);
	else if (content && strcmp(file, "-") == 0)
		tp_fail(err, TP_EARG, "has no \"name\" and \"spec\"");
	else if (content)
		return json_pack("{s:s, s:O}", "name", name, "spec", content);
	tp_prefix(err, "%s", strcmp(file, "-") == 0 ? "standard input" : file);
	return NULL;
}

/* --- what is not there --- */

static bool in_path(const char *program)
{
	const char *path = getenv("PATH");
	char file[PATH_MAX];

	for (const char *p = path ? path : ""; *p; p += strcspn(p, ":"), p += *p == ':')
		if (snprintf(file, sizeof(file), "%.*s/%s", (int)strcspn(p, ":"), p, program) < (int)sizeof(file) &&
		    access(file, X_OK) == 0)
			return true;
	return false;
}

/* It may come until the VM is started, but more often it is a slip. What may not be looked at is not told. */
static void warn_missing(const json_t *d)
{
	const json_t *launch = tp_json_path(d, "spec.launch");
	const char *binary = tp_json_str(launch, "binary"), *name = tp_json_str(d, "name"), *id;
	json_t *disk;

	if (!name)
		return;
	if (binary && (strchr(binary, '/') ? access(binary, X_OK) != 0 && errno == ENOENT : !in_path(binary)))
		cli_note("%s: warning: %s is not %s; without it the VM will not start", name, binary,
			 strchr(binary, '/') ? "there" : "in PATH");
	json_object_foreach(json_object_get(launch, "disks"), id, disk) {
		const char *file = tp_json_str(disk, "file");

		if (file && access(file, F_OK) != 0 && errno == ENOENT)
			cli_note("%s: warning: disk %s: %s is not there; without it the VM will not start", name, id,
				 file);
	}
}

/* --- verbs --- */

static bool line_options_given(const struct cli *cli)
{
	return json_object_get(cli->options, "disk") || json_object_get(cli->options, "label") ||
	       json_object_get(cli->options, "agent") || json_object_get(cli->options, "console");
}

/* vm-define's arguments; NULL: *status, all said. */
static json_t *definition(struct cli *cli, int *status)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *d, *spec;

	*status = CLI_USAGE;
	if (cli->dashes) {
		spec = spec_of_line(cli, &err);
		if (spec)
			return json_pack("{s:s, s:o}", "name", cli->operands[0], "spec", spec);
		cli_usage(cli, "%s", err.text);
		return NULL;
	}
	if (line_options_given(cli)) {
		cli_usage(cli, "--disk, --agent, --console and --label go with NAME -- QEMU-ARG...");
		return NULL;
	}
	d = definition_of_file(cli->operands[0], &err);
	if (!d)
		*status = cli_failed(cli, &err);
	return d;
}

static void add_member(const struct cli *cli, json_t *arguments, const char *option, const char *member)
{
	json_t *value = json_object_get(cli->options, option);

	if (value)
		tp_json_set(arguments, member, json_incref(value));
}

static int ask_define(struct cli *cli, const char *command, json_t *arguments_owned, json_t **answer)
{
	tp_autojson json_t *arguments = arguments_owned;

	add_member(cli, arguments, "if-generation", "if-generation");
	add_member(cli, arguments, "reset-disk", "reset-disks");
	return cli_ask(cli, command, json_incref(arguments), tp_json_str(arguments, "name"), answer);
}

static int say_defined(const struct cli *cli, const char *name, const json_t *answer)
{
	if (cli->format == CLI_F_JSON)
		return cli_print_json(answer);
	if (!cli->quiet)
		cli_say("%s: generation %lld", name, (long long)tp_json_int(answer, "generation", 0));
	return cli_flush();
}

int cmd_define(struct cli *cli)
{
	tp_autojson json_t *d = NULL, *answer = NULL;
	int status;

	d = definition(cli, &status);
	if (!d)
		return status;
	status = ask_define(cli, "vm-define", json_incref(d), &answer);
	if (status == CLI_DONE)
		warn_missing(d);
	return status == CLI_DONE ? say_defined(cli, tp_json_str(d, "name"), answer) : status;
}

/* The options of both commands are the verb's: those of vm-define do not go to vm-start. */
int cmd_run(struct cli *cli)
{
	tp_autojson json_t *d = NULL, *answer = NULL, *arguments = cli_arguments(cli, NULL);
	tp_autofree char *name = NULL;
	struct cli_names names = { .names = &name, .n = 1 };
	int status;

	d = definition(cli, &status);
	if (!d)
		return status;
	status = ask_define(cli, "vm-define", json_incref(d), &answer);
	if (status != CLI_DONE)
		return status;
	json_object_del(arguments, "if-generation");
	json_object_del(arguments, "reset-disks");
	name = strdup(tp_json_str(d, "name") ? tp_json_str(d, "name") : "");
	return cli_operate(cli, cli->verb->command, arguments, &names);
}

/* --- set --- */

/* VALUE is JSON or else a text, of a label a text always; NULL: err. */
static json_t *assigned(const char *path, const char *value, struct tp_error *err)
{
	bool label = strncmp(path, "labels.", 7) == 0;
	json_t *v = !label || strcmp(value, "null") == 0 ? tp_json_parse(value, strlen(value), FILE_DEPTH, NULL) :
		    NULL;

	return v ? v : cli_spec_value(path, value, err);
}

/* Takes v. The path's objects are made; what follows "labels." is one key, dots and all. */
static bool put(json_t *merge, char *path, json_t *v)
{
	bool label = strncmp(path, "labels.", 7) == 0;
	char *key = path, *dot;

	while (*key && (dot = strchr(key, '.')) && !(label && key != path)) {
		json_t *inner;

		*dot = 0;
		inner = json_object_get(merge, key);
		if (!json_is_object(inner)) {
			inner = json_object();
			tp_json_set(merge, key, inner);
		}
		merge = inner;
		key = dot + 1;
	}
	if (*key)
		return tp_json_set(merge, key, v);
	json_decref(v);
	return false;
}

/* hibernate.level=3 */
static bool take_assignment(json_t *merge, const char *text, struct tp_error *err)
{
	size_t n = strcspn(text, "=");
	tp_autofree char *path = strndup(text, n);
	json_t *v;

	if (!path)
		return tp_fail_nomem(err);
	if (text[n]) {
		v = assigned(path, text + n + 1, err);
		if (!v && err->code != TP_OK)
			return false;
		if (v && put(merge, path, v))
			return true;
	}
	return tp_fail(err, TP_EARG, "\"%s\" is not of the form KEY=VALUE", text);
}

static bool take_change(json_t *merge, const char *text, struct tp_error *err)
{
	tp_autojson json_t *patch = NULL;

	if (*text != '{')
		return take_assignment(merge, text, err);
	patch = tp_json_parse(text, strlen(text), FILE_DEPTH, err);
	return patch && json_object_update(merge, patch) == 0;
}

int cmd_set(struct cli *cli)
{
	tp_autojson json_t *merge = json_object(), *answer = NULL;
	struct tp_error err = TP_ERROR_INIT;
	int status;

	for (size_t i = 1; i < cli->noperands; i++)
		if (!take_change(merge, cli->operands[i], &err))
			return cli_usage(cli, "%s", err.text);
	status = ask_define(cli, "vm-set", json_pack("{s:s, s:O}", "name", cli->operands[0], "merge", merge),
			    &answer);
	return status == CLI_DONE ? say_defined(cli, cli->operands[0], answer) : status;
}
