/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verbs.c - Which verb is allowed in which state: one table, and a sentence for each refusal */
#include "engine/verbs.h"

#include <string.h>

#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/ops.h"

/* What stands in the table: allowed, nothing to do, or refused with the verb to use instead. */
#define OK { VERB_OK, NULL }
#define SAME { VERB_UNCHANGED, NULL }
#define NO(use) { VERB_REFUSED, use }

struct cell {
	enum verb_answer answer;
	const char *use;
};

enum { ROW_SHUTOFF, ROW_RUNNING, ROW_PAUSED, ROW_SUSPENDED, ROW_HIBERNATED, ROW_CRASHED, ROW_LOST, ROW_N };

static const struct cell table[VERB_N][ROW_N] = {
	/*                    shutoff         running         paused           suspended        hibernated        crashed         lost */
	[VERB_START] =      { OK,             SAME,           NO("vm-resume"), NO("vm-wakeup"), OK,               OK,             NO("vm-resolve") },
	[VERB_HIBERNATE] =  { NO("vm-start"), OK,             OK,              OK,              SAME,             NO("vm-start"), NO("vm-resolve") },
	[VERB_RESTORE] =    { NO("vm-start"), NO(NULL),       NO("vm-resume"), NO("vm-wakeup"), OK,               NO("vm-start"), NO("vm-resolve") },
	[VERB_PAUSE] =      { NO("vm-start"), OK,             SAME,            NO("vm-wakeup"), NO("vm-restore"), NO("vm-start"), NO("vm-resolve") },
	[VERB_RESUME] =     { NO("vm-start"), SAME,           OK,              NO("vm-wakeup"), NO("vm-restore"), NO("vm-start"), NO("vm-resolve") },
	[VERB_RESET] =      { NO("vm-start"), OK,             OK,              OK,              NO("vm-restore"), NO("vm-start"), NO("vm-resolve") },
	[VERB_POWERDOWN] =  { SAME,           OK,             NO("vm-resume"), OK,              NO("vm-discard"), SAME,           NO("vm-resolve") },
	[VERB_QUIT] =       { SAME,           OK,             OK,              OK,              SAME,             OK,             OK },
	[VERB_MONITOR] =    { NO("vm-start"), OK,             OK,              OK,              NO("vm-restore"), NO("vm-start"), OK },
	[VERB_DISCARD] =    { SAME,           NO(NULL),       NO(NULL),        NO(NULL),        OK,               SAME,           NO("vm-resolve") },
	[VERB_IMAGE_MOVE] = { OK,             OK,             OK,              OK,              OK,               OK,             OK },
};

const char *verb_name(enum verb v)
{
	static const char *const names[VERB_N] = {
		[VERB_START] = "vm-start", [VERB_HIBERNATE] = "vm-hibernate", [VERB_RESTORE] = "vm-restore",
		[VERB_PAUSE] = "vm-pause", [VERB_RESUME] = "vm-resume", [VERB_RESET] = "vm-reset",
		[VERB_POWERDOWN] = "vm-powerdown", [VERB_QUIT] = "vm-quit", [VERB_MONITOR] = "vm-monitor",
		[VERB_DISCARD] = "vm-discard", [VERB_IMAGE_MOVE] = "image-move",
	};

	return names[v];
}

enum verb verb_of_kind(const char *kind)
{
	if (strcmp(kind, "hibernate") == 0)
		return VERB_HIBERNATE;
	if (strcmp(kind, "restore") == 0)
		return VERB_RESTORE;
	if (strcmp(kind, "image-move") == 0)
		return VERB_IMAGE_MOVE;
	return strcmp(kind, "powerdown") == 0 ? VERB_POWERDOWN : VERB_START;
}

/* -1: a state that passes by itself. */
static int row_of(enum vm_state s)
{
	switch (s) {
	case VM_SHUTOFF: return ROW_SHUTOFF;
	case VM_RUNNING: return ROW_RUNNING;
	case VM_PAUSED: return ROW_PAUSED;
	case VM_SUSPENDED: return ROW_SUSPENDED;
	case VM_HIBERNATED: return ROW_HIBERNATED;
	case VM_CRASHED: return ROW_CRASHED;
	case VM_LOST: return ROW_LOST;
	default: return -1;
	}
}

enum verb_answer verb_table(enum verb v, enum vm_state s, const char **use)
{
	int row = row_of(s);

	*use = row >= 0 ? table[v][row].use : "query-vm";
	if (row < 0)
		return v == VERB_QUIT ? VERB_OK : VERB_REFUSED;
	return table[v][row].answer;
}

/* Restoring an image by its name is allowed to a VM that has nothing to lose. */
static bool names_image(enum verb v, enum vm_state s, const json_t *args)
{
	return v == VERB_RESTORE && (s == VM_SHUTOFF || s == VM_CRASHED) && tp_json_str(args, "image");
}

static bool is_there(struct vm *vm, const json_t *args)
{
	const char *to = tp_json_str(args, "pool");
	struct engine_pool *p = NULL;

	return to && pools_image(vm->t->pools, tp_json_str(args, "image"), &p) &&
	       strcmp(engine_pool_name(p), to) == 0;
}

enum verb_answer verb_check(struct vm *vm, enum verb v, const json_t *args, struct tp_error *err, json_t **data)
{
	const char *use;
	enum verb_answer answer = verb_table(v, vm->state, &use);

	if (names_image(v, vm->state, args))
		return VERB_OK;
	if (v == VERB_IMAGE_MOVE && is_there(vm, args))
		return VERB_UNCHANGED;
	if (answer != VERB_REFUSED)
		return answer;
	*data = json_pack("{s:s, s:s, s:s, s:s*}", "vm", vm->name, "state", vm_state_name(vm->state), "reason",
			  vm->reason, "use", use);
	tp_fail_class(err, TP_ESTATE, "InvalidState", "VM %s is %s (%s), %s is not for that%s%s%s", vm->name,
		      vm_state_name(vm->state), vm->reason, verb_name(v), use ? ": use " : "", use ? use : "",
		      use && strcmp(use, "vm-discard") == 0 ? ", which throws its saved memory away, or vm-restore" : "");
	return VERB_REFUSED;
}
