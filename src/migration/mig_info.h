/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mig_info.h - query-migrate and MIGRATION events in words of ours; capabilities and parameters
 *
 * Every MigrationStatus of QEMU 7.2 to 10.x is known; an unknown one means "in progress".
 */
#ifndef MIG_INFO_H
#define MIG_INFO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"

enum mig_phase {
	MIG_NONE,		/* nothing so far */
	MIG_RUNNING,		/* setup, active, wait-unplug, device, colo, unknown ones */
	MIG_PRE_SWITCHOVER,
	MIG_CANCELLING,
	MIG_POSTCOPY, MIG_POSTCOPY_PAUSED, MIG_POSTCOPY_RECOVER,
	MIG_COMPLETED, MIG_CANCELLED, MIG_FAILED,
};

struct mig_info {
	enum mig_phase phase;
	char status[32];
	uint64_t transferred, total, remaining;
	char error[256];		/* QEMU's error-desc, or "" */
};

enum mig_phase mig_phase_of(const char *status);	/* NULL: MIG_NONE */
bool mig_phase_over(enum mig_phase p);			/* completed, cancelled, failed, none */
void mig_info_parse(const json_t *query_migrate_reply, struct mig_info *info);
/* blocked-reasons as a new array of strings (empty when there are none). */
json_t *mig_blockers(const json_t *query_migrate_reply);

/*
 * Arguments for migrate-set-capabilities after which every capability that this QEMU listed (reply
 * of query-migrate-capabilities) is true if in `on` (NULL-terminated), else false. A name in `on`
 * which is not in the reply: TP_EUNSUPPORTED naming it.
 */
json_t *mig_caps_arguments(const json_t *caps_reply, const char *const *on, struct tp_error *err);
/* Arguments that give back what the reply says (for the end of an operation). */
json_t *mig_caps_restore(const json_t *caps_reply);
json_t *mig_caps_enabled(const json_t *caps_reply);	/* new array of names that are on */
/* Whether the reply shows exactly `on` as true. */
bool mig_caps_are(const json_t *caps_reply, const char *const *on);

/* downtime-limit 0 and max-bandwidth 0: for a stopped VM (qemu-facts 11). */
json_t *mig_params_stopped(void);
/* The same members as they are in the reply of query-migrate-parameters. */
json_t *mig_params_restore(const json_t *params_reply);

#endif
