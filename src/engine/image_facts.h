/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_facts.h - Is an image the one that its manifest describes? */
#ifndef IMAGE_FACTS_H
#define IMAGE_FACTS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

/*
 * found: the mover's word on memory.zst {footer, uuid, bytes, raw-bytes, machine?, blocks?}. What both
 * say must agree; Corrupt names the member.
 */
bool image_facts_compare(const json_t *manifest, const json_t *found, struct tp_error *err);

#endif
