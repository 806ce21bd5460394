/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * op_model.c - Virtual time, the events of the model, and the walks
 *
 * Theory of operation. A run takes the earliest of what is scheduled (answers, functions of the
 * state machines, timers), sets the clock to it and delivers it, until the operation has ended. With
 * nothing left to deliver, or after far too much, the operation hangs, and the test fails. The ports
 * are in op_model_ports.c; they find the world in op_model_world(), as an operation's owner is the
 * case's.
 */
#include "fake/op_model_priv.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/op_priv.h"

#define STEPS_MAX 200000u
#define EFFECTS_MAX 2000u
#define SETTLE 2.0		/* seconds that the world goes on after the operation */

static struct op_model_world *world;

struct op_model_world *op_model_current(void)
{
	return world;
}

static const char *const fault_names[] = {
	[MODEL_NONE] = "none", [MODEL_REFUSED] = "refused", [MODEL_UNSENT] = "unsent",
	[MODEL_SILENT] = "silent", [MODEL_DEAF] = "deaf", [MODEL_LATE] = "late",
	[MODEL_CANCEL] = "cancel", [MODEL_DEADLINE] = "deadline",
	[MODEL_QEMU_LOST] = "qemu-lost", [MODEL_QEMU_LOST_AFTER] = "qemu-lost-after",
	[MODEL_MOVER_LOST] = "mover-lost", [MODEL_MOVER_LOST_AFTER] = "mover-lost-after",
	[MODEL_MOVER_ERROR] = "mover-error", [MODEL_SYNC_FAILS] = "sync-fails",
	[MODEL_SYNC_SILENT] = "sync-silent", [MODEL_LOG_FULL] = "log-full",
	[MODEL_CRASH_BEFORE] = "crash-before", [MODEL_CRASH_AFTER] = "crash-after",
	[MODEL_CRASH_ENDED] = "crash-ended",
};

static const char *const outage_names[] = {
	[MODEL_QEMU_STAYS] = "QEMU stays", [MODEL_QEMU_GONE] = "QEMU gone",
	[MODEL_POWER_CUT] = "power cut",
};

const char *op_model_fault_name(enum op_model_fault fault)
{
	return fault_names[fault] ? fault_names[fault] : "?";
}

void op_model_fail(struct op_model_world *w, const char *fmt, ...)
{
	tp_autofree char *trace = json_dumps(w->trace, JSON_COMPACT);
	tp_autofree char *log = json_dumps(w->log, JSON_COMPACT);
	tp_autojson json_t *record = w->op ? op_record(w->op) : NULL;
	tp_autofree char *shown = record ? json_dumps(record, JSON_COMPACT) : NULL;
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* cmocka cuts what is long. */
	fprintf(stderr, "effects: %s\nlog: %s\nrecord: %s\nqemu %d %s migration %s nodes %s mover %s %s\n",
		    trace, log, shown ? shown : "-", w->qemu, w->run_state, w->migration,
		    w->nodes_active ? "active" : "inactive", w->mover_job,
		    w->mover_alive ? "alive" : "ended");
	fail_msg("%s, fault %s at effect %u, %s at undo effect %u (%s, again %u), time %.3f: %s", w->c->name,
		 op_model_fault_name(w->script.fault), w->script.at,
		 op_model_fault_name(w->script.undo_fault), w->script.undo_at,
		 outage_names[w->script.outage], w->script.again, w->now, text);
	abort();
}

bool op_model_logged(const struct op_model_world *w, const char *record)
{
	json_t *entry;
	size_t i;

	json_array_foreach(w->log, i, entry) {
		if (strcmp(tp_json_str(entry, "record"), record) == 0)
			return true;
	}
	return false;
}

/* --- events --- */

struct op_model_event *op_model_add(struct op_model_world *w, double delay,
				    enum op_model_event_type type)
{
	struct op_model_event *e = calloc(1, sizeof(*e)), **link = &w->events;

	if (!e)
		abort();
	e->at = w->now + delay;
	e->seq = ++w->last_seq;
	e->type = type;
	while (*link && (*link)->at <= e->at)
		link = &(*link)->next;
	e->next = *link;
	*link = e;
	return e;
}

void op_model_after(struct op_model_world *w, double delay, void (*fn)(struct op_model_world *w,
		    unsigned gen), unsigned gen)
{
	struct op_model_event *e = op_model_add(w, delay, EVENT_CALL);

	e->fn = fn;
	e->gen = gen;
}

void op_model_qemu_event(struct op_model_world *w, const char *name, json_t *data_owned)
{
	struct op_model_event *e = op_model_add(w, 0.0001, EVENT_QEMU);

	snprintf(e->name, sizeof(e->name), "%s", name);
	e->data = data_owned;
}

void op_model_mover_says(struct op_model_world *w, const char *name, json_t *data_owned)
{
	struct op_model_event *e = op_model_add(w, 0.0001, EVENT_MOVER);

	snprintf(e->name, sizeof(e->name), "%s", name);
	e->data = data_owned;
	e->gen = w->mover_orphan;
}

/* A client tells its callers at once. */
void op_model_session_ends(struct op_model_world *w)
{
	for (struct op_model_event *e = w->events; e; e = e->next) {
		if (e->type != EVENT_ANSWER || e->ev.type != OP_REPLY || e->done)
			continue;
		struct op_model_event *end = op_model_add(w, 0, EVENT_ANSWER);

		end->ev = e->ev;
		tp_fail_class(&end->err, TP_ESYS, "IOError", "the monitor's connection has ended");
		end->ev.err = &end->err;
		end->ev.error_data = NULL;
		e->silent = e->done = end->done = true;
	}
}

static void free_event(struct op_model_event *e)
{
	json_decref(e->data);
	json_decref(e->error_data);
	if (e->job) {
		json_decref(e->job->error_data);
		e->job->error_data = NULL;
		e->job->free(e->job);
	}
	free(e);
}

static void lose_qemu(struct op_model_world *w, const json_t *data)
{
	struct tp_error why = TP_ERROR_INIT;

	tp_fail_class(&why, TP_ESTATE, "QemuExited", "QEMU of VM vm1 ended: %s",
		      tp_json_str(data, "log-tail"));
	op_lost(w->op, OP_RES_QEMU, &why, data);
}

static void run_job(struct op_model_event *e)
{
	if (e->ev.err || e->silent || e->ran)
		return;		/* a fault */
	if (!e->job->run(e->job, &e->err))
		e->ev.err = &e->err;
	e->ev.error_data = e->job->error_data;
}

/* To the operation, if there is one that runs. */
static void tell(struct op_model_world *w, struct op_model_event *e)
{
	e->ev.name = e->name;
	e->ev.data = e->data;
	switch (e->type) {
	case EVENT_ANSWER:
		op_deliver(w->op, &e->ev);
		break;
	case EVENT_QEMU:
		e->ev.type = OP_QEMU_EVENT;
		if (strcmp(e->name, "QEMU_GONE") == 0)
			lose_qemu(w, e->data);
		else
			op_deliver(w->op, &e->ev);
		break;
	case EVENT_MOVER:
		e->ev.type = OP_MOVER;
		if (!e->gen)
			op_deliver(w->op, &e->ev);
		break;
	case EVENT_SYNC:
		op_deliver_journal(w->op, e->ev.err);
		break;
	case EVENT_CANCEL:
		op_cancel(w->op, NULL);
		break;
	case EVENT_DEADLINE:
		if (w->timers[OP_TIMER_DEADLINE] > 0)
			w->timers[OP_TIMER_DEADLINE] = w->now;
		break;
	case EVENT_CALL:
		break;
	}
}

static void happen(struct op_model_world *w, struct op_model_event *e)
{
	if (e->type == EVENT_CALL)
		e->fn(w, e->gen);
	if (e->job)
		run_job(e);
	if (e->type == EVENT_SYNC && !e->ev.err && w->synced < e->gen)
		w->synced = e->gen;
	if (e->type == EVENT_QEMU && strcmp(e->name, "QEMU_GONE") == 0 && !w->crashed && w->c->gone)
		w->c->gone(w, tp_json_str(e->data, "log-tail"));
	if (e->type == EVENT_MOVER && w->mover_given && !w->crashed)
		w->c->served(w, e->name);
	else if (w->op && !w->over && !w->crashed && !e->silent)
		tell(w, e);
	free_event(e);
}

/* The earliest timer; OP_TIMER_N: none. */
static int next_timer(const struct op_model_world *w)
{
	int best = OP_TIMER_N;

	for (int t = 0; t < OP_TIMER_N; t++) {
		if (w->timers[t] > 0 && (best == OP_TIMER_N || w->timers[t] < w->timers[best]))
			best = t;
	}
	return best;
}

/* False: nothing is left to happen by `until`. */
static bool turn(struct op_model_world *w, double until)
{
	struct op_model_event *e = w->events;
	int timer = w->op && !w->over && !w->crashed ? next_timer(w) : OP_TIMER_N;

	if (timer != OP_TIMER_N && (!e || w->timers[timer] <= e->at) && w->timers[timer] <= until) {
		if (w->timers[timer] > w->now)
			w->now = w->timers[timer];
		w->timers[timer] = 0;
		op_deliver_timer(w->op, (enum op_timer)timer);
		return true;
	}
	if (!e || e->at > until)
		return false;
	w->events = e->next;
	if (e->at > w->now)
		w->now = e->at;
	happen(w, e);
	return true;
}

static void run_to_end(struct op_model_world *w)
{
	unsigned steps = 0;

	while (!w->over && !w->crashed) {
		if (!turn(w, 1e9))
			op_model_fail(w, "the operation hangs in step %s", op_step_name(w->op));
		if (++steps > STEPS_MAX || w->neffects > EFFECTS_MAX)
			op_model_fail(w, "the operation does not end (step %s)", op_step_name(w->op));
	}
}

static void settle(struct op_model_world *w)
{
	double until = w->now + SETTLE;

	while (turn(w, until))
		;
	w->now = until;
}

/* --- checked at every effect --- */

void op_model_check_log(struct op_model_world *w)
{
	struct op_options o = { .id = "op-1", .vm = "vm1" };
	struct tp_error err = TP_ERROR_INIT;
	struct op *op = op_new(w->c->plan, &op_model_ports, w->owner, &o, &err);
	int at = w->op->at;

	if (!op || !op_rebuild(op, w->log, &err))
		op_model_fail(w, "cannot be rebuilt from its log: %s", err.text);
	if (!w->log_lost && !json_equal(op->res, w->op->res))
		op_model_fail(w, "resources differ after rebuilding");
	if ((!w->log_lost && op->back != w->op->back) || op->committed != w->op->committed)
		op_model_fail(w, "direction differs after rebuilding");
	if (!json_equal(op->was, w->op->was) || !json_equal(op->arguments, w->op->arguments))
		op_model_fail(w, "arguments differ after rebuilding");
	/* Back: from the last entered step; forward: after the commit; both may repeat. */
	if (!op->back && !op->committed && op->at != at)
		op_model_fail(w, "rebuilt at step %d, was at %d", op->at, at);
	if (op->back && !w->op->retrying && op->at < at)
		op_model_fail(w, "rebuilt at undo %d, was at %d", op->at, at);
	if (op->committed && (op->at > at || !(w->c->plan->steps[op->at - 1].flags & OPF_COMMIT)))
		op_model_fail(w, "rebuilt at step %d after the commit, was at %d", op->at, at);
	op_free(op);
}

/* --- runs --- */

static void begin(struct op_model_world *w, struct op_options *o)
{
	struct tp_error err = TP_ERROR_INIT;

	w->op = op_new(w->c->plan, &op_model_ports, w->owner, o, &err);
	if (!w->op || !op_start(w->op, &err))
		op_model_fail(w, "cannot be started: %s", err.text);
	if (w->neffects > 0)
		op_model_fail(w, "a step ran inside op_start()");
}

/* What is due to the dead daemon is dropped; jobs that had been handed over may run or not. */
static void daemon_dies(struct op_model_world *w)
{
	op_free(w->op);
	w->op = NULL;
	memset(w->timers, 0, sizeof(w->timers));
	op_model_mover_abandoned(w);
	if (w->script.outage == MODEL_POWER_CUT) {
		while (json_array_size(w->log) > w->synced)
			json_array_remove(w->log, json_array_size(w->log) - 1);
	}
	if (w->script.outage != MODEL_QEMU_STAYS) {
		op_model_qemu_dies(w, "killed");
		/* A page server outlives both, but not the host. */
		if (w->script.outage == MODEL_POWER_CUT || !op_model_pages_is(w))
			op_model_mover_dies(w, 9, "");
	}
	settle(w);
	while (w->events) {
		struct op_model_event *e = w->events;

		w->events = e->next;
		free_event(e);
	}
}

static void recover(struct op_model_world *w)
{
	struct op_options o = { .id = "op-1", .vm = "vm1" };
	struct tp_error err = TP_ERROR_INIT;

	daemon_dies(w);
	w->crashed = false;
	w->recovered = true;
	w->percent = 0;
	w->over = false;
	w->ends = 0;
	if (w->c->restarts)
		w->c->restarts(w);
	if (json_array_size(w->log) == 0)
		return;
	w->op = op_new(w->c->plan, &op_model_ports, w->owner, &o, &err);
	if (!w->op || !op_rebuild(w->op, w->log, &err))
		op_model_fail(w, "cannot be recovered: %s", err.text);
	if (w->c->resumes)
		w->c->resumes(w);
	op_resume(w->op, w->qemu);
	run_to_end(w);
}

static void count_end(struct op_model_world *w, struct op_model_count *count)
{
	enum op_status status = w->op ? op_status(w->op) : OP_FAILED;

	count->runs++;
	count->succeeded += status == OP_SUCCEEDED;
	count->failed += status == OP_FAILED;
	count->cancelled += status == OP_CANCELLED;
	count->stuck_first += w->was_stuck;
}

static void check_end(struct op_model_world *w)
{
	tp_autojson json_t *record = w->op ? op_record(w->op) : NULL;
	const char *rollback = tp_json_str(record, "rollback");

	if (!w->op)
		return;
	if (w->ends != 1)
		op_model_fail(w, "ended %u times", w->ends);
	if (strcmp(rollback, "failed") == 0)
		op_model_fail(w, "ended with a failed roll-back");
	if ((op_status(w->op) == OP_SUCCEEDED) != (op_error(w->op) == NULL))
		op_model_fail(w, "status and error do not fit");
	if (op_status(w->op) == OP_SUCCEEDED &&
	    strcmp(op_phase_name(w->op), w->c->plan->done_phase) != 0)
		op_model_fail(w, "ended in phase %s", op_phase_name(w->op));
}

static void release(struct op_model_world *w)
{
	while (w->events) {
		struct op_model_event *e = w->events;

		w->events = e->next;
		free_event(e);
	}
	op_free(w->op);
	for (int i = 0; i < QMP_CMD_N; i++)
		json_decref(w->answer[i]);
	for (int i = 0; i < QGA_CMD_N; i++)
		json_decref(w->qga_answer[i]);
	json_decref(w->caps);
	json_decref(w->params);
	json_decref(w->fds);
	json_decref(w->launch_data);
	json_decref(w->sealed_data);
	json_decref(w->mover_request);
	json_decref(w->log);
	json_decref(w->trace);
}

bool op_model_run(const struct op_model_case *c, const struct op_model_script *script,
		  struct op_model_count *count)
{
	struct op_options o = { .id = "op-1", .vm = "vm1", .timeout = 100 };
	struct op_model_world w = { .c = c, .script = *script, .now = 1000 };
	bool struck;

	world = &w;
	op_model_fill(&w);
	c->setup(&w, &o);
	begin(&w, &o);
	run_to_end(&w);
	if (script->fault == MODEL_CRASH_ENDED || script->undo_fault == MODEL_CRASH_ENDED)
		w.crashed = true;
	while (w.crashed)
		recover(&w);
	settle(&w);
	check_end(&w);
	c->check(&w);
	count_end(&w, count);
	struck = script->again ? w.again_struck : script->undo_fault ? w.undo_struck : w.struck;
	json_decref(o.arguments);
	json_decref(o.was);
	if (c->teardown)
		c->teardown(&w);
	release(&w);
	world = NULL;
	return struck;
}

/* Of a run without a fault. */
static unsigned count_effects(const struct op_model_case *c, struct op_model_count *count)
{
	struct op_model_script script = { .fault = MODEL_NONE };

	op_model_run(c, &script, count);
	script.fault = MODEL_CRASH_AFTER;
	while (op_model_run(c, &script, count))
		script.at++;
	if (script.at == 0)
		fail_msg("%s: no effect at all", c->name);
	return script.at;
}

/* Cancels at each effect; on the way back the second fault strikes at each of its effects. */
static void walk_undos(const struct op_model_case *c, enum op_model_fault fault, unsigned effects,
		       struct op_model_count *count)
{
	for (unsigned at = 0; at < effects; at++) {
		struct op_model_script script = { .fault = MODEL_CANCEL, .at = at,
						  .undo_fault = fault };

		while (op_model_run(c, &script, count))
			script.undo_at++;
	}
}

static void walk(const struct op_model_case *c, bool undos, struct op_model_count *count)
{
	unsigned effects = count_effects(c, count);

	for (int fault = MODEL_NONE + 1; fault < MODEL_FAULTS; fault++) {
		struct op_model_script script = { .fault = (enum op_model_fault)fault };

		for (script.at = 0; script.at < effects; script.at++)
			op_model_run(c, &script, count);
		if (undos)
			walk_undos(c, script.fault, effects, count);
	}
}

void op_model_walk(const struct op_model_case *c, struct op_model_count *count)
{
	walk(c, true, count);
}

void op_model_walk_down(const struct op_model_case *c, struct op_model_count *count)
{
	walk(c, false, count);
}

void op_model_recover(const struct op_model_case *c, struct op_model_count *count)
{
	unsigned effects = count_effects(c, count);
	struct op_model_script script = { .fault = MODEL_NONE };

	for (int outage = 0; outage < MODEL_OUTAGES; outage++) {
		script.outage = (enum op_model_outage)outage;
		for (script.at = 0; script.at < effects; script.at++) {
			script.fault = MODEL_CRASH_BEFORE;
			op_model_run(c, &script, count);
			script.fault = MODEL_CRASH_AFTER;
			op_model_run(c, &script, count);
		}
	}
}
