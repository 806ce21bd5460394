/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_schema.c - What this QEMU can do, read from query-qmp-schema
 *
 * The reply is a list of entities that refer to each other by name; commands
 * and events have theirs, types have meaningless ones. It is indexed by name and
 * walked on demand. Whatever it says, each walk has an end: paths by their
 * length, lists of lists and values by SCHEMA_DEPTH.
 */
#include "qmp/qmp_schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"

#define SCHEMA_DEPTH 32
#define NAMES_LIMIT (256u << 10)

struct qmp_schema {
	json_t *by_name;
};

struct qmp_schema *qmp_schema_new(const json_t *reply, struct tp_error *err)
{
	struct qmp_schema *s = calloc(1, sizeof(*s));
	json_t *entity;
	size_t i;

	if (!s || !(s->by_name = json_object())) {
		free(s);
		tp_fail_nomem(err);
		return NULL;
	}
	json_array_foreach(reply, i, entity) {
		const char *name = tp_json_str(entity, "name");

		if (!name || !tp_json_str(entity, "meta-type"))
			continue;
		if (json_object_set(s->by_name, name, entity) < 0) {
			qmp_schema_free(s);
			tp_fail_nomem(err);
			return NULL;
		}
	}
	if (!qmp_schema_has_command(s, "query-qmp-schema")) {
		qmp_schema_free(s);
		tp_fail(err, TP_EPROTO, "the reply to query-qmp-schema is no schema");
		return NULL;
	}
	return s;
}

void qmp_schema_free(struct qmp_schema *s)
{
	if (!s)
		return;
	json_decref(s->by_name);
	free(s);
}

static bool is_meta(const json_t *entity, const char *meta)
{
	const char *text = tp_json_str(entity, "meta-type");

	return text && strcmp(text, meta) == 0;
}

static const json_t *entity_named(const struct qmp_schema *s, const char *name)
{
	return name ? json_object_get(s->by_name, name) : NULL;
}

static const json_t *command_named(const struct qmp_schema *s, const char *name)
{
	const json_t *entity = entity_named(s, name);

	return is_meta(entity, "command") ? entity : NULL;
}

bool qmp_schema_has_command(const struct qmp_schema *s, const char *command)
{
	return command_named(s, command) != NULL;
}

bool qmp_schema_has_event(const struct qmp_schema *s, const char *event)
{
	return is_meta(entity_named(s, event), "event");
}

bool qmp_schema_is_oob(const struct qmp_schema *s, const char *command)
{
	return tp_json_bool(command_named(s, command), "allow-oob", false);
}

static const json_t *type_of(const struct qmp_schema *s, const json_t *entity, const char *key)
{
	return entity_named(s, tp_json_str(entity, key));
}

/* Lists give the type of their elements. */
static const json_t *element_of(const struct qmp_schema *s, const json_t *type)
{
	for (int i = 0; i < SCHEMA_DEPTH && is_meta(type, "array"); i++)
		type = type_of(s, type, "element-type");
	return type;
}

static const json_t *find_named(const json_t *list, const char *name, size_t n)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) {
		const char *text = tp_json_str(item, "name");

		if (text && strlen(text) == n && memcmp(text, name, n) == 0)
			return item;
	}
	return NULL;
}

static const json_t *member_of(const struct qmp_schema *s, const json_t *object, const char *name,
			       size_t n)
{
	const json_t *found = find_named(json_object_get(object, "members"), name, n), *variant;
	size_t i;

	json_array_foreach(json_object_get(object, "variants"), i, variant) {
		if (found)
			break;
		found = find_named(json_object_get(type_of(s, variant, "type"), "members"), name,
				   n);
	}
	return found;
}

/* One step down: an object's member, or that of any object among an alternate's types. */
static const json_t *step(const struct qmp_schema *s, const json_t *type, const char *name,
			  size_t n)
{
	const json_t *branch, *found = NULL;
	size_t i;

	type = element_of(s, type);
	if (!is_meta(type, "alternate"))
		return type_of(s, member_of(s, type, name, n), "type");
	json_array_foreach(json_object_get(type, "members"), i, branch) {
		const json_t *object = element_of(s, type_of(s, branch, "type"));

		if (!found)
			found = type_of(s, member_of(s, object, name, n), "type");
	}
	return found;
}

/* The type at a path of a command's arguments, or NULL. */
static const json_t *type_at(const struct qmp_schema *s, const char *command, const char *path)
{
	const json_t *type = type_of(s, command_named(s, command), "arg-type");

	while (type) {
		size_t n = strcspn(path, ".");

		type = step(s, type, path, n);
		if (!path[n])
			break;
		path += n + 1;
	}
	return type;
}

bool qmp_schema_has_arg(const struct qmp_schema *s, const char *command, const char *member)
{
	return type_at(s, command, member) != NULL;
}

static bool enum_has(const json_t *type, const char *value)
{
	const json_t *item;
	size_t i;

	if (find_named(json_object_get(type, "members"), value, strlen(value)))
		return true;
	/* `members` came with QEMU 6.2; `values` is there before it and, deprecated, after it. */
	json_array_foreach(json_object_get(type, "values"), i, item) {
		if (json_is_string(item) && strcmp(json_string_value(item), value) == 0)
			return true;
	}
	return false;
}

bool qmp_schema_has_value(const struct qmp_schema *s, const char *command, const char *path,
			  const char *value)
{
	const json_t *type = element_of(s, type_at(s, command, path));

	return is_meta(type, "enum") && enum_has(type, value);
}

/* ---- arguments against their type ---- */

static bool check_value(const struct qmp_schema *s, const json_t *type, const json_t *value,
			const char *name, int depth, struct tp_error *err);

static bool check_builtin(const json_t *type, const json_t *value, const char *name,
			  struct tp_error *err)
{
	const char *want = tp_json_str(type, "json-type");
	bool ok = false;

	if (!want)
		return tp_fail(err, TP_EPROTO, "%s: the schema has a type without json-type", name);
	if (strcmp(want, "value") == 0)
		ok = true;
	else if (strcmp(want, "string") == 0)
		ok = json_is_string(value);
	else if (strcmp(want, "int") == 0)
		ok = json_is_integer(value);
	else if (strcmp(want, "number") == 0)
		ok = json_is_number(value);
	else if (strcmp(want, "boolean") == 0)
		ok = json_is_boolean(value);
	else if (strcmp(want, "null") == 0)
		ok = json_is_null(value);
	return ok || tp_fail(err, TP_EARG, "%s must be of type %s", name, want);
}

static bool check_enum(const json_t *type, const json_t *value, const char *name,
		       struct tp_error *err)
{
	const char *text = json_string_value(value);

	if (!text)
		return tp_fail(err, TP_EARG, "%s must be a string", name);
	return enum_has(type, text) || tp_fail(err, TP_EARG, "%s cannot be '%s'", name, text);
}

static bool check_alternate(const struct qmp_schema *s, const json_t *type, const json_t *value,
			    const char *name, int depth, struct tp_error *err)
{
	const json_t *branch;
	size_t i;

	json_array_foreach(json_object_get(type, "members"), i, branch) {
		if (check_value(s, type_of(s, branch, "type"), value, name, depth, NULL))
			return true;
	}
	return tp_fail(err, TP_EARG, "%s is of none of the types allowed", name);
}

/* The object type of the variant that the value's tag selects, or NULL. */
static const json_t *variant_of(const struct qmp_schema *s, const json_t *type, const json_t *value)
{
	const char *tag = tp_json_str(type, "tag");
	const char *selected = tag ? tp_json_str(value, tag) : NULL;
	const json_t *variant;
	size_t i;

	json_array_foreach(json_object_get(type, "variants"), i, variant) {
		const char *text = tp_json_str(variant, "case");

		if (selected && text && strcmp(text, selected) == 0)
			return type_of(s, variant, "type");
	}
	return NULL;
}

static bool check_mandatory(const json_t *type, const json_t *value, const char *name,
			    struct tp_error *err)
{
	const json_t *member;
	size_t i;

	json_array_foreach(json_object_get(type, "members"), i, member) {
		const char *key = tp_json_str(member, "name");

		if (key && !json_object_get(member, "default") && !json_object_get(value, key))
			return tp_fail(err, TP_EARG, "%s lacks '%s'", name, key);
	}
	return true;
}

static bool check_object(const struct qmp_schema *s, const json_t *type, const json_t *value,
			 const char *name, int depth, struct tp_error *err)
{
	const json_t *variant = variant_of(s, type, value);
	const char *key;
	json_t *part;

	if (!json_is_object(value))
		return tp_fail(err, TP_EARG, "%s must be an object", name);
	json_object_foreach((json_t *)value, key, part) {
		const json_t *member = find_named(json_object_get(type, "members"), key, strlen(key));

		if (!member)
			member = find_named(json_object_get(variant, "members"), key, strlen(key));
		if (!member)
			return tp_fail(err, TP_EARG, "%s has no member '%s'", name, key);
		if (!check_value(s, type_of(s, member, "type"), part, key, depth + 1, err))
			return tp_prefix(err, "%s", name);
	}
	return check_mandatory(type, value, name, err)
		&& check_mandatory(variant, value, name, err);
}

static bool check_value(const struct qmp_schema *s, const json_t *type, const json_t *value,
			const char *name, int depth, struct tp_error *err)
{
	json_t *item;
	size_t i;

	if (depth > SCHEMA_DEPTH)
		return tp_fail(err, TP_EARG, "%s is nested too deep", name);
	if (is_meta(type, "builtin"))
		return check_builtin(type, value, name, err);
	if (is_meta(type, "enum"))
		return check_enum(type, value, name, err);
	if (is_meta(type, "object"))
		return check_object(s, type, value, name, depth, err);
	if (is_meta(type, "alternate"))
		return check_alternate(s, type, value, name, depth + 1, err);
	if (!is_meta(type, "array"))
		return tp_fail(err, TP_EPROTO, "%s: the schema lacks the type", name);
	if (!json_is_array(value))
		return tp_fail(err, TP_EARG, "%s must be a list", name);
	json_array_foreach(value, i, item) {
		if (!check_value(s, type_of(s, type, "element-type"), item, name, depth + 1, err))
			return false;
	}
	return true;
}

bool qmp_schema_check(const struct qmp_schema *s, const char *command, const json_t *args,
		      struct tp_error *err)
{
	const json_t *entity = command_named(s, command);
	tp_autojson json_t *none = args ? NULL : json_object();

	if (!entity)
		return tp_fail(err, TP_EUNSUPPORTED, "this QEMU has no command %s", command);
	return check_value(s, type_of(s, entity, "arg-type"), args ? args : none, command, 0, err);
}

/* ---- what outlives the schema ---- */

void qmp_features_of(const struct qmp_schema *s, struct qmp_features *f)
{
	static const char set[] = "migrate-set-capabilities", path[] = "capabilities.capability";

	*f = (struct qmp_features){
		.return_path = qmp_schema_has_value(s, set, path, "return-path"),
		.exit_on_error = qmp_schema_has_arg(s, "migrate-incoming", "exit-on-error"),
		.set_active = qmp_schema_has_command(s, "blockdev-set-active"),
		.late_block_activate = qmp_schema_has_value(s, set, path, "late-block-activate"),
		.background_snapshot = qmp_schema_has_value(s, set, path, "background-snapshot"),
		/* The URI is free text, but came together with this form of the same address. */
		.file_uri = qmp_schema_has_value(s, "migrate", "channels.addr.transport", "file"),
		.vm_generation_id = qmp_schema_has_command(s, "query-vm-generation-id"),
	};
}

struct qmp_names {
	struct tp_buf text;	/* each name between newlines */
};

struct qmp_names *qmp_names_new(const struct qmp_schema *s, struct tp_error *err)
{
	struct qmp_names *n = calloc(1, sizeof(*n));
	const char *name;
	json_t *entity;
	bool ok = n != NULL;

	if (ok) {
		n->text.limit = NAMES_LIMIT;
		ok = tp_buf_adds(&n->text, "\n");
	}
	json_object_foreach(s->by_name, name, entity) {
		if (ok && (is_meta(entity, "command") || is_meta(entity, "event")))
			ok = tp_buf_adds(&n->text, name) && tp_buf_adds(&n->text, "\n");
	}
	if (ok)
		return n;
	qmp_names_free(n);
	tp_fail(err, TP_ENOMEM, "no memory for the names in QEMU's schema");
	return NULL;
}

void qmp_names_free(struct qmp_names *n)
{
	if (!n)
		return;
	tp_buf_free(&n->text);
	free(n);
}

bool qmp_names_has(const struct qmp_names *n, const char *name)
{
	size_t len = strlen(name);
	const char *at = n->text.data;

	if (len == 0 || strchr(name, '\n'))
		return false;
	while ((at = strstr(at, name))) {
		if (at[-1] == '\n' && at[len] == '\n')
			return true;
		at += len;
	}
	return false;
}
