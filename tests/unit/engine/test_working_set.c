/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_working_set.c - A VM's working set in its folder: replaced, forgotten, damaged */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/steps.h"
#include "engine/working_set.h"

static struct world {
	char dir[64];
	struct ev_loop *loop;
	struct torpor *t;
	struct vm *vm;
} w;

static int make_world(void **state)
{
	char state_dir[96], run[96], text[TORPOR_ERROR_SIZE];
	struct torpor_options o = { .size = sizeof(o), .state_dir = state_dir, .runtime_dir = run,
				    .mover_path = "/bin/true" };

	(void)state;
	strcpy(w.dir, "/tmp/torpor-test-XXXXXX");
	assert_non_null(mkdtemp(w.dir));
	snprintf(state_dir, sizeof(state_dir), "%s/state", w.dir);
	snprintf(run, sizeof(run), "%s/run", w.dir);
	w.loop = ev_loop_new(0);
	w.t = torpor_new(w.loop, &o, text);
	if (!w.t)
		fail_msg("%s", text);
	w.vm = vm_create(w.t, "vm1", NULL, NULL);
	assert_non_null(w.vm);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int drop_world(void **state)
{
	(void)state;
	torpor_free(w.t);
	ev_loop_destroy(w.loop);
	return nftw(w.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static json_t *set_of(json_int_t pages)
{
	return json_pack("{s:i, s:[s], s:[[i, i, I]]}", "page-size", 4096, "blocks", "pc.ram", "ranges", 0, 0, pages);
}

/* As hibernation sees it: behind all that was stored. NULL: none. New. */
static json_t *read_set(void)
{
	struct tp_error err = TP_ERROR_INIT;
	struct op_job *job = working_set_read(w.vm, &err);
	json_t *set;

	assert_non_null(job);
	assert_string_equal(job->worker, OP_WORKER_STATE);
	assert_true(io_worker_wait(w.t->worker, 20));
	assert_true(job->run(job, &err));
	set = TP_STEAL(((struct job *)job)->out);
	job->free(job);
	return set;
}

static void assert_set(json_int_t pages)
{
	tp_autojson json_t *is = read_set(), *want = pages ? set_of(pages) : NULL;

	assert_true(pages ? json_equal(is, want) : !is);
}

static bool file_is_there(void)
{
	struct stat st;

	assert_true(io_worker_wait(w.t->worker, 20));
	return fstatat(w.vm->dirfd, "working-set.json", &st, 0) == 0;
}

static void the_last_one_counts(void **state)
{
	(void)state;
	assert_set(0);
	working_set_store(w.vm, NULL);
	assert_set(0);
	working_set_store(w.vm, set_of(1));
	working_set_store(w.vm, set_of(7));
	assert_set(7);
	/* One without pages says nothing. */
	working_set_store(w.vm, json_pack("{s:i, s:[], s:[]}", "page-size", 4096, "blocks", "ranges"));
	assert_set(7);
	working_set_store(w.vm, NULL);
	assert_false(file_is_there());
	assert_set(0);
}

/* The server that sent it read a file that others may have written. */
static void nonsense_is_not_kept(void **state)
{
	(void)state;
	working_set_store(w.vm, set_of(7));
	working_set_store(w.vm, set_of(INT64_MAX));
	working_set_store(w.vm, json_pack("{s:[[i, i, i]]}", "ranges", 0, 0, 1));
	assert_set(7);
	working_set_store(w.vm, json_string("x"));
	assert_set(7);
}

static void put_file(const char *text)
{
	assert_true(tp_replace_file(w.vm->dirfd, "working-set.json", text, strlen(text), false, NULL));
}

static void a_damaged_file_is_none(void **state)
{
	char *big = malloc(80001);

	(void)state;
	put_file("{");
	assert_set(0);
	put_file("{\"page-size\": 4096, \"blocks\": [\"pc.ram\"], \"ranges\": [[0, 0, -1]]}");
	assert_set(0);
	memset(big, ' ', 80000);
	memcpy(big, "{\"page-size\": 4096, \"blocks\": [\"", 32);
	memset(big + 32, 'x', 70000);
	strcpy(big + 70032, "\"], \"ranges\": []}");
	put_file(big);
	assert_set(0);
	free(big);
	/* It is no hindrance. */
	working_set_store(w.vm, set_of(3));
	assert_set(3);
}

/* Its folder may be gone by then, or be full. */
static void storing_fails_without_harm(void **state)
{
	(void)state;
	assert_int_equal(mkdirat(w.vm->dirfd, "working-set.json", 0700), 0);
	working_set_store(w.vm, set_of(3));
	working_set_store(w.vm, NULL);
	assert_true(file_is_there());
	assert_set(0);
	assert_int_equal(unlinkat(w.vm->dirfd, "working-set.json", AT_REMOVEDIR), 0);
	assert_true(state_dir_vm_remove(w.t->state, "vm1", NULL));
	working_set_store(w.vm, set_of(3));
	assert_set(0);
}

static void what_fits_the_image_goes_into_it(void **state)
{
	tp_autojson json_t *set = set_of(16), *manifest = json_pack("{s:O}", "working-set", set);
	tp_autojson json_t *ram = json_pack("[{s:s, s:i}]", "id", "pc.ram", "bytes", 16 * 4096);
	tp_autojson json_t *small = json_pack("[{s:s, s:i}]", "id", "pc.ram", "bytes", 15 * 4096);
	tp_autojson json_t *whole = working_set_of(set, ram), *asked = working_set_request(manifest);

	(void)state;
	assert_true(json_equal(whole, set));
	assert_null(working_set_of(set, small));
	assert_null(working_set_of(NULL, ram));
	assert_true(json_equal(asked, set) && asked != set);
	json_object_del(manifest, "working-set");
	assert_null(working_set_request(manifest));
	assert_null(working_set_request(NULL));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, make_world, drop_world)
	const struct CMUnitTest tests[] = {
		T(the_last_one_counts),
		T(nonsense_is_not_kept),
		T(a_damaged_file_is_none),
		T(storing_fails_without_harm),
		T(what_fits_the_image_goes_into_it),
	};

	return cmocka_run_group_tests_name("working_set", tests, NULL, NULL);
}
