/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torpor-mover.c - The one program that the engine starts: moves memory images, runs QEMU and tools
 *
 * Theory of operation
 *
 * Descriptor 3 is the control connection; the first message on it names the
 * job and brings its descriptors (migration/mover_proto.h). What the engine
 * left open by mistake is closed before anything else.
 *
 * launch, hook, tool   stay single-threaded and become another program
 *                      (mover_exec.c).
 * save, load, verify,  read what a guest or a stranger made: they enter the
 * copy, page-server    sandbox (mover_sandbox.c) before the first byte of it,
 *                      say hello and run with the control thread
 *                      (mover_control.c) beside them.
 *
 * Whatever goes wrong is one {"error"} on the control connection. stderr is
 * only for people who start the program by hand, and for crashes.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "migration/mover_proto.h"
#include "mover_control.h"
#include "mover_exec.h"
#include "mover_fault.h"
#include "mover_jobs.h"
#include "mover_request.h"
#include "mover_sandbox.h"

#define REQUEST_WAIT_MS 30000	/* the engine sends it together with the start */
#define EXIT_USAGE 2

/*
 * @fds: exactly these descriptors
 * @run: NULL: the job is another program
 * @priority: without "background"
 */
struct job {
	const char *name;
	const char *fds[4];
	void (*run)(const struct mover_request *r, struct control *c);
	enum mover_priority priority;
};

static const struct job jobs[] = {
	{ "save", { "stream", "image" }, job_save, MOVER_URGENT },
	{ "load", { "stream", "image" }, job_load, MOVER_URGENT },
	{ "page-server", { "?stream", "image", "listener" }, job_page_server, MOVER_GUEST },
	{ "verify", { "image" }, job_verify, MOVER_URGENT },
	{ "copy", { "source", "image" }, job_copy, MOVER_URGENT },
	{ "launch", { NULL }, NULL, MOVER_URGENT },
	{ "hook", { NULL }, NULL, MOVER_URGENT },
	{ "tool", { NULL }, NULL, MOVER_URGENT },
#ifdef TP_FAULTS
	{ "selftest-sandbox", { NULL }, job_selftest_sandbox, MOVER_URGENT },
#endif
};

static int usage(FILE *out, int status)
{
	fputs("torpor-mover is started by torpord and does nothing when run by hand.\n"
	      "Options: --help, --version\n", out);
	return status;
}

static int send_error(const struct tp_error *e, int status)
{
	tp_autojson json_t *message = mover_proto_error(e);

	if (message)
		mover_proto_send(MOVER_CONTROL_FD, message, NULL, 0, NULL);
	return status;
}

static json_t *hello(json_t *sandbox_owned)
{
	return json_pack("{s:{s:i, s:s, s:i, s:o}}", "hello", "protocol", MOVER_PROTOCOL, "version",
			 TP_VERSION, "pid", (int)getpid(), "sandbox", sandbox_owned);
}

/* A sealed save must not get the signals of the engine's terminal, and no write shall kill. */
static void detach(void)
{
	setsid();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

/*
 * Never returns, and ends by _exit(): from the first stage of the sandbox on, destructors of
 * sanitizers would do forbidden things.
 */
static void run_sandboxed(const struct job *job, const struct mover_request *r, struct control *c)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *sandbox = mover_sandbox_enter(&err);

	if (sandbox) {
		control_post(c, hello(sandbox));
		if (control_start(c, &err)) {
			fault_hello(c);
			job->run(r, c);
		}
	}
	_exit(send_error(&err, MOVER_EXIT_ERROR));
}

/* Returns only to report an error. */
static void run_data_job(const struct job *job, const struct mover_request *r, struct tp_error *err)
{
	const char *cgroup = tp_json_str(r->root, "cgroup");
	bool background;
	struct control *c;

	if (!mover_request_expect(r, job->fds, err) || !fault_setup(r, err) ||
	    !mover_request_bool(r, "background", false, &background, err))
		return;
	if (cgroup && !mover_join_cgroup(cgroup, err))
		return;
	detach();
	mover_priority_set(background ? MOVER_BACKGROUND : job->priority);
	c = control_open(MOVER_CONTROL_FD, err);
	if (c)
		run_sandboxed(job, r, c);
}

static const struct job *find_job(const char *name)
{
	for (size_t i = 0; i < TP_N(jobs); i++)
		if (!strcmp(jobs[i].name, name))
			return &jobs[i];
	return NULL;
}

static int run_request(struct mover_request *r)
{
	struct tp_error err = TP_ERROR_INIT;
	const struct job *job;

	if (!mover_request_receive(MOVER_CONTROL_FD, r, &err))
		return send_error(&err, MOVER_EXIT_ERROR);
	job = find_job(r->job);
	if (!job) {
		tp_fail(&err, TP_EUNSUPPORTED, "mover knows no job \"%s\"", r->job);
		return send_error(&err, MOVER_EXIT_ERROR);
	}
	if (!job->run) {
		mover_exec(r, &err);
		return send_error(&err, MOVER_EXIT_EXEC);
	}
	run_data_job(job, r, &err);
	return send_error(&err, MOVER_EXIT_ERROR);
}

static bool control_is_there(void)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return getsockopt(MOVER_CONTROL_FD, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       type == SOCK_SEQPACKET;
}

int main(int argc, char **argv)
{
	struct mover_request r = MOVER_REQUEST_INIT;
	struct pollfd pfd = { .fd = MOVER_CONTROL_FD, .events = POLLIN };
	int status;

	if (argc == 2 && !strcmp(argv[1], "--help"))
		return usage(stdout, 0);
	if (argc == 2 && !strcmp(argv[1], "--version"))
		return puts("torpor-mover " TP_VERSION) < 0;
	if (!control_is_there())
		return usage(stderr, EXIT_USAGE);
	if (close_range(MOVER_CONTROL_FD + 1, ~0u, 0) < 0) {
		fprintf(stderr, "torpor-mover: close_range: %s\n", strerror(errno));
		return MOVER_EXIT_ERROR;
	}
	if (poll(&pfd, 1, REQUEST_WAIT_MS) <= 0)
		return MOVER_EXIT_ORPHAN;
	status = run_request(&r);
	mover_request_free(&r);
	return status;
}
