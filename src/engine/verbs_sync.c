/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * verbs_sync.c - Verbs that answer when done: one object a call, freed with the answer
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/verbs.h"
#include "engine/vm_monitor.h"
#include "engine/vm_runtime.h"

struct vm *verb_vm(struct api_call *call)
{
	const char *name = tp_json_str(api_args(call), "name");
	struct tp_error err = TP_ERROR_INIT;
	struct vm *vm = vm_need(api_engine(call), name, &err);

	if (!vm)
		api_error(call, &err, json_pack("{s:s?}", "vm", name));
	return vm;
}

static void tick_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct sync_call *s = w->data;

	(void)loop, (void)events;
	s->tick(s);
}

struct sync_call *sync_new(struct api_call *call, struct vm *vm)
{
	struct sync_call *s = calloc(1, sizeof(*s));
	struct tp_error err = TP_ERROR_INIT;

	if (!s) {
		tp_fail_nomem(&err);
		api_error(call, &err, NULL);
		return NULL;
	}
	s->call = call;
	s->t = vm->t;
	snprintf(s->vm, sizeof(s->vm), "%s", vm->name);
	ev_init(&s->timer, tick_cb);
	s->timer.data = s;
	s->next = s->t->sync_calls;
	s->t->sync_calls = s;
	return s;
}

struct vm *sync_vm(struct sync_call *s)
{
	return vm_find(s->t, s->vm);
}

static void sync_free(struct sync_call *s)
{
	struct sync_call **p = &s->t->sync_calls;

	while (*p != s)
		p = &(*p)->next;
	*p = s->next;
	ev_timer_stop(s->t->loop, &s->timer);
	json_decref(s->data);
	free(s);
}

void sync_forget(struct sync_call *s)
{
	sync_free(s);
}

void sync_calls_free(struct torpor *t)
{
	while (t->sync_calls)
		sync_free(t->sync_calls);
}

void sync_after(struct sync_call *s, double seconds, sync_fn tick)
{
	s->tick = tick;
	ev_timer_stop(s->t->loop, &s->timer);
	ev_timer_set(&s->timer, seconds, 0.);
	ev_timer_start(s->t->loop, &s->timer);
}

void sync_reply(struct sync_call *s, json_t *result_owned)
{
	struct api_call *call = s->call;

	sync_free(s);
	api_reply(call, result_owned ? result_owned : json_object());
}

void sync_error(struct sync_call *s, const struct tp_error *err, json_t *data_owned)
{
	struct api_call *call = s->call;

	sync_free(s);
	api_error(call, err, data_owned);
}

/* --- a command, then the status --- */

static void status_known(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct sync_call *s = arg;
	struct vm *vm = sync_vm(s);
	const char *status = tp_json_str(reply, "status");

	(void)qemu_error;
	s->qmp = 0;
	if (err) {
		sync_error(s, err, NULL);
		return;
	}
	if (vm && status)
		vm_status_is(vm, status);
	s->then(s);
}

/* Answers the call itself where it cannot ask. */
static void ask(struct sync_call *s, enum qmp_cmd cmd, json_t *args_owned, qmp_reply_fn fn)
{
	struct vm *vm = sync_vm(s);
	struct tp_error err = TP_ERROR_INIT;

	if (!vm || !vm->qemu || !vm->qemu->qmp) {
		json_decref(args_owned);
		tp_fail_class(&err, TP_EQMP, "QemuExited", "VM %s has no QEMU that answers", s->vm);
		sync_error(s, &err, NULL);
		return;
	}
	s->qmp = qmp_client_send(vm->qemu->qmp, cmd, args_owned, NULL, 8.0, fn, s, &err);
	if (!s->qmp)
		sync_error(s, &err, NULL);
}

static void command_done(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct sync_call *s = arg;

	(void)reply;
	s->qmp = 0;
	if (err)
		sync_error(s, err, qemu_error ? json_pack("{s:O}", "qemu", qemu_error) : NULL);
	else
		ask(s, QMP_QUERY_STATUS, NULL, status_known);
}

void sync_qmp(struct sync_call *s, enum qmp_cmd cmd, json_t *args_owned, sync_fn then)
{
	s->then = then;
	ask(s, cmd, args_owned, cmd == QMP_QUERY_STATUS ? status_known : command_done);
}
