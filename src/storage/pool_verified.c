/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool_verified.c - What the last verification of an image found, kept beside it */
#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_text.h"
#include "pool_priv.h"

bool pool_verified_write(struct pool *p, const char *vm, const char *id, const json_t *outcome,
			 struct tp_error *err)
{
	return pool_ids_check(vm, id, err) &&
	       pool_json_write(p, vm, id, POOL_VERIFIED_FILE, outcome, POOL_VERIFIED_MAX, err);
}

json_t *pool_verified_read(const struct pool *p, const char *vm, const char *id, const char *footer,
			   struct tp_error *err)
{
	tp_autojson json_t *outcome = pool_json_read(p, vm, id, POOL_VERIFIED_FILE, POOL_VERIFIED_MAX,
						     err);
	const char *of = tp_json_str(outcome, "footer");

	if (!outcome)
		return NULL;
	if (footer && of && strcmp(footer, of) != 0) {
		tp_fail_class(err, TP_ESTATE, "NotFound",
			      "image \"%s\" was not verified since it was made", id);
		return NULL;
	}
	return TP_STEAL(outcome);
}

const char *pool_damage_text(const json_t *outcome, char text[POOL_DAMAGE_TEXT])
{
	const json_t *first = json_array_get(json_object_get(outcome, "damage"), 0);
	const char *what = tp_json_str(first, "what"), *at = tp_json_str(outcome, "at");

	snprintf(text, POOL_DAMAGE_TEXT, "%s%s%s%s", what ? what : "", what && at ? " (found at " : "",
		 what && at ? at : "", what && at ? ")" : "");
	tp_text_clean(text);	/* cut, it may end inside a character, which JSON refuses */
	return text;
}
