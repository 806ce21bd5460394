/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_frame.c - Bytes of a stream to JSON objects
 *
 * Theory of operation
 *
 * The scanner knows three places: between values, inside a bracketed value,
 * and inside junk. It only tells where a bracketed value ends; whether that is
 * a JSON object is for the JSON parser to say, once per value. Nothing is
 * looked at twice, so the cost is linear and the result does not depend on how
 * the bytes were cut.
 *
 *   between  blank: skipped. '{' or '[': a value begins. Else: BAD, junk begins.
 *   value    ends with the bracket that closes the first one. A control
 *            character within a string cannot be JSON: the value is dropped,
 *            BAD, and what follows is junk up to the end of the line. That is
 *            how a lost quotation mark costs one line and not the session.
 *   junk     skipped silently up to the end of the line or to a bracket outside
 *            of a string: QEMU, too, takes a command that follows junk.
 *
 * A 0xFF byte, which no UTF-8 text contains, leads back to "between" from
 * anywhere.
 *
 * Bounds: bytes and levels as given by the user of the parser, and separators
 * by QMP_FRAME_TOKENS, as `[],[],` takes forty times its size once parsed.
 */
#include "qmp/qmp_frame.h"

#include <string.h>

#include "base/tp_json.h"

#define RESET_BYTE 0xff
#define KEEP_BYTES (64u << 10)	/* a larger buffer is given back after its object */

void qmp_frame_init(struct qmp_frame *f, size_t max_bytes, unsigned max_depth)
{
	memset(f, 0, sizeof(*f));
	f->buf.limit = max_bytes;
	f->depth_max = max_depth;
}

void qmp_frame_free(struct qmp_frame *f)
{
	tp_buf_free(&f->buf);
}

bool qmp_frame_partial(const struct qmp_frame *f)
{
	return f->depth > 0;
}

/* Back to "between"; keeps `scanned`, the size of the last value. */
static void forget_value(struct qmp_frame *f)
{
	size_t limit = f->buf.limit;

	if (f->buf.cap > KEEP_BYTES) {
		tp_buf_free(&f->buf);
		f->buf.limit = limit;
	}
	tp_buf_drop(&f->buf, f->buf.len);
	f->depth = 0;
	f->in_string = f->escaped = f->in_junk = false;
}

static enum qmp_frame_result dead(struct qmp_frame *f)
{
	tp_buf_free(&f->buf);
	forget_value(f);
	f->dead = true;
	return QMP_FRAME_LIMIT;
}

static void begin_value(struct qmp_frame *f)
{
	forget_value(f);
	f->scanned = 0;
	f->tokens = 0;
}

enum scan { SCAN_MORE, SCAN_END, SCAN_RESET, SCAN_CONTROL, SCAN_DEEP, SCAN_TOKENS };

static enum scan scan_in_string(struct qmp_frame *f, unsigned char c)
{
	if (c == RESET_BYTE)
		return SCAN_RESET;
	if (c < ' ')
		return SCAN_CONTROL;
	if (f->escaped)
		f->escaped = false;
	else if (c == '\\')
		f->escaped = true;
	else if (c == '"')
		f->in_string = false;
	return SCAN_MORE;
}

static enum scan scan_outside_string(struct qmp_frame *f, unsigned char c)
{
	switch (c) {
	case RESET_BYTE:
		return SCAN_RESET;
	case '"':
		f->in_string = true;
		return SCAN_MORE;
	case '{':
	case '[':
		if (f->depth == f->depth_max)
			return SCAN_DEEP;
		f->depth++;
		break;
	case '}':
	case ']':
		return --f->depth ? SCAN_MORE : SCAN_END;
	case ',':
	case ':':
		break;
	default:
		return SCAN_MORE;
	}
	return ++f->tokens > QMP_FRAME_TOKENS ? SCAN_TOKENS : SCAN_MORE;
}

/* Scans up to n bytes of a value; *used counts the byte that ended the scan. */
static enum scan scan_value(struct qmp_frame *f, const char *data, size_t n, size_t *used)
{
	enum scan what = SCAN_MORE;
	size_t i = 0;

	while (i < n && what == SCAN_MORE) {
		unsigned char c = (unsigned char)data[i++];

		what = f->in_string ? scan_in_string(f, c) : scan_outside_string(f, c);
	}
	*used = i;
	return what;
}

/* The value's text is what was kept plus these bytes. */
static enum qmp_frame_result parse_value(struct qmp_frame *f, const char *data, size_t n,
					 json_t **object, struct tp_error *err)
{
	json_t *value;

	if (f->buf.len) {
		if (!tp_buf_add(&f->buf, data, n)) {
			tp_fail_nomem(err);
			return dead(f);
		}
		data = f->buf.data;
		n = f->buf.len;
	}
	value = tp_json_parse(data, n, f->depth_max, err);
	forget_value(f);
	if (!value)
		return QMP_FRAME_BAD;
	if (!json_is_object(value)) {
		json_decref(value);
		tp_fail(err, TP_EPROTO, "input must be a JSON object");
		return QMP_FRAME_BAD;
	}
	*object = value;
	return QMP_FRAME_OBJECT;
}

static enum qmp_frame_result feed_value(struct qmp_frame *f, const char **data, size_t *n,
					json_t **object, struct tp_error *err)
{
	size_t room = f->buf.limit - f->scanned, window = *n < room ? *n : room, used;
	const char *text = *data;
	enum scan what = scan_value(f, text, window, &used);

	*data += used;
	*n -= used;
	f->scanned += used;
	switch (what) {
	case SCAN_END:
		return parse_value(f, text, used, object, err);
	case SCAN_RESET:
		forget_value(f);
		return QMP_FRAME_RESET;
	case SCAN_CONTROL:
		forget_value(f);
		f->in_junk = text[used - 1] != '\n';
		tp_fail(err, TP_EPROTO, "control character 0x%02x in a JSON string",
			(unsigned)(unsigned char)text[used - 1]);
		return QMP_FRAME_BAD;
	case SCAN_DEEP:
		tp_fail(err, TP_ELIMIT, "JSON nested deeper than %u levels", f->depth_max);
		return dead(f);
	case SCAN_TOKENS:
		tp_fail(err, TP_ELIMIT, "JSON object of more than %u members", QMP_FRAME_TOKENS);
		return dead(f);
	case SCAN_MORE:
		break;
	}
	if (*n > 0) {
		tp_fail(err, TP_ELIMIT, "JSON object larger than %zu bytes", f->buf.limit);
		return dead(f);
	}
	if (!tp_buf_add(&f->buf, text, used)) {
		tp_fail_nomem(err);
		return dead(f);
	}
	return QMP_FRAME_MORE;
}

/* Skips junk; stops in front of a bracket. true: a reset byte was taken. */
static bool skip_junk(struct qmp_frame *f, const char **data, size_t *n)
{
	while (*n > 0 && f->in_junk) {
		unsigned char c = (unsigned char)**data;

		if (!f->in_string && (c == '{' || c == '[')) {
			forget_value(f);
			return false;
		}
		++*data;
		--*n;
		if (c == RESET_BYTE || c == '\n')
			forget_value(f);
		else if (f->in_string)
			scan_in_string(f, c);
		else if (c == '"')
			f->in_string = true;
		if (c == RESET_BYTE)
			return true;
	}
	return false;
}

static bool is_blank(unsigned char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

enum qmp_frame_result qmp_frame_feed(struct qmp_frame *f, const char **data, size_t *n,
				     json_t **object, struct tp_error *err)
{
	if (f->dead) {
		tp_fail(err, TP_ELIMIT, "the stream was given up");
		return QMP_FRAME_LIMIT;
	}
	if (skip_junk(f, data, n))
		return QMP_FRAME_RESET;
	while (*n > 0 && f->depth == 0 && is_blank((unsigned char)**data)) {
		++*data;
		--*n;
	}
	if (*n == 0)
		return QMP_FRAME_MORE;
	if (f->depth == 0) {
		unsigned char c = (unsigned char)**data;

		begin_value(f);
		if (c != '{' && c != '[') {
			++*data;
			--*n;
			if (c == RESET_BYTE)
				return QMP_FRAME_RESET;
			f->in_junk = true;
			f->in_string = c == '"';
			tp_fail(err, TP_EPROTO, "junk between JSON objects, from byte 0x%02x on",
				(unsigned)c);
			return QMP_FRAME_BAD;
		}
	}
	return feed_value(f, data, n, object, err);
}
