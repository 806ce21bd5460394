/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_qmp_frame.c - Bytes to objects: any cut, junk, limits, hostile input */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "qmp/qmp_frame.h"

#define ALL ((size_t)-1)

/* Feeds the text in pieces of `cut` bytes; what was found, as text: objects, !bad, ^reset, #limit. */
static char *found_with(const char *text, size_t n, size_t cut, size_t max, unsigned depth)
{
	struct tp_buf out = TP_BUF_INIT(0);
	struct qmp_frame f;
	size_t at = 0;
	bool dead = false;

	qmp_frame_init(&f, max, depth);
	while (at < n && !dead) {
		size_t piece = cut < n - at ? cut : n - at, left = piece;
		const char *data = text + at;
		enum qmp_frame_result result;

		do {
			json_t *object = NULL;
			struct tp_error err = TP_ERROR_INIT;
			char *object_text;

			result = qmp_frame_feed(&f, &data, &left, &object, &err);
			switch (result) {
			case QMP_FRAME_OBJECT:
				assert_true(json_is_object(object));
				object_text = tp_json_text(object);
				tp_buf_adds(&out, object_text);
				free(object_text);
				break;
			case QMP_FRAME_RESET:
				tp_buf_adds(&out, "^");
				break;
			case QMP_FRAME_BAD:
				assert_int_equal(err.code, TP_EPROTO);
				tp_buf_adds(&out, "!");
				break;
			case QMP_FRAME_LIMIT:
				assert_int_equal(err.code, TP_ELIMIT);
				tp_buf_adds(&out, "#");
				dead = true;
				break;
			case QMP_FRAME_MORE:
				assert_int_equal(left, 0);
				break;
			}
			json_decref(object);
		} while (result != QMP_FRAME_MORE && !dead);
		at += piece;
	}
	if (qmp_frame_partial(&f))
		tp_buf_adds(&out, "~");
	qmp_frame_free(&f);
	return tp_buf_steal(&out);
}

static void check_bytes(const char *text, size_t n, const char *expected)
{
	static const size_t cuts[] = { ALL, 1, 2, 3, 7, 64 };

	for (size_t i = 0; i < TP_N(cuts); i++) {
		tp_autofree char *found = found_with(text, n, cuts[i], 1000, 20);

		assert_string_equal(found, expected);
	}
}

#define CHECK(text, expected) check_bytes(text, sizeof(text) - 1, expected)

static void objects_end_at_their_brace(void **state)
{
	(void)state;
	CHECK("{}", "{}");
	CHECK("{}\r\n", "{}");
	CHECK("{\"a\":1}{\"b\":2}", "{\"a\":1}{\"b\":2}");
	CHECK(" {\"a\": {\"b\": [1, {}]}} \n\n {}", "{\"a\":{\"b\":[1,{}]}}{}");
	CHECK("{\"a\":\n\r\n  1\n}\n", "{\"a\":1}");
	CHECK("{\"a\":\"}\"}", "{\"a\":\"}\"}");
	CHECK("{\"a\":\"\\\"}{[\"}", "{\"a\":\"\\\"}{[\"}");
	CHECK("{\"a\":\"\\\\\"}{}", "{\"a\":\"\\\\\"}{}");
	CHECK("{\"a\":", "~");
	CHECK("", "");
	CHECK(" \r\n\t", "");
}

static void utf8_may_be_cut_anywhere(void **state)
{
	(void)state;
	CHECK("{\"\xc3\xa4\":\"\xe2\x82\xac \xf0\x9f\x90\x8c\"}", "{\"\xc3\xa4\":\"\xe2\x82\xac \xf0\x9f\x90\x8c\"}");
}

static void junk_is_one_complaint_and_lost_alone(void **state)
{
	(void)state;
	CHECK("garbage\n{\"a\":1}", "!{\"a\":1}");
	CHECK("garbage and more garbage\r\n\r\n{}", "!{}");
	CHECK("garbage{\"a\":1}", "!{\"a\":1}");
	CHECK("[1,2]\n{}", "!{}");
	CHECK("[{\"execute\":\"quit\"}]{}", "!{}");
	CHECK("123\n\"text\"\nnull\n{}", "!!!{}");
	CHECK("}}]{}", "!{}");
	CHECK("\"a{b\nnext\n{}", "!!{}");
	CHECK("x \"a\\\"{\" {}", "!{}");
	CHECK("{\"a\":}{}", "!{}");
	CHECK("{\"a\":]\n{}", "!{}");
	CHECK("{\"a\":1]{}", "!{}");
	CHECK("{'a':1}\n{}", "!{}");
	CHECK("{\"a\":1,\"a\":2}{}", "!{}");
}

static void control_characters_cost_one_line(void **state)
{
	(void)state;
	CHECK("\0{}", "!{}");
	CHECK("{\"a\":\"b\0c\"}\n{}", "!{}");
	CHECK("{\"a\":\"not closed}\r\n{\"b\":1}\r\n", "!{\"b\":1}");
	CHECK("{\"a\":\"x\n{\"b\":1}", "!{\"b\":1}");
	CHECK("{\"a\":\x01 1}\n{}", "!{}");
	CHECK("{\"a\":\"\\u0000\"}{}", "!{}");
}

static void invalid_utf8_is_junk(void **state)
{
	(void)state;
	CHECK("{\"a\":\"\xc3\"}{}", "!{}");
	CHECK("{\"a\":\"\xed\xa0\x80\"}{}", "!{}");
	CHECK("{\"a\":\"\x80\"}{}", "!{}");
	CHECK("\xfe\xfe\n{}", "!{}");
}

static void ff_resets(void **state)
{
	(void)state;
	CHECK("\xff", "^");
	CHECK("\xff\xff{}", "^^{}");
	CHECK("{\"a\":\xff{}", "^{}");
	CHECK("{\"a\":\"b\xff{\"c\":1}", "^{\"c\":1}");
	CHECK("junk\xff{}", "!^{}");
	CHECK("{\"a\":\"\\\xff{}", "^{}");
}

static void nesting_has_a_limit(void **state)
{
	char text[128];

	(void)state;
	/* The object itself is the first of 20 levels. */
	snprintf(text, sizeof(text), "{\"a\":%.19s%.19s}", "[[[[[[[[[[[[[[[[[[[[[", "]]]]]]]]]]]]]]]]]]]]]");
	check_bytes(text, strlen(text), "{\"a\":[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]}");
	snprintf(text, sizeof(text), "{\"a\":%.20s%.20s}{}", "[[[[[[[[[[[[[[[[[[[[[", "]]]]]]]]]]]]]]]]]]]]]");
	check_bytes(text, strlen(text), "#");
}

static void size_has_a_limit(void **state)
{
	char text[1200];

	(void)state;
	memset(text, 'x', sizeof(text));
	memcpy(text, "{\"a\":\"", 6);
	memcpy(text + 998, "\"}{}", 4);
	for (size_t cut = 1; cut < 1100; cut += 3) {
		tp_autofree char *found = found_with(text, 1002, cut, 1000, 20);

		assert_int_equal(strlen(found), 1002);
	}
	memcpy(text + 998, "x\"}{}", 5);
	check_bytes(text, 1003, "#");
	memcpy(text + 998, "xx\xff{}", 5);
	check_bytes(text, 1003, "#");
}

static void a_dead_stream_stays_dead(void **state)
{
	struct qmp_frame f;
	const char *data = "[[[{}";
	size_t n = 5;
	json_t *object = NULL;

	(void)state;
	qmp_frame_init(&f, 100, 2);
	assert_int_equal(qmp_frame_feed(&f, &data, &n, &object, NULL), QMP_FRAME_LIMIT);
	assert_int_equal(qmp_frame_feed(&f, &data, &n, &object, NULL), QMP_FRAME_LIMIT);
	assert_null(object);
	qmp_frame_free(&f);
}

/* What is small as text and forty times as large once parsed. */
static void members_have_a_limit(void **state)
{
	size_t n = 6 + 3 * QMP_FRAME_TOKENS;
	tp_autofree char *text = malloc(n);
	tp_autofree char *found = NULL;

	(void)state;
	assert_non_null(text);
	memcpy(text, "{\"a\":[", 6);
	for (size_t i = 6; i < n; i += 3)
		memcpy(text + i, "[],", 3);
	found = found_with(text, n, 4096, 16u << 20, 100);
	assert_string_equal(found, "#");
}

static void a_large_buffer_is_given_back(void **state)
{
	struct qmp_frame f;
	tp_autofree char *text = malloc(1u << 20);
	const char *data = text;
	size_t n = 1000;
	json_t *object = NULL;

	(void)state;
	assert_non_null(text);
	memset(text, 'x', 1u << 20);
	memcpy(text, "{\"a\":\"", 6);
	memcpy(text + (1u << 20) - 2, "\"}", 2);
	qmp_frame_init(&f, 2u << 20, 20);
	assert_int_equal(qmp_frame_feed(&f, &data, &n, &object, NULL), QMP_FRAME_MORE);
	n = (1u << 20) - 1000;
	assert_int_equal(qmp_frame_feed(&f, &data, &n, &object, NULL), QMP_FRAME_OBJECT);
	assert_int_equal(f.scanned, 1u << 20);
	assert_true(f.buf.cap <= 64u << 10);
	assert_int_equal(f.buf.limit, 2u << 20);
	json_decref(object);
	qmp_frame_free(&f);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_end_at_their_brace),
		cmocka_unit_test(utf8_may_be_cut_anywhere),
		cmocka_unit_test(junk_is_one_complaint_and_lost_alone),
		cmocka_unit_test(control_characters_cost_one_line),
		cmocka_unit_test(invalid_utf8_is_junk),
		cmocka_unit_test(ff_resets),
		cmocka_unit_test(nesting_has_a_limit),
		cmocka_unit_test(size_has_a_limit),
		cmocka_unit_test(a_dead_stream_stays_dead),
		cmocka_unit_test(members_have_a_limit),
		cmocka_unit_test(a_large_buffer_is_given_back),
	};

	return cmocka_run_group_tests_name("qmp_frame", tests, NULL, NULL);
}
