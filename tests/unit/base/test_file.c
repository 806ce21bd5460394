/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_file.c - Whole files: bounded reading, complete writing, replacement that
 * survives a full disk, a failing fsync and a crash at each call
 *
 * link: -Wl,--wrap=fsync,--wrap=renameat,--wrap=write,--wrap=pread,--wrap=pwrite,--wrap=read
 */
#include "base_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"

/* What the wrapped calls do, and the order in which they came. */
static struct {
	char calls[256];
	int fsync_errno, rename_errno, write_errno;
	unsigned fsync_at;	/* fails at the n-th call, from 1; 0: at each */
	unsigned interrupts;	/* EINTR so many times */
	bool dribble;		/* one byte a call */
	const char *die_at;	/* the process ends instead of this call */
} faults;

static void note(const char *call)
{
	if (faults.die_at && strcmp(call, faults.die_at) == 0)
		raise(SIGKILL);
	if (strlen(faults.calls) + strlen(call) + 2 < sizeof(faults.calls)) {
		strcat(faults.calls, call);
		strcat(faults.calls, " ");
	}
}

static bool interrupted(void)
{
	if (faults.interrupts == 0)
		return false;
	faults.interrupts--;
	errno = EINTR;
	return true;
}

int __wrap_fsync(int fd);
int __real_fsync(int fd);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __real_renameat(int a, const char *from, int b, const char *to);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_read(int fd, void *data, size_t n);
ssize_t __real_read(int fd, void *data, size_t n);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t at);
ssize_t __real_pread(int fd, void *data, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at);
ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t at);

int __wrap_fsync(int fd)
{
	struct stat st;

	if (interrupted())
		return -1;
	note(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? "fsync-folder" : "fsync");
	if (faults.fsync_errno && (faults.fsync_at == 0 || --faults.fsync_at == 0)) {
		errno = faults.fsync_errno;
		return -1;
	}
	return __real_fsync(fd);
}

int __wrap_renameat(int a, const char *from, int b, const char *to)
{
	note("rename");
	if (faults.rename_errno) {
		errno = faults.rename_errno;
		return -1;
	}
	return __real_renameat(a, from, b, to);
}

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
	if (interrupted())
		return -1;
	note("write");
	if (faults.write_errno && strlen(faults.calls) > strlen("write ")) {
		errno = faults.write_errno;
		return -1;
	}
	return __real_write(fd, data, faults.dribble && n > 1 ? 1 : n);
}

ssize_t __wrap_read(int fd, void *data, size_t n)
{
	return interrupted() ? -1 : __real_read(fd, data, faults.dribble && n > 1 ? 1 : n);
}

ssize_t __wrap_pread(int fd, void *data, size_t n, off_t at)
{
	return interrupted() ? -1 : __real_pread(fd, data, faults.dribble && n > 1 ? 1 : n, at);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at)
{
	return interrupted() ? -1 : __real_pwrite(fd, data, faults.dribble && n > 1 ? 1 : n, at);
}

struct place {
	char path[64];
	int dir;
	unsigned fds;
};

static int enter(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p)
		return -1;
	memset(&faults, 0, sizeof(faults));
	p->fds = open_fds();
	strcpy(p->path, "/tmp/torpor-test-XXXXXX");
	if (!mkdtemp(p->path))
		return -1;
	p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = p;
	return p->dir < 0;
}

static int leave(void **state)
{
	struct place *p = *state;
	char command[128];

	close(p->dir);
	snprintf(command, sizeof(command), "rm -rf '%s'", p->path);
	if (system(command) != 0)
		return -1;
	assert_int_equal(open_fds(), p->fds);
	free(p);
	return 0;
}

static void expect_file(struct place *p, const char *name, const char *text)
{
	struct tp_error err = TP_ERROR_INIT;
	size_t len = 0;
	tp_autofree char *got = tp_read_file(p->dir, name, 1 << 20, &len, &err);

	if (!got)
		fail_msg("%s", err.text);
	assert_string_equal(got, text);
	assert_int_equal(len, strlen(text));
}

static unsigned entries(int dirfd)
{
	DIR *dir = fdopendir(openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(dir);
	while ((e = readdir(dir)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(dir);
	return n;
}

static bool replace(struct place *p, const char *name, const char *text, struct tp_error *err)
{
	return tp_replace_file(p->dir, name, text, strlen(text), true, err);
}

static void read_is_bounded(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *empty = NULL, *exact = NULL, *all = NULL;
	char big[10000];
	size_t len = 7;

	assert_true(replace(p, "empty", "", &err));
	empty = tp_read_file(p->dir, "empty", 0, &len, &err);
	assert_string_equal(empty, "");
	assert_int_equal(len, 0);
	memset(big, 'b', sizeof(big));
	assert_true(tp_replace_file(p->dir, "big", big, sizeof(big), false, &err));
	exact = tp_read_file(p->dir, "big", sizeof(big), &len, &err);
	assert_non_null(exact);
	assert_int_equal(len, sizeof(big));
	assert_int_equal(exact[len], 0);
	all = tp_read_file(p->dir, "big", SIZE_MAX, NULL, &err);
	assert_non_null(all);
	len = 7;
	assert_null(tp_read_file(p->dir, "big", sizeof(big) - 1, &len, &err));
	assert_failed(&err, TP_ELIMIT, "big is larger than 9999 bytes");
	assert_null(tp_read_file(p->dir, "big", 0, &len, &err));
	assert_failed(&err, TP_ELIMIT, "larger than 0 bytes");
	assert_null(tp_read_file(p->dir, "absent", 10, &len, &err));
	assert_int_equal(err.sys, ENOENT);
	assert_int_equal(len, 7);
}

static void read_only_regular_files(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;

	assert_int_equal(mkfifoat(p->dir, "fifo", 0600), 0);
	assert_null(tp_read_file(p->dir, "fifo", 10, NULL, &err));
	assert_failed(&err, TP_EARG, "fifo is not a regular file");
	assert_null(tp_read_file(p->dir, ".", 10, NULL, &err));
	assert_failed(&err, TP_EARG, "is not a regular file");
	assert_null(tp_read_path("/dev/zero", 10, NULL, &err));
	assert_failed(&err, TP_EARG, "/dev/zero is not a regular file");
	assert_null(tp_read_path("/nonexistent", 10, NULL, &err));
	assert_failed(&err, TP_ESYS, "open /nonexistent");
}

static void read_proc(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *text = NULL;
	size_t len;

	(void)state;
	faults.dribble = true;
	faults.interrupts = 3;
	text = tp_read_path("/proc/self/status", 1 << 16, &len, &err);
	assert_non_null(text);
	assert_true(len > 0 && len == strlen(text));
	assert_contains(text, "\nPid:");
}

static void nul_bytes_are_kept(void **state)
{
	struct place *p = *state;
	tp_autofree char *text = NULL;
	size_t len;

	assert_true(tp_replace_file(p->dir, "f", "a\0b", 3, false, NULL));
	text = tp_read_file(p->dir, "f", 3, &len, NULL);
	assert_int_equal(len, 3);
	assert_memory_equal(text, "a\0b", 4);
}

static void short_transfers(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int fd = openat(p->dir, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	char got[16] = "";

	faults.dribble = true;
	faults.interrupts = 2;
	assert_true(tp_write_all(fd, "0123456789", 10, &err));
	faults.interrupts = 2;
	assert_true(tp_pwrite_all(fd, "abcde", 5, 3, &err));
	faults.interrupts = 2;
	assert_true(tp_pread_all(fd, got, 10, 0, &err));
	assert_string_equal(got, "012abcde89");
	assert_true(tp_pread_all(fd, got, 0, 100, &err));
	assert_false(tp_pread_all(fd, got, 4, 8, &err));
	assert_failed(&err, TP_ECORRUPT, "the file ends at byte 10, 2 more expected");
}

static void hostile_ranges(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int fd = openat(p->dir, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	char got[4];

	assert_false(tp_pread_all(fd, got, 4, -1, &err));
	assert_failed(&err, TP_ESYS, "read");
	assert_false(tp_pread_all(fd, got, 4, INT64_MAX - 2, &err));
	assert_failed(&err, TP_ESYS, "read");
	assert_false(tp_pwrite_all(fd, got, SIZE_MAX, 4, &err));
	assert_failed(&err, TP_ESYS, "write");
	assert_false(tp_pwrite_all(-1, "x", 1, 0, &err));
	assert_int_equal(err.sys, EBADF);
	tp_error_clear(&err);
	assert_false(tp_write_all(-1, "x", 1, &err));
	assert_int_equal(err.sys, EBADF);
	tp_error_clear(&err);
	assert_false(tp_pread_all(-1, got, 1, 0, &err));
	assert_int_equal(err.sys, EBADF);
}

static void replace_order(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct stat st;

	assert_true(replace(p, "f", "one", &err));
	/* Renaming before the data is on the platter could leave an empty file after a power cut. */
	assert_string_equal(faults.calls, "write fsync rename fsync-folder ");
	assert_int_equal(fstatat(p->dir, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	faults.calls[0] = 0;
	assert_true(tp_replace_file(p->dir, "f", "two", 3, false, &err));
	assert_string_equal(faults.calls, "write rename ");
	expect_file(p, "f", "two");
	assert_int_equal(entries(p->dir), 1);
}

static void replace_in_folder(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	char name[300];

	assert_int_equal(mkdirat(p->dir, "vms", 0700), 0);
	assert_true(replace(p, "vms/state.json", "{}", &err));
	expect_file(p, "vms/state.json", "{}");
	assert_false(replace(p, "absent/state.json", "{}", &err));
	assert_failed(&err, TP_ESYS, "replace absent/state.json");
	assert_false(replace(p, "../f", "{}", &err));
	assert_failed(&err, TP_ESYS, "replace ../f");
	assert_false(replace(p, "vms", "{}", &err));
	assert_failed(&err, TP_ESYS, "replace vms");
	assert_false(replace(p, "vms/", "{}", &err));
	assert_failed(&err, TP_EARG, "vms/");
	memset(name, 'n', sizeof(name) - 1);
	name[NAME_MAX - 2] = 0;
	assert_false(replace(p, name, "{}", &err));
	assert_failed(&err, TP_ESYS, "replace n");
	/* A link in place of the file is replaced itself, not followed. */
	assert_int_equal(symlinkat("vms/state.json", p->dir, "link"), 0);
	assert_true(replace(p, "link", "new", &err));
	expect_file(p, "vms/state.json", "{}");
	expect_file(p, "link", "new");
	assert_int_equal(entries(p->dir), 2);
}

/* Whatever fails, the old content is there and nothing lies beside it. */
static void replace_failures(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;

	assert_true(replace(p, "f", "old", &err));
	memset(&faults, 0, sizeof(faults));
	faults.dribble = true;
	faults.write_errno = ENOSPC;
	assert_false(replace(p, "f", "new", &err));
	assert_int_equal(err.sys, ENOSPC);
	assert_failed(&err, TP_ESYS, "replace f: write: No space left");
	memset(&faults, 0, sizeof(faults));
	faults.fsync_errno = EIO;
	assert_false(replace(p, "f", "new", &err));
	assert_failed(&err, TP_ESYS, "replace f: fsync .f.new: Input/output error");
	memset(&faults, 0, sizeof(faults));
	faults.rename_errno = EROFS;
	assert_false(replace(p, "f", "new", &err));
	assert_failed(&err, TP_ESYS, "replace f: rename: Read-only");
	expect_file(p, "f", "old");
	assert_int_equal(entries(p->dir), 1);
	/* Only here the new one is in place already, but not for sure: a failure as well. */
	memset(&faults, 0, sizeof(faults));
	faults.fsync_errno = EIO;
	faults.fsync_at = 2;
	assert_false(replace(p, "f", "new", &err));
	assert_failed(&err, TP_ESYS, "replace f: fsync the folder");
	memset(&faults, 0, sizeof(faults));
	assert_int_equal(entries(p->dir), 1);
}

/* Dies at each call in turn: the file is old or new, whole, and the next replacement cleans up. */
static void replace_crash(void **state)
{
	static const char *const calls[] = { "write", "fsync", "rename", "fsync-folder" };
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	size_t i;
	int status;
	pid_t child;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		assert_true(replace(p, "f", "old", &err));
		child = fork();
		if (child == 0) {
			faults.die_at = calls[i];
			replace(p, "f", "new", NULL);
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		expect_file(p, "f", strcmp(calls[i], "fsync-folder") == 0 ? "new" : "old");
		assert_true(entries(p->dir) <= 2);
		assert_true(replace(p, "f", "next", &err));
		expect_file(p, "f", "next");
		assert_int_equal(entries(p->dir), 1);
	}
}

/* A really full disk. In a mount namespace of its own, so that nothing is left mounted. */
static void replace_on_full_disk(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct place small = { .dir = -1 };
	tp_autofree char *big = calloc(1, 200000);

	if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 ||
	    mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", p->path, "tmpfs", 0, "size=64k") != 0)
		skip();
	assert_non_null(big);
	small.dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(small.dir >= 0);
	assert_true(replace(&small, "f", "old", &err));
	assert_false(tp_replace_file(small.dir, "f", big, 200000, true, &err));
	assert_int_equal(err.sys, ENOSPC);
	assert_failed(&err, TP_ESYS, "replace f: write: No space left on device");
	expect_file(&small, "f", "old");
	assert_int_equal(entries(small.dir), 1);
	/* And the room of the failed attempt is there again. */
	assert_true(tp_replace_file(small.dir, "f", big, 30000, true, &err));
	close(small.dir);
	assert_int_equal(umount(p->path), 0);
}

static void fsync_reports(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;

	faults.interrupts = 2;
	assert_true(tp_fsync(p->dir, "the folder", &err));
	assert_false(tp_fsync(-1, "image x", &err));
	assert_failed(&err, TP_ESYS, "fsync image x: Bad file descriptor");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(read_is_bounded, enter, leave),
		cmocka_unit_test_setup_teardown(read_only_regular_files, enter, leave),
		cmocka_unit_test_setup_teardown(read_proc, enter, leave),
		cmocka_unit_test_setup_teardown(nul_bytes_are_kept, enter, leave),
		cmocka_unit_test_setup_teardown(short_transfers, enter, leave),
		cmocka_unit_test_setup_teardown(hostile_ranges, enter, leave),
		cmocka_unit_test_setup_teardown(replace_order, enter, leave),
		cmocka_unit_test_setup_teardown(replace_in_folder, enter, leave),
		cmocka_unit_test_setup_teardown(replace_failures, enter, leave),
		cmocka_unit_test_setup_teardown(replace_crash, enter, leave),
		cmocka_unit_test_setup_teardown(replace_on_full_disk, enter, leave),
		cmocka_unit_test_setup_teardown(fsync_reports, enter, leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
