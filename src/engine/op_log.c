/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_log.c - What an operation writes into its journal, and how it is rebuilt from it
 *
 * Records (journal.md 3), in the order in which they can come:
 *
 *   begin   {op, kind, version, vm, arguments, was, boot, started, deadline?, parent?}
 *   enter   {step, res?}      before the step's first effect
 *   note    {res}             a resource appeared or (null) is gone
 *   commit  {step, res?}      synced; from here on only forward
 *   NAME    {...}             synced; op_journal_sync_note(), e.g. "ran"
 *   back    {error, status}   turned round; after a commit record: that one does not count
 *   end     written by the owner, after state.json
 *
 * Every change of op_res() is in the log once: op_note() writes it at once, and `enter` and `commit`
 * carry what was changed without it. Times are microseconds of the wall clock.
 */
#include "engine/op_priv.h"

#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_proc.h"
#include "base/tp_time.h"

/* --- writing --- */

bool op_log(struct op *op, const char *record, json_t *fields_owned, bool sync,
	    struct tp_error *err)
{
	if (!fields_owned)
		return tp_fail_nomem(err);
	if (!op->ports->journal(op, record, fields_owned, sync, err))
		return false;
	op->sync_sent += sync;
	return true;
}

bool op_log_begin(struct op *op, struct tp_error *err)
{
	json_t *fields;

	if (!op_text_fits(op->arguments, OP_ARGUMENTS_MAX))
		return tp_fail_class(err, TP_ELIMIT, "GenericError",
				     "the arguments of %s are longer than %u bytes", op->plan->kind,
				     OP_ARGUMENTS_MAX);
	if (!op_text_fits(op->was, OP_WAS_MAX))
		return tp_fail(err, TP_ELIMIT, "the former state of VM %s is longer than %u bytes",
			       op->vm, OP_WAS_MAX);
	fields = json_pack("{s:s, s:s, s:i, s:s, s:O, s:O, s:s, s:I}", "op", op->id, "kind",
			   op->plan->kind, "version", (int)op->plan->version, "vm", op->vm,
			   "arguments", op->arguments, "was", op->was, "boot", tp_boot_id(),
			   "started", (json_int_t)op->started_us);
	if (op->deadline_us)
		tp_json_set(fields, "deadline", json_integer((json_int_t)op->deadline_us));
	if (op->parent)
		tp_json_set_str(fields, "parent", op->parent);
	return op_log(op, "begin", fields, false, err);
}

/* Members of res that the log does not have; NULL: none. */
static json_t *res_changes(struct op *op)
{
	json_t *changes = json_object(), *value;
	const char *key;

	json_object_foreach(op->res, key, value) {
		if (!json_equal(value, json_object_get(op->res_logged, key)))
			tp_json_set(changes, key, json_deep_copy(value));
	}
	json_object_foreach(op->res_logged, key, value) {
		if (!json_object_get(op->res, key))
			tp_json_set(changes, key, json_null());
	}
	if (json_object_size(changes) > 0)
		return changes;
	json_decref(changes);
	return NULL;
}

static bool log_position(struct op *op, const char *record, bool sync, struct tp_error *err)
{
	json_t *fields = json_pack("{s:s}", "step", op_step_here(op)->name);
	json_t *changes = res_changes(op);

	if (changes && !op_text_fits(changes, OP_NOTE_MAX)) {
		json_decref(fields);
		json_decref(changes);
		return tp_fail(err, TP_ELIMIT, "resources are too long for the journal");
	}
	if (changes)
		tp_json_set(fields, "res", changes);
	if (!op_log(op, record, fields, sync, err))
		return false;
	if (changes) {
		json_decref(op->res_logged);
		op->res_logged = json_deep_copy(op->res);
	}
	return true;
}

bool op_log_enter(struct op *op, bool sync, struct tp_error *err)
{
	return log_position(op, "enter", sync, err);
}

bool op_log_commit(struct op *op, struct tp_error *err)
{
	return log_position(op, "commit", true, err);
}

bool op_log_back(struct op *op, bool sync, struct tp_error *err)
{
	const json_t *data = op_text_fits(op->error_data, OP_NOTE_MAX) ? op->error_data : NULL;
	json_t *fields = json_pack("{s:s, s:o}", "status", op->cancelled ? "cancelled" : "failed",
				   "error", op_error_json(&op->error, data));

	return op_log(op, "back", fields, sync, err);
}

/* --- rebuilding --- */

static bool is(const json_t *record, const char *name)
{
	const char *got = tp_json_str(record, "record");

	return got && strcmp(got, name) == 0;
}

bool op_log_ended(const json_t *records)
{
	size_t n = json_array_size(records);

	return n > 0 && is(json_array_get(records, n - 1), "end");
}

static void take_res(struct op *op, const json_t *res)
{
	json_t *value;
	const char *key;

	json_object_foreach((json_t *)(uintptr_t)res, key, value) {
		if (json_is_null(value))
			json_object_del(op->res, key);
		else
			tp_json_set(op->res, key, json_deep_copy(value));
	}
}

static bool find_step(struct op *op, const json_t *record, struct tp_error *err)
{
	const char *name = tp_json_str(record, "step");

	for (unsigned i = 0; name && i < op->plan->nsteps; i++) {
		if (strcmp(op->plan->steps[i].name, name) == 0) {
			op->at = (int)i;
			return true;
		}
	}
	return tp_fail(err, TP_ECORRUPT, "journal of VM %s: %s has no step \"%s\"", op->vm,
		       op->plan->kind, name ? name : "");
}

static void take_member(json_t **member, json_t *value)
{
	if (!value)
		return;
	json_decref(*member);
	*member = json_deep_copy(value);
}

static bool rebuild_begin(struct op *op, const json_t *record, struct tp_error *err)
{
	const char *kind = tp_json_str(record, "kind"), *id = tp_json_str(record, "op");
	const char *parent = tp_json_str(record, "parent");
	int64_t version = tp_json_int(record, "version", -1);

	if (!is(record, "begin") || !kind || !id)
		return tp_fail(err, TP_ECORRUPT, "journal of VM %s does not begin with \"begin\"",
			       op->vm);
	if (strcmp(kind, op->plan->kind) != 0 || strcmp(id, op->id) != 0)
		return tp_fail(err, TP_ECORRUPT, "journal of VM %s is of %s %s, not of %s %s", op->vm,
			       kind, id, op->plan->kind, op->id);
	if (version != (int64_t)op->plan->version)
		return tp_fail_class(err, TP_EUNSUPPORTED, "Unsupported",
				     "journal of VM %s is of version %lld of %s, this torpord has %u",
				     op->vm, (long long)version, kind, op->plan->version);
	take_member(&op->arguments, json_object_get(record, "arguments"));
	take_member(&op->was, json_object_get(record, "was"));
	op->started_us = (uint64_t)tp_json_int(record, "started", (int64_t)op->started_us);
	op->deadline_us = (uint64_t)tp_json_int(record, "deadline", (int64_t)op->deadline_us);
	if (parent && !op->parent)
		op->parent = strdup(parent);
	json_array_clear(op->timeline);
	op->phase[0] = '\0';
	op_set_phase(op, "Pending", op->started_us);
	op->begun = true;
	op->at = -1;
	return true;
}

static void rebuild_back(struct op *op, const json_t *record)
{
	const json_t *error = json_object_get(record, "error");
	const char *class_ = tp_json_str(error, "class"), *desc = tp_json_str(error, "desc");
	const char *status = tp_json_str(record, "status");

	op->back = true;
	op->committed = false;		/* its commit record was taken back */
	op->cancelled = status && strcmp(status, "cancelled") == 0;
	tp_error_clear(&op->error);
	tp_fail_class(&op->error, op->cancelled ? TP_ECANCELLED : TP_ESTATE,
		      class_ ? class_ : "GenericError", "%s", desc ? desc : "rolled back");
	take_member(&op->error_data, json_object_get(error, "data"));
}

static bool rebuild_record(struct op *op, json_t *record, struct tp_error *err)
{
	take_res(op, json_object_get(record, "res"));
	if (is(record, "enter"))
		return op->committed || find_step(op, record, err);
	if (is(record, "commit")) {
		if (!find_step(op, record, err))
			return false;
		if (!(op_step_here(op)->flags & OPF_COMMIT))
			return tp_fail(err, TP_ECORRUPT, "journal of VM %s: step %s does not commit",
				       op->vm, op_step_here(op)->name);
		op->committed = op->commit_tried = true;
	} else if (is(record, "back")) {
		rebuild_back(op, record);
	} else if (is(record, "begin")) {
		return tp_fail(err, TP_ECORRUPT, "journal of VM %s begins twice", op->vm);
	} else if (!is(record, "note") && tp_json_str(record, "record")) {
		json_t *fields = json_deep_copy(record);

		json_object_del(fields, "record");
		tp_json_set(op->logged, tp_json_str(record, "record"), fields);
	}
	return true;
}

/* The phase that the operation had, from the table. */
static void rebuild_phase(struct op *op)
{
	const char *phase = NULL;

	for (int i = 0; i <= op->at; i++) {
		if (op->plan->steps[i].phase)
			phase = op->plan->steps[i].phase;
	}
	if (op->back)
		phase = "RollingBack";
	if (phase)
		op_set_phase(op, phase, tp_now_us());
}

bool op_rebuild(struct op *op, const json_t *records, struct tp_error *err)
{
	size_t n = json_array_size(records);

	if (op->stage != OP_IDLE || op->begun)
		return tp_fail(err, TP_ESTATE, "operation %s was started before", op->id);
	if (op_log_ended(records))
		return tp_fail(err, TP_ESTATE, "operation %s had ended", op->id);
	if (!rebuild_begin(op, json_array_get(records, 0), err))
		return false;
	for (size_t i = 1; i < n; i++) {
		if (!rebuild_record(op, json_array_get(records, i), err))
			return false;
	}
	json_decref(op->res_logged);
	op->res_logged = json_deep_copy(op->res);
	op->entered = op->at >= 0;
	rebuild_phase(op);
	if (op->committed) {
		op->at++;
		op->entered = false;
	}
	return true;
}
