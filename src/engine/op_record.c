/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* op_record.c - The record of an operation as the API shows it (interface.md 4) */
#include "engine/op_priv.h"

#include <math.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_text.h"
#include "base/tp_time.h"

#define RATE_INTERVAL 0.5	/* seconds between two samples of the rate */
#define RATE_WEIGHT 0.3		/* of the newest sample */

static const char *const status_names[] = {
	[OP_RUNNING] = "running", [OP_SUCCEEDED] = "succeeded", [OP_FAILED] = "failed",
	[OP_CANCELLED] = "cancelled", [OP_STUCK] = "stuck",
};

/* A text may quote a guest or QEMU: it is made fit for JSON. */
json_t *op_error_json(const struct tp_error *err, const json_t *data)
{
	char text[TP_TEXT_SIZE];
	json_t *object;

	memcpy(text, err->text, sizeof(text));
	tp_text_clean(text);
	object = json_pack("{s:s, s:s}", "class", tp_error_class(err), "desc", text);
	if (data)
		tp_json_set(object, "data", json_deep_copy(data));
	return object;
}

void op_set_phase(struct op *op, const char *phase, uint64_t at_us)
{
	char text[TP_TIME_TEXT];

	strncpy(op->phase, phase, sizeof(op->phase) - 1);
	if (json_array_size(op->timeline) >= OP_TIMELINE_MAX)
		json_array_remove(op->timeline, 1);
	json_array_append_new(op->timeline, json_pack("{s:s, s:s}", "phase", op->phase, "at",
						      tp_time_format(at_us, text)));
}

void op_add_warning(struct op *op, char *text)
{
	size_t n = json_array_size(op->warnings);
	const char *last = json_string_value(n ? json_array_get(op->warnings, n - 1) : NULL);

	tp_text_clean(text);
	if (n < OP_WARNINGS_MAX && (!last || strcmp(last, text) != 0))
		json_array_append_new(op->warnings, json_string(text));
}

static void take_rate(struct op *op)
{
	double now = op_now(op), span = now - op->rate_at, sample;

	if (op->rate_at <= 0 || op->done_bytes < op->rate_bytes) {
		op->rate_at = now;
		op->rate_bytes = op->done_bytes;
		return;
	}
	if (span < RATE_INTERVAL)
		return;
	sample = (double)(op->done_bytes - op->rate_bytes) / span;
	op->rate = op->rate > 0 ? op->rate + RATE_WEIGHT * (sample - op->rate) : sample;
	op->rate_at = now;
	op->rate_bytes = op->done_bytes;
}

void op_progress_bytes(struct op *op, uint64_t done, uint64_t total)
{
	unsigned percent;

	op->done_bytes = done;
	op->total_bytes = total > done ? total : done;
	percent = op->total_bytes ? (unsigned)((double)done / (double)op->total_bytes * 100) : 0;
	if (percent > op->percent)
		op->percent = percent < 100 ? percent : 100;
	take_rate(op);
	op_progress(op);
	op->ports->changed(op, false);
}

static json_t *progress_json(const struct op *op)
{
	json_t *progress = json_pack("{s:I, s:I, s:i}", "done-bytes", (json_int_t)op->done_bytes,
				     "total-bytes", (json_int_t)op->total_bytes, "percent",
				     (int)op->percent);

	tp_json_set(progress, "rate", json_integer((json_int_t)op->rate));
	if (op->rate >= 1 && op->stage != OP_OVER)
		tp_json_set(progress, "eta",
			    json_real(ceil((double)(op->total_bytes - op->done_bytes) / op->rate)));
	return progress;
}

static const char *rollback_of(const struct op *op)
{
	if (!op->back)
		return "none";
	for (unsigned i = 0; i < op->plan->nsteps; i++) {
		if (op->undo_failed[i])
			return "failed";
	}
	return op->stage == OP_OVER && op->undone ? "done" : "none";
}

static void set_time(json_t *record, const char *key, uint64_t us)
{
	char text[TP_TIME_TEXT];

	if (us)
		tp_json_set_str(record, key, tp_time_format(us, text));
}

json_t *op_record(const struct op *op)
{
	json_t *record = json_object();
	const struct tp_error *err = op_error(op);

	tp_json_set_str(record, "id", op->id);
	tp_json_set_str(record, "vm", op->vm);
	tp_json_set_str(record, "kind", op->plan->kind);
	if (op->parent)
		tp_json_set_str(record, "parent", op->parent);
	tp_json_set_str(record, "phase", op->phase);
	tp_json_set_str(record, "status", status_names[op->status]);
	tp_json_set(record, "committed", json_boolean(op->committed));
	tp_json_set_str(record, "rollback", rollback_of(op));
	tp_json_set(record, "progress", progress_json(op));
	set_time(record, "started", op->started_us);
	set_time(record, "ended", op->ended_us);
	set_time(record, "deadline", op->deadline_us);
	if (err)
		tp_json_set(record, "error", op_error_json(err, op_error_data(op)));
	tp_json_set(record, "warnings", json_deep_copy(op->warnings));
	if (json_object_size(op->result) > 0)
		tp_json_set(record, "result", json_deep_copy(op->result));
	tp_json_set(record, "timeline", json_deep_copy(op->timeline));
	return record;
}

/* --- parts of it --- */

const char *op_id(const struct op *op)
{
	return op->id;
}

const char *op_vm_name(const struct op *op)
{
	return op->vm;
}

const struct op_plan *op_plan_of(const struct op *op)
{
	return op->plan;
}

enum op_status op_status(const struct op *op)
{
	return op->status;
}

const struct tp_error *op_error(const struct op *op)
{
	if (op->error.code != TP_OK)
		return &op->error;
	return op->stuck.code != TP_OK ? &op->stuck : NULL;
}

const json_t *op_error_data(const struct op *op)
{
	return op->error.code != TP_OK ? op->error_data : op->stuck_data;
}

const char *op_phase_name(const struct op *op)
{
	return op->phase;
}

const char *op_step_name(const struct op *op)
{
	const struct op_step *step = op_step_at(op);

	return step ? step->name : NULL;
}
