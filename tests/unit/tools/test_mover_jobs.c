/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_mover_jobs.c - Jobs load, verify and copy by the real program over real sockets */
#include "mover_test.h"

#include <dirent.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "fake/fake_image.h"
#include "storage/image_read.h"

struct load {
	struct fake_image image;
	struct mover_peer peer;
	int stream;	/* QEMU's end */
};

static void load_start(struct load *l, json_t *more_owned)
{
	int pair[2];

	assert_true(tp_socketpair(SOCK_STREAM, pair, NULL));
	start_job(&l->peer, "load", "stream,image", (int[]){ pair[0], l->image.fd }, 2, more_owned);
	close(pair[0]);
	l->stream = pair[1];
}

static void load_end(struct load *l)
{
	tp_close(&l->stream);
	mover_peer_free(&l->peer);
	fake_image_free(&l->image);
}

/* Reads up to n bytes of the stream and compares them, from offset `at`; returns how many came. */
static size_t read_stream(struct load *l, size_t at, size_t n)
{
	uint8_t *buf = malloc(n + 1);
	size_t got = 0;

	assert_non_null(buf);
	while (got < n) {
		struct pollfd pfd = { .fd = l->stream, .events = POLLIN };
		ssize_t k;

		assert_int_equal(poll(&pfd, 1, (int)(MOVER_PEER_WAIT * 1000)), 1);
		k = read(l->stream, buf + got, n - got);
		assert_true(k >= 0);
		if (k == 0)
			break;
		got += (size_t)k;
	}
	assert_true(at + got <= l->image.raw_len);
	assert_memory_equal(buf, l->image.raw + at, got);
	free(buf);
	return got;
}

static void load_whole(void **state)
{
	struct load l;
	tp_autojson json_t *done = NULL;

	(void)state;
	fake_image_make(&l.image, 200, 100000);
	load_start(&l, NULL);
	assert_hello(&l.peer);
	assert_int_equal(read_stream(&l, 0, l.image.raw_len + 1), l.image.raw_len);
	done = mover_peer_expect(&l.peer, "done");
	assert_non_null(done);
	assert_int_equal(tp_json_int(done, "raw-bytes", 0), l.image.raw_len);
	assert_int_equal(tp_json_int(done, "bytes", 0), lseek(l.image.fd, 0, SEEK_END));
	assert_null(mover_peer_receive(&l.peer));
	assert_exit(mover_peer_wait(&l.peer), 0);
	load_end(&l);
}

static void load_held_until_finish(void **state)
{
	struct load l;
	tp_autojson json_t *held = NULL, *done = NULL;
	int queued = -1;

	(void)state;
	fake_image_make(&l.image, 50, 20000);
	load_start(&l, json_pack("{s:b, s:i}", "hold", 1, "threads", 3));
	assert_hello(&l.peer);
	assert_int_equal(read_stream(&l, 0, l.image.tail_at), l.image.tail_at);
	held = mover_peer_expect(&l.peer, "held");
	assert_non_null(held);
	assert_int_equal(ioctl(l.stream, FIONREAD, &queued), 0);
	assert_int_equal(queued, 0);
	mover_peer_send(&l.peer, json_pack("{s:{}}", "finish"), NULL, 0);
	assert_int_equal(read_stream(&l, l.image.tail_at, l.image.raw_len),
			 l.image.raw_len - l.image.tail_at);
	done = mover_peer_expect(&l.peer, "done");
	assert_non_null(done);
	assert_exit(mover_peer_wait(&l.peer), 0);
	load_end(&l);
}

static void load_of_a_damaged_image_closes_the_stream(void **state)
{
	struct load l;

	(void)state;
	fake_image_make(&l.image, 50, 20000);
	fake_image_flip(&l.image, l.image.first_frame + 20 * l.image.frame_bytes + 100);
	load_start(&l, NULL);
	assert_hello(&l.peer);
	assert_true(read_stream(&l, 0, l.image.raw_len) <= 20 * 20000);
	assert_job_error(&l.peer, "Corrupt", "frame", MOVER_EXIT_ERROR);
	load_end(&l);
}

static void load_without_qemu_fails(void **state)
{
	struct load l;

	(void)state;
	fake_image_make(&l.image, 200, 100000);
	load_start(&l, NULL);
	tp_close(&l.stream);
	assert_hello(&l.peer);
	assert_job_error(&l.peer, "QemuError", "QEMU closed", MOVER_EXIT_ERROR);
	load_end(&l);
}

/* Threads and descriptors of the mover, as the engine could see them. */
static unsigned entries_of(pid_t pid, const char *what)
{
	char path[64];
	DIR *dir;
	unsigned n = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

/* A stalled QEMU costs the mover neither threads nor descriptors, and its end comes at once. */
static void load_ends_with_its_control_connection(void **state)
{
	struct load l;

	(void)state;
	fake_image_make(&l.image, 200, 100000);
	load_start(&l, json_pack("{s:i}", "threads", 4));
	assert_hello(&l.peer);
	read_stream(&l, 0, 1000000);
	/* 0 to 3, stream, image, two events; main, control, decoders. */
	assert_int_equal(entries_of(l.peer.pid, "fd"), 8);
	assert_int_equal(entries_of(l.peer.pid, "task"), 6);
	/* It gives way to running VMs. */
	assert_true(getpriority(PRIO_PROCESS, (id_t)l.peer.pid) > getpriority(PRIO_PROCESS, 0));
	assert_true(mover_peer_running(&l.peer));
	mover_peer_close(&l.peer);
	assert_exit(mover_peer_wait(&l.peer), MOVER_EXIT_ORPHAN);
	load_end(&l);
}

static void held_load_ends_with_its_control_connection(void **state)
{
	struct load l;
	tp_autojson json_t *held = NULL;

	(void)state;
	fake_image_make(&l.image, 3, 20000);
	load_start(&l, json_pack("{s:b}", "hold", 1));
	assert_hello(&l.peer);
	held = mover_peer_expect(&l.peer, "held");
	assert_non_null(held);
	mover_peer_close(&l.peer);
	assert_exit(mover_peer_wait(&l.peer), MOVER_EXIT_ORPHAN);
	assert_int_equal(read_stream(&l, 0, l.image.raw_len), l.image.tail_at);
	load_end(&l);
}

static void messages_of_a_later_engine_are_ignored(void **state)
{
	struct load l;
	tp_autojson json_t *held = NULL, *done = NULL;

	(void)state;
	fake_image_make(&l.image, 3, 20000);
	load_start(&l, json_pack("{s:b}", "hold", 1));
	mover_peer_send(&l.peer, json_pack("{s:{s:i}}", "throttle", "rate", 5), NULL, 0);
	assert_hello(&l.peer);
	held = mover_peer_expect(&l.peer, "held");
	assert_non_null(held);
	mover_peer_send(&l.peer, json_pack("{s:{}}", "finish"), NULL, 0);
	assert_int_equal(read_stream(&l, 0, l.image.raw_len + 1), l.image.raw_len);
	done = mover_peer_expect(&l.peer, "done");
	assert_non_null(done);
	assert_exit(mover_peer_wait(&l.peer), 0);
	load_end(&l);
}

static void nonsense_ends_the_job(void **state)
{
	struct load l;

	(void)state;
	fake_image_make(&l.image, 3, 20000);
	load_start(&l, json_pack("{s:b}", "hold", 1));
	assert_hello(&l.peer);
	assert_int_equal(send(l.peer.control, "finish!", 7, MSG_NOSIGNAL), 7);
	assert_exit(mover_peer_wait(&l.peer), MOVER_EXIT_ORPHAN);
	load_end(&l);
}

static const json_t *verify_error(struct mover_peer *p, const struct fake_image *f, json_t **message)
{
	const json_t *error;

	start_job(p, "verify", "image", &f->fd, 1, NULL);
	assert_hello(p);
	do {
		json_decref(*message);
		*message = mover_peer_receive(p);
		assert_non_null(*message);
	} while (json_object_get(*message, "progress"));
	error = json_object_get(*message, "error");
	assert_string_equal(tp_json_str(error, "class"), "Corrupt");
	assert_exit(mover_peer_wait(p), MOVER_EXIT_ERROR);
	mover_peer_free(p);
	return error;
}

static void verify_tells_what_is_damaged(void **state)
{
	struct fake_image f;
	struct mover_peer p;
	json_t *message = NULL;
	const json_t *error, *list;

	(void)state;
	/* Its frames hold no stream, so each is a damage; the seventh is one already when it is decoded. */
	fake_image_make(&f, 50, 20000);
	fake_image_flip(&f, f.first_frame + 7 * f.frame_bytes + 100);
	error = verify_error(&p, &f, &message);
	list = json_object_get(error, "damage");
	assert_int_equal(tp_json_int(error, "damaged", 0), 51);
	assert_int_equal(json_array_size(list), 32);
	for (size_t i = 0; i < 32; i++) {
		const json_t *d = json_array_get(list, i);

		assert_int_equal(tp_json_int(d, "frame", -1), i);
		assert_int_equal(tp_json_int(d, "offset", -1), f.first_frame + i * f.frame_bytes);
		assert_int_equal(tp_json_int(d, "length", -1), f.frame_bytes);
		assert_true(!strstr(tp_json_str(d, "what"), "raw offset") == (i == 7));
	}
	/* Without an index there are no places. */
	assert_int_equal(ftruncate(f.fd, 5000), 0);
	error = verify_error(&p, &f, &message);
	assert_null(json_object_get(error, "damage"));
	json_decref(message);
	fake_image_free(&f);
}

#define IOPRIO_CLASS_SHIFT 13

/* As seen from outside, of a job that waits. */
static void assert_priority(json_t *more_owned, int nice, int io_class)
{
	struct load l;
	tp_autojson json_t *held = NULL;
	long io;

	fake_image_make(&l.image, 3, 20000);
	load_start(&l, more_owned);
	assert_hello(&l.peer);
	held = mover_peer_expect(&l.peer, "held");
	assert_non_null(held);
	errno = 0;
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)l.peer.pid), nice);
	io = syscall(SYS_ioprio_get, 1, l.peer.pid);
	assert_int_equal(io >> IOPRIO_CLASS_SHIFT, io_class);
	mover_peer_close(&l.peer);
	assert_exit(mover_peer_wait(&l.peer), MOVER_EXIT_ORPHAN);
	load_end(&l);
}

static void background_gives_way_to_all(void **state)
{
	int own = getpriority(PRIO_PROCESS, 0);

	(void)state;
	assert_priority(json_pack("{s:b, s:b}", "hold", 1, "background", 1), 19, 3);
	/* An unprivileged test that is nicer itself cannot be made less so. */
	assert_priority(json_pack("{s:b, s:b}", "hold", 1, "background", 0), own > 5 ? own : 5, 2);
}

static void background_is_true_or_false(void **state)
{
	struct load l;

	(void)state;
	fake_image_make(&l.image, 3, 20000);
	load_start(&l, json_pack("{s:s}", "background", "yes"));
	assert_job_error(&l.peer, "GenericError", "\"background\" is neither true nor false", MOVER_EXIT_ERROR);
	load_end(&l);
}

/* An engine that does not read for a while loses progress, nothing else. */
static void messages_wait_for_a_slow_engine(void **state)
{
	struct load l;
	tp_autojson json_t *done = NULL;
	int small = 1;

	(void)state;
	fake_image_make(&l.image, 200, 100000);
	load_start(&l, NULL);
	setsockopt(l.peer.control, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(read_stream(&l, 0, l.image.raw_len + 1), l.image.raw_len);
	assert_hello(&l.peer);
	done = mover_peer_expect(&l.peer, "done");
	assert_non_null(done);
	assert_exit(mover_peer_wait(&l.peer), 0);
	load_end(&l);
}

#ifdef TP_FAULTS
static void load_with_fault(const char *fault, size_t at_least, size_t at_most)
{
	struct load l;
	size_t n;

	fake_image_make(&l.image, 50, 20000);
	load_start(&l, json_pack("{s:s}", "fault", fault));
	assert_hello(&l.peer);
	n = read_stream(&l, 0, l.image.raw_len);
	assert_in_range(n, at_least, at_most);
	if (!strncmp(fault, "io-error", 8)) {
		assert_job_error(&l.peer, "IOError", "read the image", MOVER_EXIT_ERROR);
	} else {
		int status = mover_peer_wait(&l.peer);

		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	load_end(&l);
}

static void faults_strike_where_they_should(void **state)
{
	struct load l;

	(void)state;
	load_with_fault("die-after-hello", 0, 0);
	load_with_fault("die-at-bytes:500000", 500000, 520000);
	load_with_fault("io-error-at-bytes:500000", 500000, 520000);
	fake_image_make(&l.image, 50, 20000);
	load_start(&l, json_pack("{s:s}", "fault", "stall-at-bytes:500000"));
	assert_hello(&l.peer);
	assert_int_equal(read_stream(&l, 0, 500000), 500000);
	assert_true(mover_peer_running(&l.peer));
	mover_peer_close(&l.peer);
	assert_exit(mover_peer_wait(&l.peer), MOVER_EXIT_ORPHAN);
	load_end(&l);
}
#endif

/* ---- copy */

static json_t *footer_of(const struct fake_image *image)
{
	struct image *img = image_open(image->fd, NULL);
	char text[17];

	assert_non_null(img);
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)image_info(img)->footer_checksum);
	image_close(img);
	return json_pack("{s:s}", "footer", text);
}

/* In its sandbox: read, written, decoded, cut to length, synced. */
static void copy_whole(void **state)
{
	tp_autoclose int copy = memfd_create("copy", MFD_CLOEXEC);
	tp_autojson json_t *done = NULL;
	struct mover_peer peer;
	struct fake_image image;
	struct image *img;

	(void)state;
	fake_image_make(&image, 200, 100000);
	start_job(&peer, "copy", "source,image", (int[]){ image.fd, copy }, 2, footer_of(&image));
	assert_hello(&peer);
	done = mover_peer_expect(&peer, "done");
	assert_int_equal(tp_json_int(done, "bytes", 0), lseek(image.fd, 0, SEEK_END));
	assert_int_equal(tp_json_int(done, "copied-bytes", 0), tp_json_int(done, "bytes", 1));
	assert_int_equal(tp_json_int(done, "kept-bytes", 1), 0);
	assert_exit(mover_peer_wait(&peer), 0);
	img = image_open(copy, NULL);
	assert_non_null(img);
	image_close(img);
	mover_peer_free(&peer);
	fake_image_free(&image);
}

static void copy_refuses_bad_requests(void **state)
{
	static const char *const footers[] = { "", "0123456789abcdeg", "0123456789ABCDEF", "0123456789abcdef0" };
	struct fake_image image;

	(void)state;
	fake_image_make(&image, 2, 1000);
	for (size_t i = 0; i < TP_N(footers); i++) {
		tp_autoclose int copy = memfd_create("copy", MFD_CLOEXEC);
		tp_autojson json_t *error = NULL;
		struct mover_peer peer;

		start_job(&peer, "copy", "source,image", (int[]){ image.fd, copy }, 2,
			  json_pack("{s:s}", "footer", footers[i]));
		assert_hello(&peer);
		error = mover_peer_expect(&peer, "error");
		assert_text(tp_json_str(error, "desc"), "footer");
		assert_exit(mover_peer_wait(&peer), 1);
		mover_peer_free(&peer);
	}
	fake_image_free(&image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_whole),
		cmocka_unit_test(copy_refuses_bad_requests),
		cmocka_unit_test(load_whole),
		cmocka_unit_test(load_held_until_finish),
		cmocka_unit_test(load_of_a_damaged_image_closes_the_stream),
		cmocka_unit_test(load_without_qemu_fails),
		cmocka_unit_test(load_ends_with_its_control_connection),
		cmocka_unit_test(held_load_ends_with_its_control_connection),
		cmocka_unit_test(messages_of_a_later_engine_are_ignored),
		cmocka_unit_test(nonsense_ends_the_job),
		cmocka_unit_test(verify_tells_what_is_damaged),
		cmocka_unit_test(background_gives_way_to_all),
		cmocka_unit_test(background_is_true_or_false),
		cmocka_unit_test(messages_wait_for_a_slow_engine),
#ifdef TP_FAULTS
		cmocka_unit_test(faults_strike_where_they_should),
#endif
	};

	return run_mover_tests("mover_jobs", tests, TP_N(tests));
}
