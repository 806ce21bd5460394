/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_op_rebuild.c - What an operation writes into its log, and its rebuilding; progress; fault points */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "fake/op_bench.h"

static json_t *progress(void)
{
	tp_autojson json_t *record = op_record(bench.op);

	return json_incref(json_object_get(record, "progress"));
}

static void test_progress(void **state)
{
	tp_autojson json_t *record = NULL, *later = NULL;

	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench_start(0);
	op_progress_bytes(bench.op, 400, 1000);
	bench.now += 1;
	op_progress_bytes(bench.op, 600, 1000);
	record = progress();
	assert_int_equal(tp_json_int(record, "percent", 0), 60);
	assert_int_equal(tp_json_int(record, "rate", 0), 200);
	assert_int_equal((int)tp_json_num(record, "eta", 0), 2);
	op_progress_bytes(bench.op, 700, 7000);	/* there is more than was thought */
	later = progress();
	assert_int_equal(tp_json_int(later, "percent", 0), 60);
	assert_int_equal(bench.progress, 3);
}

static void test_sync_note(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	bench.on_enter[0] = OP_WAIT;
	bench.on_enter[1] = OP_WAIT;
	bench_start(0);
	assert_null(op_logged(bench.op, "ran"));
	assert_int_equal(op_journal_sync_note(bench.op, "ran", json_pack("{s:s}", "image", "i1")), OP_WAIT);
	assert_int_equal(op_journal_sync_note(bench.op, "ran", NULL), OP_FAIL);
	assert_string_equal(op_step_name(bench.op), "first");
	bench_go();
	assert_string_equal(op_step_name(bench.op), "second");
	assert_string_equal(tp_json_str(op_logged(bench.op, "ran"), "image"), "i1");
	assert_string_equal(tp_json_str(bench_logged("ran"), "image"), "i1");
	/* Moving on in between: the late answer is nobody's. */
	op_journal_sync_note(bench.op, "ran", NULL);
	op_sleep(bench.op, 1);
	bench.on_enter[2] = OP_WAIT;
	bench_fire(OP_TIMER_TICK);
	bench_fire(OP_TIMER_ENTER);
	assert_string_equal(op_step_name(bench.op), "commit");
	op_deliver_journal(bench.op, NULL);
	assert_string_equal(op_step_name(bench.op), "commit");
	bench.syncs = 0;
	op_journal_sync_note(bench.op, "ran", NULL);
	tp_fail_sys(&err, 5, "sync");
	op_deliver_journal(bench.op, &err);
	assert_true(op_going_back(bench.op));
}

static void test_too_long(void **state)
{
	tp_autofree char *text = calloc(1, OP_ARGUMENTS_MAX + 1);
	struct op_options o = { .id = "op-1", .vm = "web1" };
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	memset(text, 'x', OP_ARGUMENTS_MAX);
	o.arguments = json_pack("{s:s}", "name", text);
	bench.op = op_new(&bench_plan, &bench_ports, &bench, &o, &err);
	assert_false(op_start(bench.op, &err));
	assert_int_equal(json_array_size(bench.log), 0);
	assert_int_equal(bench.ends, 0);
	json_decref(o.arguments);
	op_free(bench.op);

	bench.on_enter[0] = OP_WAIT;
	bench_start(0);
	assert_true(op_note(bench.op, "small", json_string("x")));
	assert_false(op_note(bench.op, "long", json_string(text)));
	assert_null(json_object_get(op_res(bench.op), "long"));
	assert_true(op_note(bench.op, "small", NULL));
	assert_int_equal(json_object_size(op_res(bench.op)), 0);
}

static json_t *records(const char *text)
{
	json_error_t e;
	json_t *array = json_loads(text, 0, &e);

	assert_non_null(array);
	return array;
}

#define BEGIN "{\"record\":\"begin\",\"op\":\"op-7\",\"kind\":\"hibernate\",\"version\":2," \
	"\"arguments\":{\"name\":\"web1\"},\"was\":{\"running\":true},\"started\":5000000}"

static bool rebuild(const char *text, struct tp_error *err)
{
	tp_autojson json_t *log = records(text);

	op_free(bench.op);
	bench_make(0);
	return op_rebuild(bench.op, log, err);
}

static void assert_refused(const char *text, const char *words)
{
	struct tp_error err = TP_ERROR_INIT;

	assert_false(rebuild(text, &err));
	assert_non_null(strstr(err.text, words));
}

static void test_rebuild_refuses(void **state)
{
	(void)state;
	assert_refused("[]", "does not begin");
	assert_refused("[{\"record\":\"enter\",\"step\":\"first\"}]", "does not begin");
	assert_refused("[{\"record\":\"begin\",\"op\":\"op-8\",\"kind\":\"hibernate\",\"version\":2}]",
		       "not of hibernate op-7");
	assert_refused("[{\"record\":\"begin\",\"op\":\"op-7\",\"kind\":\"restore\",\"version\":2}]",
		       "of restore");
	assert_refused("[{\"record\":\"begin\",\"op\":\"op-7\",\"kind\":\"hibernate\",\"version\":1}]",
		       "version 1");
	assert_refused("[" BEGIN ",{\"record\":\"enter\",\"step\":\"other\"}]", "no step \"other\"");
	assert_refused("[" BEGIN ",{\"record\":\"enter\"}]", "no step");
	assert_refused("[" BEGIN ",{\"record\":\"commit\",\"step\":\"first\"}]", "does not commit");
	assert_refused("[" BEGIN "," BEGIN "]", "begins twice");
	assert_refused("[" BEGIN ",{\"record\":\"end\"}]", "had ended");
}

static void test_rebuild_back(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_true(rebuild("[" BEGIN ",{\"record\":\"enter\",\"step\":\"first\"},"
			    "{\"record\":\"note\",\"res\":{\"image\":\"i1\",\"gone\":1}},"
			    "{\"record\":\"enter\",\"step\":\"second\",\"res\":{\"gone\":null}}]", &err));
	assert_string_equal(op_step_name(bench.op), "second");
	assert_string_equal(tp_json_str(op_res(bench.op), "image"), "i1");
	assert_int_equal(json_object_size(op_res(bench.op)), 1);
	assert_true(tp_json_bool(op_was(bench.op), "running", false));
	assert_string_equal(tp_json_str(op_arguments(bench.op), "name"), "web1");
	op_resume(bench.op, true);
	bench_go();
	bench_assert(OP_FAILED, "Failed", "done");
	assert_int_equal(bench.undos[1] + bench.undos[0], 2);
	assert_int_equal(bench.runs[0] + bench.runs[1] + bench.runs[2], 0);
}

static void test_rebuild_back_without_qemu(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_true(rebuild("[" BEGIN ",{\"record\":\"enter\",\"step\":\"second\"}]", &err));
	op_resume(bench.op, false);
	bench_go();
	bench_assert(OP_FAILED, "Failed", "done");
	assert_string_equal(tp_error_class(op_error(bench.op)), "QemuExited");
	assert_int_equal(bench.undos[1], 0);
	assert_int_equal(bench.undos[0], 1);
}

static void test_rebuild_forward(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_true(rebuild("[" BEGIN ",{\"record\":\"enter\",\"step\":\"commit\"},"
			    "{\"record\":\"commit\",\"step\":\"commit\"},"
			    "{\"record\":\"ran\",\"image\":\"i1\"}]", &err));
	assert_true(op_committed(bench.op));
	assert_string_equal(op_step_name(bench.op), "after");
	assert_string_equal(tp_json_str(op_logged(bench.op, "ran"), "image"), "i1");
	op_resume(bench.op, true);
	bench_go();
	bench_assert(OP_SUCCEEDED, "Hibernated", "none");
	assert_int_equal(bench.runs[3], 1);
	/* With QEMU gone its step is passed over; it expects that end, so all is well. */
	bench_reset(NULL);
	assert_true(rebuild("[" BEGIN ",{\"record\":\"commit\",\"step\":\"commit\"}]", &err));
	op_resume(bench.op, false);
	bench_go();
	assert_int_equal(bench.runs[3], 0);
	bench_assert(OP_SUCCEEDED, "Hibernated", "none");
}

static void test_rebuild_withdrawn_commit(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	assert_true(rebuild("[" BEGIN ",{\"record\":\"enter\",\"step\":\"commit\"},"
			    "{\"record\":\"commit\",\"step\":\"commit\"},"
			    "{\"record\":\"back\",\"status\":\"cancelled\",\"error\":"
			    "{\"class\":\"Cancelled\",\"desc\":\"was cancelled\"}}]", &err));
	assert_false(op_committed(bench.op));
	op_resume(bench.op, true);
	bench_go();
	bench_assert(OP_CANCELLED, "Failed", "done");
	assert_int_equal(bench.undos[2], 1);
	assert_string_equal(op_error(bench.op)->text, "was cancelled");
}

#ifdef TP_FAULTS
static int exit_with(const char *fault)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (!op_fault_set(fault))
			_exit(1);
		bench_start(0);
		_exit(op_status(bench.op) == OP_SUCCEEDED ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void test_faults(void **state)
{
	(void)state;
	assert_int_equal(exit_with("second:die-before"), 42);
	assert_int_equal(exit_with("second:die-after-enter"), 42);
	assert_int_equal(exit_with("hibernate/commit:die-after-effect"), 42);
	assert_int_equal(exit_with("restore/commit:die-before"), 0);
	assert_int_equal(exit_with("second:fail"), 2);
	assert_int_equal(exit_with("after:fail"), 2);		/* stuck, tried again later */
	assert_int_equal(exit_with("second:explode"), 1);
	assert_int_equal(exit_with("second"), 1);
	bench.on_enter[1] = OP_WAIT;
	assert_true(op_fault_set("second:silent"));
	bench_start(0);
	bench_tick();
	assert_string_equal(op_step_name(bench.op), "second");
	bench_fire(OP_TIMER_LIMIT);
	assert_true(op_going_back(bench.op));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		BENCH_TEST(test_progress),
		BENCH_TEST(test_sync_note),
		BENCH_TEST(test_too_long),
		BENCH_TEST(test_rebuild_refuses),
		BENCH_TEST(test_rebuild_back),
		BENCH_TEST(test_rebuild_back_without_qemu),
		BENCH_TEST(test_rebuild_forward),
		BENCH_TEST(test_rebuild_withdrawn_commit),
#ifdef TP_FAULTS
		BENCH_TEST(test_faults),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
