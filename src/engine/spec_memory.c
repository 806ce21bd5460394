/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * spec_memory.c - How much memory a machine has, as far as its QEMU arguments say
 *
 * A backend that the machine (memory-backend=) or its NUMA nodes (memdev=) name is the RAM of -m itself.
 */
#include "engine/spec_memory.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_size.h"

#define DEFAULT_RAM (128ull << 20)	/* QEMU's */
#define VALUE_MAX 128u

/* The value of "key=" among QEMU's comma-separated options into value; false: there is none. */
static bool option(const char *options, const char *key, char value[VALUE_MAX])
{
	size_t n = strlen(key);

	for (const char *p = options; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		if (strncmp(p, key, n) != 0 || p[n] != '=')
			continue;
		snprintf(value, VALUE_MAX, "%.*s", (int)strcspn(p + n + 1, ","), p + n + 1);
		return true;
	}
	return false;
}

/* QEMU's sizes; `unit` is that of a number without one. */
static uint64_t size_of(const char *text, char unit)
{
	char with_unit[VALUE_MAX + 2];
	bool bare = text[strspn(text, "0123456789")] == '\0';
	uint64_t bytes = 0;

	snprintf(with_unit, sizeof(with_unit), bare && unit ? "%s%c" : "%s", text, unit);
	return tp_size_parse(with_unit, &bytes) ? bytes : 0;
}

static uint64_t ram_of(const char *options)
{
	char value[VALUE_MAX];

	if (option(options, "size", value))
		return size_of(value, 'M');
	snprintf(value, sizeof(value), "%.*s", (int)strcspn(options, ","), options);
	return strchr(value, '=') ? 0 : size_of(value, 'M');
}

/* -object memory-backend-...,id=,size= or its JSON. */
static uint64_t backend_of(const char *text, char id[VALUE_MAX])
{
	tp_autojson json_t *object = *text == '{' ? json_loads(text, 0, NULL) : NULL;
	const char *type = object ? tp_json_str(object, "qom-type") : text;
	const json_t *size = json_object_get(object, "size");
	char value[VALUE_MAX];

	*id = '\0';
	if (!type || strncmp(type, "memory-backend-", strlen("memory-backend-")) != 0)
		return 0;
	if (!object)
		return option(text, "id", id) && option(text, "size", value) ? size_of(value, '\0') : 0;
	snprintf(id, VALUE_MAX, "%s", tp_json_str(object, "id") ? tp_json_str(object, "id") : "");
	if (json_is_integer(size))
		return json_integer_value(size) > 0 ? (uint64_t)json_integer_value(size) : 0;
	return json_is_string(size) ? size_of(json_string_value(size), '\0') : 0;
}

static bool is(const char *option, const char *name)
{
	/* QEMU takes two dashes as one. */
	return strcmp(option + (strncmp(option, "--", 2) == 0), name) == 0;
}

/* The machine's RAM itself? */
static bool is_main(const json_t *args, const char *id)
{
	char value[VALUE_MAX];

	for (size_t i = 0; *id && i + 1 < json_array_size(args); i++) {
		const char *name = json_string_value(json_array_get(args, i));
		const char *text = json_string_value(json_array_get(args, i + 1));

		if ((is(name, "-machine") || is(name, "-M")) && option(text, "memory-backend", value) &&
		    strcmp(value, id) == 0)
			return true;
		if (is(name, "-numa") && option(text, "memdev", value) && strcmp(value, id) == 0)
			return true;
	}
	return false;
}

void spec_memory(const json_t *args, struct spec_memory *m)
{
	char id[VALUE_MAX];

	*m = (struct spec_memory){ .ram = DEFAULT_RAM };
	for (size_t i = 0; i + 1 < json_array_size(args); i++) {
		const char *name = json_string_value(json_array_get(args, i));
		const char *text = json_string_value(json_array_get(args, i + 1));
		uint64_t bytes;

		if (is(name, "-m")) {
			bytes = ram_of(text);
			m->ram = bytes ? bytes : m->ram;
		} else if (is(name, "-object")) {
			bytes = backend_of(text, id);
			if (bytes && !is_main(args, id) && !tp_add(m->plugged, bytes, &m->plugged))
				m->plugged = UINT64_MAX;
		}
	}
}
