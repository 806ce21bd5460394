/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * manifest.h - What a manifest says, checked
 *
 * {format: 1, image, uuid (hex), vm, uid, generation, kind: "hibernation", created,
 *  torpor (version), layout: "stream", file: "memory.zst", bytes, raw-bytes, footer (hex of u64),
 *  qemu: {version: {major, minor, micro}, package}, machine (resolved), cpu: {model, props?},
 *  launch: {binary, args (placeholders kept), agent?, console?, disks: {ID: {file, format, read-only, options}}},
 *  vmgenid?, run-state, capabilities: [..], ram: {bytes, blocks: [{id, bytes}]},
 *  disks, nvram: {NODE: fingerprint}, agent: bool, hotplug: [..], keep: bool, warnings: [..],
 *  working-set?: page set (page_set.h) of blocks of "ram"}
 * No environment, no secrets. Unknown members are kept and ignored.
 */
#ifndef MANIFEST_H
#define MANIFEST_H

#include <jansson.h>

#include "base/tp_error.h"

/* Types, names, bounds of every member that torpor uses; Corrupt with data.where in the text. */
bool manifest_check(const json_t *manifest, struct tp_error *err);
/*
 * Of a checked manifest: takes its working set out if that is none, or does not lie in the RAM blocks;
 * false, and err says why. An image without it is as good.
 */
bool manifest_trim(json_t *manifest, struct tp_error *err);
/* Whether a checked manifest is that of this image file, in all that it repeats of it; else Corrupt. */
struct image_peek;
bool manifest_matches(const json_t *manifest, const struct image_peek *file, struct tp_error *err);

#endif
