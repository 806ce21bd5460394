/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_fingerprint_device.c - Disks on block devices; loop devices, where the machine has them */
#include "pool_test.h"

#include "storage/fingerprint.h"

struct loop {
	char *folder;
	char device[64];	/* "" if none is attached */
};

static int make_loop_folder(void **state)
{
	struct loop *l = calloc(1, sizeof(*l));
	void *folder = NULL;

	if (!l || make_folder(&folder) != 0)
		return -1;
	l->folder = folder;
	*state = l;
	return 0;
}

static void detach(struct loop *l)
{
	char command[128];

	if (!l->device[0])
		return;
	snprintf(command, sizeof(command), "losetup -d %s", l->device);
	assert_int_equal(system(command), 0);
	l->device[0] = 0;
}

static int drop_loop(void **state)
{
	struct loop *l = *state;
	void *folder = l->folder;

	detach(l);
	free(l);
	return drop_folder(&folder);
}

/* Attaches folder/file; a machine without loop devices skips the test. */
static void attach(struct loop *l, const char *file)
{
	char command[512];
	FILE *out;

	snprintf(command, sizeof(command), "losetup -f --show %s/%s 2>/dev/null", l->folder, file);
	out = popen(command, "r");
	assert_non_null(out);
	if (!fgets(l->device, sizeof(l->device), out))
		l->device[0] = 0;
	pclose(out);
	l->device[strcspn(l->device, "\n")] = 0;
	if (!l->device[0]) {
		print_message("needs loop devices and the right to use them\n");
		skip();
	}
}

/* The command finds the device in $D. */
static void run_on(const struct loop *l, const char *command)
{
	assert_int_equal(setenv("D", l->device, 1), 0);
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

static json_t *take(const struct loop *l, const char *format)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *print = fingerprint_take(l->device, format, &err);

	assert_ok(print, &err);
	assert_string_equal(tp_json_str(print, "kind"), "block");
	assert_null(json_object_get(print, "unverifiable"));
	return print;
}

static void expect_words(const json_t *before, const json_t *after, const char *part)
{
	char *how = NULL;

	if (fingerprint_equal(before, after, &how))
		fail_msg("no difference, expected \"%s\"", part);
	assert_contains(how, part);
	free(how);
}

static void make_disk(const struct loop *l, const char *file)
{
	int fd = open(at(l->folder, file), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4 << 20), 0);
	close(fd);
}

static void writes_are_counted(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	attach(l, "a");
	before = take(l, "raw");
	after = take(l, "raw");
	assert_true(fingerprint_equal(before, after, NULL));
	json_decref(after);
	/* Between two samples, so that only the count tells. */
	run_on(l, "dd if=/dev/urandom of=$D bs=512 count=1 seek=9 conv=fsync 2>/dev/null");
	after = take(l, "raw");
	expect_words(before, after, "written since: count of sectors");
	/* In another boot the count began anew. */
	tp_json_set_str(after, "boot", "another");
	assert_true(fingerprint_equal(before, after, NULL));
	json_decref(after);
	run_on(l, "dd if=/dev/urandom of=$D bs=512 count=1 conv=fsync 2>/dev/null");
	after = take(l, "raw");
	tp_json_set_str(after, "boot", "another");
	expect_words(before, after, "its content differs");
	json_decref(after);
	json_decref(before);
}

static void dirty_pages_are_not_news(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	attach(l, "a");
	/* Still in memory only when the fingerprint is taken; written back before it is. */
	run_on(l, "dd if=/dev/urandom of=$D bs=64k count=8 2>/dev/null");
	before = take(l, "raw");
	run_on(l, "sync $D");
	after = take(l, "raw");
	assert_true(fingerprint_equal(before, after, NULL));
	json_decref(after);
	json_decref(before);
}

static void another_disk_is_noticed(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	make_disk(l, "b");
	attach(l, "a");
	before = take(l, "raw");
	detach(l);
	attach(l, "b");
	after = take(l, "raw");
	expect_words(before, after, "replaced by another device");
	json_decref(after);
	json_decref(before);
}

static void resizing_is_noticed(void **state)
{
	struct loop *l = *state;
	json_t *before, *after, *info;
	struct tp_error err = TP_ERROR_INIT;

	make_disk(l, "a");
	attach(l, "a");
	before = take(l, "raw");
	assert_int_equal(truncate(at(l->folder, "a"), 8 << 20), 0);
	run_on(l, "losetup -c $D");
	after = take(l, "raw");
	expect_words(before, after, "resized: 8388608 bytes, were 4194304");
	info = disk_info(l->device, "raw", &err);
	assert_ok(info, &err);
	assert_int_equal(tp_json_int(info, "virtual-size", 0), 8 << 20);
	json_decref(info);
	json_decref(after);
	json_decref(before);
}

static void qcow2_on_a_device(void **state)
{
	struct loop *l = *state;
	struct tp_error err = TP_ERROR_INIT;
	json_t *before, *after;

	if (system("command -v qemu-img >/dev/null 2>&1") != 0) {
		print_message("needs qemu-img (Debian package qemu-utils)\n");
		skip();
	}
	make_disk(l, "a");
	attach(l, "a");
	run_on(l, "qemu-img create -q -f qcow2 $D 64M");
	before = take(l, "qcow2");
	assert_ok(fingerprint_sync(l->device, "qcow2", &err), &err);
	after = take(l, "qcow2");
	assert_true(fingerprint_equal(before, after, NULL));
	json_decref(after);
	run_on(l, "qemu-img snapshot -c s1 $D");
	after = take(l, "qcow2");
	expect_words(before, after, "snapshotted: 1");
	json_decref(after);
	json_decref(before);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_loop_folder, drop_loop)
	const struct CMUnitTest tests[] = {
		T(writes_are_counted),
		T(dirty_pages_are_not_news),
		T(another_disk_is_noticed),
		T(resizing_is_noticed),
		T(qcow2_on_a_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
