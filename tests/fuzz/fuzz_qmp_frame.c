/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fuzz_qmp_frame.c - The cut of the bytes must not change what is found
 *
 * The first byte chooses the cuts; the rest is fed at once, byte by byte, and in
 * pieces. All three must give the same objects and complaints.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_buf.h"
#include "base/tp_json.h"
#include "qmp/qmp_frame.h"

#define MAX_BYTES 4096
#define MAX_DEPTH 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(struct tp_buf *out, enum qmp_frame_result result, json_t *object)
{
	char *text;

	if (!tp_buf_printf(out, "%d", (int)result))
		abort();
	if (result != QMP_FRAME_OBJECT)
		return;
	text = tp_json_text(object);
	if (!text || !tp_buf_adds(out, text))
		abort();
	free(text);
	json_decref(object);
}

static char *run(const char *data, size_t size, unsigned seed)
{
	struct tp_buf out = TP_BUF_INIT(0);
	enum qmp_frame_result result = QMP_FRAME_MORE;
	struct qmp_frame f;

	qmp_frame_init(&f, MAX_BYTES, MAX_DEPTH);
	while (size > 0 && result != QMP_FRAME_LIMIT) {
		size_t piece = seed == 0 ? size : seed == 1 ? 1 : (seed = seed * 1103515245u + 12345u) >> 27;
		const char *at = data;
		size_t left;

		piece = piece == 0 ? 1 : piece > size ? size : piece;
		left = piece;
		do {
			json_t *object = NULL;

			result = qmp_frame_feed(&f, &at, &left, &object, NULL);
			if (result != QMP_FRAME_MORE)
				note(&out, result, object);
			else if (left)
				abort();
		} while (result != QMP_FRAME_MORE && result != QMP_FRAME_LIMIT);
		data += piece;
		size -= piece;
	}
	if (!tp_buf_adds(&out, qmp_frame_partial(&f) ? "~" : "."))
		abort();
	qmp_frame_free(&f);
	return tp_buf_steal(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	char *whole, *bytes, *pieces;

	if (size < 1)
		return 0;
	whole = run(text, size - 1, 0);
	bytes = run(text, size - 1, 1);
	pieces = run(text, size - 1, data[0] + 2u);
	if (strcmp(whole, bytes) != 0 || strcmp(whole, pieces) != 0)
		abort();
	free(whole);
	free(bytes);
	free(pieces);
	return 0;
}
