/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_pool_catalogue.c - Manifests on disk, damaged ones, states of images */
#include "pool_test.h"

#define FOLDER "pool/" VM "/" ID "/"

static struct pool *open_pool(const char *folder)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = pool_open("default", at(folder, "pool"), 0, "i", true, &err);

	assert_ok(p, &err);
	return p;
}

/* The state of the only image in the pool, its entry in *entry (may be NULL; then freed). */
static const char *state_of(struct pool *p, json_t **entry)
{
	static char text[32];
	struct tp_error err = TP_ERROR_INIT;
	json_t *list = pool_catalogue(p, NULL, 10, &err);

	assert_ok(list, &err);
	assert_int_equal(json_array_size(list), 1);
	snprintf(text, sizeof(text), "%s", tp_json_str(json_array_get(list, 0), "state"));
	if (entry)
		*entry = json_incref(json_array_get(list, 0));
	json_decref(list);
	return text;
}

static void manifest_comes_back(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state);
	json_t *m = manifest_for(VM, ID, "0123456789abcdef"), *read;

	assert_null(pool_manifest_read(p, VM, ID, &err));
	assert_failed(&err, "NotFound", ID);
	assert_false(pool_manifest_write(p, VM, ID, m, &err));
	assert_failed(&err, "NotFound", ID);
	close(fake_pool_image(p, VM, ID, "none", 0, &err));
	assert_string_equal(state_of(p, NULL), "partial");
	tp_json_set_str(m, "x-unknown", "kept");
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);
	assert_int_equal(mode_of(*state, FOLDER "manifest.json"), 0600);
	read = pool_manifest_read(p, VM, ID, &err);
	assert_ok(read, &err);
	assert_true(json_equal(read, m));
	json_decref(read);
	assert_ok(pool_manifest_unlink(p, VM, ID, &err), &err);
	assert_ok(pool_manifest_unlink(p, VM, ID, &err), &err);
	assert_false(exists(*state, FOLDER "manifest.json"));
	assert_ok(pool_manifest_unlink(p, VM, ID2, &err), &err);
	json_decref(m);
	pool_close(p);
}

/* Of one image it is read, and one that does not fit does no harm; a list of images is kept in memory without. */
static void working_set_comes_back_if_it_fits(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state);
	json_t *m, *read, *entry;

	put_image(p, VM, ID);
	m = pool_manifest_read(p, VM, ID, &err);
	assert_ok(m, &err);
	tp_json_set(json_object_get(m, "ram"), "blocks", json_pack("[{s:s, s:i}]", "id", "ram", "bytes", 8 * 4096));
	tp_json_set(m, "working-set", json_pack("{s:i, s:[s], s:[[i, i, i]]}", "page-size", 4096, "blocks", "ram",
						"ranges", 0, 7, 1));
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);
	read = pool_manifest_read(p, VM, ID, &err);
	assert_true(json_equal(read, m));
	json_decref(read);
	assert_string_equal(state_of(p, &entry), "complete");
	assert_null(tp_json_path(entry, "manifest.working-set"));
	assert_non_null(tp_json_path(entry, "manifest.ram"));
	json_decref(entry);
	tp_json_set(json_array_get(tp_json_path(m, "ram.blocks"), 0), "bytes", json_integer(7 * 4096));
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);
	read = pool_manifest_read(p, VM, ID, &err);
	assert_ok(read, &err);
	assert_null(json_object_get(read, "working-set"));
	assert_string_equal(state_of(p, NULL), "complete");
	json_decref(read);
	json_decref(m);
	pool_close(p);
}

static void bad_manifest_is_not_written(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state);
	json_t *m = manifest_for(VM, ID2, "0123456789abcdef");
	char *big = malloc(5 << 20);

	close(fake_pool_image(p, VM, ID, "none", 0, &err));
	assert_false(pool_manifest_write(p, VM, ID, m, &err));
	assert_failed(&err, "GenericError", ID2);
	tp_json_set_str(m, "image", ID);
	json_object_del(m, "footer");
	assert_false(pool_manifest_write(p, VM, ID, m, &err));
	assert_failed(&err, "Corrupt", "footer: missing");
	tp_json_set_str(m, "footer", "0123456789abcdef");
	memset(big, 'x', 5 << 20);
	big[(5 << 20) - 1] = 0;
	tp_json_set_str(m, "x-big", big);
	assert_false(pool_manifest_write(p, VM, ID, m, &err));
	assert_failed(&err, "GenericError", "at most");
	assert_false(exists(*state, FOLDER "manifest.json"));
	assert_false(exists(*state, FOLDER ".manifest.json.new"));
	free(big);
	json_decref(m);
	pool_close(p);
}

/* Whatever stands in manifest.json: Corrupt, with the image's name, and the catalogue goes on. */
static void expect_corrupt(struct pool *p, const char *part)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *entry;

	assert_null(pool_manifest_read(p, VM, ID, &err));
	assert_contains(err.text, ID);
	assert_failed(&err, "Corrupt", part);
	assert_string_equal(state_of(p, &entry), "corrupt");
	assert_contains(tp_json_str(entry, "why"), part);
	json_decref(entry);
}

static void damaged_manifests_are_corrupt(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state);
	json_t *m = manifest_for(VM, ID, "0123456789abcdef");
	char *text = tp_json_text(m), *deep = malloc(200001), *big = malloc(5 << 20);

	close(fake_pool_image(p, VM, ID, "none", 0, &err));
	for (size_t n = 0; n < strlen(text); n += 37) {
		put_file(*state, FOLDER "manifest.json", text, n);
		expect_corrupt(p, "manifest.json");
	}
	memset(deep, '[', 200000);
	deep[200000] = 0;
	put_text(*state, FOLDER "manifest.json", deep);
	expect_corrupt(p, "levels");
	memset(big, ' ', 5 << 20);
	memcpy(big, text, strlen(text));
	put_file(*state, FOLDER "manifest.json", big, 5 << 20);
	expect_corrupt(p, "larger than");
	put_text(*state, FOLDER "manifest.json", "[1, 2]");
	expect_corrupt(p, "not a JSON object");
	put_file(*state, FOLDER "manifest.json", "\0\xff\xfe{}", 5);
	expect_corrupt(p, "manifest.json");
	tp_json_set_str(m, "image", ID2);
	free(text);
	text = tp_json_text(m);
	put_text(*state, FOLDER "manifest.json", text);
	expect_corrupt(p, ID2);
	assert_int_equal(unlink(at(*state, FOLDER "manifest.json")), 0);
	assert_int_equal(mkfifo(at(*state, FOLDER "manifest.json"), 0600), 0);
	expect_corrupt(p, "not a regular file");
	assert_int_equal(unlink(at(*state, FOLDER "manifest.json")), 0);
	assert_int_equal(symlink("/etc/passwd", at(*state, FOLDER "manifest.json")), 0);
	expect_corrupt(p, "manifest.json");
	free(text);
	free(deep);
	free(big);
	json_decref(m);
	pool_close(p);
}

static void states_follow_the_files(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state);
	json_t *why = json_pack("{s:s, s:b}", "operation", "op-7", "ran", 0), *entry;
	int fd;

	put_image(p, VM, ID);
	assert_string_equal(state_of(p, &entry), "complete");
	assert_int_equal(tp_json_int(entry, "bytes", 0), 8192);
	assert_true(tp_json_int(entry, "allocated", 0) > 0);
	assert_string_equal(tp_json_str(json_object_get(entry, "manifest"), "image"), ID);
	json_decref(entry);
	assert_ok(pool_image_consumed(p, VM, ID, why, &err), &err);
	assert_int_equal(mode_of(*state, FOLDER "consumed.json"), 0600);
	assert_string_equal(state_of(p, &entry), "consumed");
	assert_true(json_equal(json_object_get(entry, "consumed"), why));
	json_decref(entry);
	assert_ok(pool_image_consumed(p, VM, ID, NULL, &err), &err);
	assert_ok(pool_image_consumed(p, VM, ID, NULL, &err), &err);
	assert_string_equal(state_of(p, NULL), "complete");
	/* A mark that cannot be read is a mark. */
	put_text(*state, FOLDER "consumed.json", "{\"oper");
	assert_string_equal(state_of(p, NULL), "consumed");
	assert_ok(pool_image_consumed(p, VM, ID, NULL, &err), &err);
	/* Another file, a cut one, none. */
	fd = open(at(*state, FOLDER "memory.zst"), O_RDWR);
	assert_int_equal(pwrite(fd, "x", 1, 8192 - 20), 1);
	assert_string_equal(state_of(p, NULL), "corrupt");
	seal_image(fd, 1);
	assert_string_equal(state_of(p, NULL), "complete");
	assert_int_equal(ftruncate(fd, 8191), 0);
	assert_string_equal(state_of(p, NULL), "corrupt");
	seal_image(fd, 2);
	assert_string_equal(state_of(p, &entry), "unavailable");
	assert_contains(tp_json_str(entry, "why"), "newer format");
	json_decref(entry);
	close(fd);
	assert_int_equal(unlink(at(*state, FOLDER "memory.zst")), 0);
	assert_string_equal(state_of(p, NULL), "corrupt");
	assert_false(pool_image_consumed(p, VM, ID2, why, &err));
	assert_failed(&err, "NotFound", ID2);
	json_decref(why);
	pool_close(p);
}

static void other_image_of_the_same_kind_is_corrupt(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state);
	json_t *m;

	put_image(p, VM, ID);
	m = pool_manifest_read(p, VM, ID, &err);
	assert_ok(m, &err);
	tp_json_set_str(m, "footer", "0000000000000000");
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);
	assert_string_equal(state_of(p, NULL), "corrupt");
	json_decref(m);
	pool_close(p);
}

static void foreign_things_are_left_alone(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state);
	json_t *list;

	put_image(p, VM, ID2);
	put_image(p, VM, ID);
	put_image(p, "db", "db-20261130T170537Z-0a1b2c");
	put_text(*state, "pool/README", "x");
	put_text(*state, "pool/" VM "/old.img", "x");
	assert_int_equal(mkdir(at(*state, "pool/lost+found"), 0700), 0);
	assert_int_equal(mkdir(at(*state, "pool/.snapshots"), 0700), 0);
	/* Named like an image, but no folder; an image of another VM; a VM that is a link. */
	put_text(*state, "pool/" VM "/web1-20261130T170539Z-000000", "x");
	assert_int_equal(mkdir(at(*state, "pool/" VM "/db-20261130T170539Z-000000"), 0700), 0);
	assert_int_equal(symlink(VM, at(*state, "pool/alias")), 0);
	assert_int_equal(symlink(ID, at(*state, "pool/" VM "/web1-20261130T170540Z-000000")), 0);
	list = pool_catalogue(p, NULL, 100, &err);
	assert_ok(list, &err);
	assert_int_equal(json_array_size(list), 3);
	assert_string_equal(tp_json_str(json_array_get(list, 0), "vm"), "db");
	assert_string_equal(tp_json_str(json_array_get(list, 1), "id"), ID);
	assert_string_equal(tp_json_str(json_array_get(list, 2), "id"), ID2);
	json_decref(list);
	list = pool_catalogue(p, VM, 1, &err);
	assert_ok(list, &err);
	assert_int_equal(json_array_size(list), 1);
	assert_string_equal(tp_json_str(json_array_get(list, 0), "id"), ID);
	json_decref(list);
	list = pool_catalogue(p, "nobody", 10, &err);
	assert_ok(list, &err);
	assert_int_equal(json_array_size(list), 0);
	json_decref(list);
	assert_null(pool_catalogue(p, "../x", 10, &err));
	assert_failed(&err, "GenericError", "../x");
	assert_true(exists(*state, "pool/README"));
	assert_true(exists(*state, "pool/" VM "/old.img"));
	pool_close(p);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_folder, drop_folder)
	const struct CMUnitTest tests[] = {
		T(manifest_comes_back),
		T(working_set_comes_back_if_it_fits),
		T(bad_manifest_is_not_written),
		T(damaged_manifests_are_corrupt),
		T(states_follow_the_files),
		T(other_image_of_the_same_kind_is_corrupt),
		T(foreign_things_are_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
