/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool_place.c - Where a folder is, and how two folders lie to each other */
#include "pool_place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "pool_priv.h"

bool pool_path_ok(const char *path, struct tp_error *err)
{
	for (const unsigned char *p = (const unsigned char *)path; *p; p++)
		if (*p < ' ' || *p == 0x7f)
			return tp_fail_class(err, TP_EARG, "GenericError", "the path of a pool has no control characters "
					     "(byte %zu is 0x%02x)", (size_t)(p - (const unsigned char *)path), *p);
	if (strlen(path) >= PATH_MAX)
		return tp_fail_class(err, TP_EARG, "GenericError", "the path of a pool has at most %d bytes",
				     PATH_MAX - 1);
	for (const char *p = path; *p; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");

		if (n > NAME_MAX)
			return tp_fail_class(err, TP_EARG, "GenericError", "a name in the path of a pool has at most %d "
					     "bytes", NAME_MAX);
		p += n;
	}
	return true;
}

static int open_above(int dirfd)
{
	return openat(dirfd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

bool pool_place_of(int dirfd, struct pool_place *place, struct tp_error *err)
{
	tp_autoclose int at = openat(dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	place->n = 0;
	for (;;) {
		int above;

		if (at < 0 || fstat(at, &st) != 0)
			return tp_fail_sys(err, errno, "look at the folders above a pool");
		/* The root's ".." is the root. */
		if (place->n && place->at[place->n - 1].dev == st.st_dev && place->at[place->n - 1].ino == st.st_ino)
			return true;
		if (place->n == POOL_DEPTH_MAX)
			return tp_fail(err, TP_ELIMIT, "it is more than %d folders deep", POOL_DEPTH_MAX);
		place->at[place->n].dev = st.st_dev;
		place->at[place->n++].ino = st.st_ino;
		above = open_above(at);
		tp_close(&at);
		at = above;
	}
}

/* Whether a, or with `above` a folder above it, is the folder b. */
static bool meets(const struct pool_place *a, const struct pool_place *b, bool above)
{
	for (size_t i = 0; i < (above ? a->n : 1); i++)
		if (a->at[i].dev == b->at[0].dev && a->at[i].ino == b->at[0].ino)
			return true;
	return false;
}

enum pool_nesting pool_nesting(const struct pool_place *a, const struct pool_place *b)
{
	if (a->n == 0 || b->n == 0)
		return POOL_APART;
	if (meets(a, b, false))
		return POOL_SAME;
	if (meets(a, b, true))
		return POOL_INSIDE;
	return meets(b, a, true) ? POOL_AROUND : POOL_APART;
}

bool pool_place_free(const char *path, const struct pool_place *place, const struct pool_neighbour *others,
		     size_t n, struct tp_error *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct pool_neighbour *other = &others[i];

		switch (pool_nesting(place, &other->place)) {
		case POOL_SAME:
			return other->pool ?
			       tp_fail_class(err, TP_ESTATE, "Exists", "%s is the folder of %s already", path,
					     other->what) :
			       tp_fail_class(err, TP_EARG, "GenericError", "%s is %s: a pool needs a folder of its own",
					     path, other->what);
		case POOL_INSIDE:
			if (other->lodges)
				break;
			return tp_fail_class(err, TP_EARG, "GenericError", "%s is inside %s: a pool needs a folder "
					     "of its own", path, other->what);
		case POOL_AROUND:
			return tp_fail_class(err, TP_EARG, "GenericError", "%s contains %s: a pool needs a folder "
					     "of its own", path, other->what);
		case POOL_APART:
			break;
		}
	}
	return true;
}

static bool owned_folder(int dirfd, char name[PATH_MAX])
{
	char link[64];
	ssize_t n;

	if (faccessat(dirfd, POOL_OWNER_FILE, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, name, PATH_MAX - 1);
	name[n > 0 ? n : 0] = 0;
	return true;
}

bool pool_place_no_pool_above(int dirfd, const char *path, struct tp_error *err)
{
	tp_autoclose int at = open_above(dirfd);
	char name[PATH_MAX];

	for (int i = 0; at >= 0 && i < POOL_DEPTH_MAX; i++) {
		int above;

		if (owned_folder(at, name))
			return tp_fail_class(err, TP_EARG, "GenericError", "%s is inside the pool %s: a pool needs a "
					     "folder of its own", path, name);
		above = open_above(at);
		tp_close(&at);
		at = above;
	}
	return true;
}
