/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* room.c - How large a VM's image can be at most, and what a pool is asked for it */
#include "engine/room.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_size.h"
#include "engine/engine.h"
#include "engine/spec_memory.h"
#include "engine/standing.h"
#include "storage/image_bound.h"

#define PAGE 4096u
#define SPEC_BLOCKS 32u		/* RAM blocks of a machine that nobody asked */

/* --- size --- */

/* Name, page size, then offset, used and total in hex. No QMP command tells them. */
bool room_ramblocks(const char *text, uint64_t *ram, unsigned *blocks)
{
	*ram = 0;
	*blocks = 0;
	for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *end = strchr(line, '\n'), *offset = strstr(line, " 0x"), *used;
		char *rest;

		if (!offset || (end && offset > end) || !(used = strstr(offset + 3, " 0x")))
			continue;
		if (!tp_add(*ram, strtoull(used + 1, &rest, 16), ram))
			return false;
		(*blocks)++;
	}
	return *blocks != 0;
}

/* "pc.ram    4 KiB  0x0000000000000000 ..." */
bool room_other_pages(const char *text, uint64_t page, char *block, size_t size, uint64_t *bytes)
{
	for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		char name[256], number[24], unit[8], with_unit[40];

		if (sscanf(line, " %255s %23s %7s 0x", name, number, unit) != 3)
			continue;
		snprintf(with_unit, sizeof(with_unit), "%s%s", number, unit);
		if (!tp_size_parse(with_unit, bytes) || *bytes == page)
			continue;
		snprintf(block, size, "%s", name);
		return true;
	}
	return false;
}

void room_ram_is(struct vm *vm, uint64_t ram, unsigned blocks)
{
	tp_autojson json_t *now = json_pack("{s:I, s:i, s:I}", "bytes", (json_int_t)ram, "blocks", (int)blocks,
					    "generation", (json_int_t)vm->observed_generation);

	if (!now || json_equal(now, json_object_get(vm->rest, "ram")))
		return;
	vm_rest_set(vm, "ram", json_incref(now));
	standing_soon(vm->t, false);
}

/*
 * As the running QEMU said; a VM that is off has what its last one had, unless its spec changed. A hibernated
 * one goes on as it was, whatever its spec says by now.
 */
static const json_t *known_ram(const struct vm *vm)
{
	const json_t *ram = json_object_get(vm->rest, "ram");
	bool goes_on = vm->qemu || vm->state == VM_HIBERNATED;
	int64_t generation = goes_on ? vm->observed_generation : vm->generation;

	return ram && tp_json_int(ram, "generation", -1) == generation ? ram : NULL;
}

bool room_size(const struct vm *vm, struct room_size *size)
{
	const json_t *known = known_ram(vm);
	unsigned blocks = known ? (unsigned)tp_json_int(known, "blocks", SPEC_BLOCKS) : SPEC_BLOCKS;
	struct spec_memory m;

	size->exact = known != NULL;
	size->ram = (uint64_t)tp_json_int(known, "bytes", 0);
	if (!known) {
		spec_memory(tp_json_path(vm->spec, "launch.args"), &m);
		if (!tp_add(m.ram, m.plugged, &size->ram) || !tp_add(size->ram, ROOM_MARGIN, &size->ram))
			return false;
	}
	return image_bound(size->ram, PAGE, blocks, 0, &size->bound) && size->bound <= INT64_MAX;
}

/* --- demand --- */

const char *room_pool(const struct vm *vm)
{
	const char *pool = tp_json_str(json_object_get(vm->spec, "hibernate"), "pool");

	return pool ? pool : "default";
}

static uint64_t images_elsewhere(const struct vm *vm, const char *pool)
{
	tp_autojson json_t *all = pools_images(vm->t->pools);
	uint64_t sum = 0;
	size_t i;
	json_t *image;

	json_array_foreach(all, i, image)
		if (strcmp(tp_json_str(image, "vm"), vm->name) == 0 && strcmp(tp_json_str(image, "pool"), pool) != 0)
			sum += (uint64_t)tp_json_int(image, "bytes", 0);
	return sum;
}

json_t *room_demand(const struct vm *vm, const char *pool, uint64_t bytes)
{
	json_int_t quota = tp_json_int(json_object_get(vm->spec, "storage"), "quota", 0);
	uint64_t elsewhere = quota ? images_elsewhere(vm, pool) + standing_elsewhere(vm, pool) : 0;

	return json_pack("{s:s, s:I, s:I, s:I}", "vm", vm->name, "bytes", (json_int_t)bytes, "quota", quota,
			 "elsewhere", (json_int_t)elsewhere);
}

struct pool_demand room_demand_of(const json_t *in)
{
	return (struct pool_demand){ .vm = tp_json_str(in, "vm"),
				     .bytes = (uint64_t)tp_json_int(in, "bytes", 0),
				     .quota = (uint64_t)tp_json_int(in, "quota", 0),
				     .elsewhere = (uint64_t)tp_json_int(in, "elsewhere", 0) };
}

json_t *room_shortage(const struct pool_shortage *shortage, const char *pool)
{
	json_t *data;

	if (!shortage->required)
		return NULL;
	data = json_pack("{s:I, s:I, s:s}", "required", (json_int_t)shortage->required, "available",
			 (json_int_t)shortage->available, "pool", pool);
	if (shortage->quota)
		tp_json_set(data, "quota", json_integer((json_int_t)shortage->quota));
	return data;
}
