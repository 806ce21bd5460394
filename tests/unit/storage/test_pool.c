/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_pool.c - Opening and locking pools, image ids, folders of images */
#include "pool_test.h"

#include <sys/wait.h>

#define INSTANCE "11111111-2222-3333-4444-555555555555"

static struct pool *open_pool(const char *folder, uint64_t quota)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = pool_open("default", at(folder, "pool"), quota, INSTANCE, true, &err);

	assert_ok(p, &err);
	return p;
}

/* ---- ids ---- */

static void ids_are_made_and_understood(void **state)
{
	char id[IMAGE_ID_MAX + 1], again[IMAGE_ID_MAX + 1], vm[65], long_name[65];

	(void)state;
	pool_image_id("a-b-c", 1796050000123456ull, id);
	assert_int_equal(strncmp(id, "a-b-c-20261130T", 15), 0);
	assert_int_equal(strlen(id), 5 + 1 + 16 + 1 + 6);
	assert_true(pool_image_id_ok(id));
	assert_true(pool_image_vm(id, vm));
	assert_string_equal(vm, "a-b-c");
	for (int i = 0;; i++) {		/* equal by chance once in 16 million */
		pool_image_id("a-b-c", 1796050000123456ull, again);
		if (strcmp(id, again) != 0)
			break;
		assert_true(i < 3);
	}
	memset(long_name, 'x', 64);
	long_name[64] = 0;
	pool_image_id(long_name, 0, id);
	assert_true(strlen(id) <= IMAGE_ID_MAX);
	assert_true(pool_image_vm(id, vm));
	assert_string_equal(vm, long_name);
}

static void bad_ids_are_refused(void **state)
{
	static const char *const bad[] = {
		"", "web1", "-20261130T170537Z-0a1b2c", ".x-20261130T170537Z-0a1b2c",
		"web1-20261130T170537Z-0a1b2", "web1-20261130T170537Z-0a1b2c3",
		"web1-20261130T170537Z-0A1B2C", "web1-20261130T170537-0a1b2cc",
		"web1-2026113xT170537Z-0a1b2c", "../web1-20261130T170537Z-0a1b2c",
		"a/b-20261130T170537Z-0a1b2c", "web1-20261130T170537Z-0a1b2c/", "a\n-20261130T170537Z-0a1b2c",
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-20261130T170537Z-0a1b2c",
	};
	char vm[65] = "kept";

	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++) {
		if (pool_image_id_ok(bad[i]))
			fail_msg("\"%s\" was accepted", bad[i]);
		assert_false(pool_image_vm(bad[i], vm));
	}
	assert_false(pool_image_id_ok(NULL));
	assert_string_equal(vm, "kept");
}

/* ---- opening ---- */

static void pool_is_made_private(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	mode_t old = umask(0);
	struct pool *p = pool_open("p1", at(*state, "a/b/pool/"), 0, INSTANCE, true, &err);
	char text[1024] = "";
	int fd;

	umask(old);
	assert_ok(p, &err);
	assert_string_equal(pool_name(p), "p1");
	assert_string_equal(pool_path(p), at(*state, "a/b/pool"));
	assert_int_equal(mode_of(*state, "a/b"), 0700);
	assert_int_equal(mode_of(*state, "a/b/pool"), 0700);
	assert_int_equal(mode_of(*state, "a/b/pool/.torpor-pool"), 0600);
	fd = open(at(*state, "a/b/pool/.torpor-pool"), O_RDONLY);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	assert_contains(text, "\"format\":1");
	assert_contains(text, "\"instance\":\"" INSTANCE "\"");
	assert_true(fcntl(pool_dirfd(p), F_GETFD) & FD_CLOEXEC);
	pool_close(p);
	pool_close(NULL);
}

static void what_is_no_pool_is_refused(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	assert_null(pool_open("p", at(*state, "none"), 0, INSTANCE, false, &err));
	assert_failed(&err, "IOError", "No such file");
	put_text(*state, "file", "x");
	assert_null(pool_open("p", at(*state, "file"), 0, INSTANCE, true, &err));
	assert_failed(&err, "IOError", "is not a folder");
	assert_int_equal(mkdir(at(*state, "real"), 0700), 0);
	assert_int_equal(symlink("real", at(*state, "link")), 0);
	assert_null(pool_open("p", at(*state, "link"), 0, INSTANCE, true, &err));
	assert_failed(&err, "IOError", "is a symbolic link");
	assert_null(pool_open("p", at(*state, "link/"), 0, INSTANCE, true, &err));
	assert_failed(&err, "IOError", "is a symbolic link");
	assert_false(exists(*state, "real/.torpor-pool"));
	assert_null(pool_open("p", "relative", 0, INSTANCE, true, &err));
	assert_failed(&err, "GenericError", "absolute path");
	assert_null(pool_open("../p", at(*state, "real"), 0, INSTANCE, true, &err));
	assert_failed(&err, "GenericError", "../p");
	assert_int_equal(chmod(at(*state, "real"), 0777), 0);
	assert_null(pool_open("p", at(*state, "real"), 0, INSTANCE, true, &err));
	assert_failed(&err, "PermissionDenied", "by everybody");
	assert_int_equal(chmod(at(*state, "real"), 0700), 0);
	assert_int_equal(mkfifo(at(*state, "real/.torpor-pool"), 0600), 0);
	assert_null(pool_open("p", at(*state, "real"), 0, INSTANCE, true, &err));
	assert_failed(&err, "IOError", "not a regular file");
}

static void second_holder_is_told_the_first(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0), *q;
	char pid[32];
	int status;
	pid_t child;

	snprintf(pid, sizeof(pid), "process %d ", (int)getpid());
	assert_null(pool_open("other", at(*state, "pool"), 0, "another", false, &err));
	assert_contains(err.text, pid);
	assert_contains(err.text, INSTANCE);
	assert_failed(&err, "Busy", "in use");
	child = fork();
	if (child == 0) {
		q = pool_open("default", at(*state, "pool"), 0, INSTANCE, false, &err);
		_exit(!q && strcmp(tp_error_class(&err), "Busy") == 0 && strstr(err.text, pid) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	pool_close(p);
	q = pool_open("other", at(*state, "pool"), 0, "another", false, &err);
	assert_ok(q, &err);
	pool_close(q);
}

static void owner_on_another_host_is_respected(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	json_t *owner;
	char *text;

	pool_close(p);
	owner = json_load_file(at(*state, "pool/.torpor-pool"), 0, NULL);
	assert_non_null(owner);
	tp_json_set_str(owner, "machine", NULL);
	tp_json_set_str(owner, "host", "elsewhere.example");
	tp_json_set_str(owner, "instance", "99999999");
	text = json_dumps(owner, 0);
	put_text(*state, "pool/.torpor-pool", text);
	assert_null(pool_open("default", at(*state, "pool"), 0, INSTANCE, false, &err));
	assert_contains(err.text, "elsewhere.example");
	assert_failed(&err, "Busy", "99999999");
	free(text);

	tp_json_set(owner, "format", json_integer(2));
	text = json_dumps(owner, 0);
	put_text(*state, "pool/.torpor-pool", text);
	assert_null(pool_open("default", at(*state, "pool"), 0, INSTANCE, false, &err));
	assert_failed(&err, "Unsupported", "newer format");
	free(text);
	json_decref(owner);

	/* What cannot be read owns nothing. */
	put_text(*state, "pool/.torpor-pool", "{\"format\": 1, \"inst");
	p = open_pool(*state, 0);
	pool_close(p);
}

static void pool_that_was_moved_away_is_missed(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	struct pool_space space;

	assert_ok(pool_space(p, &space, &err), &err);
	assert_int_equal(rename(at(*state, "pool"), at(*state, "away")), 0);
	assert_false(pool_space(p, &space, &err));
	assert_failed(&err, "IOError", "No such file");
	assert_int_equal(fake_pool_image(p, VM, ID, "none", 0, &err), -1);
	assert_failed(&err, "IOError", "No such file");
	assert_int_equal(mkdir(at(*state, "pool"), 0700), 0);
	assert_null(pool_catalogue(p, NULL, 10, &err));
	assert_failed(&err, "IOError", "no longer the folder");
	assert_false(exists(*state, "away/" VM));
	pool_close(p);
}

static void folder_that_came_back_is_taken(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p, *other = open_pool(*state, 0);
	struct pool_space space;

	pool_close(other);
	assert_int_equal(rename(at(*state, "pool"), at(*state, "away")), 0);
	p = open_pool(*state, 0);
	remove_tree(at(*state, "pool"));
	/* Nothing there, or a folder that never was a pool: none is taken. */
	assert_ok(pool_regain(p, INSTANCE, &err), &err);
	assert_false(pool_space(p, &space, &err));
	assert_failed(&err, "IOError", "No such file");
	assert_int_equal(mkdir(at(*state, "pool"), 0700), 0);
	assert_ok(pool_regain(p, INSTANCE, &err), &err);
	assert_false(pool_space(p, &space, &err));
	assert_failed(&err, "IOError", "no longer the folder");
	assert_int_equal(rmdir(at(*state, "pool")), 0);
	assert_int_equal(rename(at(*state, "away"), at(*state, "pool")), 0);
	assert_ok(pool_regain(p, INSTANCE, &err), &err);
	assert_ok(pool_space(p, &space, &err), &err);
	assert_null(pool_open("default", at(*state, "pool"), 0, INSTANCE, true, &err));
	assert_string_equal(tp_error_class(&err), "Busy");
	pool_close(p);
}

/* ---- images ---- */

static void image_is_private_and_reserved(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	struct pool_space space;
	struct stat st;
	mode_t old = umask(0);
	int fd = fake_pool_image(p, VM, ID, "full", 4 << 20, &err);

	umask(old);
	assert_ok(fd >= 0, &err);
	assert_int_equal(mode_of(*state, "pool/" VM), 0700);
	assert_int_equal(mode_of(*state, "pool/" VM "/" ID), 0700);
	assert_int_equal(mode_of(*state, "pool/" VM "/" ID "/memory.zst"), 0600);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_ok(pool_space(p, &space, &err), &err);
	assert_string_not_equal(space.fs, "");
	if (space.guaranteed)
		assert_true(st.st_blocks * 512 >= 4 << 20);
	assert_true(space.used + space.reserved >= 4 << 20);
	/* The file ends where its content does, and what is left over goes back. */
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_int_equal(ftruncate(fd, 1), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_blocks * 512 < 1 << 20);
	close(fd);
	assert_int_equal(fake_pool_image(p, VM, ID, "none", 0, &err), -1);
	assert_failed(&err, "Exists", ID);
	assert_true(exists(*state, "pool/" VM "/" ID "/memory.zst"));
	pool_close(p);
}

static void names_never_become_paths(void **state)
{
	static const struct { const char *vm, *id; } bad[] = {
		{ "..", ID }, { "../web1", ID }, { "", ID }, { NULL, ID }, { "a\nb", ID }, { "web2", ID },
		{ VM, NULL }, { VM, "" }, { VM, "../" ID }, { VM, "." }, { VM, "memory.zst" },
	};
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	json_t *why = json_object();

	for (size_t i = 0; i < TP_N(bad); i++) {
		const char *vm = bad[i].vm, *id = bad[i].id;

		assert_int_equal(fake_pool_image(p, vm, id, "none", 0, &err), -1);
		assert_failed(&err, "GenericError", "cannot be");
		assert_int_equal(pool_image_open(p, vm, id, &err), -1);
		assert_failed(&err, "GenericError", "cannot be");
		assert_false(pool_image_remove(p, vm, id, &err));
		assert_failed(&err, "GenericError", "cannot be");
		assert_null(pool_manifest_read(p, vm, id, &err));
		assert_failed(&err, "GenericError", "cannot be");
		assert_false(pool_manifest_unlink(p, vm, id, &err));
		assert_failed(&err, "GenericError", "cannot be");
		assert_false(pool_image_consumed(p, vm, id, why, &err));
		assert_failed(&err, "GenericError", "cannot be");
	}
	assert_int_equal(fake_pool_image(p, VM, ID, "half", 0, &err), -1);
	assert_failed(&err, "GenericError", "half");
	json_decref(why);
	pool_close(p);
}

static void links_lead_nowhere(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);

	assert_int_equal(mkdir(at(*state, "outside"), 0700), 0);
	put_text(*state, "outside/memory.zst", "precious");
	assert_int_equal(symlink("../outside", at(*state, "pool/" VM)), 0);
	assert_int_equal(fake_pool_image(p, VM, ID, "none", 0, &err), -1);
	assert_failed(&err, "IOError", VM);
	assert_false(exists(*state, "outside/" ID));
	assert_int_equal(unlink(at(*state, "pool/" VM)), 0);
	assert_int_equal(mkdir(at(*state, "pool/" VM), 0700), 0);
	assert_int_equal(symlink("../../outside", at(*state, "pool/" VM "/" ID)), 0);
	assert_int_equal(pool_image_open(p, VM, ID, &err), -1);
	assert_failed(&err, "IOError", ID);
	assert_false(pool_image_remove(p, VM, ID, &err));
	assert_failed(&err, "IOError", ID);
	assert_true(exists(*state, "outside/memory.zst"));
	/* A folder that others may write to is not used. */
	assert_int_equal(chmod(at(*state, "pool/" VM), 0777), 0);
	assert_int_equal(fake_pool_image(p, VM, ID2, "none", 0, &err), -1);
	assert_failed(&err, "PermissionDenied", VM);
	pool_close(p);
}

static void quota_counts_what_is_there(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 3 << 20);
	struct pool_shortage shortage;
	struct pool_space space;
	int fd;

	assert_true(room_for(p, 3 << 20, &shortage, &err));
	assert_int_equal(shortage.required, 0);
	assert_int_equal(create_room(p, ID, "full", (3 << 20) + 1, &shortage, &err), -1);
	assert_int_equal(shortage.required, (3 << 20) + 1);
	assert_int_equal(shortage.available, 3 << 20);
	assert_contains(err.text, "3145729 bytes");
	assert_contains(err.text, "3145728 bytes");
	assert_contains(err.text, at(*state, "pool"));
	assert_failed(&err, "InsufficientSpace", "quota");
	assert_false(exists(*state, "pool/" VM));
	/* Estimated and reserved room count as used, also before it is written. */
	fd = fake_pool_image(p, VM, ID, "estimate", 2 << 20, &err);
	assert_ok(fd >= 0, &err);
	assert_ok(pool_space(p, &space, &err), &err);
	assert_true(space.used < 65536);
	assert_int_equal(space.used + space.reserved, 2 << 20);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_false(room_for(p, (1 << 20) + 1, &shortage, &err));
	assert_int_equal(shortage.available, 1 << 20);
	assert_failed(&err, "InsufficientSpace", "quota");
	assert_true(room_for(p, 1 << 20, NULL, &err));
	close(fd);
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	assert_ok(room_for(p, 3 << 20, NULL, &err), &err);
	pool_close(p);
}

static void removal_takes_only_what_is_ours(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);

	put_image(p, VM, ID);
	put_image(p, VM, ID2);
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	assert_false(exists(*state, "pool/" VM "/" ID));
	assert_true(exists(*state, "pool/" VM "/" ID2 "/manifest.json"));
	put_text(*state, "pool/" VM "/notes.txt", "somebody's");
	assert_ok(pool_image_remove(p, VM, ID2, &err), &err);
	assert_true(exists(*state, "pool/" VM "/notes.txt"));
	assert_int_equal(unlink(at(*state, "pool/" VM "/notes.txt")), 0);
	put_image(p, VM, ID);
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	assert_false(exists(*state, "pool/" VM));
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	pool_close(p);
}

static void open_gives_a_readable_file(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	char magic[8];
	int fd;

	assert_int_equal(pool_image_open(p, VM, ID, &err), -1);
	assert_failed(&err, "NotFound", ID);
	put_image(p, VM, ID);
	fd = pool_image_open(p, VM, ID, &err);
	assert_ok(fd >= 0, &err);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(pread(fd, magic, 8, 8), 8);
	assert_memory_equal(magic, IMAGE_HEADER_MAGIC, 8);
	close(fd);
	assert_int_equal(unlink(at(*state, "pool/" VM "/" ID "/memory.zst")), 0);
	assert_int_equal(mkfifo(at(*state, "pool/" VM "/" ID "/memory.zst"), 0600), 0);
	assert_int_equal(pool_image_open(p, VM, ID, &err), -1);
	assert_failed(&err, "Corrupt", "not a regular file");
	pool_close(p);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_folder, drop_folder)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_are_made_and_understood),
		cmocka_unit_test(bad_ids_are_refused),
		T(pool_is_made_private),
		T(what_is_no_pool_is_refused),
		T(second_holder_is_told_the_first),
		T(owner_on_another_host_is_respected),
		T(pool_that_was_moved_away_is_missed),
		T(folder_that_came_back_is_taken),
		T(image_is_private_and_reserved),
		T(names_never_become_paths),
		T(links_lead_nowhere),
		T(quota_counts_what_is_there),
		T(removal_takes_only_what_is_ours),
		T(open_gives_a_readable_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
