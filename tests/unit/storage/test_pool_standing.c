/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_pool_standing.c - Standing room, quotas of VMs, reservations that add up
 *
 * Where the machine lets us, on a tmpfs of a few MiB in a mount namespace of this process, which
 * goes away with it. System calls are made to fail by wrappers.
 *
 * link: -Wl,--wrap=fallocate,--wrap=renameat,--wrap=fsync
 */
#include "pool_test.h"

#include <sched.h>
#include <sys/mount.h>

#define MIB (1ull << 20)
#define STANDING "pool/" VM "/.standing"
#define VM2 "web2"
#define OTHER "web2-20261130T170539Z-123456"

int __real_fallocate(int fd, int mode, off_t offset, off_t length);
int __real_renameat(int from, const char *old, int to, const char *new);
int __real_fsync(int fd);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length);
int __wrap_renameat(int from, const char *old, int to, const char *new);
int __wrap_fsync(int fd);

static int fallocate_errno, fallocate_takes, renameat_errno, fsync_errno;

/* As ext4 may: what could be had is taken, and then the disk is full. */
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length)
{
	if (!fallocate_errno || (mode & ~FALLOC_FL_KEEP_SIZE))
		return __real_fallocate(fd, mode, offset, length);
	if (fallocate_takes)
		assert_int_equal(__real_fallocate(fd, mode, offset, length / 2), 0);
	errno = fallocate_errno;
	return -1;
}

int __wrap_renameat(int from, const char *old, int to, const char *new)
{
	if (!renameat_errno)
		return __real_renameat(from, old, to, new);
	errno = renameat_errno;
	return -1;
}

int __wrap_fsync(int fd)
{
	if (!fsync_errno)
		return __real_fsync(fd);
	errno = fsync_errno;
	return -1;
}

static struct pool *open_pool(const char *folder, uint64_t quota)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = pool_open("default", at(folder, "pool"), quota, "i", true, &err);

	assert_ok(p, &err);
	return p;
}

/* A pool of `mib` MiB; the test is skipped where nothing can be mounted. */
static struct pool *small_pool(const char *folder, const char *mib)
{
	char options[64];

	snprintf(options, sizeof(options), "size=%sm,mode=0700", mib);
	assert_int_equal(mkdir(at(folder, "pool"), 0700), 0);
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", at(folder, "pool"), "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) {
		print_message("needs the right to mount a tmpfs: %s\n", strerror(errno));
		skip();
	}
	return open_pool(folder, 0);
}

static int drop_all(void **state)
{
	fallocate_errno = fallocate_takes = renameat_errno = fsync_errno = 0;
	umount2(at(*state, "pool"), MNT_DETACH);
	return drop_folder(state);
}

/* Somebody else on that file system takes what is left. */
static void hog(const char *folder)
{
	int fd = open(at(folder, "pool/hog"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	char block[4096] = "x";

	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) == (ssize_t)sizeof(block))
		;
	close(fd);
}

static void hold(struct pool *p, const char *vm, uint64_t bytes)
{
	struct pool_demand d = { .vm = vm, .bytes = bytes };
	struct tp_error err = TP_ERROR_INIT;

	assert_ok(pool_standing_hold(p, &d, NULL, &err), &err);
}

static int create(struct pool *p, const char *vm, const char *id, uint64_t bytes, struct tp_error *err)
{
	struct pool_demand d = { .vm = vm, .bytes = bytes };

	return pool_image_create(p, &d, id, "full", NULL, NULL, err);
}

static struct pool_space space_of(const struct pool *p)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool_space space;

	assert_ok(pool_space(p, &space, &err), &err);
	return space;
}

static int64_t standing_of(const struct pool *p, const char *vm)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *list = pool_standing_list(p, &err);
	int64_t bytes;

	assert_ok(list, &err);
	bytes = tp_json_int(list, vm, -1);
	json_decref(list);
	return bytes;
}

/* ---- held ---- */

static void room_is_held_resized_and_given_back(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	uint64_t held;

	assert_int_equal(pool_standing(p, VM), 0);
	assert_int_equal(standing_of(p, VM), -1);
	hold(p, VM, 4 * MIB);
	assert_int_equal(mode_of(*state, STANDING), 0700);
	assert_int_equal(mode_of(*state, STANDING "/memory.zst"), 0600);
	held = pool_standing(p, VM);
	assert_true(held >= 4 * MIB && held < 5 * MIB);
	assert_int_equal(space_of(p).standing, held);
	assert_int_equal(space_of(p).used, 0);
	assert_int_equal(standing_of(p, VM), held);
	/* Again: nothing changes; a little less: neither. */
	hold(p, VM, 4 * MIB);
	hold(p, VM, 4 * MIB - 4096);
	assert_int_equal(pool_standing(p, VM), held);
	hold(p, VM, 8 * MIB);
	assert_true(pool_standing(p, VM) >= 8 * MIB);
	hold(p, VM, 2 * MIB);
	assert_true(pool_standing(p, VM) >= 2 * MIB && pool_standing(p, VM) < 3 * MIB);
	hold(p, VM, 6 * MIB);
	assert_true(pool_standing(p, VM) >= 6 * MIB);
	/* No image is there, and none is swept away with it. */
	json_t *images = pool_catalogue(p, NULL, 10, &err);

	assert_int_equal(json_array_size(images), 0);
	json_decref(images);
	assert_ok(pool_standing_drop(p, VM, &err), &err);
	assert_false(exists(*state, "pool/" VM));
	assert_ok(pool_standing_drop(p, VM, &err), &err);
	assert_int_equal(space_of(p).standing, 0);
	pool_close(p);
}

static void it_is_there_for_the_next_holder(void **state)
{
	struct pool *p = open_pool(*state, 0);
	uint64_t held;

	hold(p, VM, 3 * MIB);
	held = pool_standing(p, VM);
	pool_close(p);
	p = open_pool(*state, 0);
	assert_int_equal(pool_standing(p, VM), held);
	assert_int_equal(standing_of(p, VM), held);
	pool_close(p);
}

static void names_never_become_paths(void **state)
{
	static const char *const bad[] = { "..", "../web1", "", NULL, "a\nb", "a/b", ".standing" };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);

	for (size_t i = 0; i < TP_N(bad); i++) {
		struct pool_demand d = { .vm = bad[i], .bytes = 1 };

		assert_false(pool_standing_hold(p, &d, NULL, &err));
		assert_failed(&err, "GenericError", "cannot be");
		assert_false(pool_standing_drop(p, bad[i], &err));
		assert_failed(&err, "GenericError", "cannot be");
	}
	/* A link in its place leads nowhere. */
	assert_int_equal(mkdir(at(*state, "outside"), 0700), 0);
	put_text(*state, "outside/memory.zst", "precious");
	assert_int_equal(mkdir(at(*state, "pool/" VM), 0700), 0);
	assert_int_equal(symlink("../../outside", at(*state, STANDING)), 0);
	struct pool_demand d = { .vm = VM, .bytes = MIB };

	assert_false(pool_standing_hold(p, &d, NULL, &err));
	assert_failed(&err, "IOError", "standing");
	assert_false(pool_standing_drop(p, VM, &err));
	tp_error_clear(&err);
	assert_true(exists(*state, "outside/memory.zst"));
	pool_close(p);
}

/* ---- no room ---- */

static void no_room_leaves_what_was_held(void **state)
{
	struct pool_demand d = { .vm = VM, .bytes = 20 * MIB };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = small_pool(*state, "16");
	struct pool_shortage shortage;
	uint64_t held;

	assert_false(pool_standing_hold(p, &d, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "not enough room");
	assert_true(shortage.required > 20 * MIB && shortage.available <= 16 * MIB && !shortage.quota);
	assert_false(exists(*state, "pool/" VM));
	hold(p, VM, 4 * MIB);
	held = pool_standing(p, VM);
	assert_false(pool_standing_hold(p, &d, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "not enough room");
	assert_int_equal(pool_standing(p, VM), held);
	/* What it has counts for it. */
	d.bytes = 15 * MIB;
	assert_ok(pool_standing_hold(p, &d, &shortage, &err), &err);
	pool_close(p);
}

static void allocation_that_fails_in_the_middle_is_undone(void **state)
{
	struct pool_demand d = { .vm = VM, .bytes = 8 * MIB };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	uint64_t held;

	fallocate_errno = ENOSPC;
	fallocate_takes = 1;
	assert_false(pool_standing_hold(p, &d, NULL, &err));
	assert_failed(&err, "InsufficientSpace", "not enough room");
	assert_false(exists(*state, "pool/" VM));
	fallocate_errno = 0;
	hold(p, VM, 2 * MIB);
	held = pool_standing(p, VM);
	fallocate_errno = EDQUOT;
	assert_false(pool_standing_hold(p, &d, NULL, &err));
	assert_failed(&err, "InsufficientSpace", "disk quota");
	assert_int_equal(pool_standing(p, VM), held);
	fallocate_errno = EIO;
	assert_false(pool_standing_hold(p, &d, NULL, &err));
	assert_failed(&err, "IOError", "pool \"default\"");
	pool_close(p);
}

/* ---- to an image and back ---- */

static void full_pool_saves_into_standing_room(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = small_pool(*state, "16");
	char block[65536];
	int fd;

	memset(block, 0x5a, sizeof(block));
	hold(p, VM, 6 * MIB);
	hog(*state);
	assert_int_equal(space_of(p).available, 0);
	assert_int_equal(create(p, VM2, OTHER, MIB, &err), -1);
	assert_failed(&err, "InsufficientSpace", "not enough room");
	fd = create(p, VM, ID, 6 * MIB, &err);
	assert_ok(fd >= 0, &err);
	assert_false(exists(*state, STANDING));
	assert_int_equal(space_of(p).available, 0);
	for (off_t at_ = 0; at_ < (off_t)(6 * MIB); at_ += sizeof(block))
		assert_int_equal(pwrite(fd, block, sizeof(block), at_), sizeof(block));
	/* Undone: it stands again, and nobody else had a chance. */
	close(fd);
	put_text(*state, "pool/" VM "/" ID "/manifest.json", "");
	assert_ok(pool_image_return(p, VM, ID, &err), &err);
	assert_int_equal(space_of(p).available, 0);
	assert_true(pool_standing(p, VM) >= 6 * MIB);
	assert_false(exists(*state, "pool/" VM "/" ID));
	assert_false(exists(*state, STANDING "/manifest.json"));
	fd = create(p, VM, ID2, 6 * MIB, &err);
	assert_ok(fd >= 0, &err);
	assert_int_equal(pread(fd, block, 4096, 0), 4096);
	assert_true(block[0] == 0 && memcmp(block, block + 1, 4095) == 0);
	close(fd);
	assert_ok(pool_image_remove(p, VM, ID2, &err), &err);
	assert_int_equal(pool_standing(p, VM), 0);
	pool_close(p);
}

static void too_little_standing_is_filled_up_or_kept(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = small_pool(*state, "16");
	struct stat st;
	int fd;

	hold(p, VM, 4 * MIB);
	fd = create(p, VM, ID, 9 * MIB, &err);
	assert_ok(fd >= 0, &err);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_blocks * 512ull >= 9 * MIB);
	close(fd);
	assert_ok(pool_image_return(p, VM, ID, &err), &err);
	assert_true(pool_standing(p, VM) >= 9 * MIB);
	/* More than there is: refused before, or by the allocation; what stands stays. */
	assert_int_equal(create(p, VM, ID, 17 * MIB, &err), -1);
	assert_failed(&err, "InsufficientSpace", "not enough room");
	fallocate_errno = ENOSPC;
	assert_int_equal(create(p, VM, ID, 12 * MIB, &err), -1);
	assert_failed(&err, "InsufficientSpace", "not enough room");
	assert_true(pool_standing(p, VM) >= 9 * MIB);
	assert_false(exists(*state, "pool/" VM "/" ID));
	pool_close(p);
}

static void rename_that_fails_takes_nothing(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	int fd;

	hold(p, VM, 2 * MIB);
	renameat_errno = EIO;
	assert_int_equal(create(p, VM, ID, 2 * MIB, &err), -1);
	assert_failed(&err, "IOError", "rename");
	assert_true(pool_standing(p, VM) >= 2 * MIB);
	renameat_errno = 0;
	fd = create(p, VM, ID, 2 * MIB, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	/* What cannot stand again is removed: no image may be left. */
	renameat_errno = EIO;
	assert_ok(pool_image_return(p, VM, ID, &err), &err);
	assert_false(exists(*state, "pool/" VM));
	pool_close(p);
}

static void at_most_one_stands(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	int fd;

	hold(p, VM, 2 * MIB);
	fd = create(p, VM, ID, 2 * MIB, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	hold(p, VM, 3 * MIB);
	assert_ok(pool_image_return(p, VM, ID, &err), &err);
	assert_false(exists(*state, "pool/" VM "/" ID));
	assert_true(pool_standing(p, VM) >= 3 * MIB && pool_standing(p, VM) < 4 * MIB);
	/* Nothing to give back is a success: the daemon died before it was made. */
	assert_ok(pool_image_return(p, VM, ID2, &err), &err);
	pool_close(p);
}

/* Killed while the folder was made: what is found is completed. */
static void half_a_folder_is_made_whole(void **state)
{
	struct pool *p = open_pool(*state, 0);

	assert_int_equal(mkdir(at(*state, "pool/" VM), 0700), 0);
	assert_int_equal(mkdir(at(*state, STANDING), 0700), 0);
	put_text(*state, STANDING "/.spare-1", "x");
	assert_int_equal(standing_of(p, VM), 0);
	hold(p, VM, 2 * MIB);
	assert_true(pool_standing(p, VM) >= 2 * MIB);
	assert_true(exists(*state, STANDING "/.spare-2"));
	pool_close(p);
}

static void failed_sync_is_a_failure(void **state)
{
	struct pool_demand d = { .vm = VM, .bytes = MIB };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);

	fsync_errno = EIO;
	assert_false(pool_standing_hold(p, &d, NULL, &err));
	assert_failed(&err, "IOError", "pool \"default\"");
	pool_close(p);
}

/* ---- promises, sums, quotas ---- */

static void where_nothing_is_allocated_it_is_promised(void **state)
{
	struct pool_demand d = { .vm = VM2, .bytes = 10 * MIB };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = small_pool(*state, "16");
	struct pool_shortage shortage;
	int fd;

	fallocate_errno = EOPNOTSUPP;
	hold(p, VM, 8 * MIB);
	hold(p, VM, 8 * MIB);
	assert_int_equal(pool_standing(p, VM), 8 * MIB);
	assert_int_equal(standing_of(p, VM), 8 * MIB);
	assert_int_equal(space_of(p).standing, 8 * MIB);
	assert_int_equal(space_of(p).promised, 8 * MIB);
	assert_int_equal(space_of(p).reserved, 0);
	assert_false(exists(*state, "pool/" VM));
	assert_false(pool_standing_hold(p, &d, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "not enough room");
	/* It becomes the image's promise and comes back. */
	fd = create(p, VM, ID, 8 * MIB, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	assert_int_equal(space_of(p).standing, 0);
	assert_true(space_of(p).reserved > 7 * MIB);
	assert_int_equal(create(p, VM2, OTHER, 10 * MIB, &err), -1);
	assert_failed(&err, "InsufficientSpace", "not enough room");
	assert_ok(pool_image_return(p, VM, ID, &err), &err);
	assert_int_equal(pool_standing(p, VM) >= 8 * MIB, 1);
	assert_int_equal(space_of(p).reserved, 0);
	hold(p, VM, 3 * MIB);
	assert_int_equal(pool_standing(p, VM), 3 * MIB);
	assert_ok(pool_standing_drop(p, VM, &err), &err);
	assert_int_equal(space_of(p).promised, 0);
	pool_close(p);
}

/* Room for one of two: exactly one has it, whichever way it is kept. */
static void reservations_add_up(void **state)
{
	static const int kinds[] = { 0, EOPNOTSUPP };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = small_pool(*state, "16");

	for (size_t i = 0; i < TP_N(kinds); i++) {
		int one, two;

		fallocate_errno = kinds[i];
		one = create(p, VM, ID, 10 * MIB, &err);
		assert_ok(one >= 0, &err);
		two = create(p, VM2, OTHER, 10 * MIB, &err);
		assert_int_equal(two, -1);
		assert_failed(&err, "InsufficientSpace", "not enough room");
		assert_false(exists(*state, "pool/" VM2));
		close(one);
		assert_ok(pool_image_remove(p, VM, ID, &err), &err);
		two = create(p, VM2, OTHER, 10 * MIB, &err);
		assert_ok(two >= 0, &err);
		close(two);
		assert_ok(pool_image_remove(p, VM2, OTHER, &err), &err);
	}
	pool_close(p);
}

static void quota_of_a_vm_counts_all_it_has(void **state)
{
	struct pool_demand d = { .vm = VM, .bytes = 5 * MIB, .quota = 12 * MIB, .elsewhere = 4 * MIB };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 0);
	struct pool_shortage shortage;
	int fd;

	assert_ok(pool_room(p, &d, &shortage, &err), &err);
	d.elsewhere = 8 * MIB;
	assert_false(pool_room(p, &d, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "quota of the VM");
	assert_int_equal(shortage.quota, 12 * MIB);
	assert_int_equal(shortage.required, 5 * MIB);
	assert_int_equal(shortage.available, 4 * MIB);
	/* Others' images do not count, its own and its standing room do. */
	fd = create(p, VM2, OTHER, 6 * MIB, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	d.elsewhere = 0;
	fd = pool_image_create(p, &d, ID, "full", NULL, NULL, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	assert_true(pool_used_by_vm(p, VM) >= 5 * MIB);
	d.bytes = 9 * MIB;
	assert_false(pool_standing_hold(p, &d, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "quota of the VM");
	d.bytes = 4 * MIB;
	assert_ok(pool_standing_hold(p, &d, &shortage, &err), &err);
	/* It has it: a quota that is by now below what is used takes nothing away. */
	d.quota = MIB;
	assert_ok(pool_standing_hold(p, &d, &shortage, &err), &err);
	d.bytes = 6 * MIB;
	assert_false(pool_standing_hold(p, &d, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "quota of the VM");
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	pool_close(p);
}

static void quota_of_the_pool_counts_standing_room(void **state)
{
	struct pool_demand d = { .vm = VM2, .bytes = 4 * MIB };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = open_pool(*state, 8 * MIB);
	struct pool_shortage shortage;
	int fd;

	hold(p, VM, 6 * MIB);
	assert_false(pool_room(p, &d, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "quota of the pool");
	assert_int_equal(shortage.quota, 8 * MIB);
	fd = create(p, VM, ID, 6 * MIB, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	assert_ok(pool_image_return(p, VM, ID, &err), &err);
	pool_close(p);
	/* Opened with less than is used: what is there can be used and removed. */
	p = open_pool(*state, MIB);
	hold(p, VM, 6 * MIB);
	fd = create(p, VM, ID, 6 * MIB, &err);
	assert_ok(fd >= 0, &err);
	close(fd);
	assert_false(pool_room(p, &d, &shortage, &err));
	assert_failed(&err, "InsufficientSpace", "quota of the pool");
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	pool_close(p);
}

static void guarantee_is_said(void **state)
{
	struct pool_demand d = { .vm = VM, .bytes = MIB };
	struct tp_error err = TP_ERROR_INIT;
	struct pool *p = small_pool(*state, "16");
	bool guaranteed = false;

	close(pool_image_create(p, &d, ID, "full", &guaranteed, NULL, &err));
	assert_true(guaranteed);
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	close(pool_image_create(p, &d, ID, "estimate", &guaranteed, NULL, &err));
	assert_false(guaranteed);
	assert_ok(pool_image_remove(p, VM, ID, &err), &err);
	fallocate_errno = EOPNOTSUPP;
	close(pool_image_create(p, &d, ID, "full", &guaranteed, NULL, &err));
	assert_false(guaranteed);
	pool_close(p);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_folder, drop_all)
	const struct CMUnitTest tests[] = {
		T(room_is_held_resized_and_given_back),
		T(it_is_there_for_the_next_holder),
		T(names_never_become_paths),
		T(no_room_leaves_what_was_held),
		T(allocation_that_fails_in_the_middle_is_undone),
		T(full_pool_saves_into_standing_room),
		T(too_little_standing_is_filled_up_or_kept),
		T(rename_that_fails_takes_nothing),
		T(at_most_one_stands),
		T(half_a_folder_is_made_whole),
		T(failed_sync_is_a_failure),
		T(where_nothing_is_allocated_it_is_promised),
		T(reservations_add_up),
		T(quota_of_a_vm_counts_all_it_has),
		T(quota_of_the_pool_counts_standing_room),
		T(guarantee_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
