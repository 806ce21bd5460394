/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ops_beside.c - Operations beside the VMs: they hold none and have no journal
 *
 * The same runner and record, so they are waited for, cancelled and listed like all others. What
 * they do needs no recovery: nothing of a VM is touched, and their end is a record only.
 */
#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/ops_priv.h"

TP_LOG_SOURCE("engine.ops");

#define BESIDE_MAX 1000		/* at one time: most of them wait */

static size_t beside_count(const struct torpor *t)
{
	size_t n = 0;

	for (const struct op_run *r = t->ops->running; r; r = r->next)
		n += !r->vm && !r->dry;
	return n;
}

static bool begin(struct torpor *t, const char *vm, const struct op_plan *plan, json_t *arguments,
		  const char *id, double timeout, struct tp_error *err)
{
	struct op_options o = { .id = id, .vm = vm, .arguments = arguments, .timeout = timeout };
	struct op_run *r;

	if (t->closing)
		return tp_fail_class(err, TP_ESTATE, "Draining", "the engine is shutting down");
	if (beside_count(t) >= BESIDE_MAX)
		return tp_fail_class(err, TP_ELIMIT, "Busy", "%d operations of this kind run or wait already",
				     BESIDE_MAX);
	r = ops_run_new(t, NULL, plan);
	if (!r)
		return tp_fail_nomem(err);
	r->op = op_new(plan, &ops_real_ports, r, &o, err);
	if (!r->op || !op_start(r->op, err)) {
		ops_run_free(r);
		return false;
	}
	r->next = t->ops->running;
	t->ops->running = r;
	tp_info("vm=%s op=%s %s", vm, id, plan->kind);
	return true;
}

void ops_submit_beside(struct api_call *call, const char *vm, const struct op_plan *plan, double timeout)
{
	const json_t *args = api_args(call);
	const char *given = tp_json_str(args, "operation-id");
	tp_autojson json_t *arguments = ops_essential(args);
	struct tp_error err = TP_ERROR_INIT;
	char id[OPS_ID_MAX + 1];

	if (given && ops_answered_by_id(call, vm, plan, given, arguments))
		return;
	if (tp_json_bool(args, "dry-run", false))
		ops_dry_run(call, NULL, vm, plan, arguments);
	else if (ops_take_id(call, id, &err) &&
		 begin(api_engine(call), vm, plan, arguments, id, timeout, &err))
		ops_accepted(call, id);
	else
		api_error(call, &err, NULL);
}

static bool works_with(const struct op_run *r, const char *image)
{
	const char *own = tp_json_str(op_arguments(r->op), "image");

	return !r->vm && !r->dry && !r->ending && own && strcmp(own, image) == 0;
}

const char *ops_beside_image(struct torpor *t, const char *image)
{
	for (struct op_run *r = t->ops->running; r; r = r->next)
		if (works_with(r, image))
			return op_id(r->op);
	return NULL;
}

void ops_beside_gone(struct torpor *t, const char *image, const char *why)
{
	tp_autojson json_t *data = json_pack("{s:s}", "image", image);
	struct tp_error err = TP_ERROR_INIT;

	tp_fail_class(&err, TP_ESTATE, "NotFound", "image %s %s meanwhile", image, why);
	for (struct op_run *r = t->ops ? t->ops->running : NULL; r; r = r->next)
		if (works_with(r, image))
			op_abort(r->op, &err, data);
}

/* --- the end --- */

static void ended_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct op_run *r = w->data;
	struct torpor *t = r->t;
	tp_autojson json_t *record = op_record(r->op);

	(void)loop, (void)events;
	tp_info("vm=%s op=%s %s %s", op_vm_name(r->op), op_id(r->op), r->plan->kind,
		tp_json_str(record, "status"));
	ops_run_free(r);
	ops_append(t, record);
	ops_remember(t, json_incref(record));
	ops_event(t, record, false);
	ops_tell(t, tp_json_str(record, "id"), record);
	if (t->closing && !ops_running(t))
		ev_feed_event(t->loop, &t->closing_timer, EV_TIMER);
}

/* We are inside the runner. */
void ops_beside_ended(struct op_run *r)
{
	ev_set_cb(&r->end_again, ended_cb);
	ev_timer_set(&r->end_again, 0., 0.);
	ev_timer_start(r->t->loop, &r->end_again);
}
