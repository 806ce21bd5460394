/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_op_journal.c - op.log: records, torn tails, its room, a full disk */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "engine/op_journal.h"

struct box {
	char path[64];
	int dir;
};

static int setup(void **state)
{
	struct box *b = calloc(1, sizeof(*b));

	strcpy(b->path, "/tmp/torpor-journal-XXXXXX");
	assert_non_null(mkdtemp(b->path));
	b->dir = tp_open_dir(b->path, NULL);
	assert_true(b->dir >= 0);
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct box *b = *state;
	char command[128];

	tp_close(&b->dir);
	snprintf(command, sizeof(command), "rm -rf '%s'", b->path);
	assert_int_equal(system(command), 0);
	free(b);
	return 0;
}

static int begin(struct box *b)
{
	struct tp_error err = TP_ERROR_INIT;
	int fd = op_journal_begin(b->dir, &err);

	if (fd < 0)
		fail_msg("%s", err.text);
	return fd;
}

static void append(int fd, const char *record, json_t *fields_owned)
{
	tp_autojson json_t *fields = fields_owned;
	struct tp_error err = TP_ERROR_INIT;

	if (!op_journal_append(fd, record, fields, &err))
		fail_msg("%s", err.text);
}

/* The records' names, joined. */
static void assert_log(struct box *b, const char *names, size_t torn_wanted)
{
	struct tp_error err = TP_ERROR_INIT;
	size_t torn = 99, i;
	tp_autojson json_t *log = op_journal_read(b->dir, &torn, &err);
	char text[200] = "";
	json_t *entry;

	assert_non_null(log);
	json_array_foreach(log, i, entry)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "",
			 tp_json_str(entry, "record"));
	assert_string_equal(text, names);
	assert_int_equal(torn, torn_wanted);
}

static void test_round(void **state)
{
	struct box *b = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *text = NULL;
	struct stat st;
	int fd;

	assert_log(b, "", 0);			/* absent */
	fd = begin(b);
	assert_log(b, "", 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(st.st_size, 0);
	assert_true((size_t)st.st_blocks * 512 >= OP_JOURNAL_ROOM);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	append(fd, "begin", json_pack("{s:s, s:{s:i}}", "op", "op-1", "was", "x", 1));
	append(fd, "enter", json_pack("{s:s}", "step", "pause"));
	append(fd, "commit", NULL);
	assert_true(op_journal_sync(fd, &err));
	assert_log(b, "begin enter commit", 0);
	text = tp_read_file(b->dir, "op.log", 4096, NULL, &err);
	assert_non_null(text);
	/* The checksum as `crc32` of zlib gives it. */
	assert_non_null(strstr(text, "8c0af6ce {\"record\":\"enter\",\"step\":\"pause\"}\n"));
	assert_true(op_journal_clear(fd, &err));
	assert_log(b, "", 0);
	append(fd, "begin", NULL);
	assert_log(b, "begin", 0);
	close(fd);
	/* Each operation begins anew. */
	fd = begin(b);
	assert_log(b, "", 0);
	close(fd);
}

static void write_log(struct box *b, const char *text, size_t n)
{
	assert_true(tp_replace_file(b->dir, "op.log", text, n, false, NULL));
}

/* Cut at each byte and flipped at each byte: only whole records before it are believed. */
static void test_damaged(void **state)
{
	struct box *b = *state;
	tp_autofree char *text = NULL;
	struct tp_error err = TP_ERROR_INIT;
	size_t n = 0, first;
	int fd = begin(b);

	append(fd, "begin", json_pack("{s:s}", "op", "op-1"));
	append(fd, "enter", json_pack("{s:s}", "step", "pause"));
	close(fd);
	text = tp_read_file(b->dir, "op.log", 4096, &n, &err);
	assert_non_null(text);
	first = (size_t)(strchr(text, '\n') - text) + 1;
	for (size_t cut = 0; cut < n; cut++) {
		write_log(b, text, cut);
		assert_log(b, cut < first ? "" : "begin", cut < first ? cut : cut - first);
	}
	for (size_t at = 0; at < n; at++) {
		text[at] ^= 1;
		write_log(b, text, n);
		assert_log(b, at < first ? "" : "begin", at < first ? n : n - first);
		text[at] ^= 1;
	}
	/* What a power cut may leave behind the end. */
	text[first] = '\0';
	write_log(b, text, n);
	assert_log(b, "begin", n - first);
}

static void test_blank(void **state)
{
	static const char zeros[4096], late[4096] = { [4095] = 'x' };
	struct box *b = *state;
	struct tp_error err = TP_ERROR_INIT;

	assert_true(op_journal_blank(b->dir, &err));
	write_log(b, "", 0);
	assert_true(op_journal_blank(b->dir, &err));
	write_log(b, zeros, sizeof(zeros));
	assert_true(op_journal_blank(b->dir, &err));
	write_log(b, late, sizeof(late));
	assert_false(op_journal_blank(b->dir, &err));
	write_log(b, "[1, 2, 3]\n", 10);
	assert_false(op_journal_blank(b->dir, &err));
	assert_int_equal(err.code, TP_OK);
	write_log(b, "", 0);
}

/* After a power cut the commit may be there without what was written before it. */
static void test_decides(void **state)
{
	struct box *b = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *step = json_pack("{s:s}", "step", "commit");
	char text[512] = "";
	ssize_t n;
	int fd;

	write_log(b, "", 0);
	assert_false(op_journal_decides(b->dir));
	fd = op_journal_begin(b->dir, &err);
	assert_true(fd >= 0);
	assert_true(op_journal_append(fd, "begin", NULL, &err));
	assert_false(op_journal_decides(b->dir));
	assert_true(op_journal_append(fd, "commit", step, &err));
	assert_true(op_journal_decides(b->dir));
	n = pread(fd, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	close(fd);
	memset(text, 0, strcspn(text, "\n"));
	write_log(b, text, (size_t)n);
	assert_true(op_journal_decides(b->dir));
	text[n - 3] ^= 1;
	write_log(b, text, (size_t)n);
	assert_false(op_journal_decides(b->dir));

	assert_true(op_journal_drop(b->dir, &err));
	assert_true(op_journal_blank(b->dir, &err));
	assert_int_equal(unlinkat(b->dir, "op.log", 0), 0);
	assert_false(op_journal_drop(b->dir, &err));
	assert_int_equal(err.sys, ENOENT);
}

static void test_set_aside(void **state)
{
	struct box *b = *state;
	struct tp_error err = TP_ERROR_INIT;
	struct dirent *e;
	DIR *dir;
	int found = 0;

	assert_false(op_journal_set_aside(b->dir, &err));
	write_log(b, "junk", 4);
	assert_log(b, "", 4);
	assert_true(op_journal_set_aside(b->dir, &err));
	assert_log(b, "", 0);
	dir = opendir(b->path);
	while ((e = readdir(dir)))
		found += strncmp(e->d_name, "op.log.bad-2", 12) == 0;
	closedir(dir);
	assert_int_equal(found, 1);
	write_log(b, "", 0);
}

static void test_room(void **state)
{
	struct box *b = *state;
	struct tp_error err = TP_ERROR_INIT;
	tp_autofree char *text = calloc(1, 4001);
	tp_autojson json_t *fields = NULL;
	int fd = begin(b), notes = 0;
	struct stat st;

	memset(text, 'n', 4000);
	fields = json_pack("{s:{s:s}}", "res", "key", text);
	while (notes < 100 && op_journal_append(fd, "note", fields, &err))
		notes++;
	/* Notes end early enough for what decides. */
	assert_true(notes >= 10 && notes < 16);
	assert_int_equal(err.code, TP_ELIMIT);
	append(fd, "commit", json_pack("{s:s}", "step", "seal"));
	append(fd, "back", json_incref(fields));
	tp_error_clear(&err);
	while (op_journal_append(fd, "back", fields, &err))
		;
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((size_t)st.st_size <= OP_JOURNAL_ROOM);
	close(fd);
}

/* In a process of its own, as it mounts a small file system. 77: it may not. */
static int on_full_disk(struct box *b)
{
	struct tp_error err = TP_ERROR_INIT;
	tp_autojson json_t *fields = json_pack("{s:s}", "step", "seal");
	char fill[4096];
	int fd, dir, filler;

	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", b->path, "tmpfs", 0, "size=128k,mode=700") != 0)
		return 77;
	dir = tp_open_dir(b->path, NULL);
	fd = op_journal_begin(dir, &err);
	if (fd < 0)
		return 1;
	memset(fill, 1, sizeof(fill));
	filler = openat(dir, "filler", O_WRONLY | O_CREAT, 0600);
	while (write(filler, fill, sizeof(fill)) == sizeof(fill))
		;
	/* A full disk cannot prevent a commit... */
	if (!op_journal_append(fd, "commit", fields, &err))
		return 2;
	/* ...but the next operation is refused, before it does anything. */
	if (!op_journal_clear(fd, &err) || write(filler, fill, 1) < 0)
		return 3;
	while (write(filler, fill, sizeof(fill)) > 0)
		;
	if (op_journal_begin(dir, &err) >= 0 || strcmp(err.class_, "InsufficientSpace") != 0)
		return 4;
	return 0;
}

static void test_full_disk(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(on_full_disk(*state));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("needs the right to mount a tmpfs\n");
		skip();
	}
	assert_int_equal(status, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_round), T(test_damaged), T(test_blank), T(test_decides), T(test_set_aside), T(test_room),
		T(test_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
