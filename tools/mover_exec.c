/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_exec.c - Jobs launch, hook and tool: this process becomes another program
 *
 * Theory of operation
 *
 * All memory is allocated and all of the request checked first, then the
 * process is changed step by step and in an order in which each step still has
 * the rights it needs: cgroup, OOM score, limits and the device node of a lazy
 * restore as root; groups, gid, uid; then, with the program's own rights, folder
 * and program. The device node is a wish: without it the program runs as well.
 *
 * Descriptors: those received have any numbers, also ones that another of them
 * is to get. So all are moved above the highest wanted number first, everything
 * from 4 on becomes close-on-exec, and only then each is duplicated to its
 * number, which makes the duplicate survive exec. The control connection stays
 * at 3 and close-on-exec: the engine reads EOF if and only if exec happened or
 * the process died.
 */
#include "mover_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "migration/mover_proto.h"
#include "mover_view.h"

#define ARGS_MAX 4096
#define GROUPS_MAX 64
#define ID_MAX (UINT32_MAX - 1)		/* -1 means "leave it" to the kernel */
#define NOFILE_MAX (1u << 30)
#define MOVED_FIRST (MOVER_INHERIT_LAST + 1)
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/*
 * @targets: number that r->fds[i] gets
 * @score: text for oom_score_adj, "" for none
 * @uffd_uid: who is to open /dev/userfaultfd, if @wants_uffd
 */
struct program {
	char **argv, **envp;
	const char *path;		/* PATH of its own environment */
	const char *cwd, *cgroup;
	bool has_uid, has_gid, has_groups, wants_uffd;
	uid_t uid, uffd_uid;
	gid_t gid, groups[GROUPS_MAX];
	size_t ngroups;
	uint64_t nofile;		/* 0: as it is */
	char score[16];
	int targets[TP_MAX_FDS];
};

static void program_free(struct program *p)
{
	for (size_t i = 0; p->argv && p->argv[i]; i++)
		free(p->argv[i]);
	for (size_t i = 0; p->envp && p->envp[i]; i++)
		free(p->envp[i]);
	free(p->argv);
	free(p->envp);
}

static bool refuse(struct tp_error *err, const char *key, const char *what)
{
	return tp_fail(err, TP_EARG, "mover request: \"%s\" %s", key, what);
}

/* ---------------------------------------------------------------- description */

static bool read_argv(struct program *p, const json_t *root, struct tp_error *err)
{
	const json_t *argv = json_object_get(root, "argv");
	size_t n = json_array_size(argv);

	if (!json_is_array(argv) || n == 0 || n > ARGS_MAX)
		return refuse(err, "argv", "is no array of 1 to 4096 strings");
	p->argv = calloc(n + 1, sizeof(*p->argv));
	if (!p->argv)
		return tp_fail_nomem(err);
	for (size_t i = 0; i < n; i++) {
		const char *arg = json_string_value(json_array_get(argv, i));

		if (!arg)
			return refuse(err, "argv", "holds something else than strings");
		p->argv[i] = strdup(arg);
		if (!p->argv[i])
			return tp_fail_nomem(err);
	}
	return p->argv[0][0] ? true : refuse(err, "argv", "begins with an empty string");
}

static bool read_env(struct program *p, json_t *root, struct tp_error *err)
{
	json_t *env = json_object_get(root, "env");
	const char *name;
	json_t *value;
	size_t n = 0;

	if (!json_is_object(env))
		return refuse(err, "env", "is no object");
	p->envp = calloc(json_object_size(env) + 1, sizeof(*p->envp));
	if (!p->envp)
		return tp_fail_nomem(err);
	p->path = DEFAULT_PATH;
	json_object_foreach(env, name, value) {
		if (!*name || strchr(name, '=') || !json_is_string(value))
			return refuse(err, "env", "holds something else than names and strings");
		if (asprintf(&p->envp[n], "%s=%s", name, json_string_value(value)) < 0) {
			p->envp[n] = NULL;
			return tp_fail_nomem(err);
		}
		n++;
		if (!strcmp(name, "PATH"))
			p->path = json_string_value(value);
	}
	return true;
}

static bool read_id(const struct mover_request *r, const char *key, bool *has, uint32_t *id,
		    struct tp_error *err)
{
	uint64_t value;

	*has = json_object_get(r->root, key) != NULL;
	if (!mover_request_number(r, key, 0, ID_MAX, &value, err))
		return false;
	*id = (uint32_t)value;
	return true;
}

static bool read_user(struct program *p, const struct mover_request *r, struct tp_error *err)
{
	const json_t *groups = json_object_get(r->root, "groups");

	if (!read_id(r, "uid", &p->has_uid, &p->uid, err) ||
	    !read_id(r, "gid", &p->has_gid, &p->gid, err))
		return false;
	p->has_groups = groups != NULL;
	p->ngroups = json_array_size(groups);
	if (groups && (!json_is_array(groups) || p->ngroups > GROUPS_MAX))
		return refuse(err, "groups", "is no array of at most 64 numbers");
	for (size_t i = 0; i < p->ngroups; i++) {
		const json_t *v = json_array_get(groups, i);

		if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		    json_integer_value(v) > (json_int_t)ID_MAX)
			return refuse(err, "groups", "holds something else than group numbers");
		p->groups[i] = (gid_t)json_integer_value(v);
	}
	return true;
}

static bool read_path(const char **path, const json_t *root, const char *key, struct tp_error *err)
{
	const json_t *v = json_object_get(root, key);

	*path = json_string_value(v);
	if (v && (!*path || **path != '/'))
		return refuse(err, key, "is no absolute path");
	return true;
}

static bool read_view(struct program *p, const struct mover_request *r, struct tp_error *err)
{
	if (!read_id(r, "userfaultfd", &p->wants_uffd, &p->uffd_uid, err))
		return false;
	return !p->wants_uffd || p->cwd || refuse(err, "userfaultfd", "needs \"cwd\"");
}

static bool read_limits(struct program *p, const struct mover_request *r, struct tp_error *err)
{
	const json_t *score = json_object_get(r->root, "oom-score-adj");

	if (!mover_request_number(r, "nofile", 0, NOFILE_MAX, &p->nofile, err))
		return false;
	if (!score)
		return true;
	if (!json_is_integer(score) || json_integer_value(score) < -1000 ||
	    json_integer_value(score) > 1000)
		return refuse(err, "oom-score-adj", "is no number from -1000 to 1000");
	snprintf(p->score, sizeof(p->score), "%d", (int)json_integer_value(score));
	return true;
}

/* The number a descriptor is to get: a standard one by its name, or by "inherit". */
static bool read_target(const json_t *inherit, const char *name, int *target, struct tp_error *err)
{
	static const char *const standard[] = { "stdin", "stdout", "stderr" };
	const json_t *v = json_object_get(inherit, name);

	for (size_t i = 0; i < TP_N(standard); i++) {
		if (!strcmp(standard[i], name)) {
			*target = (int)i;
			return v ? refuse(err, "inherit", "names a standard descriptor") : true;
		}
	}
	if (!json_is_integer(v) || json_integer_value(v) < MOVER_INHERIT_FIRST ||
	    json_integer_value(v) > MOVER_INHERIT_LAST)
		return tp_fail(err, TP_EARG, "mover request: \"inherit\" gives \"%s\" no number "
			       "from %d to %d", name, MOVER_INHERIT_FIRST, MOVER_INHERIT_LAST);
	*target = (int)json_integer_value(v);
	return true;
}

static bool read_targets(struct program *p, const struct mover_request *r, struct tp_error *err)
{
	json_t *inherit = json_object_get(r->root, "inherit");
	const char *name;
	json_t *value;

	if (inherit && !json_is_object(inherit))
		return refuse(err, "inherit", "is no object");
	json_object_foreach(inherit, name, value)
		if (mover_request_fd(r, name) < 0)
			return tp_fail(err, TP_EARG, "mover request: no descriptor \"%s\" came",
				       name);
	for (size_t i = 0; i < r->nfds; i++) {
		if (!read_target(inherit, r->names[i], &p->targets[i], err))
			return false;
		for (size_t k = 0; k < i; k++)
			if (p->targets[k] == p->targets[i])
				return refuse(err, "inherit",
					      "gives one number to two descriptors");
	}
	return true;
}

static bool read_program(struct program *p, const struct mover_request *r, struct tp_error *err)
{
	return read_argv(p, r->root, err) && read_env(p, r->root, err) && read_user(p, r, err) &&
	       read_path(&p->cwd, r->root, "cwd", err) &&
	       read_path(&p->cgroup, r->root, "cgroup", err) && read_view(p, r, err) &&
	       read_limits(p, r, err) && read_targets(p, r, err);
}

/* ---------------------------------------------------------------- the change */

static bool write_text(const char *path, const char *text, struct tp_error *err)
{
	tp_autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return tp_fail_sys(err, errno, "write %s", path);
	return true;
}

bool mover_join_cgroup(const char *folder, struct tp_error *err)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/cgroup.procs", folder) >= (int)sizeof(path))
		return tp_fail_sys(err, ENAMETOOLONG, "join cgroup %.80s", folder);
	return write_text(path, "0", err);
}

/* What may need root. */
static bool take_surroundings(const struct program *p, struct tp_error *err)
{
	struct rlimit limit = { .rlim_cur = p->nofile, .rlim_max = p->nofile };

	if (p->cgroup && !mover_join_cgroup(p->cgroup, err))
		return false;
	if (p->score[0] && !write_text("/proc/self/oom_score_adj", p->score, err))
		return false;
	if (p->nofile && setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return tp_fail_sys(err, errno, "set the limit of open files to %llu",
				   (unsigned long long)p->nofile);
	return true;
}

static void take_view(const struct program *p)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autojson json_t *message = NULL;

	if (!p->wants_uffd || mover_view_uffd(p->uffd_uid, p->cwd, &why))
		return;
	message = json_pack("{s:{s:s}}", "refused", "desc", why.text);
	if (message)
		mover_proto_send(MOVER_CONTROL_FD, message, NULL, 0, NULL);
}

static bool take_user(const struct program *p, struct tp_error *err)
{
	/* Another user without its groups gets none, not those of the engine. */
	if ((p->has_groups || p->has_uid || p->has_gid) && setgroups(p->ngroups, p->groups) < 0 &&
	    (errno != EPERM || p->ngroups > 0 || geteuid() == 0))
		return tp_fail_sys(err, errno, "set supplementary groups");
	if (p->has_gid && setresgid(p->gid, p->gid, p->gid) < 0)
		return tp_fail_sys(err, errno, "set group %u", (unsigned)p->gid);
	if (p->has_uid && setresuid(p->uid, p->uid, p->uid) < 0)
		return tp_fail_sys(err, errno, "set user %u", (unsigned)p->uid);
	if (p->has_uid && p->uid != 0 && setuid(0) == 0)
		return tp_fail(err, TP_ESTATE, "user %u could become root again", (unsigned)p->uid);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return tp_fail_sys(err, errno, "set no-new-privileges");
	return true;
}

static bool place_descriptors(const struct program *p, struct mover_request *r,
			      struct tp_error *err)
{
	for (size_t i = 0; i < r->nfds; i++) {
		int moved = fcntl(r->fds[i], F_DUPFD_CLOEXEC, MOVED_FIRST);

		if (moved < 0)
			return tp_fail_sys(err, errno, "move descriptor \"%s\"", r->names[i]);
		tp_close(&r->fds[i]);
		r->fds[i] = moved;
	}
	if (close_range(MOVER_CONTROL_FD, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return tp_fail_sys(err, errno, "mark descriptors close-on-exec");
	for (size_t i = 0; i < r->nfds; i++)
		if (dup2(r->fds[i], p->targets[i]) < 0)
			return tp_fail_sys(err, errno, "make \"%s\" descriptor %d", r->names[i],
					   p->targets[i]);
	return true;
}

/*
 * By the system call itself: the C library hides two signals from sigaction(), and its
 * posix_spawn(), which has started us, leaves just those ignored.
 */
static void default_signals(void)
{
	unsigned long dfl[8] = { 0 };	/* a kernel's struct sigaction of SIG_DFL */
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		syscall(SYS_rt_sigaction, sig, dfl, NULL, NSIG / 8);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Tries the folders of PATH as execvp() does, but never runs a file by a shell. Leaves errno. */
static void exec_by_path(const struct program *p)
{
	const char *name = p->argv[0], *dir = p->path;
	int worst = ENOENT;

	for (;;) {
		size_t n = strcspn(dir, ":");
		char file[PATH_MAX];

		/* An empty folder name means the present folder: not for us. */
		if (n > 0 && snprintf(file, sizeof(file), "%.*s/%s", (int)n, dir, name) <
				(int)sizeof(file)) {
			execve(file, p->argv, p->envp);
			if (errno == EACCES)
				worst = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR)
				return;
		}
		if (!dir[n])
			break;
		dir += n + 1;
	}
	errno = worst;
}

static bool become(const struct program *p, struct mover_request *r, struct tp_error *err)
{
	if (setsid() < 0)
		return tp_fail_sys(err, errno, "become the leader of a session");
	if (!place_descriptors(p, r, err) || !take_surroundings(p, err))
		return false;
	take_view(p);
	if (!take_user(p, err))
		return false;
	if (p->cwd && chdir(p->cwd) < 0)
		return tp_fail_sys(err, errno, "change to folder %s", p->cwd);
	default_signals();
	if (strchr(p->argv[0], '/'))
		execve(p->argv[0], p->argv, p->envp);
	else
		exec_by_path(p);
	return tp_fail_sys(err, errno, "run %s", p->argv[0]);
}

bool mover_exec(struct mover_request *r, struct tp_error *err)
{
	TP_CLEANUP(program_free) struct program p = { 0 };

	return read_program(&p, r, err) && become(&p, r, err);
}
