/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_cmd_pool.c - pool ls, define, rm and df against a scripted daemon */
#include <stdio.h>
#include <unistd.h>

#include "cli_test.h"

#define POOLS "[{'name': 'a', 'path': '/p/a', 'source': 'api', 'state': 'low', 'quota': 4194304, 'low-water': 2097152," \
	" 'total': 1073741824, 'available': 536870912, 'used': 1048576, 'reserved': 3072, 'standing': 2048," \
	" 'guaranteed': true, 'fs': 'ext4', 'images': 1, 'message': ''}," \
	" {'name': 'gone', 'path': '/p/gone', 'source': 'config', 'state': 'missing', 'quota': 0, 'low-water': 0," \
	" 'total': 0, 'available': 0, 'used': 0, 'reserved': 0, 'standing': 0, 'guaranteed': false, 'fs': ''," \
	" 'images': 0, 'message': 'not mounted'}]"

static void prints(struct fake_torpord *d, const char *text)
{
	tp_autofree char *out = NULL;

	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-pools", NULL);
	fake_torpord_return(d, POOLS);
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	if (text)
		assert_string_equal(out, text);
	else
		assert_non_null(strstr(out, "\"standing\": 2048"));
}

static void lists(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "pool", "ls");
	prints(d, "NAME  STATE    USED   AVAILABLE  PATH\n"
		  "a     low      1 MiB  512 MiB    /p/a\n"
		  "gone  missing  0 B    0 B        /p/gone\n");
	FAKE_RUN(d, "pools", "-o", "wide");
	prints(d, "NAME  STATE    USED   AVAILABLE  PATH     QUOTA  LOW-WATER  SOURCE  MESSAGE\n"
		  "a     low      1 MiB  512 MiB    /p/a     4 MiB  2 MiB      api     -\n"
		  "gone  missing  0 B    0 B        /p/gone  -      0 B        config  not mounted\n");
	FAKE_RUN(d, "pool", "ls", "-o", "name");
	prints(d, "a\ngone\n");
	FAKE_RUN(d, "df");
	/* There is room on the disk; the quota's is what counts. */
	prints(d, "POOL  STATE    ROOM   SIZE   AVAILABLE  FULL  IMAGES  RESERVED  STANDING  QUOTA  PATH\n"
		  "a     low      3 MiB  1 GiB  512 MiB    50 %  1 MiB   3 KiB     2 KiB     4 MiB  /p/a\n"
		  "gone  missing  -      -      -          -     -       -         -         -      /p/gone\n");
	FAKE_RUN(d, "df", "-o", "json");
	prints(d, NULL);
}

/* A quota that is all taken is full, however much room the disk has. */
static void a_quota_limits_room(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *out = NULL;

	FAKE_RUN(d, "df");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-pools", NULL);
	fake_torpord_return(d, "[{'name': 'q', 'path': '/q', 'state': 'full', 'quota': 1048576, 'total': 1073741824,"
			    " 'available': 536870912, 'used': 786432, 'reserved': 131072, 'standing': 262144},"
			    " {'name': 'd', 'path': '/d', 'state': 'ok', 'quota': 0, 'total': 1073741824,"
			    " 'available': 536870912, 'used': 0, 'reserved': 268435456, 'standing': 0}]");
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	assert_non_null(strstr(out, "\nq     full   0 B      1 GiB  512 MiB    112 %"));
	assert_non_null(strstr(out, "\nd     ok     256 MiB  1 GiB  512 MiB    50 %"));
}

static void says(struct fake_torpord *d, int status, const char *text)
{
	tp_autofree char *out = NULL, *err = NULL;

	assert_int_equal(fake_torpord_status(d), status);
	out = fake_torpord_out(d);
	err = fake_torpord_err(d);
	assert_string_equal(status ? err : out, text);
}

static void defines(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *cwd = getcwd(NULL, 0), *here = NULL;

	FAKE_RUN(d, "pool", "define", "a", "/p/a", "--quota", "4G", "--low-water=512M");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "pool-define", "{'name': 'a', 'path': '/p/a', 'quota': 4294967296,"
			    " 'low-water': 536870912}");
	fake_torpord_return(d, "{}");
	says(d, 0, "a: defined\n");
	/* Where the user is, not where torpord is. */
	assert_true(asprintf(&here, "{'name': 'a', 'path': '%s/sub/a'}", cwd) > 0);
	FAKE_RUN(d, "pool", "define", "a", "sub/a", "--quiet");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "pool-define", here);
	fake_torpord_return(d, "{}");
	says(d, 0, "");
	FAKE_RUN(d, "pool", "define", "a", "/p/a", "--json");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "pool-define", NULL);
	fake_torpord_return(d, "{}");
	says(d, 0, "{}\n");
	FAKE_RUN(d, "pool", "define", "a", "/p/a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "pool-define", NULL);
	fake_torpord_error(d, "{'class': 'Conflict', 'desc': 'it is used', 'data': {'retry': 'now'}}");
	says(d, 5, "torpor: a: Conflict: it is used\n");
	FAKE_RUN(d, "pool", "define", "a", "/p/a", "--quota", "lots");
	assert_int_equal(fake_torpord_status(d), 2);
	FAKE_RUN(d, "pool", "define", "a");
	assert_int_equal(fake_torpord_status(d), 2);
}

static void forgets(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "pool", "rm", "a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "pool-undefine", "{'name': 'a'}");
	fake_torpord_return(d, "{}");
	says(d, 0, "a: forgotten, nothing was deleted\n");
	FAKE_RUN(d, "pool", "rm", "a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "pool-undefine", "{'name': 'a'}");
	fake_torpord_error(d, "{'class': 'InvalidState', 'desc': 'VM web1 has its state in it', 'data': {'vms': ['web1']}}");
	says(d, 1, "torpor: a: InvalidState: VM web1 has its state in it\n");
	/* A conflict that does not pass is no reason to try again. */
	FAKE_RUN(d, "pool", "rm", "a");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "pool-undefine", NULL);
	fake_torpord_error(d, "{'class': 'Conflict', 'desc': 'pool a comes from the configuration',"
			   " 'data': {'retry': 'never'}}");
	says(d, 1, "torpor: Conflict: pool a comes from the configuration\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(lists), TEST(a_quota_limits_room), TEST(defines), TEST(forgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
