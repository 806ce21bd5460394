/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_machine.h - Which machine an image was saved from */
#ifndef IMAGE_MACHINE_H
#define IMAGE_MACHINE_H

#include <stdbool.h>

#include "base/tp_error.h"
#include "storage/image_read.h"

#define IMAGE_MACHINE_MAX 256

/* The machine type, from the configuration section in the first frame; "" if it is not there. */
bool image_machine(const struct image *img, char machine[IMAGE_MACHINE_MAX], struct tp_error *err);

#endif
