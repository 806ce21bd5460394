/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool.h - Pools: folders that hold memory images, one folder an image
 *
 *   <pool>/.torpor-pool             owner file: {"format": 1, "instance": UUID, ...}, flock held
 *   <pool>/<vm>/<image-id>/memory.zst      the image (image_read.h)
 *   <pool>/<vm>/<image-id>/manifest.json   written last, atomically: the image exists iff it is
 *                                          there and names memory.zst's footer checksum
 *   <pool>/<vm>/<image-id>/consumed.json   the guest may have run from it: not offered again
 *   <pool>/<vm>/<image-id>/.spare-1, -2    blocks for that mark when the disk is full
 *   <pool>/<vm>/<image-id>/verified.json   what the last verification found
 *   <pool>/<vm>/<image-id>/moving.json     a copy in the making: not an image while it is there
 *   <pool>/<vm>/.standing/                 room held for the VM's next image: its folder, with memory.zst
 *                                          allocated (pool_standing.c)
 *
 * Everything here blocks and is called from an io_worker's thread or offline; a struct pool is
 * not shared between threads but by its owner's discipline. Paths stay beneath the pool's
 * descriptor.
 */
#ifndef POOL_H
#define POOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

#define IMAGE_ID_MAX 90
#define MANIFEST_MAX (4u << 20)		/* bytes */

struct pool;

struct pool_space {
	uint64_t total, available;	/* of the file system, for us (f_bavail as root: f_bfree) */
	uint64_t used;			/* by images of this pool, allocated bytes */
	uint64_t quota;			/* 0: none */
	bool guaranteed;		/* fallocate really reserves: ext4, xfs, tmpfs */
	uint64_t reserved;		/* promised to images being written, not yet allocated */
	uint64_t standing;		/* held for VMs that are to be hibernated later */
	uint64_t promised;		/* of reserved and standing: what the file system still calls free */
	bool read_only;
	char fs[16];			/* "ext4", "xfs", "tmpfs", "btrfs", "nfs", or hex of f_type */
};

/* The numbers of an InsufficientSpace error, for data.required, .available and .quota. */
struct pool_shortage {
	uint64_t required, available;
	uint64_t quota;			/* the quota that is in the way; 0: it is none */
};

/* Room that is wanted for an image. */
struct pool_demand {
	const char *vm;			/* whose: its standing room is there already. NULL: nobody's */
	uint64_t bytes;			/* of memory.zst at most */
	uint64_t quota;			/* of this VM over all pools; 0: none */
	uint64_t elsewhere;		/* what it has in other pools */
};

/*
 * Creates the folder (0700) if `create`, opens and locks it. Errors: IOError (missing, a file, a
 * symbolic link), PermissionDenied (open to others), Busy (locked, or owned by another host). A
 * read-only pool opens and says so in pool_space; what would write fails then with IOError.
 */
struct pool *pool_open(const char *name, const char *path, uint64_t quota, const char *instance,
		       bool create, struct tp_error *err);
void pool_close(struct pool *p);
/*
 * A pool that was read-only when it was opened and whose file system can be written by now: takes
 * the lock and the owner file as pool_open does. So where its path names another folder by now that
 * has an owner file: that one is the pool from here on. Otherwise does nothing and succeeds.
 */
bool pool_regain(struct pool *p, const char *instance, struct tp_error *err);
const char *pool_name(const struct pool *p);
const char *pool_path(const struct pool *p);
int pool_dirfd(const struct pool *p);
/* Fails (IOError) also when the folder is no longer what the path names: removed, not mounted. */
bool pool_space(const struct pool *p, struct pool_space *space, struct tp_error *err);
/* Present likewise, and its file system is not read-only (IOError). */
bool pool_writable(const struct pool *p, struct tp_error *err);
/*
 * Whether an image of `bytes` would be admitted now: room, quota, limits; nothing is touched.
 * shortage (may be NULL) is filled on InsufficientSpace, else zero.
 */
bool pool_room(const struct pool *p, const struct pool_demand *demand, struct pool_shortage *shortage,
	       struct tp_error *err);

/* "VM-YYYYMMDDTHHMMSSZ-HEX6" into id[IMAGE_ID_MAX + 1]. */
void pool_image_id(const char *vm, uint64_t now_us, char *id);
bool pool_image_id_ok(const char *id);
/* The VM's name in an image id (before the last two '-'), into vm[65]; false if malformed. */
bool pool_image_vm(const char *id, char *vm);

/*
 * Makes <vm>/<id>/ (0700) and memory.zst (0600), reserving the demand's bytes with fallocate(KEEP_SIZE)
 * where the file system can (never posix_fallocate). mode: "full" fails with InsufficientSpace when the
 * room is not there (also where fallocate is not supported: by statvfs); "estimate": only
 * statvfs; "none". On failure nothing is left. Returns the file's descriptor (O_RDWR).
 * Standing room of the demand's VM becomes the image's folder: nobody else can have it meanwhile.
 * guaranteed: no write into the first `bytes` will meet a full disk. shortage (the numbers of
 * InsufficientSpace; zero without one) and guaranteed may be NULL.
 */
int pool_image_create(struct pool *p, const struct pool_demand *demand, const char *id,
		      const char *mode, bool *guaranteed, struct pool_shortage *shortage,
		      struct tp_error *err);
int pool_image_open(const struct pool *p, const char *vm, const char *id, struct tp_error *err);	/* O_RDONLY */
/* Removes the folder and what is in it, then the VM's folder if it is empty; fsyncs. Absent is success. */
bool pool_image_remove(struct pool *p, const char *vm, const char *id, struct tp_error *err);
/* An image that was not finished: as pool_image_remove, but its room stands for the VM from here on. */
bool pool_image_return(struct pool *p, const char *vm, const char *id, struct tp_error *err);

/*
 * Standing room of a VM for an image of demand->bytes: taken, made larger or smaller. Allocated where
 * the file system can, else promised, for as long as this pool is open. On InsufficientSpace what was
 * held before is held still.
 */
bool pool_standing_hold(struct pool *p, const struct pool_demand *demand,
			struct pool_shortage *shortage, struct tp_error *err);
uint64_t pool_standing(const struct pool *p, const char *vm);	/* bytes held; 0: none */
/* It is allocated, not only promised. */
bool pool_standing_kept(const struct pool *p, const char *vm);
bool pool_standing_drop(struct pool *p, const char *vm, struct tp_error *err);	/* absent is success */
/* {VM: bytes} of all standing room in the pool. */
json_t *pool_standing_list(const struct pool *p, struct tp_error *err);
/* What an image of this VM or its standing room takes here: allocated and promised. */
uint64_t pool_used_by_vm(const struct pool *p, const char *vm);

/*
 * Manifest: a JSON object; see manifest.h for its members. It is checked before it is written and
 * when it is read: Corrupt, also when it belongs to another image; NotFound where there is none. A
 * working set that does not fit is left out when it is read, and said in the log.
 */
bool pool_manifest_write(struct pool *p, const char *vm, const char *id, const json_t *manifest,
			 struct tp_error *err);	/* atomically; fsync of file, folder and VM folder */
json_t *pool_manifest_read(const struct pool *p, const char *vm, const char *id, struct tp_error *err);
bool pool_manifest_unlink(struct pool *p, const char *vm, const char *id, struct tp_error *err);	/* + fsync; absent is success */
/* why: {"operation", "at", "ran": bool}; NULL takes the mark away. Durable; also on a full disk. */
bool pool_image_consumed(struct pool *p, const char *vm, const char *id, const json_t *why,
			 struct tp_error *err);
/* The mark's content. NotFound where there is none; Corrupt is a mark as well. */
json_t *pool_consumed_read(const struct pool *p, const char *vm, const char *id, struct tp_error *err);
/*
 * The last verification: {"format": 1, "at", "ok", "footer", "damage"?: [{"what", ...}]}. read:
 * NotFound also where it was of other content than the footer names (footer NULL: any). What does not
 * say what was found in which content is an error, said in the log, and tells nothing of the image.
 */
bool pool_verified_write(struct pool *p, const char *vm, const char *id, const json_t *outcome,
			 struct tp_error *err);
json_t *pool_verified_read(const struct pool *p, const char *vm, const char *id, const char *footer,
			   struct tp_error *err);
/* The first damage in words, into text, which is returned. */
#define POOL_DAMAGE_TEXT 200
const char *pool_damage_text(const json_t *outcome, char text[POOL_DAMAGE_TEXT]);

/*
 * A copy of an image of another pool (pool_copy.c). begin: makes <vm>/<id>/ with room for all of it
 * and the mark moving.json, or goes on with the copy of the same content that an earlier try left;
 * Exists where the pool has that image already. Returns memory.zst's descriptor (O_RDWR); its length
 * is what there is of it. suspend: what was copied stays, the room for the rest is given up. marks: the
 * source's consumed.json and verified.json, NULL: absent. offer: takes the mark away: the image is
 * here. marked: it has the mark, which mark (may be NULL) is set to, new; {} if it cannot be read.
 */
struct pool_copy {
	const char *vm, *id;
	const char *from;		/* the other pool's name */
	const char *footer;		/* of the image, hex */
	uint64_t bytes;			/* of memory.zst */
};
int pool_copy_begin(struct pool *p, const struct pool_copy *c, struct pool_shortage *shortage,
		    struct tp_error *err);
bool pool_copy_suspend(struct pool *p, const char *vm, const char *id, struct tp_error *err);
bool pool_copy_marks(struct pool *p, const char *vm, const char *id, const json_t *consumed,
		     const json_t *verified, struct tp_error *err);
bool pool_copy_offer(struct pool *p, const char *vm, const char *id, struct tp_error *err);
bool pool_copy_marked(const struct pool *p, const char *vm, const char *id, json_t **mark);

/*
 * Every image folder as {id, vm, state, manifest? (without its working set), bytes, allocated, why?,
 * consumed?, verified?, moving?}: state "complete", "consumed", "partial" (no manifest, or a copy in the making),
 * "corrupt" (manifest damaged, or its footer is not memory.zst's, of which only header and footer are
 * read; or the last verification found damage), "unavailable" (newer format, unreadable). In the
 * order of VM and id, at most `limit` entries. What is not torpor's in the pool is left out.
 */
json_t *pool_catalogue(const struct pool *p, const char *vm_or_null, size_t limit, struct tp_error *err);

#endif
