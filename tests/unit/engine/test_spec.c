/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_spec.c - What is accepted in a spec, and what is refused with which member named */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/tp_json.h"
#include "engine/spec.h"

static bool check(const char *text, char argument[64], struct tp_error *err)
{
	tp_autojson json_t *spec = json_loads(text, 0, NULL);

	assert_non_null(spec);
	argument[0] = '\0';
	return spec_check(spec, "/run/torpor/vm", argument, err);
}

static void refused(const char *text, const char *member, const char *word)
{
	char argument[64];
	struct tp_error err = TP_ERROR_INIT;

	assert_false(check(text, argument, &err));
	assert_string_equal(argument, member);
	if (!strstr(err.text, word))
		fail_msg("\"%s\" does not say \"%s\"", err.text, word);
	assert_string_equal(tp_error_class(&err), "GenericError");
}

static void accepted(const char *text)
{
	char argument[64];
	struct tp_error err = TP_ERROR_INIT;

	if (!check(text, argument, &err))
		fail_msg("%s: %s", argument, err.text);
}

static void refused_args(const char *args, const char *word)
{
	char text[512];

	snprintf(text, sizeof(text), "{\"launch\": {\"binary\": \"qemu\", \"args\": [%s]}}", args);
	refused(text, "launch.args", word);
}

static void whole_specs(void **state)
{
	(void)state;
	accepted("{\"launch\": {\"binary\": \"qemu-system-x86_64\", \"args\": []}}");
	accepted("{\"api\": 1, \"x-owner\": {\"any\": [1]}, \"launch\": {\"binary\": \"q\", \"args\": [\"-M\", \"q35\"],"
		 " \"env\": {\"A\": \"b\"}, \"disks\": {\"disk0\": {\"file\": \"/d\", \"format\": \"qcow2\","
		 " \"read-only\": true, \"options\": {\"discard\": \"unmap\"}}}, \"agent\": \"auto\", \"console\": null,"
		 " \"wrapper\": [\"setpriv\"], \"user\": \"nobody\", \"hooks\": {\"prepare\": [\"/bin/true\"], \"timeout\": 5}},"
		 " \"hibernate\": {\"methods\": [\"save\"], \"pool\": \"default\", \"level\": 3, \"threads\": 2,"
		 " \"keep\": false, \"reserve\": \"estimate\"}, \"restore\": {\"mode\": \"eager\", \"clock\": \"keep\"},"
		 " \"shutdown\": {\"timeout\": 30.5, \"on-timeout\": \"quit\"}, \"labels\": {\"tier\": \"web\"}}");
	accepted("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"restore\": {\"mode\": \"auto\"}}");
	accepted("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"restore\": {\"mode\": \"lazy\"}}");
}

static void members(void **state)
{
	(void)state;
	refused("{}", "launch", "missing");
	refused("{\"launch\": {\"args\": []}}", "launch.binary", "missing");
	refused("{\"launch\": {\"binary\": 5, \"args\": []}}", "launch.binary", "string");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": [5]}}", "launch.args", "strings");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"hibrenate\": {}}", "hibrenate", "not a member");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": [], \"diks\": {}}}", "launch.diks", "not a member");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"hibernate\": {\"level\": 0}}", "hibernate.level",
		"from 1 to 19");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"hibernate\": {\"reserve\": \"some\"}}",
		"hibernate.reserve", "estimate");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"restore\": {\"mode\": \"hasty\"}}", "restore.mode",
		"\"lazy\"");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"api\": 2}", "api", "from 1 to 1");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"restart\": {\"on-crash\": \"never\"}}", "restart",
		"not supported");
}

static void disks(void **state)
{
	(void)state;
	refused("{\"launch\": {\"binary\": \"q\", \"args\": [], \"disks\": {\"d0\": {\"format\": \"raw\"}}}}",
		"launch.disks.d0.file", "missing");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": [], \"disks\": {\"d0\": {\"file\": \"rel\", \"format\": \"raw\"}}}}",
		"launch.disks.d0.file", "absolute");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": [], \"disks\": {\"d0\": {\"file\": \"/x\", \"format\": \"vmdk\"}}}}",
		"launch.disks.d0.format", "qcow2");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": [], \"disks\": {\"../d\": {\"file\": \"/x\", \"format\": \"raw\"}}}}",
		"launch.disks.../d", "disk id");
}

static void storage(void **state)
{
	(void)state;
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"storage\": {\"retain\": {\"age\": 0}}}",
		"storage.retain.age", "1");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"storage\": {\"retain\": {\"count\": -1}}}",
		"storage.retain.count", "0");
	refused("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"storage\": {\"quota\": 2000000000000000000}}",
		"storage.quota", "");
	accepted("{\"launch\": {\"binary\": \"q\", \"args\": []}, \"storage\": {\"quota\": 1000000000000000000, \"retain\":"
		 " {\"count\": 0, \"age\": 1}}}");
}

static void qemu_options(void **state)
{
	(void)state;
	refused_args("\"-daemonize\"", "-daemonize");
	refused_args("\"--daemonize\"", "-daemonize");
	refused_args("\"-incoming\", \"defer\"", "-incoming");
	refused_args("\"-S\"", "-S");
	refused_args("\"-snapshot\"", "-snapshot");
	refused_args("\"-drive\", \"file=/x,if=virtio,snapshot=on\"", "snapshot=on");
	refused_args("\"-monitor\", \"stdio\"", "stdio");
	refused_args("\"-serial\", \"mon:stdio\"", "stdio");
	refused_args("\"-chardev\", \"stdio,id=a\"", "stdio");
	refused_args("\"-object\", \"secret,id=s,data=hunter2\"", "clear-text");
	refused_args("\"-object\", \"id=s,data=hunter2,qom-type=secret\"", "clear-text");
	refused_args("\"-object\", \"{\\\"qom-type\\\": \\\"secret\\\", \\\"id\\\": \\\"s\\\", \\\"data\\\": \\\"x\\\"}\"",
		     "clear-text");
	refused_args("\"-no-shutdown\"", "-no-shutdown");
	refused_args("\"-loadvm\", \"x\"", "-loadvm");
	refused_args("\"-nographic\"", "-nodefaults");
	refused_args("\"-chardev\", \"socket,id=a,path=/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
		     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"", "107");
	accepted("{\"launch\": {\"binary\": \"q\", \"args\": [\"-nodefaults\", \"-nographic\", \"-qmp\","
		 " \"unix:/tmp/x,server=on\", \"-object\", \"secret,id=s,file=/k\", \"-object\","
		 " \"{\\\"qom-type\\\": \\\"secret\\\", \\\"id\\\": \\\"t\\\", \\\"file\\\": \\\"/k\\\"}\", \"-drive\", \"file=/x,snapshot=off\"]}}");
}

static void long_socket_path(void **state)
{
	tp_autojson json_t *spec = json_loads("{\"launch\": {\"binary\": \"q\", \"args\": []}}", 0, NULL);
	char argument[64], dir[160];
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	memset(dir, 'a', sizeof(dir));
	dir[0] = '/';
	dir[120] = '\0';
	assert_false(spec_check(spec, dir, argument, &err));
	assert_string_equal(argument, "name");
}

static void defaults(void **state)
{
	tp_autojson json_t *spec = json_loads("{\"hibernate\": {\"level\": 7}}", 0, NULL);
	tp_autojson json_t *level = spec_get(spec, "hibernate.level");
	tp_autojson json_t *pool = spec_get(spec, "hibernate.pool");
	tp_autojson json_t *unknown = spec_get(spec, "nothing");

	(void)state;
	assert_int_equal(json_integer_value(level), 7);
	assert_string_equal(json_string_value(pool), "default");
	assert_null(unknown);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_specs), cmocka_unit_test(members), cmocka_unit_test(disks), cmocka_unit_test(storage),
		cmocka_unit_test(qemu_options), cmocka_unit_test(long_socket_path), cmocka_unit_test(defaults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
