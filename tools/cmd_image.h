/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image.h - `torpor image info|verify|cat FILE`: memory images without a daemon
 *
 * All print to stdout, errors as one sentence to stderr (with json also as an
 * object {"class", "desc"} to stdout), and return the exit status: 0 done, 1
 * failed, 2 usage, 4 interrupted, 6 partial (salvaged with losses).
 */
#ifndef CMD_IMAGE_H
#define CMD_IMAGE_H

#include <stdbool.h>

int cmd_image_info(const char *file, bool json);
int cmd_image_verify(const char *file, bool json);
/* The plain QEMU stream; salvage: what of a damaged image can be read. Refuses a terminal. */
int cmd_image_cat(const char *file, bool salvage);

#endif
