/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_mover_sandbox.c - What a data job cannot do, stage by stage and in the real program */
#include "mover_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "mover_sandbox.h"

#define KILLED (-1)

/* Runs fn in a child; its answer, 0..255, or KILLED by SIGSYS. */
static int in_child(int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		return KILLED;
	if (!WIFEXITED(status))
		fail_msg("wait status 0x%x", (unsigned)status);
	return WEXITSTATUS(status);
}

/* ---------------------------------------------------------------- privileges */

static int privileges(void)
{
	char line[128];
	int good = 0;
	FILE *f;

	if (!mover_sandbox_privileges(NULL))
		return 100;
	if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return 101;
	f = fopen("/proc/thread-self/status", "re");
	if (!f)
		return 102;
	while (fgets(line, sizeof(line), f))
		good += !strncmp(line, "Cap", 3) && strncmp(line, "CapBnd", 6) != 0 &&
			!!strstr(line, ":\t0000000000000000\n");
	fclose(f);
	/* Inheritable, permitted, effective, ambient. */
	return good;
}

static void privileges_are_gone(void **state)
{
	(void)state;
	assert_int_equal(in_child(privileges), 4);
}

/* ---------------------------------------------------------------- landlock alone */

static int under_landlock(int (*attempt)(void))
{
	int abi;

	if (!mover_sandbox_privileges(NULL) || !mover_sandbox_landlock(&abi, NULL))
		return 200;
	if (abi < 1)
		return 201;
	return attempt();
}

static int open_file(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
}

static int make_file(void)
{
	return open("/tmp/torpor-landlock", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0 ? errno : 0;
}

static int list_folder(void)
{
	return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 ? errno : 0;
}

static int run_program(void)
{
	static char path[] = "/bin/true";
	char *argv[] = { path, NULL };

	execv(path, argv);
	return errno;
}

static int kill_parent(void)
{
	return kill(getppid(), 0) < 0 ? errno : 0;
}

static int connect_tcp(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(1),
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? errno : 0;
}

#define LANDLOCK_CASE(name) \
	static int landlock_##name(void) \
	{ \
		return under_landlock(name); \
	}
LANDLOCK_CASE(open_file)
LANDLOCK_CASE(make_file)
LANDLOCK_CASE(list_folder)
LANDLOCK_CASE(run_program)
LANDLOCK_CASE(kill_parent)
LANDLOCK_CASE(connect_tcp)

static void landlock_refuses_paths_and_more(void **state)
{
	int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1u);

	(void)state;
	if (abi < 1)
		skip();
	assert_int_equal(in_child(landlock_open_file), EACCES);
	assert_int_equal(in_child(landlock_make_file), EACCES);
	assert_int_equal(in_child(landlock_list_folder), EACCES);
	assert_int_equal(in_child(landlock_run_program), EACCES);
	if (abi >= 4)
		assert_int_equal(in_child(landlock_connect_tcp), EACCES);
	if (abi >= 6)
		assert_int_equal(in_child(landlock_kill_parent), EPERM);
}

/* ---------------------------------------------------------------- the system call filter */

static int use_memory_and_time(void)
{
	char *p = malloc(8 << 20);
	struct rusage usage;
	struct rlimit limit;

	if (!p)
		return 1;
	memset(p, 1, 8 << 20);
	p = realloc(p, 64 << 20);
	free(p);
	if (getrusage(RUSAGE_SELF, &usage) < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 2;
	return poll(NULL, 0, 1) == 0 && tp_now_mono() > 0 ? 0 : 3;
}

static void *thread_main(void *arg)
{
	*(int *)arg = use_memory_and_time();
	return NULL;
}

static int use_all_that_is_needed(void)
{
	int file = memfd_create("f", MFD_CLOEXEC), pair[2], status[8];
	struct iovec iov = { status, sizeof(status) };
	pthread_t threads[8];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || !mover_sandbox_seccomp(NULL))
		return 100;
	for (int i = 0; i < 8; i++)
		if (pthread_create(&threads[i], NULL, thread_main, &status[i]) != 0)
			return 101;
	for (int i = 0; i < 8; i++)
		if (pthread_join(threads[i], NULL) != 0 || status[i] != 0)
			return 102;
	if (pwrite(file, "x", 1, 0) != 1 || pwritev(file, &iov, 1, 0) != sizeof(status) ||
	    pread(file, status, 1, 0) != 1 || ftruncate(file, 10) < 0 || fdatasync(file) < 0 ||
	    fsync(file) < 0 || lseek(file, 0, SEEK_END) != 10)
		return 103;
	if (send(pair[0], "x", 1, MSG_NOSIGNAL) != 1 || recv(pair[1], status, 1, MSG_DONTWAIT) != 1 ||
	    fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0 || close(pair[0]) < 0)
		return 104;
	return use_memory_and_time();
}

static void filter_lets_the_pumps_work(void **state)
{
	(void)state;
	assert_int_equal(in_child(use_all_that_is_needed), 0);
}

static int after_filter(int (*attempt)(void))
{
	if (!mover_sandbox_seccomp(NULL))
		return 100;
	return attempt();
}

static int make_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0 ? errno : 0;
}

static int read_other(void)
{
	char c;
	struct iovec here = { &c, 1 }, there = { &c, 1 };

	return process_vm_readv(getppid(), &here, 1, &there, 1, 0) < 0 ? errno : 0;
}

static int set_owner(void)
{
	return fcntl(2, F_SETOWN, getppid()) < 0 ? errno : 0;
}

static int stat_by_path(void)
{
	struct stat st;

	return syscall(SYS_newfstatat, AT_FDCWD, "/etc", &st, 0) < 0 ? errno : 0;
}

static int vfork_child(void)
{
	return syscall(SYS_vfork) < 0 ? errno : 0;
}

#define FILTER_CASE(name) \
	static int filter_##name(void) \
	{ \
		return after_filter(name); \
	}
FILTER_CASE(open_file)
FILTER_CASE(run_program)
FILTER_CASE(kill_parent)
FILTER_CASE(make_socket)
FILTER_CASE(read_other)
FILTER_CASE(set_owner)
FILTER_CASE(stat_by_path)
FILTER_CASE(vfork_child)

static void filter_refuses_or_kills(void **state)
{
	(void)state;
	assert_int_equal(in_child(filter_open_file), EPERM);
	assert_int_equal(in_child(filter_kill_parent), EPERM);
	assert_int_equal(in_child(filter_make_socket), EPERM);
	assert_int_equal(in_child(filter_set_owner), EPERM);
	assert_int_equal(in_child(filter_stat_by_path), EPERM);
	assert_int_equal(in_child(filter_run_program), KILLED);
	assert_int_equal(in_child(filter_read_other), KILLED);
	assert_int_equal(in_child(filter_vfork_child), KILLED);
}

/* ---------------------------------------------------------------- the real program */

static void hello_names_the_stages(void **state)
{
	int image = memfd_create("image", MFD_CLOEXEC);
	tp_autojson json_t *hello = NULL;
	const json_t *stages;
	struct mover_peer p;

	(void)state;
	start_job(&p, "verify", "image", &image, 1, NULL);
	hello = mover_peer_expect(&p, "hello");
	stages = json_object_get(hello, "sandbox");
	assert_string_equal(json_string_value(json_array_get(stages, 0)), "privileges");
	assert_string_equal(json_string_value(json_array_get(stages, json_array_size(stages) - 1)),
			    "seccomp");
	assert_job_error(&p, "Corrupt", "", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	close(image);
}

#ifdef TP_FAULTS
static void assert_attempt(const char *name, int answer)
{
	tp_autojson json_t *done = NULL;
	struct mover_peer p;
	int status;

	start_job(&p, "selftest-sandbox", "", NULL, 0, json_pack("{s:s}", "attempt", name));
	assert_hello(&p);
	if (answer != KILLED) {
		done = mover_peer_expect(&p, "done");
		if (!done || tp_json_int(done, "errno", 0) != answer)
			fail_msg("%s: errno %d", name, (int)tp_json_int(done, "errno", -1));
		assert_exit(mover_peer_wait(&p), 0);
	} else {
		status = mover_peer_wait(&p);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("%s: wait status 0x%x", name, (unsigned)status);
	}
	mover_peer_free(&p);
}

static void nothing_is_possible_from_inside(void **state)
{
	static const struct {
		const char *name;
		int answer;
	} attempts[] = {
		{ "open", EPERM }, { "create", EPERM }, { "unlink", EPERM }, { "socket", EPERM },
		{ "connect", EPERM }, { "kill", EPERM }, { "tgkill", EPERM },
		{ "setrlimit", EPERM }, { "dumpable", EPERM }, { "mmap-exec", EPERM },
		{ "setuid", EPERM }, { "unshare", EPERM }, { "clone3", ENOSYS },
		{ "execve", KILLED }, { "fork", KILLED }, { "ptrace", KILLED },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(attempts); i++)
		assert_attempt(attempts[i].name, attempts[i].answer);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(privileges_are_gone),
		cmocka_unit_test(landlock_refuses_paths_and_more),
		cmocka_unit_test(filter_lets_the_pumps_work),
		cmocka_unit_test(filter_refuses_or_kills),
		cmocka_unit_test(hello_names_the_stages),
#ifdef TP_FAULTS
		cmocka_unit_test(nothing_is_possible_from_inside),
#endif
	};

	return run_mover_tests("mover_sandbox", tests, TP_N(tests));
}
