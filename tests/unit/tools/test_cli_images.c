/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_cli_images.c - Images by their ids, against a scripted daemon: which file it is, verify, mv, rm */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "cli_test.h"

#define ID "web1-20261130T170537Z-0a1b2c"
#define ID2 "web1-20261130T180537Z-0a1b2d"
#define RECORD(id, kind, status, more) "{'id': '" id "', 'vm': 'web1', 'kind': '" kind "', 'phase': 'Verified', " \
	"'status': '" status "', 'progress': {'percent': 100}, 'warnings': [], " \
	"'started': '2026-11-30T17:00:00.000Z', 'ended': '2026-11-30T17:00:02.500Z'" more "}"
#define GOOD ", 'result': {'image': '" ID "', 'bytes': 1048576, 'raw-bytes': 4194304, 'frames': 5, 'pages': 9, " \
	"'seconds': 2.5}"
#define DAMAGE ", 'error': {'class': 'Corrupt', 'desc': '2 places are damaged', 'data': {'image': '" ID "', " \
	"'damaged': 40, 'damage': [{'what': 'bad', 'frame': 7, 'offset': 4096, 'length': 99, 'block': 'pc.ram', " \
	"'first-page': 448, 'pages': 64, 'lost': 60, 'ranges': [{'block': 'pc.ram', 'first-page': 448, 'pages': 64}, " \
	"{'block': 'vga.vram', 'first-page': 3, 'pages': 1}]}, {'what': 'odd\\u001b[2J', 'offset': 9}, 7]}}"

static void begins(struct fake_torpord *d)
{
	fake_torpord_accept(d);
	fake_torpord_expect(d, "event-filter", NULL);
	assert_null(json_object_get(json_object_get(d->request, "arguments"), "vms"));
	fake_torpord_return(d, "{}");
}

/* An operation from its command to its end. */
static void goes(struct fake_torpord *d, const char *command, const char *arguments, const char *op,
		 const char *record)
{
	tp_autofree char *answer = NULL;

	fake_torpord_expect(d, command, arguments);
	assert_true(asprintf(&answer, "{'operation': '%s'}", op) > 0);
	fake_torpord_return(d, answer);
	fake_torpord_expect(d, "operation-wait", NULL);
	fake_torpord_return(d, record);
}

/* --- operations --- */

static void verify_says_that_it_is_good(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "image", "verify", ID);
	begins(d);
	goes(d, "image-verify", "{'image': '" ID "'}", "op-1",
	     RECORD("op-1", "image-verify", "succeeded", GOOD));
	assert_int_equal(fake_torpord_status(d), 0);
	out_has(d, "web1: good in 2.5 s, 1 MiB of 4 MiB, image " ID "\n");
}

/* Of an id the same as of a file. */
static void verify_prints_figures(void **state)
{
	struct fake_torpord *d = *state;
	tp_autofree char *out = NULL;
	tp_autojson json_t *told = NULL;

	FAKE_RUN(d, "image", "verify", ID, "--json");
	begins(d);
	goes(d, "image-verify", "{'image': '" ID "'}", "op-1",
	     RECORD("op-1", "image-verify", "succeeded", GOOD));
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	told = tp_json_parse(out, strlen(out), 64, NULL);
	assert_true(tp_json_bool(told, "verified", false));
	assert_string_equal(tp_json_str(told, "image"), ID);
	assert_string_equal(tp_json_str(told, "operation"), "op-1");
	assert_int_equal(tp_json_int(told, "bytes", 0), 1048576);
}

static void verify_lists_damages(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "image", "verify", ID);
	begins(d);
	goes(d, "image-verify", "{'image': '" ID "'}", "op-1",
	     RECORD("op-1", "image-verify", "failed", DAMAGE));
	assert_int_equal(fake_torpord_status(d), 1);
	err_has(d, "2 places are damaged");
	out_has(d, "7      4096    99     pc.ram    448-511  60         bad\n");
	out_has(d, "vga.vram  3-3");
	out_has(d, "odd [2J\n");
	out_has(d, "and 37 more\n");
	out_has(d, "torpor image cat --salvage " ID " > STREAM");
}

/* What cannot be one is not asked for; the second begins when the first has ended. */
static void all_go_one_after_the_other(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "image", "verify", "--all", "--json");
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-images", "{'limit': 500}");
	fake_torpord_return(d, "[{'id': '" ID "', 'state': 'complete'}, {'id': 'x', 'state': 'partial'}, "
			    "{'id': '" ID2 "', 'state': 'corrupt'}, {'id': 'y', 'state': 'unavailable'}]");
	fake_torpord_expect(d, "event-filter", NULL);
	fake_torpord_return(d, "{}");
	goes(d, "image-verify", "{'image': '" ID "'}", "op-1",
	     RECORD("op-1", "image-verify", "succeeded", GOOD));
	goes(d, "image-verify", "{'image': '" ID2 "'}", "op-2",
	     RECORD("op-2", "image-verify", "failed", DAMAGE));
	assert_int_equal(fake_torpord_status(d), 6);
	out_has(d, "\"damaged\": 40");
}

static void mv_names_image_and_pool(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "image", "mv", ID, "fast", "--busy", "queue");
	begins(d);
	goes(d, "image-move", "{'image': '" ID "', 'pool': 'fast', 'busy': 'queue'}", "op-1",
	     RECORD("op-1", "image-move", "succeeded", ", 'result': {'image': '" ID "'}"));
	assert_int_equal(fake_torpord_status(d), 0);
	out_has(d, "web1: moved in 2.5 s, image " ID "\n");
}

/* --- which file --- */

static void an_id_is_a_file_that_torpord_knows(void **state)
{
	struct fake_torpord *d = *state;
	tp_autoclose int dir = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tp_autofree char *image = NULL, *answer = NULL;
	size_t n;

	image = tp_read_file(AT_FDCWD, "tests/data/images/v1.0.img", 1 << 20, &n, NULL);
	assert_non_null(image);
	assert_true(tp_replace_file(dir, "memory.zst", image, n, false, NULL));
	assert_true(asprintf(&answer, "[{'id': '" ID2 "'}, {'id': '" ID "', 'path': '%s'}]", d->dir) > 0);
	FAKE_RUN(d, "image", "info", ID);
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-images", "{'vm': 'web1', 'limit': 500}");
	fake_torpord_return(d, answer);
	assert_int_equal(fake_torpord_status(d), 0);
	out_has(d, "/memory.zst\n");
	out_has(d, "frames    3 of about");
	assert_int_equal(unlinkat(dir, "memory.zst", 0), 0);
}

static void an_id_that_nobody_knows(void **state)
{
	struct fake_torpord *d = *state;

	FAKE_RUN(d, "image", "map", ID);
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-images", NULL);
	fake_torpord_return(d, "[]");
	assert_int_equal(fake_torpord_status(d), 1);
	err_has(d, "torpord knows no image " ID);
}

static void files_and_ids_are_told_apart(void **state)
{
	static const struct {
		const char *words[5];
		int status;
		const char *text;
	} cases[] = {
		{ { "image", "info", "Makefile" }, 1, "as a file it is ./Makefile" },
		{ { "image", "info", "web1" }, 1, "is no id of an image (see torpor image ls)" },
		{ { "image", "verify", ID, "./Makefile" }, 2, "do not go together" },
		{ { "image", "rm", "./" ID }, 2, "is a file; images are deleted by their id" },
		{ { "image", "mv", "./" ID, "fast" }, 2, "is a file; an image is moved by its id" },
		{ { "image", "mv", ID, "/srv/fast" }, 2, "to a pool by its name" },
		{ { "image", "verify" }, 2, "missing: FILE...|ID..." },
	};
	struct fake_torpord *d = *state;

	for (size_t i = 0; i < TP_N(cases); i++) {
		fake_torpord_run(d, cases[i].words);
		assert_int_equal(fake_torpord_status(d), cases[i].status);
		err_has(d, cases[i].text);
		fake_torpord_close(d);
		fake_torpord_open(d);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(verify_says_that_it_is_good),
		TEST(verify_prints_figures),
		TEST(verify_lists_damages),
		TEST(all_go_one_after_the_other),
		TEST(mv_names_image_and_pool),
		TEST(an_id_is_a_file_that_torpord_knows),
		TEST(an_id_that_nobody_knows),
		TEST(files_and_ids_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
