/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_io_worker.c - Order, errors, the queue's end, a thread that hangs */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/io_worker.h"

struct item {
	int number, gate;	/* gate: a descriptor to read before it goes on; -1: none */
	bool fails, ran, other_thread, masked, done;
	pthread_t loop_thread;
	struct tp_error err;
};

static int order[IO_WORKER_QUEUE + 8], ndone;

static bool run(void *arg, struct tp_error *err)
{
	struct item *item = arg;
	sigset_t now;
	char c;

	item->ran = true;
	item->other_thread = !pthread_equal(pthread_self(), item->loop_thread);
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	item->masked = sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGINT) == 1;
	if (item->gate >= 0 && read(item->gate, &c, 1) < 0)
		return tp_fail_sys(err, errno, "gate");
	return !item->fails || tp_fail_sys(err, EIO, "item %d", item->number);
}

static void done(void *arg, const struct tp_error *err)
{
	struct item *item = arg;

	item->done = true;
	if (err)
		item->err = *err;
	order[ndone++] = item->number;
}

static struct item make(int number)
{
	return (struct item){ .number = number, .gate = -1, .loop_thread = pthread_self() };
}

static struct io_worker *start(struct ev_loop **loop)
{
	struct tp_error err = TP_ERROR_INIT;
	struct io_worker *w;

	ndone = 0;
	*loop = ev_loop_new(0);
	w = io_worker_new(*loop, "a-pool-with-a-rather-long-name", &err);
	assert_non_null(w);
	assert_string_equal(io_worker_name(w), "a-pool-with-a-rather-long-name");
	return w;
}

static void test_order(void **state)
{
	struct item items[3] = { make(0), make(1), make(2) };
	struct tp_error err = TP_ERROR_INIT;
	struct ev_loop *loop;
	struct io_worker *w = start(&loop);

	(void)state;
	items[1].fails = true;
	for (int i = 0; i < 3; i++)
		assert_true(io_worker_submit(w, run, done, &items[i], &err));
	assert_int_equal(io_worker_pending(w), 3);
	assert_int_equal(ndone, 0);		/* never inside the call */
	ev_run(loop, 0);			/* ends when nothing is pending */
	assert_int_equal(ndone, 3);
	assert_int_equal(io_worker_pending(w), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(order[i], i);
		assert_true(items[i].ran && items[i].other_thread && items[i].masked);
		assert_int_equal(items[i].err.code, i == 1 ? TP_ESYS : TP_OK);
	}
	assert_int_equal(items[1].err.sys, EIO);
	io_worker_free(w, 1);
	ev_loop_destroy(loop);
}

static void test_free_drops_the_queue(void **state)
{
	struct item items[3] = { make(0), make(1), make(2) };
	struct tp_error err = TP_ERROR_INIT;
	struct ev_loop *loop;
	struct io_worker *w = start(&loop);
	int gate[2];

	(void)state;
	assert_int_equal(pipe(gate), 0);
	items[0].gate = gate[0];
	for (int i = 0; i < 3; i++)
		assert_true(io_worker_submit(w, run, done, &items[i], &err));
	assert_int_equal(write(gate[1], "x", 1), 1);
	/* Which of them had begun is the thread's affair; each is completed once. */
	io_worker_free(w, 10);
	assert_int_equal(ndone, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(order[i], i);
		assert_int_equal(items[i].err.code, items[i].ran ? TP_OK : TP_ECANCELLED);
	}
	close(gate[0]);
	close(gate[1]);
	ev_loop_destroy(loop);
}

static void test_queue_is_bounded(void **state)
{
	static struct item items[IO_WORKER_QUEUE + 1];
	struct tp_error err = TP_ERROR_INIT;
	struct ev_loop *loop;
	struct io_worker *w = start(&loop);
	int gate[2];

	(void)state;
	assert_int_equal(pipe(gate), 0);
	for (int i = 0; i <= IO_WORKER_QUEUE; i++)
		items[i] = make(i);
	items[0].gate = gate[0];
	for (int i = 0; i < IO_WORKER_QUEUE; i++)
		assert_true(io_worker_submit(w, run, done, &items[i], &err));
	assert_false(io_worker_submit(w, run, done, &items[IO_WORKER_QUEUE], &err));
	assert_int_equal(err.code, TP_ELIMIT);
	assert_int_equal(write(gate[1], "x", 1), 1);
	ev_run(loop, 0);
	assert_int_equal(ndone, IO_WORKER_QUEUE);
	io_worker_free(w, 1);
	close(gate[0]);
	close(gate[1]);
	ev_loop_destroy(loop);
}

static int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	assert_non_null(dir);
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* Its item is given up, so it must outlive the test; the loop may be destroyed. */
static void test_hanging_thread(void **state)
{
	static struct item hangs, queued;
	struct tp_error err = TP_ERROR_INIT;
	struct ev_loop *loop;
	struct io_worker *w = start(&loop);
	static int gate[2];

	(void)state;
	assert_int_equal(pipe(gate), 0);
	hangs = make(0);
	queued = make(1);
	hangs.gate = gate[0];
	assert_true(io_worker_submit(w, run, done, &hangs, &err));
	assert_true(io_worker_submit(w, run, done, &queued, &err));
	for (int i = 0; i < 20000 && !*(volatile bool *)&hangs.ran; i++)
		usleep(500);
	assert_true(hangs.ran);
	io_worker_free(w, 0.05);
	assert_false(hangs.done);
	assert_true(queued.done);
	assert_int_equal(queued.err.code, TP_ECANCELLED);
	ev_loop_destroy(loop);
	/* It comes back after all: it frees the worker and tells nobody. */
	assert_int_equal(write(gate[1], "x", 1), 1);
	for (int i = 0; i < 20000 && threads() > 1; i++)
		usleep(500);
	assert_int_equal(threads(), 1);
	assert_false(hangs.done);
	close(gate[0]);
	close(gate[1]);
}

/* Before the loop runs: completions come from the wait itself, once, in order. */
static void test_wait(void **state)
{
	struct item items[2] = { make(0), make(1) };
	struct tp_error err = TP_ERROR_INIT;
	struct ev_loop *loop;
	struct io_worker *w = start(&loop);
	int gate[2];

	(void)state;
	assert_true(io_worker_wait(w, 0));		/* nothing to wait for */
	assert_true(io_worker_busy(w) == 0);
	assert_int_equal(pipe(gate), 0);
	items[0].gate = gate[0];
	for (int i = 0; i < 2; i++)
		assert_true(io_worker_submit(w, run, done, &items[i], &err));
	assert_false(io_worker_wait(w, 0.05));
	assert_int_equal(ndone, 0);
	assert_true(io_worker_busy(w) >= 0.04);
	assert_int_equal(write(gate[1], "x", 1), 1);
	assert_true(io_worker_wait(w, 20));
	assert_int_equal(ndone, 2);
	assert_int_equal(order[1], 1);
	assert_true(io_worker_busy(w) == 0);
	assert_int_equal(io_worker_pending(w), 0);
	ev_run(loop, 0);
	assert_int_equal(ndone, 2);
	assert_true(io_worker_free(w, 1));
	ev_loop_destroy(loop);
	close(gate[0]);
	close(gate[1]);
}

static void test_free_null(void **state)
{
	(void)state;
	io_worker_free(NULL, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order), cmocka_unit_test(test_free_drops_the_queue),
		cmocka_unit_test(test_queue_is_bounded), cmocka_unit_test(test_hanging_thread),
		cmocka_unit_test(test_wait), cmocka_unit_test(test_free_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
