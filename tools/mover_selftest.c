/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_selftest.c - Job selftest-sandbox: tries what is forbidden, from inside (TP_FAULTS only)
 *
 * {"attempt": NAME}; done: {"errno": N}, 0 if it was possible. Some attempts
 * kill the process: then there is no answer. One attempt a process, as an
 * attempt that succeeds may spoil the next.
 */
#include "mover_fault.h"

#ifdef TP_FAULTS

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "mover_jobs.h"

static long try_open(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static long try_create(void)
{
	return open("/tmp/torpor-selftest", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

static long try_unlink(void)
{
	return unlink("/tmp/torpor-selftest");
}

static long try_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* On a descriptor that is there, as if a socket had been made before. */
static long try_connect(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "/run/torpor/torpor.sock" };

	return connect(3, (struct sockaddr *)&a, sizeof(a));
}

static long try_execve(void)
{
	static char path[] = "/bin/true";
	char *argv[] = { path, NULL }, *envp[] = { NULL };

	return execve(path, argv, envp);
}

/* Like fork(): a child that got away must not run on in here. */
static long try_fork(void)
{
	long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0)
		_exit(0);
	return pid;
}

static long try_clone3(void)
{
	struct { uint64_t words[8]; } args = { { 0, 0, 0, 0, SIGCHLD, 0, 0, 0 } };
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		_exit(0);
	return pid;
}

static long try_ptrace(void)
{
	return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static long try_kill(void)
{
	return kill(getppid(), 0);
}

static long try_tgkill(void)
{
	return syscall(SYS_tgkill, getppid(), getppid(), 0);
}

static long try_setrlimit(void)
{
	struct rlimit r = { RLIM_INFINITY, RLIM_INFINITY };

	return setrlimit(RLIMIT_FSIZE, &r);
}

static long try_dumpable(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static long try_mmap_exec(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
	       MAP_FAILED ? -1 : 0;
}

static long try_setuid(void)
{
	return setuid(65534);
}

static long try_mount(void)
{
	return syscall(SYS_unshare, CLONE_NEWNS);
}

static const struct {
	const char *name;
	long (*call)(void);
} attempts[] = {
	{ "open", try_open }, { "create", try_create }, { "unlink", try_unlink },
	{ "socket", try_socket }, { "connect", try_connect }, { "execve", try_execve },
	{ "fork", try_fork }, { "clone3", try_clone3 }, { "ptrace", try_ptrace },
	{ "kill", try_kill }, { "tgkill", try_tgkill }, { "setrlimit", try_setrlimit },
	{ "dumpable", try_dumpable }, { "mmap-exec", try_mmap_exec }, { "setuid", try_setuid },
	{ "unshare", try_mount },
};

void job_selftest_sandbox(const struct mover_request *r, struct control *c)
{
	const char *name = tp_json_str(r->root, "attempt");
	struct tp_error err = TP_ERROR_INIT;

	for (size_t i = 0; name && i < TP_N(attempts); i++) {
		if (strcmp(attempts[i].name, name) != 0)
			continue;
		/* The hello first: a death is then the attempt's. */
		job_settle(c, 10000);
		errno = 0;
		job_done(c, json_pack("{s:i}", "errno", attempts[i].call() < 0 ? errno : 0));
	}
	tp_fail(&err, TP_EARG, "no such attempt");
	job_fail(c, &err);
}

#endif
