/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_uffd.c - Who may use userfaultfd, by what the host says, and the sentence for those who may not
 *
 * Access by mode and access control list is compared with what the kernel says of a file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "engine/uffd.h"
#include "engine/vm.h"

#define ACL_NAME "system.posix_acl_access"
#define ROUNDS 150	/* random access control lists */

/* --- the decision --- */

/* A host of today, as it is delivered, seen by an engine that is root. */
static const struct uffd_host usual = {
	.call = true, .ptrace = true, .device = true, .opens = true, .mounter = true, .shared = true, .mode = 0600,
};

static struct uffd_asker asker(bool own, int major)
{
	struct uffd_asker a = { .name = "qemu", .own = own, .ids = { .has_uid = true, .uid = 64, .gid = 64 },
				.major = major, .minor = 2 };

	return a;
}

static void assert_way(const struct uffd_host *h, const struct uffd_asker *a, enum uffd_way way, const char *sentence)
{
	char why[TP_TEXT_SIZE] = "";
	enum uffd_way found = uffd_judge(h, a, why, sizeof(why));

	assert_string_equal(why, sentence);
	assert_int_equal(found, way);
}

static void own_rights_suffice(void **state)
{
	struct uffd_asker root = asker(true, 10), old = asker(true, 7);
	struct uffd_host h = usual;

	(void)state;
	assert_way(&h, &root, UFFD_DIRECT, "user \"qemu\" may open /dev/userfaultfd");
	assert_way(&h, &old, UFFD_DIRECT, "user \"qemu\" has CAP_SYS_PTRACE");
	h.device = h.opens = false;
	assert_way(&h, &root, UFFD_DIRECT, "user \"qemu\" has CAP_SYS_PTRACE");
	h.ptrace = false;
	h.unprivileged = true;
	assert_way(&h, &root, UFFD_DIRECT, "vm.unprivileged_userfaultfd is 1");
}

static void other_user_is_given_a_device(void **state)
{
	struct uffd_asker known = asker(false, 10), unknown = asker(false, 0), old = asker(false, 7);
	struct uffd_host h = usual;

	(void)state;
	assert_way(&h, &known, UFFD_HAND_OVER, "QEMU is given a /dev/userfaultfd of its own for user \"qemu\"");
	assert_way(&h, &unknown, UFFD_HAND_OVER, "QEMU is given a /dev/userfaultfd of its own for user \"qemu\"");
	assert_way(&h, &old, UFFD_NONE, "user \"qemu\" may not use userfaultfd: set vm.unprivileged_userfaultfd=1 "
		   "(QEMU 7.2 knows only the system call)");
	h.unprivileged = true;
	assert_way(&h, &known, UFFD_DIRECT, "vm.unprivileged_userfaultfd is 1");
	assert_way(&h, &old, UFFD_DIRECT, "vm.unprivileged_userfaultfd is 1");
	/* A filter around torpord forbids the call, as those of container engines do. */
	h.call = false;
	assert_way(&h, &known, UFFD_HAND_OVER, "QEMU is given a /dev/userfaultfd of its own for user \"qemu\"");
	h.mode = 0666;
	assert_way(&h, &known, UFFD_DIRECT, "user \"qemu\" may open /dev/userfaultfd");
	assert_way(&h, &old, UFFD_NONE, "QEMU 7.2 needs the system call userfaultfd, which this kernel or a filter "
		   "around torpord refuses");
}

static void what_to_grant_is_said(void **state)
{
	static const char both[] = "user \"qemu\" may not use userfaultfd: set vm.unprivileged_userfaultfd=1, or "
				   "give user \"qemu\" access to /dev/userfaultfd";
	struct uffd_asker other = asker(false, 10), own = asker(true, 10);
	struct uffd_host h = usual;

	(void)state;
	/* Without rights over mounts, or where the namespace would be cut off from the host's. */
	h.mounter = false;
	assert_way(&h, &other, UFFD_NONE, both);
	h.mounter = true;
	h.shared = false;
	assert_way(&h, &other, UFFD_NONE, both);
	h.call = false;
	assert_way(&h, &other, UFFD_NONE, "user \"qemu\" may not use userfaultfd: give it access to "
		   "/dev/userfaultfd");
	/* An engine without privileges runs QEMU as itself. */
	h = usual;
	h.ptrace = h.opens = h.mounter = false;
	assert_way(&h, &own, UFFD_NONE, both);
	h.device = false;
	assert_way(&h, &own, UFFD_NONE, "user \"qemu\" may not use userfaultfd: set vm.unprivileged_userfaultfd=1 "
		   "(there is no /dev/userfaultfd here)");
	h.call = false;
	assert_way(&h, &own, UFFD_NONE, "this kernel, or a filter around torpord, offers no userfaultfd");
}

/* --- whom the node lets in, compared with the kernel --- */

static unsigned random_state = 1;

static unsigned pick(unsigned n)
{
	random_state = random_state * 1103515245u + 12345u;
	return (random_state >> 16) % n;
}

static const uint32_t ids[] = { 0, 1000, 1001, 1002 };

static size_t random_acl(unsigned char *acl)
{
	static const unsigned tags[] = { ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, ACL_MASK, ACL_OTHER };
	struct posix_acl_xattr_header header = { .a_version = POSIX_ACL_XATTR_VERSION };
	size_t at = sizeof(header);

	memcpy(acl, &header, sizeof(header));
	for (size_t i = 0; i < TP_N(tags); i++) {
		bool named = tags[i] == ACL_USER || tags[i] == ACL_GROUP;

		for (size_t k = 1; k < (named ? TP_N(ids) : 2); k++) {
			struct posix_acl_xattr_entry e = { .e_tag = (uint16_t)tags[i], .e_perm = (uint16_t)pick(8),
							   .e_id = named ? ids[k] : (uint32_t)ACL_UNDEFINED_ID };

			if (named && pick(2))
				continue;
			memcpy(acl + at, &e, sizeof(e));
			at += sizeof(e);
		}
	}
	return at;
}

/* What the kernel says to a process of these ids. */
static bool kernel_admits(const char *path, const struct launch_user *u)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setgroups(u->ngroups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
		    setresuid(u->uid, u->uid, u->uid) < 0)
			_exit(2);
		_exit(open(path, O_RDWR | O_CLOEXEC) < 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WEXITSTATUS(status) == 0;
}

static void compare_access(const char *path, const struct uffd_host *h)
{
	struct uffd_asker a = { .name = "qemu", .major = 10 };
	char why[TP_TEXT_SIZE];
	bool kernel, ours;

	a.ids = (struct launch_user){ .has_uid = true, .uid = ids[1 + pick(3)], .gid = ids[1 + pick(3)],
				      .groups = { ids[1 + pick(3)] }, .ngroups = pick(2) };
	kernel = kernel_admits(path, &a.ids);
	ours = uffd_judge(h, &a, why, sizeof(why)) == UFFD_DIRECT;
	if (kernel != ours)
		fail_msg("mode %o of %u:%u, %zu bytes of ACL, asked by %u:%u and group %u (%zu): kernel %d, we %d",
			 (unsigned)h->mode, (unsigned)h->uid, (unsigned)h->gid, h->acl_size, (unsigned)a.ids.uid,
			 (unsigned)a.ids.gid, (unsigned)a.ids.groups[0], a.ids.ngroups, kernel, ours);
}

/* The file becomes as one of ACL entries or mode bits says; so does h. False: no ACLs here. */
static bool randomise(const char *path, struct uffd_host *h)
{
	struct stat st;
	ssize_t n;

	removexattr(path, ACL_NAME);
	assert_int_equal(chown(path, ids[pick(4)], ids[pick(4)]), 0);
	if (pick(3) == 0) {
		assert_int_equal(chmod(path, pick(01000)), 0);
	} else {
		h->acl_size = random_acl(h->acl);
		if (setxattr(path, ACL_NAME, h->acl, h->acl_size, 0) < 0 && errno == EOPNOTSUPP)
			return false;
	}
	assert_int_equal(stat(path, &st), 0);
	n = getxattr(path, ACL_NAME, h->acl, sizeof(h->acl));
	h->acl_size = n > 0 ? (size_t)n : 0;
	h->mode = st.st_mode;
	h->uid = st.st_uid;
	h->gid = st.st_gid;
	return true;
}

static void access_is_as_the_kernel_has_it(void **state)
{
	char path[] = "/tmp/torpor-uffd-XXXXXX";
	struct uffd_host h = { .device = true, .opens = true };
	size_t lists = 0;
	int fd;

	(void)state;
	if (geteuid() != 0)
		skip();
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	for (size_t i = 0; i < ROUNDS; i++) {
		if (!randomise(path, &h)) {
			unlink(path);
			print_message("SKIP: /tmp has no access control lists\n");
			skip();
		}
		lists += h.acl_size > 0;
		compare_access(path, &h);
	}
	unlink(path);
	assert_true(lists > ROUNDS / 3);
}

/* --- the host --- */

/* In a process of its own, whether mounts are found to be shared; there, one namespace in another. 2: not allowed. */
static int shared_in(unsigned long outer, unsigned long inner)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct uffd_host h;

		/* The open file keeps the outer one, without which there is nobody to be a slave of. */
		if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", "none", MS_REC | outer, NULL) < 0 ||
		    open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC) < 0 || unshare(CLONE_NEWNS) < 0 ||
		    mount("none", "/", "none", MS_REC | inner, NULL) < 0)
			_exit(2);
		uffd_host_read(&h);
		_exit(h.shared);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void cut_off_mounts_are_seen(void **state)
{
	(void)state;
	if (shared_in(MS_PRIVATE, MS_PRIVATE) == 2)
		skip();
	assert_int_equal(shared_in(MS_PRIVATE, MS_PRIVATE), 0);
	assert_int_equal(shared_in(MS_PRIVATE, MS_SHARED), 1);
	assert_int_equal(shared_in(MS_SHARED, MS_PRIVATE), 0);
	/* What a hardened unit of systemd has. */
	assert_int_equal(shared_in(MS_SHARED, MS_SLAVE), 1);
	assert_int_equal(shared_in(MS_PRIVATE, MS_SLAVE), 0);
}

/* As another user, without a right: facts, not hopes. */
static void user_without_rights_sees_none(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	pid = fork();
	if (pid == 0) {
		struct uffd_host h;

		if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 ||
		    setresuid(65534, 65534, 65534) < 0)
			_exit(2);
		uffd_host_read(&h);
		_exit(h.ptrace || h.mounter || h.opens != (access(UFFD_DEVICE, R_OK | W_OK) == 0));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* --- of a VM --- */

static void hostile_arguments_are_no_users(void **state)
{
	static const struct { const char *args; bool has; uid_t uid; } cases[] = {
		{ "[]", false, 0 }, { "[1, 2, null]", false, 0 }, { "[\"-runas\"]", false, 0 },
		{ "[\"-runas\", 5]", false, 0 }, { "[\"-runas\", \"12:34\"]", true, 12 },
		{ "[\"-run-with\", \"user=12:34,chroot=/\"]", true, 12 },
		{ "[\"-run-with\", \"xuser=12:34\"]", false, 0 },
		{ "[\"-runas\", \"1:1\", \"--runas\", \"2:2\"]", true, 2 }, { "{}", false, 0 },
	};
	struct vm vm = { .spec = json_pack("{s:{s:s}}", "launch", "binary", "q") };

	(void)state;
	for (size_t i = 0; i < TP_N(cases); i++) {
		tp_autojson json_t *args = json_loads(cases[i].args, 0, NULL);
		struct tp_error err = TP_ERROR_INIT;
		struct launch_user u;

		assert_non_null(args);
		assert_true(uffd_user(&vm, args, &u, &err));
		if (u.has_uid != cases[i].has || u.uid != cases[i].uid)
			fail_msg("%s: %d %u", cases[i].args, u.has_uid, (unsigned)u.uid);
	}
	json_decref(vm.spec);
}

static void way_of_an_image(void **state)
{
	tp_autojson json_t *old = json_loads("{\"launch\": {\"args\": [\"-runas\", \"64:64\"]}, \"qemu\": "
					     "{\"version\": {\"major\": 7, \"minor\": 2}}}", 0, NULL);
	tp_autojson json_t *unknown = json_loads("{\"launch\": {\"args\": [\"-runas\", \"no-such-user\"]}}", 0, NULL);
	struct vm vm = { .spec = json_pack("{s:{s:s}}", "launch", "binary", "q") };
	char why[TP_TEXT_SIZE] = "";
	struct uffd_host h;

	(void)state;
	assert_int_equal(uffd_way_of(&vm, unknown, why), UFFD_NONE);
	assert_string_equal(why, "no user \"no-such-user\"");
	uffd_host_read(&h);
	if (h.call && !h.unprivileged) {
		assert_int_equal(uffd_way_of(&vm, old, why), UFFD_NONE);
		assert_non_null(strstr(why, "user \"64\""));
		assert_non_null(strstr(why, "QEMU 7.2 knows only the system call"));
	}
	json_decref(vm.spec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_rights_suffice),
		cmocka_unit_test(other_user_is_given_a_device),
		cmocka_unit_test(what_to_grant_is_said),
		cmocka_unit_test(access_is_as_the_kernel_has_it),
		cmocka_unit_test(cut_off_mounts_are_seen),
		cmocka_unit_test(user_without_rights_sees_none),
		cmocka_unit_test(hostile_arguments_are_no_users),
		cmocka_unit_test(way_of_an_image),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
