/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_frame_pool.c - Frames come out in order, whatever the threads do; failures; signals
 */
#include "image_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <zstd.h>

#include "storage/frame_pool.h"

static struct frame_pool *new_pool(int fd, unsigned threads, uint64_t limit)
{
	struct frame_pool_options o = { .fd = fd, .offset = 100, .threads = threads, .limit = limit,
					.level = 1, .buffer = 1000 };
	struct frame_pool *p = frame_pool_new(&o, NULL);

	assert_non_null(p);
	return p;
}

static void fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = seed % 3 ? (uint8_t)seed : (uint8_t)((seed + i) * 2654435761u >> 13);
}

/* Sizes from 1 byte to 200 KiB, so that small frames overtake large ones. */
static size_t size_of(unsigned i)
{
	return i % 7 == 0 ? 200 << 10 : 1 + i * 37 % 500;
}

static void in_order(void **state)
{
	(void)state;
	for (unsigned threads = 1; threads <= 16; threads *= 2) {
		int fd = memfd_create("frames", MFD_CLOEXEC);
		struct frame_pool *p = new_pool(fd, threads, 0);
		const struct frame_table *t;
		uint64_t at = 100;
		uint8_t *stored = malloc(1 << 20), *raw = malloc(1 << 20), *want = malloc(1 << 20);
		bool failed, done;

		for (unsigned i = 0; i < 400; i++) {
			struct frame_buf *b = frame_pool_get(p, 10000, &failed);

			assert_non_null(b);
			assert_true(frame_buf_grow(b, size_of(i), 0, NULL));
			fill(b->data, size_of(i), i);
			frame_pool_submit(p, (uint32_t)size_of(i), (uint16_t)i, (uint16_t)(i & 7));
		}
		assert_true(frame_pool_finish(p, 30000, &done, NULL));
		assert_true(done);
		t = frame_pool_table(p);
		assert_int_equal(t->n, 400);
		for (unsigned i = 0; i < 400; i++) {
			assert_int_equal(t->raw[i], size_of(i));
			assert_int_equal(t->block[i], i);
			assert_int_equal(pread(fd, stored, t->stored[i], (off_t)at), t->stored[i]);
			assert_int_equal(ZSTD_decompress(raw, 1 << 20, stored, t->stored[i]), size_of(i));
			fill(want, size_of(i), i);
			assert_memory_equal(raw, want, size_of(i));
			at += t->stored[i];
		}
		assert_int_equal(frame_pool_offset(p), at);
		frame_pool_free(p);
		free(stored);
		free(raw);
		free(want);
		close(fd);
	}
}

static void submit_until_failure(struct frame_pool *p, struct tp_error *err)
{
	bool failed = false;

	for (unsigned i = 0; i < 5000; i++) {
		struct frame_buf *b = frame_pool_get(p, 10000, &failed);

		if (!b)
			break;
		assert_true(frame_buf_grow(b, 60000, 0, NULL));
		fill(b->data, 60000, 3 * i);
		frame_pool_submit(p, 60000, 0, 0);
	}
	assert_true(failed);
	assert_true(frame_pool_failed(p, err));
}

static void failures_reach_the_producer(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct frame_pool *p;
	bool done;
	int fd;

	(void)state;
	fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	p = new_pool(fd, 3, 0);
	submit_until_failure(p, &err);
	assert_string_equal(tp_error_class(&err), "InsufficientSpace");
	assert_false(frame_pool_finish(p, 1000, &done, NULL));
	frame_pool_free(p);
	close(fd);

	tp_error_clear(&err);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	p = new_pool(fd, 3, 0);
	submit_until_failure(p, &err);
	assert_int_equal(err.sys, EBADF);
	frame_pool_free(p);
	close(fd);

	tp_error_clear(&err);
	fd = memfd_create("frames", MFD_CLOEXEC);
	p = new_pool(fd, 2, 1 << 20);
	submit_until_failure(p, &err);
	assert_string_equal(tp_error_class(&err), "InsufficientSpace");
	assert_true(frame_pool_offset(p) <= 1 << 20);
	frame_pool_free(p);
	close(fd);
}

static void freed_in_the_middle(void **state)
{
	int fd = memfd_create("frames", MFD_CLOEXEC);

	(void)state;
	for (unsigned i = 0; i < 30; i++) {
		struct frame_pool *p = new_pool(fd, 4, 0);
		bool failed;

		for (unsigned k = 0; k < i; k++) {
			struct frame_buf *b = frame_pool_get(p, 10000, &failed);

			assert_true(frame_buf_grow(b, 100000, 0, NULL));
			fill(b->data, 100000, 3 * k);
			frame_pool_submit(p, 100000, 0, 0);
		}
		frame_pool_free(p);
	}
	close(fd);
}

static volatile sig_atomic_t on_main;
static pthread_t main_thread;

static void on_signal(int sig)
{
	(void)sig;
	on_main += pthread_equal(pthread_self(), main_thread) ? 1 : 1000;
}

/* With the producer's signals blocked none may be delivered to a worker. */
static void workers_take_no_signals(void **state)
{
	int fd = memfd_create("frames", MFD_CLOEXEC);
	struct frame_pool *p = new_pool(fd, 8, 0);
	struct sigaction act = { .sa_handler = on_signal }, before;
	sigset_t set, old;

	(void)state;
	main_thread = pthread_self();
	sigaction(SIGUSR1, &act, &before);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	for (unsigned i = 0; i < 10; i++)
		kill(getpid(), SIGUSR1);
	frame_pool_free(p);
	assert_int_equal(on_main, 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	assert_int_equal(on_main, 1);
	sigaction(SIGUSR1, &before, NULL);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order),
		cmocka_unit_test(failures_reach_the_producer),
		cmocka_unit_test(freed_in_the_middle),
		cmocka_unit_test(workers_take_no_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
