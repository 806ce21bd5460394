/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * launch.c - From a spec to QEMU's command line, environment and descriptors
 *
 * A boot uses the spec; a restore the recorded binary, args and disks with the
 * present wrapper, environment, user, cgroup, descriptors and hooks. Listening
 * sockets are bound here and inherited by QEMU, so nobody waits for a socket to
 * appear; their numbers begin at MOVER_INHERIT_FIRST.
 */
#include "engine/launch.h"

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

#include "base/tp_buf.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "engine/engine.h"
#include "engine/spec.h"
#include "engine/vm.h"
#include "migration/mover_proto.h"

#define ARG_MAX_BYTES 65536u

const char *launch_socket(const struct vm *vm, const char *what, char *path, size_t size)
{
	snprintf(path, size, "%s/%s.sock", vm->run_dir, what);
	return path;
}

/* --- placeholders --- */

static bool placeholder(const struct vm *vm, const char *name, const json_t *fds, struct tp_buf *out)
{
	if (strcmp(name, "name") == 0)
		return tp_buf_adds(out, vm->name);
	if (strcmp(name, "uid") == 0)
		return tp_buf_adds(out, vm->uid);
	if (strcmp(name, "run-dir") == 0)
		return tp_buf_adds(out, vm->run_dir);
	if (strcmp(name, "state-dir") == 0)
		return tp_buf_printf(out, "%s/vms/%s", state_dir_path(vm->t->state), vm->name);
	if (strncmp(name, "fd:", 3) == 0 && json_object_get(fds, name + 3))
		return tp_buf_printf(out, "%d", (int)tp_json_int(fds, name + 3, -1));
	return false;
}

/*
 * Only {word} with a known word is a placeholder; "{{" is "{"; any other brace stands for itself,
 * as QEMU's own options may be JSON.
 */
char *launch_expand(const struct vm *vm, const char *text, const json_t *fds, struct tp_error *err)
{
	tp_autobuf struct tp_buf out = TP_BUF_INIT(ARG_MAX_BYTES);
	char name[80];

	while (*text) {
		size_t n = strcspn(text, "{");

		if (!tp_buf_add(&out, text, n))
			goto limit;
		text += n;
		if (!*text)
			break;
		if (text[1] == '{') {
			if (!tp_buf_add(&out, "{", 1))
				goto limit;
			text += 2;
			continue;
		}
		n = strcspn(text + 1, "}{\"");
		if (text[n + 1] == '}' && n < sizeof(name)) {
			memcpy(name, text + 1, n);
			name[n] = '\0';
			if (placeholder(vm, name, fds, &out)) {
				text += n + 2;
				continue;
			}
			if (strncmp(name, "fd:", 3) == 0) {
				tp_fail_class(err, TP_EARG, "GenericError", "placeholder {%s}: spec.launch.fds "
					      "has no such descriptor", name);
				return NULL;
			}
		}
		if (!tp_buf_add(&out, "{", 1))
			goto limit;
		text++;
	}
	return tp_buf_steal(&out);
limit:
	tp_fail(err, TP_ELIMIT, "argument longer than %u bytes", ARG_MAX_BYTES);
	return NULL;
}

static bool add_expanded(json_t *argv, const struct vm *vm, const char *text, const json_t *fds,
			 struct tp_error *err)
{
	tp_autofree char *s = launch_expand(vm, text, fds, err);

	if (!s)
		return false;
	return json_array_append_new(argv, json_string(s)) == 0 ||
	       tp_fail(err, TP_EARG, "argument is not UTF-8");
}

static bool add_list(json_t *argv, const struct vm *vm, const json_t *list, const json_t *fds,
		     struct tp_error *err)
{
	size_t i;
	json_t *item;

	json_array_foreach(list, i, item)
		if (!add_expanded(argv, vm, json_string_value(item), fds, err))
			return false;
	return true;
}

static bool add(json_t *argv, const char *a, const char *b)
{
	return json_array_append_new(argv, json_string(a)) == 0 &&
	       (!b || json_array_append_new(argv, json_string(b)) == 0);
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

/* --- machine pieces --- */

static bool is_auto(const struct vm *vm, const char *path)
{
	tp_autojson json_t *value = spec_get(vm->spec, path);

	return json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
}

static bool args_have(const json_t *args, const char *text)
{
	size_t i;
	json_t *item;

	json_array_foreach(args, i, item)
		if (strstr(json_string_value(item), text))
			return true;
	return false;
}

static bool add_chardev(json_t *argv, const char *id, int number)
{
	char text[96];

	snprintf(text, sizeof(text), "socket,id=%s,fd=%d,server=on,wait=off", id, number);
	return add(argv, "-chardev", text);
}

static bool add_channels(const struct vm *vm, json_t *argv, const json_t *args, const json_t *numbers)
{
	bool ok = add_chardev(argv, "torpor-qmp", (int)tp_json_int(numbers, "qmp", -1)) &&
		  add(argv, "-mon", "chardev=torpor-qmp,mode=control");

	if (is_auto(vm, "launch.agent")) {
		const char *bus = args_have(args, "microvm") ? "virtio-serial-device" : "virtio-serial-pci";
		char text[64];

		snprintf(text, sizeof(text), "%s,id=torpor-serial", bus);
		ok = ok && add_chardev(argv, "torpor-agent", (int)tp_json_int(numbers, "agent", -1)) &&
		     add(argv, "-device", text) &&
		     add(argv, "-device", "virtserialport,bus=torpor-serial.0,chardev=torpor-agent,"
					  "id=torpor-agent,name=org.qemu.guest_agent.0");
	}
	if (is_auto(vm, "launch.console"))
		ok = ok && add_chardev(argv, "torpor-console", (int)tp_json_int(numbers, "console", -1)) &&
		     add(argv, "-serial", "chardev:torpor-console");
	return ok;
}

static json_t *blockdev(const char *id, const json_t *disk)
{
	const char *file = tp_json_str(disk, "file");
	json_t *options = json_object_get(disk, "options"), *node;
	struct stat st;
	bool device = stat(file, &st) == 0 && S_ISBLK(st.st_mode);

	node = json_pack("{s:s, s:s, s:b, s:{s:s, s:s}}", "driver", tp_json_str(disk, "format"),
			 "node-name", id, "read-only", tp_json_bool(disk, "read-only", false),
			 "file", "driver", device ? "host_device" : "file", "filename", file);
	if (node && options) {
		tp_autojson json_t *base = node;

		node = tp_json_merge_patch(base, options);
	}
	return node;
}

static bool add_disks(json_t *argv, const json_t *disks)
{
	const char *id;
	json_t *disk;

	json_object_foreach((json_t *)disks, id, disk) {
		tp_autojson json_t *node = blockdev(id, disk);
		tp_autofree char *text = node ? json_dumps(node, JSON_COMPACT) : NULL;

		if (!text || !add(argv, "-blockdev", text))
			return false;
	}
	return true;
}

static bool add_secrets(const struct vm *vm, json_t *argv)
{
	json_t *secrets = tp_json_path(vm->spec, "launch.secrets"), *item;
	const char *id;
	tp_autobuf struct tp_buf text = TP_BUF_INIT(ARG_MAX_BYTES);

	json_object_foreach(secrets, id, item) {
		tp_buf_drop(&text, text.len);
		if (!tp_buf_printf(&text, "secret,id=%s,file=%s", id, tp_json_str(item, "file")) ||
		    !add(argv, "-object", text.data))
			return false;
	}
	return true;
}

/* "vmgenid,guid=auto,..." with the recorded id in place of whatever stands there. */
static char *with_vmgenid(const char *device, const char *guid)
{
	tp_autobuf struct tp_buf out = TP_BUF_INIT(ARG_MAX_BYTES);

	while (*device) {
		size_t n = strcspn(device, ",");

		if (strncmp(device, "guid=", 5) != 0 &&
		    !(tp_buf_adds(&out, out.len ? "," : "") && tp_buf_add(&out, device, n)))
			return NULL;
		device += n + (device[n] == ',');
	}
	return tp_buf_printf(&out, ",guid=%s", guid) ? tp_buf_steal(&out) : NULL;
}

static bool add_args(const struct vm *vm, json_t *argv, const json_t *args, const json_t *numbers,
		     const char *guid, struct tp_error *err)
{
	size_t i;
	json_t *item;

	json_array_foreach(args, i, item) {
		const char *text = json_string_value(item);
		tp_autofree char *device = NULL;

		if (guid && strncmp(text, "vmgenid", 7) == 0 && (!text[7] || text[7] == ',')) {
			device = with_vmgenid(text, guid);
			text = device ? device : text;
		}
		if (!add_expanded(argv, vm, text, numbers, err))
			return false;
	}
	return true;
}

json_t *launch_disks(const struct vm *vm)
{
	json_t *declared = tp_json_path(vm->spec, "launch.disks"), *now = json_object_get(vm->rest, "disks");
	json_t *all = json_object(), *disk;
	const char *id;

	json_object_foreach(declared, id, disk) {
		json_t *copy = json_deep_copy(disk), *present = json_object_get(now, id);

		if (copy && present)
			json_object_update(copy, present);
		json_object_set_new(all, id, copy);
	}
	return all;
}

json_t *launch_record(struct vm *vm)
{
	json_t *launch = json_object_get(vm->spec, "launch");

	return json_pack("{s:O, s:O, s:o, s:I}", "binary", json_object_get(launch, "binary"), "args",
			 json_object_get(launch, "args"), "disks", launch_disks(vm), "generation",
			 (json_int_t)vm->generation);
}

/* --- who and where --- */

static bool set_identity(const struct vm *vm, json_t *request, struct tp_error *err)
{
	const char *user = tp_json_str(json_object_get(vm->spec, "launch"), "user");
	const char *group = tp_json_str(json_object_get(vm->spec, "launch"), "group");
	const char *cgroup = tp_json_str(json_object_get(vm->spec, "launch"), "cgroup");
	struct passwd *pw = user ? getpwnam(user) : NULL;
	struct group *gr = group ? getgrnam(group) : NULL;

	if (user && !pw)
		return tp_fail_class(err, TP_EARG, "GenericError", "spec.launch.user: no user \"%s\"", user);
	if (group && !gr)
		return tp_fail_class(err, TP_EARG, "GenericError", "spec.launch.group: no group \"%s\"", group);
	if (pw) {
		gid_t groups[64];
		int n = (int)TP_N(groups);
		json_t *list = json_array();

		if (getgrouplist(user, gr ? gr->gr_gid : pw->pw_gid, groups, &n) < 0)
			n = (int)TP_N(groups);
		for (int i = 0; i < n; i++)
			json_array_append_new(list, json_integer(groups[i]));
		tp_json_set(request, "uid", json_integer(pw->pw_uid));
		tp_json_set(request, "groups", list);
	}
	if (pw || gr)
		tp_json_set(request, "gid", json_integer(gr ? gr->gr_gid : pw->pw_gid));
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
	if (is_auto(vm, "launch.agent") && !add_socket(vm, l, names, inherit, numbers, "agent", &number, err))
		return false;
	if (is_auto(vm, "launch.console") &&
	    !add_socket(vm, l, names, inherit, numbers, "console", &number, err))
		return false;
	return add_spec_fds(vm, l, names, inherit, numbers, &number, err);
}

static json_t *build_argv(struct vm *vm, const struct launch_options *o, const json_t *numbers,
			  struct tp_error *err)
{
	const json_t *src = o->manifest ? json_object_get(o->manifest, "launch")
					: json_object_get(vm->spec, "launch");
	const json_t *args = json_object_get(src, "args");
	const char *machine = o->manifest ? tp_json_str(o->manifest, "machine") : NULL;
	const char *guid = o->manifest ? tp_json_str(o->manifest, "vmgenid") : NULL;
	tp_autojson json_t *argv = json_array();
	tp_autojson json_t *disks = o->manifest ? json_incref(json_object_get(src, "disks")) : launch_disks(vm);

	if (!add_list(argv, vm, tp_json_path(vm->spec, "launch.wrapper"), numbers, err) ||
	    !add_expanded(argv, vm, tp_json_str(src, "binary"), numbers, err))
		return NULL;
	/* Disks and secrets come first: devices in args refer to them. */
	if (!args_have(args, "-name") && !add(argv, "-name", vm->name))
		return NULL;
	if (!add_secrets(vm, argv) || !add_disks(argv, disks) ||
	    !add_args(vm, argv, args, numbers, guid, err) || !add_channels(vm, argv, args, numbers))
		return NULL;
	if (!args_have(args, "-display") && !args_have(args, "-nographic") && !args_have(args, "-vnc") &&
	    !args_have(args, "-spice") && !add(argv, "-display", "none"))
		return NULL;
	if ((machine && !add(argv, "-machine", machine)) || !add(argv, "-S", NULL) ||
	    (o->incoming && !add(argv, "-incoming", "defer")))
		return NULL;
	return TP_STEAL(argv);
}

bool launch_prepare(struct vm *vm, const struct launch_options *o, struct launch *l, struct tp_error *err)
{
	tp_autojson json_t *names = json_array(), *inherit = json_object(), *numbers = json_object();
	tp_autojson json_t *argv = NULL;
	tp_autoclose int dir = tp_mkdirs(vm->run_dir, err);

	memset(l, 0, sizeof(*l));
	if (dir < 0 || !collect_fds(vm, l, names, inherit, numbers, err) ||
	    !(argv = build_argv(vm, o, numbers, err)) ||
	    !(l->request = request_new(vm, "launch", argv, names, inherit, err)) ||
	    !add_mark(vm, l->request) || !set_identity(vm, l->request, err)) {
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
	if (!add_list(argv, vm, hook, NULL, err) ||
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
