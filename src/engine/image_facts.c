/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* image_facts.c - Is an image the one that its manifest describes? */
#include "engine/image_facts.h"

#include <string.h>

#include "base/tp_json.h"

static bool differs(const char *member, struct tp_error *err)
{
	return tp_fail_class(err, TP_ECORRUPT, "Corrupt", "its manifest and memory.zst disagree on \"%s\"",
			     member);
}

/* Very many blocks are not all listed: those that are must be the first of them. */
static bool blocks_agree(const json_t *recorded, const json_t *found)
{
	size_t i;
	json_t *block;

	if (json_array_size(found) > json_array_size(recorded))
		return false;
	json_array_foreach(found, i, block) {
		const json_t *other = json_array_get(recorded, i);
		const char *id = tp_json_str(block, "id"), *other_id = tp_json_str(other, "id");

		if (!id || !other_id || strcmp(id, other_id) != 0 ||
		    tp_json_int(block, "bytes", -1) != tp_json_int(other, "bytes", -2))
			return false;
	}
	return true;
}

bool image_facts_compare(const json_t *manifest, const json_t *found, struct tp_error *err)
{
	static const char *const members[] = { "footer", "uuid", "bytes", "raw-bytes", "machine" };
	const json_t *blocks = json_object_get(found, "blocks");
	const json_t *recorded = json_object_get(json_object_get(manifest, "ram"), "blocks");

	for (size_t i = 0; i < TP_N(members); i++) {
		const json_t *is = json_object_get(found, members[i]);
		const json_t *said = json_object_get(manifest, members[i]);

		if (is && said && !json_equal(is, said))
			return differs(members[i], err);
	}
	return !blocks || !recorded || blocks_agree(recorded, blocks) || differs("ram.blocks", err);
}
