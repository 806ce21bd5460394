/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_state_dir.c - Lock, version, VMs, damaged files, ops.log */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "engine/state_dir.h"

struct box {
	char path[64], dir[80];
};

static int setup(void **state)
{
	struct box *b = calloc(1, sizeof(*b));

	strcpy(b->path, "/tmp/torpor-state-XXXXXX");
	assert_non_null(mkdtemp(b->path));
	snprintf(b->dir, sizeof(b->dir), "%s/deep/state", b->path);
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct box *b = *state;
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", b->path);
	assert_int_equal(system(command), 0);
	free(b);
	return 0;
}

static struct state_dir *open_state(struct box *b)
{
	struct tp_error err = TP_ERROR_INIT;
	struct state_dir *s = state_dir_open(b->dir, &err);

	if (!s)
		fail_msg("%s", err.text);
	return s;
}

static void put(struct box *b, const char *file, const char *text)
{
	tp_autoclose int dir = tp_open_dir(b->dir, NULL);

	assert_true(tp_replace_file(dir, file, text, strlen(text), false, NULL));
}

static void test_open(void **state)
{
	struct box *b = *state;
	struct state_dir *s = open_state(b);
	struct tp_error err = TP_ERROR_INIT;
	char instance[64], pid[32];
	struct stat st;

	assert_int_equal(stat(b->dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_string_equal(state_dir_path(s), b->dir);
	snprintf(instance, sizeof(instance), "%s", state_dir_instance(s));
	assert_int_equal(strlen(instance), 36);

	/* A second engine, also in this process. */
	assert_null(state_dir_open(b->dir, &err));
	assert_int_equal(err.code, TP_ESTATE);
	snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
	assert_non_null(strstr(err.text, pid));
	assert_non_null(strstr(err.text, b->dir));

	state_dir_close(s);
	s = open_state(b);
	assert_string_equal(state_dir_instance(s), instance);
	state_dir_close(s);
}

static void assert_version_refused(struct box *b, const char *version, enum tp_code code)
{
	struct tp_error err = TP_ERROR_INIT;

	put(b, "version", version);
	assert_null(state_dir_open(b->dir, &err));
	assert_int_equal(err.code, code);
}

static void test_version(void **state)
{
	struct box *b = *state;

	state_dir_close(open_state(b));
	assert_version_refused(b, "{\"format\": 2, \"instance\": \"x\"}", TP_EUNSUPPORTED);
	assert_version_refused(b, "{\"format\": 1, \"instance\": \"x\"}", TP_ECORRUPT);
	assert_version_refused(b, "{\"instance\": \"x\"}", TP_ECORRUPT);
	assert_version_refused(b, "{\"format\"", TP_ECORRUPT);
	assert_version_refused(b, "", TP_ECORRUPT);
}

static void test_vms(void **state)
{
	struct box *b = *state;
	struct state_dir *s = open_state(b);
	tp_autojson json_t *spec = json_pack("{s:s}", "name", "web1"), *names = NULL, *back = NULL;
	tp_autofree char *text = NULL;
	struct tp_error err = TP_ERROR_INIT;
	int dir, cut, odd;

	assert_int_equal(state_dir_vm(s, "web1", false, &err), -1);
	tp_error_clear(&err);
	dir = state_dir_vm(s, "web1", true, &err);
	assert_true(dir >= 0);
	assert_null(state_vm_read(dir, "spec.json", &err));
	assert_int_equal(err.code, TP_OK);		/* absent is no error */
	assert_true(state_vm_write(dir, "spec.json", spec, &err));
	cut = state_dir_vm(s, "cut", true, &err);	/* a define that a crash cut */
	odd = state_dir_vm(s, "odd", true, &err);
	assert_true(state_vm_write(odd, "state.json", spec, &err));
	close(state_dir_vm(s, "zero", true, &err));	/* damaged, not absent */
	put(b, "vms/zero/spec.json", "");
	close(state_dir_vm(s, "b", true, &err));
	close(dir);
	dir = state_dir_vm(s, "b", true, &err);
	assert_true(state_vm_write(dir, "spec.json", spec, &err));
	names = state_dir_vms(s, &err);
	text = json_dumps(names, JSON_COMPACT);
	assert_string_equal(text, "[\"b\",\"web1\",\"zero\"]");
	assert_int_equal(state_dir_vm(s, "cut", false, NULL), -1);
	close(odd);
	odd = state_dir_vm(s, "odd", false, &err);	/* it has a state: left alone */
	assert_true(odd >= 0);

	assert_true(state_dir_vm_remove(s, "b", &err));
	assert_true(state_dir_vm_remove(s, "b", &err));
	assert_int_equal(state_dir_vm(s, "b", false, NULL), -1);
	close(dir);
	close(cut);
	close(odd);
	dir = state_dir_vm(s, "web1", false, &err);
	back = state_vm_read(dir, "spec.json", &err);
	assert_true(json_equal(back, spec));
	close(dir);
	state_dir_close(s);
}

static void test_names(void **state)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "../x", ".gone-x", "-x", "a\nb" };
	struct state_dir *s = open_state(*state);
	struct tp_error err = TP_ERROR_INIT;

	for (size_t i = 0; i < TP_N(bad); i++) {
		assert_int_equal(state_dir_vm(s, bad[i], true, &err), -1);
		assert_int_equal(err.code, TP_EARG);
		assert_false(state_dir_vm_remove(s, bad[i], &err));
		tp_error_clear(&err);
	}
	state_dir_close(s);
}

/* A removal that a crash cut after its first step is finished at the next start. */
static void test_cut_removal(void **state)
{
	struct box *b = *state;
	struct state_dir *s = open_state(b);
	tp_autojson json_t *names = NULL;
	char gone[128];

	close(state_dir_vm(s, "web1", true, NULL));
	snprintf(gone, sizeof(gone), "%s/vms/web1", b->dir);
	{
		char to[128];

		snprintf(to, sizeof(to), "%s/vms/.gone-web1", b->dir);
		assert_int_equal(rename(gone, to), 0);
		put(b, "vms/.gone-web1/spec.json", "{}");
		names = state_dir_vms(s, NULL);
		assert_int_equal(json_array_size(names), 0);
		assert_int_equal(access(to, F_OK), -1);
	}
	state_dir_close(s);
}

static void test_damaged(void **state)
{
	struct box *b = *state;
	struct state_dir *s = open_state(b);
	struct tp_error err = TP_ERROR_INIT;
	int dir = state_dir_vm(s, "web1", true, &err);

	put(b, "vms/web1/state.json", "{\"rest\": \"hiber");
	assert_null(state_vm_read(dir, "state.json", &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "state.json"));
	tp_error_clear(&err);
	put(b, "vms/web1/state.json", "[]");
	assert_null(state_vm_read(dir, "state.json", &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	tp_error_clear(&err);
	assert_true(state_vm_set_aside(dir, "state.json", &err));
	assert_null(state_vm_read(dir, "state.json", &err));
	assert_int_equal(err.code, TP_OK);
	assert_false(state_vm_set_aside(dir, "state.json", &err));
	close(dir);
	state_dir_close(s);
}

static enum state_edit add_seven(json_t *host, void *arg)
{
	const char *member = arg;

	if (json_object_get(host, member))
		return STATE_UNCHANGED;
	return json_object_set_new(host, member, json_integer(7)) == 0 ? STATE_CHANGED : STATE_NO_MEMORY;
}

static enum state_edit no_memory(json_t *host, void *arg)
{
	json_object_clear(host);
	(void)arg;
	return STATE_NO_MEMORY;
}

static void test_host(void **state)
{
	static char number[] = "next-operation", other[] = "other";
	struct box *b = *state;
	struct state_dir *s = open_state(b);
	tp_autojson json_t *none = NULL, *host = json_pack("{s:i}", "next-operation", 7), *back = NULL;
	struct tp_error err = TP_ERROR_INIT;

	none = state_host_read(s, &err);
	assert_int_equal(json_object_size(none), 0);
	assert_true(state_host_edit(s, add_seven, number, &err));
	assert_true(state_host_edit(s, add_seven, number, &err));
	assert_false(state_host_edit(s, no_memory, NULL, &err));
	tp_error_clear(&err);
	back = state_host_read(s, &err);
	assert_true(json_equal(back, host));
	put(b, "host.json", "nonsense");
	assert_false(state_host_edit(s, add_seven, other, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	tp_error_clear(&err);
	assert_null(state_host_read(s, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
	state_dir_close(s);
}

static void assert_rebooted(struct box *b, bool rebooted)
{
	struct state_dir *s = open_state(b);

	assert_int_equal(state_dir_rebooted(s), rebooted);
	state_dir_close(s);
}

/* By the lock that the last engine left, whatever a power cut made of it. */
static void test_rebooted(void **state)
{
	struct box *b = *state;

	state_dir_close(open_state(b));
	assert_rebooted(b, false);
	put(b, "lock", "17 11111111-2222-3333-4444-555555555555\n");
	assert_rebooted(b, true);
	assert_rebooted(b, false);
	put(b, "lock", "");
	assert_rebooted(b, true);
}

static void assert_ops(struct state_dir *s, const char *want)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *records = state_ops_read(s, &err);
	tp_autofree char *text = json_dumps(records, JSON_COMPACT);

	assert_non_null(text);
	assert_string_equal(text, want);
}

static void append_op(struct state_dir *s, int n)
{
	tp_autojson json_t *record = json_pack("{s:i}", "n", n);
	struct tp_error err = TP_ERROR_INIT;

	assert_true(state_ops_append(s, record, &err));
}

static void test_ops(void **state)
{
	struct box *b = *state;
	struct state_dir *s = open_state(b);
	tp_autojson json_t *kept = json_pack("[{s:i}]", "n", 3);
	struct tp_error err = TP_ERROR_INIT;

	assert_ops(s, "[]");
	append_op(s, 1);
	append_op(s, 2);
	assert_ops(s, "[{\"n\":1},{\"n\":2}]");
	/* A torn line swallows nothing but itself. */
	put(b, "ops.log", "{\"n\":1}\n[]\n\xff\xfe\n{\"n\"");
	assert_ops(s, "[{\"n\":1}]");
	append_op(s, 3);
	assert_ops(s, "[{\"n\":1},{\"n\":3}]");
	assert_true(state_ops_rewrite(s, kept, &err));
	assert_ops(s, "[{\"n\":3}]");
	append_op(s, 4);
	assert_ops(s, "[{\"n\":3},{\"n\":4}]");
	state_dir_close(s);
}

/* Of an ops.log without bounds only the end is read. */
static void test_long_ops(void **state)
{
	struct box *b = *state;
	struct state_dir *s = open_state(b);
	tp_autojson json_t *records = NULL;
	tp_autofree char *line = calloc(1, 1 << 20);
	char path[128];
	FILE *f;

	memset(line, ' ', (1 << 20) - 2);
	memcpy(line, "{\"n\":1}", 7);
	line[(1 << 20) - 2] = '\n';
	snprintf(path, sizeof(path), "%s/ops.log", b->dir);
	f = fopen(path, "w");
	for (int i = 0; i < 12; i++)
		fputs(line, f);
	fclose(f);
	append_op(s, 2);
	records = state_ops_read(s, NULL);
	assert_int_equal(json_array_size(records), 9);
	assert_int_equal(tp_json_int(json_array_get(records, 8), "n", 0), 2);
	state_dir_close(s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_open), T(test_rebooted), T(test_version), T(test_vms), T(test_names), T(test_cut_removal),
		T(test_damaged), T(test_host), T(test_ops), T(test_long_ops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
