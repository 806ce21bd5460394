/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_fault.h - Faults at exact places, for the test suite (builds with TP_FAULTS only)
 *
 * The request's member "fault" asks for one: "die-after-hello", "die-after-sealed",
 * "die-at-bytes:N", "stall-at-bytes:N", "io-error-at-bytes:N". Dying is by SIGKILL. N counts
 * bytes of the raw stream; of a copy, and for io-error of a save, bytes of the image file. Other builds refuse
 * the member.
 */
#ifndef MOVER_FAULT_H
#define MOVER_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "mover_control.h"
#include "mover_request.h"

/* Before the sandbox. */
bool fault_setup(const struct mover_request *r, struct tp_error *err);

#ifdef TP_FAULTS
void fault_hello(struct control *c);
void fault_sealed(struct control *c);
/* From a pump's progress. */
void fault_bytes(uint64_t done);
/* A load is to fail now as if its image could not be read. */
bool fault_io_error(void);
void job_selftest_sandbox(const struct mover_request *r, struct control *c)
	__attribute__((noreturn));
#else
static inline void fault_hello(struct control *c)
{
	(void)c;
}

static inline void fault_sealed(struct control *c)
{
	(void)c;
}

static inline void fault_bytes(uint64_t done)
{
	(void)done;
}

static inline bool fault_io_error(void)
{
	return false;
}
#endif

#endif
