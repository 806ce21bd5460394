/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fuzz_manifest.c - Manifests from anywhere, and the comparison of the fingerprints in them */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "storage/fingerprint.h"
#include "storage/manifest.h"
#include "storage/page_set.h"
#include "storage/pool.h"

#define DEPTH 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_word(const char *how)
{
	static const char *const words[] = {
		"written", "snapshotted", "resized", "rebased", "bitmap", "replaced", "device", "missing",
		"chain", "data-file", "unverifiable",
	};

	for (size_t i = 0; how && i < TP_N(words); i++) {
		if (strcmp(how, words[i]) == 0)
			return true;
	}
	return false;
}

/* Each fingerprint against each: also those that are none, as the engine compares what it reads. */
static void compare_all(json_t *disks)
{
	struct fingerprint_change c;
	const char *a, *b;
	json_t *x, *y, *o;

	json_object_foreach(disks, a, x) {
		json_object_foreach(disks, b, y) {
			fingerprint_compare(x, y, &c);
			assert((c.verdict == FINGERPRINT_EQUAL) == !c.how);
			assert((c.verdict == FINGERPRINT_EQUAL) == !c.detail[0] ||
			       c.verdict == FINGERPRINT_UNPROVEN);
			assert(!c.how || is_word(c.how));
			assert(!c.part_how || is_word(c.part_how));
			/* What is said of it can be sent. */
			o = c.how ? fingerprint_change_json("disk0", NULL, &c) : json_null();
			assert(o);
			json_decref(o);
		}
	}
}

/* What a page server is given lies in the RAM blocks, and finds room in a message. */
static void use_working_set(json_t *m)
{
	const json_t *set = json_object_get(m, "working-set"), *ram = tp_json_path(m, "ram.blocks");
	struct tp_error err = TP_ERROR_INIT;
	bool fits = manifest_trim(m, &err);
	json_t *fitted;

	assert(fits == (err.code == TP_OK) && (fits || !json_object_get(m, "working-set")));
	if (!set || !fits)
		return;
	assert(page_set_ranges(set) <= PAGE_SET_RANGES_MAX && page_set_pages(set) <= (uint64_t)2000 << 32);
	fitted = page_set_fit(set, ram);
	assert(fitted ? page_set_check(fitted, ram, &err) && page_set_pages(fitted) <= page_set_pages(set) :
	       page_set_ranges(set) == 0);
	json_decref(fitted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *m = tp_json_parse((const char *)data, size, DEPTH, &err);

	if (m && manifest_check(m, &err)) {
		/* What is used without a further look. */
		assert(pool_image_id_ok(tp_json_str(m, "image")));
		assert(strcmp(tp_json_str(m, "file"), "memory.zst") == 0);
		assert(strlen(tp_json_str(m, "footer")) == 16);
		assert(json_is_object(json_object_get(m, "disks")));
		use_working_set(m);
	}
	if (json_object_size(json_object_get(m, "disks")) < 8)
		compare_all(json_object_get(m, "disks"));
	json_decref(m);
	return 0;
}
