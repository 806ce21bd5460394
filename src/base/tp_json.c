/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_json.c - Short access to jansson values */
#include "tp_json.h"

#include <string.h>

#include "tp_buf.h"

/* Merging recurses: a patch of more levels is refused. What tp_json_parse() lets in is flatter. */
#define MERGE_DEPTH_MAX 1024
/* No integer of this many digits is too large for json_int_t. */
#define SAFE_DIGITS 18

const char *tp_json_str(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

int64_t tp_json_int(const json_t *object, const char *key, int64_t otherwise)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

double tp_json_num(const json_t *object, const char *key, double otherwise)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : otherwise;
}

bool tp_json_bool(const json_t *object, const char *key, bool otherwise)
{
	const json_t *value = json_object_get(object, key);

	return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

json_t *tp_json_path(const json_t *root, const char *path)
{
	/* jansson's getters take const and give what is not: so does this. */
	json_t *at = NULL;
	size_t n;

	while (json_is_object(root)) {
		n = strcspn(path, ".");
		at = json_object_getn(root, path, n);
		if (!path[n])
			return at;
		path += n + 1;
		root = at;
	}
	return NULL;
}

bool tp_json_set(json_t *object, const char *key, json_t *value_owned)
{
	return json_object_set_new(object, key, value_owned) == 0;
}

bool tp_json_set_str(json_t *object, const char *key, const char *text_or_null)
{
	return tp_json_set(object, key, text_or_null ? json_string(text_or_null) : json_null());
}

static bool merge_into(json_t *target, const json_t *patch, unsigned depth);

static bool merge_member(json_t *target, const char *key, json_t *value, unsigned depth)
{
	json_t *at;

	if (json_is_null(value)) {
		json_object_del(target, key);
		return true;
	}
	if (!json_is_object(value))
		return tp_json_set(target, key, json_deep_copy(value));
	/* Not copied: also in a new object the patch's nulls are absences. */
	at = json_object_get(target, key);
	if (!json_is_object(at)) {
		if (!tp_json_set(target, key, json_object()))
			return false;
		at = json_object_get(target, key);
	}
	return merge_into(at, value, depth + 1);
}

static bool merge_into(json_t *target, const json_t *patch, unsigned depth)
{
	const char *key;
	json_t *value;

	if (depth > MERGE_DEPTH_MAX)
		return false;
	/* The macro iterates over what it may not change; a cast is what its own text does. */
	json_object_foreach((json_t *)(uintptr_t)patch, key, value) {
		if (!merge_member(target, key, value, depth))
			return false;
	}
	return true;
}

json_t *tp_json_merge_patch(const json_t *target, const json_t *patch)
{
	tp_autojson json_t *result = NULL;

	if (patch && !json_is_object(patch))
		return json_deep_copy(patch);
	if (!patch)
		return json_deep_copy(target);
	result = json_is_object(target) ? json_deep_copy(target) : json_object();
	if (!result || !merge_into(result, patch, 0))
		return NULL;
	return TP_STEAL(result);
}

static int text_part(const char *data, size_t n, void *buf)
{
	return tp_buf_add(buf, data, n) ? 0 : -1;
}

char *tp_json_text(const json_t *value)
{
	/* Not json_dumps(): a host program may have given jansson an allocator of its own. */
	tp_autobuf struct tp_buf text = TP_BUF_INIT(0);
	size_t flags = JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY;

	if (json_dump_callback(value, text_part, &text, flags) != 0)
		return NULL;
	return tp_buf_steal(&text);
}

/* Length of the string at text, both quotes included, or n if it does not end. */
static size_t string_span(const char *text, size_t n)
{
	size_t i = 1;

	while (i < n && text[i] != '"')
		i += text[i] == '\\' ? 2 : 1;
	return i < n ? i + 1 : n;
}

unsigned tp_json_depth(const char *text, size_t n)
{
	unsigned depth = 0, max = 0;
	size_t i = 0;

	while (i < n) {
		if (text[i] == '"') {
			i += string_span(text + i, n - i);
			continue;
		}
		if (text[i] == '{' || text[i] == '[') {
			if (++depth > max)
				max = depth;
		} else if ((text[i] == '}' || text[i] == ']') && depth > 0) {
			depth--;
		}
		i++;
	}
	return max;
}

static size_t number_span(const char *text, size_t n, bool *integer)
{
	size_t i = 0;

	*integer = true;
	for (; i < n && text[i] && strchr("+-.eE0123456789", text[i]); i++) {
		if (text[i] == '.' || text[i] == 'e' || text[i] == 'E')
			*integer = false;
	}
	return i;
}

/*
 * QEMU counts in 64 bits without a sign, jansson with one, and refuses the whole text for a number
 * above 2^63. Copies text with ".0" behind long integers, which makes these, and only these, reals.
 */
static bool soften_integers(struct tp_buf *out, const char *text, size_t n)
{
	bool integer, ok = true;
	size_t i = 0, span;

	while (i < n && ok) {
		if (text[i] == '"') {
			span = string_span(text + i, n - i);
			ok = tp_buf_add(out, text + i, span);
		} else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
			span = number_span(text + i, n - i, &integer);
			ok = tp_buf_add(out, text + i, span);
			if (ok && integer && span > SAFE_DIGITS)
				ok = tp_buf_adds(out, ".0");
		} else {
			span = 1;
			ok = tp_buf_add(out, text + i, 1);
		}
		i += span;
	}
	return ok;
}

json_t *tp_json_parse(const char *text, size_t n, unsigned depth, struct tp_error *err)
{
	tp_autobuf struct tp_buf soft = TP_BUF_INIT(0);
	size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
	json_error_t why;
	json_t *value;

	if (tp_json_depth(text, n) > depth) {
		tp_fail(err, TP_ELIMIT, "JSON text of more than %u levels", depth);
		return NULL;
	}
	value = json_loadb(text, n, flags, &why);
	if (!value && json_error_code(&why) == json_error_numeric_overflow) {
		if (!soften_integers(&soft, text, n)) {
			tp_fail_nomem(err);
			return NULL;
		}
		value = json_loadb(soft.data, soft.len, flags, &why);
	}
	if (!value && json_error_code(&why) == json_error_out_of_memory)
		tp_fail_nomem(err);
	else if (!value)
		tp_fail(err, TP_EPROTO, "invalid JSON at byte %d: %s", why.position,
			json_error_code(&why) == json_error_null_character ? "\\u0000 cannot be in a text" : why.text);
	return value;
}
