/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * launch.c - From a spec to QEMU's environment and descriptors, and to a request for the mover
 *
 * A boot uses the spec; a restore the recorded binary, args and disks with the
 * present wrapper, environment, user, cgroup, descriptors and hooks. Listening
 * sockets are bound here and inherited by QEMU, so nobody waits for a socket to
 * appear; their numbers begin at MOVER_INHERIT_FIRST.
 */
#include "engine/launch_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "engine/engine.h"
#include "engine/spec.h"
#include "engine/uffd.h"
#include "engine/vm.h"
#include "migration/mover_proto.h"

const char *launch_socket(const struct vm *vm, const char *what, char *path, size_t size)
{
	snprintf(path, size, "%s/%s.sock", vm->run_dir, what);
	return path;
}

/* --- descriptors --- */

static bool give_fd(struct launch *l, json_t *names, json_t *inherit, const char *name, int *fd,
		    int number, struct tp_error *err)
{
	if (l->nfds == LAUNCH_FDS)
		return tp_fail(err, TP_ELIMIT, "more than %d descriptors", LAUNCH_FDS);
	if (json_array_append_new(names, json_string(name)) ||
	    (number >= 0 && json_object_set_new(inherit, name, json_integer(number))))
		return tp_fail_nomem(err);
	l->fds[l->nfds++] = TP_STEAL_FD(*fd);
	return true;
}

static int open_tap(const char *name, struct tp_error *err)
{
	tp_autoclose int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };

	if (fd < 0) {
		tp_fail_class(err, TP_ESYS, "IOError", "open /dev/net/tun for interface %s: %s", name,
			      strerror(errno));
		return -1;
	}
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &ifr) < 0) {
		tp_fail_class(err, TP_ESYS, "IOError", "tap interface %s: %s", name, strerror(errno));
		return -1;
	}
	return TP_STEAL_FD(fd);
}

static int open_spec_fd(const struct vm *vm, const json_t *item, struct tp_error *err)
{
	const char *tap = tp_json_str(item, "tap"), *file = tp_json_str(item, "open");
	int fd;

	if (tap)
		return open_tap(tap, err);
	tp_autofree char *path = launch_expand(vm, file, NULL, err);
	if (!path)
		return -1;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		tp_fail_sys(err, errno, "open %s for spec.launch.fds", path);
	return tp_fd_safe(fd);
}

static bool add_spec_fds(struct vm *vm, struct launch *l, json_t *names, json_t *inherit, json_t *numbers,
			 int *number, struct tp_error *err)
{
	json_t *fds = tp_json_path(vm->spec, "launch.fds"), *item;
	const char *name;

	json_object_foreach(fds, name, item) {
		tp_autoclose int fd = open_spec_fd(vm, item, err);
		char key[80];

		snprintf(key, sizeof(key), "fd-%s", name);
		if (fd < 0 || !give_fd(l, names, inherit, key, &fd, *number, err))
			return false;
		tp_json_set(numbers, name, json_integer((*number)++));
	}
	return true;
}

static bool add_socket(struct vm *vm, struct launch *l, json_t *names, json_t *inherit, json_t *numbers,
		       const char *what, int *number, struct tp_error *err)
{
	char path[128];
	tp_autoclose int fd = tp_listen_unix(launch_socket(vm, what, path, sizeof(path)), 0600, err);

	if (fd < 0)
		return tp_prefix(err, "%s socket", what);
	/* QEMU accepts with blocking calls driven by its own poll; it sets what it needs. */
	if (!give_fd(l, names, inherit, what, &fd, *number, err))
		return false;
	return tp_json_set(numbers, what, json_integer((*number)++)) || tp_fail_nomem(err);
}

/* --- who and where --- */

bool launch_user_named(const char *user, const char *group, struct launch_user *u, struct tp_error *err)
{
	struct passwd *pw = user ? getpwnam(user) : NULL;
	struct group *gr = group ? getgrnam(group) : NULL;
	int n = LAUNCH_GROUPS;

	memset(u, 0, sizeof(*u));
	if (user && !pw)
		return tp_fail_class(err, TP_EARG, "GenericError", "no user \"%s\"", user);
	if (group && !gr)
		return tp_fail_class(err, TP_EARG, "GenericError", "no group \"%s\"", group);
	u->has_uid = pw != NULL;
	u->has_gid = pw || gr;
	if (u->has_gid)
		u->gid = gr ? gr->gr_gid : pw->pw_gid;
	if (!pw)
		return true;
	u->uid = pw->pw_uid;
	if (getgrouplist(user, u->gid, u->groups, &n) < 0)
		n = LAUNCH_GROUPS;
	u->ngroups = (size_t)n;
	return true;
}

bool launch_user(const struct vm *vm, struct launch_user *u, struct tp_error *err)
{
	const json_t *launch = json_object_get(vm->spec, "launch");

	return launch_user_named(tp_json_str(launch, "user"), tp_json_str(launch, "group"), u, err) ||
	       tp_prefix(err, "spec.launch");
}

static bool set_identity(const struct vm *vm, json_t *request, struct tp_error *err)
{
	const char *cgroup = tp_json_str(json_object_get(vm->spec, "launch"), "cgroup");
	struct launch_user u;

	if (!launch_user(vm, &u, err))
		return false;
	if (u.has_uid) {
		json_t *list = json_array();

		for (size_t i = 0; i < u.ngroups; i++)
			json_array_append_new(list, json_integer(u.groups[i]));
		tp_json_set(request, "uid", json_integer(u.uid));
		tp_json_set(request, "groups", list);
	}
	if (u.has_gid)
		tp_json_set(request, "gid", json_integer(u.gid));
	if (cgroup) {
		tp_autofree char *path = launch_expand(vm, cgroup, NULL, err);

		if (!path || !tp_json_set(request, "cgroup", json_string(path)))
			return false;
	}
	return true;
}

static const char *const env_kept[] = { "PATH", "HOME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR",
					"LD_LIBRARY_PATH" };

static json_t *environment(const struct vm *vm, struct tp_error *err)
{
	json_t *env = json_object(), *own = tp_json_path(vm->spec, "launch.env"), *item;
	const char *key;

	for (size_t i = 0; i < TP_N(env_kept); i++)
		if (getenv(env_kept[i]))
			json_object_set_new(env, env_kept[i], json_string(getenv(env_kept[i])));
	json_object_foreach(own, key, item) {
		tp_autofree char *value = launch_expand(vm, json_string_value(item), NULL, err);

		if (!value || json_object_set_new(env, key, json_string(value))) {
			json_decref(env);
			return NULL;
		}
	}
	return env;
}

static json_t *request_new(const struct vm *vm, const char *job, json_t *argv, json_t *names,
			   json_t *inherit, struct tp_error *err)
{
	tp_autojson json_t *env = environment(vm, err);

	if (!env)
		return NULL;
	return json_pack("{s:s, s:i, s:s, s:s, s:O, s:O, s:O, s:O, s:s}", "job", job, "protocol", MOVER_PROTOCOL,
			 "vm", vm->name, "op", vm->op ? op_id(vm->op) : "", "argv", argv, "fds", names,
			 "inherit", inherit, "env", env, "cwd", vm->run_dir);
}

/* A run's words are in qemu.log, those of the run before in qemu.log.1. */
static int open_log(const struct vm *vm, struct tp_error *err)
{
	int fd;

	renameat(vm->dirfd, "qemu.log", vm->dirfd, "qemu.log.1");
	fd = openat(vm->dirfd, "qemu.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		tp_fail_sys(err, errno, "open qemu.log of VM %s", vm->name);
	return tp_fd_safe(fd);
}

/* --- the whole --- */

/* What a later engine finds a QEMU by that no record names (vm_find_stray). */
static bool add_mark(struct vm *vm, json_t *request)
{
	char mark[160];

	snprintf(mark, sizeof(mark), "%s:%s", state_dir_instance(vm->t->state), vm->uid);
	return tp_json_set_str(json_object_get(request, "env"), "TORPOR_QEMU", mark);
}

static bool collect_fds(struct vm *vm, struct launch *l, json_t *names, json_t *inherit, json_t *numbers,
			struct tp_error *err)
{
	int number = MOVER_INHERIT_FIRST;
	tp_autoclose int log = open_log(vm, err), out = -1;

	if (log < 0)
		return false;
	out = fcntl(log, F_DUPFD_CLOEXEC, 3);
	if (out < 0)
		return tp_fail_sys(err, errno, "dup");
	if (!give_fd(l, names, inherit, "stderr", &log, -1, err) ||
	    !give_fd(l, names, inherit, "stdout", &out, -1, err) ||
	    !add_socket(vm, l, names, inherit, numbers, "qmp", &number, err))
		return false;
	if (launch_is_auto(vm, "agent") && !add_socket(vm, l, names, inherit, numbers, "agent", &number, err))
		return false;
	if (launch_is_auto(vm, "console") &&
	    !add_socket(vm, l, names, inherit, numbers, "console", &number, err))
		return false;
	return add_spec_fds(vm, l, names, inherit, numbers, &number, err);
}

/* QEMU makes sockets of its own in {run-dir}, as the user that it runs as. */
static bool give_folder(int dir, const json_t *request, struct tp_error *err)
{
	uid_t uid = (uid_t)tp_json_int(request, "uid", -1);
	gid_t gid = (gid_t)tp_json_int(request, "gid", -1);

	if (uid == (uid_t)-1 || fchown(dir, uid, gid) == 0)
		return true;
	return tp_fail_sys(err, errno, "give the run directory to user %u", (unsigned)uid);
}

/* For whom QEMU is by the time when it opens the device. */
static bool wish_uffd(const struct vm *vm, const struct launch_options *o, json_t *request, struct tp_error *err)
{
	struct launch_user u;

	if (!o->uffd)
		return true;
	if (!uffd_user(vm, tp_json_path(o->manifest, "launch.args"), &u, err))
		return false;
	return !u.has_uid || tp_json_set(request, "userfaultfd", json_integer(u.uid)) || tp_fail_nomem(err);
}

bool launch_prepare(struct vm *vm, const struct launch_options *o, struct launch *l, struct tp_error *err)
{
	tp_autojson json_t *names = json_array(), *inherit = json_object(), *numbers = json_object();
	tp_autojson json_t *argv = NULL;
	tp_autoclose int dir = tp_mkdirs(vm->run_dir, err);

	memset(l, 0, sizeof(*l));
	if (dir < 0 || !collect_fds(vm, l, names, inherit, numbers, err) ||
	    !(argv = launch_argv(vm, o, numbers, err)) ||
	    !(l->request = request_new(vm, "launch", argv, names, inherit, err)) ||
	    !add_mark(vm, l->request) || !set_identity(vm, l->request, err) ||
	    !wish_uffd(vm, o, l->request, err) || !give_folder(dir, l->request, err)) {
		launch_free(l);
		return tp_fail_class(err, TP_EARG, "GenericError", "cannot build the command line of VM %s",
				     vm->name);
	}
	return true;
}

void launch_free(struct launch *l)
{
	for (size_t i = 0; i < l->nfds; i++)
		tp_close(&l->fds[i]);
	l->nfds = 0;
	json_decref(l->request);
	l->request = NULL;
}

/* --- hooks --- */

double launch_hook_timeout(const struct vm *vm)
{
	tp_autojson json_t *value = spec_get(vm->spec, "launch.hooks.timeout");

	return json_number_value(value);
}

bool launch_hook(struct vm *vm, const char *name, const char *reason, int *output_fd, struct launch *l,
		 struct tp_error *err)
{
	json_t *hook = json_object_get(tp_json_path(vm->spec, "launch.hooks"), name), *env;
	tp_autojson json_t *argv = json_array(), *names = json_array(), *inherit = json_object();
	tp_autoclose int out = TP_STEAL_FD(*output_fd), dup = -1, dir = -1;

	memset(l, 0, sizeof(*l));
	if (!hook)
		return true;
	dir = tp_mkdirs(vm->run_dir, err);
	if (dir < 0)
		return false;
	dup = fcntl(out, F_DUPFD_CLOEXEC, 3);
	if (dup < 0)
		return tp_fail_sys(err, errno, "dup");
	if (!launch_add_list(argv, vm, hook, NULL, err) ||
	    !give_fd(l, names, inherit, "stdout", &out, -1, err) ||
	    !give_fd(l, names, inherit, "stderr", &dup, -1, err) ||
	    !(l->request = request_new(vm, "hook", argv, names, inherit, err))) {
		launch_free(l);
		return false;
	}
	env = json_object_get(l->request, "env");
	tp_json_set_str(env, "TORPOR_VM", vm->name);
	tp_json_set_str(env, "TORPOR_UID", vm->uid);
	tp_json_set_str(env, "TORPOR_REASON", reason);
	tp_json_set_str(env, "TORPOR_RUN_DIR", vm->run_dir);
	tp_json_set_str(env, "TORPOR_HOOK", name);
	return true;
}
