/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_proc.c - Processes: identity, adoption, reuse of a pid, spawning
 *
 * The program spawns itself: with arguments it is the child, which tells on
 * descriptor 3 what it was given.
 *
 * link: -Wl,--wrap=syscall
 */
#include "base_test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/tp_cleanup.h"
#include "base/tp_proc.h"
#include "base/tp_sock.h"

#define DEADLINE_MS 20000

static int pidfd_open_errno;

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __real_syscall(long number, ...);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	if (number == SYS_pidfd_open && pidfd_open_errno) {
		errno = pidfd_open_errno;
		return -1;
	}
	return __real_syscall(number, a, b, c, d, e, f);
}

static unsigned fds_before;

static int enter(void **state)
{
	(void)state;
	pidfd_open_errno = 0;
	fds_before = open_fds();
	return 0;
}

static int leave(void **state)
{
	(void)state;
	pidfd_open_errno = 0;
	assert_int_equal(open_fds(), fds_before);
	/* No child is left, dead or alive. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	return 0;
}

/* Waits until fd is readable: a pidfd's end, or data. */
static void await(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&pfd, 1, DEADLINE_MS), 1);
}

/* A child that waits for a signal. */
static pid_t sleeper(void)
{
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_true(child > 0);
	return child;
}

static void boot_id(void **state)
{
	(void)state;
	assert_int_equal(strlen(tp_boot_id()), 36);
	assert_ptr_equal(tp_boot_id(), tp_boot_id());
}

static void start_times(void **state)
{
	uint64_t a = 0, b = 0, init = 0;

	(void)state;
	assert_true(tp_proc_start(getpid(), &a));
	assert_true(tp_proc_start(getpid(), &b));
	assert_true(a == b && a > 0);
	assert_true(tp_proc_start(1, &init));
	assert_true(init <= a);
	assert_false(tp_proc_start(0, &b));
	assert_int_equal(errno, ESRCH);
	assert_false(tp_proc_start(-1, &b));
	assert_false(tp_proc_start(INT32_MAX, &b));
	assert_int_equal(errno, ESRCH);
	assert_true(a == b);
}

/* A name that looks like the end of the name field and more. */
static void hostile_name(void **state)
{
	uint64_t before, after;

	(void)state;
	assert_true(tp_proc_start(getpid(), &before));
	assert_int_equal(prctl(PR_SET_NAME, ") S 1 2 (x) 3 4"), 0);
	assert_true(tp_proc_start(getpid(), &after));
	assert_true(before == after);
	assert_int_equal(prctl(PR_SET_NAME, "test_proc"), 0);
}

static void identity(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct tp_proc p, other;
	int fd, status;
	pid_t child;

	(void)state;
	need_call(pidfd_open);
	child = sleeper();
	assert_true(tp_proc_identify(child, &p, &err));
	assert_int_equal(p.pid, child);
	assert_string_equal(p.boot, tp_boot_id());
	fd = tp_proc_open(&p);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_false(tp_pidfd_wait(fd, &status));

	/* The same number, another process. */
	other = p;
	other.start++;
	assert_int_equal(tp_proc_open(&other), -1);
	assert_int_equal(errno, ESRCH);
	/* The same number and start, before the host was rebooted. */
	other = p;
	other.boot[0] ^= 1;
	assert_int_equal(tp_proc_open(&other), -1);
	assert_int_equal(errno, ESRCH);
	other.boot[0] = 0;
	assert_int_equal(tp_proc_open(&other), -1);
	memset(other.boot, 'x', sizeof(other.boot));	/* without an end */
	assert_int_equal(tp_proc_open(&other), -1);
	other = p;
	other.pid = 0;
	assert_int_equal(tp_proc_open(&other), -1);
	assert_int_equal(errno, ESRCH);

	assert_true(tp_pidfd_kill(fd, 0));
	assert_true(tp_pidfd_kill(fd, SIGKILL));
	await(fd);
	/* Ended, not yet reaped: its number is still its own. */
	close(fd);
	fd = tp_proc_open(&p);
	assert_true(fd >= 0);
	assert_true(tp_pidfd_wait(fd, &status));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(tp_proc_open(&p), -1);
	assert_int_equal(errno, ESRCH);
	assert_false(tp_pidfd_kill(fd, SIGKILL));
	/* Asked again: somebody has reaped it. */
	assert_true(tp_pidfd_wait(fd, &status));
	assert_int_equal(status, -1);
	close(fd);
	assert_false(tp_proc_identify(child, &p, &err));
	assert_failed(&err, TP_ESYS, "read the start time of process");
}

/* Lack of descriptors must not look like a process that is gone. */
static void trouble_is_not_gone(void **state)
{
	struct tp_proc p;

	(void)state;
	need_call(pidfd_open);
	assert_true(tp_proc_identify(getpid(), &p, NULL));
	pidfd_open_errno = EMFILE;
	assert_int_equal(tp_proc_open(&p), -1);
	assert_int_equal(errno, EMFILE);
	pidfd_open_errno = EINVAL;	/* a thread has the number */
	assert_int_equal(tp_proc_open(&p), -1);
	assert_int_equal(errno, ESRCH);
}

static void no_descriptor_for_proc(void **state)
{
	struct rlimit old, tight;
	struct tp_proc p;
	int probe, fd, saved;

	(void)state;
	need_call(pidfd_open);
	assert_true(tp_proc_identify(getpid(), &p, NULL));
	probe = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(probe);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = old;
	tight.rlim_cur = (rlim_t)probe + 1;	/* room for the pidfd only */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	fd = tp_proc_open(&p);
	saved = errno;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(saved, EMFILE);
}

static void exit_statuses(void **state)
{
	struct tp_proc p;
	pid_t child;
	int fd, status;

	(void)state;
	need_call(pidfd_open);
	child = fork();
	if (child == 0) {
		pause();
		_exit(1);
	}
	assert_true(tp_proc_identify(child, &p, NULL));
	fd = tp_proc_open(&p);
	assert_true(tp_pidfd_kill(fd, SIGTERM));
	await(fd);
	assert_true(tp_pidfd_wait(fd, &status));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	close(fd);
	child = fork();
	if (child == 0)
		_exit(200);
	assert_true(tp_proc_identify(child, &p, NULL));
	fd = tp_proc_open(&p);
	await(fd);
	assert_true(tp_pidfd_wait(fd, &status));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 200);
	close(fd);
	assert_false(tp_pidfd_wait(-1, &status));
}

/* A process of another parent, as a daemon finds it after its own restart. */
static void adopted(void **state)
{
	int pipes[2], fd, status = 0;
	struct tp_proc p;
	pid_t parent, pid;

	(void)state;
	need_call(pidfd_open);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	parent = fork();
	if (parent == 0) {
		pid = sleeper();
		if (write(pipes[1], &pid, sizeof(pid)) != sizeof(pid))
			_exit(1);
		waitpid(pid, &status, 0);
		_exit(0);
	}
	assert_int_equal(read(pipes[0], &pid, sizeof(pid)), sizeof(pid));
	close(pipes[0]);
	close(pipes[1]);
	assert_true(tp_proc_identify(pid, &p, NULL));
	fd = tp_proc_open(&p);
	assert_true(fd >= 0);
	status = 7;
	assert_false(tp_pidfd_wait(fd, &status));
	assert_int_equal(status, 7);
	assert_true(tp_pidfd_kill(fd, SIGKILL));
	await(fd);
	assert_true(tp_pidfd_wait(fd, &status));
	assert_int_equal(status, -1);
	close(fd);
	assert_int_equal(waitpid(parent, &status, 0), parent);
}

/* A host program that ignores SIGCHLD: the kernel reaps. */
static void sigchld_ignored(void **state)
{
	struct tp_proc p;
	pid_t child;
	int fd, status;

	(void)state;
	need_call(pidfd_open);
	signal(SIGCHLD, SIG_IGN);
	child = sleeper();
	assert_true(tp_proc_identify(child, &p, NULL));
	fd = tp_proc_open(&p);
	assert_false(tp_pidfd_wait(fd, &status));
	assert_true(tp_pidfd_kill(fd, SIGKILL));
	await(fd);
	assert_true(tp_pidfd_wait(fd, &status));
	assert_int_equal(status, -1);
	signal(SIGCHLD, SIG_DFL);
	close(fd);
}

/* ---- spawning ---- */

struct told {
	int argc;
	char arg[16];
	unsigned fds;		/* open ones from 4 on */
	dev_t in, out, err;
	bool mask_empty, defaults;
};

static dev_t device_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_rdev : (dev_t)-1;
}

/* The child: tells on descriptor 3 what it has. */
static int child_main(int argc, char **argv)
{
	struct told told = { .argc = argc, .mask_empty = true, .defaults = true };
	struct sigaction action;
	sigset_t mask;
	int i;

	if (strcmp(argv[1], "exit") == 0)
		return 42;
	snprintf(told.arg, sizeof(told.arg), "%s", argv[1]);
	for (i = 4; i < 256; i++)
		told.fds += fcntl(i, F_GETFD) != -1;
	told.in = device_of(STDIN_FILENO);
	told.out = device_of(STDOUT_FILENO);
	told.err = device_of(STDERR_FILENO);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	for (i = 1; i < NSIG; i++) {
		told.mask_empty &= sigismember(&mask, i) != 1;
		/* ASan handles SIGSEGV and its kin in the child. */
		if (i == SIGPIPE || i == SIGTERM || i == SIGCHLD || i == SIGUSR1)
			told.defaults &= sigaction(i, NULL, &action) == 0 &&
					 action.sa_handler == SIG_DFL;
	}
	return write(3, &told, sizeof(told)) != sizeof(told);
}

static void on_signal(int sig)
{
	(void)sig;
}

static int self_exe(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* Under valgrind the child is another program, and its descriptors are not ours to count. */
static bool under_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "vgpreload");
}

/* Spawns with these descriptors; all of them stay as they are here. */
static void spawn_and_ask(int exe, int control, int reader, int err_fd, struct told *told)
{
	char *argv[] = { (char[]){ "mover" }, (char[]){ "tell" }, NULL };
	struct tp_error err = TP_ERROR_INIT;
	int pidfd, status;
	pid_t pid;

	pidfd = tp_spawn(exe, argv, control, err_fd, &pid, &err);
	if (pidfd < 0)
		fail_msg("%s", err.text);
	assert_int_equal(fcntl(pidfd, F_GETFD), FD_CLOEXEC);
	await(reader);
	assert_int_equal(read(reader, told, sizeof(*told)), sizeof(*told));
	await(pidfd);
	assert_true(tp_pidfd_wait(pidfd, &status));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(pidfd);
}

static void check_told(const struct told *told, dev_t err_device)
{
	struct stat null;

	assert_int_equal(stat("/dev/null", &null), 0);
	assert_int_equal(told->argc, 2);
	assert_string_equal(told->arg, "tell");
	if (!under_valgrind())
		assert_int_equal(told->fds, 0);
	assert_true(told->in == null.st_rdev);
	assert_true(told->out == null.st_rdev);
	assert_true(told->err == err_device);
	assert_true(told->mask_empty);
	assert_true(told->defaults);
}

static void spawn_gives_only_what_it_should(void **state)
{
	int exe, s[2], err_fd;
	struct told told;
	sigset_t all, old;

	(void)state;
	need_call(pidfd_open);
	exe = self_exe();
	err_fd = open("/dev/zero", O_WRONLY | O_CLOEXEC);
	assert_true(tp_socketpair(SOCK_STREAM, s, NULL));
	signal(SIGPIPE, SIG_IGN);
	signal(SIGUSR1, on_signal);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	spawn_and_ask(exe, s[1], s[0], err_fd, &told);
	sigprocmask(SIG_SETMASK, &old, NULL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
	check_told(&told, device_of(err_fd));
	spawn_and_ask(exe, s[1], s[0], -1, &told);
	check_told(&told, device_of(STDIN_FILENO) == told.in ? told.in : told.err);
	close(exe);
	close(err_fd);
	close(s[0]);
	close(s[1]);
}

/* Puts a copy of fd at number n, as CLOEXEC as all of ours. */
static void place(int fd, int n)
{
	assert_int_equal(dup3(fd, n, O_CLOEXEC), n);
}

/*
 * The descriptors handed in stand where the child's are to stand, in every order: control at 3
 * already, the program at 3, stderr at 3, and crossed.
 */
static void spawn_with_numbers_that_collide(void **state)
{
	enum { BASE = 50 };
	static const int orders[][3] = {	/* numbers of exe, control, stderr */
		{ 4, 3, 5 }, { 3, 4, 5 }, { 4, 5, 3 }, { 5, 3, 4 }, { 3, 5, 4 }, { 10, 11, 3 },
		{ 12, 3, 10 }, { 3, 10, 11 },
	};
	int exe, s[2], zero, saved[16], n;
	struct told told;
	size_t i;

	(void)state;
	need_call(pidfd_open);
	exe = self_exe();
	zero = open("/dev/zero", O_WRONLY | O_CLOEXEC);
	assert_true(tp_socketpair(SOCK_STREAM, s, NULL));
	place(exe, BASE);
	place(s[0], BASE + 1);
	place(s[1], BASE + 2);
	place(zero, BASE + 3);
	tp_close(&exe);
	tp_close(&s[0]);
	tp_close(&s[1]);
	tp_close(&zero);
	/* What stands at 3 to 12, for example valgrind's or the runner's, is put aside. */
	for (n = 3; n < 13; n++) {
		saved[n] = fcntl(n, F_DUPFD_CLOEXEC, BASE + 10);
		close(n);
	}
	for (i = 0; i < TP_N(orders); i++) {
		place(BASE, orders[i][0]);
		place(BASE + 2, orders[i][1]);
		place(BASE + 3, orders[i][2]);
		spawn_and_ask(orders[i][0], orders[i][1], BASE + 1, orders[i][2], &told);
		check_told(&told, device_of(BASE + 3));
		for (n = 0; n < 3; n++) {
			assert_int_equal(fcntl(orders[i][n], F_GETFD), FD_CLOEXEC);
			close(orders[i][n]);
		}
	}
	for (n = 3; n < 13; n++) {
		if (saved[n] >= 0)
			assert_int_equal(dup2(saved[n], n), n);
		tp_close(&saved[n]);
	}
	for (n = BASE; n < BASE + 4; n++)
		close(n);
}

static void spawn_exit_status(void **state)
{
	char *argv[] = { (char[]){ "mover" }, (char[]){ "exit" }, NULL };
	struct tp_error err = TP_ERROR_INIT;
	int exe, pidfd, status;
	pid_t pid = 0;

	(void)state;
	need_call(pidfd_open);
	exe = self_exe();
	pidfd = tp_spawn(exe, argv, -1, -1, &pid, &err);
	assert_true(pidfd >= 0);
	assert_true(pid > 0);
	await(pidfd);
	assert_true(tp_pidfd_wait(pidfd, &status));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	close(pidfd);
	close(exe);
}

static void spawn_failures(void **state)
{
	char *argv[] = { (char[]){ "mover" }, (char[]){ "exit" }, NULL };
	struct tp_error err = TP_ERROR_INIT;
	pid_t pid = 7;
	int exe, null;

	(void)state;
	need_call(pidfd_open);
	exe = self_exe();
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(tp_spawn(null, argv, -1, -1, &pid, &err), -1);
	assert_failed(&err, TP_ESYS, "start mover: Permission denied");
	assert_int_equal(tp_spawn(-1, argv, -1, -1, &pid, &err), -1);
	assert_failed(&err, TP_EARG, "start mover");
	assert_int_equal(tp_spawn(exe, argv, 1000000, -1, &pid, &err), -1);
	assert_failed(&err, TP_ESYS, "start mover: duplicate a descriptor");
	/* The child runs already when its pidfd cannot be had: it is not left behind. */
	pidfd_open_errno = EMFILE;
	assert_int_equal(tp_spawn(exe, argv, -1, -1, &pid, &err), -1);
	assert_failed(&err, TP_ESYS, "open its pidfd: Too many open files");
	assert_int_equal(pid, 7);
	close(exe);
	close(null);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(boot_id),
		cmocka_unit_test_setup_teardown(start_times, enter, leave),
		cmocka_unit_test_setup_teardown(hostile_name, enter, leave),
		cmocka_unit_test_setup_teardown(identity, enter, leave),
		cmocka_unit_test_setup_teardown(trouble_is_not_gone, enter, leave),
		cmocka_unit_test_setup_teardown(no_descriptor_for_proc, enter, leave),
		cmocka_unit_test_setup_teardown(exit_statuses, enter, leave),
		cmocka_unit_test_setup_teardown(adopted, enter, leave),
		cmocka_unit_test_setup_teardown(sigchld_ignored, enter, leave),
		cmocka_unit_test_setup_teardown(spawn_gives_only_what_it_should, enter, leave),
		cmocka_unit_test_setup_teardown(spawn_with_numbers_that_collide, enter, leave),
		cmocka_unit_test_setup_teardown(spawn_exit_status, enter, leave),
		cmocka_unit_test_setup_teardown(spawn_failures, enter, leave),
	};

	if (argc > 1)
		return child_main(argc, argv);
	/* What the test inherited itself would be inherited by its children. */
	close_range(STDERR_FILENO + 1, 255, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
