/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* defer.c - Answers that are known at once are given from the loop all the same */
#include "engine/defer.h"

#include <ev.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "engine/vm_runtime.h"

struct deferred {
	struct ev_timer timer;
	struct deferred *next;
	struct vm *vm;
	struct op *op;
	uint64_t token;
	const char *action;
	json_t *data;
	struct tp_error err;
	bool failed;
};

static void unlink_deferred(struct deferred *d)
{
	struct deferred **p = &d->vm->t->deferred;

	while (*p != d)
		p = &(*p)->next;
	*p = d->next;
	ev_timer_stop(d->vm->t->loop, &d->timer);
}

static void deferred_free(struct deferred *d)
{
	json_decref(d->data);
	free(d);
}

static void deferred_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct deferred *d = w->data;

	(void)loop, (void)events;
	unlink_deferred(d);
	vm_answer(d->vm, d->op, d->token, d->action, d->data, d->failed ? &d->err : NULL);
	deferred_free(d);
}

void defer_answer(struct vm *vm, struct op *op, uint64_t token, const char *action, json_t *data_owned,
		  const struct tp_error *err)
{
	struct deferred *d = calloc(1, sizeof(*d));

	if (!d) {
		json_decref(data_owned);
		return;		/* the step's limit ends the wait */
	}
	*d = (struct deferred){ .next = vm->t->deferred, .vm = vm, .op = op, .token = token,
				.action = action, .data = data_owned, .failed = err != NULL };
	if (err)
		d->err = *err;
	vm->t->deferred = d;
	ev_timer_init(&d->timer, deferred_cb, 0., 0.);
	d->timer.data = d;
	ev_timer_start(vm->t->loop, &d->timer);
}

void defer_drop(struct vm *vm)
{
	struct deferred *d = vm->t->deferred;

	while (d) {
		struct deferred *next = d->next;

		if (d->vm == vm) {
			unlink_deferred(d);
			deferred_free(d);
		}
		d = next;
	}
}
