/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_fingerprint_device.c - Disks on block devices; loop devices, where the machine has them
 *
 * Behind a loop device torpor finds the file. To see what is said of a device that has none, the
 * fingerprints are taken without it.
 */
#include "fingerprint_test.h"

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

static json_t *take_device(const struct loop *l, const char *format)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *print = fingerprint_take(l->device, format, &err);

	assert_ok(print, &err);
	assert_string_equal(tp_json_str(print, "kind"), "block");
	assert_null(json_object_get(print, "unverifiable"));
	return print;
}

/* As of a device without a file behind it. */
static json_t *take_bare(const struct loop *l)
{
	json_t *print = take_device(l, "raw");

	assert_non_null(json_object_get(json_object_get(print, "device"), "loop"));
	json_object_del(json_object_get(print, "device"), "loop");
	return print;
}

static json_t *of_another_boot(json_t *print)
{
	tp_json_set_str(print, "boot", "another");
	return print;
}

static void make_disk(const struct loop *l, const char *file)
{
	int fd = open(at(l->folder, file), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4 << 20), 0);
	close(fd);
}

/* Between two samples, so that only the count tells, or where a sample lies. */
#define BETWEEN "dd if=/dev/urandom of=$D bs=512 count=1 seek=9 conv=fsync 2>/dev/null"
#define SAMPLED "dd if=/dev/urandom of=$D bs=512 count=1 conv=fsync 2>/dev/null"

static void writes_are_counted(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	attach(l, "a");
	before = take_bare(l);
	after = take_bare(l);
	expect_equal(before, after);
	json_decref(after);
	run_on(l, BETWEEN);
	after = take_bare(l);
	expect_how(before, after, "written", "written since: count of sectors written");
	/* In another boot the count began anew. */
	expect_unproven(before, of_another_boot(after), "the host was restarted since");
	json_decref(after);
	run_on(l, SAMPLED);
	after = take_bare(l);
	expect_how(before, after, "written", "its content differs");
	expect_how(before, of_another_boot(after), "written", "its content differs");
	json_decref(after);
	json_decref(before);
}

static void discards_are_counted(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	attach(l, "a");
	run_on(l, BETWEEN);
	before = take_bare(l);
	run_on(l, "blkdiscard -o 4096 -l 4096 $D 2>/dev/null || true");
	after = take_bare(l);
	if (tp_json_int(json_object_get(after, "device"), "discarded", 0) ==
	    tp_json_int(json_object_get(before, "device"), "discarded", 0)) {
		print_message("this loop device discards nothing\n");
		json_decref(before);
		json_decref(after);
		skip();
	}
	expect_how(before, after, "written", "count of sectors discarded");
	json_decref(before);
	json_decref(after);
}

/* Still in memory only when the fingerprint is taken; written back before it is. */
static void dirty_pages_are_not_news(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	attach(l, "a");
	run_on(l, "dd if=/dev/urandom of=$D bs=64k count=8 2>/dev/null");
	before = take_device(l, "raw");
	run_on(l, "sync $D");
	after = take_device(l, "raw");
	expect_equal(before, after);
	json_decref(after);
	json_decref(before);
}

/* What has a serial number is known again, but not what was done to it meanwhile. */
static void detached_devices_are_known_by_serial(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	attach(l, "a");
	before = take_bare(l);
	detach(l);
	attach(l, "a");
	after = take_bare(l);
	if (!json_object_get(json_object_get(after, "device"), "diskseq")) {
		print_message("needs diskseq (Linux 5.15)\n");
		json_decref(before);
		json_decref(after);
		skip();
	}
	expect_how(before, after, "device", "another device was attached under this name");
	tp_json_set_str(json_object_get(before, "device"), "serial", "S1");
	tp_json_set_str(json_object_get(after, "device"), "serial", "S1");
	expect_unproven(before, after, "detached and attached again since");
	tp_json_set_str(json_object_get(after, "device"), "serial", "S2");
	expect_how(before, after, "device", "serial number S2, was S1");
	expect_how(before, of_another_boot(after), "device", "serial number S2, was S1");
	json_decref(after);
	json_decref(before);
}

/* It has what a device lacks: then a restart of the host or another attachment proves nothing away. */
static void the_file_behind_a_loop_device_tells(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	make_disk(l, "b");
	attach(l, "a");
	before = through_text(take_device(l, "raw"));
	after = take_device(l, "raw");
	expect_equal(before, of_another_boot(after));
	json_decref(after);
	/* The same file again, then as another file. */
	detach(l);
	attach(l, "a");
	after = take_device(l, "raw");
	expect_equal(before, after);
	expect_equal(before, of_another_boot(after));
	json_decref(after);
	detach(l);
	attach(l, "b");
	after = take_device(l, "raw");
	expect_how(before, after, "device", "another file is behind this loop device: ");
	json_decref(after);
	detach(l);
	run_on(l, "true");
	attach(l, "a");
	run_on(l, BETWEEN);
	after = take_device(l, "raw");
	expect_how(before, of_another_boot(after), "written", "modification time");
	json_decref(after);
	json_decref(before);
}

static void the_file_may_be_written_while_detached(void **state)
{
	struct loop *l = *state;
	json_t *before, *after;

	make_disk(l, "a");
	attach(l, "a");
	before = take_device(l, "raw");
	detach(l);
	must(l->folder, "dd if=/dev/urandom of=a bs=512 seek=9 count=1 conv=notrunc");
	attach(l, "a");
	after = take_device(l, "raw");
	expect_how(before, after, "written", "modification time");
	json_decref(after);
	detach(l);
	must(l->folder, "cp -a a c && mv c a");
	attach(l, "a");
	after = take_device(l, "raw");
	expect_how(before, after, "device", "another file");
	json_decref(after);
	json_decref(before);
}

static void a_device_is_no_file(void **state)
{
	struct loop *l = *state;
	struct fingerprint_change c;
	json_t *before;

	make_disk(l, "a");
	attach(l, "a");
	must(l->folder, "truncate -s 4M other");
	assert_int_equal(symlink(l->device, at(l->folder, "d")), 0);
	before = take(l->folder, "d", "raw");
	fingerprint_check(before, NULL, &c, NULL);
	assert_int_equal(c.verdict, FINGERPRINT_EQUAL);
	must(l->folder, "ln -sfn other d");
	fingerprint_check(before, NULL, &c, NULL);
	assert_string_equal(c.how, "replaced");
	assert_contains(c.detail, "another kind of file: file, was block");
	json_decref(before);
}

static void resizing_is_noticed(void **state)
{
	struct loop *l = *state;
	json_t *before, *after, *info;
	struct tp_error err = TP_ERROR_INIT;

	make_disk(l, "a");
	attach(l, "a");
	before = take_device(l, "raw");
	assert_int_equal(truncate(at(l->folder, "a"), 8 << 20), 0);
	run_on(l, "losetup -c $D");
	after = take_device(l, "raw");
	expect_how(before, after, "resized", "resized: 8388608 bytes, were 4194304");
	expect_how(before, of_another_boot(after), "resized", "resized: 8388608 bytes, were 4194304");
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
	before = take_device(l, "qcow2");
	assert_ok(fingerprint_sync(l->device, "qcow2", &err), &err);
	after = take_device(l, "qcow2");
	expect_equal(before, after);
	json_decref(after);
	run_on(l, "qemu-img info $D >/dev/null && qemu-img check -q $D >/dev/null");
	after = take_device(l, "qcow2");
	expect_equal(before, after);
	json_decref(after);
	run_on(l, "qemu-img snapshot -c s1 $D");
	after = take_device(l, "qcow2");
	expect_how(before, after, "snapshotted", "1 snapshots, were 0");
	json_decref(after);
	json_decref(before);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_loop_folder, drop_loop)
	const struct CMUnitTest tests[] = {
		T(writes_are_counted),
		T(discards_are_counted),
		T(dirty_pages_are_not_news),
		T(detached_devices_are_known_by_serial),
		T(the_file_behind_a_loop_device_tells),
		T(the_file_may_be_written_while_detached),
		T(a_device_is_no_file),
		T(resizing_is_noticed),
		T(qcow2_on_a_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
