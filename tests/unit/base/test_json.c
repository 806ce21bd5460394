/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_json.c - Access to jansson values, hostile text, merging by RFC 7396 */
#include "base_test.h"

#include "base/tp_json.h"

static json_t *parse(const char *text)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *value = tp_json_parse(text, strlen(text), 100, &err);

	if (!value)
		fail_msg("%s: %s", text, err.text);
	return value;
}

static void getters(void **state)
{
	tp_autojson json_t *o = parse("{\"s\":\"x\",\"i\":-5,\"r\":2.5,\"t\":true,\"n\":null,"
				      "\"a\":{\"b\":{\"c\":7,\"\":8}}}");

	(void)state;
	assert_string_equal(tp_json_str(o, "s"), "x");
	assert_null(tp_json_str(o, "i"));
	assert_null(tp_json_str(o, "absent"));
	assert_null(tp_json_str(NULL, "s"));
	assert_int_equal(tp_json_int(o, "i", 1), -5);
	assert_int_equal(tp_json_int(o, "r", 1), 1);
	assert_int_equal(tp_json_int(o, "s", 1), 1);
	assert_int_equal(tp_json_int(NULL, "i", 1), 1);
	assert_float_equal(tp_json_num(o, "r", 0), 2.5, 1e-9);
	assert_float_equal(tp_json_num(o, "i", 0), -5, 1e-9);
	assert_float_equal(tp_json_num(o, "t", 3), 3, 1e-9);
	assert_true(tp_json_bool(o, "t", false));
	assert_true(tp_json_bool(o, "n", true));
	assert_false(tp_json_bool(NULL, "t", false));
	assert_int_equal(json_integer_value(tp_json_path(o, "a.b.c")), 7);
	assert_int_equal(json_integer_value(tp_json_path(o, "a.b.")), 8);
	assert_ptr_equal(tp_json_path(o, "s"), json_object_get(o, "s"));
	assert_null(tp_json_path(o, "a.b.c.d"));
	assert_null(tp_json_path(o, "a.x.c"));
	assert_null(tp_json_path(o, ""));
	assert_null(tp_json_path(NULL, "a"));
}

static void setters(void **state)
{
	tp_autojson json_t *o = json_object();
	tp_autofree char *text = NULL;

	(void)state;
	assert_true(tp_json_set(o, "i", json_integer(1)));
	assert_true(tp_json_set_str(o, "s", "x"));
	assert_true(tp_json_set_str(o, "n", NULL));
	assert_false(tp_json_set(o, "k", NULL));
	assert_false(tp_json_set_str(o, "u", "\xff"));
	assert_false(tp_json_set(o, "\xff", json_integer(1)));
	assert_false(tp_json_set(NULL, "k", json_integer(1)));
	text = tp_json_text(o);
	assert_string_equal(text, "{\"i\":1,\"n\":null,\"s\":\"x\"}");
}

static void text_is_canonical(void **state)
{
	tp_autojson json_t *a = parse("{\"b\": 1, \"a\": [1, {\"d\": 2, \"c\": 3}]}");
	tp_autojson json_t *b = parse("{\"a\":[1,{\"c\":3,\"d\":2}],\"b\":1}");
	tp_autojson json_t *scalar = json_integer(3);
	tp_autofree char *ta = tp_json_text(a), *tb = tp_json_text(b), *ts = tp_json_text(scalar);

	(void)state;
	assert_string_equal(ta, tb);
	assert_string_equal(ts, "3");
	assert_null(tp_json_text(NULL));
}

/* Not what jansson calls its own flags. */
static void nul_in_a_text(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_null(tp_json_parse("\"\\u0000\"", 8, 10, &err));
	assert_non_null(strstr(err.text, "\\u0000 cannot be in a text"));
}

static void hostile_text(void **state)
{
	static const struct { const char *text; size_t n; } bad[] = {
		{ "", 0 }, { "{", 1 }, { "{\"a\":1}x", 8 }, { "{\"a\":1,\"a\":2}", 13 },
		{ "\"\xff\"", 3 }, { "\"\xc0\x80\"", 4 }, { "\"\\ud800\"", 8 }, { "\"\\u0000\"", 8 },
		{ "\"a\0b\"", 5 }, { "nul", 3 }, { "1e999", 5 }, { "NaN", 3 }, { "'a'", 3 },
		{ "{\"a\"", 4 }, { "\"abc", 4 }, { "\"abc\\", 5 }, { "1 2", 3 }, { "[1,]", 4 },
		{ "99999999999999999999999x", 24 },
	};
	struct tp_error err = TP_ERROR_INIT;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		/* Of exact size on the heap, so that ASan sees a read beyond. */
		char *copy = malloc(bad[i].n ? bad[i].n : 1);
		json_t *value;

		memcpy(copy, bad[i].text, bad[i].n);
		value = tp_json_parse(copy, bad[i].n, 10, &err);
		free(copy);
		if (value)
			fail_msg("%s was accepted", bad[i].text);
		assert_failed(&err, TP_EPROTO, "invalid JSON at byte ");
	}
}

static void depth_is_bounded(void **state)
{
	enum { LEVELS = 100000 };
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *text = malloc(LEVELS);
	json_t *value;

	(void)state;
	memset(text, '[', LEVELS);
	assert_int_equal(tp_json_depth(text, LEVELS), LEVELS);
	assert_null(tp_json_parse(text, LEVELS, 1000, &err));
	assert_failed(&err, TP_ELIMIT, "more than 1000 levels");
	value = tp_json_parse("[[1]]", 5, 2, &err);
	assert_non_null(value);
	json_decref(value);
	assert_null(tp_json_parse("[[1]]", 5, 1, &err));
	assert_int_equal(tp_json_depth("{\"[[[\":\"\\\"[[{\"}", 15), 1);
	assert_int_equal(tp_json_depth("]]]]", 4), 0);
	assert_int_equal(tp_json_depth("[]][{}]", 7), 2);
	assert_int_equal(tp_json_depth("\"[[[", 4), 0);
	assert_int_equal(tp_json_depth("\"\\", 2), 0);
	assert_int_equal(tp_json_depth(NULL, 0), 0);
}

static void unsigned_64_bits(void **state)
{
	tp_autojson json_t *o = parse("{\"big\":18446744073709551615,\"neg\":-9223372036854775809,"
				      "\"max\":9223372036854775807,\"s\":\"18446744073709551615\","
				      "\"r\":123456789012345678901.5,\"q\":\"\\\"7\",\"small\":12}");

	(void)state;
	assert_true(json_is_real(json_object_get(o, "big")));
	assert_true(tp_json_num(o, "big", 0) > 1.8e19);
	assert_true(tp_json_num(o, "neg", 0) < -9e18);
	assert_string_equal(tp_json_str(o, "s"), "18446744073709551615");
	assert_string_equal(tp_json_str(o, "q"), "\"7");
	assert_true(json_is_integer(json_object_get(o, "small")));
	assert_int_equal(tp_json_int(o, "small", 0), 12);
}

/* The examples of RFC 7396, appendix A. */
static void merge_examples(void **state)
{
	static const char *const cases[][3] = {
		{ "{\"a\":\"b\"}", "{\"a\":\"c\"}", "{\"a\":\"c\"}" },
		{ "{\"a\":\"b\"}", "{\"b\":\"c\"}", "{\"a\":\"b\",\"b\":\"c\"}" },
		{ "{\"a\":\"b\"}", "{\"a\":null}", "{}" },
		{ "{\"a\":\"b\",\"b\":\"c\"}", "{\"a\":null}", "{\"b\":\"c\"}" },
		{ "{\"a\":[\"b\"]}", "{\"a\":\"c\"}", "{\"a\":\"c\"}" },
		{ "{\"a\":\"c\"}", "{\"a\":[\"b\"]}", "{\"a\":[\"b\"]}" },
		{ "{\"a\":{\"b\":\"c\"}}", "{\"a\":{\"b\":\"d\",\"c\":null}}", "{\"a\":{\"b\":\"d\"}}" },
		{ "{\"a\":[{\"b\":\"c\"}]}", "{\"a\":[1]}", "{\"a\":[1]}" },
		{ "[\"a\",\"b\"]", "[\"c\",\"d\"]", "[\"c\",\"d\"]" },
		{ "{\"a\":\"b\"}", "[\"c\"]", "[\"c\"]" },
		{ "{\"a\":\"foo\"}", "null", "null" },
		{ "{\"a\":\"foo\"}", "\"bar\"", "\"bar\"" },
		{ "{\"e\":null}", "{\"a\":1}", "{\"a\":1,\"e\":null}" },
		{ "[1,2]", "{\"a\":\"b\",\"c\":null}", "{\"a\":\"b\"}" },
		{ "{}", "{\"a\":{\"bb\":{\"ccc\":null}}}", "{\"a\":{\"bb\":{}}}" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tp_autojson json_t *target = parse(cases[i][0]), *patch = parse(cases[i][1]);
		tp_autojson json_t *result = tp_json_merge_patch(target, patch);
		tp_autofree char *text = tp_json_text(result);
		tp_autofree char *before = tp_json_text(target);

		assert_string_equal(text, cases[i][2]);
		assert_string_equal(before, cases[i][0]);
	}
}

static void merge_shares_nothing(void **state)
{
	tp_autojson json_t *target = parse("{\"a\":{\"b\":1},\"l\":[1]}");
	tp_autojson json_t *patch = parse("{\"c\":{\"d\":[2]}}");
	tp_autojson json_t *result = tp_json_merge_patch(target, patch);
	tp_autofree char *t = NULL, *p = NULL;

	(void)state;
	json_object_set_new(tp_json_path(result, "a"), "b", json_integer(9));
	json_array_append_new(tp_json_path(result, "c.d"), json_integer(9));
	json_array_append_new(tp_json_path(result, "l"), json_integer(9));
	t = tp_json_text(target);
	p = tp_json_text(patch);
	assert_string_equal(t, "{\"a\":{\"b\":1},\"l\":[1]}");
	assert_string_equal(p, "{\"c\":{\"d\":[2]}}");
}

static void merge_without_one(void **state)
{
	tp_autojson json_t *o = parse("{\"a\":1}");
	tp_autojson json_t *a = tp_json_merge_patch(NULL, o), *b = tp_json_merge_patch(o, NULL);

	(void)state;
	assert_true(json_equal(a, o) && a != o);
	assert_true(json_equal(b, o) && b != o);
	assert_null(tp_json_merge_patch(NULL, NULL));
}

static void merge_depth_is_bounded(void **state)
{
	json_t *patch = json_integer(1);
	int i;

	(void)state;
	for (i = 0; i < 5000; i++)
		patch = json_pack("{s:o}", "a", patch);
	assert_null(tp_json_merge_patch(NULL, patch));
	json_decref(patch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(getters),
		cmocka_unit_test(setters),
		cmocka_unit_test(text_is_canonical),
		cmocka_unit_test(nul_in_a_text), cmocka_unit_test(hostile_text),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(unsigned_64_bits),
		cmocka_unit_test(merge_examples),
		cmocka_unit_test(merge_shares_nothing),
		cmocka_unit_test(merge_without_one),
		cmocka_unit_test(merge_depth_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
