/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_room.c - The memory that arguments and QEMU tell, and the largest image of it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/room.h"
#include "engine/spec_memory.h"
#include "storage/image_bound.h"

#define MIB (1ull << 20)

static void arguments_tell_memory(void **state)
{
	static const struct { const char *args; uint64_t ram, plugged; } cases[] = {
		{ "[]", 128, 0 },
		{ "[\"-m\", \"256\"]", 256, 0 },
		{ "[\"-m\", \"256M\"]", 256, 0 },
		{ "[\"--m\", \"1G,slots=2,maxmem=4G\"]", 1024, 0 },
		{ "[\"-m\", \"size=2G,maxmem=4G\"]", 2048, 0 },
		{ "[\"-m\", \"maxmem=4G,size=64M\"]", 64, 0 },
		{ "[\"-m\", \"1G\", \"-m\", \"2G\"]", 2048, 0 },
		{ "[\"-m\", \"slots=2,maxmem=4G\"]", 128, 0 },
		{ "[\"-m\", \"nonsense\"]", 128, 0 },
		{ "[\"-m\"]", 128, 0 },
		{ "[\"-m\", \"1G\", \"-object\", \"memory-backend-ram,id=d0,size=64M\", \"-device\", \"pc-dimm,memdev=d0\"]",
		  1024, 64 },
		{ "[\"-m\", \"1G\", \"-object\", \"memory-backend-file,size=64M,mem-path=/x,id=d0\", \"-object\","
		  " \"memory-backend-memfd,id=d1,size=1G\"]", 1024, 1088 },
		{ "[\"-m\", \"1G\", \"-object\", \"{\\\"qom-type\\\": \\\"memory-backend-ram\\\", \\\"id\\\": \\\"d0\\\","
		  " \\\"size\\\": 67108864}\"]", 1024, 64 },
		{ "[\"-m\", \"1G\", \"-object\", \"{\\\"qom-type\\\": \\\"memory-backend-ram\\\", \\\"size\\\": \\\"64M\\\"}\"]",
		  1024, 64 },
		/* The machine's own RAM is not counted twice. */
		{ "[\"-machine\", \"q35,memory-backend=pc.ram\", \"-m\", \"1G\", \"-object\","
		  " \"memory-backend-memfd,id=pc.ram,size=1G\"]", 1024, 0 },
		{ "[\"-m\", \"1G\", \"-object\", \"memory-backend-ram,id=n0,size=512M\", \"-object\","
		  " \"memory-backend-ram,id=n1,size=512M\", \"-numa\", \"node,memdev=n0\", \"-numa\", \"node,memdev=n1\"]",
		  1024, 0 },
		{ "[\"-object\", \"rng-random,id=r\", \"-object\", \"{\", \"-object\", \"memory-backend-ram\"]", 128, 0 },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++) {
		tp_autojson json_t *args = json_loads(cases[i].args, 0, NULL);
		struct spec_memory m;

		assert_non_null(args);
		spec_memory(args, &m);
		if (m.ram != cases[i].ram * MIB || m.plugged != cases[i].plugged * MIB)
			fail_msg("%s: %llu + %llu bytes", cases[i].args, (unsigned long long)m.ram,
				 (unsigned long long)m.plugged);
	}
}

static void huge_sizes_do_not_wrap(void **state)
{
	tp_autojson json_t *args = json_pack("[s, s, s, s, s, s]", "-object", "memory-backend-ram,id=a,size=15E",
					     "-object", "memory-backend-ram,id=b,size=16000000T", "-object",
					     "memory-backend-ram,id=c,size=16000000T");
	struct spec_memory m;

	(void)state;
	spec_memory(args, &m);
	assert_true(m.plugged == UINT64_MAX || m.plugged >= 16000000ull << 40);
}

/* As QEMU 7.2 and 10.0 print it: 10.0 has columns more. */
static void ram_blocks_are_summed(void **state)
{
	static const char old[] =
		"              Block Name    PSize              Offset               Used              Total\r\n"
		"                  pc.ram    4 KiB  0x0000000000000000 0x0000000010000000 0x0000000010000000\r\n"
		"                vga.vram    4 KiB  0x0000000010080000 0x0000000001000000 0x0000000001000000\r\n"
		"    /rom@etc/acpi/tables    4 KiB  0x0000000011100000 0x0000000000020000 0x0000000000200000\r\n";
	static const char new[] =
		"              Block Name    PSize              Offset               Used              Total"
		"                HVA  RO\n"
		"                      m1    2 MiB  0x0000000000000000 0x0000000004000000 0x0000000004000000"
		" 0x00007f3e4be00000  rw\n";
	uint64_t ram;
	unsigned blocks;

	(void)state;
	assert_true(room_ramblocks(old, &ram, &blocks));
	assert_int_equal(ram, 0x10000000 + 0x1000000 + 0x20000);
	assert_int_equal(blocks, 3);
	assert_true(room_ramblocks(new, &ram, &blocks));
	assert_int_equal(ram, 64 * MIB);
	assert_int_equal(blocks, 1);
	assert_false(room_ramblocks(NULL, &ram, &blocks));
	assert_false(room_ramblocks("", &ram, &blocks));
	assert_false(room_ramblocks("unknown command: 'info ramblock'\r\n", &ram, &blocks));
	assert_false(room_ramblocks(" a 0x0 0xffffffffffffffff 0x0\n b 0x0 0xffffffffffffffff 0x0\n", &ram, &blocks));
}

static void size_is_of_the_spec_until_qemu_says(void **state)
{
	struct torpor t = { .closing = true };
	struct vm vm = { .t = &t, .generation = 3, .observed_generation = 2 };
	struct room_size size;
	uint64_t bound;

	(void)state;
	vm.spec = json_pack("{s:{s:[s, s]}}", "launch", "args", "-m", "256M");
	vm.rest = json_object();
	assert_true(room_size(&vm, &size));
	assert_false(size.exact);
	assert_int_equal(size.ram, 256 * MIB + ROOM_MARGIN);
	assert_true(size.bound > size.ram);
	/* QEMU ran with another spec: that says nothing about the next one. */
	room_ram_is(&vm, 272 * MIB, 9);
	assert_true(room_size(&vm, &size));
	assert_false(size.exact);
	vm.observed_generation = 3;
	room_ram_is(&vm, 272 * MIB, 9);
	assert_true(room_size(&vm, &size));
	assert_true(size.exact);
	assert_int_equal(size.ram, 272 * MIB);
	assert_true(image_bound(272 * MIB, 4096, 9, 0, &bound));
	assert_int_equal(size.bound, bound);
	/* Hibernated it goes on as it was, whatever its spec says by now. */
	vm.generation = 4;
	assert_true(room_size(&vm, &size));
	assert_false(size.exact);
	vm.state = VM_HIBERNATED;
	assert_true(room_size(&vm, &size));
	assert_true(size.exact);
	assert_int_equal(size.bound, bound);
	json_decref(vm.spec);
	json_decref(vm.rest);
}

static void shortage_says_which_quota(void **state)
{
	struct pool_shortage shortage = { .required = 7, .available = 5, .quota = 6 };
	tp_autojson json_t *data = room_shortage(&shortage, "p");

	(void)state;
	assert_int_equal(tp_json_int(data, "required", 0), 7);
	assert_int_equal(tp_json_int(data, "available", 0), 5);
	assert_int_equal(tp_json_int(data, "quota", 0), 6);
	assert_string_equal(tp_json_str(data, "pool"), "p");
	shortage.required = 0;
	assert_null(room_shortage(&shortage, "p"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_tell_memory),
		cmocka_unit_test(huge_sizes_do_not_wrap),
		cmocka_unit_test(ram_blocks_are_summed),
		cmocka_unit_test(size_is_of_the_spec_until_qemu_says),
		cmocka_unit_test(shortage_says_which_quota),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
