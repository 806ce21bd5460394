/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_check.c - Arguments against the schema tables, in QEMU's words
 *
 * The first thing wrong is reported, with its full name ("methods[1].timeout")
 * in the text and in data.argument. Calls nest as deep as types do in the
 * tables, which have no circles; the input's depth was limited before.
 */
#include "engine/api.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_text.h"
#include "engine/api_priv.h"

#define PATH_SIZE 160
#define IMAGE_NAME_MAX 90
#define ARRAY_MAX 65536
#define TEXT_SHOWN 64		/* of a wrong value, in messages */

struct check {
	char path[PATH_SIZE];
	struct tp_error *err;
};

static bool check_value(struct check *c, const struct api_member *m, const char *type,
			const json_t *value);

static bool bad(struct check *c, const char *what)
{
	tp_text_clean(c->path);
	return tp_fail_class(c->err, TP_EARG, "GenericError", "Parameter '%s' %s", c->path, what);
}

static bool wrong_type(struct check *c, const char *expected)
{
	tp_text_clean(c->path);
	return tp_fail_class(c->err, TP_EARG, "GenericError",
			     "Invalid parameter type for '%s', expected: %s", c->path, expected);
}

/* --- built-in types --- */

static bool name_ok(const json_t *value)
{
	return tp_name_ok(json_string_value(value));
}

static bool image_ok(const json_t *value)
{
	const char *text = json_string_value(value);

	return json_string_length(value) <= IMAGE_NAME_MAX && *text && *text != '.' && *text != '-' &&
	       text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")] == 0;
}

static bool path_ok(const json_t *value)
{
	return *json_string_value(value) == '/';
}

static bool not_negative(const json_t *value)
{
	double n = json_number_value(value);

	return isfinite(n) && n >= 0;
}

enum form { FORM_STRING, FORM_INTEGER, FORM_NUMBER, FORM_BOOLEAN, FORM_NULL, FORM_OBJECT, FORM_ANY };

static const struct builtin {
	const char *name;
	enum form form;
	bool (*ok)(const json_t *value);
	const char *expects;		/* what ok() asks for */
} builtins[] = {
	{ "str", FORM_STRING, NULL, NULL },
	{ "int", FORM_INTEGER, NULL, NULL },
	{ "number", FORM_NUMBER, NULL, NULL },
	{ "bool", FORM_BOOLEAN, NULL, NULL },
	{ "null", FORM_NULL, NULL, NULL },
	{ "object", FORM_OBJECT, NULL, NULL },
	{ "any", FORM_ANY, NULL, NULL },
	{ "name", FORM_STRING, name_ok, "1 to 64 of letters, digits, '_', '.' and '-', not beginning "
	  "with '.' or '-'" },
	{ "image-id", FORM_STRING, image_ok, "the id of an image as query-images shows it" },
	{ "path", FORM_STRING, path_ok, "an absolute path" },
	{ "time", FORM_STRING, NULL, NULL },
	{ "size", FORM_INTEGER, not_negative, "a number of bytes that is not negative" },
	{ "seconds", FORM_NUMBER, not_negative, "a number of seconds that is not negative" },
};

static const struct form_info {
	const char *expected;		/* QEMU's word in messages */
	const char *json;		/* QAPI's word in introspection */
} forms[] = {
	[FORM_STRING] = { "string", "string" },
	[FORM_INTEGER] = { "integer", "int" },
	[FORM_NUMBER] = { "number", "number" },
	[FORM_BOOLEAN] = { "boolean", "boolean" },
	[FORM_NULL] = { "null", "null" },
	[FORM_OBJECT] = { "object", "value" },
	[FORM_ANY] = { "value", "value" },
};

static const struct builtin *builtin_find(const char *type)
{
	for (size_t i = 0; i < TP_N(builtins); i++)
		if (strcmp(builtins[i].name, type) == 0)
			return &builtins[i];
	return NULL;
}

const char *api_builtin_json(const char *type)
{
	const struct builtin *b = builtin_find(type);

	return b ? forms[b->form].json : NULL;
}

static bool form_ok(enum form form, const json_t *value)
{
	switch (form) {
	case FORM_STRING: return json_is_string(value);
	case FORM_INTEGER: return json_is_integer(value);
	case FORM_NUMBER: return json_is_number(value);
	case FORM_BOOLEAN: return json_is_boolean(value);
	case FORM_NULL: return json_is_null(value);
	case FORM_OBJECT: return json_is_object(value);
	case FORM_ANY: return true;
	}
	return false;
}

static bool check_builtin(struct check *c, const struct builtin *b, const json_t *value)
{
	char text[TP_TEXT_SIZE];

	if (!form_ok(b->form, value))
		return wrong_type(c, forms[b->form].expected);
	if (!b->ok || b->ok(value))
		return true;
	snprintf(text, sizeof(text), "expects %s", b->expects);
	return bad(c, text);
}

static bool check_range(struct check *c, const struct api_member *m, const json_t *value)
{
	char text[96];
	double n = json_number_value(value);

	if (!json_is_number(value) || (n >= m->min && n <= m->max))
		return true;
	snprintf(text, sizeof(text), "expects a value from %.15g to %.15g", m->min, m->max);
	return bad(c, text);
}

/* --- containers, enums, alternates, structs --- */

char api_container(const char *type, char inner[64])
{
	size_t n = strlen(type);

	if (n < 3 || n - 2 >= 64 || (*type != '[' && *type != '{'))
		return 0;
	memcpy(inner, type + 1, n - 2);
	inner[n - 2] = 0;
	return *type;
}

static bool check_array(struct check *c, const char *inner, const json_t *value)
{
	size_t at = strlen(c->path), i;
	json_t *item;

	if (!json_is_array(value))
		return wrong_type(c, "array");
	if (json_array_size(value) > ARRAY_MAX)
		return bad(c, "has too many items");
	json_array_foreach(value, i, item) {
		snprintf(c->path + at, PATH_SIZE - at, "[%zu]", i);
		if (!check_value(c, NULL, inner, item))
			return false;
		c->path[at] = 0;
	}
	return true;
}

static bool check_map(struct check *c, const char *inner, const json_t *value)
{
	size_t at = strlen(c->path);
	const char *key;
	json_t *item;

	if (!json_is_object(value))
		return wrong_type(c, "object");
	json_object_foreach((json_t *)value, key, item) {
		snprintf(c->path + at, PATH_SIZE - at, ".%.*s", TEXT_SHOWN, key);
		if (!check_value(c, NULL, inner, item))
			return false;
		c->path[at] = 0;
	}
	return true;
}

static bool check_enum(struct check *c, const struct api_type *t, const json_t *value)
{
	char text[TEXT_SHOWN + 40];
	const char *word = json_string_value(value);

	if (!word)
		return wrong_type(c, "string");
	for (const struct api_member *m = t->members; m->name; m++)
		if (strcmp(m->name, word) == 0)
			return true;
	snprintf(text, sizeof(text), "does not accept value '%.*s'", TEXT_SHOWN, word);
	return bad(c, text);
}

/* The JSON type chooses among the members: no two of them have the same. */
static bool member_fits(const struct api_member *m, const json_t *value)
{
	const struct builtin *b = builtin_find(m->type);
	const struct api_type *t = b ? NULL : api_type_find(m->type);
	char inner[64];

	if (b)
		return form_ok(b->form, value);
	if (t)
		return t->kind == API_ENUM ? json_is_string(value) : json_is_object(value);
	return api_container(m->type, inner) == '[' ? json_is_array(value) : json_is_object(value);
}

static bool check_alternate(struct check *c, const struct api_type *t, const json_t *value)
{
	for (const struct api_member *m = t->members; m->name; m++)
		if (member_fits(m, value))
			return check_value(c, m, m->type, value);
	return wrong_type(c, t->name);
}

static const struct api_member *member_find(const struct api_member *members, const char *name)
{
	for (const struct api_member *m = members; m && m->name; m++)
		if (strcmp(m->name, name) == 0)
			return m;
	return NULL;
}

static bool check_known(struct check *c, const struct api_member *members, const json_t *object)
{
	size_t at = strlen(c->path);

	for (const struct api_member *m = members; m && m->name; m++) {
		const json_t *value = json_object_get(object, m->name);

		snprintf(c->path + at, PATH_SIZE - at, "%s%s", at ? "." : "", m->name);
		if (!value && !m->optional)
			return bad(c, "is missing");
		if (value && !check_value(c, m, m->type, value))
			return false;
		c->path[at] = 0;
	}
	return true;
}

static bool check_unknown(struct check *c, const struct api_member *members,
			  const struct api_member *more, const json_t *object)
{
	size_t at = strlen(c->path);
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value) {
		if (member_find(members, key) || member_find(more, key))
			continue;
		snprintf(c->path + at, PATH_SIZE - at, "%s%.*s", at ? "." : "", TEXT_SHOWN, key);
		return bad(c, "is unexpected");
	}
	return true;
}

static bool check_type(struct check *c, const struct api_type *t, const json_t *value)
{
	if (t->kind == API_ENUM)
		return check_enum(c, t, value);
	if (t->kind == API_ALTERNATE)
		return check_alternate(c, t, value);
	if (!json_is_object(value))
		return wrong_type(c, "object");
	return t->open || (check_known(c, t->members, value) && check_unknown(c, t->members, NULL, value));
}

static bool check_value(struct check *c, const struct api_member *m, const char *type,
			const json_t *value)
{
	const struct builtin *b = builtin_find(type);
	const struct api_type *t = b ? NULL : api_type_find(type);
	char inner[64];

	if (b) {
		if (!check_builtin(c, b, value))
			return false;
		return !m || !m->ranged || check_range(c, m, value);
	}
	if (t)
		return check_type(c, t, value);
	return api_container(type, inner) == '[' ? check_array(c, inner, value)
						 : check_map(c, inner, value);
}

bool api_check_args(const struct api_command *cmd, const json_t *args, struct tp_error *err,
		    json_t **error_data)
{
	struct check c = { .err = err };
	const struct api_member *more = cmd->operation ? api_operation_args : NULL;

	if (check_known(&c, cmd->args, args) && check_known(&c, more, args) &&
	    check_unknown(&c, cmd->args, more, args))
		return true;
	if (error_data)
		*error_data = json_pack("{s:s}", "argument", c.path);
	return false;
}
