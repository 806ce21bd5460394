/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torpord_config.c - torpord's settings
 *
 * Settings are one JSON object: defaults, over it the file, over it the command
 * line, which makes the same members. Pools are merged by name. Everything is
 * checked before anything is used, so that a file with a mistake changes
 * nothing at a reload.
 */
#include "torpord_config.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_size.h"

#define ROOT_CONFIG "/etc/torpor/torpord.json"

/* --- defaults --- */

/* $VARIABLE/torpor, else $HOME/fallback/torpor. */
static json_t *user_folder(const char *variable, const char *fallback)
{
	const char *base = getenv(variable), *home = getenv("HOME");

	if (base && *base == '/')
		return json_sprintf("%s/torpor", base);
	return json_sprintf("%s/%s/torpor", home && *home == '/' ? home : "", fallback);
}

static json_t *default_config_file(void)
{
	tp_autojson json_t *folder = NULL;

	if (geteuid() == 0)
		return json_string(ROOT_CONFIG);
	folder = user_folder("XDG_CONFIG_HOME", ".config");
	return json_sprintf("%s/torpord.json", json_string_value(folder));
}

static json_t *default_runtime_dir(void)
{
	const char *base = getenv("XDG_RUNTIME_DIR");

	if (geteuid() == 0)
		return json_string("/run/torpor");
	if (base && *base == '/')
		return json_sprintf("%s/torpor", base);
	return json_sprintf("/run/user/%u/torpor", (unsigned)geteuid());
}

/* Settings that follow from others are made last. */
static void fill_in_defaults(json_t *s)
{
	json_t *pools = json_object_get(s, "pool");

	if (!json_object_get(s, "state-dir"))
		tp_json_set(s, "state-dir", geteuid() == 0 ? json_string("/var/lib/torpor")
							   : user_folder("XDG_STATE_HOME", ".local/state"));
	if (!json_object_get(s, "runtime-dir"))
		tp_json_set(s, "runtime-dir", default_runtime_dir());
	if (!json_object_get(s, "socket"))
		tp_json_set(s, "socket", json_sprintf("%s/torpor.sock", tp_json_str(s, "runtime-dir")));
	if (!pools) {
		pools = json_object();
		tp_json_set(s, "pool", pools);
	}
	if (!json_object_get(pools, "default"))
		tp_json_set(pools, "default", json_pack("{s:o}", "path", json_sprintf("%s/pool",
							tp_json_str(s, "state-dir"))));
}

/* --- checks --- */

static bool bad(struct tp_error *err, const char *member, const char *what)
{
	return tp_fail(err, TP_EARG, "%s: %s", member, what);
}

static bool check_path(const char *member, const json_t *value, struct tp_error *err)
{
	const char *path = json_string_value(value);

	if (!path || *path != '/')
		return bad(err, member, "must be an absolute path");
	return strlen(path) < PATH_MAX || bad(err, member, "is too long for a path");
}

static bool check_socket(const char *member, const json_t *value, struct tp_error *err)
{
	if (!check_path(member, value, err))
		return false;
	return tp_sock_path_ok(json_string_value(value), err) || tp_prefix(err, "%s", member);
}

static bool check_string(const char *member, const json_t *value, struct tp_error *err)
{
	return json_string_length(value) > 0 || bad(err, member, "must be a string");
}

static bool check_level(const char *member, const json_t *value, struct tp_error *err)
{
	enum tp_level level;

	return (json_is_string(value) && tp_level_parse(json_string_value(value), &level)) ||
	       bad(err, member, "must be error, warn, info, debug or trace");
}

static bool check_format(const char *member, const json_t *value, struct tp_error *err)
{
	const char *text = json_string_value(value);

	return (text && (strcmp(text, "text") == 0 || strcmp(text, "json") == 0)) ||
	       bad(err, member, "must be text or json");
}

static bool check_pool(const char *name, const json_t *pool, struct tp_error *err)
{
	const char *key;
	json_t *value;
	char member[96];

	if (!tp_name_ok(name))
		return tp_fail(err, TP_EARG, "pool: '%.64s' is not a name", name);
	snprintf(member, sizeof(member), "pool.%s.path", name);
	if (!json_is_object(pool) || !check_path(member, json_object_get(pool, "path"), err))
		return tp_fail(err, TP_EARG, "pool.%s: must be {\"path\": DIR, \"quota\": BYTES}", name);
	json_object_foreach((json_t *)pool, key, value) {
		snprintf(member, sizeof(member), "pool.%s.%.16s", name, key);
		if (strcmp(key, "quota") == 0) {
			if (!json_is_integer(value) || json_integer_value(value) < 0)
				return bad(err, member, "must be a number of bytes or a size such as \"4G\"");
		} else if (strcmp(key, "path") != 0) {
			return bad(err, member, "is not a member of a pool");
		}
	}
	return true;
}

static bool check_pools(const char *member, const json_t *value, struct tp_error *err)
{
	const char *name;
	json_t *pool;

	if (!json_is_object(value))
		return bad(err, member, "must be {NAME: {\"path\": DIR}} or [\"NAME=DIR\"]");
	if (json_object_size(value) >= CONFIG_POOLS_MAX)
		return bad(err, member, "has too many pools");
	json_object_foreach((json_t *)value, name, pool)
		if (!check_pool(name, pool, err))
			return false;
	return true;
}

static bool check_roles(const char *member, const json_t *value, struct tp_error *err)
{
	static const char *const roles[] = { "read", "operate", "admin" };
	const char *role;
	json_t *groups, *group;
	size_t i, n = 0;

	if (!json_is_object(value))
		return bad(err, member, "must be {\"read\"|\"operate\"|\"admin\": [GROUP...]}");
	json_object_foreach((json_t *)value, role, groups) {
		bool known = false;

		for (i = 0; i < TP_N(roles); i++)
			known = known || strcmp(roles[i], role) == 0;
		if (!known)
			return tp_fail(err, TP_EARG, "%s: '%.32s' is not read, operate or admin", member, role);
		if (!json_is_array(groups))
			return tp_fail(err, TP_EARG, "%s.%s: must be a list of groups", member, role);
		json_array_foreach(groups, i, group)
			if (!json_is_string(group) || ++n > CONFIG_GROUPS_MAX)
				return tp_fail(err, TP_EARG, "%s.%s: must be a list of at most %d groups",
					       member, role, CONFIG_GROUPS_MAX);
	}
	return true;
}

static const struct {
	const char *name;
	bool (*check)(const char *member, const json_t *value, struct tp_error *err);
} members[] = {
	{ "socket", check_socket }, { "socket-group", check_string }, { "state-dir", check_path },
	{ "runtime-dir", check_path }, { "pool", check_pools }, { "log-level", check_level },
	{ "log-format", check_format }, { "roles", check_roles },
};

static bool check_settings(const json_t *settings, struct tp_error *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)settings, key, value) {
		size_t i = 0;

		while (i < TP_N(members) && strcmp(members[i].name, key) != 0)
			i++;
		if (i == TP_N(members))
			return tp_fail(err, TP_EARG, "'%.64s' is not a setting of torpord", key);
		if (!members[i].check(key, value, err))
			return false;
	}
	return true;
}

bool config_check_options(const json_t *options, struct tp_error *err)
{
	tp_autojson json_t *settings = json_copy((json_t *)options);

	json_object_del(settings, "config");
	return check_settings(settings, err);
}

/* --- pools as text --- */

bool config_parse_pool(const char *text, json_t *pools, struct tp_error *err)
{
	tp_autofree char *copy = strdup(text);
	char *path = copy ? strchr(copy, '=') : NULL, *option;
	uint64_t quota = 0;
	json_t *pool;

	if (!path)
		return tp_fail(err, TP_EARG, "pool '%.80s': must be NAME=DIR[,quota=SIZE]", text);
	*path++ = 0;
	option = strstr(path, ",quota=");
	if (option) {
		if (!tp_size_parse(option + 7, &quota) || quota > INT64_MAX)
			return tp_fail(err, TP_EARG, "pool '%.80s': '%.40s' is not a size", text, option + 7);
		*option = 0;
	}
	/* A slip must not become a folder's name; such names can be given as "path" in the file. */
	option = strrchr(path, ',');
	if (option && option[1 + strspn(option + 1, "abcdefghijklmnopqrstuvwxyz-")] == '=')
		return tp_fail(err, TP_EARG, "pool '%.80s': no option '%.40s' (low-water: torpor pool define)", text,
			       option + 1);
	if (!*path || !tp_name_ok(copy))
		return tp_fail(err, TP_EARG, "pool '%.80s': must be NAME=DIR[,quota=SIZE]", text);
	pool = json_pack("{s:s}", "path", path);
	if (quota)
		tp_json_set(pool, "quota", json_integer((json_int_t)quota));
	return tp_json_set(pools, copy, pool) || tp_fail_nomem(err);
}

/* Brings the file's forms of "pool" (list of texts, sizes as text) to the one that is checked. */
static bool normalize_pools(json_t *settings, struct tp_error *err)
{
	json_t *pools = json_object_get(settings, "pool"), *item, *list;
	const char *name, *quota;
	uint64_t bytes;
	size_t i;

	if (json_is_array(pools)) {
		list = json_object();
		json_array_foreach(pools, i, item) {
			if (!json_is_string(item) || !config_parse_pool(json_string_value(item), list, err)) {
				json_decref(list);
				return tp_fail(err, TP_EARG, "pool: must be a list of \"NAME=DIR[,quota=SIZE]\"");
			}
		}
		return tp_json_set(settings, "pool", list) || tp_fail_nomem(err);
	}
	json_object_foreach(pools, name, item) {
		quota = tp_json_str(item, "quota");
		if (quota && tp_size_parse(quota, &bytes) && bytes <= INT64_MAX)
			tp_json_set(item, "quota", json_integer((json_int_t)bytes));
	}
	return true;
}

/* --- groups --- */

static bool find_group(const char *name, gid_t *gid, struct tp_error *err)
{
	const struct group *g = getgrnam(name);

	if (!g)
		return tp_fail(err, TP_EARG, "there is no group '%.64s'", name);
	*gid = g->gr_gid;
	return true;
}

static bool resolve_groups(struct config *c, struct tp_error *err)
{
	static const char *const roles[] = { "read", "operate", "admin" };
	const char *group = tp_json_str(c->settings, "socket-group");
	json_t *name;
	size_t r, i;

	for (r = 0; r < TP_N(roles); r++) {
		const json_t *list = json_object_get(json_object_get(c->settings, "roles"), roles[r]);

		json_array_foreach(list, i, name) {
			if (!find_group(json_string_value(name), &c->groups[c->ngroups].gid, err))
				return tp_prefix(err, "roles.%s", roles[r]);
			c->groups[c->ngroups++].role = (enum torpor_role)(TORPOR_ROLE_READ + r);
		}
	}
	if (group && !find_group(group, &c->socket_group, err))
		return tp_prefix(err, "socket-group");
	c->has_socket_group = group;
	return true;
}

enum torpor_role config_role(const struct config *c, const struct tp_peer *peer)
{
	enum torpor_role role = TORPOR_ROLE_NONE;

	if (peer->uid == 0 || peer->uid == geteuid())
		return TORPOR_ROLE_ADMIN;
	for (size_t i = 0; i < c->ngroups; i++) {
		bool member = peer->gid == c->groups[i].gid;

		for (size_t g = 0; g < peer->ngroups && !member; g++)
			member = peer->groups[g] == c->groups[i].gid;
		if (member && c->groups[i].role > role)
			role = c->groups[i].role;
	}
	return role;
}

/* --- loading --- */

static json_t *read_file(const char *path, bool must_exist, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *text = NULL;
	json_t *file;
	size_t n;

	if (!must_exist && access(path, F_OK) != 0)
		return json_object();
	text = tp_read_path(path, CONFIG_FILE_MAX, &n, &why);
	file = text ? tp_json_parse(text, n, CONFIG_DEPTH, &why) : NULL;
	if (file && !json_is_object(file)) {
		json_decref(file);
		file = NULL;
		tp_fail(&why, TP_EARG, "must be a JSON object");
	}
	if (!file)
		tp_fail(err, TP_EARG, "configuration %s: %s", path, why.text);
	return file;
}

static void overlay(json_t *settings, const json_t *options)
{
	const char *key, *name;
	json_t *value, *pool, *pools = json_object_get(settings, "pool");

	json_object_foreach((json_t *)options, key, value) {
		if (strcmp(key, "config") == 0)
			continue;
		if (strcmp(key, "pool") == 0 && json_is_object(pools)) {
			json_object_foreach(value, name, pool)
				json_object_set(pools, name, pool);
		} else {
			tp_json_set(settings, key, json_deep_copy(value));
		}
	}
}

static void take(struct config *c)
{
	const json_t *s = c->settings, *pool;
	const char *level = tp_json_str(s, "log-level"), *format = tp_json_str(s, "log-format"), *name;

	c->socket = tp_json_str(s, "socket");
	c->state_dir = tp_json_str(s, "state-dir");
	c->runtime_dir = tp_json_str(s, "runtime-dir");
	c->log_level = TP_LOG_INFO;
	if (level)
		tp_level_parse(level, &c->log_level);
	c->log_json = format && strcmp(format, "json") == 0;
	json_object_foreach(json_object_get(s, "pool"), name, pool)
		c->pools[c->npools++] = (struct torpor_pool){
			.name = name, .path = tp_json_str(pool, "path"),
			.quota = (unsigned long long)tp_json_int(pool, "quota", 0),
		};
}

static bool build(struct config *c, const json_t *options, const char *file, struct tp_error *err)
{
	if (!normalize_pools(c->settings, err) || !check_settings(c->settings, err))
		return tp_prefix(err, "configuration %s", file);
	overlay(c->settings, options);
	fill_in_defaults(c->settings);
	if (!check_settings(c->settings, err))
		return false;
	take(c);
	return resolve_groups(c, err);
}

struct config *config_load(const json_t *options, struct tp_error *err)
{
	const char *named = tp_json_str(options, "config");
	tp_autojson json_t *usual = default_config_file();
	const char *file = named ? named : json_string_value(usual);
	struct config *c = calloc(1, sizeof(*c));

	if (!c) {
		tp_fail_nomem(err);
		return NULL;
	}
	c->settings = read_file(file, named, err);
	if (!c->settings || !build(c, options, file, err)) {
		config_free(c);
		return NULL;
	}
	return c;
}

void config_free(struct config *c)
{
	if (!c)
		return;
	json_decref(c->settings);
	free(c);
}

void config_differences(const struct config *a, const struct config *b, char *text, size_t size)
{
	static const char *const fixed[] = { "socket", "socket-group", "state-dir", "runtime-dir", "pool" };
	size_t n = 0;

	*text = 0;
	for (size_t i = 0; i < TP_N(fixed); i++) {
		const json_t *one = json_object_get(a->settings, fixed[i]);
		const json_t *two = json_object_get(b->settings, fixed[i]);

		if ((one || two) && !json_equal(one, two) && n < size)
			n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", fixed[i]);
	}
}
