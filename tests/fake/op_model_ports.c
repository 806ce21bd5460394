/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_model_ports.c - The ports of an operation, made of the model, and the faults that strike there
 *
 * Each call of a port is an effect and has a number; the fault of the run strikes at one of them.
 */
#include "fake/op_model_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/op_journal.h"

#define ANSWER_DELAY 0.001
#define LATE_DELAY 5000.0	/* longer than any limit of a step */
#define LINE_EXTRA 10		/* CRC and newline of a record */

/* How one effect goes. */
struct fate {
	bool unsent, refused, deaf, silent, late;
};

static void later(struct op_model_world *w, enum op_model_event_type type)
{
	op_model_add(w, ANSWER_DELAY / 2, type);
}

static void qemu_dies(struct op_model_world *w, unsigned gen)
{
	(void)gen;
	op_model_qemu_dies(w, "killed by a test");
}

static void mover_dies(struct op_model_world *w, unsigned gen)
{
	(void)gen;
	op_model_mover_dies(w, 9, "killed by a test");
}

static void mover_fails(struct op_model_world *w, unsigned gen)
{
	(void)gen;
	if (!w->mover_alive || (w->mover_finished && !op_model_pages_is(w)))
		return;
	op_model_mover_says(w, "error", json_pack("{s:s, s:s}", "class", "IOError", "desc",
						  "the image cannot be written"));
	if (op_model_pages_is(w))
		op_model_after(w, 0.001, mover_dies, 0);
}

/* The faults that leave the effect itself alone. */
static void strike_aside(struct op_model_world *w, enum op_model_fault fault)
{
	switch (fault) {
	case MODEL_CANCEL:
		later(w, EVENT_CANCEL);
		break;
	case MODEL_DEADLINE:
		later(w, EVENT_DEADLINE);
		break;
	case MODEL_QEMU_LOST:
		op_model_after(w, 0, qemu_dies, 0);
		break;
	case MODEL_QEMU_LOST_AFTER:
		op_model_after(w, ANSWER_DELAY, qemu_dies, 0);
		break;
	case MODEL_MOVER_LOST:
		op_model_after(w, 0, mover_dies, 0);
		break;
	case MODEL_MOVER_LOST_AFTER:
		op_model_after(w, ANSWER_DELAY, mover_dies, 0);
		break;
	case MODEL_MOVER_ERROR:
		op_model_after(w, 0, mover_fails, 0);
		break;
	case MODEL_SYNC_FAILS:
		w->fail_sync = true;
		break;
	case MODEL_SYNC_SILENT:
		w->hang_sync = true;
		break;
	case MODEL_LOG_FULL:
		w->fail_log = true;
		break;
	default:
		break;
	}
}

static struct fate strike(struct op_model_world *w, enum op_model_fault fault, bool to_qemu)
{
	struct fate fate = { 0 };

	switch (fault) {
	case MODEL_REFUSED:
		fate.refused = true;
		break;
	case MODEL_UNSENT:
		fate.unsent = true;
		break;
	case MODEL_SILENT:
		fate.silent = true;
		break;
	case MODEL_DEAF:
	case MODEL_CRASH_BEFORE:
		fate.deaf = fate.silent = true;
		break;
	case MODEL_LATE:
		fate.late = true;
		break;
	case MODEL_QEMU_LOST:
		fate.deaf = fate.silent = to_qemu;
		strike_aside(w, fault);
		break;
	default:
		strike_aside(w, fault);
		break;
	}
	if (fault == MODEL_CRASH_BEFORE || fault == MODEL_CRASH_AFTER)
		w->crashed = true;
	return fate;
}

static struct fate effect(struct op_model_world *w, const char *kind, const char *name)
{
	const struct op_model_script *script = &w->script;
	unsigned n = w->neffects++;
	bool back = op_going_back(w->op);
	char text[160];

	if (w->crashed)
		return (struct fate){ .deaf = true, .silent = true };
	snprintf(text, sizeof(text), "%u %s%s %s %s", n, back ? "-" : "+", op_step_name(w->op), kind,
		 name);
	json_array_append_new(w->trace, json_string(text));
	op_model_check_log(w);
	if (w->recovered && script->again && ++w->nrecovered == script->again) {
		w->again_struck = w->crashed = true;
		return (struct fate){ 0 };
	}
	if (script->fault != MODEL_NONE && n == script->at && !w->recovered) {
		w->struck = true;
		return strike(w, script->fault, strcmp(kind, "qmp") == 0);
	}
	if (back && w->nundone++ == script->undo_at && script->undo_fault != MODEL_NONE) {
		w->undo_struck = true;
		return strike(w, script->undo_fault, strcmp(kind, "qmp") == 0);
	}
	return (struct fate){ 0 };
}

static void effected(struct op_model_world *w, const char *kind, const char *name)
{
	if (w->c->effect)
		w->c->effect(w, kind, name);
}

static struct op_model_event *answer(struct op_model_world *w, enum op_event_type type,
				     struct fate fate)
{
	struct op_model_event *e = op_model_add(w, fate.late ? LATE_DELAY : ANSWER_DELAY,
						EVENT_ANSWER);

	e->ev.type = type;
	e->ev.token = ++w->last_token;
	e->silent = fate.silent;
	if (fate.refused) {
		tp_fail_class(&e->err, TP_EQMP, type == OP_IO ? "IOError" : "QemuError",
			      "refused by a test");
		e->ev.err = &e->err;
	}
	return e;
}

static uint64_t answered(struct op_model_world *w, struct op_model_event *e, bool ok, json_t *data)
{
	e->data = data;
	if (!ok)
		e->ev.err = &e->err;
	/* "Unknown, not failed": clients say that no answer came. */
	if (e->silent && !w->crashed) {
		struct op_model_event *timeout = op_model_add(w, 30, EVENT_ANSWER);

		timeout->ev = e->ev;
		tp_fail_class(&timeout->err, TP_ETIMEOUT, "Timeout", "no answer within 30 s");
		timeout->ev.err = &timeout->err;
	}
	return e->ev.token;
}

static bool unsent(struct tp_error *err)
{
	return tp_fail(err, TP_ESYS, "cannot be sent (a test)");
}

/* --- the ports --- */

static uint64_t port_qmp(struct op *op, enum qmp_cmd cmd, json_t *args_owned, int *fd, double limit,
			 struct tp_error *err)
{
	struct op_model_world *w = op_model_current();
	tp_autojson json_t *args = args_owned;
	const char *name = qmp_cmd_info(cmd)->name;
	struct op_model_event *e;
	json_t *data = NULL;
	struct fate fate;
	bool ok = true;

	(void)op;
	(void)limit;
	if (fd)
		tp_close(fd);
	fate = effect(w, "qmp", name);
	if (fate.unsent || !w->qemu) {
		if (!w->qemu)
			tp_fail_class(err, TP_ESTATE, "QemuExited", "VM vm1 has no QEMU");
		unsent(err);
		return 0;
	}
	e = answer(w, OP_REPLY, fate);
	e->ev.cmd = cmd;
	if (!fate.refused && !fate.deaf && (!w->c->qmp || !w->c->qmp(w, cmd, args, &data, &e->err)))
		ok = op_model_qmp(w, cmd, args, &data, &e->err);
	ok = ok && e->err.code == TP_OK;
	effected(w, "qmp", name);
	return answered(w, e, ok, data);
}

static uint64_t port_agent(struct op *op, enum qga_cmd cmd, json_t *args_owned, double limit,
			   struct tp_error *err)
{
	struct op_model_world *w = op_model_current();
	const char *name = qga_cmd_info(cmd)->name;
	struct op_model_event *e;
	struct fate fate;

	(void)op;
	(void)limit;
	json_decref(args_owned);
	fate = effect(w, "agent", name);
	if (fate.unsent || !w->qemu)
		return unsent(err), 0;
	e = answer(w, OP_AGENT, fate);
	e->ev.qga = cmd;
	effected(w, "agent", name);
	return answered(w, e, !fate.refused, w->qga_answer[cmd] ?
			json_deep_copy(w->qga_answer[cmd]) : json_object());
}

static void launch(struct op_model_world *w, const json_t *args, json_t **data)
{
	w->qemu = true;
	w->nodes_active = !tp_json_bool(args, "incoming", false);
	w->migration[0] = '\0';
	strcpy(w->run_state, w->nodes_active ? "prelaunch" : "inmigrate");
	*data = json_deep_copy(w->launch_data);
}

static uint64_t port_vm(struct op *op, const char *action, json_t *args_owned, struct tp_error *err)
{
	struct op_model_world *w = op_model_current();
	tp_autojson json_t *args = args_owned;
	struct op_model_event *e;
	json_t *data = NULL;
	struct fate fate;

	(void)op;
	fate = effect(w, "vm", action);
	if (fate.unsent)
		return unsent(err), 0;
	e = answer(w, OP_VM, fate);
	e->ev.action = action;
	if (fate.refused || fate.deaf || (w->c->vm && w->c->vm(w, action, args, &data, &e->err)))
		;
	else if (strcmp(action, "launch") == 0)
		launch(w, args, &data);
	else if (strcmp(action, "kill") == 0)
		op_model_qemu_dies(w, "killed");
	else if (!w->qemu && strcmp(action, "connect") == 0)
		tp_fail_class(&e->err, TP_ESTATE, "QemuExited", "VM vm1 has no QEMU");
	effected(w, "vm", action);
	return answered(w, e, e->err.code == TP_OK, data);
}

static uint64_t port_io(struct op *op, struct op_job *job_owned, struct tp_error *err)
{
	struct op_model_world *w = op_model_current();
	const char *worker = job_owned->worker ? job_owned->worker : "state";
	struct fate fate = effect(w, "io", worker);
	struct op_model_event *e;

	(void)op;
	if (fate.unsent) {
		job_owned->free(job_owned);
		return unsent(err), 0;
	}
	e = answer(w, OP_IO, fate);
	e->job = job_owned;
	e->ev.job = job_owned;
	/* Done now where the answer comes never or late. */
	if ((fate.silent || fate.late) && !fate.deaf) {
		e->ran = true;
		if (!job_owned->run(job_owned, &e->err))
			e->ev.err = &e->err;
	}
	effected(w, "io", worker);
	return e->ev.token;
}

static bool port_mover_start(struct op *op, json_t *request_owned, int *fds, size_t nfds,
			     struct tp_error *err)
{
	struct op_model_world *w = op_model_current();
	const char *job = tp_json_str(request_owned, "job");
	struct fate fate = effect(w, "mover", job ? job : "?");

	(void)op;
	if (w->c->mover && !w->mover_alive && !fate.unsent && !fate.refused && !fate.deaf)
		w->c->mover(w, fds, nfds);
	for (size_t i = 0; i < nfds; i++)
		tp_close(&fds[i]);
	if (w->mover_alive || fate.unsent || fate.refused) {
		json_decref(request_owned);
		return tp_fail(err, TP_ESTATE, w->mover_alive ? "there is a mover already" :
			       "cannot be started (a test)");
	}
	if (fate.deaf)
		json_decref(request_owned);
	else
		op_model_mover_start(w, request_owned);
	effected(w, "mover", w->mover_job);
	return true;
}

static bool port_mover_send(struct op *op, json_t *message_owned, struct tp_error *err)
{
	struct op_model_world *w = op_model_current();
	tp_autojson json_t *message = message_owned;
	void *first = json_object_iter(message);
	const char *name = first ? json_object_iter_key(first) : "?";
	struct fate fate = effect(w, "send", name);

	(void)op;
	if (fate.unsent || fate.refused)
		return unsent(err);
	if (!w->mover_alive)
		return tp_fail(err, TP_ESTATE, "the mover is gone");
	if (!fate.deaf)
		op_model_mover_send(w, message);
	effected(w, "send", name);
	return true;
}

/* The mover as this daemon knows it. */
static bool has_mover(const struct op_model_world *w)
{
	return w->mover_alive && !w->mover_given && !(w->mover_orphan && w->hide_orphan);
}

static void port_mover_kill(struct op *op)
{
	struct op_model_world *w = op_model_current();
	struct fate fate = effect(w, "kill", w->mover_job);

	(void)op;
	if (has_mover(w) && !(fate.deaf && w->crashed))
		op_model_mover_dies(w, 9, "");
	effected(w, "kill", w->mover_job);
}

static bool port_mover_alive(struct op *op)
{
	(void)op;
	return has_mover(op_model_current());
}

static void port_mover_give(struct op *op)
{
	struct op_model_world *w = op_model_current();

	(void)op;
	if (!has_mover(w))
		return;
	w->mover_given = true;
	w->c->given(w);
}

static bool port_qemu_alive(struct op *op)
{
	(void)op;
	return op_model_current()->qemu;
}

static void sync_log(struct op_model_world *w)
{
	struct op_model_event *e = op_model_add(w, ANSWER_DELAY, EVENT_SYNC);

	e->gen = (unsigned)json_array_size(w->log);
	e->silent = w->hang_sync;
	if (w->fail_sync || w->hang_sync)
		tp_fail_sys(&e->err, 5, "sync the journal");
	e->ev.err = e->err.code == TP_OK ? NULL : &e->err;
	w->fail_sync = w->hang_sync = false;
}

static bool port_journal(struct op *op, const char *record, json_t *fields_owned, bool sync,
			 struct tp_error *err)
{
	struct op_model_world *w = op_model_current();
	json_t *entry = json_pack("{s:s}", "record", record);
	size_t n;

	(void)op;
	json_object_update(entry, fields_owned);
	json_decref(fields_owned);
	if (w->crashed) {
		json_decref(entry);
		return true;
	}
	n = json_dumpb(entry, NULL, 0, JSON_COMPACT) + LINE_EXTRA;
	if (w->fail_log || w->log_bytes + n > OP_JOURNAL_ROOM) {
		if (!w->fail_log)
			op_model_fail(w, "the log is full");
		w->fail_log = false;
		w->log_lost = true;
		json_decref(entry);
		return tp_fail(err, TP_ELIMIT, "the journal has no room (a test)");
	}
	w->log_bytes += n;
	json_array_append_new(w->log, entry);
	if (sync)
		sync_log(w);
	return true;
}

static void port_forget(struct op *op, uint64_t token)
{
	(void)op;
	(void)token;
}

static void port_timer(struct op *op, enum op_timer which, double after)
{
	struct op_model_world *w = op_model_current();

	/* Operations that are only rebuilt to be compared have no time. */
	if (op == w->op)
		w->timers[which] = after > 0 ? w->now + after : 0;
}

static double port_now(struct op *op)
{
	(void)op;
	return op_model_current()->now;
}

static void port_changed(struct op *op, bool phase)
{
	struct op_model_world *w = op_model_current();
	tp_autojson json_t *record = NULL;
	int64_t percent;

	(void)phase;
	if (op != w->op)
		return;
	record = op_record(op);
	percent = tp_json_int(json_object_get(record, "progress"), "percent", -1);
	if (percent < w->percent || percent > 100)
		op_model_fail(w, "percent went from %lld to %lld", (long long)w->percent,
			      (long long)percent);
	w->percent = percent;
	if (op_status(op) == OP_STUCK)
		w->was_stuck = true;
}

static void port_ended(struct op *op)
{
	struct op_model_world *w = op_model_current();

	(void)op;
	w->ends++;
	w->over = true;
}

const struct op_ports op_model_ports = {
	.qmp = port_qmp, .agent = port_agent, .vm = port_vm, .io = port_io,
	.mover_start = port_mover_start, .mover_send = port_mover_send, .mover_kill = port_mover_kill,
	.mover_alive = port_mover_alive, .mover_give = port_mover_give, .qemu_alive = port_qemu_alive, .journal = port_journal,
	.forget = port_forget, .timer = port_timer, .now = port_now, .changed = port_changed,
	.ended = port_ended,
};
