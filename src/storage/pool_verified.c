/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pool_verified.c - What the last verification of an image found, kept beside it */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_text.h"
#include "pool_priv.h"

TP_LOG_SOURCE("storage.pool");

bool pool_verified_write(struct pool *p, const char *vm, const char *id, const json_t *outcome,
			 struct tp_error *err)
{
	return pool_ids_check(vm, id, err) &&
	       pool_json_write(p, vm, id, POOL_VERIFIED_FILE, outcome, POOL_VERIFIED_MAX, err);
}

/* What any version wrote: without these it says nothing of the image. */
static bool is_outcome(const json_t *outcome, struct tp_error *err)
{
	if (json_is_boolean(json_object_get(outcome, "ok")) && tp_json_str(outcome, "footer"))
		return true;
	return tp_fail(err, TP_ECORRUPT, "it does not say what was found in which content");
}

json_t *pool_verified_read(const struct pool *p, const char *vm, const char *id, const char *footer,
			   struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	tp_autojson json_t *outcome = pool_json_read(p, vm, id, POOL_VERIFIED_FILE, POOL_VERIFIED_MAX, &why);
	const char *of;

	if ((!outcome && why.code != TP_ESTATE) || (outcome && !is_outcome(outcome, &why)))
		tp_warn("pool=%s image=%s its " POOL_VERIFIED_FILE " is not looked at: %s", p->name, id, why.text);
	if (why.code != TP_OK) {
		if (err)
			*err = why;
		return NULL;
	}
	of = tp_json_str(outcome, "footer");
	if (footer && strcmp(footer, of) != 0) {
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

	snprintf(text, POOL_DAMAGE_TEXT, "%s%s%s%s", what ? what : "the last verification failed",
		 at ? " (found at " : "", at ? at : "", at ? ")" : "");
	tp_text_clean(text);	/* cut, it may end inside a character, which JSON refuses */
	return text;
}
