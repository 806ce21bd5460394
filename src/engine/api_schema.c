/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_schema.c - Look-up in the schema tables, and what is made from them
 *
 * Two forms: QAPI's introspection (query-qmp-schema), where names, paths, times
 * and sizes are what JSON has for them and maps are "any"; and the full one with
 * documentation, from which docs/schema.md and completions are made.
 */
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/api_priv.h"

static const struct api_type *const type_tables[] = {
	api_types_args, api_types_spec, api_types_results, api_types_events,
};

const struct api_command *api_command_find(const char *name)
{
	for (const struct api_command *cmd = api_commands; cmd->name; cmd++)
		if (strcmp(cmd->name, name) == 0)
			return cmd;
	return NULL;
}

const struct api_type *api_type_find(const char *name)
{
	for (size_t i = 0; i < TP_N(type_tables); i++)
		for (const struct api_type *t = type_tables[i]; t->name; t++)
			if (strcmp(t->name, name) == 0)
				return t;
	return NULL;
}

const struct api_event_type *api_event_find(const char *name)
{
	for (const struct api_event_type *e = api_events; e->name; e++)
		if (strcmp(e->name, name) == 0)
			return e;
	return NULL;
}

const char *api_class_retry(const char *class_)
{
	for (const struct api_class *c = api_classes; c->name; c++)
		if (strcmp(c->name, class_) == 0)
			return c->retry;
	return "never";
}

const char *api_role_name(enum torpor_role role)
{
	static const char *const names[] = { "none", "read", "operate", "admin" };

	return (size_t)role < TP_N(names) ? names[role] : "none";
}

/* --- QAPI introspection --- */

/* The type's name there. An array's element type is entered on the way. */
static json_t *qapi_type(const char *type, json_t *arrays)
{
	char inner[64], bracket = api_container(type, inner);
	const char *json = api_builtin_json(type);
	tp_autojson json_t *element = NULL;

	if (bracket == '{')
		return json_string("any");
	if (bracket == '[') {
		element = qapi_type(inner, arrays);
		json_t *name = json_sprintf("[%s]", json_string_value(element));

		tp_json_set(arrays, json_string_value(name), json_incref(element));
		return name;
	}
	if (!json)
		return json_string(type);
	if (strcmp(json, "value") == 0)
		return json_string("any");
	if (strcmp(json, "string") == 0)
		return json_string("str");
	return json_string(strcmp(json, "boolean") == 0 ? "bool" : json);
}

static void qapi_members(json_t *list, const struct api_member *members, json_t *arrays)
{
	for (const struct api_member *m = members; m && m->name; m++) {
		json_t *row = json_pack("{s:s, s:o}", "name", m->name, "type", qapi_type(m->type, arrays));

		if (m->optional)
			tp_json_set(row, "default", json_null());
		json_array_append_new(list, row);
	}
}

static void qapi_object(json_t *schema, const char *name, const struct api_member *members,
			const struct api_member *more, json_t *arrays)
{
	json_t *list = json_array();

	qapi_members(list, members, arrays);
	qapi_members(list, more, arrays);
	json_array_append_new(schema, json_pack("{s:s, s:s, s:o}", "name", name, "meta-type", "object",
						"members", list));
}

static void qapi_enum(json_t *schema, const struct api_type *t)
{
	json_t *members = json_array(), *values = json_array();

	for (const struct api_member *m = t->members; m->name; m++) {
		json_array_append_new(members, json_pack("{s:s}", "name", m->name));
		json_array_append_new(values, json_string(m->name));
	}
	json_array_append_new(schema, json_pack("{s:s, s:s, s:o, s:o}", "name", t->name, "meta-type", "enum",
						"members", members, "values", values));
}

static void qapi_alternate(json_t *schema, const struct api_type *t, json_t *arrays)
{
	json_t *members = json_array();

	for (const struct api_member *m = t->members; m->name; m++)
		json_array_append_new(members, json_pack("{s:o}", "type", qapi_type(m->type, arrays)));
	json_array_append_new(schema, json_pack("{s:s, s:s, s:o}", "name", t->name, "meta-type", "alternate",
						"members", members));
}

static void qapi_types(json_t *schema, json_t *arrays)
{
	for (size_t i = 0; i < TP_N(type_tables); i++) {
		for (const struct api_type *t = type_tables[i]; t->name; t++) {
			if (t->kind == API_ENUM)
				qapi_enum(schema, t);
			else if (t->kind == API_ALTERNATE)
				qapi_alternate(schema, t, arrays);
			else
				qapi_object(schema, t->name, t->members, NULL, arrays);
		}
	}
}

static void qapi_commands(json_t *schema, json_t *arrays)
{
	for (const struct api_command *cmd = api_commands; cmd->name; cmd++) {
		json_t *row = json_pack("{s:s, s:s, s:b, s:o}", "name", cmd->name, "meta-type", "command",
					"allow-oob", 0, "ret-type",
					qapi_type(cmd->returns ? cmd->returns : "q_empty", arrays));
		json_t *args = json_sprintf("%s-arg", cmd->name);

		tp_json_set(row, "arg-type", json_incref(args));
		json_array_append_new(schema, row);
		qapi_object(schema, json_string_value(args), cmd->args,
			    cmd->operation ? api_operation_args : NULL, arrays);
		json_decref(args);
	}
}

static void qapi_events(json_t *schema, json_t *arrays)
{
	for (const struct api_event_type *e = api_events; e->name; e++) {
		json_t *args = json_sprintf("%s-arg", e->name);

		json_array_append_new(schema, json_pack("{s:s, s:s, s:O}", "name", e->name, "meta-type",
							"event", "arg-type", args));
		qapi_object(schema, json_string_value(args), e->members, NULL, arrays);
		json_decref(args);
	}
}

json_t *api_schema_qapi(void)
{
	static const char *const builtins[][2] = {
		{ "str", "string" }, { "int", "int" }, { "number", "number" }, { "bool", "boolean" },
		{ "null", "null" }, { "any", "value" },
	};
	json_t *schema = json_array(), *element;
	tp_autojson json_t *arrays = json_object();
	const char *name;

	qapi_commands(schema, arrays);
	qapi_events(schema, arrays);
	qapi_types(schema, arrays);
	qapi_object(schema, "q_empty", NULL, NULL, arrays);
	for (size_t i = 0; i < TP_N(builtins); i++)
		json_array_append_new(schema, json_pack("{s:s, s:s, s:s}", "name", builtins[i][0], "meta-type",
							"builtin", "json-type", builtins[i][1]));
	json_object_foreach(arrays, name, element)
		json_array_append_new(schema, json_pack("{s:s, s:s, s:O}", "name", name, "meta-type", "array",
							"element-type", element));
	return schema;
}

/* --- with documentation --- */

#define FIRST_VERSION "0.1.0"

static const char *since(const char *version)
{
	return version ? version : FIRST_VERSION;
}

static json_t *full_members(const struct api_member *members, enum api_kind kind)
{
	json_t *list = json_array();

	for (const struct api_member *m = members; m && m->name; m++) {
		json_t *row = json_pack("{s:s, s:s, s:s}", "name", m->name, "doc", m->doc, "since",
					since(m->since));

		if (kind != API_ENUM)
			tp_json_set_str(row, "type", m->type);
		if (kind == API_STRUCT)
			tp_json_set(row, "optional", json_boolean(m->optional));
		if (m->unit)
			tp_json_set_str(row, "unit", m->unit);
		if (m->ranged) {
			tp_json_set(row, "min", json_real(m->min));
			tp_json_set(row, "max", json_real(m->max));
		}
		json_array_append_new(list, row);
	}
	return list;
}

static json_t *full_commands(void)
{
	json_t *list = json_array();

	for (const struct api_command *cmd = api_commands; cmd->name; cmd++)
		json_array_append_new(list, json_pack(
			"{s:s, s:s, s:s, s:s, s:b, s:o, s:s}", "name", cmd->name, "doc", cmd->doc, "since",
			since(cmd->since), "role", api_role_name(cmd->role), "operation", cmd->operation,
			"arguments", full_members(cmd->args, API_STRUCT), "returns",
			cmd->returns ? cmd->returns : "{}"));
	return list;
}

static json_t *full_events(void)
{
	json_t *list = json_array();

	for (const struct api_event_type *e = api_events; e->name; e++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o}", "name", e->name, "doc", e->doc,
						      "since", since(e->since), "data",
						      full_members(e->members, API_STRUCT)));
	return list;
}

static json_t *full_types(void)
{
	static const char *const kinds[] = { "struct", "enum", "alternate" };
	json_t *list = json_array();

	for (size_t i = 0; i < TP_N(type_tables); i++)
		for (const struct api_type *t = type_tables[i]; t->name; t++)
			json_array_append_new(list, json_pack(
				"{s:s, s:s, s:s, s:s, s:o}", "name", t->name, "kind", kinds[t->kind], "doc",
				t->doc, "since", since(t->since), "members",
				full_members(t->members, t->kind)));
	return list;
}

static json_t *full_classes(void)
{
	json_t *list = json_array();

	for (const struct api_class *c = api_classes; c->name; c++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", c->name, "retry", c->retry,
						      "doc", c->doc));
	return list;
}

json_t *api_schema_full(void)
{
	return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "api", TORPOR_API, "torpor",
			 torpor_version(), "commands", full_commands(), "operation-arguments",
			 full_members(api_operation_args, API_STRUCT), "events", full_events(), "types",
			 full_types(), "error-classes", full_classes());
}
