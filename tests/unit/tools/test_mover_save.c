/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_mover_save.c - Job save by the real program: seal, hold, answer, outlive, drain */
#include "mover_test.h"

#include <sys/ioctl.h>

#include "unit/migration/stream_build.h"

#define UUID "00112233445566778899aabbccddeeff"
#define PAGES 2000

/* @sent: what QEMU writes; @stored: what the image must hold; @fed: how much was written */
struct save {
	struct tp_buf sent, stored;
	struct mover_peer peer;
	int stream, image;
	size_t fed;
};

static json_t *options(json_t *more_owned)
{
	json_t *o = json_pack("{s:s, s:i, s:i, s:b}", "uuid", UUID, "level", 1, "threads", 2,
			      "return-path", 1);

	if (more_owned)
		json_object_update(o, more_owned);
	json_decref(more_owned);
	return o;
}

static void save_start(struct save *s, json_t *more_owned)
{
	int pair[2];

	*s = (struct save){ .stream = -1 };
	sb_plain(&s->sent, PAGES, true);
	sb_plain(&s->stored, PAGES, false);
	assert_true(tp_socketpair(SOCK_STREAM, pair, NULL));
	s->image = memfd_create("image", MFD_CLOEXEC);
	start_job(&s->peer, "save", "stream,image", (int[]){ pair[0], s->image }, 2,
		  options(more_owned));
	close(pair[0]);
	s->stream = pair[1];
}

static void save_end(struct save *s)
{
	tp_close(&s->stream);
	mover_peer_free(&s->peer);
	tp_close(&s->image);
	tp_buf_free(&s->sent);
	tp_buf_free(&s->stored);
}

/* Writes up to n bytes more; stops when the mover closed. False: nobody read in time. */
static bool feed(struct save *s, size_t n)
{
	while (n > 0) {
		struct pollfd pfd = { .fd = s->stream, .events = POLLOUT };
		ssize_t k;

		if (poll(&pfd, 1, (int)(MOVER_PEER_WAIT * 1000)) != 1)
			return false;
		k = send(s->stream, s->sent.data + s->fed, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (k < 0 && errno != EAGAIN)
			return true;
		if (k > 0) {
			s->fed += (size_t)k;
			n -= (size_t)k;
		}
	}
	return true;
}

static bool feed_all(struct save *s)
{
	return feed(s, s->sent.len - s->fed);
}

/* What comes over the return path until the mover closes; at most 8 bytes are compared. */
static size_t read_answer(struct save *s, uint8_t answer[8])
{
	size_t got = 0;

	while (got < 8) {
		struct pollfd pfd = { .fd = s->stream, .events = POLLIN };
		ssize_t n;

		assert_int_equal(poll(&pfd, 1, (int)(MOVER_PEER_WAIT * 1000)), 1);
		n = read(s->stream, answer + got, 8 - got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

static void assert_silent(struct save *s)
{
	int queued = -1;
	struct pollfd pfd = { .fd = s->stream, .events = POLLIN };

	assert_int_equal(poll(&pfd, 1, 50), 0);
	assert_int_equal(ioctl(s->stream, FIONREAD, &queued), 0);
	assert_int_equal(queued, 0);
}

static void check_sealed(struct save *s, const json_t *sealed)
{
	const json_t *blocks = json_object_get(sealed, "blocks");
	char footer[17];
	struct image *img = image_open(s->image, NULL);

	assert_non_null(img);
	snprintf(footer, sizeof(footer), "%016llx",
		 (unsigned long long)image_info(img)->footer_checksum);
	image_close(img);
	assert_string_equal(tp_json_str(sealed, "footer"), footer);
	assert_string_equal(tp_json_str(sealed, "uuid"), UUID);
	assert_string_equal(tp_json_str(sealed, "machine"), "pc-q35-7.2");
	assert_string_equal(tp_json_str(sealed, "stream-kind"), "stopped");
	assert_int_equal(tp_json_int(sealed, "raw-bytes", 0), s->stored.len);
	assert_int_equal(tp_json_int(sealed, "bytes", 0), lseek(s->image, 0, SEEK_END));
	assert_int_equal(tp_json_int(sealed, "pages", 0), PAGES + 16);
	assert_int_equal(tp_json_int(sealed, "pages-data", 0) + tp_json_int(sealed, "pages-zero", 0),
			 PAGES + 16);
	assert_true(tp_json_int(sealed, "device-bytes", 0) > 3000);
	assert_true(tp_json_int(sealed, "frames", 0) > 10);
	assert_int_equal(json_array_size(blocks), 2);
	assert_string_equal(tp_json_str(json_array_get(blocks, 0), "id"), "pc.ram");
	assert_int_equal(tp_json_int(json_array_get(blocks, 1), "bytes", 0), 16 * 4096);
}

/* Up to the seal. */
static void save_to_seal(struct save *s, json_t *more_owned)
{
	tp_autojson json_t *sealed = NULL;

	save_start(s, more_owned);
	assert_hello(&s->peer);
	assert_true(feed_all(s));
	sealed = mover_peer_expect(&s->peer, "sealed");
	assert_non_null(sealed);
	check_sealed(s, sealed);
	assert_image(s->image, s->stored.data, s->stored.len);
}

static void finish(struct save *s, int status)
{
	mover_peer_send(&s->peer, json_pack("{s:{s:i}}", "finish", "status", status), NULL, 0);
}

static void save_seals_holds_and_answers(void **state)
{
	tp_autojson json_t *done = NULL;
	struct save s;
	uint8_t answer[8];

	(void)state;
	save_to_seal(&s, json_pack("{s:i}", "total", 100));
	assert_silent(&s);
	finish(&s, 0);
	assert_int_equal(read_answer(&s, answer), 8);
	assert_memory_equal(answer, "\0\1\0\4\0\0\0\0", 8);
	/* It waits for QEMU to close. */
	assert_silent(&s);
	assert_true(mover_peer_running(&s.peer));
	tp_close(&s.stream);
	done = mover_peer_expect(&s.peer, "done");
	assert_non_null(done);
	assert_exit(mover_peer_wait(&s.peer), 0);
	save_end(&s);
}

static void verify_finds_a_saved_image_whole(void **state)
{
	tp_autojson json_t *done = NULL;
	struct mover_peer p;
	struct save s;

	(void)state;
	save_to_seal(&s, NULL);
	start_job(&p, "verify", "image", &s.image, 1, NULL);
	assert_hello(&p);
	done = mover_peer_expect(&p, "done");
	assert_non_null(done);
	assert_int_equal(tp_json_int(done, "pages", 0), PAGES + 16);
	assert_int_equal(tp_json_int(done, "raw-bytes", 0), s.stored.len);
	assert_string_equal(tp_json_str(done, "uuid"), UUID);
	assert_exit(mover_peer_wait(&p), 0);
	mover_peer_free(&p);
	save_end(&s);
}

static void save_may_be_refused_at_the_end(void **state)
{
	tp_autojson json_t *done = NULL;
	struct save s;
	uint8_t answer[8];

	(void)state;
	save_to_seal(&s, NULL);
	finish(&s, 1);
	assert_int_equal(read_answer(&s, answer), 8);
	assert_memory_equal(answer, "\0\1\0\4\0\0\0\1", 8);
	tp_close(&s.stream);
	done = mover_peer_expect(&s.peer, "done");
	assert_non_null(done);
	assert_exit(mover_peer_wait(&s.peer), 0);
	save_end(&s);
}

static void save_without_return_path_ends_with_the_stream(void **state)
{
	tp_autojson json_t *sealed = NULL, *done = NULL;
	struct save s;

	(void)state;
	save_start(&s, json_pack("{s:b}", "return-path", 0));
	assert_hello(&s.peer);
	assert_true(feed_all(&s));
	tp_close(&s.stream);
	sealed = mover_peer_expect(&s.peer, "sealed");
	assert_non_null(sealed);
	finish(&s, 0);
	done = mover_peer_expect(&s.peer, "done");
	assert_non_null(done);
	assert_exit(mover_peer_wait(&s.peer), 0);
	save_end(&s);
}

static void unsealed_save_ends_with_its_control_connection(void **state)
{
	struct save s;
	char byte;

	(void)state;
	save_start(&s, NULL);
	assert_hello(&s.peer);
	assert_true(feed(&s, s.sent.len / 2));
	mover_peer_close(&s.peer);
	assert_exit(mover_peer_wait(&s.peer), MOVER_EXIT_ORPHAN);
	/* QEMU sees the end, and the image is none. */
	assert_true(read(s.stream, &byte, 1) <= 0);
	assert_int_equal(send(s.stream, "x", 1, MSG_NOSIGNAL), -1);
	assert_null(image_open(s.image, NULL));
	save_end(&s);
}

static void sealed_save_outlives_the_engine(void **state)
{
	struct save s;

	(void)state;
	save_to_seal(&s, NULL);
	mover_peer_close(&s.peer);
	assert_silent(&s);
	assert_true(mover_peer_running(&s.peer));
	tp_close(&s.stream);
	assert_exit(mover_peer_wait(&s.peer), MOVER_EXIT_ORPHAN);
	save_end(&s);
}

/* In the other order: QEMU ends first, then the engine. */
static void sealed_save_waits_for_both(void **state)
{
	struct save s;

	(void)state;
	save_to_seal(&s, NULL);
	tp_close(&s.stream);
	poll(NULL, 0, 50);
	assert_true(mover_peer_running(&s.peer));
	mover_peer_close(&s.peer);
	assert_exit(mover_peer_wait(&s.peer), MOVER_EXIT_ORPHAN);
	save_end(&s);
}

static void finish_after_qemu_has_gone_is_an_error(void **state)
{
	struct save s;

	(void)state;
	save_to_seal(&s, NULL);
	tp_close(&s.stream);
	finish(&s, 0);
	assert_job_error(&s.peer, "QemuError", "QEMU", MOVER_EXIT_ERROR);
	save_end(&s);
}

/* Its own trouble is told at once, and QEMU can go on writing. */
static void trouble_is_told_and_the_stream_drained(void **state)
{
	tp_autojson json_t *e = NULL;
	struct save s;

	(void)state;
	save_start(&s, json_pack("{s:i}", "limit", 200000));
	assert_hello(&s.peer);
	assert_true(feed_all(&s));
	e = mover_peer_expect(&s.peer, "error");
	assert_non_null(e);
	assert_string_equal(tp_json_str(e, "class"), "InsufficientSpace");
	s.fed = 0;
	assert_true(feed_all(&s));
	assert_int_equal(s.fed, s.sent.len);
	assert_true(mover_peer_running(&s.peer));
	mover_peer_close(&s.peer);
	assert_exit(mover_peer_wait(&s.peer), MOVER_EXIT_ORPHAN);
	assert_null(image_open(s.image, NULL));
	save_end(&s);
}

static void garbage_is_refused(void **state)
{
	tp_autojson json_t *e = NULL;
	struct save s;

	(void)state;
	save_start(&s, NULL);
	assert_hello(&s.peer);
	memset(s.sent.data, 'x', s.sent.len);
	assert_true(feed_all(&s));
	e = mover_peer_expect(&s.peer, "error");
	assert_non_null(e);
	/* With the error told and QEMU gone, nothing is left to do. */
	tp_close(&s.stream);
	assert_exit(mover_peer_wait(&s.peer), MOVER_EXIT_ERROR);
	save_end(&s);
}

static void bad_options(void **state)
{
	static const struct {
		const char *key, *value, *part;
	} bad[] = {
		{ "uuid", "\"0011\"", "uuid" }, { "uuid", "7", "uuid" },
		{ "uuid", "\"0011223344556677 899aabbccddeefg\"", "uuid" },
		{ "level", "20", "level" }, { "level", "\"1\"", "level" }, { "level", "-8", "level" },
		{ "limit", "-1", "limit" }, { "total", "1.5", "total" },
		{ "return-path", "1", "return-path" }, { "threads", "100", "threads" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++) {
		struct save s;

		save_start(&s, json_pack("{s:o}", bad[i].key,
					 json_loads(bad[i].value, JSON_DECODE_ANY, NULL)));
		assert_hello(&s.peer);
		assert_job_error(&s.peer, "GenericError", bad[i].part, MOVER_EXIT_ERROR);
		save_end(&s);
	}
}

#ifdef TP_FAULTS
static void assert_killed(struct save *s)
{
	int status = mover_peer_wait(&s->peer);

	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void faults_strike_where_they_should(void **state)
{
	tp_autojson json_t *e = NULL;
	struct save s;

	(void)state;
	save_start(&s, json_pack("{s:s}", "fault", "die-at-bytes:1000000"));
	assert_true(feed_all(&s));
	assert_killed(&s);
	assert_true(s.fed >= 1000000 && s.fed < s.sent.len);
	save_end(&s);
	save_to_seal(&s, json_pack("{s:s}", "fault", "die-after-sealed"));
	assert_killed(&s);
	save_end(&s);
	save_start(&s, json_pack("{s:s}", "fault", "io-error-at-bytes:300000"));
	assert_true(feed_all(&s));
	assert_hello(&s.peer);
	e = mover_peer_expect(&s.peer, "error");
	assert_non_null(e);
	assert_true(lseek(s.image, 0, SEEK_END) <= 300000);
	save_end(&s);
	save_start(&s, json_pack("{s:s}", "fault", "stall-at-bytes:1000000"));
	assert_hello(&s.peer);
	assert_true(feed(&s, 1000000));
	assert_true(mover_peer_running(&s.peer));
	mover_peer_close(&s.peer);
	assert_exit(mover_peer_wait(&s.peer), MOVER_EXIT_ORPHAN);
	save_end(&s);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(save_seals_holds_and_answers),
		cmocka_unit_test(verify_finds_a_saved_image_whole),
		cmocka_unit_test(save_may_be_refused_at_the_end),
		cmocka_unit_test(save_without_return_path_ends_with_the_stream),
		cmocka_unit_test(unsealed_save_ends_with_its_control_connection),
		cmocka_unit_test(sealed_save_outlives_the_engine),
		cmocka_unit_test(sealed_save_waits_for_both),
		cmocka_unit_test(finish_after_qemu_has_gone_is_an_error),
		cmocka_unit_test(trouble_is_told_and_the_stream_drained),
		cmocka_unit_test(garbage_is_refused),
		cmocka_unit_test(bad_options),
#ifdef TP_FAULTS
		cmocka_unit_test(faults_strike_where_they_should),
#endif
	};

	return run_mover_tests("mover_save", tests, TP_N(tests));
}
