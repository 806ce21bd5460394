/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ops_timeout.c - Deadlines of operations for which nobody gave one: by the VM's RAM and the compression level */
#include "base/tp_json.h"
#include "engine/ops.h"
#include "engine/save_rate.h"
#include "engine/spec_memory.h"
#include "engine/vm.h"

#define TIMEOUT_BASE 120.0
#define TIMEOUT_PER_GIB 15.0
#define SLOWER 3.0		/* than the estimate: a machine that is slower, or does more than this */

static uint64_t ram_of(const struct vm *vm)
{
	struct spec_memory m;

	spec_memory(tp_json_path(vm->spec, "launch.args"), &m);
	return m.ram;
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
