/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_fault.c - Faults at exact places, for the test suite (builds with TP_FAULTS only) */
#include "mover_fault.h"

#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"

#ifdef TP_FAULTS

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mover_jobs.h"

enum fault { NO_FAULT, DIE_HELLO, DIE_SEALED, DIE_BYTES, STALL_BYTES, IO_ERROR_BYTES };

static const struct {
	const char *name;
	bool bytes;
	enum fault fault;
} faults[] = {
	{ "die-after-hello", false, DIE_HELLO },
	{ "die-after-sealed", false, DIE_SEALED },
	{ "die-at-bytes:", true, DIE_BYTES },
	{ "stall-at-bytes:", true, STALL_BYTES },
	{ "io-error-at-bytes:", true, IO_ERROR_BYTES },
};

static enum fault wanted;
static uint64_t wanted_bytes;
static atomic_bool io_error_due;

/* Only the thread group itself may be signalled from within the sandbox. */
static void die(void)
{
	syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), SIGKILL);
	_exit(99);
}

static bool parse(const char *text)
{
	for (size_t i = 0; i < TP_N(faults); i++) {
		size_t n = strlen(faults[i].name);
		char *end = NULL;

		if (strncmp(text, faults[i].name, n) != 0)
			continue;
		wanted = faults[i].fault;
		if (!faults[i].bytes)
			return !text[n];
		wanted_bytes = strtoull(text + n, &end, 10);
		return end != text + n && !*end;
	}
	return false;
}

bool fault_setup(const struct mover_request *r, struct tp_error *err)
{
	const char *text = tp_json_str(r->root, "fault");
	struct rlimit limit;

	if (!text)
		return true;
	if (!parse(text))
		return tp_fail(err, TP_EARG, "mover request: no fault \"%s\"", text);
	/* The kernel makes the write that crosses it short and the next one fail. */
	limit = (struct rlimit){ wanted_bytes, wanted_bytes };
	if (wanted == IO_ERROR_BYTES && (!strcmp(r->job, "save") || !strcmp(r->job, "copy")) &&
	    setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return tp_fail_sys(err, errno, "set the limit of file size");
	return true;
}

void fault_hello(struct control *c)
{
	if (wanted != DIE_HELLO)
		return;
	job_settle(c, 10000);
	die();
}

void fault_sealed(struct control *c)
{
	if (wanted != DIE_SEALED)
		return;
	job_settle(c, 10000);
	die();
}

void fault_bytes(uint64_t done)
{
	if (done < wanted_bytes)
		return;
	if (wanted == DIE_BYTES)
		die();
	while (wanted == STALL_BYTES)
		poll(NULL, 0, -1);
	if (wanted == IO_ERROR_BYTES)
		io_error_due = true;
}

bool fault_io_error(void)
{
	return io_error_due;
}

#else

bool fault_setup(const struct mover_request *r, struct tp_error *err)
{
	if (json_object_get(r->root, "fault"))
		return tp_fail(err, TP_EARG, "mover request: built without fault points");
	return true;
}

#endif
