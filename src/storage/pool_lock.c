/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_lock.c - One owner at a time: the file .torpor-pool
 *
 * Theory of operation
 *
 * Whoever uses a pool holds an flock on its owner file for as long as the pool is open; the file
 * itself says who that is, for people and for the other side's error. It is overwritten in place, as
 * a replaced file would not be the locked one. A lock may mean nothing between two hosts that share
 * a file system, so the file also says whose pool this is: another host's is refused even when the
 * lock could be had. Of this host another instance may take over what nobody holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "pool_priv.h"

TP_LOG_SOURCE("storage.pool");

#define OWNER_FORMAT 1
#define OWNER_MAX 4096
#define MACHINE_ID_MAX 256

/* machine-id(5) is not to be shown: its hash tells hosts apart as well. */
static json_t *machine(void)
{
	struct tp_error ignored = TP_ERROR_INIT;
	tp_autofree char *id = NULL;
	char text[17];
	size_t n;

	id = tp_read_path("/etc/machine-id", MACHINE_ID_MAX, &n, &ignored);
	if (!id || n < 32)
		return json_null();
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)XXH64(id, 32, 0));
	return json_string(text);
}

static json_t *myself(const char *instance)
{
	tp_autojson json_t *o = json_object();
	struct utsname host;
	char now[TP_TIME_TEXT];

	if (uname(&host) != 0 || !tp_json_set(o, "format", json_integer(OWNER_FORMAT)) ||
	    !tp_json_set_str(o, "instance", instance) || !tp_json_set_str(o, "host", host.nodename) ||
	    !tp_json_set(o, "machine", machine()) || !tp_json_set(o, "pid", json_integer(getpid())) ||
	    !tp_json_set_str(o, "since", tp_time_format(tp_now_us(), now)))
		return NULL;
	return TP_STEAL(o);
}

/* What the owner file says; NULL when it says nothing that can be understood. */
static json_t *read_owner(int fd)
{
	struct tp_error ignored = TP_ERROR_INIT;
	char text[OWNER_MAX];
	ssize_t n = pread(fd, text, sizeof(text), 0);
	json_t *owner = n > 0 ? tp_json_parse(text, (size_t)n, POOL_JSON_DEPTH, &ignored) : NULL;

	if (json_is_object(owner))
		return owner;
	json_decref(owner);
	return NULL;
}

static const char *or_unknown(const json_t *owner, const char *key)
{
	const char *text = tp_json_str(owner, key);

	return text ? text : "unknown";
}

static bool held_by(const struct pool *p, const json_t *owner, struct tp_error *err)
{
	return tp_fail_class(err, TP_ESTATE, "Busy",
			     "pool \"%s\" (%s) is in use by process %lld on host %s (instance %s)",
			     p->name, p->path, (long long)tp_json_int(owner, "pid", 0),
			     or_unknown(owner, "host"), or_unknown(owner, "instance"));
}

/* Hosts are told apart by machine id, or by name where one of them has none. */
static bool same_host(const json_t *owner, const json_t *me)
{
	const char *a = tp_json_str(owner, "machine"), *b = tp_json_str(me, "machine");

	if (a && b)
		return strcmp(a, b) == 0;
	a = tp_json_str(owner, "host");
	return !a || strcmp(a, or_unknown(me, "host")) == 0;
}

static bool may_own(const struct pool *p, const json_t *owner, const json_t *me,
		    struct tp_error *err)
{
	const char *before = tp_json_str(owner, "instance"), *now = tp_json_str(me, "instance");

	if (!owner || (before && now && strcmp(before, now) == 0))
		return true;
	if (tp_json_int(owner, "format", 0) > OWNER_FORMAT)
		return tp_fail(err, TP_EUNSUPPORTED, "pool \"%s\" (%s) is of a newer format", p->name,
			       p->path);
	if (!same_host(owner, me))
		return tp_fail_class(err, TP_ESTATE, "Busy",
				     "pool \"%s\" (%s) belongs to host %s (instance %s); if that one "
				     "has given it up, remove its file " POOL_OWNER_FILE, p->name,
				     p->path, or_unknown(owner, "host"),
				     or_unknown(owner, "instance"));
	if (before)
		tp_info("pool=%s taken over from instance=%s", p->name, before);
	return true;
}

/* A full disk must not keep the pool from being opened: what is in it wants to be used. */
static bool write_owner(const struct pool *p, const json_t *me, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *text = tp_json_text(me);
	size_t n;

	if (!text)
		return tp_fail_nomem(err);
	n = strlen(text);
	text[n] = '\n';		/* in place of the NUL: the length is known */
	if (tp_pwrite_all(p->lockfd, text, n + 1, 0, &why) &&
	    ftruncate(p->lockfd, (off_t)n + 1) == 0)
		return true;
	if (why.sys != ENOSPC && why.sys != EDQUOT)
		return tp_fail_sys(err, why.sys ? why.sys : errno, "pool \"%s\": write %s/%s", p->name,
				   p->path, POOL_OWNER_FILE);
	tp_warn("pool=%s owner file not written: no room", p->name);
	return true;
}

/* lockfd -1 without an error: a read-only pool without owner file. */
static bool open_owner(struct pool *p, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;

	p->lockfd = tp_openat(p->dirfd, POOL_OWNER_FILE, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &why);
	p->made_owner = p->lockfd >= 0;
	if (why.sys == EEXIST) {
		tp_error_clear(&why);
		p->lockfd = tp_openat(p->dirfd, POOL_OWNER_FILE, O_RDWR | O_NONBLOCK, 0, &why);
	}
	if (p->lockfd < 0 && (why.sys == EROFS || why.sys == EACCES)) {
		p->read_only = true;
		tp_error_clear(&why);
		p->lockfd = tp_openat(p->dirfd, POOL_OWNER_FILE, O_RDONLY | O_NONBLOCK, 0, &why);
		if (p->lockfd < 0 && why.sys == ENOENT)
			return true;
	}
	if (p->lockfd < 0)
		return tp_fail_sys(err, why.sys, "pool \"%s\": open %s/%s", p->name, p->path,
				   POOL_OWNER_FILE);
	return true;
}

bool pool_lock(struct pool *p, const char *instance, struct tp_error *err)
{
	tp_autojson json_t *owner = NULL, *me = myself(instance);
	struct stat st;

	if (!me)
		return tp_fail_nomem(err);
	if (!open_owner(p, err))
		return false;
	if (p->lockfd < 0)
		return true;
	if (fstat(p->lockfd, &st) != 0 || !S_ISREG(st.st_mode))
		return tp_fail(err, TP_ESYS, "pool \"%s\": %s/%s is not a regular file", p->name,
			       p->path, POOL_OWNER_FILE);
	if (TEMP_FAILURE_RETRY(flock(p->lockfd, LOCK_EX | LOCK_NB)) != 0) {
		if (errno != EWOULDBLOCK)
			return tp_fail_sys(err, errno, "pool \"%s\": lock %s/%s", p->name, p->path,
					   POOL_OWNER_FILE);
		p->made_owner = false;	/* who has locked it owns it */
		owner = read_owner(p->lockfd);
		return held_by(p, owner, err);
	}
	owner = read_owner(p->lockfd);
	return may_own(p, owner, me, err) && (p->read_only || write_owner(p, me, err));
}

static bool is_pool(const char *path)
{
	tp_autoclose int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return dir >= 0 && faccessat(dir, POOL_OWNER_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * Another folder is there now: a mount that came back, a folder that was moved back. Only one that
 * has an owner file: what a lost mount leaves bare is not a pool.
 */
static bool take_other_folder(struct pool *p, const char *instance, struct tp_error *err)
{
	struct pool *now;

	if (!is_pool(p->path))
		return true;
	now = pool_open(p->name, p->path, p->quota, instance, false, err);
	if (!now)
		return false;
	tp_close(&p->dirfd);
	tp_close(&p->lockfd);
	p->dirfd = TP_STEAL_FD(now->dirfd);
	p->lockfd = TP_STEAL_FD(now->lockfd);
	p->dev = now->dev;
	p->ino = now->ino;
	p->read_only = now->read_only;
	pool_close(now);
	tp_warn("pool=%s path=%s is another folder now: taken", p->name, p->path);
	return true;
}

bool pool_regain(struct pool *p, const char *instance, struct tp_error *err)
{
	struct statvfs vfs;

	if (!pool_present(p, NULL))
		return take_other_folder(p, instance, err);
	if (!p->read_only || fstatvfs(p->dirfd, &vfs) != 0 || (vfs.f_flag & ST_RDONLY))
		return true;
	p->read_only = false;
	tp_close(&p->lockfd);
	return pool_lock(p, instance, err);
}
