/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_fingerprint.c - What is recorded of a disk, and the odd ones among disks and fingerprints */
#include "fingerprint_test.h"

#include <sys/sysmacros.h>

static void nanoseconds_count(void **state)
{
	const char *f = *state;
	struct timespec times[2] = { { 1796050000, 123456789 }, { 1796050000, 123456789 } };
	json_t *before, *after;

	put_text(f, "d.raw", "x");
	assert_int_equal(utimensat(AT_FDCWD, at(f, "d.raw"), times, 0), 0);
	before = take(f, "d.raw", "raw");
	times[1].tv_nsec++;
	assert_int_equal(utimensat(AT_FDCWD, at(f, "d.raw"), times, 0), 0);
	after = take(f, "d.raw", "raw");
	expect_how(before, after, "written", "modification time 2026-11-30T14:46:40.123456790Z, was "
		   "2026-11-30T14:46:40.123456789Z");
	json_decref(before);
	json_decref(after);
}

static void the_whole_chain_is_seen(void **state)
{
	const char *f = *state;
	json_t *print;

	need_tools(f);
	must(f, "mkdir sub && truncate -s 4M sub/base.raw && "
	     "qemu-img create -f qcow2 -b base.raw -F raw sub/mid.qcow2 && "
	     "qemu-img create -f qcow2 -b sub/mid.qcow2 -F qcow2 top.qcow2 && "
	     "qemu-img create -f qcow2 -b mid.qcow2 -F qcow2 sub/other.qcow2");
	print = take(f, "top.qcow2", "qcow2");
	assert_int_equal(json_array_size(json_object_get(print, "chain")), 2);
	assert_string_equal(tp_json_str(json_array_get(json_object_get(print, "chain"), 0), "file"),
			    at(f, "sub/mid.qcow2"));
	assert_string_equal(tp_json_str(json_array_get(json_object_get(print, "chain"), 1), "file"),
			    at(f, "sub/base.raw"));
	assert_string_equal(tp_json_str(json_array_get(json_object_get(print, "chain"), 1), "format"),
			    "raw");
	json_decref(print);
}

static void backing_format_may_be_probed(void **state)
{
	const char *f = *state;
	json_t *print;

	need_tools(f);
	/* Old images say no format: QEMU looks, and so do we. The extension is made an unknown one. */
	must(f, "truncate -s 4M base.raw && qemu-img create -f qcow2 -b base.raw -F raw mid.qcow2 && "
	     "qemu-img create -f qcow2 -b mid.qcow2 -F qcow2 top.qcow2 && "
	     "LC_ALL=C sed -i 's/\\xe2\\x79\\x2a\\xca/\\x12\\x34\\x56\\x78/' top.qcow2");
	print = take(f, "top.qcow2", "qcow2");
	assert_int_equal(json_array_size(json_object_get(print, "chain")), 2);
	json_decref(print);
}

static void external_data_file_is_synced(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	const char *f = *state;

	need_tools(f);
	must(f, "qemu-img create -f qcow2 -o data_file=d.data,data_file_raw=on d.qcow2 4M");
	assert_ok(fingerprint_sync(at(f, "d.qcow2"), "qcow2", &err), &err);
	must(f, "rm d.data");
	assert_false(fingerprint_sync(at(f, "d.qcow2"), "qcow2", &err));
	assert_failed(&err, "IOError", "d.data");
}

static void loop_in_the_chain_ends(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	const char *f = *state;
	json_t *info;

	need_tools(f);
	must(f, "qemu-img create -f qcow2 a.qcow2 4M && "
	     "qemu-img create -f qcow2 -b a.qcow2 -F qcow2 b.qcow2 && "
	     "qemu-img rebase -u -b b.qcow2 -F qcow2 a.qcow2");
	assert_null(fingerprint_take(at(f, "a.qcow2"), "qcow2", &err));
	assert_contains(err.text, "a.qcow2");
	assert_failed(&err, "Corrupt", "loop");
	info = disk_info(at(f, "a.qcow2"), "qcow2", &err);
	assert_ok(info, &err);
	assert_int_equal(json_array_size(json_object_get(info, "backing")), FINGERPRINT_CHAIN_MAX);
	json_decref(info);
}

/* 64 files are a chain, 65 are too many. */
static void longest_chain(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	const char *f = *state;
	json_t *print;

	need_tools(f);
	must(f, "qemu-img create -f qcow2 0 1M && cp 0 one && "
	     "qemu-img create -f qcow2 -b AAA -F qcow2 -u tmpl 1M && "
	     "for i in $(seq 1 65); do sed \"s/AAA/$(printf %03d $((i - 1)))/\" tmpl >$(printf %03d $i); "
	     "done; mv 0 000");
	print = take(f, "064", "qcow2");
	assert_int_equal(json_array_size(json_object_get(print, "chain")), 64);
	json_decref(print);
	assert_null(fingerprint_take(at(f, "065"), "qcow2", &err));
	assert_failed(&err, "Corrupt", "more than 64");
}

static void what_is_elsewhere_is_unverifiable(void **state)
{
	static const char *const names[] = {
		"nbd://127.0.0.1:1/x", "json:{\\\"driver\\\":\\\"null-co\\\"}", "nbd:unix:/x:exportname=y",
	};
	struct tp_error err = TP_ERROR_INIT;
	const char *f = *state;
	json_t *print, *other;

	need_tools(f);
	for (size_t i = 0; i < TP_N(names); i++) {
		char command[256];
		json_t *element;

		snprintf(command, sizeof(command),
			 "qemu-img create -u -f qcow2 -b \"%s\" -F raw t%zu 4M", names[i], i);
		must(f, command);
		snprintf(command, sizeof(command), "t%zu", i);
		print = take(f, command, "qcow2");
		element = json_array_get(json_object_get(print, "chain"), 0);
		assert_string_equal(tp_json_str(element, "unverifiable"), "not a local file");
		expect_unproven(print, print, "backing file ");
		json_decref(print);
	}
	print = fingerprint_take("nbd://h/x", "raw", &err);
	assert_ok(print, &err);
	assert_ok(fingerprint_sync("nbd://h/x", "raw", &err), &err);
	put_text(f, "file", "x");
	other = take(f, "file", "raw");
	expect_unproven(print, other, "not a local file");	/* nothing was known */
	expect_how(other, print, "unverifiable", "can no longer be verified: not a local file");
	json_decref(other);
	json_decref(print);
	assert_int_equal(mkfifo(at(f, "fifo"), 0600), 0);
	print = take(f, "fifo", "raw");
	assert_contains(tp_json_str(print, "unverifiable"), "neither a file nor");
	json_decref(print);
}

static void damaged_disks_are_named(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	const char *f = *state;
	json_t *print, *empty = json_object();

	put_text(f, "d.qcow2", "this is no image");
	assert_null(fingerprint_take(at(f, "d.qcow2"), "qcow2", &err));
	assert_failed(&err, "Corrupt", "d.qcow2");
	assert_null(disk_info(at(f, "d.qcow2"), "qcow2", &err));
	assert_failed(&err, "Corrupt", "d.qcow2");
	assert_false(fingerprint_sync(at(f, "d.qcow2"), "qcow2", &err));
	assert_failed(&err, "Corrupt", "d.qcow2");
	print = take(f, "none", "raw");
	assert_string_equal(tp_json_str(print, "missing"), "No such file or directory");
	expect_how(print, print, "missing", "missing: No such file");
	json_decref(print);
	assert_null(disk_info(at(f, "none"), "raw", &err));
	assert_failed(&err, "IOError", "none");
	/* Fingerprints may come from a damaged manifest. */
	print = take(f, "d.qcow2", "raw");
	expect_how(NULL, print, "unverifiable", "damaged");
	expect_how(print, NULL, "unverifiable", "damaged");
	expect_how(empty, print, "replaced", "");
	json_decref(print);
	json_decref(empty);
}

/* Device numbers count only where nothing better is known, and within one boot and mount. */
static void device_numbers_are_weak(void **state)
{
	json_t *before, *after;

	put_text(*state, "d.raw", "x");
	before = take(*state, "d.raw", "raw");
	after = take(*state, "d.raw", "raw");
	tp_json_set(before, "dev", json_integer((json_int_t)makedev(253, 0)));
	tp_json_set(after, "dev", json_integer((json_int_t)makedev(253, 1)));
	/* Mounted again from another device: the file was born when it was. */
	tp_json_set(before, "btime-ns", json_integer(5));
	tp_json_set(after, "btime-ns", json_integer(5));
	expect_equal(before, after);
	json_object_del(after, "btime-ns");
	expect_how(before, after, "replaced", "another file system");
	tp_json_set_str(after, "boot", "another");
	expect_equal(before, after);
	/* Without a device below: a new number at each mount. */
	tp_json_set(after, "boot", json_incref(json_object_get(before, "boot")));
	tp_json_set(before, "dev", json_integer((json_int_t)makedev(0, 40)));
	tp_json_set(after, "dev", json_integer((json_int_t)makedev(0, 41)));
	expect_equal(before, after);
	/* A file system that makes inode numbers up: the size and the times are left. */
	json_object_del(after, "ino");
	expect_equal(before, after);
	tp_json_set(after, "size", json_integer(2));
	expect_how(before, after, "resized", "2 bytes, were 1");
	json_decref(before);
	json_decref(after);
}

/* The guest's disk is where its spec says by now, and what was recorded is a path of yesterday. */
static void moved_disks_are_found(void **state)
{
	const char *f = *state;
	struct fingerprint_change c;
	json_t *before;

	need_tools(f);
	must(f, "qemu-img create -f qcow2 base 1M && qemu-img create -f qcow2 -b base -F qcow2 d && "
	     "mkdir new");
	before = take(f, "d", "qcow2");
	must(f, "mv base d new");
	fingerprint_check(before, at(f, "new/d"), &c, NULL);
	assert_string_equal(c.how, "moved");
	assert_contains(c.detail, "new/d now, unchanged; move it back to");
	fingerprint_check(before, at(f, "d"), &c, NULL);
	assert_string_equal(c.how, "missing");
	/* What it is now is another disk. */
	must(f, "qemu-io -c 'write 0 512' new/d");
	fingerprint_check(before, at(f, "new/d"), &c, NULL);
	assert_string_equal(c.how, "missing");
	fingerprint_check(before, at(f, "none"), &c, NULL);
	assert_string_equal(c.how, "missing");
	/* Back at its place it is compared, wherever else it may be said to be. */
	must(f, "mv new/base new/d .");
	fingerprint_check(before, at(f, "new/d"), &c, NULL);
	assert_string_equal(c.how, "written");
	json_decref(before);
}

static void what_cannot_be_examined_is_said(void **state)
{
	struct fingerprint_change c;
	json_t *print, *now = NULL;

	put_text(*state, "d.raw", "x");
	print = take(*state, "d.raw", "raw");
	/* A name that no open can succeed with. */
	{
		char longest[5000];

		memset(longest, 'x', sizeof(longest) - 1);
		longest[0] = '/';
		longest[sizeof(longest) - 1] = 0;
		tp_json_set_str(print, "file", longest);
	}
	fingerprint_check(print, NULL, &c, &now);
	assert_int_equal(c.verdict, FINGERPRINT_DIFFERENT);
	assert_string_equal(c.how, "unverifiable");
	assert_contains(c.detail, "it cannot be examined: ");
	assert_null(now);
	json_object_del(print, "file");
	fingerprint_check(print, NULL, &c, &now);
	assert_string_equal(c.how, "unverifiable");
	json_decref(print);
}

static void odd_names(void **state)
{
	const char *f = *state;
	json_t *print;
	char *text;

	need_tools(f);
	/* Latin-1 and a newline in a backing file's name: in JSON neither can stand as it is. */
	must(f, "n=$(printf 'b\\344\\nc.raw'); truncate -s 1M \"$n\" && "
	     "qemu-img create -f qcow2 -b \"$n\" -F raw top.qcow2");
	print = take(f, "top.qcow2", "qcow2");
	assert_int_equal(json_array_size(json_object_get(print, "chain")), 1);
	assert_null(json_object_get(json_array_get(json_object_get(print, "chain"), 0), "missing"));
	text = tp_json_text(print);
	assert_non_null(text);
	free(text);
	json_decref(print);
}

static void info_tells_sizes(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	const char *f = *state;
	json_t *info;

	need_tools(f);
	must(f, "truncate -s 8M base.raw && qemu-img create -f qcow2 -b base.raw -F raw top.qcow2 && "
	     "qemu-io -c 'write 0 1M' top.qcow2");
	info = disk_info(at(f, "top.qcow2"), "qcow2", &err);
	assert_ok(info, &err);
	assert_string_equal(tp_json_str(info, "format"), "qcow2");
	assert_int_equal(tp_json_int(info, "virtual-size", 0), 8 << 20);
	assert_true(tp_json_int(info, "allocated", 0) >= 1 << 20);
	assert_int_equal(json_array_size(json_object_get(info, "backing")), 1);
	assert_string_equal(json_string_value(json_array_get(json_object_get(info, "backing"), 0)),
			    at(f, "base.raw"));
	json_decref(info);
	info = disk_info(at(f, "base.raw"), "raw", &err);
	assert_ok(info, &err);
	assert_int_equal(tp_json_int(info, "virtual-size", 0), 8 << 20);
	assert_int_equal(tp_json_int(info, "allocated", -1), 0);
	json_decref(info);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_folder, drop_folder)
	const struct CMUnitTest tests[] = {
		T(nanoseconds_count),
		T(the_whole_chain_is_seen),
		T(backing_format_may_be_probed),
		T(external_data_file_is_synced),
		T(loop_in_the_chain_ends),
		T(longest_chain),
		T(what_is_elsewhere_is_unverifiable),
		T(damaged_disks_are_named),
		T(device_numbers_are_weak),
		T(moved_disks_are_found),
		T(what_cannot_be_examined_is_said),
		T(odd_names),
		T(info_tells_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
