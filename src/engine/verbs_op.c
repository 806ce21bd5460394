/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verbs_op.c - Verbs on operations */
#include <string.h>

#include "base/tp_json.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/ops.h"

static const char *id_of(struct api_call *call)
{
	return tp_json_str(api_args(call), "id");
}

static void not_found(struct api_call *call)
{
	struct tp_error err = TP_ERROR_INIT;

	tp_fail_class(&err, TP_ESTATE, "NotFound", "no operation is named \"%s\"", id_of(call));
	api_error(call, &err, json_pack("{s:s}", "operation", id_of(call)));
}

void api_query_operations(struct api_call *call)
{
	api_reply(call, ops_query(api_engine(call), api_args(call)));
}

void api_query_operation(struct api_call *call)
{
	json_t *record = ops_record(api_engine(call), id_of(call));

	if (record)
		api_reply(call, record);
	else
		not_found(call);
}

void api_operation_wait(struct api_call *call)
{
	tp_autojson json_t *record = ops_record(api_engine(call), id_of(call));
	double limit = tp_json_num(api_args(call), "timeout", 0);
	const char *status = tp_json_str(record, "status");

	if (!record)
		not_found(call);
	else if (strcmp(status, "running") != 0 && strcmp(status, "stuck") != 0)
		api_reply(call, json_incref(record));
	else if (json_object_get(api_args(call), "timeout") && limit <= 0)
		api_reply(call, json_incref(record));
	else if (!ops_wait(call, id_of(call), limit))
		api_reply(call, json_incref(record));
}

void api_operation_cancel(struct api_call *call)
{
	struct torpor *t = api_engine(call);
	struct op *op = ops_find_running(t, id_of(call));
	tp_autojson json_t *record = ops_record(t, id_of(call));
	struct tp_error err = TP_ERROR_INIT;

	if (!record) {
		not_found(call);
	} else if (!op && ops_pending_cancel(t, id_of(call))) {
		api_reply(call, json_object());
	} else if (op && op_cancel(op, &err)) {
		api_reply(call, json_object());
	} else {
		tp_fail_class(&err, TP_ESTATE, "InvalidState", "operation %s is over (%s)", id_of(call),
			      tp_json_str(record, "status"));
		api_error(call, &err, json_pack("{s:s, s:s}", "operation", id_of(call), "phase",
						op ? op_phase_name(op) : tp_json_str(record, "phase")));
	}
}

void api_operation_retry(struct api_call *call)
{
	struct torpor *t = api_engine(call);
	struct op *op = ops_find_running(t, id_of(call));
	tp_autojson json_t *record = ops_record(t, id_of(call));
	struct tp_error err = TP_ERROR_INIT;

	if (!record) {
		not_found(call);
	} else if (op && op_retry(op, &err)) {
		api_reply(call, json_object());
	} else {
		tp_fail_class(&err, TP_ESTATE, "InvalidState", "operation %s is not stuck", id_of(call));
		api_error(call, &err, json_pack("{s:s}", "operation", id_of(call)));
	}
}
