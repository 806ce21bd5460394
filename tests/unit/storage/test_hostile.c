/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_hostile.c - Images and pools made by who means harm: a clear class, bounded memory, no hang
 *
 * Checksums prove nothing here: who makes such a file makes them right. Each test has ten seconds; a
 * FIFO that is opened to be read would hang for ever.
 */
#include "pool_test.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "image_test.h"
#include "storage/image_damage.h"
#include "storage/image_index.h"

#define FOLDER "pool/" VM "/" ID "/"
#define LIMIT 10		/* seconds */
#define MEMORY (64 << 10)	/* KiB that a test may grow by */

static long grown_from;

static long largest(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return u.ru_maxrss;
}

static int begin(void **state)
{
	alarm(LIMIT);
	grown_from = largest();
	return make_folder(state);
}

static int end(void **state)
{
	alarm(0);
	if (largest() - grown_from > MEMORY) {
		print_error("memory grew by %ld KiB\n", largest() - grown_from);
		return -1;
	}
	return drop_folder(state);
}

/* ---- images */

static const struct {
	const char *what;
	size_t at, size;		/* in the footer */
	uint64_t value;
} lies[] = {
#define FIELD(member) offsetof(struct image_footer, member), sizeof(((struct image_footer *)0)->member)
	{ "2^60 pages", FIELD(pages), (uint64_t)1 << 60 },
	{ "2^36 pages", FIELD(pages), (uint64_t)1 << 36 },
	{ "as many pages as may be", FIELD(pages), (uint64_t)1 << 32 },
	{ "all pages with data", FIELD(pages_data), UINT64_MAX },
	{ "no page zero", FIELD(pages_zero), 0 },
	{ "2^32 frames", FIELD(frames), (uint64_t)1 << 32 },
	{ "2^64 - 1 frames", FIELD(frames), UINT64_MAX },
	{ "as many frames as bytes", FIELD(frames), 4096 },
	{ "no frames", FIELD(frames), 0 },
	{ "2^63 raw bytes", FIELD(raw_bytes), (uint64_t)1 << 63 },
	{ "no raw bytes", FIELD(raw_bytes), 0 },
	{ "65535 blocks", FIELD(blocks), 65535 },
	{ "no blocks", FIELD(blocks), 0 },
	{ "pages of 2^0", FIELD(page_bits), 0 },
	{ "pages of 2^63", FIELD(page_bits), 63 },
	{ "pages of 2^255", FIELD(page_bits), 255 },
	{ "kind 255", FIELD(stream_kind), 255 },
	{ "index at 0", FIELD(index_offset), 0 },
	{ "index far away", FIELD(index_offset), UINT64_MAX - 64 },
	{ "index of 2^64 - 1 bytes", FIELD(index_length), UINT64_MAX },
	{ "empty index", FIELD(index_length), 0 },
	{ "other index", FIELD(index_checksum), 1 },
};

static void footers_that_lie(void **state)
{
	struct small_image t;
	uint8_t *p;
	size_t n;

	(void)state;
	small_image_make(&t);
	p = file_bytes(t.fd, &n);
	for (size_t i = 0; i < TP_N(lies); i++) {
		struct tp_error err = TP_ERROR_INIT;
		struct image_footer f;
		struct image *img;

		memcpy(&f, p + n - sizeof(f), sizeof(f));
		for (size_t k = 0; k < lies[i].size; k++)
			((uint8_t *)&f)[lies[i].at + k] = (uint8_t)(lies[i].value >> 8 * k);
		tp_put_le64(&f.checksum, XXH64(&f, offsetof(struct image_footer, checksum), 0));
		assert_int_equal(pwrite(t.fd, &f, sizeof(f), (off_t)(n - sizeof(f))), (ssize_t)sizeof(f));
		img = image_open(t.fd, &err);
		if (img || err.code != TP_ECORRUPT)
			fail_msg("%s: %s", lies[i].what, img ? "accepted" : tp_error_class(&err));
	}
	free(p);
	small_image_free(&t);
}

/* The index's body is as long as its head says: 2 GiB, of a few bytes that decode to as much. */
static void index_that_blows_up(void **state)
{
	static const uint64_t lengths[] = { 0, 1, (uint64_t)1 << 31, (uint64_t)1 << 40, UINT64_MAX };
	struct small_image t;
	struct image_index_head head;
	const struct image_info *info;
	struct image *img;
	uint64_t at;

	(void)state;
	small_image_make(&t);
	img = image_open(t.fd, NULL);
	assert_non_null(img);
	info = image_info(img);
	at = info->index_offset;
	image_close(img);
	assert_int_equal(pread(t.fd, &head, sizeof(head), (off_t)at), sizeof(head));
	for (size_t i = 0; i < TP_N(lengths); i++) {
		struct tp_error err = TP_ERROR_INIT;

		tp_put_le64(&head.body_length, lengths[i]);
		assert_int_equal(pwrite(t.fd, &head, sizeof(head), (off_t)at), sizeof(head));
		assert_null(image_open(t.fd, &err));
		assert_failed(&err, "Corrupt", "index is damaged");
	}
	small_image_free(&t);
}

/* What a footer with good sums claims, against bodies that could not hold it. */
static void claims_without_bytes(void **state)
{
	static const struct image_claims claims[] = {
		{ .frames = 1, .pages = (uint64_t)1 << 60, .page_bits = 12 },
		{ .frames = 1, .pages = (uint64_t)1 << 32, .page_bits = 12 },
		{ .frames = (uint64_t)1 << 32, .pages = 1, .page_bits = 12 },
		{ .frames = ((uint64_t)1 << 31) - 2, .pages = 1, .page_bits = 12 },
		{ .frames = 1, .pages = 1, .page_bits = 12, .blocks = 65536 },
		{ .frames = 1, .pages = 1, .page_bits = 12, .blocks = 1024 },
		{ .frames = 1, .pages = 1, .page_bits = 64 },
	};
	uint8_t body[512] = { 0 };

	(void)state;
	/* All five chunks, empty. */
	for (unsigned i = 0; i < 5; i++)
		tp_put_le32(body + i * IMAGE_CHUNK_HEAD, i + 2);
	for (size_t i = 0; i < TP_N(claims); i++) {
		struct tp_error err = TP_ERROR_INIT;
		struct image_index x;

		assert_false(image_index_parse(body, (size_t)5 * IMAGE_CHUNK_HEAD, &claims[i], &x, &err));
		assert_string_equal(tp_error_class(&err), "Corrupt");
		assert_null(x.blocks);
		assert_null(x.stored_at);
	}
}

/* ---- pools */

static struct pool *pool_with_two(const char *folder)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = pool_open("default", at(folder, "pool"), 0, "i", true, &err);

	assert_ok(p, &err);
	put_image(p, VM, ID);
	put_image(p, VM, ID2);
	return p;
}

/* State of the first image; the second one is listed and whole, whatever the first has become. */
static const char *state_of_first(struct pool *p)
{
	static char text[32];
	struct tp_error err = TP_ERROR_INIT;
	json_t *list = pool_catalogue(p, NULL, 10, &err);
	const json_t *last = json_array_get(list, json_array_size(list) - 1);

	assert_ok(list, &err);
	assert_string_equal(tp_json_str(last, "id"), ID2);
	assert_string_equal(tp_json_str(last, "state"), "complete");
	snprintf(text, sizeof(text), "%s", json_array_size(list) < 2 ? "not listed" :
		 tp_json_str(json_array_get(list, 0), "state"));
	json_decref(list);
	return text;
}

static void make_socket(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	close(fd);
}

/* Puts a thing of each kind in place of what the name was; false: no more kinds. */
static bool put_instead(const char *folder, const char *name, unsigned kind)
{
	const char *path = at(folder, name);

	remove_tree(path);
	switch (kind) {
	case 0: return mkfifo(path, 0600) == 0;
	case 1: return symlink("/etc/passwd", path) == 0;
	case 2: return symlink("/dev/zero", path) == 0;
	case 3: return symlink(".", path) == 0;
	case 4: return symlink("nothing", path) == 0;
	case 5: return mkdir(path, 0700) == 0;
	case 6: make_socket(path); return true;
	case 7: return mknod(path, S_IFCHR | 0600, makedev(1, 5)) == 0 || mkfifo(path, 0600) == 0;
	default: return false;
	}
}

static void what_is_no_image_file(void **state)
{
	const char *f = *state;
	struct pool *p = pool_with_two(f);

	for (unsigned kind = 0; put_instead(f, FOLDER "memory.zst", kind); kind++) {
		struct tp_error err = TP_ERROR_INIT;
		int fd = pool_image_open(p, VM, ID, &err);

		if (fd >= 0)
			fail_msg("memory.zst of kind %u was opened", kind);
		if (strcmp(state_of_first(p), "corrupt") != 0 &&
		    strcmp(state_of_first(p), "unavailable") != 0)
			fail_msg("memory.zst of kind %u: %s", kind, state_of_first(p));
	}
	pool_close(p);
}

static void what_is_no_manifest(void **state)
{
	const char *f = *state;
	struct pool *p = pool_with_two(f);

	for (unsigned kind = 0; put_instead(f, FOLDER "manifest.json", kind); kind++) {
		struct tp_error err = TP_ERROR_INIT;

		assert_null(pool_manifest_read(p, VM, ID, &err));
		if (strcmp(state_of_first(p), "corrupt") != 0 &&
		    strcmp(state_of_first(p), "unavailable") != 0)
			fail_msg("manifest.json of kind %u: %s (%s)", kind, state_of_first(p), err.text);
	}
	pool_close(p);
}

/* Whatever lies in the mark's place: it was used. */
static void what_is_no_mark_is_one(void **state)
{
	static const char *const contents[] = {
		"", "{", "null", "[]", "7", "{\"ran\": 7}", "\xff\xfe", "{\"operation\": \"\\u0000\"}",
	};
	const char *f = *state;
	struct pool *p = pool_with_two(f);

	for (unsigned kind = 0; put_instead(f, FOLDER "consumed.json", kind); kind++) {
		if (strcmp(state_of_first(p), "consumed") != 0)
			fail_msg("consumed.json of kind %u: %s", kind, state_of_first(p));
	}
	remove_tree(at(f, FOLDER "consumed.json"));
	for (size_t i = 0; i < TP_N(contents); i++) {
		put_text(f, FOLDER "consumed.json", contents[i]);
		if (strcmp(state_of_first(p), "consumed") != 0)
			fail_msg("consumed.json of %s: %s", contents[i], state_of_first(p));
	}
	pool_close(p);
}

static void what_is_no_folder_is_left_alone(void **state)
{
	const char *f = *state;
	struct pool *p = pool_with_two(f);

	for (unsigned kind = 0; put_instead(f, "pool/" VM "/" ID, kind); kind++) {
		struct tp_error err = TP_ERROR_INIT;
		bool folder = kind == 5;

		assert_string_equal(state_of_first(p), folder ? "partial" : "not listed");
		assert_null(pool_manifest_read(p, VM, ID, &err));
		tp_error_clear(&err);
		assert_int_equal(pool_image_open(p, VM, ID, &err), -1);
	}
	/* In place of another VM's folder. */
	for (unsigned kind = 0; put_instead(f, "pool/web0", kind); kind++)
		state_of_first(p);
	remove_tree(at(f, "pool/web0"));
	remove_tree(at(f, "pool/" VM "/" ID));
	pool_close(p);
}

static void large_and_deep_files(void **state)
{
	static const char *const files[] = { FOLDER "manifest.json", FOLDER "consumed.json",
					     FOLDER "verified.json", FOLDER "moving.json" };
	const size_t deep = 1 << 20;
	const char *f = *state;
	struct pool *p = pool_with_two(f);
	char *text = malloc(deep);

	memset(text, '[', deep);
	for (size_t i = 0; i < TP_N(files); i++) {
		put_text(f, "keep", "");
		if (i == 0)
			assert_int_equal(rename(at(f, files[i]), at(f, "keep")), 0);
		put_text(f, files[i], "");
		assert_int_equal(truncate(at(f, files[i]), 100 << 20), 0);
		state_of_first(p);
		put_file(f, files[i], text, deep);
		state_of_first(p);
		for (size_t k = 0; k < deep; k += 6)
			memcpy(text + k, "{\"a\":", k + 5 <= deep ? 5 : deep - k);
		put_file(f, files[i], text, deep);
		state_of_first(p);
		memset(text, '[', deep);
		if (i == 0)
			assert_int_equal(rename(at(f, "keep"), at(f, files[i])), 0);
		else
			assert_int_equal(unlink(at(f, files[i])), 0);
	}
	assert_string_equal(state_of_first(p), "complete");
	free(text);
	pool_close(p);
}

/* A text cut inside a character took the whole pool off the list. */
static void texts_are_cut_between_characters(void **state)
{
	const char *f = *state;
	struct pool *p = pool_with_two(f);
	tp_autojson json_t *manifest = pool_manifest_read(p, VM, ID, NULL);
	char what[400], text[600];

	for (int shift = 0; shift < 3; shift++) {
		memset(what, 'x', sizeof(what));
		for (size_t i = (size_t)shift; i + 3 < sizeof(what); i += 3)
			memcpy(what + i, "\xe2\x82\xac", 3);
		what[(size_t)shift + 3 * 130] = 0;
		snprintf(text, sizeof(text), "{\"ok\": false, \"footer\": \"%s\", \"damage\": [{\"what\": \"%s\"}]}",
			 tp_json_str(manifest, "footer"), what);
		put_text(f, FOLDER "verified.json", text);
		assert_string_equal(state_of_first(p), "corrupt");
	}
	pool_close(p);
}

/* Each member that the image itself says as well. */
static void manifest_of_another_image(void **state)
{
	static const struct { const char *key, *value; } members[] = {
		{ "footer", "\"0123456789abcdef\"" }, { "uuid", "\"ffffffffffffffffffffffffffffffff\"" },
		{ "bytes", "8191" }, { "bytes", "9223372036854775807" }, { "raw-bytes", "0" },
		{ "raw-bytes", "8193" }, { "image", "\"" ID2 "\"" }, { "vm", "\"web2\"" },
	};
	struct tp_error err = TP_ERROR_INIT;
	const char *f = *state;
	struct pool *p = pool_with_two(f);
	json_t *good = pool_manifest_read(p, VM, ID, &err);

	assert_ok(good, &err);
	for (size_t i = 0; i < TP_N(members); i++) {
		json_t *m = json_deep_copy(good);
		char *text;

		tp_json_set(m, members[i].key, json_loads(members[i].value, JSON_DECODE_ANY, NULL));
		text = tp_json_text(m);
		put_text(f, FOLDER "manifest.json", text);
		if (strcmp(state_of_first(p), "corrupt") != 0)
			fail_msg("%s = %s: %s", members[i].key, members[i].value, state_of_first(p));
		free(text);
		json_decref(m);
	}
	json_decref(good);
	pool_close(p);
}

static void names_that_are_none(void **state)
{
	static char longest[201];
	static const char *const ids[] = {
		"", ".", "..", "/", "../" ID, ID "/", "/" ID, "web1/../" ID, ID "/..",
		"web1\n-20261130T170537Z-0a1b2c", "web\xff-20261130T170537Z-0a1b2c",
		"w\xc3\xa9" "b-20261130T170537Z-0a1b2c", "-20261130T170537Z-0a1b2c",
		"web1-20261130T170537Z-0A1B2C", longest,
	};
	const char *f = *state;
	struct pool *p = pool_with_two(f);

	memset(longest, 'w', sizeof(longest) - 1);
	memcpy(longest + 177, "-20261130T170537Z-0a1b2c", 23);
	for (size_t i = 0; i < TP_N(ids); i++) {
		struct tp_error err = TP_ERROR_INIT;

		if (pool_image_id_ok(ids[i]))
			fail_msg("\"%s\" is an image id", ids[i]);
		assert_int_equal(pool_image_open(p, VM, ids[i], &err), -1);
		assert_int_equal(err.code, TP_EARG);
		tp_error_clear(&err);
		assert_null(pool_manifest_read(p, VM, ids[i], &err));
		tp_error_clear(&err);
		assert_false(pool_image_remove(p, VM, ids[i], &err));
		assert_int_equal(err.code, TP_EARG);
	}
	/* Such folders are not torpor's. */
	assert_int_equal(mkdir(at(f, "pool/w\xff" "b"), 0700), 0);
	assert_int_equal(mkdir(at(f, "pool/" VM "/\xff-20261130T170537Z-0a1b2c"), 0700), 0);
	assert_string_equal(state_of_first(p), "complete");
	assert_true(exists(f, "pool/w\xff" "b"));
	pool_close(p);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, begin, end)
	const struct CMUnitTest tests[] = {
		T(footers_that_lie),
		T(index_that_blows_up),
		T(claims_without_bytes),
		T(what_is_no_image_file),
		T(what_is_no_manifest),
		T(what_is_no_mark_is_one),
		T(what_is_no_folder_is_left_alone),
		T(large_and_deep_files),
		T(texts_are_cut_between_characters),
		T(manifest_of_another_image),
		T(names_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
