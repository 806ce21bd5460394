/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_pool_place.c - Pools beside, inside and around each other; what an opening takes back */
#include "pool_test.h"

#include <limits.h>

#include <sys/mount.h>

#include "storage/pool_open.h"

#define INSTANCE "11111111-2222-3333-4444-555555555555"

static void make(const char *folder, const char *rest)
{
	assert_int_equal(mkdir(at(folder, rest), 0700), 0);
}

static struct pool_place place(const char *path)
{
	struct tp_error err = TP_ERROR_INIT;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct pool_place found;

	assert_true(fd >= 0);
	assert_ok(pool_place_of(fd, &found, &err), &err);
	close(fd);
	return found;
}

static enum pool_nesting nesting(const char *a, const char *b)
{
	struct pool_place pa = place(a), pb = place(b);

	return pool_nesting(&pa, &pb);
}

static void folders_are_compared_by_what_they_are(void **state)
{
	const char *f = *state;
	struct pool_place unknown = { .n = 0 }, known = place("/");

	make(f, "a");
	make(f, "a/b");
	make(f, "ab");
	assert_int_equal(symlink("a", at(f, "link")), 0);
	assert_int_equal(nesting(at(f, "a"), at(f, "a")), POOL_SAME);
	assert_int_equal(nesting(at(f, "a/"), at(f, "a/b/..")), POOL_SAME);
	assert_int_equal(nesting(at(f, "link"), at(f, "a")), POOL_SAME);
	assert_int_equal(nesting(at(f, "link/b"), at(f, "a")), POOL_INSIDE);
	assert_int_equal(nesting(at(f, "a"), at(f, "a/b")), POOL_AROUND);
	assert_int_equal(nesting(at(f, "a"), at(f, "ab")), POOL_APART);
	assert_int_equal(nesting("/", at(f, "a")), POOL_AROUND);
	assert_int_equal(known.n, 1);
	assert_int_equal(pool_nesting(&unknown, &known), POOL_APART);
	assert_int_equal(pool_nesting(&known, &unknown), POOL_APART);
}

static void a_bind_mount_is_the_same_folder(void **state)
{
	const char *f = *state;

	make(f, "a");
	make(f, "mnt");
	if (mount(at(f, "a"), at(f, "mnt"), "none", MS_BIND, NULL) != 0)
		skip();
	assert_int_equal(nesting(at(f, "mnt"), at(f, "a")), POOL_SAME);
	assert_int_equal(umount2(at(f, "mnt"), MNT_DETACH), 0);
}

static void too_deep_is_refused(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool_place found;
	int fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; i < POOL_DEPTH_MAX; i++) {
		int below;

		assert_int_equal(mkdirat(fd, "d", 0700), 0);
		below = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = below;
	}
	assert_false(pool_place_of(fd, &found, &err));
	assert_contains(err.text, "folders deep");
	close(fd);
}

/* --- opening with neighbours --- */

static struct pool_neighbour neighbour(const char *what, const char *path, bool pool, bool lodges)
{
	struct pool_neighbour n = { .place = place(path), .pool = pool, .lodges = lodges };

	snprintf(n.what, sizeof(n.what), "%s", what);
	return n;
}

static struct pool *open_beside(const char *path, enum pool_opening_mode mode, const struct pool_neighbour *others,
				size_t n, struct tp_error *err)
{
	struct pool_opening how = { .name = "new", .path = path, .instance = INSTANCE, .mode = mode,
				    .others = others, .n_others = n };

	return pool_open_as(&how, err);
}

static void neighbours_are_told_by_name(void **state)
{
	const char *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct pool_neighbour others[2];
	struct pool *p;

	make(f, "pools");
	make(f, "pools/a");
	make(f, "state");
	others[0] = neighbour("pool \"a\"", at(f, "pools/a"), true, false);
	others[1] = neighbour("the state directory", at(f, "state"), false, false);
	assert_null(open_beside(at(f, "pools/a/"), POOL_MAKE, others, 2, &err));
	assert_failed(&err, "Exists", "is the folder of pool \"a\" already");
	assert_null(open_beside(at(f, "pools/a/sub"), POOL_MAKE, others, 2, &err));
	assert_failed(&err, "GenericError", "is inside pool \"a\"");
	assert_null(open_beside(at(f, "pools"), POOL_MAKE, others, 2, &err));
	assert_failed(&err, "GenericError", "contains pool \"a\"");
	assert_null(open_beside(at(f, "state"), POOL_MAKE, others, 2, &err));
	assert_failed(&err, "GenericError", "is the state directory");
	assert_null(open_beside(at(f, "state/x"), POOL_MAKE, others, 2, &err));
	assert_failed(&err, "GenericError", "is inside the state directory");
	/* None of these has left a thing. */
	assert_false(exists(f, "pools/a/sub") || exists(f, "state/x"));
	assert_false(exists(f, "pools/.torpor-pool") || exists(f, "pools/a/.torpor-pool"));
	assert_false(exists(f, "state/.torpor-pool"));
	others[1].lodges = true;
	p = open_beside(at(f, "state/x"), POOL_MAKE, others, 2, &err);
	assert_ok(p, &err);
	pool_close(p);
}

static void an_owner_file_above_is_a_pool(void **state)
{
	const char *f = *state;
	struct tp_error err = TP_ERROR_INIT;

	make(f, "old");
	make(f, "old/vm");
	put_text(f, "old/.torpor-pool", "");
	assert_null(open_beside(at(f, "old/vm/pool"), POOL_MAKE, NULL, 0, &err));
	assert_failed(&err, "GenericError", "is inside the pool");
	assert_false(exists(f, "old/vm/pool"));
}

static void only_the_last_folder_is_made(void **state)
{
	const char *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p;

	assert_null(open_beside(at(f, "none/pool"), POOL_MAKE, NULL, 0, &err));
	assert_failed(&err, "IOError", "none, in which it would be made");
	assert_false(exists(f, "none"));
	p = open_beside(at(f, "pool"), POOL_MAKE, NULL, 0, &err);
	assert_ok(p, &err);
	assert_int_equal(mode_of(f, "pool"), 0700);
	pool_close(p);
	p = open_beside(at(f, "x/y/pool"), POOL_MAKE_ALL, NULL, 0, &err);
	assert_ok(p, &err);
	pool_close(p);
}

/* What a mount leaves bare must not become an empty pool in its place. */
static void a_known_pool_has_its_owner_file(void **state)
{
	const char *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p;

	assert_null(open_beside(at(f, "pool"), POOL_KNOWN, NULL, 0, &err));
	assert_failed(&err, "IOError", "does not exist");
	make(f, "pool");
	assert_null(open_beside(at(f, "pool"), POOL_KNOWN, NULL, 0, &err));
	assert_failed(&err, "IOError", "has no file .torpor-pool");
	assert_false(exists(f, "pool/.torpor-pool"));
	put_text(f, "pool/.torpor-pool", "");
	p = open_beside(at(f, "pool"), POOL_KNOWN, NULL, 0, &err);
	assert_ok(p, &err);
	pool_close(p);
}

static void an_opening_is_taken_back(void **state)
{
	const char *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_beside(at(f, "new"), POOL_MAKE, NULL, 0, &err);

	assert_ok(p, &err);
	pool_unmake(p);
	assert_false(exists(f, "new"));
	make(f, "there");
	p = open_beside(at(f, "there"), POOL_MAKE, NULL, 0, &err);
	assert_ok(p, &err);
	pool_unmake(p);
	assert_true(exists(f, "there"));
	assert_false(exists(f, "there/.torpor-pool"));
	/* What was a pool before stays one. */
	put_text(f, "there/.torpor-pool", "");
	p = open_beside(at(f, "there"), POOL_MAKE, NULL, 0, &err);
	assert_ok(p, &err);
	pool_unmake(p);
	assert_true(exists(f, "there/.torpor-pool"));
	pool_unmake(NULL);
}

/* Who lost the race for a new folder leaves the winner's owner file alone. */
static void a_lost_race_takes_nothing_back(void **state)
{
	const char *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct pool *winner = open_beside(at(f, "pool"), POOL_MAKE, NULL, 0, &err);

	assert_ok(winner, &err);
	assert_null(open_beside(at(f, "pool"), POOL_MAKE, NULL, 0, &err));
	assert_failed(&err, "Busy", "in use by process");
	assert_true(exists(f, "pool/.torpor-pool"));
	pool_close(winner);
}

static void the_quota_can_be_changed(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_beside(at(*state, "pool"), POOL_MAKE, NULL, 0, &err);
	struct pool_demand demand = { .bytes = 1 << 20 };
	struct pool_shortage shortage;
	struct pool_place found;

	assert_ok(p, &err);
	assert_ok(pool_room(p, &demand, &shortage, &err), &err);
	pool_set_quota(p, 1000);
	assert_false(pool_room(p, &demand, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "quota of the pool");
	assert_int_equal(shortage.quota, 1000);
	assert_ok(pool_where(p, &found, &err), &err);
	assert_true(found.n > 1);
	pool_close(p);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, make_folder, drop_folder)

/* Shown in messages and lists, and one line of a log. */
static void paths_that_can_be_none(void **state)
{
	char name[NAME_MAX + 3], path[PATH_MAX + 2];
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_true(pool_path_ok("/srv/a b/\xc3\xa4", &err));
	assert_false(pool_path_ok("/srv/a\nb", &err));
	assert_failed(&err, "GenericError", "byte 6 is 0x0a");
	assert_false(pool_path_ok("/srv/\x7f", &err));
	assert_failed(&err, "GenericError", "control characters");
	memset(name, 'x', sizeof(name));
	name[0] = '/';
	name[NAME_MAX + 1] = 0;
	assert_true(pool_path_ok(name, &err));
	name[NAME_MAX + 1] = 'x';
	name[NAME_MAX + 2] = 0;
	assert_false(pool_path_ok(name, &err));
	assert_failed(&err, "GenericError", "at most 255 bytes");
	for (size_t i = 0; i < sizeof(path); i++)
		path[i] = i % 2 ? 'x' : '/';
	path[PATH_MAX] = 0;
	assert_false(pool_path_ok(path, &err));
	assert_failed(&err, "GenericError", "at most 4095 bytes");
	path[PATH_MAX - 1] = 0;
	assert_true(pool_path_ok(path, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_that_can_be_none),
		T(folders_are_compared_by_what_they_are),
		T(a_bind_mount_is_the_same_folder),
		T(too_deep_is_refused),
		T(neighbours_are_told_by_name),
		T(an_owner_file_above_is_a_pool),
		T(only_the_last_folder_is_made),
		T(a_known_pool_has_its_owner_file),
		T(an_opening_is_taken_back),
		T(a_lost_race_takes_nothing_back),
		T(the_quota_can_be_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
