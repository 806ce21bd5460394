/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* working_set.c - What a VM's guest touches first after a resume, kept from one resume to the next */
#include "engine/working_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "engine/engine.h"
#include "engine/steps.h"
#include "storage/page_set.h"

TP_LOG_SOURCE("engine.working-set");

#define FILE_NAME "working-set.json"

/* @set: NULL: the file goes */
struct store {
	char vm[TP_NAME_MAX + 1];
	int dirfd;
	json_t *set;
};

static bool store_run(void *arg, struct tp_error *err)
{
	struct store *s = arg;

	if (s->set)
		return page_set_check(s->set, NULL, err) && state_vm_write(s->dirfd, FILE_NAME, s->set, err);
	return unlinkat(s->dirfd, FILE_NAME, 0) == 0 || errno == ENOENT ||
	       tp_fail_sys(err, errno, "remove %s", FILE_NAME);
}

static void store_free(struct store *s)
{
	tp_close(&s->dirfd);
	json_decref(s->set);
	free(s);
}

static void store_done(void *arg, const struct tp_error *err)
{
	struct store *s = arg;

	if (err && err->code != TP_ECANCELLED)
		tp_warn("vm=%s its working set is not kept: %s", s->vm, err->text);
	store_free(s);
}

void working_set_store(struct vm *vm, json_t *set_owned)
{
	bool says_nothing = set_owned && page_set_ranges(set_owned) == 0;
	struct store *s = says_nothing ? NULL : calloc(1, sizeof(*s));

	if (!s) {
		json_decref(set_owned);
		return;
	}
	*s = (struct store){ .dirfd = fcntl(vm->dirfd, F_DUPFD_CLOEXEC, 3), .set = set_owned };
	snprintf(s->vm, sizeof(s->vm), "%s", vm->name);
	if (s->dirfd < 0 || !io_worker_submit(vm->t->worker, store_run, store_done, s, NULL))
		store_free(s);
}

json_t *working_set_request(const json_t *manifest)
{
	const json_t *set = json_object_get(manifest, "working-set");

	return json_is_object(set) ? json_deep_copy(set) : NULL;
}

/* --- into a manifest --- */

static bool read_run(struct job *j, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	json_t *set = state_vm_read(j->fd, FILE_NAME, &why);

	(void)err;
	if (set && page_set_check(set, NULL, &why)) {
		j->out = set;
		return true;
	}
	if (why.code != TP_OK)
		tp_warn("vm=%s %s: %s; it is not used", tp_json_str(j->in, "vm"), FILE_NAME, why.text);
	json_decref(set);
	return true;
}

struct op_job *working_set_read(struct vm *vm, struct tp_error *err)
{
	struct job *j = job_new(read_run, json_pack("{s:s}", "vm", vm->name), NULL, err);

	if (!j)
		return NULL;
	snprintf(j->worker, sizeof(j->worker), "%s", OP_WORKER_STATE);
	j->fd = fcntl(vm->dirfd, F_DUPFD_CLOEXEC, 3);
	return &j->base;
}

json_t *working_set_of(const json_t *set, const json_t *ram)
{
	return set ? page_set_fit(set, ram) : NULL;
}
