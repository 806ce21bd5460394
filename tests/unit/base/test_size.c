/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_size.c - Checked arithmetic, byte order, sizes and durations as text */
#include "base_test.h"

#include "base/tp_size.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define TIB (GIB * 1024)

static void arithmetic(void **state)
{
	uint64_t v = 7;

	(void)state;
	assert_true(tp_add(UINT64_MAX - 1, 1, &v));
	assert_true(v == UINT64_MAX);
	assert_false(tp_add(UINT64_MAX, 1, &v));
	assert_true(tp_mul(UINT64_C(1) << 32, UINT32_MAX, &v));
	assert_false(tp_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
	assert_true(tp_mul(0, UINT64_MAX, &v));
	assert_int_equal(tp_div_up(0, 7), 0);
	assert_int_equal(tp_div_up(7, 7), 1);
	assert_int_equal(tp_div_up(8, 7), 2);
	assert_true(tp_div_up(UINT64_MAX, 2) == UINT64_C(1) << 63);
	assert_true(tp_div_up(UINT64_MAX, 1) == UINT64_MAX);
}

static void byte_order(void **state)
{
	unsigned char raw[9] = { 0, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08 };
	const unsigned char *p = raw + 1;	/* unaligned on purpose */
	unsigned char out[9];

	(void)state;
	assert_int_equal(tp_be16(p), 0x0102);
	assert_int_equal(tp_le16(p), 0x0201);
	assert_int_equal(tp_be32(p), 0x01020304);
	assert_int_equal(tp_le32(p), 0x04030201);
	assert_true(tp_be64(p) == UINT64_C(0x0102030405060708));
	assert_true(tp_le64(p) == UINT64_C(0x0807060504030201));
	tp_put_be64(out + 1, UINT64_C(0x0102030405060708));
	assert_memory_equal(out + 1, p, 8);
	tp_put_le64(out + 1, UINT64_C(0x0807060504030201));
	assert_memory_equal(out + 1, p, 8);
	tp_put_be32(out + 1, 0x01020304);
	tp_put_le16(out + 5, 0x0605);
	assert_memory_equal(out + 1, p, 6);
	tp_put_le32(out + 1, 0x04030201);
	tp_put_be16(out + 5, 0x0506);
	assert_memory_equal(out + 1, p, 6);
}

static void sizes_parse(void **state)
{
	static const struct { const char *text; uint64_t bytes; } good[] = {
		{ "0", 0 }, { "100", 100 }, { "100B", 100 }, { "1K", KIB }, { "512M", 512 * MIB },
		{ "4G", 4 * GIB }, { "4g", 4 * GIB }, { "4GiB", 4 * GIB }, { "4GB", 4 * GIB },
		{ "1T", TIB }, { "18446744073709551615", UINT64_MAX },
		{ "16777215T", 16777215 * TIB }, { "007M", 7 * MIB },
	};
	static const char *const bad[] = {
		"", " 1", "1 ", "-1", "+1", "G", "1X", "1GG", "1Gi", "1GiBB", "1iB", "1.5G", "0x10",
		"18446744073709551616", "16777216T", "99999999999999999999999G", "1G\n", "1e3", "4 GiB",
	};
	uint64_t v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(tp_size_parse(good[i].text, &v));
		assert_true(v == good[i].bytes);
	}
	v = 7;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (tp_size_parse(bad[i], &v))
			fail_msg("\"%s\" was accepted", bad[i]);
	}
	assert_false(tp_size_parse(NULL, &v));
	assert_true(v == 7);
}

static void durations_parse(void **state)
{
	static const struct { const char *text; double seconds; } good[] = {
		{ "0", 0 }, { "90", 90 }, { "90s", 90 }, { "5m", 300 }, { "1h30m", 5400 },
		{ "0.5", 0.5 }, { "1.5h", 5400 }, { "1d", 86400 }, { "1d1h1m1s", 90061 },
		{ "0.25s", 0.25 }, { "1000000000", 1e9 },
	};
	static const char *const bad[] = {
		"", " 1", "1 ", "-1", "+1", "s", "1x", "1m1h", "1m1m", "1h30", "1s0.5", ".5", "5.",
		"1.2.3", "inf", "nan", "0x10", "1e3", "1000000001", "99999999999999999999", "12000d",
		"1h 30m", "5M", "1,5",
	};
	double v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		if (!tp_duration_parse(good[i].text, &v))
			fail_msg("\"%s\" was refused", good[i].text);
		assert_float_equal(v, good[i].seconds, 1e-9);
	}
	v = 7;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (tp_duration_parse(bad[i], &v))
			fail_msg("\"%s\" was accepted", bad[i]);
	}
	assert_false(tp_duration_parse(NULL, &v));
	assert_true(v > 6.9 && v < 7.1);
}

static void sizes_format(void **state)
{
	static const struct { uint64_t bytes; const char *text; } cases[] = {
		{ 0, "0 B" }, { 17, "17 B" }, { 1023, "1023 B" }, { 1024, "1 KiB" },
		{ 1536, "1.5 KiB" }, { 512 * MIB, "512 MiB" }, { GIB + 400 * MIB, "1.4 GiB" },
		{ GIB - 1, "1 GiB" }, { MIB - 1, "1 MiB" }, { 10 * GIB - 1, "10 GiB" },
		{ 100 * GIB - 1, "100 GiB" }, { 123 * GIB + 600 * MIB, "124 GiB" },
		{ 1023 * GIB + 1000 * MIB, "1 TiB" },
		{ UINT64_MAX, "16 EiB" }, { UINT64_C(1) << 60, "1 EiB" },
		{ (UINT64_C(1) << 60) + (UINT64_C(1) << 59), "1.5 EiB" },
	};
	char buf[TP_SIZE_TEXT];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_ptr_equal(tp_size_format(cases[i].bytes, buf), buf);
		assert_string_equal(buf, cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic),
		cmocka_unit_test(byte_order),
		cmocka_unit_test(sizes_parse),
		cmocka_unit_test(durations_parse),
		cmocka_unit_test(sizes_format),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
