/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool_copy.c - The copy of an image that comes from another pool, until it is the image
 *
 * Theory of operation
 *
 * Both pools know the image by one id, and only one of them may offer it. So the folder here has the
 * mark moving.json from its first byte on until the move was committed; with the mark it is
 * "partial", whatever else is in it. memory.zst grows from its front; its length says how much was
 * copied, its header comes last. What is there is read and checked again when the copy goes on:
 * nothing was synced, and a power cut may have left zeros.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "pool_priv.h"

static int open_copy(const struct pool *p, const char *vm, const char *id, struct stat *st,
		     struct tp_error *err)
{
	tp_autoclose int fd = -1;
	char path[POOL_PATH_MAX];

	if (!pool_image_path(vm, id, POOL_IMAGE_FILE, path, err))
		return -1;
	fd = tp_openat(p->dirfd, path, O_RDWR | O_NONBLOCK, 0, err);
	if (fd < 0)
		return -1;
	if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode)) {
		tp_fail(err, TP_ECORRUPT, "image \"%s\": %s is not a regular file", id, POOL_IMAGE_FILE);
		return -1;
	}
	return TP_STEAL_FD(fd);
}

/*
 * Standing room is the VM's next image's, and what a VM may have in all is the same after the move:
 * only the pool's own room and quota count.
 */
static bool take_room(struct pool *p, int fd, const struct pool_copy *c, uint64_t missing,
		      struct pool_shortage *shortage, struct tp_error *err)
{
	const struct pool_demand more = { .bytes = missing };
	struct tp_error why = TP_ERROR_INIT;
	bool unsupported;

	if (!pool_room(p, &more, shortage, err))
		return false;
	if (!pool_allocate(fd, c->bytes, &unsupported, &why)) {
		pool_fail(p, &why, missing, shortage, err);
		return false;
	}
	return !unsupported || pool_promise(p, c->vm, c->id, c->bytes, err);
}

/* A manifest may be left of a try that was turned back at its end. */
static int go_on(struct pool *p, const struct pool_copy *c, struct pool_shortage *shortage,
		 struct tp_error *err)
{
	tp_autoclose int fd = -1;
	uint64_t there;
	struct stat st;

	if (!pool_manifest_unlink(p, c->vm, c->id, err))
		return -1;
	fd = open_copy(p, c->vm, c->id, &st, err);
	if (fd < 0)
		return -1;
	there = (uint64_t)st.st_size < c->bytes ? (uint64_t)st.st_size : c->bytes;
	return take_room(p, fd, c, c->bytes - there, shortage, err) ? TP_STEAL_FD(fd) : -1;
}

static int make_folder(struct pool *p, const struct pool_copy *c, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autoclose int vmfd = pool_vm_folder(p, c->vm, &why);
	int fd = vmfd < 0 ? -1 : pool_folder_make(vmfd, c->id, &why);

	if (fd < 0)
		pool_fail(p, &why, c->bytes, NULL, err);
	return fd;
}

static bool mark_moving(struct pool *p, const struct pool_copy *c, struct tp_error *err)
{
	char at[TP_TIME_TEXT];
	tp_autojson json_t *mark = json_pack("{s:i, s:s, s:s, s:I, s:s}", "format", 1, "from", c->from,
					     "footer", c->footer, "bytes", (json_int_t)c->bytes, "at",
					     tp_time_format(tp_now_us(), at));

	return mark ? pool_json_write(p, c->vm, c->id, POOL_MOVING_FILE, mark, POOL_MOVING_MAX, err) :
		      tp_fail_nomem(err);
}

static int start(struct pool *p, const struct pool_copy *c, struct pool_shortage *shortage,
		 struct tp_error *err)
{
	tp_autoclose int fd = -1;

	if (!pool_writable(p, err))
		return -1;
	fd = make_folder(p, c, err);
	if (fd < 0)
		return -1;
	if (take_room(p, fd, c, c->bytes, shortage, err) && mark_moving(p, c, err))
		return TP_STEAL_FD(fd);
	pool_image_remove(p, c->vm, c->id, NULL);
	return -1;
}

static bool has_manifest(const struct pool *p, const char *vm, const char *id)
{
	char path[POOL_PATH_MAX];

	return pool_image_path(vm, id, POOL_MANIFEST_FILE, path, NULL) &&
	       (faccessat(p->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT);
}

int pool_copy_begin(struct pool *p, const struct pool_copy *c, struct pool_shortage *shortage,
		    struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autojson json_t *mark = pool_json_read(p, c->vm, c->id, POOL_MOVING_FILE, POOL_MOVING_MAX,
						  &why);
	const char *footer = tp_json_str(mark, "footer");

	*shortage = (struct pool_shortage){ .required = 0 };
	if (!mark && why.code != TP_ESTATE && why.code != TP_ECORRUPT) {
		*err = why;
		return -1;
	}
	if (footer && strcmp(footer, c->footer) == 0)
		return go_on(p, c, shortage, err);
	if (why.code == TP_ESTATE && has_manifest(p, c->vm, c->id)) {
		tp_fail_class(err, TP_ESTATE, "Exists", "pool \"%s\" has an image \"%s\" already", p->name,
			      c->id);
		return -1;
	}
	/* Of other content, or never finished. */
	return pool_image_remove(p, c->vm, c->id, err) ? start(p, c, shortage, err) : -1;
}

bool pool_copy_suspend(struct pool *p, const char *vm, const char *id, struct tp_error *err)
{
	tp_autoclose int fd = -1;
	struct stat st;

	pool_promise_drop(p, vm, id);
	fd = open_copy(p, vm, id, &st, err);
	/* To its own length: blocks behind that are given back. */
	return fd >= 0 && (ftruncate(fd, st.st_size) == 0 ||
			   tp_fail_sys(err, errno, "image \"%s\": give room back", id));
}

static bool put_mark(struct pool *p, const char *vm, const char *id, const char *file,
		     const json_t *value, struct tp_error *err)
{
	return value ? pool_json_write(p, vm, id, file, value, POOL_VERIFIED_MAX, err) :
		       pool_json_unlink(p, vm, id, file, err);
}

bool pool_copy_marks(struct pool *p, const char *vm, const char *id, const json_t *consumed,
		     const json_t *verified, struct tp_error *err)
{
	return pool_ids_check(vm, id, err) &&
	       put_mark(p, vm, id, POOL_CONSUMED_FILE, consumed, err) &&
	       put_mark(p, vm, id, POOL_VERIFIED_FILE, verified, err);
}

bool pool_copy_offer(struct pool *p, const char *vm, const char *id, struct tp_error *err)
{
	return pool_ids_check(vm, id, err) && pool_present(p, err) &&
	       pool_json_unlink(p, vm, id, POOL_MOVING_FILE, err);
}

/* Absent is only what is known to be so. */
bool pool_copy_marked(const struct pool *p, const char *vm, const char *id, json_t **mark)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autojson json_t *found = pool_json_read(p, vm, id, POOL_MOVING_FILE, POOL_MOVING_MAX, &why);
	bool marked = found || why.code != TP_ESTATE;

	if (mark)
		*mark = !marked ? NULL : found ? TP_STEAL(found) : json_object();
	return marked;
}
