/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_page_set.c - Sets of pages from anywhere: bounds, what fits, what an image takes of them */
#include "image_test.h"

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "storage/page_set.h"

static json_t *parse(const char *text)
{
	json_t *v;
	char *copy = strdup(text);

	for (char *c = copy; *c; c++)
		*c = *c == '\'' ? '"' : *c;
	v = json_loads(copy, JSON_DECODE_ANY, NULL);
	if (!v)
		fail_msg("test text: %s", text);
	free(copy);
	return v;
}

#define SET(size, blocks, ranges) "{'page-size': " size ", 'blocks': " blocks ", 'ranges': " ranges "}"

static const struct { const char *set, *part; } cases[] = {
	{ SET("4096", "['ram', 'rom']", "[[0, 0, 6], [1, 1, 1], [0, 5, 1]]"), NULL },
	{ SET("4096", "['gone']", "[]"), NULL },
	{ "7", "not a set" },
	{ "{'page-size': 4096, 'blocks': []}", "not a set" },
	{ SET("4096", "{}", "[]"), "not a set" },
	{ SET("0", "[]", "[]"), "page-size" },
	{ SET("-4096", "[]", "[]"), "page-size" },
	{ SET("4095", "[]", "[]"), "page-size" },
	{ SET("'4096'", "[]", "[]"), "page-size" },
	{ SET("2147483648", "[]", "[]"), "page-size" },
	{ SET("4096", "[7]", "[]"), "blocks" },
	{ SET("4096", "['']", "[]"), "blocks" },
	{ SET("4096", "['ram']", "[7]"), "not a range" },
	{ SET("4096", "['ram']", "[[0, 0]]"), "not a range" },
	{ SET("4096", "['ram']", "[[0, 0, 1, 1]]"), "not a range" },
	{ SET("4096", "['ram']", "[[0, 0, 1.0]]"), "not a range" },
	{ SET("4096", "['ram']", "[['0', 0, 1]]"), "not a range" },
	{ SET("4096", "['ram']", "[[1, 0, 1]]"), "not a range" },
	{ SET("4096", "['ram']", "[[-1, 0, 1]]"), "not a range" },
	{ SET("4096", "['ram']", "[[0, -1, 1]]"), "not a range" },
	{ SET("4096", "['ram']", "[[0, 0, 0]]"), "not a range" },
	{ SET("4096", "['ram']", "[[0, 0, 9223372036854775807]]"), "not a range" },
	{ SET("4096", "['ram']", "[[0, 4294967297, 1]]"), "not a range" },
	{ SET("4096", "['ram']", "[[0, 0, 1], [0, 6, 1]]"), "1 is not in RAM block ram" },
	{ SET("4096", "['ram']", "[[0, 5, 2]]"), "0 is not in RAM block ram" },
	{ SET("8192", "['rom']", "[[0, 1, 1]]"), "0 is not in RAM block rom" },
	{ SET("4096", "['gone']", "[[0, 0, 1]]"), "0 is not in RAM block gone" },
};

static json_t *ram(void)
{
	return parse("[{'id': 'ram', 'bytes': 24576}, {'id': 'rom', 'bytes': 8192}]");
}

static void bad_sets_are_told(void **state)
{
	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++) {
		struct tp_error err = TP_ERROR_INIT;
		tp_autojson json_t *set = parse(cases[i].set), *blocks = ram();
		bool good = page_set_check(set, blocks, &err);

		if (good != !cases[i].part || (!good && !strstr(err.text, cases[i].part)))
			fail_msg("%s: %s", cases[i].set, good ? "passed" : err.text);
		if (!good && err.code != TP_ECORRUPT)
			fail_msg("%s: %s", cases[i].set, tp_error_class(&err));
	}
}

static json_t *long_set(size_t ranges, json_int_t first, size_t blocks, size_t name)
{
	json_t *set = parse(SET("4096", "[]", "[]"));
	char id[256];

	memset(id, 'x', sizeof(id));
	id[name] = '\0';
	for (size_t i = 0; i < blocks; i++)
		json_array_append_new(json_object_get(set, "blocks"), json_string(id));
	for (size_t i = 0; i < ranges; i++)
		json_array_append_new(json_object_get(set, "ranges"), json_pack("[i, I, i]", 0, first, 1));
	return set;
}

static void lengths_are_bounded(void **state)
{
	static const struct { size_t ranges; json_int_t first; size_t blocks, name; bool good; } lengths[] = {
		{ PAGE_SET_RANGES_MAX, 1, 1, 3, true },
		{ PAGE_SET_RANGES_MAX + 1, 1, 1, 3, false },
		{ PAGE_SET_RANGES_MAX, 4000000000, 1, 255, true },
		{ 1, 1, 1024, 3, true },
		{ 1, 1, 1025, 3, false },
		{ 1, 1, 192, 255, false },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(lengths); i++) {
		struct tp_error err = TP_ERROR_INIT;
		tp_autojson json_t *set = long_set(lengths[i].ranges, lengths[i].first, lengths[i].blocks,
						   lengths[i].name);

		if (page_set_check(set, NULL, &err) != lengths[i].good)
			fail_msg("%zu: %s", i, err.text);
		if (!lengths[i].good)
			assert_string_equal(err.text, "too long");
	}
}

static void assert_text(json_t *is_owned, const char *wanted)
{
	tp_autojson json_t *want = parse(wanted), *is = is_owned;
	tp_autofree char *text = json_dumps(is, JSON_COMPACT);

	if (!json_equal(is, want))
		fail_msg("%s", text);
}

static void what_fits_is_kept_in_its_order(void **state)
{
	tp_autojson json_t *blocks = ram();
	tp_autojson json_t *set = parse(SET("4096", "['gone', 'rom', 'ram']",
					    "[[1, 1, 1], [0, 0, 1], [2, 5, 2], [2, 4, 2], [1, 0, 3], [1, 0, 2]]"));
	tp_autojson json_t *none = parse(SET("4096", "['gone', 'ram']", "[[0, 0, 1], [1, 6, 1]]"));

	(void)state;
	assert_int_equal(page_set_pages(set), 11);
	assert_int_equal(page_set_ranges(set), 6);
	assert_text(page_set_fit(set, blocks), SET("4096", "['rom', 'ram']", "[[0, 1, 1], [1, 4, 2], [0, 0, 2]]"));
	assert_null(page_set_fit(none, blocks));
	assert_null(page_set_fit(set, NULL));
}

/* What an image does not have is passed over, whatever it is. */
static void an_image_takes_what_it_has(void **state)
{
	static const struct { const char *set; unsigned n; } sets[] = {
		{ SET("4096", "['rom', 'ram']", "[[0, 1, 1], [1, 5, 2], [9, 0, 1], 7, [1, 2, 3]]"), 2 },
		{ SET("8192", "['ram']", "[[0, 0, 1]]"), 0 },
		{ "{'blocks': ['ram'], 'ranges': [[0, 0, 6]]}", 1 },
		{ "{'blocks': [7], 'ranges': [[0, 0, 6]]}", 0 },
		{ "{'blocks': 7, 'ranges': {'a': 7}}", 0 },
		{ "null", 0 },
	};
	struct tp_error err = TP_ERROR_INIT;
	struct image_pages ranges[8];
	struct small_image t;
	struct image *img;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, &err);
	for (size_t i = 0; i < TP_N(sets); i++) {
		tp_autojson json_t *set = parse(sets[i].set);

		assert_int_equal(page_set_read(img, set, ranges, 8), sets[i].n);
		assert_true(page_set_read(img, set, ranges, 1) <= 1);
		if (i > 0)
			continue;
		page_set_read(img, set, ranges, 8);
		assert_true(ranges[0].block == 1 && ranges[0].first == 1 && ranges[0].pages == 1);
		assert_true(ranges[1].block == 0 && ranges[1].first == 2 && ranges[1].pages == 3);
		assert_text(page_set_json(img, ranges, 2),
			    SET("4096", "['rom', 'ram']", "[[0, 1, 1], [1, 2, 3]]"));
	}
	assert_text(page_set_json(img, ranges, 0), SET("4096", "[]", "[]"));
	image_close(img);
	small_image_free(&t);
}

static void what_is_made_passes(void **state)
{
	static struct image_pages ranges[PAGE_SET_RANGES_MAX + 10];
	struct tp_error err = TP_ERROR_INIT;
	struct small_image t;
	tp_autojson json_t *set = NULL;
	struct image *img;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, &err);
	/* Numbers as long as they can be: the text may end the list before their count does. */
	for (size_t i = 0; i < TP_N(ranges); i++)
		ranges[i] = (struct image_pages){ i % 2, IMAGE_PAGES_MAX - 1, IMAGE_PAGES_MAX };
	set = page_set_json(img, ranges, TP_N(ranges));
	assert_true(page_set_check(set, NULL, &err));
	assert_true(page_set_ranges(set) > PAGE_SET_RANGES_MAX / 2 &&
		    page_set_ranges(set) <= PAGE_SET_RANGES_MAX);
	image_close(img);
	small_image_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_sets_are_told),
		cmocka_unit_test(lengths_are_bounded),
		cmocka_unit_test(what_fits_is_kept_in_its_order),
		cmocka_unit_test(an_image_takes_what_it_has),
		cmocka_unit_test(what_is_made_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
