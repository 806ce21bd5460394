/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* op_steps.c - What steps use: asking, waiting, failing, noting resources */
#include "engine/op_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_text.h"
#include "base/tp_time.h"

#define ASK_TOO_MANY "step awaits too many answers"

void *op_data(struct op *op)
{
	return op->data;
}

void *op_owner(const struct op *op)
{
	return op->owner;
}

json_t *op_arguments(struct op *op)
{
	return op->arguments;
}

json_t *op_was(struct op *op)
{
	return op->was;
}

json_t *op_res(struct op *op)
{
	return op->res;
}

double op_now(struct op *op)
{
	return op->ports->now(op);
}

bool op_text_fits(const json_t *value, size_t max)
{
	return json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) <= max;
}

/* --- resources --- */

bool op_note(struct op *op, const char *key, json_t *value_owned)
{
	json_t *value = value_owned ? value_owned : json_null();
	json_t *fields;

	if (!op_text_fits(value, OP_NOTE_MAX)) {
		json_decref(value);
		return tp_fail(&op->fail, TP_ELIMIT, "resource %s is too long for the journal", key);
	}
	if (json_is_null(value)) {
		json_object_del(op->res, key);
		json_object_del(op->res_logged, key);
	} else if (!tp_json_set(op->res, key, json_incref(value)) ||
		   !tp_json_set(op->res_logged, key, json_deep_copy(value))) {
		json_decref(value);
		return tp_fail_nomem(&op->fail);
	}
	fields = json_pack("{s:{s:o}}", "res", key, value);
	return op_log(op, "note", fields, false, &op->fail);
}

enum op_verdict op_journal_sync_note(struct op *op, const char *record, json_t *fields_owned)
{
	tp_autojson json_t *fields = fields_owned ? fields_owned : json_object();

	if (op->sync_awaited) {
		tp_fail(&op->fail, TP_ESTATE, "record %s: another one is being synced", record);
		return OP_FAIL;
	}
	if (!op_text_fits(fields, OP_NOTE_MAX)) {
		tp_fail(&op->fail, TP_ELIMIT, "record %s is too long for the journal", record);
		return OP_FAIL;
	}
	if (!op_log(op, record, json_deep_copy(fields), true, &op->fail))
		return OP_FAIL;
	tp_json_set(op->logged, record, TP_STEAL(fields));
	op->sync_for = OP_SYNC_NOTE;
	op->sync_awaited = op->sync_sent;
	return OP_WAIT;
}

const json_t *op_logged(const struct op *op, const char *record)
{
	return json_object_get(op->logged, record);
}

void op_hold(struct op *op, unsigned res)
{
	/* A QEMU launched after another one's end. */
	if ((res & OP_RES_QEMU) && op->ports->qemu_alive(op)) {
		op->lost &= ~(unsigned)OP_RES_QEMU;
		op->qemu_gone = false;
	}
	op->held |= res;
}

/* --- asking --- */

static enum op_verdict awaits(struct op *op, enum op_event_type type, uint64_t token,
			      unsigned flags)
{
	if (!token) {
		if (op->fail.code == TP_OK)
			tp_fail(&op->fail, TP_ESYS, "the request could not be sent");
		op->fail_by_link = type == OP_REPLY;
		return OP_FAIL;
	}
	op->await[op->nawait++] = (struct op_await){ token, type, flags };
	return OP_WAIT;
}

static bool room_to_ask(struct op *op, json_t *args_owned)
{
	if (op->nawait < OP_AWAIT_MAX)
		return true;
	json_decref(args_owned);
	return tp_fail(&op->fail, TP_ELIMIT, ASK_TOO_MANY);
}

enum op_verdict op_qmp_full(struct op *op, enum qmp_cmd cmd, json_t *args_owned, int *fd,
			    double limit, unsigned flags)
{
	if (!room_to_ask(op, args_owned))
		return OP_FAIL;
	if (limit <= 0)
		limit = qmp_cmd_info(cmd)->limit;
	return awaits(op, OP_REPLY, op->ports->qmp(op, cmd, args_owned, fd, limit, &op->fail),
		      flags);
}

enum op_verdict op_qmp(struct op *op, enum qmp_cmd cmd, json_t *args_owned)
{
	return op_qmp_full(op, cmd, args_owned, NULL, 0, 0);
}

enum op_verdict op_agent(struct op *op, enum qga_cmd cmd, json_t *args_owned, double limit,
			 unsigned flags)
{
	if (!room_to_ask(op, args_owned))
		return OP_FAIL;
	if (limit <= 0)
		limit = qga_cmd_info(cmd)->limit;
	return awaits(op, OP_AGENT, op->ports->agent(op, cmd, args_owned, limit, &op->fail), flags);
}

enum op_verdict op_vm(struct op *op, const char *action, json_t *args_owned, unsigned flags)
{
	if (!room_to_ask(op, args_owned))
		return OP_FAIL;
	return awaits(op, OP_VM, op->ports->vm(op, action, args_owned, &op->fail), flags);
}

enum op_verdict op_io(struct op *op, struct op_job *job_owned, unsigned flags)
{
	if (op->nawait == OP_AWAIT_MAX) {
		json_decref(job_owned->error_data);
		if (job_owned->free)
			job_owned->free(job_owned);
		tp_fail(&op->fail, TP_ELIMIT, ASK_TOO_MANY);
		return OP_FAIL;
	}
	return awaits(op, OP_IO, op->ports->io(op, job_owned, &op->fail), flags);
}

enum op_verdict op_mover_start(struct op *op, json_t *request_owned, int *fds, size_t nfds)
{
	op->lost &= ~(unsigned)OP_RES_MOVER;
	json_object_clear(op->said);
	if (!op->ports->mover_start(op, request_owned, fds, nfds, &op->fail))
		return OP_FAIL;
	return OP_WAIT;
}

enum op_verdict op_mover_send(struct op *op, json_t *message_owned)
{
	return op->ports->mover_send(op, message_owned, &op->fail) ? OP_WAIT : OP_FAIL;
}

void op_mover_kill(struct op *op)
{
	op->ports->mover_kill(op);
}

const json_t *op_mover_said(const struct op *op, const char *name)
{
	return json_object_get(op->said, name);
}

bool op_mover_alive(struct op *op)
{
	return op->ports->mover_alive(op);
}

void op_mover_give(struct op *op)
{
	op->held &= ~(unsigned)OP_RES_MOVER;
	op->ports->mover_give(op);
}

bool op_qemu_alive(struct op *op)
{
	return op->ports->qemu_alive(op);
}

/* --- waiting --- */

enum op_verdict op_sleep(struct op *op, double seconds)
{
	op->tick = true;
	op->ports->timer(op, OP_TIMER_TICK, seconds > OP_SOON ? seconds : OP_SOON);
	return OP_WAIT;
}

bool op_replied(const struct op_event *ev, enum qmp_cmd cmd)
{
	return ev->type == OP_REPLY && ev->cmd == cmd && !ev->err;
}

void op_want(struct op *op, unsigned set, const char *const *names)
{
	op->want = set;
	op->got = 0;
	op->want_names = names;
}

enum op_verdict op_got(struct op *op, unsigned bit)
{
	op->got |= bit;
	return (op->got & op->want) == op->want ? OP_NEXT : OP_WAIT;
}

/* --- failing --- */

void op_withdraw(struct op *op)
{
	op->committed = false;
}

enum op_verdict op_fail(struct op *op, enum tp_code code, const char *class_, const char *fmt, ...)
{
	char text[TP_TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (class_)
		tp_fail_class(&op->fail, code, class_, "%s", text);
	else
		tp_fail(&op->fail, code, "%s", text);
	return OP_FAIL;
}

enum op_verdict op_fail_error(struct op *op, const struct tp_error *err, json_t *data_owned)
{
	tp_autojson json_t *data = data_owned;

	if (op->fail.code != TP_OK)
		return OP_FAIL;
	op->fail = *err;
	json_decref(op->fail_data);
	op->fail_data = TP_STEAL(data);
	return OP_FAIL;
}

bool op_going_back(const struct op *op)
{
	return op->back;
}

bool op_committed(const struct op *op)
{
	return op->committed;
}

bool op_barred(const struct op *op)
{
	return op->blocked;
}

bool op_late(const struct op *op)
{
	return op->late;
}

/* --- what the record shows --- */

void op_warn(struct op *op, const char *fmt, ...)
{
	char text[TP_TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tp_text_clean(text);	/* cut, it may end inside a character, which JSON refuses */
	op_add_warning(op, text);
}

void op_result(struct op *op, const char *key, json_t *value_owned)
{
	tp_json_set(op->result, key, value_owned);
}

void op_phase(struct op *op, const char *phase)
{
	if (strcmp(op->phase, phase) == 0)
		return;
	op_set_phase(op, phase, tp_now_us());
	op->ports->changed(op, true);
}
