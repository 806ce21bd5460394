/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fingerprint_device.h - What a block device's content is known by */
#ifndef FINGERPRINT_DEVICE_H
#define FINGERPRINT_DEVICE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_buf.h"
#include "disk_node.h"

/*
 * {bytes, serial?, diskseq?, written?, samples?}: what of it the kernel tells; or a JSON string that
 * says why the device cannot be known again. NULL when out of memory. Writes back what is dirty
 * first, so that the count of written sectors stands still afterwards.
 */
json_t *fingerprint_device(const struct disk_node *node);
/* diskseq and written are comparable within one boot only. how gets words where they differ. */
bool fingerprint_device_equal(const json_t *recorded, const json_t *present, bool same_boot,
			      struct tp_buf *how);

#endif
