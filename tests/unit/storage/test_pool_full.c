/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_pool_full.c - Pools that are full, read-only, slow to sync or unable to reserve
 *
 * Where the machine lets us, on a tmpfs of a few MiB in a mount namespace of this process, which
 * goes away with it. System calls are made to fail by wrappers.
 *
 * link: -Wl,--wrap=fallocate,--wrap=fsync,--wrap=renameat
 */
#include "pool_test.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define FOLDER "pool/" VM "/" ID "/"
#define POOL_BYTES "4194304"

int __real_fallocate(int fd, int mode, off_t offset, off_t length);
int __real_fsync(int fd);
int __real_renameat(int from, const char *old, int to, const char *new);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length);
int __wrap_fsync(int fd);
int __wrap_renameat(int from, const char *old, int to, const char *new);

static int fallocate_errno;
static int fsync_fails_at;	/* 1: the next one */
static char trace[1024];	/* last components, in order: "f:NAME " fsync, "r:NAME " rename */

static void note(const char *kind, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s:%s ", kind, slash ? slash + 1 : path);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t length)
{
	if (!fallocate_errno)
		return __real_fallocate(fd, mode, offset, length);
	errno = fallocate_errno;
	return -1;
}

int __wrap_fsync(int fd)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	note("f", path);
	if (fsync_fails_at && --fsync_fails_at == 0) {
		errno = EIO;
		return -1;
	}
	return __real_fsync(fd);
}

int __wrap_renameat(int from, const char *old, int to, const char *new)
{
	note("r", new);
	return __real_renameat(from, old, to, new);
}

static struct pool *open_pool(const char *folder)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = pool_open("default", at(folder, "pool"), 0, "i", true, &err);

	assert_ok(p, &err);
	return p;
}

/* A tmpfs at folder/pool, or the test is skipped. */
static void mount_pool(const char *folder, const char *options)
{
	assert_int_equal(mkdir(at(folder, "pool"), 0700), 0);
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", at(folder, "pool"), "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) {
		print_message("needs the right to mount a tmpfs: %s\n", strerror(errno));
		skip();
	}
}

static int drop_all(void **state)
{
	fallocate_errno = fsync_fails_at = 0;
	umount2(at(*state, "pool"), MNT_DETACH);
	return drop_folder(state);
}

/* Fills what is left with one file. */
static void fill(const char *folder)
{
	int fd = open(at(folder, "pool/filler"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	char block[4096] = "x";

	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) == (ssize_t)sizeof(block))
		;
	close(fd);
}

static void what_does_not_fit_is_said_before(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool_shortage shortage;
	struct pool_space space;
	struct pool *p;
	int fd;

	mount_pool(*state, "mode=700,size=" POOL_BYTES);
	p = open_pool(*state);
	assert_ok(pool_space(p, &space, &err), &err);
	assert_string_equal(space.fs, "tmpfs");
	assert_true(space.guaranteed);
	assert_false(space.read_only);
	assert_int_equal(space.total, 4 << 20);
	assert_int_equal(create_room(p, ID, "full", 8 << 20, &shortage, &err), -1);
	assert_true(shortage.required >= 8 << 20);
	assert_true(shortage.available <= 4 << 20 && shortage.available > 3 << 20);
	assert_contains(err.text, "required");
	assert_contains(err.text, "available");
	assert_contains(err.text, at(*state, "pool"));
	assert_failed(&err, "InsufficientSpace", "8650752 bytes");
	assert_int_equal(fake_pool_image(p, VM, ID, "estimate", 8 << 20, &err), -1);
	assert_failed(&err, "InsufficientSpace", "required");
	assert_false(exists(*state, "pool/" VM));
	/* Reserved is reserved: no second one of that size. */
	fd = fake_pool_image(p, VM, ID, "full", 2 << 20, &err);
	assert_ok(fd >= 0, &err);
	assert_int_equal(fake_pool_image(p, VM, ID2, "full", 2 << 20, &err), -1);
	assert_failed(&err, "InsufficientSpace", "required");
	assert_false(exists(*state, "pool/" VM "/" ID2));
	assert_true(exists(*state, FOLDER));
	/* What was promised for others to fill is still there for its owner. */
	fill(*state);
	for (int i = 0; i < 2 << 20; i += 65536) {
		static char block[65536];

		assert_int_equal(pwrite(fd, block, sizeof(block), i), sizeof(block));
	}
	close(fd);
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	pool_close(p);
}

static void disk_that_fills_meanwhile_leaves_nothing(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool_shortage shortage;
	struct pool *p;

	mount_pool(*state, "mode=700,size=" POOL_BYTES);
	p = open_pool(*state);
	fallocate_errno = ENOSPC;	/* statvfs saw room that is gone now */
	assert_int_equal(create_room(p, ID, "full", 1 << 20, &shortage, &err), -1);
	assert_true(shortage.required >= 1 << 20);
	assert_failed(&err, "InsufficientSpace", "not enough room");
	assert_false(exists(*state, "pool/" VM));
	fallocate_errno = EDQUOT;
	assert_int_equal(fake_pool_image(p, VM, ID, "full", 1 << 20, &err), -1);
	assert_failed(&err, "InsufficientSpace", "disk quota");
	assert_false(exists(*state, "pool/" VM));
	fallocate_errno = EIO;
	assert_int_equal(fake_pool_image(p, VM, ID, "full", 1 << 20, &err), -1);
	assert_failed(&err, "IOError", "allocate");
	assert_false(exists(*state, "pool/" VM));
	pool_close(p);
}

static void no_inodes_left(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p;
	char name[32];
	int fd, i;

	mount_pool(*state, "mode=700,nr_inodes=24,size=" POOL_BYTES);
	p = open_pool(*state);
	/* Whichever of VM's folder, image's folder and its three files is the one too many. */
	for (i = 0; i < 32; i++) {
		snprintf(name, sizeof(name), "pool/filler%d", i);
		fd = open(at(*state, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			break;
		close(fd);
	}
	assert_int_equal(errno, ENOSPC);
	for (int freed = 0; freed < 5; freed++) {
		assert_int_equal(fake_pool_image(p, VM, ID, "none", 0, &err), -1);
		assert_failed(&err, "InsufficientSpace", at(*state, "pool"));
		assert_false(exists(*state, "pool/" VM));
		snprintf(name, sizeof(name), "pool/filler%d", freed);
		assert_int_equal(unlink(at(*state, name)), 0);
	}
	fd = fake_pool_image(p, VM, ID, "none", 0, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	pool_close(p);
}

static void manifest_finds_no_room(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *m = manifest_for(VM, ID, "0123456789abcdef"), *before;
	struct pool *p;
	char *big = malloc(100001);

	memset(big, 'x', 100000);
	big[100000] = 0;
	mount_pool(*state, "mode=700,size=" POOL_BYTES);
	p = open_pool(*state);
	close(fake_pool_image(p, VM, ID, "none", 0, &err));
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);
	fill(*state);
	tp_json_set_str(m, "x-big", big);
	assert_false(pool_manifest_write(p, VM, ID, m, &err));
	assert_contains(err.text, at(*state, "pool"));
	assert_failed(&err, "InsufficientSpace", ID);
	assert_false(exists(*state, FOLDER ".manifest.json.new"));
	/* The former one stands. */
	before = pool_manifest_read(p, VM, ID, &err);
	assert_ok(before, &err);
	assert_null(json_object_get(before, "x-big"));
	json_decref(before);
	assert_ok(pool_manifest_unlink(p, VM, ID, &err), &err);
	assert_false(pool_manifest_write(p, VM, ID, m, &err));
	assert_failed(&err, "InsufficientSpace", ID);
	assert_false(exists(*state, FOLDER "manifest.json"));
	/* A full pool can be opened, looked at and emptied. */
	pool_close(p);
	p = open_pool(*state);
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	pool_close(p);
	json_decref(m);
	free(big);
}

/* Restoring is what makes room again, so its mark finds some: without a block and without an inode. */
static void full_pool_can_be_used_up(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *why = json_pack("{s:s, s:b}", "operation", "op-7", "ran", 0), *read;
	struct pool *p;
	char name[32];

	mount_pool(*state, "mode=700,nr_inodes=24,size=" POOL_BYTES);
	p = open_pool(*state);
	put_image(p, VM, ID);
	fill(*state);
	for (int i = 0; i < 32; i++) {
		snprintf(name, sizeof(name), "pool/filler%d", i);
		close(open(at(*state, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
	for (int ran = 0; ran < 2; ran++) {
		tp_json_set(why, "ran", json_boolean(ran));
		assert_ok(pool_image_consumed(p, VM, ID, why, &err), &err);
		read = pool_consumed_read(p, VM, ID, &err);
		assert_ok(read, &err);
		assert_true(json_equal(read, why));
		json_decref(read);
		assert_false(exists(*state, FOLDER ".consumed.json.new"));
		fill(*state);		/* what the former mark gave back */
		close(open(at(*state, "pool/filler98"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
	assert_int_equal(mode_of(*state, FOLDER "consumed.json"), 0600);
	assert_ok(pool_image_consumed(p, VM, ID, NULL, &err), &err);
	fill(*state);
	close(open(at(*state, "pool/filler99"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	/* Both spares are used: now it cannot be. */
	assert_false(pool_image_consumed(p, VM, ID, why, &err));
	assert_failed(&err, "InsufficientSpace", ID);
	assert_false(exists(*state, FOLDER "consumed.json"));
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	json_decref(why);
	pool_close(p);
}

static void read_only_pool_can_be_read(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *list, *m, *why = json_object();
	struct pool_space space;
	struct pool *p;

	mount_pool(*state, "mode=700,size=" POOL_BYTES);
	p = open_pool(*state);
	put_image(p, VM, ID);
	for (int reopened = 0; reopened < 2; reopened++) {
		assert_int_equal(mount("none", at(*state, "pool"), "none", MS_REMOUNT | MS_RDONLY, NULL),
				 reopened ? 0 : -1);	/* busy: the owner file is open for writing */
		if (!reopened) {
			pool_close(p);
			continue;
		}
		p = open_pool(*state);
	}
	assert_ok(pool_space(p, &space, &err), &err);
	assert_true(space.read_only);
	list = pool_catalogue(p, NULL, 10, &err);
	assert_ok(list, &err);
	assert_string_equal(tp_json_str(json_array_get(list, 0), "state"), "complete");
	json_decref(list);
	m = pool_manifest_read(p, VM, ID, &err);
	assert_ok(m, &err);
	assert_int_equal(fake_pool_image(p, VM, ID2, "full", 4096, &err), -1);
	assert_failed(&err, "IOError", "cannot be written: Read-only file system");
	assert_int_equal(fake_pool_image(p, VM, ID2, "none", 4096, &err), -1);
	assert_failed(&err, "IOError", "Read-only file system");
	assert_false(room_for(p, 1, NULL, &err));
	assert_failed(&err, "IOError", "Read-only file system");
	assert_false(pool_manifest_write(p, VM, ID, m, &err));
	assert_failed(&err, "IOError", "Read-only file system");
	assert_false(pool_image_consumed(p, VM, ID, why, &err));
	assert_failed(&err, "IOError", "Read-only file system");
	assert_false(pool_image_remove(p, VM, ID, &err));
	assert_failed(&err, "IOError", "Read-only file system");
	/* Locked all the same. */
	assert_null(pool_open("default", at(*state, "pool"), 0, "i", false, &err));
	assert_failed(&err, "Busy", "in use");
	assert_true(exists(*state, FOLDER "manifest.json"));
	json_decref(why);
	json_decref(m);
	pool_close(p);
}

static void where_nothing_can_be_reserved_room_is_promised(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool_shortage shortage;
	struct pool_space space;
	json_t *m = manifest_for(VM, ID, "0123456789abcdef");
	struct pool *p;
	int fd;

	mount_pool(*state, "mode=700,size=" POOL_BYTES);
	p = open_pool(*state);
	fallocate_errno = EOPNOTSUPP;
	fd = fake_pool_image(p, VM, ID, "full", 2 << 20, &err);
	assert_ok(fd >= 0, &err);
	assert_ok(pool_space(p, &space, &err), &err);
	assert_true(space.used < 65536);
	assert_int_equal(space.used + space.reserved, 2 << 20);
	assert_int_equal(create_room(p, ID2, "full", 2 << 20, &shortage, &err), -1);
	assert_true(shortage.available < 2 << 20);
	assert_failed(&err, "InsufficientSpace", "required");
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);	/* done: nothing more comes */
	assert_ok(pool_space(p, &space, &err), &err);
	assert_int_equal(space.reserved, 0);
	close(fd);
	json_decref(m);
	pool_close(p);
}

static void syncs_come_in_order(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *m = manifest_for(VM, ID, "0123456789abcdef"), *why = json_object();
	struct pool *p = open_pool(*state);

	close(fake_pool_image(p, VM, ID, "none", 0, &err));
	trace[0] = 0;
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);
	assert_string_equal(trace, "f:.manifest.json.new r:manifest.json f:" ID " f:" VM " f:pool ");
	trace[0] = 0;
	assert_ok(pool_image_consumed(p, VM, ID, why, &err), &err);
	assert_string_equal(trace, "f:.consumed.json.new r:consumed.json f:" ID " ");
	trace[0] = 0;
	assert_ok(pool_manifest_unlink(p, VM, ID, &err), &err);
	assert_string_equal(trace, "f:" ID " ");
	trace[0] = 0;
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	assert_string_equal(trace, "f:" ID " f:" VM " f:pool ");
	json_decref(why);
	json_decref(m);
	pool_close(p);
}

static void sync_that_fails_is_a_failure(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *m = manifest_for(VM, ID, "0123456789abcdef"), *why = json_object();
	struct pool *p = open_pool(*state);

	close(fake_pool_image(p, VM, ID, "none", 0, &err));
	for (int i = 1; i <= 4; i++) {
		fsync_fails_at = i;
		assert_false(pool_manifest_write(p, VM, ID, m, &err));
		assert_failed(&err, "IOError", ID);
		assert_int_equal(fsync_fails_at, 0);
		assert_false(exists(*state, FOLDER ".manifest.json.new"));
	}
	for (int i = 1; i <= 2; i++) {
		fsync_fails_at = i;
		assert_false(pool_image_consumed(p, VM, ID, why, &err));
		assert_failed(&err, "IOError", ID);
	}
	fsync_fails_at = 1;
	assert_false(pool_image_consumed(p, VM, ID, NULL, &err));
	assert_failed(&err, "IOError", ID);
	fsync_fails_at = 1;
	assert_false(pool_image_remove(p, VM, ID, &err));
	assert_failed(&err, "IOError", ID);
	assert_true(exists(*state, FOLDER "memory.zst"));	/* the manifest first, durably */
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	json_decref(why);
	json_decref(m);
	pool_close(p);
}

/* In a child, as the limit cannot be raised again by everybody; a signal would end it. */
static void limited_child(const char *folder)
{
	struct rlimit limit = { 65536, 65536 };
	struct tp_error err = TP_ERROR_INIT;
	struct pool_shortage shortage;
	json_t *m = manifest_for(VM, ID, "0123456789abcdef");
	char *big = malloc(100001);
	struct pool *p = open_pool(folder);
	int fd;

	memset(big, 'x', 100000);
	big[100000] = 0;
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(create_room(p, ID, "full", 65537, &shortage, &err), -1);
	assert_int_equal(shortage.required, 65537);
	assert_int_equal(shortage.available, 65536);
	assert_failed(&err, "InsufficientSpace", "RLIMIT_FSIZE");
	assert_false(exists(folder, "pool/" VM));
	fd = fake_pool_image(p, VM, ID, "none", 0, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	tp_json_set_str(m, "x-big", big);
	assert_false(pool_manifest_write(p, VM, ID, m, &err));
	assert_failed(&err, "IOError", "File too large");
	assert_false(exists(folder, FOLDER "manifest.json"));
	assert_false(exists(folder, FOLDER ".manifest.json.new"));
	json_object_del(m, "x-big");
	assert_ok(pool_manifest_write(p, VM, ID, m, &err), &err);
	free(big);
	json_decref(m);
	pool_close(p);
}

static void limits_of_the_process_are_kept(void **state)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		limited_child(*state);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_folder, drop_all)
	const struct CMUnitTest tests[] = {
		T(what_does_not_fit_is_said_before),
		T(disk_that_fills_meanwhile_leaves_nothing),
		T(no_inodes_left),
		T(manifest_finds_no_room),
		T(full_pool_can_be_used_up),
		T(read_only_pool_can_be_read),
		T(where_nothing_can_be_reserved_room_is_promised),
		T(syncs_come_in_order),
		T(sync_that_fails_is_a_failure),
		T(limits_of_the_process_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
