/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * uffd.c - May the QEMU of a VM take page faults of its guest into its own hands (userfaultfd)?
 *
 * Theory of operation. The kernel has two doors. The system call, for faults in the kernel too as
 * QEMU wants it, is for CAP_SYS_PTRACE, or for all if vm.unprivileged_userfaultfd is 1. The device
 * (Linux 6.1) is for whom its node lets in; QEMU tries it first since 8.0 and knows but the system
 * call before. QEMU asks when the capability postcopy-ram is set: by then -runas has taken effect.
 *
 * A QEMU with the engine's own rights may what the engine may, so there the engine tries. Another
 * user's access is computed by the rules of acl(5), as trying it would mean to become that user.
 * Where only that user's access is missing and the engine is root, QEMU can be given a node of its
 * own (the mover's job launch). That takes a mount namespace, whose mounts must follow the host's:
 * a private copy would hide later mounts from QEMU and keep busy what the host has unmounted.
 */
#include "engine/uffd.h"

#include <grp.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_text.h"
#include "engine/engine.h"
#include "engine/vm_runtime.h"

#define READ_WRITE (ACL_READ | ACL_WRITE)

/* --- whom the node lets in --- */

static bool in_group(const struct launch_user *u, gid_t gid)
{
	for (size_t i = 0; i < u->ngroups; i++)
		if (u->groups[i] == gid)
			return true;
	return u->gid == gid;
}

static bool mode_admits(const struct uffd_host *h, const struct launch_user *u)
{
	unsigned shift = u->uid == h->uid ? 6 : in_group(u, h->gid) ? 3 : 0;

	return (h->mode >> shift & READ_WRITE) == READ_WRITE;
}

struct acl {
	unsigned mask;
	bool has_user, has_group, group_admits;
	unsigned user, other;
};

static void take_entry(struct acl *acl, unsigned tag, unsigned perm, uint32_t id, const struct uffd_host *h,
		       const struct launch_user *u)
{
	if (tag == ACL_MASK)
		acl->mask = perm;
	if (tag == ACL_OTHER)
		acl->other = perm;
	if (tag == ACL_USER && id == u->uid) {
		acl->has_user = true;
		acl->user = perm;
	}
	if ((tag == ACL_GROUP_OBJ && in_group(u, h->gid)) || (tag == ACL_GROUP && in_group(u, id))) {
		acl->has_group = true;
		acl->group_admits |= (perm & READ_WRITE) == READ_WRITE;
	}
}

/* As acl(5) has it: the user's entry, else any group's, else that of others. */
static bool acl_admits(const struct uffd_host *h, const struct launch_user *u)
{
	struct acl acl = { .mask = READ_WRITE };
	struct posix_acl_xattr_entry e;

	for (size_t at = sizeof(struct posix_acl_xattr_header); at + sizeof(e) <= h->acl_size; at += sizeof(e)) {
		memcpy(&e, h->acl + at, sizeof(e));
		take_entry(&acl, tp_le16(&e.e_tag), tp_le16(&e.e_perm), tp_le32(&e.e_id), h, u);
	}
	if (acl.has_user)
		return (acl.user & acl.mask & READ_WRITE) == READ_WRITE;
	if (acl.has_group)
		return acl.group_admits && (acl.mask & READ_WRITE) == READ_WRITE;
	return (acl.other & READ_WRITE) == READ_WRITE;
}

static bool admits(const struct uffd_host *h, const struct uffd_asker *a)
{
	if (!h->device || !h->opens || a->own)
		return h->opens;
	/* With an empty mask, which the group's bits are, the kernel does not look at the list. */
	if (a->ids.uid == h->uid || h->acl_size == 0 || !(h->mode & S_IRWXG))
		return mode_admits(h, &a->ids);
	return acl_admits(h, &a->ids);
}

/* --- the sentence --- */

static enum uffd_way say(enum uffd_way way, char *why, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static enum uffd_way say(enum uffd_way way, char *why, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(why, size, fmt, ap) < 0)
		why[0] = '\0';
	va_end(ap);
	return way;
}

static enum uffd_way refuse(const struct uffd_host *h, const struct uffd_asker *a, bool knows_device, char *why,
			    size_t size)
{
	if (!knows_device && !h->call)
		return say(UFFD_NONE, why, size, "QEMU %d.%d needs the system call userfaultfd, which this kernel "
			   "or a filter around torpord refuses", a->major, a->minor);
	if (!h->call && !h->device)
		return say(UFFD_NONE, why, size, "this kernel, or a filter around torpord, offers no userfaultfd");
	if (!knows_device)
		return say(UFFD_NONE, why, size, "user \"%s\" may not use userfaultfd: set "
			   "vm.unprivileged_userfaultfd=1 (QEMU %d.%d knows only the system call)", a->name,
			   a->major, a->minor);
	if (!h->call)
		return say(UFFD_NONE, why, size, "user \"%s\" may not use userfaultfd: give it access to "
			   UFFD_DEVICE, a->name);
	if (!h->device)
		return say(UFFD_NONE, why, size, "user \"%s\" may not use userfaultfd: set "
			   "vm.unprivileged_userfaultfd=1 (there is no " UFFD_DEVICE " here)", a->name);
	return say(UFFD_NONE, why, size, "user \"%s\" may not use userfaultfd: set vm.unprivileged_userfaultfd=1, or "
		   "give user \"%s\" access to " UFFD_DEVICE, a->name, a->name);
}

enum uffd_way uffd_judge(const struct uffd_host *h, const struct uffd_asker *a, char *why, size_t size)
{
	bool knows_device = a->major == 0 || a->major >= 8;

	if (knows_device && admits(h, a))
		return say(UFFD_DIRECT, why, size, "user \"%s\" may open " UFFD_DEVICE, a->name);
	if (h->call && h->unprivileged)
		return say(UFFD_DIRECT, why, size, "vm.unprivileged_userfaultfd is 1");
	if (h->call && a->own && h->ptrace)
		return say(UFFD_DIRECT, why, size, "user \"%s\" has CAP_SYS_PTRACE", a->name);
	if (knows_device && !a->own && h->device && h->opens && h->mounter && h->shared)
		return say(UFFD_HAND_OVER, why, size, "QEMU is given a " UFFD_DEVICE " of its own for user \"%s\"",
			   a->name);
	return refuse(h, a, knows_device, why, size);
}

/* --- of a VM --- */

/* "NAME" or "UID:GID", as QEMU takes it. */
static bool runas_user(const char *text, struct launch_user *u, struct tp_error *err)
{
	tp_autofree char *name = strndup(text, strcspn(text, ","));
	const char *at = name;
	uint32_t uid, gid;

	if (!name)
		return tp_fail_nomem(err);
	if (!tp_take_u32(&at, &uid) || *at++ != ':' || !tp_take_u32(&at, &gid) || *at)
		return launch_user_named(name, NULL, u, err);
	*u = (struct launch_user){ .has_uid = true, .has_gid = true, .uid = uid, .gid = gid, .groups = { gid },
				   .ngroups = 1 };
	return true;
}

/* What stands for a user in "-run-with a=b,user=NAME,...". NULL: nothing. */
static const char *run_with(const char *options)
{
	while (options && strncmp(options, "user=", 5) != 0) {
		options = strchr(options, ',');
		options += options != NULL;
	}
	return options ? options + 5 : NULL;
}

/* The last one counts. */
static const char *runas_of(const json_t *args)
{
	const char *found = NULL, *value;

	for (size_t i = 0; i + 1 < json_array_size(args); i++) {
		const char *option = json_string_value(json_array_get(args, i));

		value = json_string_value(json_array_get(args, i + 1));
		if (!option || !value)
			continue;
		option += strncmp(option, "--", 2) == 0;
		if (strcmp(option, "-runas") == 0)
			found = value;
		else if (strcmp(option, "-run-with") == 0 && run_with(value))
			found = run_with(value);
	}
	return found;
}

bool uffd_user(const struct vm *vm, const json_t *args, struct launch_user *u, struct tp_error *err)
{
	const char *runas = runas_of(args);

	return runas ? runas_user(runas, u, err) : launch_user(vm, u, err);
}

static void name_of(uid_t uid, char *name, size_t size)
{
	const struct passwd *pw = getpwuid(uid);

	if (pw)
		snprintf(name, size, "%s", pw->pw_name);
	else
		snprintf(name, size, "%u", (unsigned)uid);
}

static enum uffd_way way_of(const struct vm *vm, const json_t *args, const json_t *version, char *why)
{
	struct uffd_asker a = { .major = (int)tp_json_int(version, "major", 0),
				.minor = (int)tp_json_int(version, "minor", 0) };
	struct tp_error err = TP_ERROR_INIT;
	struct uffd_host host;

	if (!uffd_user(vm, args, &a.ids, &err))
		return say(UFFD_NONE, why, TP_TEXT_SIZE, "%s", err.text);
	a.own = !a.ids.has_uid || a.ids.uid == geteuid();
	name_of(a.own ? geteuid() : a.ids.uid, a.name, sizeof(a.name));
	uffd_host_read(&host);
	return uffd_judge(&host, &a, why, TP_TEXT_SIZE);
}

enum uffd_way uffd_way_of(const struct vm *vm, const json_t *manifest, char why[TP_TEXT_SIZE])
{
	return way_of(vm, tp_json_path(manifest, "launch.args"), tp_json_path(manifest, "qemu.version"), why);
}

enum uffd_way uffd_way(const struct vm *vm, char why[TP_TEXT_SIZE])
{
	const json_t *entry = pools_image(vm->t->pools, tp_json_str(json_object_get(vm->rest, "image"), "id"), NULL);
	const struct vm_qemu *q = vm->qemu;

	if (q && q->ready) {
		tp_autojson json_t *version = json_pack("{s:i, s:i}", "major", q->major, "minor", q->minor);

		return way_of(vm, tp_json_path(vm->rest, "launched.args"), version, why);
	}
	if (entry)
		return uffd_way_of(vm, json_object_get(entry, "manifest"), why);
	return way_of(vm, tp_json_path(vm->spec, "launch.args"), NULL, why);
}
