/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * spec_args.c - QEMU options that torpor owns or that would make a VM impossible to save
 *
 * QEMU takes "-opt" and "--opt" alike. Values are looked at as key=value lists;
 * placeholders stand in them as they are.
 */
#include "engine/spec_args.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"

#define OBJECT_DEPTH 64

static const struct { const char *option, *why; } refused[] = {
	{ "daemonize", "torpor watches the process itself" },
	{ "incoming", "torpor adds it where it needs it" },
	{ "S", "torpor adds it; use \"paused\" at vm-start" },
	{ "preconfig", "torpor starts machines whole" },
	{ "no-shutdown", "a VM that shut down must end" },
	{ "action", "torpor sets actions itself" },
	{ "pidfile", "torpor knows the process by its pidfd" },
	{ "loadvm", "internal snapshots are not restored at a start" },
	{ "readconfig", "options must be in args" },
	{ "add-fd", "use spec.launch.fds" },
	{ "snapshot", "its writes die with QEMU and the saved memory would not match" },
	{ "only-migratable", "torpor checks blockers before it touches the guest" },
};

static bool refuse(char argument[64], struct tp_error *err, const char *what, const char *why)
{
	snprintf(argument, 64, "launch.args");
	return tp_fail_class(err, TP_EARG, "GenericError", "launch.args: %s is refused: %s", what, why);
}

/* Whether a comma-separated list has the item `item` (whole, or up to its end when it ends in '='). */
static bool has_item(const char *list, const char *item)
{
	size_t n = strlen(item);
	bool prefix = item[n - 1] == '=';

	while (list) {
		const char *end = strchr(list, ',');

		if (strncmp(list, item, n) == 0 && (prefix || list[n] == ',' || !list[n]))
			return true;
		list = end ? end + 1 : NULL;
	}
	return false;
}

static bool option_is(const char *arg, const char *name)
{
	if (*arg != '-')
		return false;
	arg += arg[1] == '-' ? 2 : 1;
	return strcmp(arg, name) == 0;
}

static bool check_option(const char *arg, char argument[64], struct tp_error *err)
{
	char what[48];

	for (size_t i = 0; i < TP_N(refused); i++) {
		if (option_is(arg, refused[i].option)) {
			snprintf(what, sizeof(what), "-%s", refused[i].option);
			return refuse(argument, err, what, refused[i].why);
		}
	}
	return true;
}

static bool value_has_stdio(const char *value)
{
	return strcmp(value, "stdio") == 0 || strcmp(value, "mon:stdio") == 0 ||
	       strcmp(value, "chardev:stdio") == 0 || strncmp(value, "stdio,", 6) == 0;
}

/* -object takes key=value pairs, the first key being qom-type if it is left out, or JSON. */
static bool is_clear_secret(const char *value)
{
	tp_autojson json_t *object = *value == '{' ? tp_json_parse(value, strlen(value), OBJECT_DEPTH, NULL) : NULL;
	const char *type = tp_json_str(object, "qom-type");

	if (object)
		return type && strcmp(type, "secret") == 0 && json_object_get(object, "data");
	return (strncmp(value, "secret,", 7) == 0 || has_item(value, "qom-type=secret")) && has_item(value, "data=");
}

static bool check_value(const char *option, const char *value, char argument[64], struct tp_error *err)
{
	static const char *const chardevs[] = { "monitor", "qmp", "qmp-pretty", "serial", "parallel",
						"chardev", "mon" };
	const char *path;

	for (size_t i = 0; i < TP_N(chardevs); i++)
		if (option_is(option, chardevs[i]) && value_has_stdio(value))
			return refuse(argument, err, "a monitor or console on stdio",
				      "torpord has no terminal; use \"console\": \"auto\"");
	if (option_is(option, "object") && is_clear_secret(value))
		return refuse(argument, err, "a clear-text secret (data=)",
			      "anybody can read it in /proc; use file=");
	if (option_is(option, "drive") && (has_item(value, "snapshot=on") || has_item(value, "snapshot")))
		return refuse(argument, err, "snapshot=on",
			      "its writes die with QEMU and the saved memory would not match");
	if (option_is(option, "chardev") && strncmp(value, "socket,", 7) == 0 &&
	    (path = strstr(value, ",path="))) {
		char text[256];

		snprintf(text, sizeof(text), "%.*s", (int)strcspn(path + 6, ","), path + 6);
		if (!strchr(text, '{') && !tp_sock_path_ok(text, NULL))
			return refuse(argument, err, "a socket path",
				      "it is longer than the kernel allows (107 bytes)");
	}
	return true;
}

bool spec_args_check(const json_t *args, char argument[64], struct tp_error *err)
{
	const char *before = "";
	bool nographic = false, nodefaults = false;
	size_t i;
	json_t *item;

	json_array_foreach(args, i, item) {
		const char *arg = json_string_value(item);

		if (!check_option(arg, argument, err) || !check_value(before, arg, argument, err))
			return false;
		nographic |= option_is(arg, "nographic");
		nodefaults |= option_is(arg, "nodefaults");
		before = arg;
	}
	if (nographic && !nodefaults)
		return refuse(argument, err, "-nographic without -nodefaults",
			      "it puts a monitor on stdio; use -display none and \"console\": \"auto\"");
	return true;
}

static bool placeholder_known(const char *word, size_t n)
{
	static const char *const words[] = { "name", "uid", "run-dir", "state-dir" };

	for (size_t i = 0; i < TP_N(words); i++)
		if (strlen(words[i]) == n && strncmp(words[i], word, n) == 0)
			return true;
	return n > 3 && strncmp(word, "fd:", 3) == 0;	/* its name is looked up at each launch */
}

bool spec_placeholders_check(const char *member, const char *text, char argument[64], struct tp_error *err)
{
	for (const char *p = text; (p = strchr(p, '{')); p++) {
		size_t n;

		if (p[1] == '{') {
			p++;
			continue;
		}
		n = strspn(p + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_:.");
		if (n == 0 || p[n + 1] != '}' || placeholder_known(p + 1, n))
			continue;
		snprintf(argument, 64, "%s", member);
		return tp_fail_class(err, TP_EARG, "GenericError", "%s: {%.*s} is no placeholder that torpor knows; "
				     "write {{ for a brace", member, (int)n, p + 1);
	}
	return true;
}
