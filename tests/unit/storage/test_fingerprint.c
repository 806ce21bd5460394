/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_fingerprint.c - Each way in which a disk can change has its word, by QEMU's own tools */
#include "pool_test.h"

#include <sys/sysmacros.h>

#include "storage/fingerprint.h"

/* Runs a shell command in the test's folder. */
static int run(const char *folder, const char *command)
{
	char *line;
	int status;

	assert_true(asprintf(&line, "cd '%s' && { %s; } >/dev/null 2>&1", folder, command) > 0);
	status = system(line);
	free(line);
	return status;
}

static void must(const char *folder, const char *command)
{
	if (run(folder, command) != 0)
		fail_msg("failed: %s", command);
}

static void need_tools(const char *folder)
{
	if (run(folder, "command -v qemu-img && command -v qemu-io") != 0) {
		print_message("needs qemu-img and qemu-io (Debian package qemu-utils)\n");
		skip();
	}
}

static json_t *take(const char *folder, const char *file, const char *format)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *print = fingerprint_take(at(folder, file), format, &err);

	assert_ok(print, &err);
	return print;
}

/* Before and after the command, file differs by words that hold both parts. */
static void expect_change(const char *folder, const char *file, const char *format,
			  const char *command, const char *part, const char *part2)
{
	json_t *before = take(folder, file, format), *same, *after;
	char *how = NULL;

	same = take(folder, file, format);
	assert_true(fingerprint_equal(before, same, &how));
	assert_null(how);
	must(folder, command);
	after = take(folder, file, format);
	if (fingerprint_equal(before, after, &how))
		fail_msg("\"%s\" was not noticed", command);
	assert_contains(how, part);
	assert_contains(how, part2);
	free(how);
	assert_false(fingerprint_equal(before, after, NULL));
	/* It is kept as JSON text. */
	how = json_dumps(before, 0);
	json_decref(before);
	before = json_loads(how, 0, NULL);
	free(how);
	assert_false(fingerprint_equal(before, after, NULL));
	assert_true(fingerprint_equal(before, same, NULL));
	json_decref(before);
	json_decref(same);
	json_decref(after);
}

static void qcow2_changes_have_their_words(void **state)
{
	const char *f = *state;

	need_tools(f);
	must(f, "qemu-img create -f qcow2 d.qcow2 64M && qemu-io -c 'write 0 1M' d.qcow2");
	expect_change(f, "d.qcow2", "qcow2", "qemu-io -c 'write -P 7 4096 512' d.qcow2",
		      "written since: modification time", "was 20");
	expect_change(f, "d.qcow2", "qcow2", "qemu-io -c 'write -P 7 32M 512' d.qcow2",
		      "written since", "modification time");
	expect_change(f, "d.qcow2", "qcow2", "qemu-img snapshot -c s1 d.qcow2",
		      "snapshotted: 1 snapshots, were 0", "");
	expect_change(f, "d.qcow2", "qcow2", "qemu-img snapshot -c s2 d.qcow2",
		      "snapshotted: 2 snapshots, were 1", "");
	expect_change(f, "d.qcow2", "qcow2",
		      "qemu-img snapshot -d s2 d.qcow2 && qemu-img snapshot -c s3 d.qcow2",
		      "snapshotted: 2", "");
	expect_change(f, "d.qcow2", "qcow2", "qemu-img snapshot -d s1 d.qcow2 && "
		      "qemu-img snapshot -d s3 d.qcow2", "snapshotted: 0 snapshots, were 2", "");
	expect_change(f, "d.qcow2", "qcow2", "qemu-img bitmap --add d.qcow2 b1",
		      "bitmap directory changed: 1 bitmaps, were 0", "");
	expect_change(f, "d.qcow2", "qcow2", "qemu-img bitmap --disable d.qcow2 b1",
		      "bitmap directory changed", "");
	expect_change(f, "d.qcow2", "qcow2", "qemu-img bitmap --remove d.qcow2 b1",
		      "bitmap directory changed: 0 bitmaps, were 1", "");
	expect_change(f, "d.qcow2", "qcow2", "qemu-img resize d.qcow2 65M",
		      "resized: virtual size 68157440 bytes, was 67108864", "");
	expect_change(f, "d.qcow2", "qcow2", "qemu-img amend -o lazy_refcounts=on d.qcow2",
		      "qcow2 header changed", "");
	expect_change(f, "d.qcow2", "qcow2", "touch -d 2001-02-03 d.qcow2",
		      "written since: modification time 2001-02-0", "");
	expect_change(f, "d.qcow2", "qcow2", "cp -p d.qcow2 c && mv c d.qcow2",
		      "replaced by another file: inode", "");
}

/* Content as it was, times as they were: the inode tells, though nothing else does. */
static void copy_brought_back_is_another_file(void **state)
{
	const char *f = *state;

	need_tools(f);
	must(f, "qemu-img create -f qcow2 d.qcow2 64M && cp -p d.qcow2 saved");
	expect_change(f, "d.qcow2", "qcow2", "mv d.qcow2 used && cp -p saved d.qcow2",
		      "replaced by another file: inode", "was");
	/* ... or, as the inode is given out again at once, the time of birth. */
	expect_change(f, "d.qcow2", "qcow2", "rm d.qcow2 && cp -p saved d.qcow2",
		      "replaced by another file: ", "was");
}

static void raw_changes_have_their_words(void **state)
{
	const char *f = *state;

	need_tools(f);
	must(f, "truncate -s 1M d.raw");
	expect_change(f, "d.raw", "raw", "qemu-io -f raw -c 'write -P 7 0 512' d.raw",
		      "written since: modification time", "last change of any kind");
	expect_change(f, "d.raw", "raw", "qemu-img resize -f raw d.raw 2M",
		      "resized: 2097152 bytes, were 1048576", "");
	expect_change(f, "d.raw", "raw", "rm d.raw && truncate -s 2M other && mv other d.raw",
		      "replaced by another file", "");
	expect_change(f, "d.raw", "raw", "rm d.raw", "missing: No such file", "");
}

static void nanoseconds_count(void **state)
{
	const char *f = *state;
	struct timespec times[2] = { { 1796050000, 123456789 }, { 1796050000, 123456789 } };
	json_t *before, *after;
	char *how;

	put_text(f, "d.raw", "x");
	assert_int_equal(utimensat(AT_FDCWD, at(f, "d.raw"), times, 0), 0);
	before = take(f, "d.raw", "raw");
	times[1].tv_nsec++;
	assert_int_equal(utimensat(AT_FDCWD, at(f, "d.raw"), times, 0), 0);
	after = take(f, "d.raw", "raw");
	assert_false(fingerprint_equal(before, after, &how));
	assert_contains(how, "modification time 2026-11-30T14:46:40.123456790Z, was "
			"2026-11-30T14:46:40.123456789Z");
	free(how);
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
	expect_change(f, "top.qcow2", "qcow2", "qemu-io -f raw -c 'write 0 512' sub/base.raw",
		      "/sub/base.raw changed: written since", "backing file");
	expect_change(f, "top.qcow2", "qcow2", "qemu-img snapshot -c s sub/mid.qcow2",
		      "/sub/mid.qcow2 changed: snapshotted", "backing file");
	expect_change(f, "top.qcow2", "qcow2",
		      "qemu-img rebase -u -b sub/other.qcow2 -F qcow2 top.qcow2",
		      "rebased: backing file sub/other.qcow2, was sub/mid.qcow2", "");
	expect_change(f, "top.qcow2", "qcow2", "qemu-img rebase -u -b '' top.qcow2",
		      "rebased: backing file none, was sub/other.qcow2", "");
	expect_change(f, "top.qcow2", "qcow2",
		      "qemu-img rebase -u -b sub/mid.qcow2 -F qcow2 top.qcow2", "rebased", "was none");
	expect_change(f, "top.qcow2", "qcow2", "rm sub/base.raw",
		      "/sub/base.raw changed: missing: No such file", "backing file");
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

static void external_data_file_is_seen(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	const char *f = *state;

	need_tools(f);
	must(f, "qemu-img create -f qcow2 -o data_file=d.data,data_file_raw=on d.qcow2 4M");
	assert_ok(fingerprint_sync(at(f, "d.qcow2"), "qcow2", &err), &err);
	expect_change(f, "d.qcow2", "qcow2", "qemu-io -f raw -c 'write -P 7 0 512' d.data",
		      "external data file", "/d.data changed: written since");
	expect_change(f, "d.qcow2", "qcow2", "rm d.data", "external data file", "missing");
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
		assert_true(fingerprint_equal(print, print, NULL));
		json_decref(print);
	}
	print = fingerprint_take("nbd://h/x", "raw", &err);
	assert_ok(print, &err);
	assert_ok(fingerprint_sync("nbd://h/x", "raw", &err), &err);
	put_text(f, "file", "x");
	other = take(f, "file", "raw");
	assert_true(fingerprint_equal(print, other, NULL));	/* nothing was known */
	assert_false(fingerprint_equal(other, print, NULL));	/* something was */
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
	char *how;

	put_text(f, "d.qcow2", "this is no image");
	assert_null(fingerprint_take(at(f, "d.qcow2"), "qcow2", &err));
	assert_failed(&err, "Corrupt", "d.qcow2");
	assert_null(disk_info(at(f, "d.qcow2"), "qcow2", &err));
	assert_failed(&err, "Corrupt", "d.qcow2");
	assert_false(fingerprint_sync(at(f, "d.qcow2"), "qcow2", &err));
	assert_failed(&err, "Corrupt", "d.qcow2");
	print = take(f, "none", "raw");
	assert_string_equal(tp_json_str(print, "missing"), "No such file or directory");
	assert_false(fingerprint_equal(print, print, &how));
	assert_contains(how, "missing");
	free(how);
	json_decref(print);
	assert_null(disk_info(at(f, "none"), "raw", &err));
	assert_failed(&err, "IOError", "none");
	/* Fingerprints may come from a damaged manifest. */
	print = take(f, "d.qcow2", "raw");
	assert_false(fingerprint_equal(NULL, print, &how));
	assert_contains(how, "damaged");
	free(how);
	assert_false(fingerprint_equal(print, NULL, NULL));
	assert_false(fingerprint_equal(empty, print, NULL));
	json_decref(print);
	json_decref(empty);
}

/* Another boot may number devices anew: then the file system's number says nothing. */
static void device_numbers_hold_for_one_boot(void **state)
{
	json_t *before, *after;
	char *how;

	put_text(*state, "d.raw", "x");
	before = take(*state, "d.raw", "raw");
	after = take(*state, "d.raw", "raw");
	tp_json_set(before, "dev", json_integer((json_int_t)makedev(253, 0)));
	tp_json_set(after, "dev", json_integer((json_int_t)makedev(253, 1)));
	assert_false(fingerprint_equal(before, after, &how));
	assert_contains(how, "another file system");
	free(how);
	tp_json_set_str(after, "boot", "another");
	assert_true(fingerprint_equal(before, after, NULL));
	/* Without a device below: a new number at each mount. */
	tp_json_set(after, "boot", json_incref(json_object_get(before, "boot")));
	tp_json_set(before, "dev", json_integer((json_int_t)makedev(0, 40)));
	tp_json_set(after, "dev", json_integer((json_int_t)makedev(0, 41)));
	assert_true(fingerprint_equal(before, after, NULL));
	json_decref(before);
	json_decref(after);
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
		T(qcow2_changes_have_their_words),
		T(copy_brought_back_is_another_file),
		T(raw_changes_have_their_words),
		T(nanoseconds_count),
		T(the_whole_chain_is_seen),
		T(backing_format_may_be_probed),
		T(external_data_file_is_seen),
		T(loop_in_the_chain_ends),
		T(longest_chain),
		T(what_is_elsewhere_is_unverifiable),
		T(damaged_disks_are_named),
		T(device_numbers_hold_for_one_boot),
		T(odd_names),
		T(info_tells_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
