/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_lazy.c - Lazy restores in the world of plans: the page server that belongs to the VM
 *
 * The prefetch is the engine's own (prefetch.c), without a control connection: the world does by itself
 * what prefetch_recover.c would: it takes up a server that is there, and starts another one where QEMU
 * is in postcopy-paused. The engine's attempts to do so find no socket, and their timer is stopped
 * before a loop runs. The host's answer about userfaultfd is the case's: programs that walk lazy
 * restores are linked with --wrap=uffd_host_read.
 */
#include "fake/plan_world_priv.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/tp_json.h"
#include "engine/prefetch_priv.h"
#include "engine/uffd.h"

#define AGAIN_AFTER 0.05	/* seconds until another server is there */
#define REAP_TRIES 4000

void __wrap_uffd_host_read(struct uffd_host *h);

static bool opens = true;	/* the device; the system call is for all, too */

void __wrap_uffd_host_read(struct uffd_host *h)
{
	memset(h, 0, sizeof(*h));
	h->call = h->device = true;
	h->opens = h->unprivileged = opens;
}

bool plan_is_lazy(const struct plan_case *c)
{
	return c->lazy && !c->fallback;
}

void plan_lazy_setup(struct op_model_world *w, json_t *args)
{
	const struct plan_case *c = plan_case_of(w);

	plan.again = false;
	if (!c->lazy)
		return;
	tp_json_set_str(args, "mode", "lazy");
	opens = c->fallback != PLAN_NO_RIGHT;
	w->whole_after = c->whole > 0 ? c->whole : 1;
	w->pages_how = c->fallback == PLAN_SERVER_REFUSES ? MODEL_PAGES_REFUSE :
		       c->fallback == PLAN_SERVER_ENDS ? MODEL_PAGES_END : MODEL_PAGES_SERVE;
	if (c->fallback == PLAN_HUGE_PAGES) {
		json_decref(w->answer[QMP_HUMAN_MONITOR]);
		w->answer[QMP_HUMAN_MONITOR] = json_string("  Block Name    PSize  Offset  Used  Total\r\n"
			"    pc.ram    2 MiB  0x0000000000000000 0x0000000000010000 0x0000000000010000 \r\n");
	}
}

bool plan_lazy_refuses(const struct op_model_world *w, enum qmp_cmd cmd, const json_t *args, struct tp_error *err)
{
	const json_t *cap = json_array_get(json_object_get(args, "capabilities"), 0);

	if (plan_case_of(w)->fallback != PLAN_CAPABILITY_REFUSED || cmd != QMP_MIGRATE_SET_CAPABILITIES ||
	    json_array_size(json_object_get(args, "capabilities")) != 1 || !tp_json_bool(cap, "state", false))
		return false;
	tp_fail_class(err, TP_EQMP, "QemuError", "Postcopy is not supported");
	return true;
}

/* --- the VM's server --- */

static void server_again(struct op_model_world *w, unsigned gen)
{
	(void)gen;
	plan.again = false;
	if (!w->qemu || !plan.vm->prefetch || w->mover_alive)
		return;
	op_model_pages_again(w);
	w->mover_given = true;
}

void plan_lazy_look(struct op_model_world *w)
{
	if (!plan.vm->prefetch)
		return;
	prefetch_recover_stop(plan.vm->prefetch);
	if (!w->qemu)
		return;
	if (w->mover_alive) {
		w->mover_given = true;
		w->mover_orphan = false;
	} else if (strcmp(w->migration, "postcopy-paused") == 0 && !plan.again) {
		plan.again = true;
		op_model_after(w, AGAIN_AFTER, server_again, 0);
	}
}

void plan_lazy_given(struct op_model_world *w)
{
	struct prefetch *p = calloc(1, sizeof(*p));

	if (!p || plan.vm->prefetch)
		op_model_fail(w, "a page server is given to a VM that has one");
	p->vm = plan.vm;
	prefetch_recover_init(p);
	plan.vm->prefetch = p;
	plan_lazy_look(w);
}

void plan_lazy_served(struct op_model_world *w, const char *name)
{
	if (strcmp(name, "end") == 0)
		plan_lazy_look(w);
}

/* A process that was killed a moment ago. */
static void reap(struct op_model_world *w)
{
	const struct timespec pause = { .tv_nsec = 500000 };

	for (int i = 0; i < REAP_TRIES && w->mover_alive; i++) {
		plan_look(w);
		nanosleep(&pause, NULL);
	}
}

/* As vm_ended() and process_gone() in the engine. */
void plan_lazy_gone(struct op_model_world *w)
{
	bool had = plan.vm->prefetch, recorded = json_object_get(plan.vm->rest, "prefetch");

	prefetch_over(plan.vm);
	plan.orphan_killed |= recorded;
	if (had)
		op_model_mover_dies(w, 9, "killed with its QEMU");
	else if (recorded && op_model_pages_is(w))
		reap(w);
}

/* Another daemon: its VMs have no prefetch until it takes one up. */
void plan_lazy_restarts(void)
{
	prefetch_forget(plan.vm);
	plan.again = false;
}

/* --- what must hold --- */

void plan_lazy_effect(struct op_model_world *w, const struct plan_images *images)
{
	bool served = strcmp(w->pages, "loading") == 0 || strcmp(w->pages, "serving") == 0;

	if (w->qemu && plan_case_of(w)->old && served && images->offered)
		op_model_fail(w, "QEMU has the package, and the image is offered");
	if (json_object_get(plan.vm->rest, "prefetch") && w->qemu && !images->whole)
		op_model_fail(w, "the image is gone, and QEMU wants pages of it");
}

static void check_mode(struct op_model_world *w)
{
	tp_autojson json_t *record = op_record(w->op);
	const json_t *warnings = json_object_get(record, "warnings");
	const char *mode = tp_json_str(json_object_get(record, "result"), "mode");
	bool said = false;
	json_t *warning;
	size_t i;

	json_array_foreach(warnings, i, warning)
		said = said || strstr(json_string_value(warning), "the memory is loaded before the guest runs: ");
	if (!mode || (plan_case_of(w)->fallback && (strcmp(mode, "eager") != 0 || !said)))
		op_model_fail(w, "fallen back, the mode is %s, %s", mode ? mode : "(none)", said ? "warned" : "not warned");
	if (plan_is_lazy(plan_case_of(w)) && w->script.fault == MODEL_NONE && (strcmp(mode, "lazy") != 0 || said))
		op_model_fail(w, "restored lazily, the mode is %s", mode);
}

/* Past the commit the VM gets another server, and the restore goes on. */
static void check_server_end(struct op_model_world *w)
{
	enum op_model_fault fault = w->script.fault;

	if (plan_is_lazy(plan_case_of(w)) && w->was_stuck && w->script.undo_fault == MODEL_NONE &&
	    (fault == MODEL_MOVER_LOST || fault == MODEL_MOVER_LOST_AFTER || fault == MODEL_MOVER_ERROR))
		op_model_fail(w, "the restore was stuck, as its page server had ended");
}

/* The prefetch goes on, or is over. */
void plan_lazy_end(struct op_model_world *w)
{
	struct vm *vm = plan.vm;

	if (plan.really && !w->qemu)
		reap(w);
	if (vm->prefetch && w->qemu && strcmp(w->migration, "completed") == 0)
		prefetch_completed(vm->prefetch);
	plan_pump();
	check_server_end(w);
	if (w->op && op_status(w->op) == OP_SUCCEEDED && plan_case_of(w)->lazy && w->qemu && !w->recovered)
		check_mode(w);
	if ((vm->prefetch != NULL) != (json_object_get(vm->rest, "prefetch") != NULL))
		op_model_fail(w, "%s a prefetch, the rest %s", vm->prefetch ? "there is" : "there is not",
			      vm->prefetch ? "does not know" : "knows of one");
	if (w->mover_alive && !(vm->prefetch && w->qemu))
		op_model_fail(w, "a mover is left (%s), without %s", w->pages, w->qemu ? "a prefetch" : "its QEMU");
	if (vm->prefetch && !w->mover_alive && !plan.again)
		op_model_fail(w, "QEMU waits for a page server, and none comes");
	if (vm->prefetch && !plan_images(true).whole)
		op_model_fail(w, "the image is gone, and QEMU wants pages of it");
}
