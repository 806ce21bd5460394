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
		return state_vm_write(s->dirfd, FILE_NAME, s->set, err);
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
	struct store *s = calloc(1, sizeof(*s));

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
