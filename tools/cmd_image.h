/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image.h - What the verbs on image files share: info, verify, cat, map
 *
 * They need no torpord but to find the file of an image that is named by its id. The bytes are
 * hostile; what is printed of them goes through cli_say() and the like.
 */
#ifndef CMD_IMAGE_H
#define CMD_IMAGE_H

#include <jansson.h>
#include <stdbool.h>

#include "cli_verb.h"
#include "storage/image_read.h"

/* An operand with a '/' is a file, any other the id of an image. */
bool image_is_file(const char *operand);
/* The operand's file; the caller frees. CLI_DONE, or all is said. */
int image_path(struct cli *cli, const char *operand, char **path);

/* Opens a regular file or a block device, and nothing that could block or act by being opened. */
int image_open_path(const char *path, struct tp_error *err);
/* "torpor: PATH: text", with --json the error object (data, borrowed, may be NULL): CLI_FAILED. */
int image_failed(const struct cli *cli, const char *path, const struct tp_error *err);

/*
 * A JSON file of torpor's beside the image: NULL if it is not there, and then *why (a struct that is
 * clear) only says something if it is damaged, larger than `max` bytes or cannot be read.
 */
json_t *image_beside(const char *path, const char *file, size_t max, struct tp_error *why);

#define IMAGE_MARK_MAX 65536u		/* bytes of consumed.json and the like */

/* The record of the last verification of just this content (img may be NULL: of any), or NULL; why as above. */
json_t *image_verification(const char *path, const struct image *img, struct tp_error *why);
bool image_found_damaged(const json_t *verification);	/* may be NULL */

/* What manifest and image say differently, as sentences; both borrowed. A new array. */
json_t *image_contradictions(const char *path, const struct image *img, const json_t *manifest);

#endif
