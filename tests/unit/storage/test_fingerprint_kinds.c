/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_fingerprint_kinds.c - Each way in which a disk can change has its word, by QEMU's own tools
 *
 * One table of changes that must be told, and one of what leaves the content as it was. Each row
 * has a folder of its own.
 */
#include "fingerprint_test.h"

struct row {
	const char *name;
	const char *make;		/* commands; the disk is "d" */
	const char *format;
	const char *change;
	const char *how;		/* "HOW", of a part of the disk "HOW:PART'S HOW" */
	const char *detail;		/* part of it */
};

struct kept {
	const char *name, *make, *format, *change;
};

#define QCOW2 "qemu-img create -f qcow2 d 8M && qemu-io -c 'write -P 1 0 128k' d"
#define RAW "truncate -s 1M d && qemu-io -f raw -c 'write -P 1 0 64k' d"
#define CHAIN "qemu-img create -f qcow2 b1 8M && qemu-img create -f qcow2 -b b1 -F qcow2 b2 && " \
	      "qemu-img create -f qcow2 -b b2 -F qcow2 d"
#define DATA "qemu-img create -f qcow2 -o data_file=x,data_file_raw=on d 4M && " \
	     "qemu-io -c 'write -P 1 0 64k' d"
#define BITMAP QCOW2 " && qemu-img bitmap --add d b0"
#define SNAPSHOT QCOW2 " && qemu-img snapshot -c s0 d"

static const struct row changes[] = {
	{ "qcow2 written, where it was allocated", QCOW2, "qcow2", "qemu-io -c 'write -P 7 4096 512' d",
	  "written", "modification time 20" },
	{ "qcow2 written, where it was not", QCOW2, "qcow2", "qemu-io -c 'write -P 7 4M 512' d",
	  "written", "last change of any kind 20" },
	{ "qcow2 written and its time set back", QCOW2 " && touch -d 2001-02-03 d", "qcow2",
	  "qemu-io -c 'write -P 7 4M 512' d && touch -d 2001-02-04 d", "written", "was 2001-02-0" },
	{ "qcow2 discarded", QCOW2, "qcow2", "qemu-io -d unmap -c 'discard 0 128k' d", "written", "" },
	{ "qcow2 options changed", QCOW2, "qcow2", "qemu-img amend -o lazy_refcounts=on d", "written",
	  "qcow2 header changed" },
	{ "qcow2 repaired by qemu-img check", QCOW2 " && printf '\\0\\0\\0\\0\\0\\0\\0\\1' | dd of=d bs=1 "
	  "seek=72 conv=notrunc", "qcow2", "qemu-img check -r all d", "written", "qcow2 header changed" },
	{ "qcow2 cut", QCOW2, "qcow2", "truncate -s 100 d", "written", "damaged since: " },
	{ "qcow2 overwritten", QCOW2, "qcow2", "head -c 1M /dev/urandom >d", "written", "damaged since: " },
	{ "snapshot made", QCOW2, "qcow2", "qemu-img snapshot -c s1 d", "snapshotted",
	  "1 snapshots, were 0" },
	{ "snapshot deleted", SNAPSHOT, "qcow2", "qemu-img snapshot -d s0 d", "snapshotted",
	  "0 snapshots, were 1" },
	{ "snapshot replaced by another", SNAPSHOT, "qcow2",
	  "qemu-img snapshot -d s0 d && qemu-img snapshot -c s0 d", "snapshotted", "" },
	{ "snapshot gone back to", SNAPSHOT " && qemu-io -c 'write -P 7 0 512' d", "qcow2",
	  "qemu-img snapshot -a s0 d", "written", "" },
	{ "qcow2 grown", QCOW2, "qcow2", "qemu-img resize d 9M", "resized",
	  "virtual size 9437184 bytes, was 8388608" },
	{ "qcow2 shrunk", QCOW2, "qcow2", "qemu-img resize --shrink d 7M", "resized", "was 8388608" },
	{ "bitmap added", QCOW2, "qcow2", "qemu-img bitmap --add d b1", "bitmap", "1 bitmaps, were 0" },
	{ "bitmap removed", BITMAP, "qcow2", "qemu-img bitmap --remove d b0", "bitmap",
	  "0 bitmaps, were 1" },
	{ "bitmap disabled", BITMAP, "qcow2", "qemu-img bitmap --disable d b0", "bitmap", "" },
	{ "rebased by name only", CHAIN, "qcow2", "qemu-img rebase -u -b b1 -F qcow2 d", "rebased",
	  "backing file b1, was b2" },
	{ "rebased, content kept", CHAIN, "qcow2", "qemu-img rebase -b b1 -F qcow2 d", "rebased",
	  "backing file b1, was b2" },
	{ "flattened", CHAIN, "qcow2", "qemu-img rebase -b '' d", "rebased", "backing file none, was b2" },
	{ "committed down", CHAIN " && qemu-io -c 'write -P 7 0 64k' d", "qcow2", "qemu-img commit d",
	  "written", "" },
	{ "backing file rebased", CHAIN " && cp b1 b0", "qcow2", "qemu-img rebase -u -b b0 -F qcow2 b2",
	  "chain:rebased",
	  "b2 changed: rebased" },
	{ "backing file written", CHAIN, "qcow2", "qemu-io -c 'write 0 512' b2", "chain:written",
	  "b2 changed: written since" },
	{ "lowest of the chain written", CHAIN, "qcow2", "qemu-io -c 'write 0 512' b1", "chain:written",
	  "b1 changed: written since" },
	{ "lowest of the chain snapshotted", CHAIN, "qcow2", "qemu-img snapshot -c s b1", "chain:snapshotted",
	  "b1 changed: snapshotted" },
	{ "lowest of the chain resized", CHAIN, "qcow2", "qemu-img resize b1 9M", "chain:resized",
	  "b1 changed: resized" },
	{ "backing file missing", CHAIN, "qcow2", "rm b1", "chain:missing",
	  "b1 changed: missing: No such file" },
	{ "backing file replaced by a copy", CHAIN, "qcow2", "cp -a b1 c && mv c b1", "chain:replaced",
	  "b1 changed: replaced" },
	{ "data file written", DATA, "qcow2", "qemu-io -f raw -c 'write -P 7 0 512' x", "data-file:written",
	  "x changed: written since" },
	{ "data file replaced", DATA, "qcow2", "cp -a x c && mv c x", "data-file:replaced",
	  "x changed: replaced" },
	{ "data file resized", DATA, "qcow2", "truncate -s 5M x", "data-file:resized",
	  "x changed: resized" },
	{ "data file missing", DATA, "qcow2", "rm x", "data-file:missing",
	  "x changed: missing" },
	{ "other data file", DATA " && cp x y", "qcow2", "qemu-img amend -o data_file=y d", "data-file",
	  "other external data file: y, was x" },
	{ "data file of a backing file written", DATA " && mv d b && "
	  "qemu-img create -f qcow2 -b b -F qcow2 d", "qcow2", "qemu-io -f raw -c 'write -P 7 0 512' x", "chain:data-file",
	  "x changed: written" },
	{ "restored from a backup", QCOW2 " && cp -a d saved", "qcow2", "mv d used && cp -a saved d",
	  "replaced", "of the same length and modification time, as a copy has" },
	{ "restored where it was deleted", QCOW2 " && cp -a d saved", "qcow2", "rm d && cp -a saved d",
	  "replaced", "was " },
	{ "older backup restored in place", QCOW2 " && cp -a d saved && qemu-io -c 'write -P 7 0 512' d",
	  "qcow2", "cat saved >d && touch -r saved d", "written", "modification time" },
	{ "missing", QCOW2, "qcow2", "rm d", "missing", "No such file or directory" },
	{ "its folder is gone", "mkdir f && qemu-img create -f raw f/d 1M && ln -s f/d d", "raw", "mv f g",
	  "missing", "No such file or directory" },
	{ "a folder in its place", RAW, "raw", "rm d && mkdir d", "unverifiable",
	  "neither a file nor a block device" },
	{ "a FIFO in its place", RAW, "raw", "rm d && mkfifo d", "unverifiable",
	  "neither a file nor a block device" },
	{ "link retargeted to a copy", "truncate -s 1M v1 && cp -a v1 v2 && ln -s v1 d", "raw",
	  "ln -sfn v2 d", "replaced", "inode" },
	{ "link retargeted to nothing", "truncate -s 1M v1 && ln -s v1 d", "raw", "ln -sfn v2 d",
	  "missing", "No such file" },
	{ "raw written", RAW, "raw", "qemu-io -f raw -c 'write -P 7 0 512' d", "written",
	  "modification time" },
	{ "raw resized", RAW, "raw", "qemu-img resize -f raw d 2M", "resized",
	  "2097152 bytes, were 1048576" },
	{ "raw cut", RAW, "raw", "truncate -s 512k d", "resized", "524288 bytes, were 1048576" },
	{ "raw replaced", RAW, "raw", "cp -a d c && mv c d", "replaced", "inode" },
	{ "raw punched", RAW, "raw", "fallocate -p -o 0 -l 4096 d", "written", "modification time" },
	{ "read-only disk written", RAW " && chmod 444 d", "raw",
	  "chmod 644 d && qemu-io -f raw -c 'write -P 7 0 512' d && chmod 444 d", "written", "" },
};

/* By the programs that only read, and what of a file is not its content. */
static const struct kept same[] = {
	{ "nothing", QCOW2, "qcow2", "true" },
	{ "looked at", SNAPSHOT, "qcow2", "qemu-img info -U d && qemu-img info d && "
	  "qemu-img snapshot -l d && qemu-img map d && qemu-img measure -O raw d" },
	{ "checked", SNAPSHOT, "qcow2", "qemu-img check d" },
	{ "read by QEMU", BITMAP, "qcow2", "qemu-io -r -c 'read 0 128k' d" },
	{ "backed up", QCOW2, "qcow2", "cp -a d saved && qemu-img convert -O raw d r && cat d >c && "
	  "tar cf t d" },
	{ "overlay made upon it", QCOW2, "qcow2", "qemu-img create -f qcow2 -b d -F qcow2 top && "
	  "qemu-io -c 'write 0 64k' top" },
	{ "time of reading set", QCOW2, "qcow2", "touch -a -d 2001-02-03 d" },
	{ "mode changed", QCOW2, "qcow2", "chmod 640 d && chmod 444 d" },
	{ "owner changed", QCOW2, "qcow2", "chown \"$(id -u):$(id -g)\" d" },
	{ "hard link made", QCOW2, "qcow2", "ln d other" },
	{ "a hard link in its place", QCOW2, "qcow2", "ln d other && rm d && mv other d" },
	{ "moved away and back", QCOW2, "qcow2", "mv d away && mv away d" },
	{ "moved, a link in its place", QCOW2, "qcow2", "mkdir f && mv d f/d && ln -s f/d d" },
	{ "its folder moved away and back", "mkdir f && qemu-img create -f qcow2 f/d 1M && ln -s f/d d",
	  "qcow2", "mv f g && mv g f" },
	{ "attributes set", QCOW2, "qcow2", "setfattr -n user.backup -v yes d || true" },
	{ "backup of the same moment restored in place", QCOW2 " && cp -a d saved", "qcow2",
	  "qemu-io -c 'write -P 7 0 512' d && cat saved >d && touch -r saved d" },
	{ "chain looked at", CHAIN, "qcow2", "qemu-img info --backing-chain d && qemu-img check d && "
	  "chmod 444 b1 b2" },
	{ "data file read", DATA, "qcow2", "qemu-io -r -c 'read 0 64k' d && chmod 444 x && touch -a x" },
	{ "link renewed", "truncate -s 1M v1 && ln -s v1 d", "raw", "ln v1 v2 && ln -sfn v2 d" },
};

/* Makes the disk in a folder of its own, changes it and compares; how "" where it is equal. */
static void change_disk(const char *top, size_t i, const char *const commands[2], const char *format,
			struct fingerprint_change *c, char how[64])
{
	json_t *before, *now = NULL;
	char *folder;

	assert_true(asprintf(&folder, "%s/%zu", top, i) > 0);
	assert_int_equal(mkdir(folder, 0700), 0);
	must(folder, commands[0]);
	before = take(folder, "d", format);
	expect_equal(before, before);
	before = through_text(before);
	must(folder, commands[1]);
	fingerprint_check(before, NULL, c, &now);
	snprintf(how, 64, "%s%s%s", c->how ? c->how : "", c->part_how ? ":" : "",
		 c->part_how ? c->part_how : "");
	if (c->part_how)
		assert_contains(c->part_file, folder);
	json_decref(now);
	json_decref(before);
	free(folder);
}

/* What data.disks says. */
static void check_member(const struct fingerprint_change *c)
{
	json_t *o = fingerprint_change_json("disk0", "/d", c);

	assert_string_equal(tp_json_str(o, "disk"), "disk0");
	assert_string_equal(tp_json_str(o, "file"), "/d");
	assert_string_equal(tp_json_str(o, "how"), c->how);
	assert_string_equal(tp_json_str(o, "detail"), c->detail);
	assert_int_equal(json_object_get(o, "part") != NULL, c->part_how != NULL);
	if (c->part_how)
		assert_string_equal(tp_json_str(json_object_get(o, "part"), "how"), c->part_how);
	json_decref(o);
}

static void each_change_has_its_word(void **state)
{
	struct fingerprint_change c;
	char how[64];

	need_tools(*state);
	for (size_t i = 0; i < TP_N(changes); i++) {
		const struct row *r = &changes[i];

		change_disk(*state, i, (const char *const[]){ r->make, r->change }, r->format, &c, how);
		if (c.verdict != FINGERPRINT_DIFFERENT || strcmp(how, r->how) != 0 ||
		    !strstr(c.detail, r->detail))
			fail_msg("%s: expected \"%s\" with \"%s\", found \"%s\": %s", r->name, r->how,
				 r->detail, how, c.detail);
		check_member(&c);
	}
}

static void what_leaves_the_content_is_no_change(void **state)
{
	struct fingerprint_change c;
	char how[64];

	need_tools(*state);
	for (size_t i = 0; i < TP_N(same); i++) {
		const struct kept *r = &same[i];

		change_disk(*state, i, (const char *const[]){ r->make, r->change }, r->format, &c, how);
		if (c.verdict != FINGERPRINT_EQUAL)
			fail_msg("%s: not equal: %s: %s", r->name, how, c.detail);
	}
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_folder, drop_folder)
	const struct CMUnitTest tests[] = {
		T(each_change_has_its_word),
		T(what_leaves_the_content_is_no_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
