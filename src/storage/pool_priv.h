/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool_priv.h - What the files of the pool share; included by pool*.c only */
#ifndef POOL_PRIV_H
#define POOL_PRIV_H

#include <sys/stat.h>

#include "base/tp_fs.h"
#include "pool.h"

#define POOL_OWNER_FILE ".torpor-pool"
#define POOL_IMAGE_FILE "memory.zst"
#define POOL_MANIFEST_FILE "manifest.json"
#define POOL_CONSUMED_FILE "consumed.json"
#define POOL_STANDING_FOLDER ".standing"	/* also the id of a promise for it */
#define POOL_CONSUMED_MAX 65536u	/* bytes */
#define POOL_VERIFIED_FILE "verified.json"
#define POOL_VERIFIED_MAX 65536u
#define POOL_MOVING_FILE "moving.json"
#define POOL_MOVING_MAX 4096u
/* Files of one block, made with the image: in them the mark is written when the disk is full. */
#define POOL_SPARE_1 ".spare-1"
#define POOL_SPARE_2 ".spare-2"
#define POOL_SPARE_FILES { POOL_SPARE_1, POOL_SPARE_2 }
#define POOL_SPARE_BYTES 4096u
#define POOL_JSON_DEPTH 32u
#define POOL_NAMES_MAX 65536u		/* entries of one folder */
/* vm + '/' + image id + '/' + file + NUL */
#define POOL_PATH_MAX (TP_NAME_MAX + 1 + IMAGE_ID_MAX + 1 + 16 + 1)
/* Added to a reservation, so that folders and manifest find room at the end. */
#define POOL_SLACK (256u << 10)

/* Room promised to an image that is being written, where fallocate does not keep the promise. */
struct pool_promise {
	char vm[TP_NAME_MAX + 1], id[IMAGE_ID_MAX + 1];
	uint64_t bytes;
};

struct pool {
	char name[TP_NAME_MAX + 1];
	char *path;
	uint64_t quota;
	int dirfd;
	int lockfd;		/* the owner file; -1 in a read-only pool that has none */
	bool read_only;		/* found when it was opened */
	bool made, made_owner;	/* the folder, the owner file: by this opening */
	dev_t dev;
	ino_t ino;
	struct pool_promise *promises;
	size_t n_promises;
};

/* Locks dirfd's owner file and writes who holds it. */
bool pool_lock(struct pool *p, const char *instance, struct tp_error *err);

bool pool_promise(struct pool *p, const char *vm, const char *id, uint64_t bytes,
		  struct tp_error *err);
void pool_promise_drop(struct pool *p, const char *vm, const char *id);
uint64_t pool_promised(const struct pool *p, const char *vm, const char *id);	/* as it was made; 0: none */
/* Still the folder that its path names. */
bool pool_present(const struct pool *p, struct tp_error *err);
/*
 * A failure of file work in the pool that err holds and `required` bytes were wanted for: a full
 * disk becomes InsufficientSpace with numbers and path. False.
 */
bool pool_fail(const struct pool *p, const struct tp_error *why, uint64_t required,
	       struct pool_shortage *shortage, struct tp_error *err);
bool pool_fail_space(const struct pool *p, uint64_t required, uint64_t available,
		     const char *of_what, struct pool_shortage *shortage, struct tp_error *err);

/* Allocates the file's first `bytes` (more than its size stays free). True, or *unsupported is set. */
bool pool_allocate(int fd, uint64_t bytes, bool *unsupported, struct tp_error *err);
/* The VM's folder, made if need be; nobody else can write into it. */
int pool_vm_folder(struct pool *p, const char *vm, struct tp_error *err);
/* Makes folder `name` in it with spare blocks and memory.zst; on failure nothing is left. */
int pool_folder_make(int vmfd, const char *name, struct tp_error *err);
/* Removes it and then the VM's folder if that is empty, durably; absent is success. */
bool pool_folder_remove(struct pool *p, const char *vm, const char *name, struct tp_error *err);
/* Standing room becomes the folder of an image: its memory.zst, or -1 with *absent or err. */
int pool_standing_take(struct pool *p, int vmfd, const char *vm, const char *id, bool *absent,
		       struct tp_error *err);
uint64_t pool_standing_allocated(const struct pool *p, const char *vm);

/* "vm/id/file" (file may be "") into path; fails where vm and id are not what they must be. */
bool pool_image_path(const char *vm, const char *id, const char *file, char path[POOL_PATH_MAX],
		     struct tp_error *err);
bool pool_ids_check(const char *vm, const char *id, struct tp_error *err);
/*
 * JSON files in an image's folder. write: durably, a torn file is never seen; NotFound without the
 * folder. read: Corrupt if it is no JSON object, NotFound if there is none. unlink: synced; absent
 * is success.
 */
bool pool_json_write(struct pool *p, const char *vm, const char *id, const char *file,
		     const json_t *value, size_t max, struct tp_error *err);
json_t *pool_json_read(const struct pool *p, const char *vm, const char *id, const char *file,
		       size_t max, struct tp_error *err);
bool pool_json_unlink(struct pool *p, const char *vm, const char *id, const char *file,
		      struct tp_error *err);

struct pool_names {
	char **name;
	size_t n;
};

/* Sorted names in the folder at path that ok() accepts; freed by pool_names_free, also on failure. */
bool pool_names(int dirfd, const char *path, bool (*ok)(const char *name), struct pool_names *names,
		struct tp_error *err);
void pool_names_free(struct pool_names *names);
/* Sums of lengths and of allocated bytes of the plain files of an image's folder. */
void pool_image_usage(const struct pool *p, const char *vm, const char *id, uint64_t *bytes,
		      uint64_t *allocated);

#endif
