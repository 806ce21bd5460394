/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* plan_setup.c - The engine, the VM and the world's first state for walks of real plans */
#include "fake/plan_world_priv.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_json.h"
#include "base/tp_proc.h"
#include "base/tp_time.h"
#include "engine/left_behind.h"
#include "engine/state_dir.h"
#include "fake/fake_pool.h"
#include "storage/fingerprint.h"
#include "storage/image_read.h"

#define DISK_BYTES 4096
#define RAM_BYTES 65536

struct plan_world plan;

/* --- setting a run up --- */

static json_t *disks(const struct plan_case *c)
{
	if (c->diskless)
		return json_object();
	return json_pack("{s:{s:s, s:s, s:b}}", "d0", "file", plan.disk, "format", "raw", "read-only", 0);
}

static json_t *fingerprints(const struct plan_case *c)
{
	return c->diskless ? json_object() :
	       json_pack("{s:o}", "d0", fingerprint_take(plan.disk, "raw", NULL));
}

static void set_answers(struct op_model_world *w, const struct plan_case *c)
{
	w->answer[QMP_QUERY_BLOCK] = c->diskless ? json_array() :
		json_pack("[{s:s, s:{s:s, s:s, s:s, s:b}}]", "device", "", "inserted", "node-name", "d0",
			  "file", plan.disk, "drv", "raw", "ro", 0);
	w->answer[QMP_HUMAN_MONITOR] = json_string("  Block Name    PSize  Offset  Used  Total\r\n"
		"    pc.ram    4 KiB  0x0000000000000000 0x0000000000010000 0x0000000000010000 \r\n");
	w->answer[QMP_QUERY_VM_GENERATION_ID] = json_pack("{s:s}", "guid",
							  "00112233-4455-6677-8899-aabbccddeeff");
	w->answer[QMP_QOM_LIST] = json_pack("[{s:s, s:s}]", "name", "net0", "type", "child<virtio-net-pci>");
	w->answer[QMP_QOM_GET] = json_string("pc-q35-10.0-machine");
	w->answer[QMP_QUERY_CPU_MODEL_EXPANSION] = json_pack("{s:{s:s, s:{s:b}}}", "model", "name", "qemu64",
							     "props", "sse", 1);
	w->qga_answer[QGA_GET_TIME] = json_integer(1700000000000000000);
	json_decref(w->sealed_data);
	w->sealed_data = json_deep_copy(plan.sealed);
	if (w->script.outage == MODEL_POWER_CUT)
		tp_json_set_str(w->launch_data, "boot", "another");
	else
		tp_json_set_str(w->launch_data, "boot", tp_boot_id());
}

static json_t *launched(const struct plan_case *c)
{
	return json_pack("{s:s, s:[s, s], s:o, s:s, s:[s], s:i}", "binary", "/usr/bin/qemu-system-x86_64", "args",
			 "-cpu", "qemu64", "disks", disks(c), "machine", "pc-q35-10.0", "devices", "net0",
			 "generation", 1);
}

static void clean_pool(const char *name, struct pool *pool)
{
	struct plan_images left = plan_images_in(name);

	while (left.folders) {
		assert_true(pool_image_remove(pool, PLAN_VM, left.id, NULL));
		pools_image_drop(plan.t->pools, name, left.id);
		left_behind_removed(plan.t, name, left.id);
		left = plan_images_in(name);
	}
}

static void clean(void)
{
	clean_pool(PLAN_POOL, plan_pool());
	clean_pool(PLAN_OTHER, plan_other());
	plan_images(true);
	plan_qemu_drop();
	json_decref(plan.vm->rest);
	tp_error_clear(&plan.vm->preflight);
	assert_int_equal(truncate(plan.disk, DISK_BYTES), 0);
	plan.quit_sent = plan.runs = false;
	plan.changing = true;
	plan.step[0] = '\0';
	plan.nmarks = 0;
}

/* A working set; with more it has a page of a RAM block that no image has. */
static json_t *pages_set(unsigned pages, bool more)
{
	json_t *set = json_pack("{s:i, s:[s, s], s:[[i, i, i]]}", "page-size", 4096, "blocks", "gone", "pc.ram", "ranges",
				1, 0, pages);

	if (more)
		json_array_append_new(json_object_get(set, "ranges"), json_pack("[i, i, i]", 0, 0, 1));
	return set;
}

static void write_working_set(void)
{
	tp_autojson json_t *set = pages_set(PLAN_PAGES_OWN, true);

	assert_true(state_vm_write(plan.vm->dirfd, "working-set.json", set, NULL));
}

static void put_image(const struct plan_case *c, const char *id)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *m = json_deep_copy(plan.sealed);

	json_object_update_new(m, json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "format", 1,
		"image", id, "vm", PLAN_VM, "uid", plan.vm->uid, "kind", "hibernation", "created",
		"2024-01-01T00:00:00Z", "layout", "stream", "file", "memory.zst", "run-state",
		c->paused ? "paused" : "running"));
	json_object_update_new(m, json_pack("{s:{s:{s:i, s:i}}, s:{s:s, s:{s:b}}, s:{s:i, s:o}, s:o, s:o, s:b, s:b}",
		"qemu", "version", "major", c->old ? 7 : 10, "minor", c->old ? 2 : 0, "cpu", "model", "qemu64",
		"props", "sse", 1, "ram", "bytes", RAM_BYTES, "blocks", json_incref(json_object_get(m, "blocks")),
		"launch", launched(c), "disks", fingerprints(c), "agent", 1, "keep", c->keep));
	tp_json_set(m, "working-set", pages_set(PLAN_PAGES_SAVED, false));
	tp_json_set_str(m, "machine", "pc-q35-10.0");
	plan.image_fd = fake_pool_image(plan_pool(), PLAN_VM, id, "none", 0, &err);
	if (plan.image_fd < 0)
		fail_msg("%s", err.text);
	plan_mover_seals(NULL);
	tp_close(&plan.image_fd);
	if (!pool_manifest_write(plan_pool(), PLAN_VM, id, m, &err))
		fail_msg("%s", err.text);
	pools_image_sealed(plan.t->pools, PLAN_POOL, PLAN_VM, id, m);
	json_decref(m);
}

static void put_mark(const char *id)
{
	tp_autojson json_t *why = json_pack("{s:s, s:s, s:b}", "operation", "op-0", "at", "2024-01-01T00:00:00Z", "ran",
					    1);

	assert_true(pool_image_consumed(plan_pool(), PLAN_VM, id, why, NULL));
	pools_image_state(plan.t->pools, PLAN_POOL, id, "consumed");
}

static void set_world(struct op_model_world *w, const struct plan_case *c)
{
	bool move = plan_is(w, "image-move"), restore = plan_is(w, "restore") || (move && !c->keep);
	bool start = plan_is(w, "start");
	char id[IMAGE_ID_MAX + 1];

	w->qemu72 = c->old;
	w->guest_obeys = !c->ignores;
	w->hide_orphan = true;
	if (c->hasty)
		w->gives_up = 0.00005;
	if (!restore && !start) {
		strcpy(w->run_state, c->paused ? "paused" : "running");
		plan_qemu_make(w);
		plan.vm->rest = json_pack("{s:s, s:s, s:b, s:o, s:O}", "rest", "running", "reason", "ok",
					  "guest-ran", 1, "launched", launched(c), "qemu", w->launch_data);
		if (move) {
			pool_image_id(PLAN_VM, tp_now_us(), plan.moved);
			put_image(c, plan.moved);
			put_mark(plan.moved);
		}
		return;
	}
	w->qemu = w->nodes_active = false;
	w->run_state[0] = '\0';
	plan.vm->rest = json_pack("{s:s, s:s}", "rest", "shutoff", "reason", "powerdown");
	if (!restore)
		return;
	pool_image_id(PLAN_VM, tp_now_us(), id);
	vm_rest_text(plan.vm, "hibernated", "save");
	vm_rest_set(plan.vm, "image", json_pack("{s:s, s:s}", "id", id, "pool", PLAN_POOL));
	put_image(c, id);
	strcpy(plan.moved, id);
}

static json_t *arguments(const struct op_model_world *w, const struct plan_case *c)
{
	json_t *args = json_pack("{s:s}", "name", PLAN_VM);

	if (plan_is(w, "image-move"))
		json_object_update_new(args, json_pack("{s:s, s:s}", "image", plan.moved, "pool", PLAN_OTHER));
	if (plan_is(w, "hibernate"))
		tp_json_set_str(args, "reserve", "none");
	if (plan_is(w, "restore"))
		tp_json_set_str(args, "clock", "host");
	if (plan_is(w, "restore") && c->stay)
		tp_json_set(args, "paused", json_true());
	if (plan_is(w, "start") && c->paused)
		tp_json_set(args, "paused", json_true());
	if (plan_is(w, "powerdown") && c->quits)
		json_object_update_new(args, json_pack("{s:s, s:i}", "on-timeout", "quit", "timeout", 12));
	return args;
}

static void write_spec(void)
{
	tp_autojson json_t *doc = json_pack("{s:s, s:s, s:i, s:O}", "uid", plan.vm->uid, "source", "api",
					    "generation", 1, "spec", plan.vm->spec);

	assert_true(state_vm_write(plan.vm->dirfd, "spec.json", doc, NULL));
}

void plan_setup(struct op_model_world *w, struct op_options *o)
{
	struct plan_case *c = plan_case_of(w);
	size_t n;

	plan_pump();
	n = plan_fds();
	if (plan.nfds && n != plan.nfds)
		op_model_fail(w, "the run before this one left %zd descriptors", (ssize_t)n - (ssize_t)plan.nfds);
	plan.nfds = n;
	clean();
	json_decref(plan.vm->spec);
	plan.vm->spec = json_pack("{s:{s:s, s:[s, s], s:o}, s:{s:b}}", "launch", "binary",
				  "/usr/bin/qemu-system-x86_64", "args", "-cpu", "qemu64", "disks", disks(c),
				  "hibernate", "keep", c->keep);
	if (plan.really)
		write_spec();
	set_answers(w, c);
	plan_orphan_start();
	w->mover_pid = plan.orphan;
	set_world(w, c);
	plan_state_write();
	write_working_set();
	plan.active = w->nodes_active;
	plan.caps = json_deep_copy(w->caps);
	plan.params = json_deep_copy(w->params);
	plan.run = (struct op_run){ .t = plan.t, .vm = plan.vm, .plan = w->c->plan };
	w->owner = &plan.run;
	o->arguments = arguments(w, c);
	plan_lazy_setup(w, o->arguments);
	o->was = ops_was(plan.vm);
	o->vm = PLAN_VM;
}

/* --- the program's engine --- */

static void make_template(void)
{
	struct tp_error err = TP_ERROR_INIT;
	const struct image_info *info;
	struct image *img;
	char footer[20];

	fake_image_make(&plan.image, 1, 4096);
	img = image_open(plan.image.fd, &err);
	if (!img)
		fail_msg("%s", err.text);
	info = image_info(img);
	snprintf(footer, sizeof(footer), "%016llx", (unsigned long long)info->footer_checksum);
	plan.sealed = json_pack("{s:I, s:I, s:s, s:s, s:s, s:[{s:s, s:i}]}", "bytes", (json_int_t)info->file_bytes,
				"raw-bytes", (json_int_t)info->raw_bytes, "footer", footer, "uuid",
				"01020300000000000000000000000000", "machine", "pc-q35-10.0", "blocks", "id",
				"pc.ram", "bytes", RAM_BYTES);
	assert_non_null(plan.sealed);
	image_close(img);
}

static void make_engine(void)
{
	char state[96], run[96], pool[96], other[96], text[TORPOR_ERROR_SIZE];
	struct torpor_pool pools[] = { { .name = PLAN_POOL, .path = pool }, { .name = PLAN_OTHER, .path = other } };
	struct torpor_options o = { .size = sizeof(o), .state_dir = state, .runtime_dir = run,
				    .mover_path = "/bin/true", .pools = pools, .npools = 2 };

	snprintf(state, sizeof(state), "%s/state", plan.dir);
	snprintf(run, sizeof(run), "%s/run", plan.dir);
	snprintf(pool, sizeof(pool), "%s/pool", plan.dir);
	snprintf(other, sizeof(other), "%s/" PLAN_OTHER, plan.dir);
	plan.t = torpor_new(plan.loop, &o, text);
	if (!plan.t)
		fail_msg("%s", text);
}

static void make_vm(void)
{
	plan.vm = vm_create(plan.t, PLAN_VM, NULL, NULL);
	assert_non_null(plan.vm);
	/* As a launch makes it. */
	assert_true(mkdir(plan.vm->run_dir, 0700) == 0 || errno == EEXIST);
	plan.vm->generation = 1;
	plan.vm->spec = json_pack("{s:{s:s, s:[]}}", "launch", "binary", "qemu", "args");
	write_spec();
}

void plan_engine_again(void)
{
	torpor_free(plan.t);
	make_engine();
	plan.vm = vm_find(plan.t, PLAN_VM);
	assert_non_null(plan.vm);
}

int plan_world_open(void **state)
{
	int fd;

	(void)state;
	plan.image_fd = -1;
	snprintf(plan.dir, sizeof(plan.dir), "%s/torpor-walk-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(plan.dir));
	snprintf(plan.disk, sizeof(plan.disk), "%s/disk.raw", plan.dir);
	fd = open(plan.disk, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && ftruncate(fd, DISK_BYTES) == 0);
	close(fd);
	make_template();
	plan.loop = ev_loop_new(0);
	make_engine();
	make_vm();
	return 0;
}

static void remove_all(const char *path)
{
	char *argv[] = { (char *)(uintptr_t)"rm", (char *)(uintptr_t)"-rf", (char *)(uintptr_t)path, NULL };
	pid_t pid = fork();

	if (pid == 0) {
		execvp("rm", argv);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

int plan_world_close(void **state)
{
	(void)state;
	plan_pump();
	if (plan.nfds)
		assert_int_equal(plan_fds(), plan.nfds);
	plan_qemu_drop();
	if (plan.orphan > 0) {
		kill(plan.orphan, SIGKILL);
		waitpid(plan.orphan, NULL, 0);
	}
	torpor_free(plan.t);
	ev_loop_destroy(plan.loop);
	fake_image_free(&plan.image);
	json_decref(plan.sealed);
	remove_all(plan.dir);
	return 0;
}
