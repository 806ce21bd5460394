/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_proc.c - Processes named by pid, start time and boot id; pidfds; spawning */
#include "tp_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tp_cleanup.h"
#include "tp_fs.h"
#include "tp_json.h"

/* comm has 16 bytes and the rest is numbers. */
#define STAT_MAX 4096
/* Fields between the one behind ")" (3, state) and the start time (22). */
#define START_FIELD 19
#define CONTROL_FD 3
/* Copies for the child lie above every number that it is given. */
#define SPAWN_FD_MIN 10

static bool read_boot_id(char id[TP_BOOT_ID])
{
	tp_autofree char *text = tp_read_path("/proc/sys/kernel/random/boot_id", STAT_MAX, NULL, NULL);
	size_t n = text ? strcspn(text, "\n") : 0;

	if (n == 0 || n >= TP_BOOT_ID)
		return false;
	memcpy(id, text, n);
	id[n] = 0;
	return true;
}

const char *tp_boot_id(void)
{
	enum { UNREAD, READING, READ };
	static char id[TP_BOOT_ID];
	static atomic_int state = UNREAD;
	int expected = UNREAD;

	if (atomic_load(&state) == READ)
		return id;
	if (atomic_compare_exchange_strong(&state, &expected, READING)) {
		bool ok = read_boot_id(id);

		atomic_store(&state, ok ? READ : UNREAD);
		return ok ? id : "";
	}
	while (atomic_load(&state) == READING)
		sched_yield();
	return atomic_load(&state) == READ ? id : "";
}

/* Field 22 of a stat line. The name in field 2 may hold blanks and brackets. */
static bool stat_start(const char *text, uint64_t *start)
{
	const char *p = strrchr(text, ')');
	char *end;
	int i;

	for (i = 0; p && i <= START_FIELD; i++)
		p = strchr(p + 1, ' ');
	if (!p || p[1] < '0' || p[1] > '9')
		return false;
	errno = 0;
	*start = strtoull(p + 1, &end, 10);
	return errno == 0 && *end == ' ';
}

bool tp_proc_start(pid_t pid, uint64_t *start)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *text = NULL;
	char path[64];
	uint64_t found;

	if (pid <= 0) {
		errno = ESRCH;
		return false;
	}
	snprintf(path, sizeof(path), "/proc/%jd/stat", (intmax_t)pid);
	text = tp_read_path(path, STAT_MAX, NULL, &why);
	if (!text) {
		errno = why.sys == ENOENT ? ESRCH : why.sys ? why.sys : EIO;
		return false;
	}
	if (!stat_start(text, &found)) {
		errno = EIO;
		return false;
	}
	*start = found;
	return true;
}

bool tp_proc_identify(pid_t pid, struct tp_proc *p, struct tp_error *err)
{
	struct tp_proc found = { .pid = pid };

	if (!tp_proc_start(pid, &found.start))
		return tp_fail_sys(err, errno, "read the start time of process %jd", (intmax_t)pid);
	memcpy(found.boot, tp_boot_id(), strlen(tp_boot_id()) + 1);
	if (!found.boot[0])
		return tp_fail(err, TP_ESYS, "the kernel gives no boot id (is /proc mounted?)");
	*p = found;
	return true;
}

static int pidfd_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

json_t *tp_proc_json(const struct tp_proc *p)
{
	return json_pack("{s:i, s:I, s:s}", "pid", (int)p->pid, "start", (json_int_t)p->start, "boot", p->boot);
}

bool tp_proc_of_json(const json_t *record, struct tp_proc *p)
{
	const char *boot = tp_json_str(record, "boot");

	*p = (struct tp_proc){ .pid = (pid_t)tp_json_int(record, "pid", 0),
			       .start = (uint64_t)tp_json_int(record, "start", 0) };
	if (boot)
		snprintf(p->boot, sizeof(p->boot), "%s", boot);
	return p->pid > 0;
}

int tp_proc_open(const struct tp_proc *p)
{
	tp_autoclose int fd = -1;
	uint64_t start;

	errno = ESRCH;
	if (p->pid <= 0)
		return -1;
	if (!tp_boot_id()[0]) {
		errno = EIO;
		return -1;
	}
	if (strncmp(p->boot, tp_boot_id(), TP_BOOT_ID) != 0) {
		errno = ESRCH;
		return -1;
	}
	fd = pidfd_open(p->pid);
	if (fd < 0) {
		/* The number of a thread, no process: reused as well. */
		if (errno == EINVAL || errno == ENOENT)
			errno = ESRCH;
		return -1;
	}
	if (!tp_proc_start(p->pid, &start))
		return -1;
	if (start != p->start) {
		errno = ESRCH;
		return -1;
	}
	return TP_STEAL_FD(fd);
}

bool tp_pidfd_kill(int pidfd, int sig)
{
	return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) == 0;
}

/* The status word of waitpid(2). */
static int status_of(const siginfo_t *info)
{
	switch (info->si_code) {
	case CLD_EXITED:
		return W_EXITCODE(info->si_status & 0xff, 0);
	case CLD_DUMPED:
		return info->si_status | WCOREFLAG;
	default:
		return info->si_status;
	}
}

bool tp_pidfd_wait(int pidfd, int *status)
{
	struct pollfd pfd = { .fd = pidfd, .events = POLLIN };
	siginfo_t info = { 0 };

	if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) == 0) {
		if (info.si_pid == 0)
			return false;
		*status = status_of(&info);
		return true;
	}
	/* No child of ours, or reaped already (also by a host that ignores SIGCHLD). */
	if (errno != ECHILD || poll(&pfd, 1, 0) != 1 || !(pfd.revents & (POLLIN | POLLHUP)))
		return false;
	*status = -1;
	return true;
}

/* A copy that no file action of the child can hit. */
static bool copy_high(int fd, int *copy, struct tp_error *err)
{
	if (fd < 0)
		return true;
	*copy = fcntl(fd, F_DUPFD_CLOEXEC, SPAWN_FD_MIN);
	return *copy >= 0 || tp_fail_sys(err, errno, "duplicate a descriptor");
}

/* All functions used here give an errno, and 0 for success. */
static int set_actions(posix_spawn_file_actions_t *a, int control, int err_fd)
{
	int rc = posix_spawn_file_actions_addopen(a, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (rc == 0)
		rc = posix_spawn_file_actions_addopen(a, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	if (rc == 0 && err_fd < 0)
		rc = posix_spawn_file_actions_addopen(a, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	else if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(a, err_fd, STDERR_FILENO);
	if (rc == 0 && control >= 0)
		rc = posix_spawn_file_actions_adddup2(a, control, CONTROL_FD);
	return rc;
}

static int set_attributes(posix_spawnattr_t *attr)
{
	sigset_t all, none;
	int rc;

	sigfillset(&all);
	sigemptyset(&none);
	rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	if (rc == 0)
		rc = posix_spawnattr_setsigdefault(attr, &all);
	if (rc == 0)
		rc = posix_spawnattr_setsigmask(attr, &none);
	return rc;
}

static int spawn_with(int exe, char *const argv[], int control, int err_fd, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	char path[64];
	int rc;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", exe);
	rc = posix_spawn_file_actions_init(&actions);
	if (rc != 0)
		return rc;
	rc = posix_spawnattr_init(&attr);
	if (rc == 0) {
		rc = set_actions(&actions, control, err_fd);
		if (rc == 0)
			rc = set_attributes(&attr);
		if (rc == 0)
			rc = posix_spawn(pid, path, &actions, &attr, argv, environ);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

int tp_spawn(int exe_fd, char *const argv[], int control_fd, int stderr_fd, pid_t *pid,
	     struct tp_error *err)
{
	tp_autoclose int exe = -1, control = -1, err_fd = -1;
	int rc, pidfd, status;
	pid_t child;

	if (exe_fd < 0)
		return tp_fail(err, TP_EARG, "start %s: no program", argv[0]), -1;
	if (!copy_high(exe_fd, &exe, err) || !copy_high(control_fd, &control, err) ||
	    !copy_high(stderr_fd, &err_fd, err))
		return tp_prefix(err, "start %s", argv[0]), -1;
	rc = spawn_with(exe, argv, control, err_fd, &child);
	if (rc != 0)
		return tp_fail_sys(err, rc, "start %s", argv[0]), -1;
	pidfd = pidfd_open(child);
	if (pidfd < 0) {
		tp_fail_sys(err, errno, "start %s: open its pidfd", argv[0]);
		/* Not reaped yet, so the number is still its own; at once, as it is being killed. */
		kill(child, SIGKILL);
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		return -1;
	}
	*pid = child;
	return pidfd;
}
