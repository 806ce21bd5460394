/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ops_ports.c - What steps ask for, done for real
 *
 * Every question is a small heap object that lives until its answer; the answer
 * is delivered if the operation still runs. An operation that has ended holds
 * its VM until its end is on the platter: state.json, then the journal emptied.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/op_journal.h"
#include "engine/ops_priv.h"
#include "engine/prefetch.h"
#include "engine/recover.h"
#include "engine/vm_runtime.h"

TP_LOG_SOURCE("engine.ops");

#define END_BACKOFF_MAX 30.0

struct ask {
	struct torpor *t;
	struct op *op;
	uint64_t token;
	int cmd;
	struct op_job *job;	/* io */
	int fd;			/* journal */
};

static struct op_run *run_of(struct op *op)
{
	return op_owner(op);
}

static struct ask *ask_new(struct op *op, int cmd, struct tp_error *err)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (!a) {
		tp_fail_nomem(err);
		return NULL;
	}
	*a = (struct ask){ .t = run_of(op)->t, .op = op, .token = ops_token(run_of(op)->t), .cmd = cmd, .fd = -1 };
	return a;
}

/* --- QEMU and the agent --- */

static void qmp_done(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct ask *a = arg;
	tp_autojson json_t *data = qemu_error ? json_pack("{s:O}", "qemu", (json_t *)qemu_error) : NULL;
	struct op_event ev = { .type = OP_REPLY, .token = a->token, .cmd = (enum qmp_cmd)a->cmd, .data = reply,
			       .err = err, .error_data = data };

	if (ops_run_alive(a->t, a->op))
		op_deliver(a->op, &ev);
	free(a);
}

static uint64_t port_qmp(struct op *op, enum qmp_cmd cmd, json_t *args_owned, int *fd, double limit,
			 struct tp_error *err)
{
	struct vm *vm = run_of(op)->vm;
	struct ask *a = NULL;
	uint64_t token;

	if (!vm->qemu || !vm->qemu->qmp)
		tp_fail_class(err, TP_EQMP, vm->qemu ? "IOError" : "QemuExited", "VM %s has no %s", vm->name,
			      vm->qemu ? "monitor connection" : "QEMU");
	else
		a = ask_new(op, (int)cmd, err);
	if (!a) {
		json_decref(args_owned);
		if (fd)
			tp_close(fd);
		return 0;
	}
	token = a->token;
	if (!qmp_client_send(vm->qemu->qmp, cmd, args_owned, fd, limit, qmp_done, a, err)) {
		free(a);
		return 0;
	}
	return token;
}

static void agent_done(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct ask *a = arg;
	struct op_event ev = { .type = OP_AGENT, .token = a->token, .qga = (enum qga_cmd)a->cmd, .data = reply,
			       .err = err };

	(void)qemu_error;
	if (ops_run_alive(a->t, a->op))
		op_deliver(a->op, &ev);
	free(a);
}

static uint64_t port_agent(struct op *op, enum qga_cmd cmd, json_t *args_owned, double limit,
			   struct tp_error *err)
{
	struct qga_client *qga = vm_agent(run_of(op)->vm, err);
	struct ask *a = qga ? ask_new(op, (int)cmd, err) : NULL;
	uint64_t token;

	if (!a) {
		json_decref(args_owned);
		return 0;
	}
	token = a->token;
	if (!qga_client_send(qga, cmd, args_owned, limit, agent_done, a, err)) {
		free(a);
		return 0;
	}
	return token;
}

static uint64_t port_vm(struct op *op, const char *action, json_t *args_owned, struct tp_error *err)
{
	return vm_action(run_of(op)->vm, op, action, args_owned, err);
}

static bool port_qemu_alive(struct op *op)
{
	return run_of(op)->vm && run_of(op)->vm->qemu;
}

/* --- file work --- */

static void job_free(struct op_job *job)
{
	json_decref(job->error_data);
	job->error_data = NULL;
	job->free(job);
}

static bool io_run(void *arg, struct tp_error *err)
{
	struct ask *a = arg;

	return a->job->run(a->job, err);
}

/* The job's error may be the end of its pool. */
static void doubt_pool(const struct ask *a, const struct tp_error *err)
{
	struct engine_pool *p = a->job->worker ? pools_find(a->t->pools, a->job->worker) : NULL;

	if (p)
		engine_pool_doubt(p, err);
}

static void io_done(void *arg, const struct tp_error *err)
{
	struct ask *a = arg;
	struct op_event ev = { .type = OP_IO, .token = a->token, .job = a->job, .err = err,
			       .error_data = a->job->error_data };

	if (err && err->code != TP_ECANCELLED)
		doubt_pool(a, err);
	if (ops_run_alive(a->t, a->op))
		op_deliver(a->op, &ev);
	job_free(a->job);
	free(a);
}

static struct io_worker *worker_of(struct torpor *t, const char *name, struct tp_error *err)
{
	struct engine_pool *p;

	if (!name || strcmp(name, OP_WORKER_STATE) == 0)
		return t->worker;
	if (strcmp(name, OP_WORKER_DISKS) == 0)
		return t->disks;
	p = pools_need(t->pools, name, err);
	/* Somebody wants it: if it is back, the next try finds it. */
	if (!p)
		pools_room_changed(t->pools, name);
	return p ? engine_pool_worker(p) : NULL;
}

static uint64_t port_io(struct op *op, struct op_job *job_owned, struct tp_error *err)
{
	struct io_worker *worker = worker_of(run_of(op)->t, job_owned->worker, err);
	struct ask *a = worker ? ask_new(op, 0, err) : NULL;
	uint64_t token = a ? a->token : 0;

	if (a)
		a->job = job_owned;
	if (!a || !io_worker_submit(worker, io_run, io_done, a, err)) {
		free(a);
		job_free(job_owned);
		return 0;
	}
	return token;
}

/* --- the mover --- */

static void mover_message(struct mover *m, const char *name, const json_t *value, void *arg)
{
	struct op_run *r = arg;
	struct op_event ev = { .type = OP_MOVER, .name = name, .data = value };

	(void)m;
	op_deliver(r->op, &ev);
}

static void mover_ended(struct mover *m, int status, const char *tail, void *arg)
{
	struct op_run *r = arg;
	tp_autojson json_t *data = json_pack("{s:i, s:s}", "status", status, "stderr", tail);
	struct op_event ev = { .type = OP_MOVER, .name = "end", .data = data };

	(void)m;
	mover_free(TP_STEAL(r->mover));
	op_deliver(r->op, &ev);
}

static const struct mover_ops mover_callbacks = { .message = mover_message, .ended = mover_ended };

static bool port_mover_start(struct op *op, json_t *request_owned, int *fds, size_t nfds, struct tp_error *err)
{
	struct op_run *r = run_of(op);

	if (r->mover) {
		json_decref(request_owned);
		for (size_t i = 0; i < nfds; i++)
			tp_close(&fds[i]);
		return tp_fail(err, TP_ESTATE, "operation %s has a mover already", op_id(op));
	}
	tp_json_set(request_owned, "protocol", json_integer(1));
	tp_json_set_str(request_owned, "vm", op_vm_name(op));
	tp_json_set_str(request_owned, "op", op_id(op));
	r->mover = mover_start(&r->t->mover, request_owned, fds, nfds, &mover_callbacks, r, err);
	return r->mover != NULL;
}

static bool port_mover_send(struct op *op, json_t *message_owned, struct tp_error *err)
{
	if (run_of(op)->mover)
		return mover_send(run_of(op)->mover, message_owned, err);
	json_decref(message_owned);
	return tp_fail(err, TP_ESTATE, "the mover of operation %s is gone", op_id(op));
}

static void port_mover_kill(struct op *op)
{
	if (run_of(op)->mover)
		mover_kill(run_of(op)->mover, SIGKILL);
}

static bool port_mover_alive(struct op *op)
{
	return run_of(op)->mover != NULL;
}

static void port_mover_give(struct op *op)
{
	struct op_run *r = run_of(op);

	if (r->mover)
		prefetch_take(r->vm, TP_STEAL(r->mover));
}

/* --- journal --- */

static bool journal_run(void *arg, struct tp_error *err)
{
	struct ask *a = arg;

	return op_journal_sync(a->fd, err);
}

static void journal_done(void *arg, const struct tp_error *err)
{
	struct ask *a = arg;

	tp_close(&a->fd);
	if (ops_run_alive(a->t, a->op))
		op_deliver_journal(a->op, err);
	free(a);
}

bool ops_journal_failed(const struct vm *vm, struct tp_error *err)
{
	return tp_prefix(err, "journal %s/vms/%s/op.log", state_dir_path(vm->t->state), vm->name);
}

static bool port_journal(struct op *op, const char *record, json_t *fields_owned, bool sync,
			 struct tp_error *err)
{
	struct op_run *r = run_of(op);
	tp_autojson json_t *fields = fields_owned;
	struct ask *a;

	if (r->dry || !r->vm)
		return true;
	/* The end is written by end_run(), after state.json. */
	if (strcmp(record, "end") == 0)
		return true;
	if (strcmp(record, "begin") == 0) {
		r->vm->journal_serial = tp_json_int(r->vm->rest, "ended", 0) + 1;
		tp_json_set(fields, "serial", json_integer((json_int_t)r->vm->journal_serial));
	}
	if (!op_journal_append(r->vm->journal_fd, record, fields, err))
		return ops_journal_failed(r->vm, err);
	if (!sync)
		return true;
	a = ask_new(op, 0, err);
	if (!a)
		return false;
	a->fd = fcntl(r->vm->journal_fd, F_DUPFD_CLOEXEC, 3);
	if (a->fd >= 0 && io_worker_submit(r->t->worker, journal_run, journal_done, a, err))
		return true;
	if (a->fd < 0)
		tp_fail_sys(err, errno, "journal of VM %s", r->vm->name);
	tp_close(&a->fd);
	free(a);
	return false;
}

/* --- time and telling --- */

static void timer_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct op_run *r = w->data;

	(void)loop, (void)events;
	op_deliver_timer(r->op, (enum op_timer)(w - r->timers));
}

static void port_timer(struct op *op, enum op_timer which, double after)
{
	struct op_run *r = run_of(op);

	ev_timer_stop(r->t->loop, &r->timers[which]);
	if (after <= 0)
		return;
	ev_now_update(r->t->loop);
	ev_timer_set(&r->timers[which], after, 0.);
	ev_timer_start(r->t->loop, &r->timers[which]);
}

static double port_now(struct op *op)
{
	(void)op;
	return tp_now_mono();
}

static void port_forget(struct op *op, uint64_t token)
{
	(void)op, (void)token;	/* op_deliver drops what nobody awaits */
}

static void port_changed(struct op *op, bool phase)
{
	struct op_run *r = run_of(op);
	tp_autojson json_t *record = NULL;

	/* Its end is told once it is on the platter. */
	if (r->dry || (op_status(op) != OP_RUNNING && op_status(op) != OP_STUCK))
		return;
	record = op_record(op);
	json_decref(r->told);
	r->told = json_incref(record);
	ops_event(r->t, record, !phase);
	if (phase && r->vm)
		vm_refresh(r->vm);
}

/* --- the end --- */

struct ending {
	struct torpor *t;
	struct op *op;
	int dirfd, journal;
	json_t *rest, *record;
	struct state_dir *state;
};

static bool ending_run(void *arg, struct tp_error *err)
{
	struct ending *e = arg;

	if (!state_vm_write(e->dirfd, "state.json", e->rest, err) ||
	    !op_journal_append(e->journal, "end", e->record, err) || !op_journal_clear(e->journal, err))
		return false;
	/* Only memory of what was: its loss fails nothing. */
	state_ops_append(e->state, e->record, NULL);
	return true;
}

static void end_again_cb(struct ev_loop *loop, struct ev_timer *w, int events);

static void ending_done(void *arg, const struct tp_error *err)
{
	struct ending *e = arg;
	struct op_run *r = ops_run_alive(e->t, e->op) ? run_of(e->op) : NULL;

	if (r && err) {
		tp_err("vm=%s op=%s cannot be recorded, trying again: %s", r->vm->name, op_id(r->op), err->text);
		r->end_backoff = r->end_backoff * 2 > END_BACKOFF_MAX ? END_BACKOFF_MAX : r->end_backoff * 2;
		ev_timer_set(&r->end_again, r->end_backoff, 0.);
		ev_timer_start(r->t->loop, &r->end_again);
	} else if (r) {
		ops_run_done(r);
	}
	tp_close(&e->dirfd);
	tp_close(&e->journal);
	json_decref(e->rest);
	json_decref(e->record);
	free(e);
}

static void end_run(struct op_run *r)
{
	struct ending *e = calloc(1, sizeof(*e));
	struct tp_error err = TP_ERROR_INIT;

	recover_gone(r->vm);
	vm_rest_set(r->vm, "ended", json_integer((json_int_t)r->vm->journal_serial));
	if (e) {
		*e = (struct ending){ .t = r->t, .op = r->op, .state = r->t->state,
				      .dirfd = fcntl(r->vm->dirfd, F_DUPFD_CLOEXEC, 3),
				      .journal = fcntl(r->vm->journal_fd, F_DUPFD_CLOEXEC, 3),
				      .rest = json_deep_copy(r->vm->rest), .record = op_record(r->op) };
		prefetch_shape_record(r->vm, e->record);
		r->vm->rest_dirty = false;
		if (io_worker_submit(r->t->worker, ending_run, ending_done, e, &err))
			return;
		tp_close(&e->dirfd);
		tp_close(&e->journal);
		json_decref(e->rest);
		json_decref(e->record);
		free(e);
	}
	ev_timer_set(&r->end_again, r->end_backoff, 0.);
	ev_timer_start(r->t->loop, &r->end_again);
}

static void end_again_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	(void)loop, (void)events;
	end_run(w->data);
}

static void port_ended(struct op *op)
{
	struct op_run *r = run_of(op);

	if (r->ending)
		return;
	r->ending = true;
	if (r->dry)
		ops_dry_done(r);
	else if (!r->vm)
		ops_beside_ended(r);
	else
		end_run(r);
}

const struct op_ports ops_real_ports = {
	.qmp = port_qmp, .agent = port_agent, .vm = port_vm, .io = port_io,
	.mover_start = port_mover_start, .mover_send = port_mover_send, .mover_kill = port_mover_kill,
	.mover_alive = port_mover_alive, .mover_give = port_mover_give, .qemu_alive = port_qemu_alive, .journal = port_journal,
	.forget = port_forget, .timer = port_timer, .now = port_now, .changed = port_changed,
	.ended = port_ended,
};

struct op_run *ops_run_new(struct torpor *t, struct vm *vm, const struct op_plan *plan)
{
	struct op_run *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->t = t;
	r->vm = vm;
	r->plan = plan;
	r->end_backoff = 1.0;
	for (int i = 0; i < OP_TIMER_N; i++) {
		ev_init(&r->timers[i], timer_cb);
		r->timers[i].data = r;
	}
	ev_init(&r->end_again, end_again_cb);
	r->end_again.data = r;
	return r;
}

void ops_run_free(struct op_run *r)
{
	struct op_run **p;

	if (!r)
		return;
	for (p = &r->t->ops->running; *p && *p != r; p = &(*p)->next)
		;
	if (*p)
		*p = r->next;
	for (int i = 0; i < OP_TIMER_N; i++)
		ev_timer_stop(r->t->loop, &r->timers[i]);
	ev_timer_stop(r->t->loop, &r->end_again);
	mover_free(r->mover);
	json_decref(r->told);
	op_free(r->op);
	free(r);
}
