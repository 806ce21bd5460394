/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_api_schema.c - The tables are whole; arguments are checked by them in QEMU's words */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/api_priv.h"
#include "fake/fake_api.h"

static void check_type(const char *type)
{
	char inner[64];

	if (api_container(type, inner))
		check_type(inner);
	else
		assert_true(api_builtin_json(type) || api_type_find(type));
}

static void check_members(const struct api_member *members, enum api_kind kind)
{
	for (const struct api_member *m = members; m && m->name; m++) {
		assert_non_null(m->doc);
		assert_true(*m->doc);
		if (kind == API_ENUM)
			assert_null(m->type);
		else
			check_type(m->type);
		for (const struct api_member *other = m + 1; other->name; other++)
			assert_string_not_equal(m->name, other->name);
	}
}

static bool operation_has(const char *name)
{
	for (const struct api_member *m = api_operation_args; m->name; m++)
		if (strcmp(m->name, name) == 0)
			return true;
	return false;
}

static void tables_are_whole(void **state)
{
	static const struct api_type *const tables[] = {
		api_types_args, api_types_spec, api_types_results, api_types_events,
	};

	(void)state;
	check_members(api_operation_args, API_STRUCT);
	for (const struct api_command *c = api_commands; c->name; c++) {
		assert_ptr_equal(api_command_find(c->name), c);
		assert_non_null(c->handler);
		assert_non_null(c->doc);
		check_members(c->args, API_STRUCT);
		if (c->returns)
			check_type(c->returns);
		for (const struct api_member *m = c->args; c->operation && m && m->name; m++)
			assert_false(operation_has(m->name));
	}
	for (size_t i = 0; i < TP_N(tables); i++) {
		for (const struct api_type *t = tables[i]; t->name; t++) {
			assert_ptr_equal(api_type_find(t->name), t);
			assert_null(api_builtin_json(t->name));
			check_members(t->members, t->kind);
		}
	}
	for (const struct api_event_type *e = api_events; e->name; e++) {
		assert_ptr_equal(api_event_find(e->name), e);
		check_members(e->members, API_STRUCT);
	}
	assert_string_equal(api_class_retry("Busy"), "later");
	assert_string_equal(api_class_retry("NoSuchClass"), "never");
}

#define COUNT(name) + 1
static void every_handler_has_a_command(void **state)
{
	size_t n = 0;

	(void)state;
	while (api_commands[n].name)
		n++;
	assert_int_equal(n, 0 API_HANDLERS(COUNT));
}

static const json_t *entity(const json_t *schema, const char *name)
{
	const json_t *found = NULL, *row;
	size_t i;

	json_array_foreach(schema, i, row) {
		if (strcmp(tp_json_str(row, "name"), name) == 0) {
			assert_null(found);
			found = row;
		}
	}
	assert_non_null(found);
	return found;
}

/* Every type that the introspection names is in it, once. */
static void introspection_is_closed(void **state)
{
	static const char *const refs[] = { "arg-type", "ret-type", "element-type" };
	tp_autojson json_t *schema = api_schema_qapi();
	const json_t *row, *member;
	size_t i, j;

	(void)state;
	json_array_foreach(schema, i, row) {
		assert_non_null(tp_json_str(row, "meta-type"));
		assert_ptr_equal(entity(schema, tp_json_str(row, "name")), row);
		for (j = 0; j < TP_N(refs); j++)
			if (json_object_get(row, refs[j]))
				entity(schema, tp_json_str(row, refs[j]));
		json_array_foreach(json_object_get(row, "members"), j, member)
			if (json_object_get(member, "type"))
				entity(schema, tp_json_str(member, "type"));
	}
	assert_string_equal(tp_json_str(entity(schema, "vm-start"), "meta-type"), "command");
	assert_string_equal(tp_json_str(entity(schema, "VM_STATE"), "meta-type"), "event");
}

static void the_full_schema_documents_all(void **state)
{
	tp_autojson json_t *full = torpor_schema();
	const json_t *row;
	size_t i;

	(void)state;
	assert_int_equal(json_integer_value(json_object_get(full, "api")), TORPOR_API);
	json_array_foreach(json_object_get(full, "commands"), i, row)
		assert_true(strlen(tp_json_str(row, "doc")) > 10);
	assert_true(json_array_size(json_object_get(full, "types")) > 30);
	assert_true(json_array_size(json_object_get(full, "events")) > 10);
	assert_true(json_array_size(json_object_get(full, "error-classes")) > 20);
}

struct args_case {
	const char *command, *args;
	const char *argument, *desc;	/* NULL: accepted */
};

static const struct args_case args_cases[] = {
	{ "vm-start", "{'name': 'a'}", NULL, NULL },
	{ "vm-start", "{'name': 'a', 'wait': true, 'timeout': 1.5, 'operation-id': 'x', 'busy': 'queue', "
	  "'dry-run': false, 'mode': 'boot', 'paused': true}", NULL, NULL },
	{ "vm-start", "{}", "name", "Parameter 'name' is missing" },
	{ "vm-start", "{'name': 1}", "name", "Invalid parameter type for 'name', expected: string" },
	{ "vm-start", "{'name': null}", "name", "Invalid parameter type for 'name', expected: string" },
	{ "vm-start", "{'name': 'a', 'foo': 1}", "foo", "Parameter 'foo' is unexpected" },
	{ "vm-start", "{'name': 'a', 'mode': 'cold'}", "mode", "Parameter 'mode' does not accept value 'cold'" },
	{ "vm-start", "{'name': 'a', 'mode': 1}", "mode", "Invalid parameter type for 'mode', expected: string" },
	{ "vm-start", "{'name': 'a', 'wait': 1}", "wait", "Invalid parameter type for 'wait', expected: boolean" },
	{ "vm-start", "{'name': 'a', 'timeout': '1'}", "timeout",
	  "Invalid parameter type for 'timeout', expected: number" },
	{ "vm-start", "{'name': 'a', 'timeout': -1}", "timeout",
	  "Parameter 'timeout' expects a number of seconds that is not negative" },
	{ "vm-start", "{'name': 'a', 'allow': 'stale-disks'}", "allow",
	  "Invalid parameter type for 'allow', expected: array" },
	{ "vm-start", "{'name': 'a', 'allow': ['stale-disks', 'x']}", "allow[1]",
	  "Parameter 'allow[1]' does not accept value 'x'" },
	{ "vm-pause", "{'name': 'a', 'wait': true}", "wait", "Parameter 'wait' is unexpected" },
	{ "vm-pause", "{'name': '../a'}", "name", NULL },
	{ "vm-pause", "{'name': 'a/b'}", "name", NULL },
	{ "vm-pause", "{'name': 'a\\nb'}", "name", NULL },
	{ "vm-pause", "{'name': ''}", "name", NULL },
	{ "vm-pause", "{'name': '-a'}", "name", NULL },
	{ "vm-pause", "{'name': 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}", "name", NULL },
	{ "vm-hibernate", "{'name': 'a', 'methods': ['save', {'method': 'save', 'timeout': 5}]}", NULL, NULL },
	{ "vm-hibernate", "{'name': 'a', 'methods': [7]}", "methods[0]",
	  "Invalid parameter type for 'methods[0]', expected: HibernateStep" },
	{ "vm-hibernate", "{'name': 'a', 'methods': [{'timeout': 5}]}", "methods[0].method",
	  "Parameter 'methods[0].method' is missing" },
	{ "vm-hibernate", "{'name': 'a', 'methods': [{'method': 'save', 'x': 5}]}", "methods[0].x",
	  "Parameter 'methods[0].x' is unexpected" },
	{ "vm-hibernate", "{'name': 'a', 'level': 1.0}", "level",
	  "Invalid parameter type for 'level', expected: integer" },
	{ "vm-hibernate", "{'name': 'a', 'level': 20}", "level", "Parameter 'level' expects a value from 1 to 19" },
	{ "vm-hibernate", "{'name': 'a', 'level': 0}", "level", "Parameter 'level' expects a value from 1 to 19" },
	{ "vm-hibernate", "{'name': 'a', 'layout': 'stream'}", "layout", "Parameter 'layout' is unexpected" },
	{ "vm-define", "{'name': 'a', 'spec': {'anything': 1}}", NULL, NULL },
	{ "vm-define", "{'name': 'a', 'spec': []}", "spec",
	  "Invalid parameter type for 'spec', expected: object" },
	{ "vm-define", "{'name': 'a'}", "spec", "Parameter 'spec' is missing" },
	{ "image-delete", "{'image': 'vm-20260101T000000Z-abcdef'}", NULL, NULL },
	{ "image-delete", "{'image': '../x'}", "image", NULL },
	{ "query-vms", "{'limit': 0}", "limit", "Parameter 'limit' expects a value from 1 to 10000" },
	{ "query-version", "{}", NULL, NULL },
	{ "query-version", "{'x': 1}", "x", "Parameter 'x' is unexpected" },
};

static void checks_arguments(void **state)
{
	(void)state;
	for (size_t i = 0; i < TP_N(args_cases); i++) {
		const struct args_case *c = &args_cases[i];
		tp_autofree char *text = strdup(c->args);
		tp_autojson json_t *args = NULL, *data = NULL;
		struct tp_error err = TP_ERROR_INIT;
		bool ok;

		for (char *p = text; *p; p++)
			*p = *p == '\'' ? '"' : *p;
		args = json_loads(text, 0, NULL);
		assert_non_null(args);
		ok = api_check_args(api_command_find(c->command), args, &err, &data);
		if (ok != !c->argument)
			fail_msg("%s %s: %s", c->command, c->args, err.text);
		if (ok)
			continue;
		assert_string_equal(tp_error_class(&err), "GenericError");
		assert_string_equal(tp_json_str(data, "argument"), c->argument);
		if (c->desc)
			assert_string_equal(err.text, c->desc);
	}
}

/* Names of members that are no sane text must not break the answer. */
static void a_strange_member_is_named_as_far_as_possible(void **state)
{
	char key[300];
	tp_autojson json_t *args = json_pack("{s:s}", "name", "a"), *data = NULL;
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	/* 63 letters, so that the cut at 64 bytes goes through a character. */
	memset(key, 'y', 63);
	for (size_t i = 63; i + 3 < sizeof(key); i += 2)
		memcpy(key + i, "\xc3\xa4", 3);
	tp_json_set(args, key, json_true());
	assert_false(api_check_args(api_command_find("vm-pause"), args, &err, &data));
	tp_autojson json_t *message = api_error_message(&err, json_incref(data), NULL);
	tp_autofree char *text = json_dumps(message, 0);
	assert_non_null(text);
	assert_non_null(strstr(text, "is unexpected"));
	assert_int_equal(strlen(tp_json_str(data, "argument")), 63);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_are_whole),
		cmocka_unit_test(every_handler_has_a_command),
		cmocka_unit_test(introspection_is_closed),
		cmocka_unit_test(the_full_schema_documents_all),
		cmocka_unit_test(checks_arguments),
		cmocka_unit_test(a_strange_member_is_named_as_far_as_possible),
	};

	/* The stand-ins for the verbs come with this. */
	fake_verb = NULL;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
