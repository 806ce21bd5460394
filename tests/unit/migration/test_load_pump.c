/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_load_pump.c - Loading: all bytes in order, nothing of a bad image beyond the damage, hold */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "fake/fake_image.h"
#include "migration/load_pump.h"

#define PATIENCE 20.0

/*
 * The reading end, as QEMU would be, and what the pump said.
 * @stop_at: it reads no further than so many bytes; 0: all
 */
struct peer {
	int fds[2];
	pthread_t thread;
	uint8_t *got;
	size_t room;
	atomic_size_t len;
	size_t stop_at;
	atomic_bool held, release, cancel;
	uint64_t progress, total;
	bool went_back;
};

static void *peer_main(void *arg)
{
	struct peer *p = arg;

	for (;;) {
		size_t want = p->room - p->len;
		ssize_t n;

		if (p->len + want > p->stop_at)
			want = p->stop_at - p->len;
		if (want == 0)
			break;
		n = read(p->fds[1], p->got + p->len, want);
		if (n <= 0)
			break;
		p->len += (size_t)n;
	}
	return NULL;
}

static void peer_start(struct peer *p, const struct fake_image *f)
{
	p->room = f->raw_len + 1;
	p->got = malloc(p->room);
	assert_non_null(p->got);
	if (!p->stop_at)
		p->stop_at = p->room;
	assert_true(tp_socketpair(SOCK_STREAM, p->fds, NULL));
	assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct peer *p = arg;

	p->went_back |= done < p->progress;
	p->progress = done;
	p->total = total;
}

static void on_held(void *arg)
{
	((struct peer *)arg)->held = true;
}

static bool on_release(void *arg)
{
	return ((struct peer *)arg)->release;
}

static bool on_cancelled(void *arg)
{
	return ((struct peer *)arg)->cancel;
}

static struct load_pump_options options(struct peer *p, const struct fake_image *f, unsigned threads)
{
	return (struct load_pump_options){
		.stream_fd = p->fds[0], .image_fd = f->fd, .threads = threads,
		.progress = on_progress, .held = on_held, .release = on_release,
		.cancelled = on_cancelled, .arg = p,
	};
}

static unsigned entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void load_all(unsigned frames, size_t frame_bytes, unsigned threads)
{
	struct fake_image f;
	struct peer p = { .stop_at = 0 };
	struct load_pump_options o;
	struct load_result r = { 0 };
	struct tp_error err = TP_ERROR_INIT;
	unsigned fds, tasks;

	fake_image_make(&f, frames, frame_bytes);
	peer_start(&p, &f);
	o = options(&p, &f, threads);
	fds = entries("/proc/self/fd");
	tasks = entries("/proc/self/task");
	if (!load_pump_run(&o, &r, &err))
		fail_msg("%s", err.text);
	assert_int_equal(entries("/proc/self/fd"), fds);
	/* A thread that was joined is a task for a moment longer. */
	for (unsigned i = 0; entries("/proc/self/task") != tasks; i++) {
		assert_true(i < 1000);
		usleep(1000);
	}
	tp_close(&p.fds[0]);
	pthread_join(p.thread, NULL);
	assert_int_equal(p.len, f.raw_len);
	assert_memory_equal(p.got, f.raw, f.raw_len);
	assert_int_equal(r.raw_bytes, f.raw_len);
	assert_int_equal(r.file_bytes, lseek(f.fd, 0, SEEK_END));
	assert_int_equal(p.progress, f.raw_len);
	assert_int_equal(p.total, f.raw_len);
	assert_false(p.went_back);
	tp_close(&p.fds[1]);
	free(p.got);
	fake_image_free(&f);
}

static void loads_many_frames(void **state)
{
	(void)state;
	load_all(40, 64 << 10, 1);
	load_all(40, 64 << 10, 2);
	load_all(200, 5000, 64);
}

static void loads_few_frames(void **state)
{
	(void)state;
	load_all(0, 0, 0);
	load_all(1, 1, 0);
}

static void loads_frames_of_the_largest_size(void **state)
{
	(void)state;
	load_all(2, 16 << 20, 4);
}

/* Whether what came is the beginning of the stream. */
static void assert_prefix(const struct peer *p, const struct fake_image *f)
{
	assert_true(p->len <= f->raw_len);
	assert_memory_equal(p->got, f->raw, p->len);
}

static void load_bad(const struct fake_image *f, enum tp_code code, const char *text, size_t at_most)
{
	struct peer p = { .stop_at = 0 };
	struct load_pump_options o;
	struct tp_error err = TP_ERROR_INIT;
	unsigned tasks;

	peer_start(&p, f);
	o = options(&p, f, 2);
	tasks = entries("/proc/self/task");
	assert_false(load_pump_run(&o, NULL, &err));
	/* A thread that was joined is a task for a moment longer. */
	for (unsigned i = 0; entries("/proc/self/task") != tasks; i++) {
		assert_true(i < 1000);
		usleep(1000);
	}
	assert_int_equal(err.code, code);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" lacks \"%s\"", err.text, text);
	tp_close(&p.fds[0]);
	pthread_join(p.thread, NULL);
	assert_prefix(&p, f);
	assert_true(p.len <= at_most);
	tp_close(&p.fds[1]);
	free(p.got);
}

static void sends_nothing_of_a_damaged_frame(void **state)
{
	const size_t size = 20000;
	static const unsigned frames[] = { 0, 1, 17, 39 };
	struct fake_image f;

	(void)state;
	for (size_t i = 0; i < TP_N(frames); i++) {
		uint64_t at;

		fake_image_make(&f, 40, size);
		at = f.first_frame + frames[i] * f.frame_bytes + f.frame_bytes / 2;
		fake_image_flip(&f, at);
		load_bad(&f, TP_ECORRUPT, "frame", frames[i] * size);
		fake_image_free(&f);
	}
}

static void keeps_the_end_back_if_frames_are_not_the_footers(void **state)
{
	struct fake_image f;

	(void)state;
	fake_image_make(&f, 10, 20000);
	fake_image_swap(&f, 4, 5);
	load_bad(&f, TP_ECORRUPT, "footer", 10 * 20000);
	fake_image_free(&f);
}

static void refuses_what_is_no_image(void **state)
{
	struct fake_image f;

	(void)state;
	fake_image_make(&f, 3, 20000);
	fake_image_flip(&f, 8);
	load_bad(&f, TP_ECORRUPT, "", 0);
	fake_image_free(&f);
}

static void *run_pump(void *arg)
{
	static struct tp_error err;

	tp_error_clear(&err);
	load_pump_run(arg, NULL, &err);
	return &err;
}

static bool wait_for(atomic_bool *flag)
{
	double until = tp_now_mono() + PATIENCE;

	while (!*flag && tp_now_mono() < until)
		poll(NULL, 0, 1);
	return *flag;
}

static bool wait_len(const struct peer *p, size_t len)
{
	double until = tp_now_mono() + PATIENCE;

	while (p->len < len && tp_now_mono() < until)
		poll(NULL, 0, 1);
	return p->len >= len;
}

static void holds_from_the_last_device_byte_on(void **state)
{
	struct fake_image f;
	struct peer p = { .stop_at = 0 };
	struct load_pump_options o;
	struct tp_error *err;
	pthread_t pump;
	int queued = -1;

	(void)state;
	fake_image_make(&f, 30, 50000);
	peer_start(&p, &f);
	o = options(&p, &f, 2);
	o.hold = true;
	assert_int_equal(pthread_create(&pump, NULL, run_pump, &o), 0);
	assert_true(wait_for(&p.held));
	assert_true(wait_len(&p, f.tail_at));
	assert_int_equal(ioctl(p.fds[1], FIONREAD, &queued), 0);
	assert_int_equal(queued, 0);
	assert_int_equal(p.len, f.tail_at);
	p.release = true;
	pthread_join(pump, (void **)&err);
	assert_int_equal(err->code, TP_OK);
	tp_close(&p.fds[0]);
	pthread_join(p.thread, NULL);
	assert_int_equal(p.len, f.raw_len);
	assert_memory_equal(p.got, f.raw, f.raw_len);
	tp_close(&p.fds[1]);
	free(p.got);
	fake_image_free(&f);
}

/* How a pump that waits ends: by cancel, or by QEMU's end. */
static void end_while_waiting(bool hold, bool cancel, enum tp_code code)
{
	struct fake_image f;
	struct peer p = { .stop_at = 0 };
	struct load_pump_options o;
	struct tp_error *err;
	pthread_t pump;

	fake_image_make(&f, 40, 50000);
	p.stop_at = hold ? (size_t)f.tail_at : 100000;
	peer_start(&p, &f);
	o = options(&p, &f, 2);
	o.hold = hold;
	assert_int_equal(pthread_create(&pump, NULL, run_pump, &o), 0);
	assert_true(wait_len(&p, p.stop_at));
	if (hold)
		assert_true(wait_for(&p.held));
	pthread_join(p.thread, NULL);
	if (cancel)
		p.cancel = true;
	else
		tp_close(&p.fds[1]);
	pthread_join(pump, (void **)&err);
	assert_int_equal(err->code, code);
	if (!cancel)
		assert_string_equal(tp_error_class(err), "QemuError");
	tp_close(&p.fds[0]);
	tp_close(&p.fds[1]);
	free(p.got);
	fake_image_free(&f);
}

static void ends_when_cancelled_or_left_alone(void **state)
{
	(void)state;
	end_while_waiting(false, true, TP_ECANCELLED);
	end_while_waiting(false, false, TP_EQMP);
	end_while_waiting(true, true, TP_ECANCELLED);
	end_while_waiting(true, false, TP_EQMP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loads_many_frames),
		cmocka_unit_test(loads_few_frames),
		cmocka_unit_test(loads_frames_of_the_largest_size),
		cmocka_unit_test(sends_nothing_of_a_damaged_frame),
		cmocka_unit_test(keeps_the_end_back_if_frames_are_not_the_footers),
		cmocka_unit_test(refuses_what_is_no_image),
		cmocka_unit_test(holds_from_the_last_device_byte_on),
		cmocka_unit_test(ends_when_cancelled_or_left_alone),
	};

	return cmocka_run_group_tests_name("load_pump", tests, NULL, NULL);
}
