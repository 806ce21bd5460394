/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_mover_view.c - The device node that a launch gets for a lazy restore
 *
 * The test is "the host": it goes into a mount namespace of its own and shares its mounts, as hosts
 * do. What the mover runs is this program again, told by its first argument: it says what it finds.
 */
#include "mover_test.h"

#include <limits.h>
#include <linux/capability.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define DEVICE "/dev/userfaultfd"
#define PROBE_FD 10
#define USER 65534
#define WAIT_MS 20000

/* --- the program --- */

/* Whether the device is good for what QEMU does with it. */
static const char *use_device(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int device = open(DEVICE, O_RDWR | O_CLOEXEC), uffd;

	if (device < 0)
		return strerror(errno);
	uffd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) < 0)
		return "opened only";
	return "works";
}

static void say_namespace(void)
{
	char name[64] = "";

	if (readlink("/proc/self/ns/mnt", name, sizeof(name) - 1) < 0)
		_exit(3);
	printf("namespace %s\n", name);
}

/* Then, for each byte of stdin, whether the file that argv names is there. */
static int probe(const char *file)
{
	struct stat st;
	char c;

	if (stat(DEVICE, &st) < 0)
		return 3;
	setvbuf(stdout, NULL, _IONBF, 0);
	say_namespace();
	printf("node %o %u:%u\n", (unsigned)st.st_mode, (unsigned)st.st_uid, (unsigned)st.st_gid);
	printf("device %s\n", use_device());
	printf("folder %s\n", access("here", F_OK) == 0 ? "as it was" : "covered");
	while (read(STDIN_FILENO, &c, 1) == 1)
		printf("file %s\n", access(file, F_OK) == 0 ? "there" : "gone");
	return 0;
}

/* --- the test --- */

/* A run of the program: what it writes comes through `out`. */
struct run {
	struct mover_peer peer;
	int in, out;
	char text[4096];
	size_t len;
};

static char folder[] = "/tmp/torpor-view-XXXXXX";
static char mark[sizeof(folder) + 16];

static void make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	close(fd);
}

static void run_start(struct run *r, json_t *more_owned)
{
	int in[2], out[2], self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	json_t *o = json_pack("{s:[s, s, s], s:{}, s:s, s:{s:i}}", "argv", "/proc/self/fd/10", "probe", mark, "env",
			      "cwd", folder, "inherit", "probe", PROBE_FD);

	memset(r, 0, sizeof(*r));
	assert_true(self >= 0);
	assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	json_object_update(o, more_owned);
	json_decref(more_owned);
	start_job(&r->peer, "launch", "stdin,stdout,probe", (int[]){ in[0], out[1], self }, 3, o);
	close(in[0]);
	close(out[1]);
	close(self);
	r->in = in[1];
	r->out = out[0];
}

/* Reads until this is what was said last; an end is one, too. */
static void run_says(struct run *r, const char *last)
{
	while (r->len < sizeof(r->text) - 1) {
		struct pollfd pfd = { .fd = r->out, .events = POLLIN };
		ssize_t n;

		if (r->len >= strlen(last) && strcmp(r->text + r->len - strlen(last), last) == 0)
			return;
		if (poll(&pfd, 1, WAIT_MS) <= 0)
			break;
		n = read(r->out, r->text + r->len, sizeof(r->text) - 1 - r->len);
		if (n <= 0)
			break;
		r->len += (size_t)n;
	}
	fail_msg("it said \"%s\", not \"%s\"", r->text, last);
}

static void run_file_is(struct run *r, const char *answer)
{
	r->len = 0;
	memset(r->text, 0, sizeof(r->text));
	assert_int_equal(write(r->in, "?", 1), 1);
	run_says(r, answer);
}

static void run_end(struct run *r)
{
	close(r->in);
	assert_exit(mover_peer_wait(&r->peer), 0);
	close(r->out);
	mover_peer_free(&r->peer);
}

static void assert_no_message(struct run *r)
{
	tp_autojson json_t *message = mover_peer_receive(&r->peer);

	if (message)
		fail_msg("message %s", json_dumps(message, 0));
}

static json_t *nobody(void)
{
	return json_pack("{s:i, s:i, s:[i]}", "uid", USER, "gid", USER, "groups", USER);
}

static json_t *nobody_with_device(void)
{
	json_t *o = nobody();

	tp_json_set(o, "userfaultfd", json_integer(USER));
	return o;
}

static char *read_mounts(void)
{
	char *text = calloc(1, 1 << 16);
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

	for (ssize_t n, at = 0; (n = read(fd, text + at, (size_t)((1 << 16) - 1 - at))) > 0;)
		at += n;
	close(fd);
	return text;
}

/* Why nothing can be tried here. NULL: it can. */
static const char *missing(void)
{
	struct stat st;

	if (geteuid() != 0)
		return "is not root";
	if (stat(DEVICE, &st) < 0)
		return "has no " DEVICE;
	if (st.st_mode & (S_IROTH | S_IWOTH))
		return "lets everybody open " DEVICE;
	return NULL;
}

/* Skips by name; once there, this process stays in its namespace. */
static bool become_host(void)
{
	static bool is_host;
	const char *why = missing();

	if (!why && !is_host && unshare(CLONE_NEWNS) < 0)
		why = "may make no mount namespace";
	if (!why && !is_host && mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL) < 0)
		why = "may share no mounts";
	if (why)
		print_message("SKIP: this test %s\n", why);
	is_host = !why;
	return is_host;
}

static int set_up(void **state)
{
	char here[sizeof(folder) + 16];

	(void)state;
	if (!mkdtemp(folder) || chmod(folder, 0755) < 0)
		return -1;
	snprintf(here, sizeof(here), "%s/here", folder);
	snprintf(mark, sizeof(mark), "%s/later/mark", folder);
	make_file(here);
	snprintf(here, sizeof(here), "%s/later", folder);
	return mkdir(here, 0755);
}

static int tear_down(void **state)
{
	char path[sizeof(folder) + 16];

	(void)state;
	snprintf(path, sizeof(path), "%s/here", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/later", folder);
	rmdir(path);
	return rmdir(folder);
}

static void only_that_user_gets_a_node(void **state)
{
	struct run with, without;
	struct stat before, after;
	char *mounts, *mounts_after;

	(void)state;
	if (!become_host())
		skip();
	assert_int_equal(stat(DEVICE, &before), 0);
	mounts = read_mounts();
	run_start(&without, nobody());
	run_start(&with, nobody_with_device());
	assert_no_message(&with);
	assert_no_message(&without);
	run_says(&with, "folder as it was\n");
	run_says(&without, "folder as it was\n");
	assert_text(with.text, "node 20600 65534:0\n");
	assert_text(with.text, "device works\n");
	assert_text(without.text, "device Permission denied\n");
	/* The host is as before while that program runs. */
	assert_int_equal(stat(DEVICE, &after), 0);
	assert_true(before.st_dev == after.st_dev && before.st_ino == after.st_ino);
	assert_true(before.st_mode == after.st_mode && before.st_uid == after.st_uid);
	assert_true(before.st_ctim.tv_sec == after.st_ctim.tv_sec);
	mounts_after = read_mounts();
	assert_string_equal(mounts, mounts_after);
	free(mounts);
	free(mounts_after);
	run_end(&with);
	run_end(&without);
}

/* The user may be one that QEMU becomes later by itself. */
static void node_is_for_whom_it_was_asked(void **state)
{
	struct run r;

	(void)state;
	if (!become_host())
		skip();
	run_start(&r, json_pack("{s:i}", "userfaultfd", 12345));
	assert_no_message(&r);
	run_says(&r, "folder as it was\n");
	assert_text(r.text, "node 20600 12345:0\n");
	run_end(&r);
}

static void mounts_of_the_host_arrive(void **state)
{
	char path[sizeof(folder) + 16];
	struct run r;

	(void)state;
	if (!become_host())
		skip();
	snprintf(path, sizeof(path), "%s/later", folder);
	run_start(&r, nobody_with_device());
	assert_no_message(&r);
	run_says(&r, "folder as it was\n");
	run_file_is(&r, "file gone\n");
	assert_int_equal(mount("test", path, "tmpfs", 0, "mode=0755"), 0);
	make_file(mark);
	run_file_is(&r, "file there\n");
	/* Nor does it keep busy what the host unmounts. */
	assert_int_equal(umount2(path, 0), 0);
	run_file_is(&r, "file gone\n");
	run_end(&r);
}

static void folder_is_needed(void **state)
{
	struct mover_peer p;

	(void)state;
	start_job(&p, "launch", "", NULL, 0, json_pack("{s:[s], s:{}, s:i}", "argv", "true", "env",
						       "userfaultfd", 1));
	assert_job_error(&p, "GenericError", "\"userfaultfd\" needs \"cwd\"", MOVER_EXIT_EXEC);
	mover_peer_free(&p);
	start_job(&p, "launch", "", NULL, 0, json_pack("{s:[s], s:{}, s:s, s:s}", "argv", "true", "env", "cwd", "/",
						       "userfaultfd", "nobody"));
	assert_job_error(&p, "GenericError", "\"userfaultfd\"", MOVER_EXIT_EXEC);
	mover_peer_free(&p);
}

/* The program runs all the same, in the namespace of the host, and the reason is told. */
static void assert_refused(const char *why)
{
	tp_autojson json_t *refused = NULL;
	char name[64] = "";
	struct run r;

	run_start(&r, nobody_with_device());
	refused = mover_peer_expect(&r.peer, "refused");
	assert_non_null(refused);
	assert_text(tp_json_str(refused, "desc"), why);
	assert_no_message(&r);
	run_says(&r, "folder as it was\n");
	assert_text(r.text, "device Permission denied\n");
	assert_true(readlink("/proc/self/ns/mnt", name, sizeof(name) - 1) > 0);
	assert_text(r.text, name);
	run_end(&r);
}

/* The last one: what the bounding set has lost, this process and its children never get back. */
static void refusal_is_told_and_harmless(void **state)
{
	(void)state;
	if (!become_host())
		skip();
	assert_int_equal(prctl(PR_CAPBSET_DROP, CAP_MKNOD, 0, 0, 0), 0);
	assert_refused("make a device node: Operation not permitted");
	assert_int_equal(prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0), 0);
	assert_refused("make a mount namespace: Operation not permitted");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_that_user_gets_a_node),
		cmocka_unit_test(node_is_for_whom_it_was_asked),
		cmocka_unit_test(mounts_of_the_host_arrive),
		cmocka_unit_test(folder_is_needed),
		cmocka_unit_test(refusal_is_told_and_harmless),
	};

	if (argc == 3 && strcmp(argv[1], "probe") == 0)
		return probe(argv[2]);
	if (set_up(NULL) < 0)
		return 1;
	int failed = run_mover_tests("mover_view", tests, TP_N(tests));

	tear_down(NULL);
	return failed;
}
