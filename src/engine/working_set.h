/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * working_set.h - What a VM's guest touches first after a resume, kept from one resume to the next
 *
 * A working set is a page set (storage/page_set.h): a lazy restore's page server records it, the VM's
 * next image carries it, the next lazy restore sends these pages first. It is advice: one that is lost,
 * old or wrong costs time, never memory. Between two images it is working-set.json in the VM's folder.
 */
#ifndef ENGINE_WORKING_SET_H
#define ENGINE_WORKING_SET_H

#include <jansson.h>

#include "engine/vm.h"

struct job;

/*
 * Replaces the VM's working set, on the "state" worker; what goes wrong is only logged. NULL: it has
 * none any more (a fresh boot, an image without one). A set without pages says nothing: the former stays.
 */
void working_set_store(struct vm *vm, json_t *set_owned);

/* For a page server's request, or to store: new, or NULL if the image has none. */
json_t *working_set_request(const json_t *manifest);

/*
 * The way into a manifest. Reading is a job for op_io(), behind all that was stored; its `out` is the
 * VM's working set, or NULL if it has none that can be used. What of it (may be NULL) lies in these RAM
 * blocks, [{"id", "bytes"}], the image gets: new, or NULL.
 */
struct op_job *working_set_read(struct vm *vm, struct tp_error *err);
json_t *working_set_of(const json_t *set, const json_t *ram);

#endif
