/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_schema.h - What this QEMU can do, read from query-qmp-schema, never from its version
 */
#ifndef QMP_SCHEMA_H
#define QMP_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

struct qmp_schema;

/* reply: the return value of query-qmp-schema (borrowed). */
/* Some megabytes: make the features and the names, then free it. */
struct qmp_schema *qmp_schema_new(const json_t *reply, struct tp_error *err);
void qmp_schema_free(struct qmp_schema *s);
bool qmp_schema_has_command(const struct qmp_schema *s, const char *command);
bool qmp_schema_has_event(const struct qmp_schema *s, const char *event);
bool qmp_schema_is_oob(const struct qmp_schema *s, const char *command);
/* Member path of a command's arguments: ("migrate-incoming", "exit-on-error"). Paths go through
 * lists and through all branches of unions. */
bool qmp_schema_has_arg(const struct qmp_schema *s, const char *command, const char *member);
/* Value of an enum reached from a command's argument path, e.g.
 * ("migrate-set-capabilities", "capabilities.capability", "return-path"). */
bool qmp_schema_has_value(const struct qmp_schema *s, const char *command, const char *path,
			  const char *value);
/* Checks arguments of a command against the schema (used by tests for everything torpor sends). */
bool qmp_schema_check(const struct qmp_schema *s, const char *command, const json_t *args,
		      struct tp_error *err);

/* The features that decide torpor's sequences, computed once per QEMU. */
struct qmp_features {
	bool return_path;		/* migration capability */
	bool exit_on_error;		/* migrate-incoming exit-on-error (9.1+) */
	bool set_active;		/* blockdev-set-active (10.0+): failed saves come back paused, S3 is kept */
	bool late_block_activate;
	bool background_snapshot;
	bool file_uri;
	bool vm_generation_id;
};
void qmp_features_of(const struct qmp_schema *s, struct qmp_features *f);

/* The names of all commands and events in a few kilobytes: what outlives the schema. */
struct qmp_names;
struct qmp_names *qmp_names_new(const struct qmp_schema *s, struct tp_error *err);
void qmp_names_free(struct qmp_names *n);
bool qmp_names_has(const struct qmp_names *n, const char *name);

#endif
