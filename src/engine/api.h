/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api.h - Commands, events and clients inside the engine
 *
 * api_schema.c holds every command, argument, event, enum and record member as C tables with doc,
 * unit and `since`; api_dispatch.c negotiates, checks role and arguments against these tables,
 * calls the handler and keeps the order of answers (commands without `id` strictly in turn).
 * A handler answers its call exactly once, at once or later; a call outlives nothing: when its
 * client goes away, api_reply and api_error on it do nothing (the call object is kept until it was
 * answered).
 */
#ifndef API_H
#define API_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"
#include "torpor.h"

struct api_call;
struct torpor;

typedef void (*api_handler)(struct api_call *call);

/* --- for handlers --- */
struct torpor *api_engine(const struct api_call *call);
const json_t *api_args(const struct api_call *call);	/* object, checked; borrowed */
enum torpor_role api_role(const struct api_call *call);
struct torpor_client *api_client(const struct api_call *call);	/* NULL: gone */
/* A descriptor by its getfd name: handed over (the name is free again), or -1 with err (NotFound). */
int api_take_fd(struct api_call *call, const char *name, struct tp_error *err);
void api_reply(struct api_call *call, json_t *result_owned);	/* ends the call */
/* data may be NULL. data.retry is added from the class when missing. Ends the call. */
void api_error(struct api_call *call, const struct tp_error *err, json_t *data_owned);

/* --- events --- */
/*
 * To every client whose filter lets it pass. vm may be NULL. data (an object) is taken; "seq" is
 * added for each connection. progress: an OPERATION event (data: the record, with `id`) that only
 * reports progress: of these at most one a second and operation is sent, the newest, unless an
 * event of the same operation that is more than progress came since.
 */
void api_event(struct torpor *t, const char *event, const char *vm, bool progress, json_t *data_owned);

/* --- schema (api_schema.c) --- */
struct api_member;			/* api_priv.h */
struct api_command {
	const char *name;
	enum torpor_role role;		/* at least; TORPOR_ROLE_NONE: anybody */
	bool operation;			/* takes wait, timeout, operation-id, busy, dry-run */
	api_handler handler;
	const struct api_member *args;	/* besides those of an operation; ends with name NULL */
	const char *returns;		/* type; NULL: empty object */
	const char *doc;
	const char *since;		/* NULL: the first version */
};
const struct api_command *api_command_find(const char *name);
/* Unknown members, types, ranges, enum values, missing ones: GenericError naming the argument. */
bool api_check_args(const struct api_command *cmd, const json_t *args, struct tp_error *err,
		    json_t **error_data);
json_t *api_schema_qapi(void);		/* query-qmp-schema */
json_t *api_schema_full(void);		/* with docs: torpor_schema(), docs/schema.md */

/* --- handlers, by file; signature api_handler --- */
#define API_VERB_HANDLERS(X) \
	/* verbs_vm.c */ \
	X(vm_define) X(vm_set) X(vm_undefine) X(query_vm) X(query_vms) X(vm_discard) X(vm_resolve) \
	/* verbs_run.c */ \
	X(vm_start) X(vm_pause) X(vm_resume) X(vm_reset) X(vm_powerdown) X(vm_quit) X(vm_monitor) \
	X(vm_hibernate) X(vm_restore) \
	/* verbs_image.c */ \
	X(query_images) X(image_delete) X(image_verify) X(image_move) \
	/* verbs_pool.c */ \
	X(query_pools) X(pool_define) X(pool_undefine) \
	/* capacity.c */ \
	X(query_capacity) \
	/* verbs_op.c */ \
	X(query_operations) X(query_operation) X(operation_wait) X(operation_cancel) X(operation_retry)
#define API_HOST_HANDLERS(X) \
	/* api_host.c */ \
	X(qmp_capabilities) X(query_version) X(query_commands) X(query_qmp_schema) X(query_host) X(event_filter) X(getfd) \
	X(closefd)
#define API_HANDLERS(X) API_VERB_HANDLERS(X) API_HOST_HANDLERS(X)
#define API_DECLARE(name) void api_##name(struct api_call *call);
API_HANDLERS(API_DECLARE)
#undef API_DECLARE

#endif
