/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * spec.c - What may stand in a VM's spec
 *
 * One table a level: member, type, whether it must be there, and a check of its
 * own where the type is not enough. A member whose feature this version does
 * not have is accepted with its default only, so that no option does nothing.
 */
#include "engine/spec.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "engine/spec_args.h"

#define SPEC_ARGS_MAX 1024
#define SPEC_DISKS_MAX 64
#define SPEC_MEMBERS_MAX 256

struct walk {
	const char *run_dir;
	char *argument;			/* [64] */
	struct tp_error *err;
};

struct member {
	const char *name;
	json_type type;			/* JSON_TRUE stands for a boolean, JSON_REAL for a number */
	bool required;
	bool (*check)(struct walk *w, const char *path, const json_t *value);
	double min, max;		/* integers and numbers; both 0: no range */
	const char *only;		/* JSON text: nothing else is accepted in this version */
};

static bool bad(struct walk *w, const char *path, const char *text)
{
	snprintf(w->argument, 64, "%s", path);
	return tp_fail_class(w->err, TP_EARG, "GenericError", "spec: '%s' %s", path, text);
}

static const char *type_name(json_type type)
{
	switch (type) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "a list";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a number";
	default: return "true or false";
	}
}

static bool type_ok(json_type type, const json_t *value)
{
	switch (type) {
	case JSON_TRUE: return json_is_boolean(value);
	case JSON_REAL: return json_is_number(value);
	default: return json_typeof(value) == type;
	}
}

static bool default_only(struct walk *w, const char *path, const struct member *m, const json_t *value)
{
	tp_autojson json_t *want = json_loads(m->only, JSON_DECODE_ANY, NULL);

	if (want && json_equal(want, value))
		return true;
	return bad(w, path, "is not supported by this version");
}

static bool check_member(struct walk *w, const char *path, const struct member *m, const json_t *value)
{
	if (m->only)
		return default_only(w, path, m, value);
	if (!type_ok(m->type, value)) {
		char text[64];

		snprintf(text, sizeof(text), "must be %s", type_name(m->type));
		return bad(w, path, text);
	}
	if ((m->min != 0 || m->max != 0) && json_is_number(value)) {
		double n = json_number_value(value);

		if (n < m->min || n > m->max) {
			char text[96];

			snprintf(text, sizeof(text), "must be from %.15g to %.15g", m->min, m->max);
			return bad(w, path, text);
		}
	}
	return !m->check || m->check(w, path, value);
}

static bool walk_object(struct walk *w, const char *prefix, const struct member *members, size_t n,
			const json_t *object)
{
	const char *key;
	json_t *value;
	char path[128];

	json_object_foreach((json_t *)object, key, value) {
		const struct member *m = NULL;

		snprintf(path, sizeof(path), "%s%s%.48s", prefix, *prefix ? "." : "", key);
		if (!*prefix && strncmp(key, "x-", 2) == 0)
			continue;
		for (size_t i = 0; i < n && !m; i++)
			m = strcmp(members[i].name, key) == 0 ? &members[i] : NULL;
		if (!m)
			return bad(w, path, "is not a member that torpor knows");
		if (!check_member(w, path, m, value))
			return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (members[i].required && !json_object_get(object, members[i].name)) {
			snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "." : "", members[i].name);
			return bad(w, path, "is missing");
		}
	}
	return true;
}

static bool check_text(struct walk *w, const char *path, const json_t *value)
{
	if (!*json_string_value(value))
		return bad(w, path, "must not be empty");
	return true;
}

static bool check_strings(struct walk *w, const char *path, const json_t *value)
{
	size_t i;
	json_t *item;

	if (json_array_size(value) > SPEC_ARGS_MAX)
		return bad(w, path, "has too many items");
	json_array_foreach(value, i, item) {
		if (!json_is_string(item))
			return bad(w, path, "must be a list of strings");
		if (!spec_placeholders_check(path, json_string_value(item), w->argument, w->err))
			return false;
	}
	return true;
}

static bool check_program(struct walk *w, const char *path, const json_t *value)
{
	if (!check_strings(w, path, value))
		return false;
	if (!json_array_size(value) || !*json_string_value(json_array_get(value, 0)))
		return bad(w, path, "must name a program");
	return true;
}

static bool check_args(struct walk *w, const char *path, const json_t *value)
{
	return check_strings(w, path, value) && spec_args_check(value, w->argument, w->err);
}

static bool check_env(struct walk *w, const char *path, const json_t *value)
{
	const char *key;
	json_t *item;

	if (json_object_size(value) > SPEC_MEMBERS_MAX)
		return bad(w, path, "has too many members");
	json_object_foreach((json_t *)value, key, item)
		if (!json_is_string(item) || !*key || strchr(key, '='))
			return bad(w, path, "must map names to strings");
	return true;
}

static bool check_path(struct walk *w, const char *path, const json_t *value)
{
	const char *text = json_string_value(value);

	if (*text != '/')
		return bad(w, path, "must be an absolute path");
	if (strlen(text) >= PATH_MAX)
		return bad(w, path, "is too long for a path");
	return true;
}

static bool check_format(struct walk *w, const char *path, const json_t *value)
{
	const char *text = json_string_value(value);

	if (strcmp(text, "qcow2") != 0 && strcmp(text, "raw") != 0)
		return bad(w, path, "must be \"qcow2\" or \"raw\"");
	return true;
}

static bool check_disks(struct walk *w, const char *path, const json_t *value)
{
	static const struct member disk[] = {
		{ .name = "file", .type = JSON_STRING, .required = true, .check = check_path },
		{ .name = "format", .type = JSON_STRING, .required = true, .check = check_format },
		{ .name = "read-only", .type = JSON_TRUE },
		{ .name = "options", .type = JSON_OBJECT },
	};
	const char *key;
	json_t *item;
	char sub[128];

	if (json_object_size(value) > SPEC_DISKS_MAX)
		return bad(w, path, "has too many disks");
	json_object_foreach((json_t *)value, key, item) {
		snprintf(sub, sizeof(sub), "%s.%.31s", path, key);
		/* QEMU's node names: at most 31 characters, beginning with a letter. */
		if (!tp_name_ok(key) || strlen(key) > 31 || !((*key | 32) >= 'a' && (*key | 32) <= 'z'))
			return bad(w, sub, "is not a disk id (a letter, then letters, digits, '-', '.', "
				   "'_', at most 31)");
		if (!json_is_object(item))
			return bad(w, sub, "must be an object");
		if (!walk_object(w, sub, disk, TP_N(disk), item))
			return false;
	}
	return true;
}

static bool check_socket(struct walk *w, const char *path, const json_t *value)
{
	const char *text = json_string_value(value);

	if (json_is_null(value))
		return true;
	if (!text)
		return bad(w, path, "must be \"auto\", a path or null");
	if (strcmp(text, "auto") == 0)
		return true;
	if (*text != '/')
		return bad(w, path, "must be \"auto\", an absolute path or null");
	return tp_sock_path_ok(text, NULL) || bad(w, path, "is longer than the kernel allows for a socket");
}

static bool check_fds(struct walk *w, const char *path, const json_t *value)
{
	static const struct member fd[] = {
		{ .name = "tap", .type = JSON_STRING, .check = check_text },
		{ .name = "open", .type = JSON_STRING, .check = check_path },
	};
	const char *key;
	json_t *item;
	char sub[128];

	if (json_object_size(value) > 8)
		return bad(w, path, "has more than 8 descriptors");
	json_object_foreach((json_t *)value, key, item) {
		snprintf(sub, sizeof(sub), "%s.%.31s", path, key);
		if (!tp_name_ok(key) || !json_is_object(item) || json_object_size(item) != 1)
			return bad(w, sub, "must be {\"tap\": INTERFACE} or {\"open\": PATH}");
		if (!walk_object(w, sub, fd, TP_N(fd), item))
			return false;
	}
	return true;
}

static bool check_secrets(struct walk *w, const char *path, const json_t *value)
{
	static const struct member secret[] = {
		{ .name = "file", .type = JSON_STRING, .required = true, .check = check_path },
	};
	const char *key;
	json_t *item;
	char sub[128];

	json_object_foreach((json_t *)value, key, item) {
		snprintf(sub, sizeof(sub), "%s.%.31s", path, key);
		if (!tp_name_ok(key) || !json_is_object(item))
			return bad(w, sub, "must be {\"file\": PATH}");
		if (!walk_object(w, sub, secret, TP_N(secret), item))
			return false;
	}
	return true;
}

static bool check_hooks(struct walk *w, const char *path, const json_t *value)
{
	static const struct member hooks[] = {
		{ .name = "prepare", .type = JSON_ARRAY, .check = check_program },
		{ .name = "before-run", .type = JSON_ARRAY, .check = check_program },
		{ .name = "after-run", .type = JSON_ARRAY, .check = check_program },
		{ .name = "release", .type = JSON_ARRAY, .check = check_program },
		{ .name = "timeout", .type = JSON_REAL, .min = 0.1, .max = 3600 },
	};

	return walk_object(w, path, hooks, TP_N(hooks), value);
}

static bool check_wrapper(struct walk *w, const char *path, const json_t *value)
{
	return json_array_size(value) == 0 || check_program(w, path, value);
}

static bool check_launch(struct walk *w, const char *path, const json_t *value)
{
	static const struct member launch[] = {
		{ .name = "binary", .type = JSON_STRING, .required = true, .check = check_text },
		{ .name = "args", .type = JSON_ARRAY, .required = true, .check = check_args },
		{ .name = "env", .type = JSON_OBJECT, .check = check_env },
		{ .name = "disks", .type = JSON_OBJECT, .check = check_disks },
		{ .name = "agent", .type = JSON_STRING, .check = check_socket },
		{ .name = "console", .type = JSON_STRING, .check = check_socket },
		{ .name = "wrapper", .type = JSON_ARRAY, .check = check_wrapper },
		{ .name = "user", .type = JSON_STRING, .check = check_text },
		{ .name = "group", .type = JSON_STRING, .check = check_text },
		{ .name = "cgroup", .type = JSON_STRING, .check = check_path },
		{ .name = "fds", .type = JSON_OBJECT, .check = check_fds },
		{ .name = "secrets", .type = JSON_OBJECT, .check = check_secrets },
		{ .name = "hooks", .type = JSON_OBJECT, .check = check_hooks },
	};
	tp_autojson json_t *copy = json_copy((json_t *)value);

	/* null is a value of these two. */
	if (copy && json_is_null(json_object_get(copy, "agent")))
		json_object_del(copy, "agent");
	if (copy && json_is_null(json_object_get(copy, "console")))
		json_object_del(copy, "console");
	return copy ? walk_object(w, path, launch, TP_N(launch), copy) : tp_fail_nomem(w->err);
}

static bool check_methods(struct walk *w, const char *path, const json_t *value)
{
	size_t i;
	json_t *item;

	if (!json_array_size(value))
		return bad(w, path, "must name a method");
	json_array_foreach(value, i, item) {
		const char *name = json_is_object(item) ? tp_json_str(item, "method") : json_string_value(item);

		if (!name || strcmp(name, "save") != 0)
			return bad(w, path, "may hold only \"save\" in this version");
	}
	return true;
}

static bool check_reserve(struct walk *w, const char *path, const json_t *value)
{
	const char *text = json_string_value(value);

	if (strcmp(text, "full") != 0 && strcmp(text, "estimate") != 0 && strcmp(text, "none") != 0)
		return bad(w, path, "must be \"full\", \"estimate\" or \"none\"");
	return true;
}

static bool check_name(struct walk *w, const char *path, const json_t *value)
{
	return tp_name_ok(json_string_value(value)) || bad(w, path, "is not a name");
}

static bool check_hibernate(struct walk *w, const char *path, const json_t *value)
{
	static const struct member hibernate[] = {
		{ .name = "methods", .type = JSON_ARRAY, .check = check_methods },
		{ .name = "timeout", .type = JSON_REAL, .min = 0.1, .max = 1e7 },
		{ .name = "pool", .type = JSON_STRING, .check = check_name },
		{ .name = "level", .type = JSON_INTEGER, .min = 1, .max = 19 },
		{ .name = "threads", .type = JSON_INTEGER, .min = 0, .max = 16 },
		{ .name = "keep", .type = JSON_TRUE },
		{ .name = "reserve", .type = JSON_STRING, .check = check_reserve },
	};

	return walk_object(w, path, hibernate, TP_N(hibernate), value);
}

static bool check_mode(struct walk *w, const char *path, const json_t *value)
{
	const char *text = json_string_value(value);

	if (strcmp(text, "auto") != 0 && strcmp(text, "eager") != 0 && strcmp(text, "lazy") != 0)
		return bad(w, path, "must be \"auto\", \"eager\" or \"lazy\"");
	return true;
}

static bool check_clock(struct walk *w, const char *path, const json_t *value)
{
	const char *text = json_string_value(value);

	if (strcmp(text, "host") != 0 && strcmp(text, "keep") != 0)
		return bad(w, path, "must be \"host\" or \"keep\"");
	return true;
}

static bool check_restore(struct walk *w, const char *path, const json_t *value)
{
	static const struct member restore[] = {
		{ .name = "mode", .type = JSON_STRING, .check = check_mode },
		{ .name = "clock", .type = JSON_STRING, .check = check_clock },
	};

	return walk_object(w, path, restore, TP_N(restore), value);
}

static bool check_on_timeout(struct walk *w, const char *path, const json_t *value)
{
	const char *text = json_string_value(value);

	if (strcmp(text, "fail") != 0 && strcmp(text, "quit") != 0)
		return bad(w, path, "must be \"fail\" or \"quit\"");
	return true;
}

static bool check_shutdown(struct walk *w, const char *path, const json_t *value)
{
	static const struct member shutdown[] = {
		{ .name = "timeout", .type = JSON_REAL, .min = 0.1, .max = 1e7 },
		{ .name = "on-timeout", .type = JSON_STRING, .check = check_on_timeout },
	};

	return walk_object(w, path, shutdown, TP_N(shutdown), value);
}

static bool check_retain(struct walk *w, const char *path, const json_t *value)
{
	static const struct member retain[] = {
		{ .name = "count", .type = JSON_INTEGER, .min = 0, .max = 1e6 },
		{ .name = "age", .type = JSON_REAL, .min = 1, .max = 1e10 },
	};

	return walk_object(w, path, retain, TP_N(retain), value);
}

static bool check_storage(struct walk *w, const char *path, const json_t *value)
{
	static const struct member storage[] = {
		{ .name = "standing", .type = JSON_TRUE },
		{ .name = "quota", .type = JSON_INTEGER, .min = 0, .max = 1e18 },
		{ .name = "retain", .type = JSON_OBJECT, .check = check_retain },
	};

	return walk_object(w, path, storage, TP_N(storage), value);
}

static bool check_labels(struct walk *w, const char *path, const json_t *value)
{
	return check_env(w, path, value);
}

static const struct member top[] = {
	{ .name = "api", .type = JSON_INTEGER, .min = 1, .max = 1 },
	{ .name = "launch", .type = JSON_OBJECT, .required = true, .check = check_launch },
	{ .name = "hibernate", .type = JSON_OBJECT, .check = check_hibernate },
	{ .name = "restore", .type = JSON_OBJECT, .check = check_restore },
	{ .name = "shutdown", .type = JSON_OBJECT, .check = check_shutdown },
	{ .name = "storage", .type = JSON_OBJECT, .check = check_storage },
	{ .name = "labels", .type = JSON_OBJECT, .check = check_labels },
	/* Their features are not in this version. */
	{ .name = "priority", .type = JSON_INTEGER, .only = "50" },
	{ .name = "restart", .type = JSON_OBJECT,
	  .only = "{\"on-shutdown\": \"never\", \"on-crash\": \"always\", \"on-lost\": \"never\"}" },
	{ .name = "dump", .type = JSON_OBJECT, .only = "{}" },
	{ .name = "snapshot", .type = JSON_OBJECT, .only = "{}" },
	{ .name = "migration", .type = JSON_OBJECT, .only = "{}" },
};

static bool check_sockets(struct walk *w)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/console.sock", w->run_dir);
	if (tp_sock_path_ok(path, NULL))
		return true;
	snprintf(w->argument, 64, "name");
	return tp_fail_class(w->err, TP_EARG, "GenericError", "socket path %s is longer than the kernel "
			     "allows: use a shorter name or runtime directory", path);
}

bool spec_check(const json_t *spec, const char *run_dir, char argument[64], struct tp_error *err)
{
	struct walk w = { .run_dir = run_dir, .argument = argument, .err = err };

	snprintf(argument, 64, "spec");
	if (!json_is_object(spec))
		return bad(&w, "spec", "must be an object");
	return walk_object(&w, "", top, TP_N(top), spec) && check_sockets(&w);
}

static const struct { const char *path, *json; } defaults[] = {
	{ "hibernate.methods", "[\"save\"]" }, { "hibernate.pool", "\"default\"" },
	{ "hibernate.level", "1" }, { "hibernate.threads", "0" }, { "hibernate.keep", "false" },
	{ "hibernate.reserve", "\"full\"" }, { "restore.mode", "\"auto\"" }, { "restore.clock", "\"host\"" },
	{ "shutdown.timeout", "90" }, { "shutdown.on-timeout", "\"fail\"" },
	{ "storage.standing", "false" }, { "storage.quota", "0" }, { "launch.hooks.timeout", "30" }, { "launch.agent", "null" }, { "launch.console", "null" },
};

json_t *spec_get(const json_t *spec, const char *path)
{
	json_t *value = tp_json_path(spec, path);

	if (value)
		return json_incref(value);
	for (size_t i = 0; i < TP_N(defaults); i++)
		if (strcmp(defaults[i].path, path) == 0)
			return json_loads(defaults[i].json, JSON_DECODE_ANY, NULL);
	return NULL;
}
