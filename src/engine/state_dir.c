/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * state_dir.c - The state directory: lock, version, host.json, vms/<name>/, ops.log
 *
 * Every JSON file is replaced atomically and synced, so a crash leaves the old one or the new one.
 * ops.log is only appended to and never needed for recovery: a torn or damaged line is skipped.
 */
#include "engine/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_proc.h"
#include "base/tp_time.h"

TP_LOG_SOURCE("engine.state");

#define UUID_TEXT 37
#define OPS_READ_MAX (8u << 20)	/* of ops.log, from its end */
#define DEPTH_MAX 64
#define GONE ".gone-"		/* a folder that is being removed */

struct state_dir {
	char *path;
	int dir, vms, lock;
	bool rebooted;
	pthread_mutex_t host;		/* held while host.json is changed */
	char instance[UUID_TEXT];
};

/* --- one JSON file --- */

static json_t *read_json(int dirfd, const char *file, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autofree char *text = NULL;
	size_t n = 0;
	json_t *value;

	text = tp_read_file(dirfd, file, STATE_FILE_MAX, &n, &why);
	if (!text) {
		if (why.sys != ENOENT && err && err->code == TP_OK)
			*err = why;
		return NULL;
	}
	value = tp_json_parse(text, n, DEPTH_MAX, &why);
	if (json_is_object(value))
		return value;
	tp_fail(err, TP_ECORRUPT, "%s is damaged: %s", file,
		value ? "it is no object" : why.text);
	json_decref(value);
	return NULL;
}

static bool write_json(int dirfd, const char *file, const json_t *value, struct tp_error *err)
{
	tp_autofree char *text = tp_json_text(value);

	if (!text)
		return tp_fail_nomem(err);
	if (strlen(text) > STATE_FILE_MAX)
		return tp_fail(err, TP_ELIMIT, "%s would be longer than %u bytes", file,
			       STATE_FILE_MAX);
	return tp_replace_file(dirfd, file, text, strlen(text), true, err);
}

/* --- opening --- */

/* By the line of the engine before this one; what a power cut left of that is no boot's id either. */
static bool of_another_boot(int lock)
{
	char line[64 + TP_BOOT_ID] = "";
	ssize_t n = pread(lock, line, sizeof(line) - 1, 0);

	return n >= 0 && !strstr(line, tp_boot_id());
}

static bool take_lock(struct state_dir *s, struct tp_error *err)
{
	char line[64 + TP_BOOT_ID];
	int n;

	s->lock = tp_lock_file(s->dir, "lock", err);
	if (s->lock < 0)
		return tp_prefix(err, "state directory %s", s->path);
	s->rebooted = of_another_boot(s->lock);
	n = snprintf(line, sizeof(line), "%jd %s\n", (intmax_t)getpid(), tp_boot_id());
	if (ftruncate(s->lock, 0) != 0)
		return tp_fail_sys(err, errno, "write the lock of %s", s->path);
	return tp_pwrite_all(s->lock, line, (size_t)n, 0, err);
}

static bool make_version(struct state_dir *s, struct tp_error *err)
{
	tp_autofree char *uuid = tp_read_path("/proc/sys/kernel/random/uuid", 64, NULL, err);
	tp_autojson json_t *version = NULL;

	if (!uuid)
		return false;
	uuid[strcspn(uuid, "\n")] = '\0';
	snprintf(s->instance, sizeof(s->instance), "%s", uuid);
	version = json_pack("{s:i, s:s}", "format", STATE_FORMAT, "instance", s->instance);
	if (!version)
		return tp_fail_nomem(err);
	return write_json(s->dir, "version", version, err);
}

/* Format 1 is the first one: there is no older directory to upgrade. */
static bool check_version(struct state_dir *s, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autojson json_t *version = read_json(s->dir, "version", &why);
	const char *instance = tp_json_str(version, "instance");
	int64_t format = tp_json_int(version, "format", 0);

	if (!version && why.code == TP_OK)
		return make_version(s, err);
	if (!version) {
		if (err && err->code == TP_OK)
			*err = why;
		return tp_prefix(err, "state directory %s", s->path);
	}
	if (format > STATE_FORMAT)
		return tp_fail_class(err, TP_EUNSUPPORTED, "Unsupported",
				     "state directory %s has format %lld, this torpor knows %d: use the newer torpor",
				     s->path, (long long)format, STATE_FORMAT);
	if (format < 1 || !instance || strlen(instance) != UUID_TEXT - 1)
		return tp_fail(err, TP_ECORRUPT, "state directory %s: the file version is damaged",
			       s->path);
	snprintf(s->instance, sizeof(s->instance), "%s", instance);
	return true;
}

struct state_dir *state_dir_open(const char *path, struct tp_error *err)
{
	struct state_dir *s = calloc(1, sizeof(*s));

	if (!s) {
		tp_fail_nomem(err);
		return NULL;
	}
	s->dir = s->vms = s->lock = -1;
	pthread_mutex_init(&s->host, NULL);
	s->path = strdup(path);
	if (!s->path) {
		tp_fail_nomem(err);
		goto fail;
	}
	s->dir = tp_mkdirs(path, err);
	if (s->dir < 0 || !take_lock(s, err) || !check_version(s, err))
		goto fail;
	s->vms = tp_mkdir_open(s->dir, "vms", err);
	if (s->vms < 0 || !tp_fsync(s->dir, path, err))
		goto fail;
	return s;
fail:
	state_dir_close(s);
	return NULL;
}

void state_dir_close(struct state_dir *s)
{
	if (!s)
		return;
	tp_close(&s->vms);
	tp_close(&s->lock);
	tp_close(&s->dir);
	pthread_mutex_destroy(&s->host);
	free(s->path);
	free(s);
}

const char *state_dir_path(const struct state_dir *s)
{
	return s->path;
}

const char *state_dir_instance(const struct state_dir *s)
{
	return s->instance;
}

bool state_dir_rebooted(const struct state_dir *s)
{
	return s->rebooted;
}

/* --- VMs --- */

/* Files come by rename and synced: no cut leaves an empty one, so that is damage, not absence. */
static bool has_file(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A folder that counts; one left by a define that was cut before spec.json came is removed. */
static bool keep_vm(struct state_dir *s, const char *name)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autoclose int dir = tp_openat(s->vms, name, O_RDONLY | O_DIRECTORY, 0, &err);

	if (dir < 0) {
		tp_warn("vms/%s: %s", name, err.text);
		return false;
	}
	if (has_file(dir, "spec.json"))
		return true;
	if (has_file(dir, "state.json") || has_file(dir, "op.log"))
		tp_warn("vms/%s has no spec.json, but a state: left alone", name);
	else if (!tp_remove_dir(s->vms, name, &err))
		tp_warn("vms/%s: %s", name, err.text);
	else
		tp_info("vms/%s was never complete: removed", name);
	return false;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in vms/, sorted; the caller frees. */
static bool list_names(struct state_dir *s, char ***names, size_t *n, struct tp_error *err)
{
	int fd = tp_openat(s->vms, ".", O_RDONLY | O_DIRECTORY, 0, err);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	char **list = NULL;

	*n = 0;
	if (!dir) {
		tp_fail_sys(err, errno, "read folder vms");
		tp_close(&fd);
		return false;
	}
	while ((e = readdir(dir))) {
		char **more;

		if (strncmp(e->d_name, GONE, strlen(GONE)) == 0)
			tp_remove_dir(s->vms, e->d_name, NULL);
		if (!tp_name_ok(e->d_name))
			continue;
		more = reallocarray(list, *n + 1, sizeof(*list));
		if (!more)
			break;
		list = more;
		list[*n] = strdup(e->d_name);
		if (!list[*n])
			break;
		++*n;
	}
	closedir(dir);
	*names = list;
	if (*n)
		qsort(list, *n, sizeof(*list), by_name);
	return !e || tp_fail_nomem(err);
}

json_t *state_dir_vms(struct state_dir *s, struct tp_error *err)
{
	json_t *names = json_array();
	char **list = NULL;
	size_t n = 0;
	bool ok = names && list_names(s, &list, &n, err);

	for (size_t i = 0; i < n; i++) {
		if (ok && keep_vm(s, list[i]))
			json_array_append_new(names, json_string(list[i]));
		free(list[i]);
	}
	free(list);
	if (ok)
		return names;
	tp_fail(err, TP_ESYS, "cannot list the VMs of %s", s->path);
	json_decref(names);
	return NULL;
}

int state_dir_vm(struct state_dir *s, const char *vm, bool create, struct tp_error *err)
{
	int dir;

	if (!tp_name_ok(vm)) {
		tp_fail(err, TP_EARG, "\"%.64s\" is no name of a VM", vm);
		return -1;
	}
	if (!create)
		return tp_openat(s->vms, vm, O_RDONLY | O_DIRECTORY, 0, err);
	dir = tp_mkdir_open(s->vms, vm, err);
	if (dir >= 0 && !tp_fsync(s->vms, "folder vms", err))
		tp_close(&dir);
	return dir;
}

/* By a name that is no VM's first: a removal that is cut is finished by state_dir_vms(). */
bool state_dir_vm_remove(struct state_dir *s, const char *vm, struct tp_error *err)
{
	char gone[sizeof(GONE) + TP_NAME_MAX];

	if (!tp_name_ok(vm))
		return tp_fail(err, TP_EARG, "\"%.64s\" is no name of a VM", vm);
	snprintf(gone, sizeof(gone), GONE "%s", vm);
	if (!tp_remove_dir(s->vms, gone, err))
		return false;
	if (renameat(s->vms, vm, s->vms, gone) != 0)
		return errno == ENOENT || tp_fail_sys(err, errno, "remove folder vms/%s", vm);
	return tp_fsync(s->vms, "folder vms", err) && tp_remove_dir(s->vms, gone, err);
}

json_t *state_vm_read(int vm_dirfd, const char *file, struct tp_error *err)
{
	return read_json(vm_dirfd, file, err);
}

bool state_vm_write(int vm_dirfd, const char *file, const json_t *value, struct tp_error *err)
{
	return write_json(vm_dirfd, file, value, err);
}

bool state_vm_set_aside(int vm_dirfd, const char *file, struct tp_error *err)
{
	char name[64 + TP_TIME_TEXT], stamp[TP_TIME_TEXT];

	snprintf(name, sizeof(name), "%s.bad-%s", file, tp_time_stamp(tp_now_us(), stamp));
	if (renameat(vm_dirfd, file, vm_dirfd, name) != 0)
		return tp_fail_sys(err, errno, "set %s aside as %s", file, name);
	return tp_fsync(vm_dirfd, "the VM's state folder", err);
}

/* --- host.json --- */

json_t *state_host_read(struct state_dir *s, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	json_t *host = read_json(s->dir, "host.json", &why);

	if (host || why.code == TP_OK)
		return host ? host : json_object();
	if (err && err->code == TP_OK)
		*err = why;
	return NULL;
}

static bool edit_host(struct state_dir *s, enum state_edit (*edit)(json_t *host, void *arg), void *arg,
		      struct tp_error *err)
{
	tp_autojson json_t *host = state_host_read(s, err);

	if (!host)
		return false;
	switch (edit(host, arg)) {
	case STATE_UNCHANGED:
		return true;
	case STATE_CHANGED:
		return write_json(s->dir, "host.json", host, err);
	case STATE_NO_MEMORY:
		break;
	}
	return tp_fail_nomem(err);
}

bool state_host_edit(struct state_dir *s, enum state_edit (*edit)(json_t *host, void *arg), void *arg,
		     struct tp_error *err)
{
	bool ok;

	pthread_mutex_lock(&s->host);
	ok = edit_host(s, edit, arg, err);
	pthread_mutex_unlock(&s->host);
	return ok;
}

/* --- ops.log --- */

/* The last OPS_READ_MAX bytes, from the beginning of a line. */
static bool read_ops(int fd, struct tp_buf *buf, struct tp_error *err)
{
	struct stat st;
	off_t from;
	size_t n;
	char *newline;

	if (fstat(fd, &st) != 0)
		return tp_fail_sys(err, errno, "read ops.log");
	/* One byte more: where it is a newline, the window begins with a whole line. */
	from = st.st_size > (off_t)OPS_READ_MAX ? st.st_size - (off_t)OPS_READ_MAX - 1 : 0;
	n = (size_t)(st.st_size - from);
	if (n == 0)
		return true;
	if (!tp_buf_reserve(buf, n))
		return tp_fail_nomem(err);
	if (!tp_pread_all(fd, buf->data, n, from, err))
		return false;
	buf->len = n;
	newline = from > 0 ? memchr(buf->data, '\n', n) : NULL;
	if (newline)
		tp_buf_drop(buf, (size_t)(newline - buf->data) + 1);
	return true;
}

json_t *state_ops_read(struct state_dir *s, struct tp_error *err)
{
	tp_autobuf struct tp_buf buf = TP_BUF_INIT(0);
	tp_autojson json_t *records = json_array();
	struct tp_error why = TP_ERROR_INIT;
	tp_autoclose int fd = tp_openat(s->dir, "ops.log", O_RDONLY, 0, &why);

	if (fd < 0 && why.sys == ENOENT)
		return TP_STEAL(records);
	if (fd < 0) {
		if (err && err->code == TP_OK)
			*err = why;
		return NULL;
	}
	if (!read_ops(fd, &buf, err))
		return NULL;
	for (size_t at = 0; at < buf.len;) {
		const char *end = memchr(buf.data + at, '\n', buf.len - at);
		size_t n = (end ? (size_t)(end - buf.data) : buf.len) - at;
		json_t *record = tp_json_parse(buf.data + at, n, DEPTH_MAX, NULL);

		if (json_is_object(record))
			json_array_append(records, record);
		json_decref(record);
		at += n + 1;
	}
	return TP_STEAL(records);
}

static bool add_line(struct tp_buf *buf, const json_t *record)
{
	tp_autofree char *text = json_dumps(record, JSON_COMPACT);

	return text && tp_buf_adds(buf, text) && tp_buf_adds(buf, "\n");
}

bool state_ops_append(struct state_dir *s, const json_t *record, struct tp_error *err)
{
	tp_autobuf struct tp_buf line = TP_BUF_INIT(STATE_FILE_MAX);
	tp_autoclose int fd = tp_openat(s->dir, "ops.log", O_RDWR | O_CREAT | O_APPEND, 0600, err);
	struct stat st;
	char last;

	if (fd < 0)
		return false;
	/* A torn line of a crash must not swallow this one. */
	if (fstat(fd, &st) == 0 && st.st_size > 0 &&
	    (pread(fd, &last, 1, st.st_size - 1) != 1 || last != '\n'))
		tp_buf_adds(&line, "\n");
	if (!add_line(&line, record))
		return tp_fail(err, TP_ELIMIT, "a record for ops.log is too long");
	return tp_write_all(fd, line.data, line.len, err);
}

bool state_ops_rewrite(struct state_dir *s, const json_t *records, struct tp_error *err)
{
	tp_autobuf struct tp_buf text = TP_BUF_INIT(OPS_READ_MAX);
	json_t *record;
	size_t i;

	json_array_foreach(records, i, record) {
		if (!add_line(&text, record))
			return tp_fail(err, TP_ELIMIT, "ops.log would be longer than %u bytes",
				       OPS_READ_MAX);
	}
	return tp_replace_file(s->dir, "ops.log", text.data ? text.data : "", text.len, true, err);
}
