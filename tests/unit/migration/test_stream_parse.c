/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_stream_parse.c - What the parser refuses, and by which name; hostile and torn streams
 *
 * Whole streams go through test_save_pump.c; here the parser is fed alone.
 */
#include "stream_build.h"

#include "migration/stream_parse.h"

#define BUFFER (4u << 20)

struct parsed {
	struct stream_parser *p;
	uint8_t *buf;
	size_t fill;
	unsigned cuts, drops;
	struct tp_error err;
	bool ok;
};

static bool settle(struct parsed *r)
{
	for (;;) {
		size_t pos;

		switch (stream_parse(r->p, r->buf, r->fill, &r->err)) {
		case STREAM_MORE:
			assert_true(stream_want(r->p) > r->fill);
			assert_true(stream_want(r->p) <= BUFFER);
			return true;
		case STREAM_CUT:
			pos = stream_pos(r->p);
			assert_true(pos > 0 && pos <= r->fill);
			memmove(r->buf, r->buf + pos, r->fill - pos);
			r->fill -= pos;
			stream_cut(r->p);
			r->cuts++;
			break;
		case STREAM_DROP:
			pos = stream_pos(r->p);
			assert_true(pos + stream_drop(r->p) <= r->fill);
			memmove(r->buf + pos, r->buf + pos + stream_drop(r->p),
				r->fill - pos - stream_drop(r->p));
			r->fill -= stream_drop(r->p);
			r->drops++;
			break;
		case STREAM_FAILED:
			assert_true(r->err.code != TP_OK);
			return false;
		}
	}
}

static struct parsed parse(const struct tp_buf *b, size_t chunk, uint32_t target)
{
	struct parsed r = { .ok = true };

	r.p = stream_parser_new(target, NULL);
	r.buf = malloc(BUFFER);
	assert_non_null(r.p);
	assert_non_null(r.buf);
	for (size_t at = 0; r.ok && at < b->len; at += chunk) {
		size_t n = chunk < b->len - at ? chunk : b->len - at;

		memcpy(r.buf + r.fill, b->data + at, n);
		r.fill += n;
		r.ok = settle(&r);
	}
	return r;
}

static void done(struct parsed *r)
{
	stream_parser_free(r->p);
	free(r->buf);
}

static void assert_refused(const struct tp_buf *b, enum tp_code code, const char *text)
{
	static const size_t chunks[] = { 1, 4096, 1 << 20 };

	for (size_t i = 0; i < TP_N(chunks); i++) {
		struct parsed r = parse(b, chunks[i], 65536);

		if (r.ok)
			fail_msg("not refused: %s", text);
		if (r.err.code != code || !strstr(r.err.text, text))
			fail_msg("\"%s\" (%d) is not \"%s\" (%d)", r.err.text, r.err.code, text, code);
		done(&r);
	}
}

static const struct sb_block one_block[] = { { "ram", 16 * 4096 } };

static struct tp_buf prologue(bool start)
{
	struct tp_buf b = TP_BUF_INIT(0);

	sb_magic(&b);
	sb_config(&b, "pc", 0);
	if (start)
		sb_ram_start(&b, one_block, 1);
	return b;
}

static void refuses_by_name(void **state)
{
	static const struct { unsigned type; const char *name, *text; } sections[] = {
		{ 1, "dirty-bitmap", "\"dirty-bitmap\"" }, { 1, "block", "\"block\"" },
		{ 1, "0000:00:02.0/vfio", "\"0000:00:02.0/vfio\"" },
	};
	static const struct { unsigned flags; const char *text; enum tp_code code; } records[] = {
		{ 0x40, "XBZRLE", TP_EUNSUPPORTED }, { 0x80, "RDMA", TP_EUNSUPPORTED },
		{ 0x100, "page compression", TP_EUNSUPPORTED }, { 0x200, "multifd", TP_EUNSUPPORTED },
		{ 0x01, "obsolete", TP_EUNSUPPORTED }, { 0x400, "unknown kind", TP_ECORRUPT },
		{ 0x0a, "unknown kind", TP_ECORRUPT }, { 0, "unknown kind", TP_ECORRUPT },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(sections); i++) {
		tp_autobuf struct tp_buf b = prologue(i & 1);

		sb_head(&b, sections[i].type, 7, sections[i].name, 1);
		assert_refused(&b, TP_EUNSUPPORTED, sections[i].text);
	}
	for (size_t i = 0; i < TP_N(records); i++) {
		tp_autobuf struct tp_buf b = prologue(true);

		sb_part(&b, 2);
		sb_be64(&b, records[i].flags);
		assert_refused(&b, records[i].code, records[i].text);
	}
	for (unsigned cmd = 3; cmd < 14; cmd++) {
		tp_autobuf struct tp_buf b = prologue(false);

		if (cmd == 11)
			continue;
		sb_command(&b, cmd, "abcd", 4);
		assert_refused(&b, TP_EUNSUPPORTED, cmd <= 10 ? "post-copy" : "migration command");
	}
}

static void refuses_configurations(void **state)
{
	static const char *const caps[] = { "x-ignore-shared", "mapped-ram", "new-thing" };

	(void)state;
	for (size_t i = 0; i < TP_N(caps); i++) {
		tp_autobuf struct tp_buf b = prologue(false);

		sb_u8(&b, 5);
		sb_pstr(&b, "configuration/capabilities");
		sb_be32(&b, 1);
		sb_be32(&b, 1);
		sb_pstr(&b, caps[i]);
		assert_refused(&b, TP_EUNSUPPORTED, caps[i]);
	}
	for (unsigned bits = 0; bits < 40; bits++) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

		if (bits >= 12 && bits <= 20)
			continue;
		sb_magic(&b);
		sb_config(&b, "m", 12);
		b.data[b.len - 1] = (char)bits;
		assert_refused(&b, TP_EUNSUPPORTED, "guest pages");
	}
	for (unsigned i = 0; i < 2; i++) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

		sb_magic(&b);
		sb_config(&b, "m", 0);
		sb_u8(&b, 5);
		sb_pstr(&b, i ? "configuration/new" : "configuration/uuid");
		sb_be32(&b, i ? 1 : 9);
		assert_refused(&b, TP_EUNSUPPORTED, "subsection");
	}
}

static void endless_configuration(void **state)
{
	tp_autobuf struct tp_buf b = prologue(false);

	(void)state;
	for (unsigned i = 0; i < 4000; i++) {
		sb_u8(&b, 5);
		sb_pstr(&b, "configuration/uuid");
		sb_be32(&b, 1);
		sb_bytes(&b, "0123456789abcdef", 16);
	}
	assert_refused(&b, TP_ECORRUPT, "larger than");
}

static void not_a_stream(void **state)
{
	static const struct { const char *bytes; size_t n; enum tp_code code; const char *text; } bad[] = {
		{ "this is text", 12, TP_ECORRUPT, "no QEMU migration stream" },
		{ "QEVM\0\0\0\2", 8, TP_EUNSUPPORTED, "version 2" },
		{ "QEVM\0\0\0\3\x09", 9, TP_ECORRUPT, "unknown type" },
		{ "QEVM\0\0\0\3\0", 9, TP_ECORRUPT, "before any guest memory" },
		{ "QEVM\0\0\0\3\7\xff\xff\xff\xff", 13, TP_ECORRUPT, "machine name" },
		{ "QEVM\0\0\0\3\7\0\0\0\2p\n", 15, TP_ECORRUPT, "machine name is invalid" },
		{ "QEVM\0\0\0\3\2\0\0\0\1", 13, TP_ECORRUPT, "not started" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

		sb_bytes(&b, bad[i].bytes, bad[i].n);
		assert_refused(&b, bad[i].code, bad[i].text);
	}
}

enum { B_TWICE, B_NO_PAGES, B_SUM, B_HUGE, B_NAME, B_SECOND_LIST, B_N };

static void bad_block_lists(void **state)
{
	static const char *const text[] = {
		"listed twice", "no whole pages", "do not add up", "more guest memory", "invalid name",
		"second RAM section",
	};

	(void)state;
	for (unsigned i = 0; i < B_N; i++) {
		tp_autobuf struct tp_buf b = prologue(false);
		struct sb_block blocks[] = { { "a", 8192 }, { "b", 8192 } };

		if (i == B_TWICE)
			blocks[1].id = "a";
		if (i == B_NO_PAGES)
			blocks[0].length = blocks[1].length = 6144;
		if (i == B_HUGE)
			blocks[1].length = 1ull << 60;
		if (i == B_NAME)
			blocks[1].id = "b\n";
		sb_ram_start(&b, blocks, 2);
		if (i == B_SUM)
			tp_put_be64(b.data + 8 + 7 + 17, 12288 | 4);
		if (i == B_SECOND_LIST)
			sb_ram_start(&b, blocks, 2);
		assert_refused(&b, i == B_HUGE ? TP_ELIMIT : TP_ECORRUPT, text[i]);
	}
}

static void bad_records(void **state)
{
	uint8_t page[PAGE4K] = { 0 };
	struct { uint64_t word; const char *id; unsigned fill; const char *text; } bad[] = {
		{ 16 * 4096 | 2, "ram", 0, "outside its RAM block" },
		{ 0 | 2 | 0x20, NULL, 0, "without a RAM block" },
		{ 0 | 2, "rom", 0, "not in the list" },
		{ 0 | 2, "ram", 9, "not zero" },
		{ 0xfffffffffffff000 | 2, "ram", 0, "outside its RAM block" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++) {
		tp_autobuf struct tp_buf b = prologue(true);

		sb_part(&b, 2);
		sb_be64(&b, bad[i].word);
		if (bad[i].id)
			sb_pstr(&b, bad[i].id);
		sb_u8(&b, bad[i].fill);
		sb_bytes(&b, page, 64);
		assert_refused(&b, TP_ECORRUPT, bad[i].text);
	}
}

static void bad_sections(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		static const char *const text[] = { "section footers", "another section's footer",
						    "not started", "after the last one", "unknown type" };
		tp_autobuf struct tp_buf b = prologue(true);

		sb_part(&b, i == 3 ? 3 : 2);
		sb_be64(&b, 0x10);
		if (i == 0)
			sb_bytes(&b, "\2\0\0\0\2\0\0\0", 8);
		else
			sb_footer(&b, i == 1 ? 77 : RAM_ID);
		if (i == 2)
			sb_bytes(&b, "\2\0\0\0\x99", 5);
		if (i == 3)
			sb_part(&b, 2);
		if (i == 4)
			sb_bytes(&b, "\6{}", 3);
		assert_refused(&b, i ? TP_ECORRUPT : TP_EUNSUPPORTED, text[i]);
	}
}

static void early_section_without_end(void **state)
{
	tp_autobuf struct tp_buf b = prologue(true);
	size_t n = STREAM_EARLY_MAX + 70000;
	char *zero = calloc(1, n);

	(void)state;
	assert_non_null(zero);
	sb_head(&b, 4, 9, "endless", 1);
	sb_bytes(&b, zero, n);
	assert_refused(&b, TP_EUNSUPPORTED, "early device section");
	free(zero);
}

/* ---- the end */

static void complete_only_at_the_end(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

	(void)state;
	sb_plain(&b, 10, true);
	for (size_t n = b.len - 400; n <= b.len; n++) {
		struct tp_buf part = b;
		struct parsed r;

		part.len = n;
		r = parse(&part, n, 65536);
		assert_true(r.ok);
		assert_int_equal(r.drops, 2);
		assert_int_equal(stream_parse_complete(r.p), n == b.len);
		assert_int_equal(stream_parse_unmarked(r.p), n == b.len - 5 - strlen(SB_JSON));
		done(&r);
	}
}

static void fake_ends_inside_device_state(void **state)
{
	static const char *const fakes[] = { "[1]", "{\"a\": 1}", "{\"devices\": 1}", "{devices}",
					     "{\"devices\": [}" };

	(void)state;
	for (size_t i = 0; i < TP_N(fakes); i++) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
		struct parsed r;

		sb_plain(&b, 10, false);
		b.len -= 5 + strlen(SB_JSON);
		sb_vmdesc(&b, fakes[i]);
		r = parse(&b, 1000, 65536);
		assert_true(r.ok);
		assert_false(stream_parse_complete(r.p));
		assert_false(stream_parse_finish(r.p, &r.err));
		assert_int_equal(r.err.code, TP_ECORRUPT);
		done(&r);
	}
}

/* Lengths whose low bytes are printable, so that the last control byte is before them. */
static void lengths_that_look_like_text(void **state)
{
	static const size_t lengths[] = { 40, 0x120, 0x2020, 0x2120, 0x7e7e, 0x1f20, 0x202020 };

	(void)state;
	for (size_t i = 0; i < TP_N(lengths); i++) {
		tp_autobuf struct tp_buf b = TP_BUF_INIT(0);
		char *json = malloc(lengths[i] + 1);
		struct parsed r;

		assert_non_null(json);
		memset(json, ' ', lengths[i]);
		memcpy(json, "{\"devices\": []", 14);
		strcpy(json + lengths[i] - 1, "}");
		sb_plain(&b, 10, false);
		b.len -= 5 + strlen(SB_JSON);
		sb_vmdesc(&b, json);
		r = parse(&b, 777, 65536);
		assert_true(r.ok);
		assert_true(stream_parse_complete(r.p));
		assert_true(stream_parse_finish(r.p, NULL));
		done(&r);
		free(json);
	}
}

/* Any single byte wrong: refused, or parsed to something, never out of bounds. */
static void flipped_bytes(void **state)
{
	tp_autobuf struct tp_buf b = TP_BUF_INIT(0);

	(void)state;
	sb_plain(&b, 5, true);
	for (size_t at = 0; at < b.len; at += at < 300 || at > b.len - 300 ? 1 : 61) {
		for (unsigned bit = 0; bit < 8; bit++) {
			struct parsed r;

			b.data[at] = (char)(b.data[at] ^ 1 << bit);
			r = parse(&b, 100000, 8192);
			if (r.ok)
				stream_parse_finish(r.p, &r.err);
			done(&r);
			b.data[at] = (char)(b.data[at] ^ 1 << bit);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_by_name),
		cmocka_unit_test(refuses_configurations),
		cmocka_unit_test(endless_configuration),
		cmocka_unit_test(not_a_stream),
		cmocka_unit_test(bad_block_lists),
		cmocka_unit_test(bad_records),
		cmocka_unit_test(bad_sections),
		cmocka_unit_test(early_section_without_end),
		cmocka_unit_test(complete_only_at_the_end),
		cmocka_unit_test(fake_ends_inside_device_state),
		cmocka_unit_test(lengths_that_look_like_text),
		cmocka_unit_test(flipped_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
