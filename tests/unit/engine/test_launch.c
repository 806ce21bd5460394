/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_launch.c - From a spec to QEMU's command line, descriptors and environment
 *
 * A real engine on directories of its own; nothing is started.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <ev.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/vm.h"
#include "migration/mover_proto.h"
#include "torpor.h"

struct fixture {
	char dir[64];
	struct ev_loop *loop;
	struct torpor *t;
	struct vm *vm;
};

static void build_file(char *path, size_t size, const char *name)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	assert_true(n > 0);
	self[n] = '\0';
	slash = strrchr(self, '/');
	assert_non_null(slash);
	*slash = '\0';
	snprintf(path, size, "%.*s/../../%s", (int)size - 64, self, name);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char mover[PATH_MAX], state_dir[80], run_dir[80], error[TORPOR_ERROR_SIZE] = "";
	struct torpor_options o = { .size = sizeof(o), .host_name = "test" };
	struct tp_error err = TP_ERROR_INIT;

	snprintf(f->dir, sizeof(f->dir), "/tmp/test-launch-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	build_file(mover, sizeof(mover), "torpor-mover");
	snprintf(state_dir, sizeof(state_dir), "%s/state", f->dir);
	snprintf(run_dir, sizeof(run_dir), "%s/run", f->dir);
	o.state_dir = state_dir;
	o.runtime_dir = run_dir;
	o.mover_path = mover;
	f->loop = ev_loop_new(EVFLAG_AUTO);
	f->t = torpor_new(f->loop, &o, error);
	if (!f->t)
		fail_msg("%s", error);
	f->vm = vm_create(f->t, "web1", "11111111-2222-4333-8444-555555555555", &err);
	assert_non_null(f->vm);
	*state = f;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	torpor_free(f->t);
	ev_loop_destroy(f->loop);
	assert_int_equal(nftw(f->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
	free(f);
	return 0;
}

/* json: with ' for ". */
static json_t *parse(const char *json)
{
	char *text = strdup(json);
	json_t *value;

	for (char *p = text; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	value = json_loads(text, JSON_DECODE_ANY, NULL);
	if (!value)
		fail_msg("not JSON: %s", text);
	free(text);
	return value;
}

static void set_spec(struct fixture *f, const char *launch)
{
	json_decref(f->vm->spec);
	f->vm->spec = json_pack("{s:o}", "launch", parse(launch));
	assert_non_null(f->vm->spec);
}

static struct launch prepared(struct fixture *f, const struct launch_options *o)
{
	struct tp_error err = TP_ERROR_INIT;
	struct launch l;

	if (!launch_prepare(f->vm, o, &l, &err))
		fail_msg("%s", err.text);
	assert_int_equal(l.nfds, json_array_size(json_object_get(l.request, "fds")));
	return l;
}

static const char *arg(const struct launch *l, size_t i)
{
	return json_string_value(json_array_get(json_object_get(l->request, "argv"), i));
}

/* Where this argument stands; fails where it does not, or twice. */
static size_t at(const struct launch *l, const char *text)
{
	json_t *argv = json_object_get(l->request, "argv"), *item;
	size_t i, found = SIZE_MAX;

	json_array_foreach(argv, i, item) {
		if (strcmp(json_string_value(item), text) != 0)
			continue;
		if (found != SIZE_MAX)
			fail_msg("%s stands twice", text);
		found = i;
	}
	if (found == SIZE_MAX) {
		tp_autofree char *all = json_dumps(argv, 0);

		fail_msg("%s is not in %s", text, all);
	}
	return found;
}

static bool has(const struct launch *l, const char *text)
{
	json_t *item;
	size_t i;

	json_array_foreach(json_object_get(l->request, "argv"), i, item)
		if (strcmp(json_string_value(item), text) == 0)
			return true;
	return false;
}

static size_t last(const struct launch *l)
{
	return json_array_size(json_object_get(l->request, "argv")) - 1;
}

/* --- placeholders --- */

static void check_expanded(struct fixture *f, const char *text, const char *want)
{
	tp_autojson json_t *fds = json_pack("{s:i}", "net0", 12);
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *got = launch_expand(f->vm, text, fds, &err);

	assert_non_null(got);
	assert_string_equal(got, want);
}

static void test_placeholders(void **state)
{
	struct fixture *f = *state;
	char want[160];

	check_expanded(f, "", "");
	check_expanded(f, "plain", "plain");
	check_expanded(f, "{name}-{uid}", "web1-11111111-2222-4333-8444-555555555555");
	snprintf(want, sizeof(want), "unix:%s/run/web1/x.sock,server", f->dir);
	check_expanded(f, "unix:{run-dir}/x.sock,server", want);
	snprintf(want, sizeof(want), "%s/state/vms/web1", f->dir);
	check_expanded(f, "{state-dir}", want);
	check_expanded(f, "tap,fd={fd:net0}", "tap,fd=12");
	check_expanded(f, "{{name}", "{name}");
	check_expanded(f, "{{{name}", "{web1");
	check_expanded(f, "{{{{", "{{");
}

static void test_other_braces_stand_for_themselves(void **state)
{
	struct fixture *f = *state;

	check_expanded(f, "{\"driver\":\"null-co\",\"node-name\":\"n\"}",
		       "{\"driver\":\"null-co\",\"node-name\":\"n\"}");
	check_expanded(f, "{\"a\":{\"b\":\"{name}\"}}", "{\"a\":{\"b\":\"web1\"}}");
	check_expanded(f, "{}", "{}");
	check_expanded(f, "{", "{");
	check_expanded(f, "a{unknown}b{", "a{unknown}b{");
	check_expanded(f, "}{name", "}{name");
}

static void test_unknown_descriptor_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tp_error err = TP_ERROR_INIT;

	assert_null(launch_expand(f->vm, "fd={fd:other}", NULL, &err));
	assert_string_equal(tp_error_class(&err), "GenericError");
	assert_non_null(strstr(err.text, "{fd:other}"));
}

static void test_argument_has_a_limit(void **state)
{
	struct fixture *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *text = malloc(70001);

	memset(text, 'a', 70000);
	text[70000] = '\0';
	assert_null(launch_expand(f->vm, text, NULL, &err));
	assert_int_equal(err.code, TP_ELIMIT);
}

/* --- a boot --- */

static void test_boot(void **state)
{
	struct fixture *f = *state;
	struct launch_options o = { 0 };
	struct launch l;
	struct stat st;

	set_spec(f, "{'binary': 'qemu-system-x86_64', 'args': ['-M', 'q35', '-device', 'virtio-blk-pci,drive=d0'],"
		 " 'wrapper': ['numactl', '-N', '{name}'],"
		 " 'disks': {'d0': {'file': '/nonexistent/a.qcow2', 'format': 'qcow2'}},"
		 " 'env': {'WHO': '{name}'}}");
	l = prepared(f, &o);
	assert_string_equal(tp_json_str(l.request, "job"), "launch");
	assert_string_equal(arg(&l, 0), "numactl");
	assert_string_equal(arg(&l, 1), "-N");
	assert_string_equal(arg(&l, 2), "web1");
	assert_string_equal(arg(&l, 3), "qemu-system-x86_64");
	assert_string_equal(arg(&l, at(&l, "-name") + 1), "web1");
	/* Disks before the devices that name them, -S behind all. */
	assert_true(at(&l, "-blockdev") < at(&l, "virtio-blk-pci,drive=d0"));
	assert_int_equal(at(&l, "-S"), last(&l));
	assert_false(has(&l, "-incoming"));
	assert_false(has(&l, "-machine"));
	assert_string_equal(arg(&l, at(&l, "-display") + 1), "none");
	assert_string_equal(tp_json_str(json_object_get(l.request, "env"), "WHO"), "web1");
	assert_non_null(strstr(tp_json_str(json_object_get(l.request, "env"), "TORPOR_QEMU"), f->vm->uid));
	/* stderr, stdout, monitor; no agent and no console were asked for. */
	assert_int_equal(l.nfds, 3);
	assert_int_equal(fstat(l.fds[0], &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(fstat(l.fds[2], &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	for (size_t i = 0; i < l.nfds; i++)
		assert_true(fcntl(l.fds[i], F_GETFD) & FD_CLOEXEC);
	launch_free(&l);
	assert_int_equal(l.nfds, 0);
}

static void test_what_the_user_gives_is_not_given_twice(void **state)
{
	struct fixture *f = *state;
	struct launch_options o = { 0 };
	struct launch l;

	set_spec(f, "{'binary': 'q', 'args': ['-name', 'other', '-display', 'egl-headless']}");
	l = prepared(f, &o);
	assert_string_equal(arg(&l, at(&l, "-name") + 1), "other");
	assert_string_equal(arg(&l, at(&l, "-display") + 1), "egl-headless");
	launch_free(&l);
}

static void test_disks(void **state)
{
	struct fixture *f = *state;
	struct launch_options o = { 0 };
	struct launch l;
	tp_autojson json_t *want = NULL, *got = NULL;

	set_spec(f, "{'binary': 'q', 'args': [], 'disks': {'d0': {'file': '/nonexistent/old.qcow2', 'format': 'qcow2',"
		 " 'read-only': true, 'options': {'discard': 'unmap', 'file': {'aio': 'native'}}}}}");
	/* Which file a disk is belongs to the VM's state. */
	vm_rest_set(f->vm, "disks", parse("{'d0': {'file': '/nonexistent/new.qcow2', 'format': 'qcow2'}}"));
	l = prepared(f, &o);
	got = json_loads(arg(&l, at(&l, "-blockdev") + 1), 0, NULL);
	want = parse("{'driver': 'qcow2', 'node-name': 'd0', 'read-only': true, 'discard': 'unmap',"
		     " 'file': {'driver': 'file', 'filename': '/nonexistent/new.qcow2', 'aio': 'native'}}");
	assert_true(json_equal(got, want));
	launch_free(&l);
}

static void test_secrets_escape_commas(void **state)
{
	struct fixture *f = *state;
	struct launch_options o = { 0 };
	struct launch l;

	set_spec(f, "{'binary': 'q', 'args': ['-drive', 'x'], 'secrets': {'s0': {'file': '/etc/a,data=b'}}}");
	l = prepared(f, &o);
	assert_string_equal(arg(&l, at(&l, "-object") + 1), "secret,id=s0,file=/etc/a,,data=b");
	assert_true(at(&l, "-object") < at(&l, "-drive"));
	launch_free(&l);
}

/* --- channels --- */

static int inherited(const struct launch *l, const char *name)
{
	return (int)tp_json_int(json_object_get(l->request, "inherit"), name, -1);
}

static void test_channels(void **state)
{
	struct fixture *f = *state;
	struct launch_options o = { 0 };
	struct launch l;
	char text[96];

	set_spec(f, "{'binary': 'q', 'args': ['-x'], 'agent': 'auto', 'console': 'auto',"
		 " 'fds': {'zero': {'open': '/dev/zero'}}}");
	l = prepared(f, &o);
	assert_int_equal(l.nfds, 6);
	assert_int_equal(inherited(&l, "qmp"), MOVER_INHERIT_FIRST);
	assert_int_equal(inherited(&l, "agent"), MOVER_INHERIT_FIRST + 1);
	assert_int_equal(inherited(&l, "console"), MOVER_INHERIT_FIRST + 2);
	assert_int_equal(inherited(&l, "fd-zero"), MOVER_INHERIT_FIRST + 3);
	snprintf(text, sizeof(text), "socket,id=torpor-qmp,fd=%d,server=on,wait=off", MOVER_INHERIT_FIRST);
	assert_true(at(&l, text) > at(&l, "-x"));
	assert_string_equal(arg(&l, at(&l, "-mon") + 1), "chardev=torpor-qmp,mode=control");
	snprintf(text, sizeof(text), "socket,id=torpor-agent,fd=%d,server=on,wait=off", MOVER_INHERIT_FIRST + 1);
	at(&l, text);
	at(&l, "virtio-serial-pci,id=torpor-serial");
	at(&l, "virtserialport,bus=torpor-serial.0,chardev=torpor-agent,id=torpor-agent,"
	       "name=org.qemu.guest_agent.0");
	snprintf(text, sizeof(text), "socket,id=torpor-console,fd=%d,server=on,wait=off", MOVER_INHERIT_FIRST + 2);
	at(&l, text);
	assert_string_equal(arg(&l, at(&l, "-serial") + 1), "chardev:torpor-console");
	launch_free(&l);
}

/* A second start binds the same paths anew. */
static void test_sockets_are_connectable_and_rebound(void **state)
{
	struct fixture *f = *state;
	struct launch_options o = { 0 };
	char path[128];
	struct stat st;

	set_spec(f, "{'binary': 'q', 'args': []}");
	for (int i = 0; i < 2; i++) {
		struct launch l = prepared(f, &o);
		int listens = 0;
		socklen_t n = sizeof(listens);

		assert_int_equal(getsockopt(l.fds[2], SOL_SOCKET, SO_ACCEPTCONN, &listens, &n), 0);
		assert_int_equal(listens, 1);
		assert_int_equal(stat(launch_socket(f->vm, "qmp", path, sizeof(path)), &st), 0);
		assert_true(S_ISSOCK(st.st_mode));
		assert_int_equal(st.st_mode & 0777, 0600);
		launch_free(&l);
	}
}

/* --- a restore --- */

static const char manifest_text[] =
	"{'machine': 'pc-q35-10.0', 'vmgenid': 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee', 'launch': {"
	" 'binary': 'recorded', 'args': ['-M', 'q35', '-device', 'vmgenid,guid=auto,id=g', '-device',"
	" '{\\'driver\\':\\'vmgenid\\',\\'id\\':\\'h\\'}', '-device', 'vmgenid-like'],"
	" 'disks': {'d9': {'file': '/nonexistent/r.raw', 'format': 'raw'}}}}";

static void test_restore(void **state)
{
	struct fixture *f = *state;
	tp_autojson json_t *m = parse(manifest_text);
	struct launch_options o = { .incoming = true, .manifest = m };
	tp_autojson json_t *object = NULL;
	struct launch l;
	size_t end;

	set_spec(f, "{'binary': 'present', 'args': ['-m', '1G'], 'wrapper': ['w'], 'env': {'NOW': 'yes'},"
		 " 'disks': {'d0': {'file': '/nonexistent/p.raw', 'format': 'raw'}}}");
	l = prepared(f, &o);
	/* Recorded binary, args and disks with the present wrapper and environment. */
	assert_string_equal(arg(&l, 0), "w");
	assert_string_equal(arg(&l, 1), "recorded");
	assert_false(has(&l, "1G"));
	assert_non_null(strstr(arg(&l, at(&l, "-blockdev") + 1), "\"d9\""));
	assert_string_equal(tp_json_str(json_object_get(l.request, "env"), "NOW"), "yes");
	at(&l, "vmgenid,id=g,guid=aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee");
	at(&l, "vmgenid-like");
	for (size_t i = 0; i <= last(&l) && !object; i++)
		if (arg(&l, i)[0] == '{' && strstr(arg(&l, i), "vmgenid"))
			object = json_loads(arg(&l, i), 0, NULL);
	assert_string_equal(tp_json_str(object, "guid"), "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee");
	assert_string_equal(tp_json_str(object, "id"), "h");
	/* The resolved machine wins over the alias: it stands behind it. */
	end = last(&l);
	assert_string_equal(arg(&l, end - 4), "-machine");
	assert_string_equal(arg(&l, end - 3), "pc-q35-10.0");
	assert_string_equal(arg(&l, end - 2), "-S");
	assert_string_equal(arg(&l, end - 1), "-incoming");
	assert_string_equal(arg(&l, end), "defer");
	launch_free(&l);
}

/* --- failures --- */

static size_t open_descriptors(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void check_refused(struct fixture *f, const char *launch, const char *words)
{
	struct launch_options o = { 0 };
	struct tp_error err = TP_ERROR_INIT;
	size_t before = open_descriptors();
	struct launch l;

	set_spec(f, launch);
	assert_false(launch_prepare(f->vm, &o, &l, &err));
	if (!strstr(err.text, words))
		fail_msg("\"%s\" is not in: %s", words, err.text);
	assert_null(l.request);
	assert_int_equal(open_descriptors(), before);
}

static void test_failures_leave_no_descriptors(void **state)
{
	struct fixture *f = *state;

	check_refused(f, "{'binary': 'q', 'args': ['fd={fd:none}'], 'agent': 'auto'}", "{fd:none}");
	check_refused(f, "{'binary': 'q', 'args': [], 'user': 'no-such-user-of-ours'}", "no-such-user-of-ours");
	check_refused(f, "{'binary': 'q', 'args': [], 'group': 'no-such-group-of-ours'}", "no-such-group-of-ours");
	check_refused(f, "{'binary': 'q', 'args': [], 'fds': {'a': {'open': '/nonexistent/x'}}}", "/nonexistent/x");
}

static void test_user(void **state)
{
	struct fixture *f = *state;
	struct launch_options o = { 0 };
	struct passwd *pw = getpwnam("nobody");
	struct launch l;
	struct stat st;

	if (geteuid() != 0 || !pw)
		skip();
	set_spec(f, "{'binary': 'q', 'args': [], 'user': 'nobody'}");
	l = prepared(f, &o);
	assert_int_equal(tp_json_int(l.request, "uid", -1), pw->pw_uid);
	assert_int_equal(tp_json_int(l.request, "gid", -1), pw->pw_gid);
	assert_true(json_array_size(json_object_get(l.request, "groups")) >= 1);
	/* Sockets that args name below {run-dir} are made by that user. */
	assert_int_equal(stat(f->vm->run_dir, &st), 0);
	assert_int_equal(st.st_uid, pw->pw_uid);
	launch_free(&l);
}

static void check_device(struct fixture *f, const char *launch, const char *args, json_int_t uid)
{
	tp_autojson json_t *manifest = json_pack("{s:{s:s, s:o, s:{}}, s:s}", "launch", "binary", "q", "args",
						 parse(args), "disks", "machine", "pc");
	struct launch_options o = { .incoming = true, .manifest = manifest };
	struct launch l;

	set_spec(f, launch);
	l = prepared(f, &o);
	assert_null(json_object_get(l.request, "userfaultfd"));
	launch_free(&l);
	o.uffd = true;
	l = prepared(f, &o);
	assert_int_equal(tp_json_int(l.request, "userfaultfd", -1), uid);
	launch_free(&l);
}

/* A device node of its own is for the user whom QEMU is at the end; the engine's own needs none. */
static void test_device_of_a_lazy_restore(void **state)
{
	struct fixture *f = *state;
	struct passwd *pw = getpwnam("nobody");

	if (geteuid() != 0 || !pw)
		skip();
	check_device(f, "{'binary': 'q', 'args': [], 'user': 'nobody'}", "[]", pw->pw_uid);
	check_device(f, "{'binary': 'q', 'args': []}", "[]", -1);
	/* The recorded args count, not those of the spec. */
	check_device(f, "{'binary': 'q', 'args': ['-runas', 'nobody']}", "[]", -1);
	check_device(f, "{'binary': 'q', 'args': []}", "['-runas', 'nobody']", pw->pw_uid);
	check_device(f, "{'binary': 'q', 'args': []}", "['--runas', '1234:5678']", 1234);
	check_device(f, "{'binary': 'q', 'args': []}", "['-run-with', 'chroot=/x,user=1234:5678']", 1234);
	check_device(f, "{'binary': 'q', 'args': []}", "['-run-with', 'chroot=/x']", -1);
}

/* --- hooks --- */

static void test_hook(void **state)
{
	struct fixture *f = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct launch l;
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	const json_t *env;

	set_spec(f, "{'binary': 'q', 'args': [], 'hooks': {'prepare': ['/bin/p', '{name}']}}");
	assert_true(launch_hook(f->vm, "prepare", "boot", &fd, &l, &err));
	assert_int_equal(fd, -1);
	assert_int_equal(l.nfds, 2);
	assert_string_equal(tp_json_str(l.request, "job"), "hook");
	assert_string_equal(arg(&l, 1), "web1");
	env = json_object_get(l.request, "env");
	assert_string_equal(tp_json_str(env, "TORPOR_VM"), "web1");
	assert_string_equal(tp_json_str(env, "TORPOR_REASON"), "boot");
	assert_string_equal(tp_json_str(env, "TORPOR_RUN_DIR"), f->vm->run_dir);
	assert_null(json_object_get(env, "TORPOR_QEMU"));
	launch_free(&l);
	fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	assert_true(launch_hook(f->vm, "release", "quit", &fd, &l, &err));
	assert_int_equal(fd, -1);
	assert_null(l.request);
	assert_int_equal((int)launch_hook_timeout(f->vm), 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_placeholders, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_other_braces_stand_for_themselves, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_unknown_descriptor_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_argument_has_a_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_boot, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_the_user_gives_is_not_given_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_disks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_secrets_escape_commas, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_channels, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_sockets_are_connectable_and_rebound, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_restore, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_failures_leave_no_descriptors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_user, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_device_of_a_lazy_restore, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hook, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
