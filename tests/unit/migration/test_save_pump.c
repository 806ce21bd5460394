/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_save_pump.c - From a socket into a sealed image: every kind of stream, end, cancel, trouble
 *
 * A thread plays QEMU on the other end of a socketpair.
 */
#include "stream_build.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/tp_time.h"

static void save_ok(const struct tp_buf *sent, const struct tp_buf *stored, size_t chunk, bool hold,
		    uint32_t target, struct save_result *facts)
{
	struct rig r;

	rig_start(&r, sent, chunk, hold);
	r.o.frame_target = target;
	if (!rig_run(&r))
		fail_msg("%s", r.err.text);
	assert_image(r.o.image_fd, stored->data, stored->len);
	assert_int_equal(r.result.image.raw_bytes, stored->len);
	if (facts) {
		*facts = r.result;
		r.result.blocks = NULL;
	}
	rig_end(&r);
	if (hold)
		assert_memory_equal(r.feeder.answer, "\0\1\0\4\0\0\0\0", 8);
}

static void plain_stream(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	struct save_result f;

	(void)state;
	sb_plain(&b, 1000, false);
	save_ok(&b, &b, 0, false, 0, &f);
	assert_string_equal(f.machine, "pc-q35-7.2");
	assert_int_equal(f.kind, IMAGE_STOPPED);
	assert_int_equal(f.page_size, 4096);
	assert_int_equal(f.nblocks, 2);
	assert_string_equal(f.blocks[0].id, "pc.ram");
	assert_int_equal(f.blocks[0].used_length, 1000 * 4096);
	assert_string_equal(f.blocks[1].id, "vga.vram");
	assert_int_equal(f.image.pages, 1016);
	assert_int_equal(f.image.pages_zero, 333 + 16);
	assert_int_equal(f.image.pages_data, 667);
	save_result_free(&f);
}

static void return_path(void **state)
{
	tp_autobuf struct tp_buf sent = TP_BUF_INIT(0), stored = TP_BUF_INIT(0);

	(void)state;
	sb_plain(&sent, 300, true);
	sb_plain(&stored, 300, false);
	assert_int_equal(sent.len, stored.len + 5 + 9);
	save_ok(&sent, &stored, 0, true, 0, NULL);
	/* The frames do not depend on the commands that were left out, nor on the pieces. */
	save_ok(&sent, &stored, 7, true, 0, NULL);
}

static void frames_do_not_depend_on_pieces(void **state)
{
	static const size_t chunks[] = { 0, 1, 2, 3, 13, 4103, 100000 };
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	struct save_result first = { 0 }, f;

	(void)state;
	sb_plain(&b, 60, false);
	for (size_t i = 0; i < TP_N(chunks); i++) {
		save_ok(&b, &b, chunks[i], false, 16384, &f);
		if (!i)
			first = f;
		assert_int_equal(f.image.frames, first.image.frames);
		assert_int_equal(f.image.file_bytes, first.image.file_bytes);
		if (i)
			save_result_free(&f);
	}
	save_result_free(&first);
}

/* Repeats, zero after data, data after zero, blocks in turn, CONTINUE over sections. */
static void live_stream(void **state)
{
	struct sb_block blocks[] = { { "a", 64 * 4096 }, { "b", 64 * 4096 } };
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	uint8_t page[PAGE4K];
	struct save_result f;
	uint32_t seed = 5;

	(void)state;
	sb_magic(&b);
	sb_config(&b, "pc-q35-10.0", 0);
	sb_ram_start(&b, blocks, 2);
	for (unsigned pass = 0; pass < 20; pass++) {
		sb_part(&b, 2);
		for (unsigned i = 0; i < 40; i++) {
			uint32_t x = sb_random(&seed);
			const char *id = !i && pass % 3 ? NULL : i % 5 ? NULL : blocks[x & 1].id;

			sb_fill(page, sizeof(page), x);
			if (x & 2)
				sb_page(&b, id, (x >> 4) % 64 * 4096ull, page, PAGE4K);
			else
				sb_zero(&b, id, (x >> 4) % 64 * 4096ull);
		}
		sb_eos(&b);
	}
	sb_part(&b, 3);
	sb_eos(&b);
	sb_end(&b);
	for (uint32_t target = 4096; target <= 1 << 18; target *= 4) {
		save_ok(&b, &b, 0, false, target, &f);
		assert_int_equal(f.kind, IMAGE_LIVE);
		save_result_free(&f);
	}
}

static void last_record_wins(void **state)
{
	struct sb_block blocks[] = { { "ram", 4 * 4096 } };
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	uint8_t page[PAGE4K];
	struct save_result f;

	(void)state;
	sb_magic(&b);
	sb_config(&b, "m", 0);
	sb_ram_start(&b, blocks, 1);
	sb_part(&b, 2);
	sb_fill(page, sizeof(page), 1);
	sb_page(&b, "ram", 0, page, PAGE4K);		/* then zero */
	sb_zero(&b, NULL, 4096);			/* then data */
	sb_page(&b, NULL, 8192, page, PAGE4K);		/* stays; page 3 is never sent */
	sb_zero(&b, NULL, 0);
	sb_page(&b, NULL, 4096, page, PAGE4K);
	sb_eos(&b);
	sb_part(&b, 3);
	sb_eos(&b);
	sb_end(&b);
	save_ok(&b, &b, 0, false, 4096, &f);
	assert_int_equal(f.image.pages_data, 2);
	assert_int_equal(f.image.pages_zero, 1);
	assert_int_equal(f.image.pages, 4);
	assert_int_equal(f.kind, IMAGE_LIVE);
	save_result_free(&f);
}

/* No RAM END, pages in any order, device state last. */
static void background_stream(void **state)
{
	struct sb_block blocks[] = { { "ram", 512 * 4096 } };
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	uint8_t page[PAGE4K];
	struct save_result f;

	(void)state;
	sb_magic(&b);
	sb_config(&b, "m", 0);
	sb_ram_start(&b, blocks, 1);
	for (unsigned i = 0; i < 512; i++) {
		if (i % 32 == 0)
			sb_part(&b, 2);
		sb_fill(page, sizeof(page), i);
		sb_page(&b, i ? NULL : "ram", (i * 77 + 5) % 512 * 4096ull, page, PAGE4K);
		if (i % 32 == 31)
			sb_eos(&b);
	}
	sb_end(&b);
	save_ok(&b, &b, 0, false, 0, &f);
	assert_int_equal(f.kind, IMAGE_BACKGROUND);
	assert_int_equal(f.image.pages_data, 512);
	save_result_free(&f);
}

static void page_sizes(void **state)
{
	static uint8_t page[1 << 20];

	(void)state;
	for (unsigned bits = 12; bits <= 20; bits += 2) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
		struct sb_block blocks[] = { { "ram", 8ull << bits } };
		struct save_result f;

		sb_magic(&b);
		sb_config(&b, "virt-10.0", bits);
		sb_ram_start(&b, blocks, 1);
		sb_part(&b, 2);
		for (unsigned i = 0; i < 8; i++) {
			sb_fill(page, (size_t)1 << bits, i);
			if (i == 3)
				sb_zero(&b, NULL, 3ull << bits);
			else
				sb_page(&b, i ? NULL : "ram", (uint64_t)i << bits, page, (size_t)1 << bits);
		}
		sb_eos(&b);
		sb_part(&b, 3);
		sb_eos(&b);
		sb_end(&b);
		save_ok(&b, &b, 0, false, 0, &f);
		assert_int_equal(f.page_size, 1u << bits);
		assert_int_equal(f.image.pages_data, 7);
		save_result_free(&f);
		save_ok(&b, &b, 997, true, 0, NULL);
	}
}

static void early_sections(void **state)
{
	struct sb_block blocks[] = { { "ram", 64 * 4096 } };
	size_t sizes[] = { 1, 30, 5000, 300000 };

	(void)state;
	for (size_t s = 0; s < TP_N(sizes); s++) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

		sb_magic(&b);
		sb_config(&b, "m", 0);
		sb_device(&b, 9, "vmem-early0", sizes[s]);
		sb_ram_start(&b, blocks, 1);
		sb_device(&b, 10, "vmem-early1", sizes[s]);
		sb_head(&b, 4, 11, "vmem-early2", 1);
		sb_bytes(&b, "\x7e\0\0\0\x0b", 5);	/* looks like its end, but no section follows */
		sb_footer(&b, 11);
		sb_part(&b, 2);
		sb_zero(&b, "ram", 0);
		sb_eos(&b);
		sb_part(&b, 3);
		sb_eos(&b);
		sb_end(&b);
		save_ok(&b, &b, 0, false, 0, NULL);
		save_ok(&b, &b, 0, false, 4096, NULL);
		save_ok(&b, &b, 11, true, 4096, NULL);
	}
}

/* ---- trouble */

struct watch {
	unsigned failures, calls;
	char text[TP_TEXT_SIZE];
	bool stop;
	double stop_at;
};

static void on_failed(void *arg, const struct tp_error *err)
{
	struct watch *w = arg;

	w->failures++;
	strcpy(w->text, err->text);
	w->stop = true;
}

static bool on_cancelled(void *arg)
{
	struct watch *w = arg;

	w->calls++;
	return w->stop || (w->stop_at > 0 && tp_now_mono() > w->stop_at);
}

static void assert_no_image(int fd)
{
	struct tp_error err = TP_ERROR_INIT;

	assert_null(image_open(fd, &err));
	assert_int_equal(err.code, TP_ECORRUPT);
}

static void cut_anywhere(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

	(void)state;
	sb_plain(&b, 12, true);
	for (size_t n = 0; n < b.len; n += n < 150 || n > b.len - 150 ? 1 : 397) {
		struct tp_buf cut = b;
		struct rig r;

		/* Just behind the EOF byte it is a whole stream of a QEMU with suppress-vmdesc. */
		if (n == b.len - 5 - strlen(SB_JSON))
			n++;
		cut.len = n;
		rig_start(&r, &cut, 0, false);
		assert_false(rig_run(&r));
		assert_int_equal(r.err.code, TP_ECORRUPT);
		assert_no_image(r.o.image_fd);
		rig_end(&r);
	}
}

static void without_vmdesc(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

	(void)state;
	sb_plain(&b, 12, false);
	b.len -= 5 + strlen(SB_JSON);
	save_ok(&b, &b, 0, false, 0, NULL);
}

/* With a return path the end of the socket is no end of the stream, not even after the vmdesc. */
static void socket_ends_before_hand_over(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	struct rig r;

	(void)state;
	sb_plain(&b, 12, true);
	b.len--;
	rig_start(&r, &b, 0, false);
	r.o.return_path = true;
	assert_false(rig_run(&r));
	assert_string_equal(tp_error_class(&r.err), "QemuError");
	rig_end(&r);
}

static void cancel_in_time(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	struct watch w = { .stop_at = tp_now_mono() + 0.2 };
	struct rig r;

	(void)state;
	sb_plain(&b, 12, true);
	b.len -= 30;
	rig_start(&r, &b, 0, true);	/* the feeder waits for an answer that never comes */
	r.o.cancelled = on_cancelled;
	r.o.failed = on_failed;
	r.o.arg = &w;
	assert_false(rig_run(&r));
	assert_int_equal(r.err.code, TP_ECANCELLED);
	assert_true(tp_now_mono() - w.stop_at < 1.0);
	assert_int_equal(w.failures, 0);
	assert_true(w.calls >= 2);
	rig_end(&r);
}

static void trouble_is_reported_then_drained(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	struct watch w = { 0 };
	struct rig r;

	(void)state;
	sb_plain(&b, 3000, false);
	/* The limit is far below what the frames need; nobody cancels: the stream is read to its end. */
	rig_start(&r, &b, 0, false);
	r.o.limit_bytes = 100000;
	r.o.failed = on_failed;
	r.o.arg = &w;
	assert_false(rig_run(&r));
	assert_int_equal(w.failures, 1);
	assert_string_equal(tp_error_class(&r.err), "InsufficientSpace");
	assert_no_image(r.o.image_fd);
	pthread_join(r.feeder.thread, NULL);	/* it got rid of everything without an error */
	close(r.o.stream_fd);
	close(r.o.image_fd);
}

/*
 * By a limit of the process, with its signal ignored: a write fails in the middle of a frame. The
 * room is not what is missing (a full disk is in test_frame_pool).
 */
static void file_size_limit(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	char path[] = "/tmp/torpor-save-XXXXXX";
	struct rlimit before, limit;
	struct rig r;
	int fd = mkstemp(path);
	bool ok;

	(void)state;
	assert_true(fd >= 0);
	unlink(path);
	sb_plain(&b, 3000, false);
	rig_start(&r, &b, 0, false);
	close(r.o.image_fd);
	r.o.image_fd = fd;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){ 1 << 20, before.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ok = rig_run(&r);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_false(ok);
	assert_string_equal(tp_error_class(&r.err), "IOError");
	assert_int_equal(r.err.sys, EFBIG);
	assert_no_image(fd);
	rig_end(&r);
}

static void on_progress(void *arg, const struct save_progress *p)
{
	struct save_progress *last = arg;

	assert_true(p->raw_bytes >= last->raw_bytes);
	assert_true(p->file_bytes >= last->file_bytes);
	assert_true(p->records >= last->records);
	*last = *p;
}

static void progress_tells(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	struct save_progress last = { 0 };
	struct rig r;

	(void)state;
	sb_plain(&b, 500, true);
	rig_start(&r, &b, 0, true);
	r.o.progress = on_progress;
	r.o.arg = &last;
	assert_true(rig_run(&r));
	assert_true(last.sealing);
	assert_int_equal(last.pages_total, 516);
	assert_int_equal(last.records, 516);
	assert_int_equal(last.raw_bytes, b.len - 14);
	rig_end(&r);
}

static void reserved_room_is_given_back(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	char path[] = "/tmp/torpor-save-XXXXXX";
	struct stat st;
	struct rig r;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	unlink(path);
	sb_plain(&b, 100, false);
	rig_start(&r, &b, 0, false);
	close(r.o.image_fd);
	r.o.image_fd = fd;
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 64 << 20) == 0) {
		assert_true(rig_run(&r));
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, r.result.image.file_bytes);
		assert_true(st.st_blocks * 512 < 4 << 20);
	}
	rig_end(&r);
}

static void zstd_program_gives_the_stream(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
	char path[] = "/tmp/torpor-save-XXXXXX", cmd[128];
	int fd = mkstemp(path);
	uint8_t *got;
	struct rig r;
	FILE *pipe;
	size_t n;

	(void)state;
	assert_true(fd >= 0);
	sb_plain(&b, 2000, false);
	got = malloc(b.len + 1);
	assert_non_null(got);
	rig_start(&r, &b, 0, false);
	close(r.o.image_fd);
	r.o.image_fd = fd;
	assert_true(rig_run(&r));
	snprintf(cmd, sizeof(cmd), "zstd -dc <%s", path);
	pipe = popen(cmd, "r");
	assert_non_null(pipe);
	n = fread(got, 1, b.len + 1, pipe);
	assert_int_equal(pclose(pipe), 0);
	assert_int_equal(n, b.len);
	assert_memory_equal(got, b.data, n);
	unlink(path);
	free(got);
	rig_end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_stream),
		cmocka_unit_test(return_path),
		cmocka_unit_test(frames_do_not_depend_on_pieces),
		cmocka_unit_test(live_stream),
		cmocka_unit_test(last_record_wins),
		cmocka_unit_test(background_stream),
		cmocka_unit_test(page_sizes),
		cmocka_unit_test(early_sections),
		cmocka_unit_test(cut_anywhere),
		cmocka_unit_test(without_vmdesc),
		cmocka_unit_test(socket_ends_before_hand_over),
		cmocka_unit_test(cancel_in_time),
		cmocka_unit_test(trouble_is_reported_then_drained),
		cmocka_unit_test(file_size_limit),
		cmocka_unit_test(progress_tells),
		cmocka_unit_test(reserved_room_is_given_back),
		cmocka_unit_test(zstd_program_gives_the_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
