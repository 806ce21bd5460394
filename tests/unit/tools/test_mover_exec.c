/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_mover_exec.c - Jobs launch, hook, tool: what the program that is run finds around it */
#include "mover_test.h"

#include <sys/resource.h>
#include <sys/stat.h>

#define OUTPUT_MAX 65536

/* A run of `sh -c script` as a job; what it wrote. */
struct run {
	struct mover_peer peer;
	int out;
	char text[OUTPUT_MAX];
};

static json_t *shell(const char *script, json_t *more_owned)
{
	json_t *o = json_pack("{s:[s, s, s], s:{s:s}}", "argv", "/bin/sh", "-c", script, "env", "PATH",
			      "/usr/bin:/bin");

	if (more_owned)
		json_object_update(o, more_owned);
	json_decref(more_owned);
	return o;
}

/* names and fds beside stdout, which is the first. */
static void run_start(struct run *r, const char *names, const int *more, size_t n, json_t *o_owned)
{
	int fds[TP_MAX_FDS];
	char all[200];

	r->out = memfd_create("out", MFD_CLOEXEC);
	fds[0] = r->out;
	for (size_t i = 0; i < n; i++)
		fds[i + 1] = more[i];
	snprintf(all, sizeof(all), "stdout%s%s", *names ? "," : "", names);
	start_job(&r->peer, "launch", all, fds, n + 1, o_owned);
}

/* The end without a message is the sign that it ran. Leaves the program's output in text. */
static int run_end(struct run *r)
{
	json_t *message = mover_peer_receive(&r->peer);
	int status;
	ssize_t n;

	if (message)
		fail_msg("message %s", json_dumps(message, 0));
	status = mover_peer_wait(&r->peer);
	n = pread(r->out, r->text, sizeof(r->text) - 1, 0);
	assert_true(n >= 0);
	r->text[n] = 0;
	close(r->out);
	mover_peer_free(&r->peer);
	return status;
}

static void run(struct run *r, const char *script, json_t *more_owned)
{
	run_start(r, "", NULL, 0, shell(script, more_owned));
	assert_exit(run_end(r), 0);
}

static void assert_refused(json_t *o_owned, const char *class_, const char *part)
{
	struct mover_peer p;

	start_job(&p, "tool", "", NULL, 0, o_owned);
	assert_job_error(&p, class_, part, MOVER_EXIT_EXEC);
	mover_peer_free(&p);
}

static void status_and_environment_are_the_programs(void **state)
{
	struct run r;

	(void)state;
	run_start(&r, "", NULL, 0, shell("env; exit 42", json_pack("{s:{s:s, s:s}}", "env", "A", "b=c\n",
								  "PATH", "/usr/bin")));
	assert_exit(run_end(&r), 42);
	assert_text(r.text, "A=b=c\n");
	assert_text(r.text, "PATH=/usr/bin\n");
	assert_null(strstr(r.text, "TORPOR_BUILD"));
	assert_null(strstr(r.text, "HOME"));
}

static void process_is_its_own(void **state)
{
	int parent, group, session;
	char running, *line;
	struct run r;

	(void)state;
	/*
	 * The pid of the mover became that of the program; fields 1, 5, 6 of stat: pid, group, session.
	 * The masks are read in a child, as a shell blocks signals for moments.
	 */
	run(&r, "cat /proc/$$/stat; cat /proc/self/status; pwd", json_pack("{s:s}", "cwd", "/usr/share"));
	assert_int_equal(atoi(r.text), r.peer.pid);
	line = strstr(r.text, "(sh) ");
	assert_non_null(line);
	assert_int_equal(sscanf(line + 5, "%c %d %d %d", &running, &parent, &group, &session), 4);
	assert_int_equal(group, r.peer.pid);
	assert_int_equal(session, r.peer.pid);
	assert_text(r.text, "NoNewPrivs:\t1");
	assert_text(r.text, "SigBlk:\t0000000000000000");
	assert_text(r.text, "SigIgn:\t0000000000000000");
	assert_text(r.text, "Threads:\t1\n");
	assert_text(r.text, "\n/usr/share\n");
	assert_null(strstr(r.text, "Seccomp:\t2"));
}

static void user_groups_and_limits(void **state)
{
	struct run r;

	(void)state;
	if (geteuid() != 0)
		skip();
	run(&r, "id -u; id -g; id -G; ulimit -n; ulimit -Hn; cat /proc/self/oom_score_adj; cat /proc/$$/status",
	    json_pack("{s:i, s:i, s:[i, i], s:i, s:i}", "uid", 65534, "gid", 12345, "groups", 7, 8,
		      "nofile", 300, "oom-score-adj", 500));
	assert_text(r.text, "65534\n12345\n12345 7 8\n300\n300\n500\n");
	assert_text(r.text, "Uid:\t65534\t65534\t65534\t65534\n");
	assert_text(r.text, "Gid:\t12345\t12345\t12345\t12345\n");
	assert_text(r.text, "CapEff:\t0000000000000000");
	/* A user without groups gets none of the engine's. */
	run(&r, "id -G; cat /etc/shadow 2>&1 || true", json_pack("{s:i, s:i}", "uid", 65534, "gid", 12345));
	assert_text(r.text, "12345\n");
	assert_text(r.text, "ermission denied");
}

static void cgroup_is_joined(void **state)
{
	char folder[] = "/tmp/torpor-cgroup-XXXXXX", path[64], text[16] = "";
	struct run r;
	FILE *f;

	(void)state;
	/* Any folder with that file will do to see that it is written, and written first. */
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	run(&r, "true", json_pack("{s:s}", "cgroup", folder));
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	assert_string_equal(text, "0");
	unlink(path);
	assert_refused(shell("true", json_pack("{s:s}", "cgroup", folder)), "IOError", "cgroup.procs");
	rmdir(folder);
}

/* A file that holds one digit, open for reading at its beginning. */
static int digit_file(int digit)
{
	int fd = memfd_create("digit", MFD_CLOEXEC);
	char c = (char)('0' + digit);

	assert_int_equal(pwrite(fd, &c, 1, 0), 1);
	return fd;
}

/*
 * Numbers on both sides overlap: received descriptors have the lowest free numbers from 4 on, and
 * those are wanted for others, crosswise.
 */
static void descriptors_get_their_numbers(void **state)
{
	static const char script[] =
		"for n in 10 11 12 13 14 200 255; do read -r x <&$n; echo \"$n=$x\"; done;"
		"ls /proc/self/fd | sort -n | tr '\\n' ' '";
	static const int numbers[] = { 14, 255, 13, 10, 11, 200, 12 };
	json_t *inherit = json_object();
	char names[100] = "", name[8];
	int fds[TP_N(numbers)];
	struct run r;

	(void)state;
	for (size_t i = 0; i < TP_N(numbers); i++) {
		fds[i] = digit_file((int)i);
		snprintf(name, sizeof(name), "f%zu", i);
		json_object_set_new(inherit, name, json_integer(numbers[i]));
		strcat(names, i ? "," : "");
		strcat(names, name);
	}
	/* dash knows descriptors of one digit only. */
	run_start(&r, names, fds, TP_N(numbers),
		  json_pack("{s:[s, s, s], s:{s:s}, s:o}", "argv", "bash", "-c", script, "env", "PATH",
			    "/usr/bin:/bin", "inherit", inherit));
	for (size_t i = 0; i < TP_N(fds); i++)
		close(fds[i]);
	assert_exit(run_end(&r), 0);
	assert_text(r.text, "10=3\n11=4\n12=6\n13=2\n14=0\n200=5\n255=1\n");
	/* Nothing else: 3 is the folder that ls reads, not the control connection. */
	assert_text(r.text, "\n0 1 2 3 10 11 12 13 14 200 255 ");
}

static void standard_descriptors(void **state)
{
	int in = digit_file(9), errors = memfd_create("err", MFD_CLOEXEC);
	char text[16] = "";
	struct run r;

	(void)state;
	run_start(&r, "stderr,stdin", (int[]){ errors, in }, 2, shell("cat; echo oops >&2", NULL));
	assert_exit(run_end(&r), 0);
	assert_string_equal(r.text, "9");
	assert_int_equal(pread(errors, text, sizeof(text) - 1, 0), 5);
	assert_string_equal(text, "oops\n");
	close(in);
	close(errors);
}

static void program_is_looked_up_in_its_own_path(void **state)
{
	char folder[] = "/tmp/torpor-path-XXXXXX", bin[64], path[100];
	struct run r;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(bin, sizeof(bin), "%s/torpor-probe", folder);
	f = fopen(bin, "w");
	assert_non_null(f);
	fputs("#!/bin/sh\necho found \"$@\"\n", f);
	fclose(f);
	snprintf(path, sizeof(path), "/nonexistent::/bin:%s", folder);
	/* Not executable: the reason is told although later folders have none. */
	assert_refused(json_pack("{s:[s], s:{s:s}}", "argv", "torpor-probe", "env", "PATH", path),
		       "IOError", "run torpor-probe: Permission denied");
	assert_int_equal(chmod(bin, 0755), 0);
	run_start(&r, "", NULL, 0, json_pack("{s:[s, s], s:{s:s}}", "argv", "torpor-probe", "it", "env",
					    "PATH", path));
	assert_exit(run_end(&r), 0);
	assert_string_equal(r.text, "found it\n");
	/* Not in the engine's PATH, nor in the present folder. */
	assert_refused(json_pack("{s:[s], s:{}, s:s}", "argv", "torpor-probe", "env", "cwd", folder),
		       "IOError", "No such file");
	/* Without PATH the usual folders. */
	run_start(&r, "", NULL, 0, json_pack("{s:[s, s], s:{}}", "argv", "echo", "hello", "env"));
	assert_exit(run_end(&r), 0);
	assert_string_equal(r.text, "hello\n");
	/* What is no program is not given to a shell. */
	f = fopen(bin, "w");
	assert_non_null(f);
	fputs("echo found\n", f);
	fclose(f);
	assert_refused(json_pack("{s:[s], s:{}}", "argv", bin, "env"), "IOError", "Exec format error");
	unlink(bin);
	rmdir(folder);
}

static void errors_carry_errno(void **state)
{
	tp_autojson json_t *e = NULL;
	struct mover_peer p;

	(void)state;
	start_job(&p, "launch", "", NULL, 0, json_pack("{s:[s], s:{}}", "argv", "/nonexistent/qemu",
						      "env"));
	e = mover_peer_expect(&p, "error");
	assert_int_equal(tp_json_int(e, "errno", 0), ENOENT);
	assert_text(tp_json_str(e, "desc"), "/nonexistent/qemu");
	assert_exit(mover_peer_wait(&p), MOVER_EXIT_EXEC);
	mover_peer_free(&p);
	assert_refused(shell("true", json_pack("{s:s}", "cwd", "/nonexistent")), "IOError",
		       "change to folder /nonexistent");
}

static void bad_descriptions(void **state)
{
	static const struct {
		const char *json, *part;
	} bad[] = {
		{ "{\"argv\": []}", "argv" }, { "{\"argv\": [\"\"]}", "argv" },
		{ "{\"argv\": \"sh\"}", "argv" }, { "{\"argv\": [\"sh\", 1]}", "argv" },
		{ "{\"env\": null}", "env" }, { "{\"env\": {\"A=B\": \"c\"}}", "env" },
		{ "{\"env\": {\"\": \"c\"}}", "env" }, { "{\"env\": {\"A\": 1}}", "env" },
		{ "{\"uid\": -1}", "uid" }, { "{\"uid\": 4294967295}", "uid" },
		{ "{\"gid\": \"root\"}", "gid" }, { "{\"groups\": 5}", "groups" },
		{ "{\"groups\": [\"wheel\"]}", "groups" }, { "{\"cwd\": \"tmp\"}", "cwd" },
		{ "{\"cgroup\": 1}", "cgroup" }, { "{\"nofile\": -5}", "nofile" },
		{ "{\"oom-score-adj\": 1001}", "oom-score-adj" },
		{ "{\"inherit\": []}", "inherit" }, { "{\"inherit\": {\"x\": 10}}", "no descriptor \"x\"" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++)
		assert_refused(shell("true", json_loads(bad[i].json, 0, NULL)), "GenericError",
			       bad[i].part);
}

static void bad_inheritance(void **state)
{
	static const struct {
		const char *json, *part;
	} bad[] = {
		{ "{}", "\"a\"" }, { "{\"inherit\": {\"a\": 10}}", "\"b\"" },
		{ "{\"inherit\": {\"a\": 10, \"b\": 10}}", "two descriptors" },
		{ "{\"inherit\": {\"a\": 9, \"b\": 10}}", "\"a\"" },
		{ "{\"inherit\": {\"a\": 10, \"b\": 256}}", "\"b\"" },
		{ "{\"inherit\": {\"a\": 10, \"b\": \"11\"}}", "\"b\"" },
	};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++) {
		struct mover_peer p;

		start_job(&p, "hook", "a,b", (int[]){ null, null }, 2,
			  shell("true", json_loads(bad[i].json, 0, NULL)));
		assert_job_error(&p, "GenericError", bad[i].part, MOVER_EXIT_EXEC);
		mover_peer_free(&p);
	}
	close(null);
}

/* With the engine gone before exec there is nobody to tell, and the program is run all the same:
 * what was asked for is done or the end is told by the process's end. */
static void program_does_not_need_the_engine(void **state)
{
	struct run r;

	(void)state;
	run_start(&r, "", NULL, 0, shell("echo done", NULL));
	mover_peer_close(&r.peer);
	assert_exit(mover_peer_wait(&r.peer), 0);
	assert_int_equal(pread(r.out, r.text, 5, 0), 5);
	close(r.out);
	mover_peer_free(&r.peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(status_and_environment_are_the_programs),
		cmocka_unit_test(process_is_its_own),
		cmocka_unit_test(user_groups_and_limits),
		cmocka_unit_test(cgroup_is_joined),
		cmocka_unit_test(descriptors_get_their_numbers),
		cmocka_unit_test(standard_descriptors),
		cmocka_unit_test(program_is_looked_up_in_its_own_path),
		cmocka_unit_test(errors_carry_errno),
		cmocka_unit_test(bad_descriptions),
		cmocka_unit_test(bad_inheritance),
		cmocka_unit_test(program_does_not_need_the_engine),
	};

	return run_mover_tests("mover_exec", tests, TP_N(tests));
}
