/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* steps_io.c - File work of steps as jobs with JSON in and out; blockers */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/ops_priv.h"
#include "engine/steps.h"

struct vm *op_vm_of(struct op *op)
{
	struct op_run *r = op_owner(op);

	return r->vm;
}

struct torpor *op_engine(struct op *op)
{
	struct op_run *r = op_owner(op);

	return r->t;
}

void step_fd_close(int *fd)
{
	if (*fd > 0)
		tp_close(fd);
}

static bool job_run(struct op_job *base, struct tp_error *err)
{
	struct job *j = (struct job *)base;

	return j->fn(j, err);
}

static void job_free(struct op_job *base)
{
	struct job *j = (struct job *)base;

	json_decref(j->in);
	json_decref(j->out);
	tp_close(&j->fd);
	free(j);
}

struct job *job_new(bool (*fn)(struct job *j, struct tp_error *err), json_t *in_owned,
		    struct engine_pool *pool, struct tp_error *err)
{
	struct job *j = pool && !engine_pool_storage(pool) ? NULL : calloc(1, sizeof(*j));

	if (!j) {
		json_decref(in_owned);
		if (pool && !engine_pool_storage(pool))
			tp_fail_class(err, TP_ESYS, "IOError", "pool %s is not open", engine_pool_name(pool));
		else
			tp_fail_nomem(err);
		return NULL;
	}
	*j = (struct job){ .base = { .run = job_run, .free = job_free }, .fn = fn, .in = in_owned, .fd = -1,
			   .pool = pool ? engine_pool_storage(pool) : NULL };
	snprintf(j->worker, sizeof(j->worker), "%s", pool ? engine_pool_name(pool) : OP_WORKER_DISKS);
	j->base.worker = j->worker;
	return j;
}

enum op_verdict step_job(struct op *op, bool (*fn)(struct job *j, struct tp_error *err), json_t *in_owned,
			 const char *pool, unsigned flags)
{
	struct tp_error err = TP_ERROR_INIT;
	struct engine_pool *p = pool ? pools_need(op_engine(op)->pools, pool, &err) : NULL;
	struct job *j;

	if (pool && !p) {
		json_decref(in_owned);
		return op_fail_error(op, &err, NULL);
	}
	j = job_new(fn, in_owned, p, &err);
	return j ? op_io(op, &j->base, flags) : op_fail_error(op, &err, NULL);
}

struct job *job_of(const struct op_event *ev)
{
	return ev->type == OP_IO && ev->job ? (struct job *)ev->job : NULL;
}

void blocker_add(json_t *blockers, const char *class_, json_t *data_owned, const char *fmt, ...)
{
	char text[TP_TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_array_append_new(blockers, json_pack("{s:s, s:s, s:o}", "class", class_, "desc", text, "data",
						  data_owned ? data_owned : json_object()));
}

enum op_verdict blockers_verdict(struct op *op, const json_t *blockers)
{
	const json_t *first = json_array_get(blockers, 0);
	struct tp_error err = TP_ERROR_INIT;
	json_t *data;

	if (!first)
		return OP_NEXT;
	tp_fail_class(&err, TP_ESTATE, tp_json_str(first, "class"), "%s", tp_json_str(first, "desc"));
	data = json_copy(json_object_get(first, "data"));
	tp_json_set(data, "blockers", json_deep_copy(blockers));
	return op_fail_error(op, &err, data);
}
