/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_fs.c - Files beneath a folder: escapes, both ways of opening, locks, removal
 *
 * Tests that open run twice: with openat2(2), and with a kernel that lacks it.
 * The order is fixed: base remembers that it is lacking.
 *
 * link: -Wl,--wrap=syscall
 */
#include "base_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"

static bool no_openat2;
static unsigned again;		/* times that openat2 wants to be called again */
static unsigned openat2_calls;

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __real_syscall(long number, ...);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	if (number == SYS_openat2) {
		openat2_calls++;
		if (no_openat2 || again > 0) {
			errno = no_openat2 ? ENOSYS : EAGAIN;
			again -= again > 0;
			return -1;
		}
	}
	return __real_syscall(number, a, b, c, d, e, f);
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
	p->fds = open_fds();
	strcpy(p->path, "/tmp/torpor-test-XXXXXX");
	if (!mkdtemp(p->path))
		return -1;
	p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = p;
	return p->dir < 0;
}

static void remove_tree(const char *path)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", path);
	if (system(command) != 0)
		fail_msg("cannot remove %s", path);
}

static int leave(void **state)
{
	struct place *p = *state;
	unsigned fds;

	close(p->dir);
	remove_tree(p->path);
	fds = open_fds();
	assert_int_equal(fds, p->fds);
	free(p);
	return 0;
}

static void put(struct place *p, const char *name, const char *text)
{
	int fd = openat(p->dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void names(void **state)
{
	static const char *const good[] = { "a", "web1", "Web_1.x-2", "9", "_", "a..b", "a-" };
	static const char *const bad[] = {
		"", ".", "..", ".hidden", "-x", "a/b", "/a", "a b", "a\n", "\xc3\xa9", "a\x01", "a*",
		"a:b", "a%", "~",
	};
	char name[301];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(tp_name_ok(good[i]));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(tp_name_ok(bad[i]));
	assert_false(tp_name_ok(NULL));
	memset(name, 'n', sizeof(name));
	name[300] = 0;
	assert_false(tp_name_ok(name));
	name[TP_NAME_MAX + 1] = 0;
	assert_false(tp_name_ok(name));
	name[TP_NAME_MAX] = 0;
	assert_true(tp_name_ok(name));
}

static void refuse(struct place *p, const char *path, int flags, int sys)
{
	struct tp_error err = TP_ERROR_INIT;
	int fd = tp_openat(p->dir, path, flags, 0600, &err);

	if (fd >= 0)
		fail_msg("%s was opened", path);
	if (err.sys != sys)
		fail_msg("%s: %s", path, err.text);
	assert_contains(err.text, "open");
}

static void allow(struct place *p, const char *path, int flags)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int fd = tp_openat(p->dir, path, flags, 0600, &err);

	if (fd < 0)
		fail_msg("%s", err.text);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

static void no_escape(void **state)
{
	struct place *p = *state;
	bool lacking = lacks_call(SYS_openat2);
	char long_name[NAME_MAX + 2];

	assert_int_equal(mkdirat(p->dir, "d", 0700), 0);
	assert_int_equal(mkdirat(p->dir, "d/e", 0700), 0);
	put(p, "d/e/f", "x");
	assert_int_equal(symlinkat("/etc", p->dir, "abs"), 0);
	assert_int_equal(symlinkat("d", p->dir, "rel"), 0);
	assert_int_equal(symlinkat("f", p->dir, "d/e/link"), 0);
	assert_int_equal(symlinkat("/tmp/torpor-test-made", p->dir, "dangling"), 0);

	allow(p, "d/e/f", O_RDONLY);
	allow(p, "d//e/f", O_RDONLY);
	allow(p, "./d/./e/f", O_RDWR);
	allow(p, "d/e/", O_RDONLY | O_DIRECTORY);
	allow(p, "d/e/", O_RDONLY);
	allow(p, ".", O_RDONLY | O_DIRECTORY);
	allow(p, "d/new", O_RDWR | O_CREAT | O_EXCL);
	allow(p, "d/e", O_PATH);

	refuse(p, "/etc/passwd", O_RDONLY, EXDEV);
	refuse(p, "..", O_RDONLY, EXDEV);
	refuse(p, "../x", O_RDONLY, EXDEV);
	refuse(p, "d/../../x", O_RDONLY, EXDEV);
	refuse(p, "d/..", O_RDONLY, EXDEV);
	refuse(p, "d/e/../e/f", O_RDONLY, EXDEV);
	refuse(p, "abs/passwd", O_RDONLY, lacking ? ENOTDIR : ELOOP);
	refuse(p, "rel/e/f", O_RDONLY, lacking ? ENOTDIR : ELOOP);
	refuse(p, "d/e/link", O_RDONLY, ELOOP);
	refuse(p, "d/e/link", O_PATH, ELOOP);
	refuse(p, "dangling", O_WRONLY | O_CREAT, ELOOP);
	assert_int_equal(access("/tmp/torpor-test-made", F_OK), -1);
	refuse(p, "d/e/f/g", O_RDONLY, ENOTDIR);
	refuse(p, "d/e/f/", O_RDONLY, ENOTDIR);
	refuse(p, "nothing", O_RDONLY, ENOENT);
	refuse(p, "nothing/x", O_RDONLY, ENOENT);
	refuse(p, "", O_RDONLY, ENOENT);
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	refuse(p, long_name, O_RDONLY, ENAMETOOLONG);
	/* A mode without O_CREAT, which openat2 alone would refuse. */
	allow(p, "d/new", O_RDONLY);
}

static void tries_again(void **state)
{
	struct place *p = *state;

	need_call(openat2);
	put(p, "f", "x");
	again = 3;
	openat2_calls = 0;
	allow(p, "f", O_RDONLY);
	assert_int_equal(openat2_calls, 4);
	/* Not for ever. */
	again = 1000;
	refuse(p, "f", O_RDONLY, EAGAIN);
	assert_true(again > 900);
	again = 0;
}

static void without_openat2(void **state)
{
	bool known = lacks_call(SYS_openat2);
	struct place *p = *state;

	no_openat2 = true;
	put(p, "f", "x");
	openat2_calls = 0;
	allow(p, "f", O_RDONLY);
	allow(p, "f", O_RDONLY);
	/* Asked once for all. */
	assert_int_equal(openat2_calls, known ? 0 : 1);
	no_escape(state);
}

static void open_dir(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int fd = tp_open_dir(p->path, &err);

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(tp_open_dir("/etc/passwd", &err), -1);
	assert_failed(&err, TP_ESYS, "open folder /etc/passwd: Not a directory");
	assert_int_equal(tp_open_dir("/nonexistent", &err), -1);
	assert_int_equal(err.sys, ENOENT);
}

static unsigned mode_of(struct place *p, const char *name)
{
	struct stat st;

	assert_int_equal(fstatat(p->dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode & 07777;
}

static void make_folders(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	mode_t mask = umask(0);
	char path[128];
	int fd;

	assert_int_equal(mkdirat(p->dir, "there", 0755), 0);
	snprintf(path, sizeof(path), "%s/there//a/b/", p->path);
	fd = tp_mkdirs(path, &err);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	/* Readable, no O_PATH: it can be fsynced and listed. */
	assert_int_equal(fsync(fd), 0);
	close(fd);
	umask(mask);
	assert_int_equal(mode_of(p, "there"), 0755);
	assert_int_equal(mode_of(p, "there/a"), 0700);
	assert_int_equal(mode_of(p, "there/a/b"), 0700);
	fd = tp_mkdirs(path, &err);
	assert_true(fd >= 0);
	close(fd);
	fd = tp_mkdirs("/", &err);
	assert_true(fd >= 0);
	close(fd);
	put(p, "file", "x");
	snprintf(path, sizeof(path), "%s/file/a", p->path);
	assert_int_equal(tp_mkdirs(path, &err), -1);
	assert_failed(&err, TP_ESYS, "file/a: Not a directory");
	assert_int_equal(tp_mkdirs("", &err), -1);
	assert_int_equal(err.sys, ENOENT);
}

static void make_one_folder(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	int fd, i;

	for (i = 0; i < 2; i++) {
		fd = tp_mkdir_open(p->dir, "vm1", &err);
		assert_true(fd >= 0);
		close(fd);
	}
	assert_int_equal(mode_of(p, "vm1"), 0700);
	assert_int_equal(tp_mkdir_open(p->dir, "..", &err), -1);
	assert_failed(&err, TP_ESYS, "make folder ..");
	assert_int_equal(tp_mkdir_open(p->dir, "a/b", &err), -1);
	assert_failed(&err, TP_ESYS, "make folder a/b");
	assert_int_equal(symlinkat("/etc", p->dir, "link"), 0);
	assert_int_equal(tp_mkdir_open(p->dir, "link", &err), -1);
	assert_failed(&err, TP_ESYS, "link");
	put(p, "file", "x");
	assert_int_equal(tp_mkdir_open(p->dir, "file", &err), -1);
	assert_failed(&err, TP_ESYS, "Not a directory");
}

static void parent_and_name(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	const char *name;
	int fd;

	assert_int_equal(mkdirat(p->dir, "d", 0700), 0);
	fd = tp_open_parent(p->dir, "d/f", &name, &err);
	assert_true(fd >= 0);
	assert_string_equal(name, "f");
	close(fd);
	fd = tp_open_parent(p->dir, "f", &name, &err);
	assert_true(fd >= 0);
	assert_string_equal(name, "f");
	close(fd);
	assert_int_equal(tp_open_parent(p->dir, "d/", &name, &err), -1);
	assert_failed(&err, TP_EARG, "names no file");
	assert_int_equal(tp_open_parent(p->dir, "d/..", &name, &err), -1);
	assert_failed(&err, TP_EARG, "names no file");
	assert_int_equal(tp_open_parent(p->dir, "/f", &name, &err), -1);
	assert_failed(&err, TP_ESYS, "/f");
	assert_int_equal(tp_open_parent(p->dir, "../f", &name, &err), -1);
	assert_failed(&err, TP_ESYS, "..");
}

static void remove_dir(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	char name[32];
	int i;

	assert_true(tp_remove_dir(p->dir, "absent", &err));
	assert_true(tp_remove_dir(p->dir, "absent/too", &err));
	assert_int_equal(mkdirat(p->dir, "pool", 0700), 0);
	assert_int_equal(mkdirat(p->dir, "pool/image", 0700), 0);
	for (i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "pool/image/%d", i);
		put(p, name, "x");
	}
	put(p, "outside", "x");
	assert_int_equal(symlinkat("../../outside", p->dir, "pool/image/link"), 0);
	assert_int_equal(mkfifoat(p->dir, "pool/image/fifo", 0600), 0);
	assert_true(tp_remove_dir(p->dir, "pool/image", &err));
	assert_int_equal(faccessat(p->dir, "pool/image", F_OK, 0), -1);
	assert_int_equal(faccessat(p->dir, "outside", F_OK, 0), 0);
	assert_true(tp_remove_dir(p->dir, "pool", &err));
	assert_int_equal(err.code, TP_OK);
}

static void remove_only_one_level(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;

	assert_int_equal(mkdirat(p->dir, "d", 0700), 0);
	assert_int_equal(mkdirat(p->dir, "d/inner", 0700), 0);
	put(p, "d/inner/f", "x");
	assert_false(tp_remove_dir(p->dir, "d", &err));
	assert_failed(&err, TP_ESYS, "remove d/inner");
	assert_int_equal(faccessat(p->dir, "d/inner/f", F_OK, 0), 0);
	put(p, "file", "x");
	assert_false(tp_remove_dir(p->dir, "file", &err));
	assert_failed(&err, TP_ESYS, "Not a directory");
	assert_int_equal(symlinkat("d/inner", p->dir, "link"), 0);
	assert_false(tp_remove_dir(p->dir, "link", &err));
	tp_error_clear(&err);
	assert_int_equal(faccessat(p->dir, "d/inner/f", F_OK, 0), 0);
	assert_false(tp_remove_dir(p->dir, "..", &err));
	assert_failed(&err, TP_EARG, "names no file");
	/* An error that is set already stays. */
	tp_fail(&err, TP_ELIMIT, "first");
	assert_false(tp_remove_dir(p->dir, "file", &err));
	assert_string_equal(err.text, "first");
}

static void lock_conflict(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	int first = tp_lock_file(p->dir, "lock", &err), second;

	assert_true(first >= 0);
	assert_int_equal(mode_of(p, "lock"), 0600);
	assert_int_equal(write(first, "1234 boot\nmore", 14), 14);
	assert_int_equal(tp_lock_file(p->dir, "lock", &err), -1);
	assert_int_equal(err.code, TP_ESTATE);
	assert_null(strstr(err.text, "more"));
	assert_failed(&err, TP_ESTATE, "lock is locked by another process (pid 1234)");
	close(first);
	second = tp_lock_file(p->dir, "lock", &err);
	assert_true(second >= 0);
	assert_int_equal(ftruncate(second, 0), 0);
	assert_int_equal(tp_lock_file(p->dir, "lock", &err), -1);
	assert_failed(&err, TP_ESTATE, "(unnamed)");
	close(second);
	assert_int_equal(tp_lock_file(p->dir, "../lock", &err), -1);
	assert_failed(&err, TP_ESYS, "../lock");
}

/* The lock does not survive its process, however that ends. */
static void lock_ends_with_process(void **state)
{
	struct place *p = *state;
	struct tp_error err = TP_ERROR_INIT;
	int ready[2], status, fd;
	pid_t child;
	char byte;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		close(ready[0]);
		if (tp_lock_file(p->dir, "lock", NULL) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_int_equal(tp_lock_file(p->dir, "lock", NULL), -1);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	fd = tp_lock_file(p->dir, "lock", &err);
	assert_true(fd >= 0);
	close(fd);
}

static void safe_descriptors(void **state)
{
	int keep, fd, safe;

	(void)state;
	assert_int_equal(tp_fd_safe(-1), -1);
	fd = open("/dev/null", O_RDONLY);
	safe = tp_fd_safe(fd);
	assert_int_equal(safe, fd);
	assert_int_equal(fcntl(safe, F_GETFD), FD_CLOEXEC);
	close(safe);
	/* A host that closed its stdin gets 0 from the next open. */
	keep = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_true(keep >= 0);
	close(STDIN_FILENO);
	fd = open("/dev/null", O_RDONLY);
	assert_int_equal(fd, STDIN_FILENO);
	safe = tp_fd_safe(fd);
	assert_true(safe > STDERR_FILENO);
	assert_int_equal(fcntl(safe, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
	close(safe);
	assert_int_equal(dup2(keep, STDIN_FILENO), STDIN_FILENO);
	close(keep);
	assert_int_equal(tp_fd_safe(1000000), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test_setup_teardown(no_escape, enter, leave),
		cmocka_unit_test_setup_teardown(tries_again, enter, leave),
		cmocka_unit_test_setup_teardown(open_dir, enter, leave),
		cmocka_unit_test_setup_teardown(make_folders, enter, leave),
		cmocka_unit_test_setup_teardown(make_one_folder, enter, leave),
		cmocka_unit_test_setup_teardown(parent_and_name, enter, leave),
		cmocka_unit_test_setup_teardown(remove_dir, enter, leave),
		cmocka_unit_test_setup_teardown(remove_only_one_level, enter, leave),
		cmocka_unit_test_setup_teardown(lock_conflict, enter, leave),
		cmocka_unit_test_setup_teardown(lock_ends_with_process, enter, leave),
		cmocka_unit_test_setup_teardown(safe_descriptors, enter, leave),
		/* From here on openat2 is lacking. */
		cmocka_unit_test_setup_teardown(without_openat2, enter, leave),
		cmocka_unit_test_setup_teardown(make_one_folder, enter, leave),
		cmocka_unit_test_setup_teardown(remove_dir, enter, leave),
		cmocka_unit_test_setup_teardown(remove_only_one_level, enter, leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
