/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* op_fault.c - Fault points of the runner, for the test suite; empty without TP_FAULTS */
#include "engine/op_priv.h"

#ifdef TP_FAULTS
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"

#define EXIT_INJECTED 42

static const char *const names[] = {
	[OP_FAULT_DIE_BEFORE] = "die-before",
	[OP_FAULT_DIE_AFTER_ENTER] = "die-after-enter",
	[OP_FAULT_DIE_AFTER_EFFECT] = "die-after-effect",
	[OP_FAULT_FAIL] = "fail",
	[OP_FAULT_SILENT] = "silent",
};

static struct {
	bool armed;
	char kind[32], step[64];	/* kind "": any */
	enum op_fault what;
} fault;

bool op_fault_set(const char *text)
{
	const char *slash = strchr(text, '/'), *step = slash ? slash + 1 : text;
	const char *colon = strrchr(step, ':');

	fault.armed = false;
	if (!colon || (size_t)(colon - step) >= sizeof(fault.step) ||
	    (slash && (size_t)(slash - text) >= sizeof(fault.kind)))
		return false;
	snprintf(fault.kind, sizeof(fault.kind), "%.*s", slash ? (int)(slash - text) : 0, text);
	snprintf(fault.step, sizeof(fault.step), "%.*s", (int)(colon - step), step);
	for (size_t i = 0; i < TP_N(names); i++) {
		if (strcmp(colon + 1, names[i]) == 0) {
			fault.what = (enum op_fault)i;
			fault.armed = true;
		}
	}
	return fault.armed;
}

bool op_fault_here(const struct op *op, enum op_fault what)
{
	const struct op_step *step = op_step_at(op);

	if (!fault.armed || fault.what != what || op->back || !step ||
	    strcmp(step->name, fault.step) != 0 ||
	    (fault.kind[0] && strcmp(fault.kind, op->plan->kind) != 0))
		return false;
	if (what <= OP_FAULT_DIE_AFTER_EFFECT)
		_exit(EXIT_INJECTED);
	fault.armed = false;
	return true;
}
#endif
