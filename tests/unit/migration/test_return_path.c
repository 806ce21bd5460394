/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_return_path.c - Messages of a QEMU destination: whole, in pieces, malformed */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/tp_buf.h"
#include "migration/return_path.h"

#define WHOLE(text) (const uint8_t *)(text), sizeof(text) - 1

static struct return_message message;
static struct tp_error error;

/* The kind of the first message, whose bytes must all be there before it is one. */
static enum return_kind take(struct return_path *r, const uint8_t *p, size_t n)
{
	enum return_kind kind = RETURN_MORE;

	tp_error_clear(&error);
	for (size_t part = 0; part <= n && kind == RETURN_MORE; part++) {
		/* A copy of its own: a byte read too far is found by the sanitizer. */
		uint8_t *copy = malloc(part + 1);

		assert_non_null(copy);
		memcpy(copy, p, part);
		kind = return_path_next(r, copy, part, &message, &error);
		if (kind == RETURN_MORE)
			assert_int_equal(message.used, 0);
		free(copy);
	}
	return kind;
}

static void numbers(void **state)
{
	struct return_path r = RETURN_PATH_INIT;

	(void)state;
	assert_int_equal(take(&r, WHOLE("\0\1\0\4\0\0\0\0")), RETURN_SHUT);
	assert_int_equal(message.used, 8);
	assert_int_equal(message.value, 0);
	assert_int_equal(take(&r, WHOLE("\0\1\0\4\0\0\1\2")), RETURN_SHUT);
	assert_int_equal(message.value, 0x102);
	assert_int_equal(take(&r, WHOLE("\0\2\0\4\xff\0\0\1")), RETURN_PONG);
	assert_int_equal(message.value, 0xff000001);
	assert_int_equal(take(&r, WHOLE("\0\6\0\4\0\0\0\1")), RETURN_RESUME_ACK);
	assert_int_equal(take(&r, WHOLE("\0\7\0\0")), RETURN_OTHER);
	assert_int_equal(message.used, 4);
}

static void requests_remember_the_block(void **state)
{
	struct return_path r = RETURN_PATH_INIT;

	(void)state;
	assert_int_equal(take(&r, WHOLE("\0\3\0\x13\0\0\0\1\0\0\x20\0\0\0\x10\0\6pc.ram")), RETURN_REQ_PAGES);
	assert_string_equal(message.id, "pc.ram");
	assert_int_equal(message.start, 0x100002000);
	assert_int_equal(message.length, 4096);
	assert_int_equal(take(&r, WHOLE("\0\4\0\x0c\0\0\0\0\0\0\x30\0\0\0\x10\0")), RETURN_REQ_PAGES);
	assert_string_equal(message.id, "pc.ram");
	assert_int_equal(message.start, 0x3000);
}

static void a_bitmap_comes_in_pieces(void **state)
{
	static const uint8_t bytes[] = "\0\5\0\4\3rom\0\0\0\0\0\0\0\x08" "\1\2\3\4\5\6\7\x08"
				       "\x01\x23\x45\x67\x89\xab\xcd\xef" "\0\1\0\4\0\0\0\0";
	struct return_path r = RETURN_PATH_INIT;
	struct return_message m;

	(void)state;
	for (size_t piece = 1; piece <= 8; piece++) {
		enum return_kind kind = take(&r, bytes, 16);
		uint64_t got = 0;

		assert_int_equal(kind, RETURN_BITMAP);
		assert_string_equal(message.id, "rom");
		assert_int_equal(message.bytes, 8);
		assert_int_equal(message.used, 16);
		while (got < 8) {
			size_t n = piece < 8 - got ? piece : 8 - got;

			assert_int_equal(return_path_next(&r, bytes + 16 + got, n, &m, NULL), RETURN_BITMAP_PIECE);
			assert_int_equal(m.bytes, n);
			assert_ptr_equal(m.data, bytes + 16 + got);
			got += m.used;
		}
		assert_int_equal(return_path_next(&r, bytes + 24, 7, &m, NULL), RETURN_MORE);
		assert_int_equal(return_path_next(&r, bytes + 24, 16, &m, NULL), RETURN_BITMAP_END);
		assert_int_equal(m.used, 8);
		assert_int_equal(return_path_next(&r, bytes + 32, 8, &m, NULL), RETURN_SHUT);
	}
}

static void an_empty_bitmap_has_no_pieces(void **state)
{
	static const uint8_t bytes[] = "\0\5\0\4\3rom\0\0\0\0\0\0\0\0" "\x01\x23\x45\x67\x89\xab\xcd\xef";
	struct return_path r = RETURN_PATH_INIT;
	struct return_message m;

	(void)state;
	assert_int_equal(return_path_next(&r, bytes, 24, &m, NULL), RETURN_BITMAP);
	assert_int_equal(return_path_next(&r, bytes + 16, 8, &m, NULL), RETURN_BITMAP_END);
}

static void malformed_ones_are_refused(void **state)
{
	static const struct { const char *bytes; size_t n; } bad[] = {
#define BAD(text) { text, sizeof(text) - 1 }
		BAD("\0\0\0\0"),				/* no type */
		BAD("\0\x08\0\4\0\0\0\0"),			/* unknown */
		BAD("\xff\1\0\4\0\0\0\0"),
		BAD("\0\1\0\3\0\0\0"),				/* short numbers */
		BAD("\0\2\0\5\0\0\0\0\0"),
		BAD("\0\1\xff\xff"),				/* longer than any */
		BAD("\0\2\2\0"),
		BAD("\0\4\0\x0c\0\0\0\0\0\0\0\0\0\0\x10\0"),	/* no block yet */
		BAD("\0\4\0\x0b\0\0\0\0\0\0\0\0\0\0\x10"),
		BAD("\0\3\0\x0c\0\0\0\0\0\0\0\0\0\0\x10\0"),	/* no name */
		BAD("\0\3\0\x0d\0\0\0\0\0\0\0\0\0\0\x10\0\0"),	/* an empty one */
		BAD("\0\3\0\x0f\0\0\0\0\0\0\0\0\0\0\x10\0\3ab"),	/* longer than the message */
		BAD("\0\3\0\x10\0\0\0\0\0\0\0\0\0\0\x10\0\2abc"),	/* shorter */
		BAD("\0\3\0\x0f\0\0\0\0\0\0\0\0\0\0\x10\0\2a\n"),	/* not printable */
		BAD("\0\5\0\0"),
		BAD("\0\5\0\3\3ro"),
		BAD("\0\6\0\4\0\0\0\2"),			/* not the agreed value */
		BAD("\0\6\0\0"),
#undef BAD
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct return_path r = RETURN_PATH_INIT;

		if (take(&r, (const uint8_t *)bad[i].bytes, bad[i].n) != RETURN_BAD)
			fail_msg("message %zu was taken", i);
		assert_int_equal(error.code, TP_EPROTO);
		assert_string_equal(error.class_, "QemuError");
	}
}

static void a_bitmap_without_its_mark_is_refused(void **state)
{
	struct return_path r = { .bitmap_id = "rom", .in_bitmap = true };

	(void)state;
	assert_int_equal(take(&r, WHOLE("\x01\x23\x45\x67\x89\xab\xcd\xee")), RETURN_BAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers),
		cmocka_unit_test(requests_remember_the_block),
		cmocka_unit_test(a_bitmap_comes_in_pieces),
		cmocka_unit_test(an_empty_bitmap_has_no_pieces),
		cmocka_unit_test(malformed_ones_are_refused),
		cmocka_unit_test(a_bitmap_without_its_mark_is_refused),
	};

	return cmocka_run_group_tests_name("return_path", tests, NULL, NULL);
}
