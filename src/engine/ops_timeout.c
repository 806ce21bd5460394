/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ops_timeout.c - Deadlines of operations for which nobody gave one: by the VM's RAM and the compression level */
#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_size.h"
#include "engine/ops.h"
#include "engine/save_rate.h"
#include "engine/vm.h"

#define TIMEOUT_BASE 120.0
#define TIMEOUT_PER_GIB 15.0
#define SLOWER 3.0		/* than the estimate: a machine that is slower, or does more than this */
#define RAM_DEFAULT (128u << 20)	/* QEMU's */

static uint64_t ram_of(const struct vm *vm)
{
	json_t *args = tp_json_path(vm->spec, "launch.args");
	uint64_t ram = RAM_DEFAULT;

	for (size_t i = 0; i + 1 < json_array_size(args); i++) {
		const char *option = json_string_value(json_array_get(args, i));
		const char *value = json_string_value(json_array_get(args, i + 1));
		char text[32];

		if (strcmp(option, "-m") != 0)
			continue;
		value += strncmp(value, "size=", 5) == 0 ? 5 : 0;
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(value, ","), value);
		/* Without a unit QEMU counts MiB. */
		if (text[strspn(text, "0123456789")] == '\0')
			strncat(text, "M", sizeof(text) - strlen(text) - 1);
		tp_size_parse(text, &ram);
	}
	return ram;
}

double ops_default_timeout(const struct vm *vm)
{
	return TIMEOUT_BASE + TIMEOUT_PER_GIB * (double)ram_of(vm) / (1 << 30);
}

double ops_save_timeout(const struct vm *vm, const json_t *args)
{
	const json_t *spec = json_object_get(vm->spec, "hibernate");
	int64_t level = tp_json_int(args, "level", tp_json_int(spec, "level", 1));
	double usual = ops_default_timeout(vm), slow = TIMEOUT_BASE + SLOWER * (double)ram_of(vm) / save_rate(level);

	return tp_json_num(spec, "timeout", slow > usual ? slow : usual);
}
