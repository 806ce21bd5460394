/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * guest_disks.h - The disks of a saved guest: which files, what they were, whether they still are
 *
 * The functions with a struct job or a manifest block: on the worker only.
 */
#ifndef GUEST_DISKS_H
#define GUEST_DISKS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

struct op;
struct job;

/*
 * From the answer of query-block: {NODE: {file, format, read-only, nvram}} of what is inserted. A disk
 * that is no file of this host is listed by the name that QEMU gives it. New.
 */
json_t *guest_disks(struct op *op, const json_t *block);

/*
 * Job: in as from guest_disks(), out {disks: {NODE: fingerprint}, nvram: {NODE: fingerprint}, notes: [text]}.
 * Syncs what is written to. NVRAM that cannot be examined is a note, a disk that cannot is an error.
 */
bool guest_disks_take(struct job *j, struct tp_error *err);

/*
 * What became of the disks of a manifest: {stale: [..], unproven: [..], nvram: [..]}, each a list of
 * {disk, file, how, detail, part?}. declared: {ID: {file}}, where the VM has its disks by now; may be
 * NULL. New; NULL when out of memory.
 */
json_t *guest_disks_compare(const json_t *manifest, const json_t *declared);

/* Takes the fingerprints of changed disks anew into the manifest; changes: [text], may be NULL. */
bool guest_disks_retake(json_t *manifest, bool *changed, json_t *changes, struct tp_error *err);

#endif
