/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_stream_write.c - Every piece of the post-copy source's stream, byte for byte */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "migration/stream_parse.h"
#include "migration/stream_write.h"
#include "stream_build.h"

/* The buffer holds exactly this, and is emptied. */
#define assert_written(b, text) \
	do { \
		assert_int_equal((b)->len, sizeof(text) - 1); \
		assert_memory_equal((b)->data, text, sizeof(text) - 1); \
		(b)->len = 0; \
	} while (0)

static void commands(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(4096);

	(void)state;
	assert_true(stream_write_command(&b, STREAM_OPEN_RETURN_PATH));
	assert_written(&b, "\x08\0\x01\0\0");
	assert_true(stream_write_command(&b, STREAM_POSTCOPY_RESUME));
	assert_written(&b, "\x08\0\x09\0\0");
	assert_true(stream_write_ping(&b, 0x01020304));
	assert_written(&b, "\x08\0\x02\0\x04\x01\x02\x03\x04");
	assert_true(stream_write_advise(&b, 0x201000, 4096));
	assert_written(&b, "\x08\0\x03\0\x10\0\0\0\0\0\x20\x10\0\0\0\0\0\0\0\x10\0");
	assert_true(stream_write_discard(&b, "pc.ram", 0x1000, 0x20000000));
	assert_written(&b, "\x08\0\x06\0\x19\0\x06pc.ram\0\0\0\0\0\0\0\x10\0\0\0\0\0\x20\0\0\0");
	assert_true(stream_write_recv_bitmap(&b, "vga.vram"));
	assert_written(&b, "\x08\0\x0a\0\x09\x08vga.vram");
}

static void package_holds_listen_devices_ping_run(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(4096);

	(void)state;
	assert_true(stream_write_package(&b, "DEVICES", 7, 2));
	assert_written(&b, "\x08\0\x07\0\x04\0\0\0\x1a" "\x08\0\x04\0\0" "DEVICES"
		       "\x08\0\x02\0\x04\0\0\0\x02" "\x08\0\x05\0\0");
}

static void block_list_is_as_qemu_writes_it(void **state)
{
	static const struct stream_ram_block blocks[] = { { "pc.ram", 256 * 4096 },
							  { "/rom@etc/acpi/tables", 8192 } };
	static const struct sb_block same[] = { { "pc.ram", 256 * 4096 },
						{ "/rom@etc/acpi/tables", 8192 } };
	tp_autobuf struct tp_buf b = TP_BUF_INIT(4096), want = TP_BUF_INIT(4096);

	(void)state;
	assert_true(stream_write_blocks(&b, RAM_ID, blocks, 2));
	sb_ram_start(&want, same, 2);
	assert_int_equal(b.len, want.len);
	assert_memory_equal(b.data, want.data, want.len);
}

static void records_and_ends(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(8192), want = TP_BUF_INIT(8192);
	uint8_t page[PAGE4K];

	(void)state;
	sb_fill(page, sizeof(page), 5);
	assert_true(stream_write_part(&b, RAM_ID, false));
	assert_true(stream_write_page(&b, "pc.ram", 0x7000, page, sizeof(page)));
	assert_true(stream_write_zero(&b, NULL, 0x9000));
	assert_true(stream_write_zero(&b, "rom", 0));
	assert_true(stream_write_end(&b, RAM_ID));
	assert_true(stream_write_part(&b, RAM_ID, true));
	assert_true(stream_write_end(&b, RAM_ID));
	assert_true(stream_write_eof(&b));
	sb_part(&want, 2);
	sb_page(&want, "pc.ram", 0x7000, page, sizeof(page));
	sb_zero(&want, NULL, 0x9000);
	sb_zero(&want, "rom", 0);
	sb_eos(&want);
	sb_part(&want, 3);
	sb_eos(&want);
	sb_u8(&want, 0);
	assert_int_equal(b.len, want.len);
	assert_memory_equal(b.data, want.data, want.len);
}

static void longest_id_fits(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(4096);
	char id[256];

	(void)state;
	memset(id, 'x', 255);
	id[255] = '\0';
	assert_true(stream_write_discard(&b, id, 0, 4096));
	assert_int_equal(b.len, 5 + 1 + 1 + 255 + 1 + 16);
	assert_true(stream_write_recv_bitmap(&b, id));
	assert_true(stream_write_zero(&b, id, 0));
	assert_int_equal(b.len, 279 + 5 + 256 + 8 + 256 + 1);
}

#define PACKAGE_SIZE (9 + 5 + 10 + 9 + 5)
#define BLOCKS_SIZE (25 + 1 + 6 + 8 + 13)

/* What does not fit changes nothing, whatever piece it is. */
static void a_full_buffer_stays_as_it_is(void **state)
{
	static const struct stream_ram_block block = { "pc.ram", 4096 };
	uint8_t page[PAGE4K] = { 0 };

	(void)state;
	for (size_t room = 1; room < BLOCKS_SIZE; room++) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(room + 3);

		assert_true(tp_buf_add(&b, "abc", 3));
		if (room < PACKAGE_SIZE)
			assert_false(stream_write_package(&b, "0123456789", 10, 1));
		assert_false(stream_write_page(&b, NULL, 0, page, sizeof(page)));
		if (room < BLOCKS_SIZE)
			assert_false(stream_write_blocks(&b, 2, &block, 1));
		assert_int_equal(b.len, 3);
		assert_memory_equal(b.data, "abc", 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commands),
		cmocka_unit_test(package_holds_listen_devices_ping_run),
		cmocka_unit_test(block_list_is_as_qemu_writes_it),
		cmocka_unit_test(records_and_ends),
		cmocka_unit_test(longest_id_fits),
		cmocka_unit_test(a_full_buffer_stays_as_it_is),
	};

	return cmocka_run_group_tests_name("stream_write", tests, NULL, NULL);
}
