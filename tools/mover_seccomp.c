/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_seccomp.c - The system calls of a data job
 *
 * Theory of operation
 *
 * Three answers. What the pumps, libzstd, jansson and the C library's threads
 * need is allowed, as narrow as arguments can tell. What only an attacker asks
 * for (another program, another process) kills the mover: the engine sees a
 * crash, and a crash is handled. All the rest is refused with EPERM, as the C
 * library now and then tries to open a file and does as well without: it reads
 * the number of CPUs or the overcommit policy there.
 *
 * clone3 takes its flags by pointer, which a filter cannot read; ENOSYS makes
 * the C library fall back to clone, where they can be seen to mean a thread.
 * No executable memory can be made.
 */
#include "mover_sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/tp_cleanup.h"

static const int allowed[] = {
	/* Bytes: streams, image, control connection. */
	SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev),
	SCMP_SYS(pread64), SCMP_SYS(pwrite64), SCMP_SYS(preadv), SCMP_SYS(pwritev),
	SCMP_SYS(preadv2), SCMP_SYS(pwritev2), SCMP_SYS(lseek), SCMP_SYS(_llseek),
	SCMP_SYS(recvfrom), SCMP_SYS(sendto), SCMP_SYS(recvmsg), SCMP_SYS(sendmsg),
	SCMP_SYS(recv), SCMP_SYS(send),
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(close),
	SCMP_SYS(getsockopt),
	/* A page server's next engine, at a listening socket that it was given. */
	SCMP_SYS(accept4),
	/* The image's room and safety. */
	SCMP_SYS(fdatasync), SCMP_SYS(fsync), SCMP_SYS(sync_file_range), SCMP_SYS(sync_file_range2),
	SCMP_SYS(fallocate), SCMP_SYS(ftruncate), SCMP_SYS(ftruncate64), SCMP_SYS(fadvise64),
	SCMP_SYS(fstat), SCMP_SYS(fstat64), SCMP_SYS(fstatfs), SCMP_SYS(fstatfs64),
	/* Memory. */
	SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk),
	/* Threads. */
	SCMP_SYS(futex), SCMP_SYS(futex_time64), SCMP_SYS(set_robust_list), SCMP_SYS(rseq),
	SCMP_SYS(set_tid_address), SCMP_SYS(gettid), SCMP_SYS(getpid), SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity), SCMP_SYS(exit), SCMP_SYS(exit_group),
	/* Signals, of our own. */
	SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sigaltstack), SCMP_SYS(restart_syscall),
	/* Time and measures. */
	SCMP_SYS(clock_gettime), SCMP_SYS(clock_gettime64), SCMP_SYS(clock_getres),
	SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep), SCMP_SYS(gettimeofday),
	SCMP_SYS(getrandom), SCMP_SYS(getrusage), SCMP_SYS(sysinfo), SCMP_SYS(uname),
	SCMP_SYS(getpriority),
};

/* Allowed if one argument is right. */
static const struct {
	int call;
	struct scmp_arg_cmp arg;
} narrow[] = {
	{ SCMP_SYS(clone), { 0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD } },
	{ SCMP_SYS(mmap), { 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0 } },
	{ SCMP_SYS(mmap2), { 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0 } },
	{ SCMP_SYS(mprotect), { 2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0 } },
	/* fstat() is spelt so by some versions of the C library. */
	{ SCMP_SYS(newfstatat), { 3, SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH } },
	/* Not F_SETOWN, which sends signals. */
	{ SCMP_SYS(fcntl), { 1, SCMP_CMP_EQ, F_GETFL, 0 } },
	{ SCMP_SYS(fcntl), { 1, SCMP_CMP_EQ, F_SETFL, 0 } },
	{ SCMP_SYS(fcntl64), { 1, SCMP_CMP_EQ, F_GETFL, 0 } },
	{ SCMP_SYS(fcntl64), { 1, SCMP_CMP_EQ, F_SETFL, 0 } },
	{ SCMP_SYS(prctl), { 0, SCMP_CMP_EQ, PR_SET_NAME, 0 } },
	/* Asking for limits, not setting them. */
	{ SCMP_SYS(prlimit64), { 2, SCMP_CMP_EQ, 0, 0 } },
};

static const int fatal[] = {
	SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(fork), SCMP_SYS(vfork),
	SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
	SCMP_SYS(pidfd_getfd), SCMP_SYS(bpf), SCMP_SYS(userfaultfd), SCMP_SYS(io_uring_setup),
};

/* A call that this architecture does not have needs no rule. */
static int rule(scmp_filter_ctx ctx, uint32_t action, int call, unsigned n,
		const struct scmp_arg_cmp *args)
{
	int e = seccomp_rule_add_array(ctx, action, call, n, args);

	return e == -EDOM ? 0 : e;
}

/* clone() is allowed for threads only, and its other uses are fatal. tgkill() is for abort(). */
static int narrow_rules(scmp_filter_ctx ctx)
{
	struct scmp_arg_cmp process = { 0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0 };
	struct scmp_arg_cmp self = { 0, SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0 };
	int e = rule(ctx, SCMP_ACT_KILL_PROCESS, SCMP_SYS(clone), 1, &process);

	if (!e)
		e = rule(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0, NULL);
	if (!e)
		e = rule(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, &self);
	for (size_t i = 0; i < TP_N(narrow) && !e; i++)
		e = rule(ctx, SCMP_ACT_ALLOW, narrow[i].call, 1, &narrow[i].arg);
	return e;
}

static int all_rules(scmp_filter_ctx ctx)
{
	int e = 0;

	for (size_t i = 0; i < TP_N(allowed) && !e; i++)
		e = rule(ctx, SCMP_ACT_ALLOW, allowed[i], 0, NULL);
	for (size_t i = 0; i < TP_N(fatal) && !e; i++)
		e = rule(ctx, SCMP_ACT_KILL_PROCESS, fatal[i], 0, NULL);
	return e ? e : narrow_rules(ctx);
}

bool mover_sandbox_seccomp(struct tp_error *err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int e;

	if (!ctx)
		return tp_fail_nomem(err);
	/* 32-bit calls and the like: nobody here makes them. */
	e = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (!e)
		e = all_rules(ctx);
	if (!e)
		e = seccomp_load(ctx);
	seccomp_release(ctx);
	return e ? tp_fail_sys(err, -e, "load the mover's system call filter") : true;
}
