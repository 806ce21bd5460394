/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_stream_recorded.c - Streams recorded from real QEMUs go through the pump unchanged
 *
 * tests/data/streams holds, compressed by zstd, what QEMU 7.2 and 10.0 wrote for
 * a stopped, a live and a background-snapshot save and for one with a return
 * path.
 */
#include "stream_build.h"

#include <zstd.h>

#define STREAM_MAX (4u << 20)

static struct tp_buf load(const char *version, const char *kind)
{
	struct tp_buf packed = TP_BUF_INIT(0), b = TP_BUF_INIT(0);
	char path[128], piece[4096];
	FILE *f;
	size_t got;

	snprintf(path, sizeof(path), "tests/data/streams/%s-%s.stream.zst", version, kind);
	f = fopen(path, "rbe");
	if (!f)
		fail_msg("no %s", path);
	while ((got = fread(piece, 1, sizeof(piece), f)) > 0)
		sb_bytes(&packed, piece, got);
	fclose(f);
	assert_true(tp_buf_reserve(&b, STREAM_MAX));
	b.len = ZSTD_decompress(b.data, STREAM_MAX, packed.data, packed.len);
	assert_false(ZSTD_isError(b.len));
	tp_buf_free(&packed);
	return b;
}

/* Takes the commands out that stand behind the configuration. */
static struct tp_buf without_commands(const struct tp_buf *b)
{
	struct tp_buf out = TP_BUF_INIT(0);
	const uint8_t *p = (const uint8_t *)b->data;
	size_t at = 13 + tp_be32(p + 9), end = at;

	while (p[end] == 8)
		end += 5 + (size_t)tp_be16(p + end + 3);
	sb_bytes(&out, p, at);
	sb_bytes(&out, p + end, b->len - end);
	return out;
}

static void through_the_pump(const char *version, const char *kind, enum image_kind expected)
{
	static const size_t chunks[] = { 0, 1000, 1 };
	tp_autobuf struct tp_buf sent = load(version, kind);
	bool hold = !strcmp(kind, "return-path");
	tp_autobuf struct tp_buf stored = without_commands(&sent);
	char machine[32];

	assert_int_equal(sent.len - stored.len, hold ? 14 : 0);
	snprintf(machine, sizeof(machine), "pc-q35-%s", version);
	for (size_t i = 0; i < (sent.len < 200000 ? TP_N(chunks) : 2); i++) {
		struct rig r;

		rig_start(&r, &sent, chunks[i], hold);
		if (!rig_run(&r))
			fail_msg("%s-%s: %s", version, kind, r.err.text);
		assert_image(r.o.image_fd, stored.data, stored.len);
		assert_int_equal(r.result.kind, expected);
		assert_string_equal(r.result.machine, machine);
		assert_int_equal(r.result.page_size, 4096);
		assert_true(r.result.device_bytes > 1000);
		assert_int_equal(r.result.image.pages_data + r.result.image.pages_zero,
				 r.result.image.pages);
		rig_end(&r);
	}
}

static void stopped(void **state)
{
	(void)state;
	through_the_pump("7.2", "stopped", IMAGE_STOPPED);
	through_the_pump("10.0", "stopped", IMAGE_STOPPED);
}

static void live(void **state)
{
	(void)state;
	through_the_pump("7.2", "live", IMAGE_LIVE);
	through_the_pump("10.0", "live", IMAGE_LIVE);
}

static void background(void **state)
{
	(void)state;
	through_the_pump("7.2", "background", IMAGE_BACKGROUND);
	through_the_pump("10.0", "background", IMAGE_BACKGROUND);
}

static void with_return_path(void **state)
{
	(void)state;
	through_the_pump("7.2", "return-path", IMAGE_STOPPED);
	through_the_pump("10.0", "return-path", IMAGE_STOPPED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stopped),
		cmocka_unit_test(live),
		cmocka_unit_test(background),
		cmocka_unit_test(with_return_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
