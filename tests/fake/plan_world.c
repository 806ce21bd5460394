/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * plan_world.c - The model's world around a real engine; see plan_world.h
 *
 * Theory of operation. The engine's part in what the model does by itself is played here: a
 * launched QEMU is a struct vm_qemu of ours, its end sets the durable rest as vm_runtime.c does,
 * a daemon that comes back reads state.json and does what recover.c does before it resumes the
 * operation. A mover that outlives its daemon is a real process, because the engine ends it by pid.
 */
#include "fake/plan_world_priv.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_proc.h"
#include "base/tp_time.h"
#include "engine/left_behind.h"
#include "engine/op_journal.h"
#include "engine/prefetch.h"
#include "engine/state_dir.h"
#include "engine/vm_image.h"
#include "engine/vm_runtime.h"
#include "storage/fingerprint.h"
#include "storage/image_read.h"

struct plan_case *plan_case_of(const struct op_model_world *w)
{
	return (struct plan_case *)(uintptr_t)w->c;
}

bool plan_is(const struct op_model_world *w, const char *kind)
{
	return strcmp(w->c->plan->kind, kind) == 0;
}

struct pool *plan_pool(void)
{
	return engine_pool_storage(pools_find(plan.t->pools, PLAN_POOL));
}

struct pool *plan_other(void)
{
	return engine_pool_storage(pools_find(plan.t->pools, PLAN_OTHER));
}

void plan_pump(void)
{
	struct io_worker *pool = engine_pool_worker(pools_find(plan.t->pools, PLAN_POOL));
	struct io_worker *other = engine_pool_worker(pools_find(plan.t->pools, PLAN_OTHER));

	if (plan.vm && op_model_current())
		plan_lazy_look(op_model_current());
	while (io_worker_pending(pool) || io_worker_pending(other) || io_worker_pending(plan.t->worker))
		ev_run(plan.loop, EVRUN_ONCE);
}

static bool has(DIR *dir, const char *id, const char *file)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", id, file);
	return faccessat(dirfd(dir), path, F_OK, 0) == 0;
}

struct plan_images plan_images_in(const char *pool)
{
	struct plan_images found = { 0 };
	char path[160];
	struct dirent *de;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%s/%s", plan.dir, strcmp(pool, PLAN_POOL) == 0 ? "pool" : pool, PLAN_VM);
	dir = opendir(path);
	while (dir && (de = readdir(dir))) {
		bool whole;

		if (de->d_name[0] == '.')
			continue;
		found.folders++;
		snprintf(found.id, sizeof(found.id), "%.*s", IMAGE_ID_MAX, de->d_name);
		whole = has(dir, found.id, "manifest.json");
		found.whole += whole;
		found.offered += whole && !has(dir, found.id, "consumed.json") && !has(dir, found.id, "moving.json") &&
				 !left_behind(plan.t, pool, found.id);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Only jobs change the pool: between two effects that are none it is as it was. */
struct plan_images plan_images(bool anew)
{
	if (anew || plan.changing)
		plan.images = plan_images_in(PLAN_POOL);
	return plan.images;
}

size_t plan_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* --- the disk and the mover that stands for itself --- */

static void touch_disk(void)
{
	int fd = open(plan.disk, O_WRONLY | O_APPEND | O_CLOEXEC);

	assert_true(fd >= 0 && write(fd, "x", 1) == 1);
	close(fd);
}

/* Spawned, as a fork of this program with its sanitizer takes 10 ms. What is inherited is CLOEXEC. */
void plan_orphan_start(void)
{
	char *argv[] = { (char *)(uintptr_t)"sleep", (char *)(uintptr_t)"600", NULL };

	/* One that is about to end is not the next run's. */
	if (plan.orphan > 0 && plan.orphan_killed) {
		kill(plan.orphan, SIGKILL);
		waitpid(plan.orphan, NULL, 0);
		plan.orphan = 0;
	}
	plan.orphan_killed = false;
	if (plan.orphan <= 0)
		assert_int_equal(posix_spawnp(&plan.orphan, "sleep", NULL, NULL, argv, environ), 0);
}

static bool orphan_ended(void)
{
	if (plan.orphan <= 0 || waitpid(plan.orphan, NULL, WNOHANG) != plan.orphan)
		return false;
	plan.orphan = 0;
	return true;
}

void plan_look(struct op_model_world *w)
{
	bool active = w->qemu && w->nodes_active;
	bool runs = w->qemu && strcmp(w->run_state, "running") == 0;

	if ((active && !plan.active) || (runs && (!plan.runs || plan.changing)))
		touch_disk();
	plan.active = active;
	plan.runs = runs;
	if (orphan_ended())
		op_model_mover_dies(w, 9, "killed");
	plan_lazy_look(w);
}

/* --- the engine's QEMU --- */

void plan_qemu_drop(void)
{
	free(plan.vm->qemu);
	plan.vm->qemu = NULL;
}

void plan_qemu_make(const struct op_model_world *w)
{
	bool old = plan_case_of(w)->old;
	struct vm_qemu *q = calloc(1, sizeof(*q));

	assert_non_null(q);
	q->vm = plan.vm;
	q->pidfd = -1;
	q->ready = true;
	q->major = old ? 7 : 10;
	q->minor = old ? 2 : 0;
	q->agent = AGENT_CONNECTED;
	q->features = (struct qmp_features){ .return_path = true, .exit_on_error = !old,
					     .set_active = !old, .late_block_activate = true };
	snprintf(q->status, sizeof(q->status), "%s", w->run_state);
	plan.vm->qemu = q;
}

void plan_state_write(void)
{
	struct tp_error err = TP_ERROR_INIT;

	if (!state_vm_write(plan.vm->dirfd, "state.json", plan.vm->rest, &err))
		fail_msg("state.json: %s", err.text);
}

/* As vm_ended() in vm_runtime.c. */
static void gone(struct op_model_world *w, const char *why)
{
	struct vm *vm = plan.vm;
	bool quit = strstr(why, "quit") != NULL, dying = vm->qemu && vm->qemu->dying;
	const char *rest = "crashed", *reason = "signal";

	plan.changing = true;
	plan_look(w);
	if (dying || (quit && plan.quit_sent)) {
		rest = "shutoff";
		reason = "quit";
	} else if (quit) {
		rest = "shutoff";
		reason = "guest-shutdown";
	}
	plan_qemu_drop();
	vm_rest_set(vm, "qemu", NULL);
	plan_lazy_gone(w);
	vm_rest_set(vm, "last-exit", json_pack("{s:s}", "reason", reason));
	if (strcmp(tp_json_str(vm->rest, "rest"), "running") == 0 && !vm_image_give_back(vm, true))
		vm_rest_text(vm, rest, reason);
	plan_pump();
	plan_state_write();
}

static bool vm_acts(struct op_model_world *w, const char *action, const json_t *args,
		    json_t **data, struct tp_error *err)
{
	bool incoming = tp_json_bool(args, "incoming", false);

	plan_look(w);
	if (strcmp(action, "kill") == 0 && plan.vm->qemu)
		plan.vm->qemu->dying = true;
	if (strcmp(action, "launch") != 0)
		return false;
	if (w->qemu || plan.vm->qemu)
		return tp_fail_class(err, TP_ESTATE, "InvalidState", "VM vm1 has a QEMU already") || true;
	w->qemu = true;
	w->nodes_active = !incoming;
	w->migration[0] = '\0';
	strcpy(w->run_state, incoming ? "inmigrate" : "prelaunch");
	*data = json_deep_copy(w->launch_data);
	vm_rest_set(plan.vm, "qemu", json_deep_copy(w->launch_data));
	plan_state_write();
	plan_qemu_make(w);
	return true;
}

static bool qemu_acts(struct op_model_world *w, enum qmp_cmd cmd, const json_t *args, json_t **data,
		      struct tp_error *err)
{
	(void)data;
	plan_look(w);
	plan.quit_sent = plan.quit_sent || cmd == QMP_QUIT;
	return plan_lazy_refuses(w, cmd, args, err);
}

/* --- the mover's file --- */

static void mover_started(struct op_model_world *w, const int *fds, size_t nfds)
{
	(void)w;
	tp_close(&plan.image_fd);
	if (nfds == 2)
		plan.image_fd = fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
}

void plan_mover_seals(struct op_model_world *w)
{
	struct stat st;
	off_t at = 0;

	(void)w;
	assert_true(plan.image_fd >= 0 && fstat(plan.image.fd, &st) == 0);
	while (at < st.st_size) {
		char buf[16384];
		ssize_t n = pread(plan.image.fd, buf, sizeof(buf), at);

		assert_true(n > 0 && pwrite(plan.image_fd, buf, (size_t)n, at) == n);
		at += n;
	}
	assert_int_equal(ftruncate(plan.image_fd, st.st_size), 0);
}

/* --- a daemon that comes back --- */

/* As process_gone() in recover.c. */
static void process_gone(struct op_model_world *w)
{
	struct vm *vm = plan.vm;
	bool reboot = w->script.outage == MODEL_POWER_CUT;

	plan_lazy_gone(w);
	if (plan_is(w, "restore") && w->op)
		return;			/* its own end decides what the VM is */
	if (strcmp(tp_json_str(vm->rest, "rest"), "running") == 0 && !vm_image_give_back(vm, !reboot))
		vm_rest_text(vm, reboot ? "shutoff" : "crashed", reboot ? "host-reboot" : "exited");
	vm_rest_set(vm, "qemu", NULL);
	plan_pump();
	plan_state_write();
}

static bool recorded(const struct op_model_script *s)
{
	return (s->fault == MODEL_CRASH_ENDED && (s->at & 1)) ||
	       (s->undo_fault == MODEL_CRASH_ENDED && (s->undo_at & 1));
}

/* The engine's own journal, recover.c and ports; what the model has is emptied. */
static void recover_really(struct op_model_world *w)
{
	tp_autojson json_t *records = NULL;
	struct tp_error err = TP_ERROR_INIT;
	json_t *record;
	int fd = op_journal_begin(plan.vm->dirfd, &err);
	size_t i;

	assert_true(fd >= 0);
	json_array_foreach(w->log, i, record)
		assert_true(op_journal_append(fd, tp_json_str(record, "record"), record, &err));
	close(fd);
	plan_qemu_drop();
	alarm(60);
	plan_engine_again();
	while (ops_running(plan.t))
		ev_run(plan.loop, EVRUN_ONCE);
	alarm(0);
	records = ops_query(plan.t, NULL);
	if (json_array_size(w->log) > 0)
		plan.record = json_incref(json_array_get(records, 0));
	json_array_clear(w->log);
	plan_pump();
}

/* As recover_vm(). */
static void resumes(struct op_model_world *w)
{
	if (!w->qemu)
		process_gone(w);
	else if (!w->op || op_committed(w->op))
		prefetch_adopt(plan.vm);
	plan_lazy_look(w);
}

static void restarts(struct op_model_world *w)
{
	struct tp_error err = TP_ERROR_INIT;
	struct vm *vm = plan.vm;

	plan_pump();
	plan.changing = true;
	plan_look(w);
	if (recorded(&w->script))
		plan_state_write();
	if (plan.really) {
		recover_really(w);
		return;
	}
	plan_lazy_restarts();
	json_decref(vm->rest);
	vm->rest = state_vm_read(vm->dirfd, "state.json", &err);
	assert_non_null(vm->rest);
	pools_recheck(plan.t->pools);
	plan_pump();
	plan_qemu_drop();
	if (w->qemu)
		plan_qemu_make(w);
	if (json_array_size(w->log) == 0)
		resumes(w);
}

/* --- one run --- */

static void teardown(struct op_model_world *w)
{
	(void)w;
	prefetch_forget(plan.vm);
	tp_close(&plan.image_fd);
	json_decref(plan.caps);
	json_decref(plan.params);
	json_decref(plan.record);
	plan.caps = plan.params = plan.record = NULL;
}

static void effect(struct op_model_world *w, const char *kind, const char *name)
{
	const char *step = op_step_name(w->op);

	plan.changing = plan.changing || strcmp(kind, "io") == 0;
	plan_look(w);
	if (step && strcmp(step, plan.step) != 0 && plan.nmarks < PLAN_MARKS) {
		plan.marks[plan.nmarks++] = w->neffects - 1;
		snprintf(plan.step, sizeof(plan.step), "%s", step);
	}
	plan_check_effect(w, kind, name);
	/* The job runs before the next effect. */
	plan.changing = strcmp(kind, "io") == 0;
}

/* --- walks --- */

static void fill_case(struct plan_case *c)
{
	c->model.plan = ops_plan(c->kind);
	assert_non_null(c->model.plan);
	c->model.setup = plan_setup;
	c->model.effect = effect;
	c->model.check = plan_check_end;
	c->model.teardown = teardown;
	c->model.qmp = qemu_acts;
	c->model.vm = vm_acts;
	c->model.mover = mover_started;
	c->model.seals = plan_mover_seals;
	c->model.given = plan_lazy_given;
	c->model.served = plan_lazy_served;
	c->model.gone = gone;
	c->model.restarts = restarts;
	c->model.resumes = resumes;
}

static unsigned run_plain(struct plan_case *c, unsigned *marks, unsigned *nmarks,
			  struct op_model_count *count)
{
	struct op_model_script script = { .fault = MODEL_NONE };
	unsigned effects = 0;

	fill_case(c);
	op_model_run(&c->model, &script, count);
	memcpy(marks, plan.marks, sizeof(plan.marks));
	*nmarks = plan.nmarks;
	script.fault = MODEL_CRASH_AFTER;
	while (script.at = effects, op_model_run(&c->model, &script, count))
		effects++;
	assert_true(effects > 0);
	return effects;
}

static void walk(struct plan_case *c, bool undos, struct op_model_count *count)
{
	unsigned marks[PLAN_MARKS], nmarks, effects = run_plain(c, marks, &nmarks, count);

	for (int fault = MODEL_NONE + 1; fault < MODEL_FAULTS; fault++) {
		struct op_model_script s = { .fault = (enum op_model_fault)fault };

		for (s.at = 0; s.at < effects; s.at++)
			op_model_run(&c->model, &s, count);
		for (unsigned i = 0; undos && i < nmarks; i++) {
			s = (struct op_model_script){ .fault = MODEL_CANCEL, .at = marks[i],
						      .undo_fault = (enum op_model_fault)fault };
			while (op_model_run(&c->model, &s, count))
				s.undo_at++;
		}
	}
}

/* The daemon ends after the operation, which was without a fault or cancelled at a step. */
static void recover_ended(struct plan_case *c, struct op_model_script s, const unsigned *marks,
			  unsigned nmarks, struct op_model_count *count)
{
	for (unsigned written = 0; written < 2; written++) {
		s.fault = MODEL_CRASH_ENDED;
		s.undo_fault = MODEL_NONE;
		s.at = written;
		op_model_run(&c->model, &s, count);
		s.fault = MODEL_CANCEL;
		s.undo_fault = MODEL_CRASH_ENDED;
		s.undo_at = written;
		for (unsigned i = 0; i < nmarks; i++) {
			s.at = marks[i];
			op_model_run(&c->model, &s, count);
		}
	}
}

static void recover(struct plan_case *c, bool twice, struct op_model_count *count)
{
	unsigned marks[PLAN_MARKS], nmarks, effects = run_plain(c, marks, &nmarks, count);

	for (int outage = 0; outage < MODEL_OUTAGES; outage++) {
		struct op_model_script s = { .outage = (enum op_model_outage)outage };

		for (s.at = 0; s.at < effects; s.at++) {
			s.fault = MODEL_CRASH_BEFORE;
			op_model_run(&c->model, &s, count);
			s.fault = MODEL_CRASH_AFTER;
			op_model_run(&c->model, &s, count);
		}
		recover_ended(c, s, marks, nmarks, count);
		s.fault = MODEL_CRASH_AFTER;
		for (unsigned i = 0; twice && i < nmarks; i++) {
			s.at = marks[i];
			s.again = 1;
			while (op_model_run(&c->model, &s, count))
				s.again++;
			s.again = 0;
		}
	}
}

/* A sanitizer takes many times as long: fewer cases tell it all about memory. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = true, CASES_MAX = 3 };
#else
enum { SANITIZED = false, CASES_MAX = 100 };
#endif

void plan_walk(struct plan_case *cases, size_t n, size_t full)
{
	struct op_model_count count = { 0 };

	for (size_t i = 0; i < n && i < CASES_MAX; i++)
		walk(&cases[i], i < (SANITIZED ? 1 : full), &count);
	print_message("%u runs: %u succeeded, %u failed, %u cancelled, %u of them stuck first\n", count.runs,
		      count.succeeded, count.failed, count.cancelled, count.stuck_first);
	assert_true(count.succeeded > 50 && count.failed > 50 && count.cancelled > 10);
}

void plan_recover(struct plan_case *cases, size_t n, size_t full)
{
	struct op_model_count count = { 0 };

	for (size_t i = 0; i < n && i < CASES_MAX; i++)
		recover(&cases[i], i < full && !SANITIZED, &count);
	print_message("%u runs: %u succeeded, %u failed, %u cancelled\n", count.runs, count.succeeded,
		      count.failed, count.cancelled);
	assert_true(count.runs > 50 && count.succeeded > 5 && count.failed > 10);
}

void plan_recover_really(struct plan_case *c, struct op_model_count *count)
{
	struct op_model_script s = { .fault = MODEL_CRASH_BEFORE };

	fill_case(c);
	plan.really = true;
	for (s.outage = MODEL_QEMU_GONE; s.outage < MODEL_OUTAGES; s.outage++)
		for (s.at = 0; op_model_run(&c->model, &s, count); s.at++)
			;
	plan.really = false;
}
