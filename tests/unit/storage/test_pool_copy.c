/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_pool_copy.c - What a pool has of an image that is being moved; what a verification found */
#include "pool_test.h"

#define FOOTER "0123456789abcdef"

static struct pool *open_pool(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = pool_open("p", at(*state, "pool"), 0, NULL, true, &err);

	assert_ok(p, &err);
	return p;
}

static int begin(struct pool *p, const char *footer, struct tp_error *err)
{
	const struct pool_copy c = { .vm = VM, .id = ID, .from = "elsewhere", .footer = footer, .bytes = 8192 };
	struct pool_shortage shortage;

	return pool_copy_begin(p, &c, &shortage, err);
}

static json_t *only_entry(struct pool *p)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *list = pool_catalogue(p, NULL, 100, &err);

	assert_ok(list, &err);
	assert_int_equal(json_array_size(list), 1);
	return json_incref(json_array_get(list, 0));
}

static void assert_state(struct pool *p, const char *state)
{
	tp_autojson json_t *entry = only_entry(p);

	assert_string_equal(tp_json_str(entry, "state"), state);
}

/* With all that an image has it is none until the mark is gone. */
static void no_image_before_it_is_offered(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(state);
	char footer[17];
	json_t *m, *entry, *used = json_pack("{s:b}", "ran", 1);
	int fd = begin(p, FOOTER, &err);

	assert_ok(fd >= 0, &err);
	assert_state(p, "partial");
	snprintf(footer, sizeof(footer), "%016llx", (unsigned long long)seal_image(fd, 1));
	close(fd);
	m = manifest_for(VM, ID, footer);
	assert_ok(pool_copy_marks(p, VM, ID, used, NULL, &err), &err);
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);
	entry = only_entry(p);
	assert_string_equal(tp_json_str(entry, "state"), "partial");
	assert_string_equal(tp_json_str(json_object_get(entry, "moving"), "from"), "elsewhere");
	json_decref(entry);
	assert_ok(pool_copy_marks(p, VM, ID, NULL, NULL, &err), &err);
	assert_ok(pool_copy_offer(p, VM, ID, &err), &err);
	assert_ok(pool_copy_offer(p, VM, ID, &err), &err);	/* after a crash: once more */
	assert_state(p, "complete");
	assert_int_equal(begin(p, footer, &err), -1);
	assert_failed(&err, "Exists", "already");
	assert_state(p, "complete");
	json_decref(m);
	json_decref(used);
	pool_close(p);
}

static void goes_on_with_the_same_content_only(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(state);
	struct stat st;
	int fd = begin(p, FOOTER, &err);

	assert_ok(fd >= 0, &err);
	assert_int_equal(pwrite(fd, "abc", 3, 0), 3);
	close(fd);
	assert_ok(pool_copy_suspend(p, VM, ID, &err), &err);
	fd = begin(p, FOOTER, &err);
	assert_ok(fd >= 0, &err);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 3);
	close(fd);
	fd = begin(p, "fedcba9876543210", &err);
	assert_ok(fd >= 0, &err);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 0);
	close(fd);
	pool_close(p);
}

/* A mark that cannot be read is one. */
static void torn_mark(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(state);
	tp_autojson json_t *mark = NULL;

	put_image(p, VM, ID);
	assert_state(p, "complete");
	assert_false(pool_copy_marked(p, VM, ID, &mark));
	assert_null(mark);
	put_text(*state, "pool/" VM "/" ID "/moving.json", "{\"from\": ");
	assert_state(p, "partial");
	assert_true(pool_copy_marked(p, VM, ID, NULL));
	assert_true(pool_copy_marked(p, VM, ID, &mark));
	assert_int_equal(json_object_size(mark), 0);
	assert_ok(pool_copy_offer(p, VM, ID, &err), &err);
	assert_state(p, "complete");
	pool_close(p);
}

static void verified(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(state);
	tp_autojson json_t *manifest = NULL, *good = NULL, *bad = NULL, *other = NULL, *entry = NULL;

	put_image(p, VM, ID);
	manifest = pool_manifest_read(p, VM, ID, &err);
	assert_null(pool_verified_read(p, VM, ID, NULL, &err));
	assert_failed(&err, "NotFound", "verified.json");
	bad = json_pack("{s:i, s:s, s:b, s:O, s:[{s:s}]}", "format", 1, "at", "2026-01-01T00:00:00.000Z", "ok", 0, "footer",
			json_object_get(manifest, "footer"), "damage", "what", "frame 3 is bad");
	assert_ok(pool_verified_write(p, VM, ID, bad, &err), &err);
	entry = only_entry(p);
	assert_string_equal(tp_json_str(entry, "state"), "corrupt");
	assert_contains(tp_json_str(entry, "why"), "frame 3 is bad (found at 2026");
	good = json_pack("{s:i, s:s, s:b, s:O}", "format", 1, "at", "2026-01-02T00:00:00.000Z", "ok", 1, "footer",
			 json_object_get(manifest, "footer"));
	assert_ok(pool_verified_write(p, VM, ID, good, &err), &err);
	assert_state(p, "complete");
	/* Of other content: it says nothing of this one. */
	other = json_copy(bad);
	tp_json_set_str(other, "footer", FOOTER);
	assert_ok(pool_verified_write(p, VM, ID, other, &err), &err);
	assert_state(p, "complete");
	pool_close(p);
}

/* What is no outcome tells nothing of the image, least of all that it is damaged for no reason. */
static void no_outcome(void **state)
{
	static const char *const texts[] = { "not JSON", "", "[]", "{}", "{\"ok\": false}",
					     "{\"ok\": 0, \"footer\": \"0123456789abcdef\"}",
					     "{\"ok\": false, \"footer\": null}" };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(state);
	tp_autojson json_t *outcome = NULL, *manifest = NULL, *entry = NULL;
	char text[POOL_DAMAGE_TEXT];

	put_image(p, VM, ID);
	for (size_t i = 0; i < TP_N(texts); i++) {
		put_text(*state, "pool/" VM "/" ID "/verified.json", texts[i]);
		assert_state(p, "complete");
		assert_null(pool_verified_read(p, VM, ID, NULL, &err));
		assert_failed(&err, "Corrupt", "");
		assert_null(pool_verified_read(p, VM, ID, NULL, NULL));
	}
	assert_int_equal(unlink(at(*state, "pool/" VM "/" ID "/verified.json")), 0);
	assert_int_equal(mkdir(at(*state, "pool/" VM "/" ID "/verified.json"), 0700), 0);
	assert_state(p, "complete");
	assert_int_equal(rmdir(at(*state, "pool/" VM "/" ID "/verified.json")), 0);
	/* One that names no damage has a reason all the same. */
	manifest = pool_manifest_read(p, VM, ID, &err);
	outcome = json_pack("{s:b, s:O}", "ok", 0, "footer", json_object_get(manifest, "footer"));
	assert_ok(pool_verified_write(p, VM, ID, outcome, &err), &err);
	entry = only_entry(p);
	assert_string_equal(tp_json_str(entry, "state"), "corrupt");
	assert_string_equal(tp_json_str(entry, "why"), "the last verification failed");
	assert_string_equal(pool_damage_text(outcome, text), "the last verification failed");
	pool_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(no_image_before_it_is_offered, make_folder, drop_folder),
		cmocka_unit_test_setup_teardown(goes_on_with_the_same_content_only, make_folder, drop_folder),
		cmocka_unit_test_setup_teardown(torn_mark, make_folder, drop_folder),
		cmocka_unit_test_setup_teardown(verified, make_folder, drop_folder),
		cmocka_unit_test_setup_teardown(no_outcome, make_folder, drop_folder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
