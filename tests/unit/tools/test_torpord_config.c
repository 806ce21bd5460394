/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_torpord_config.c - torpord's settings: precedence, defaults, mistakes, roles */
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "torpord_config.h"

static char folder[] = "/tmp/torpord-config-XXXXXX";
static char file[64];

static int make_folder(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/c.json", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(file);
	return rmdir(folder);
}

/* The file's text with ' for ", and options likewise. */
static struct config *load(const char *text, const char *options_text, struct tp_error *err)
{
	tp_autofree char *copy = strdup(text), *more = strdup(options_text);
	tp_autojson json_t *options = NULL;
	FILE *f = fopen(file, "w");

	assert_non_null(f);
	for (char *p = copy; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	for (char *p = more; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	fputs(copy, f);
	assert_int_equal(fclose(f), 0);
	options = json_loads(more, 0, NULL);
	assert_non_null(options);
	tp_json_set_str(options, "config", file);
	return config_load(options, err);
}

static const struct torpor_pool *pool(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->npools; i++)
		if (strcmp(c->pools[i].name, name) == 0)
			return &c->pools[i];
	return NULL;
}

static void options_go_before_the_file(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct config *c = load("{'socket': '/s/a', 'state-dir': '/st', 'log-level': 'warn', 'log-format': 'json', "
				"'pool': {'default': {'path': '/p', 'quota': '1G'}, 'big': {'path': '/b'}}}",
				"{'socket': '/s/b', 'pool': {'big': {'path': '/c', 'quota': 5}}}", &err);

	(void)state;
	assert_non_null(c);
	assert_string_equal(c->socket, "/s/b");
	assert_string_equal(c->state_dir, "/st");
	assert_int_equal(c->log_level, TP_LOG_WARN);
	assert_true(c->log_json);
	assert_int_equal(c->npools, 2);
	assert_string_equal(pool(c, "default")->path, "/p");
	assert_true(pool(c, "default")->quota == 1ULL << 30);
	assert_string_equal(pool(c, "big")->path, "/c");
	assert_true(pool(c, "big")->quota == 5);
	config_free(c);
}

static void defaults_follow_the_folders(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct config *c = load("{'pool': ['other=/o,quota=2M']}", "{'state-dir': '/st', 'runtime-dir': '/rt'}", &err);

	(void)state;
	assert_non_null(c);
	assert_string_equal(c->socket, "/rt/torpor.sock");
	assert_string_equal(pool(c, "default")->path, "/st/pool");
	assert_true(pool(c, "other")->quota == 2 << 20);
	assert_int_equal(c->log_level, TP_LOG_INFO);
	config_free(c);
}

static void mistakes_are_named(void **state)
{
	static const char *const cases[][2] = {
		{ "{'sockett': '/s'}", "sockett" }, { "[]", "object" }, { "{'socket'", "invalid" },
		{ "{'socket': 'rel'}", "socket" }, { "{'log-level': 'loud'}", "log-level" },
		{ "{'log-format': 'xml'}", "log-format" }, { "{'pool': {'a': 1}}", "pool.a" },
		{ "{'pool': {'../a': {'path': '/x'}}}", "../a" }, { "{'pool': {'a': {'path': 'x'}}}", "pool.a.path" },
		{ "{'pool': {'a': {'path': '/x', 'quota': '5Q'}}}", "pool.a.quota" },
		{ "{'pool': {'a': {'path': '/x', 'quota': -1}}}", "pool.a.quota" },
		{ "{'pool': {'a': {'path': '/x', 'size': 1}}}", "pool.a.size" }, { "{'pool': ['a']}", "NAME=DIR" },
		{ "{'pool': [1]}", "pool" }, { "{'roles': {'boss': []}}", "boss" },
		{ "{'roles': {'read': 'x'}}", "roles.read" }, { "{'roles': {'read': ['no such group']}}", "no such group" },
		{ "{'socket-group': 'no such group'}", "socket-group" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++) {
		struct tp_error err = TP_ERROR_INIT;

		assert_null(load(cases[i][0], "{}", &err));
		if (!strstr(err.text, cases[i][1]))
			fail_msg("%s: %s", cases[i][0], err.text);
	}
}

static void a_named_file_must_be_there(void **state)
{
	tp_autojson json_t *options = json_pack("{s:s}", "config", "/nonexistent/c.json");
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_null(config_load(options, &err));
	assert_non_null(strstr(err.text, "/nonexistent/c.json"));
}

static void pools_as_text(void **state)
{
	static const char *const wrong[] = { "", "a", "a=", "=/x", "a b=/x", "a=/x,quota=", "a=/x,quota=1Z",
					     "a=/x,low-water=1G", "a=/x,low-water=1G,quota=1G", "a=/x,quot=1" };
	tp_autojson json_t *pools = json_object();
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_true(config_parse_pool("a=/x=y,quota=3K", pools, &err));
	assert_string_equal(tp_json_str(json_object_get(pools, "a"), "path"), "/x=y");
	assert_int_equal(tp_json_int(json_object_get(pools, "a"), "quota", 0), 3072);
	for (size_t i = 0; i < TP_N(wrong); i++) {
		tp_error_clear(&err);
		assert_false(config_parse_pool(wrong[i], pools, &err));
		assert_non_null(strstr(err.text, "pool"));
	}
}

static void roles_go_by_group(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct config *c;
	struct tp_peer peer = { .uid = 4000000, .gid = 4000000 };
	gid_t mail_gid;

	(void)state;
	/* Groups that every Debian has. */
	assert_non_null(getgrnam("daemon"));
	assert_non_null(getgrnam("mail"));
	peer.groups[0] = getgrnam("daemon")->gr_gid;
	mail_gid = getgrnam("mail")->gr_gid;
	c = load("{'roles': {'read': ['daemon'], 'operate': ['mail']}, 'socket-group': 'mail'}", "{}", &err);
	assert_non_null(c);
	assert_true(c->has_socket_group && c->socket_group == mail_gid);
	assert_int_equal(config_role(c, &peer), TORPOR_ROLE_NONE);
	peer.ngroups = 1;
	assert_int_equal(config_role(c, &peer), TORPOR_ROLE_READ);
	peer.gid = mail_gid;
	assert_int_equal(config_role(c, &peer), TORPOR_ROLE_OPERATE);
	peer.uid = 0;
	assert_int_equal(config_role(c, &peer), TORPOR_ROLE_ADMIN);
	peer.uid = geteuid();
	assert_int_equal(config_role(c, &peer), TORPOR_ROLE_ADMIN);
	config_free(c);
}

static void differences_are_named(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct config *a = load("{'socket': '/a', 'log-level': 'warn'}", "{}", &err);
	struct config *b = load("{'socket': '/b', 'pool': ['x=/x']}", "{}", &err);
	char text[128];

	(void)state;
	config_differences(a, b, text, sizeof(text));
	assert_string_equal(text, "socket, pool");
	config_differences(a, a, text, sizeof(text));
	assert_string_equal(text, "");
	config_free(a);
	config_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_go_before_the_file),
		cmocka_unit_test(defaults_follow_the_folders),
		cmocka_unit_test(mistakes_are_named),
		cmocka_unit_test(a_named_file_must_be_there),
		cmocka_unit_test(pools_as_text),
		cmocka_unit_test(roles_go_by_group),
		cmocka_unit_test(differences_are_named),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
