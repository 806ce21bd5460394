/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_cmd_prune.c - What prune deletes, and above all what it leaves alone, against a scripted daemon */
#include "base/tp_json.h"
#include "cli_test.h"

/*
 * One VM of each sort: retains two kept images, at rest, at work, lost. All images are of 1 MiB; ages are told
 * by what is long ago and what is to come.
 */
#define VMS \
	"[{'name': 'busy', 'state': 'hibernating', 'image': null, 'operation': {'id': 'op-1'}, 'spec': {}}," \
	" {'name': 'lost', 'state': 'lost', 'image': null, 'operation': null, 'spec': {}}," \
	" {'name': 'rest', 'state': 'hibernated', 'image': {'id': 'rest-2'}, 'operation': null, 'spec': {}}," \
	" {'name': 'web', 'state': 'running', 'image': null, 'operation': null, 'spec': {'storage': {'retain':" \
	" {'count': 2}}}}]"
#define IMAGE(id, vm, state, year) "{'id': '" id "', 'vm': '" vm "', 'state': '" state "', 'bytes': 1048576," \
	" 'pool': 'default', 'created': '" year "-01-01T00:00:00.000Z'}"
#define COPY(id, vm) "{'id': '" id "', 'vm': '" vm "', 'state': 'partial', 'bytes': 1048576, 'pool': 'other'}"
#define IMAGES "[" \
	IMAGE("busy-1", "busy", "partial", "2020") "," IMAGE("busy-2", "busy", "consumed", "2020") "," \
	IMAGE("gone-1", "gone", "complete", "2020") "," IMAGE("gone-2", "gone", "partial", "2999") "," \
	IMAGE("lost-1", "lost", "consumed", "2020") "," IMAGE("lost-2", "lost", "partial", "2020") "," \
	IMAGE("rest-1", "rest", "corrupt", "2020") "," IMAGE("rest-2", "rest", "complete", "2020") "," \
	IMAGE("rest-3", "rest", "complete", "2020") "," IMAGE("rest-4", "rest", "consumed", "2020") "," \
	IMAGE("rest-5", "rest", "unavailable", "2020") "," IMAGE("web-1", "web", "consumed", "2020") "," \
	IMAGE("web-2", "web", "consumed", "2021") "," IMAGE("web-3", "web", "consumed", "2999") "," \
	IMAGE("web-4", "web", "partial", "2999") "]"

static void ask(struct fake_torpord *d, const char *const words[], const char *vms, const char *images)
{
	fake_torpord_run(d, words);
	fake_torpord_accept(d);
	fake_torpord_expect(d, "query-vms", "{'fields': ['name', 'state', 'image', 'operation', 'spec'], 'limit': 500}");
	fake_torpord_return(d, vms);
	fake_torpord_expect(d, "query-images", "{'limit': 500}");
	fake_torpord_return(d, images);
}

/* The ids that a dry run prints, separated by blanks. */
static char *picked_by(struct fake_torpord *d, const char *const words[])
{
	tp_autofree char *out = NULL;
	tp_autojson json_t *told = NULL;
	json_t *image;
	char *ids = calloc(1, 4096);
	size_t i;

	ask(d, words, VMS, IMAGES);
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	told = tp_json_parse(out, strlen(out), 64, NULL);
	assert_non_null(told);
	assert_true(tp_json_bool(told, "dry-run", false));
	json_array_foreach(json_object_get(told, "images"), i, image) {
		strcat(ids, i ? " " : "");
		strcat(ids, tp_json_str(image, "id"));
	}
	assert_int_equal(tp_json_int(told, "bytes", -1), (int64_t)i << 20);
	return ids;
}

static void picks_what_nobody_needs(void **state)
{
	static const struct { const char *words[9], *ids; } cases[] = {
		{ { "prune", "--dry-run", "--json", NULL }, "web-1 web-4" },
		{ { "prune", "--dry-run", "--json", "--kept", NULL }, "rest-4 web-1 web-2 web-3 web-4" },
		{ { "prune", "--dry-run", "--json", "--age", "30d", NULL }, "web-1 web-4" },
		{ { "prune", "--dry-run", "--json", "--kept", "--age", "30d", NULL }, "rest-4 web-1 web-2 web-4" },
		{ { "prune", "--dry-run", "--json", "--corrupt", NULL }, "rest-1 web-1 web-4" },
		{ { "prune", "--dry-run", "--json", "--orphans", NULL }, "gone-1 gone-2 web-1 web-4" },
		{ { "prune", "--dry-run", "--json", "--orphans", "--age", "30d", "gone", NULL }, "gone-1" },
		{ { "prune", "--dry-run", "--json", "rest", "--kept", "--corrupt", NULL }, "rest-1 rest-4" },
		{ { "prune", "--dry-run", "--json", "busy", "lost", "gone", "--kept", "--corrupt", NULL }, "" },
	};
	struct fake_torpord *d = *state;

	for (size_t i = 0; i < TP_N(cases); i++) {
		tp_autofree char *ids = picked_by(d, cases[i].words);

		assert_string_equal(ids, cases[i].ids);
	}
}

static void retains_by_age(void **state)
{
	static const char *const words[] = { "prune", "--dry-run", NULL };
	struct fake_torpord *d = *state;
	tp_autofree char *out = NULL;

	ask(d, words, "[{'name': 'web', 'state': 'running', 'spec': {'storage': {'retain': {'age': 86400}}}}]",
	    "[" IMAGE("web-1", "web", "consumed", "2020") "," IMAGE("web-2", "web", "consumed", "2999") "]");
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	assert_string_equal(out, "web-1: would be deleted (kept, longer than the VM retains), 1 MiB in pool default\n"
			    "would free 1 MiB: 1 image\n");
}

static void deletes_and_tells(void **state)
{
	static const char *const words[] = { "prune", NULL };
	struct fake_torpord *d = *state;
	tp_autofree char *out = NULL;

	ask(d, words, VMS, IMAGES);
	fake_torpord_expect(d, "image-delete", "{'image': 'web-1', 'pool': 'default'}");
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "image-delete", "{'image': 'web-4', 'pool': 'default'}");
	fake_torpord_return(d, "{}");
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	assert_string_equal(out, "web-1: deleted (kept, more than the VM retains), 1 MiB in pool default\n"
			    "web-4: deleted (never finished), 1 MiB in pool default\nfreed 2 MiB: 2 images\n");
}

/*
 * What a move has copied of a VM's state goes by its pool, the state stays. A copy that went with its
 * image before its turn came is gone all the same.
 */
static void copies_go_by_their_pool(void **state)
{
	static const char *const words[] = { "prune", "--kept", NULL };
	struct fake_torpord *d = *state;
	tp_autofree char *out = NULL;

	ask(d, words, "[{'name': 'web', 'state': 'hibernated', 'image': {'id': 'web-2', 'pool': 'default'},"
	    " 'operation': null, 'spec': {}}]",
	    "[" IMAGE("web-1", "web", "consumed", "2020") "," COPY("web-1", "web") "," IMAGE("web-2", "web", "complete", "2020")
	    "," COPY("web-2", "web") "]");
	fake_torpord_expect(d, "image-delete", "{'image': 'web-1', 'pool': 'default'}");
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "image-delete", "{'image': 'web-1', 'pool': 'other'}");
	fake_torpord_error(d, "{'class': 'NotFound', 'desc': 'no image is named web-1 in pool other'}");
	fake_torpord_expect(d, "image-delete", "{'image': 'web-2', 'pool': 'other'}");
	fake_torpord_return(d, "{}");
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	assert_string_equal(out, "web-1: deleted (kept after its restore), 1 MiB in pool default\n"
			    "web-1: deleted (never finished), 1 MiB in pool other\n"
			    "web-2: deleted (never finished), 1 MiB in pool other\nfreed 3 MiB: 3 images\n");
}

/* What changed since it was asked, torpord refuses. */
static void refusals_are_told(void **state)
{
	static const char *const words[] = { "prune", "--json", NULL }, *const one[] = { "prune", "web", NULL };
	struct fake_torpord *d = *state;
	tp_autojson json_t *told = NULL;
	tp_autofree char *out = NULL;

	ask(d, words, VMS, IMAGES);
	fake_torpord_expect(d, "image-delete", NULL);
	fake_torpord_return(d, "{}");
	fake_torpord_expect(d, "image-delete", NULL);
	fake_torpord_error(d, "{'class': 'InvalidState', 'desc': 'it is the saved state of VM web'}");
	assert_int_equal(fake_torpord_status(d), 6);
	err_has(d, "web-4: ");
	err_has(d, "it is the saved state");
	out = fake_torpord_out(d);
	told = tp_json_parse(out, strlen(out), 64, NULL);
	assert_int_equal(tp_json_int(told, "bytes", 0), 1048576);
	assert_null(json_object_get(json_array_get(json_object_get(told, "images"), 0), "error"));
	assert_non_null(json_object_get(json_array_get(json_object_get(told, "images"), 1), "error"));

	ask(d, one, VMS, "[" IMAGE("web-4", "web", "partial", "2999") "]");
	fake_torpord_expect(d, "image-delete", NULL);
	fake_torpord_error(d, "{'class': 'Busy', 'desc': 'an operation works with it'}");
	assert_int_equal(fake_torpord_status(d), 5);
}

static void names_of_nobody_fail(void **state)
{
	static const char *const words[] = { "prune", "nosuch", NULL }, *const some[] = { "prune", "nosuch", "rest", NULL };
	struct fake_torpord *d = *state;

	ask(d, words, VMS, IMAGES);
	assert_int_equal(fake_torpord_status(d), 1);
	err_has(d, "no VM is named \"nosuch\"");
	ask(d, some, VMS, IMAGES);
	assert_int_equal(fake_torpord_status(d), 6);
}

/* Whatever comes over the wire, nothing is deleted that was not understood. */
static void nonsense_deletes_nothing(void **state)
{
	static const char *const words[] = { "prune", "--kept", NULL };
	struct fake_torpord *d = *state;
	tp_autofree char *out = NULL;

	ask(d, words, "[7, {'name': 'a', 'state': 3, 'spec': [], 'operation': 'x'}]",
	    "[7, [], {'id': 5}, {'id': 'a-1'}, {'id': 'a-2', 'vm': 'a', 'state': 'new-state'}, {'id': 'a-3', 'vm': 'a'},"
	    " {'vm': 'a', 'state': 'consumed'}]");
	assert_int_equal(fake_torpord_status(d), 0);
	out = fake_torpord_out(d);
	assert_string_equal(out, "nothing is to be deleted\n");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(picks_what_nobody_needs), TEST(retains_by_age), TEST(deletes_and_tells),
		TEST(copies_go_by_their_pool), TEST(refusals_are_told),
		TEST(names_of_nobody_fail), TEST(nonsense_deletes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
