/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tp_json.h - Short access to jansson values
 *
 * Getters borrow; they take NULL and wrong types and then give the default.
 */
#ifndef TP_JSON_H
#define TP_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tp_cleanup.h"
#include "tp_error.h"

const char *tp_json_str(const json_t *object, const char *key);	/* NULL if absent or no string */
int64_t tp_json_int(const json_t *object, const char *key, int64_t otherwise);
double tp_json_num(const json_t *object, const char *key, double otherwise);	/* integer or real */
bool tp_json_bool(const json_t *object, const char *key, bool otherwise);
/* By path "a.b.c"; NULL if absent. */
json_t *tp_json_path(const json_t *root, const char *path);
/* json_object_set_new that treats out of memory as an error. value is taken. NULL value: false. */
bool tp_json_set(json_t *object, const char *key, json_t *value_owned);
bool tp_json_set_str(json_t *object, const char *key, const char *text_or_null);	/* NULL: null */
/* RFC 7396. Returns a new value; target and patch are borrowed and may be NULL. */
json_t *tp_json_merge_patch(const json_t *target, const json_t *patch);
/* Compact text with sorted keys; the caller frees. Equal values give equal texts. */
char *tp_json_text(const json_t *value);
/* Parses text of n bytes with at most `depth` levels (json strings with invalid UTF-8 are refused). */
json_t *tp_json_parse(const char *text, size_t n, unsigned depth, struct tp_error *err);
/* Depth of nesting of text, without parsing: counts brackets outside strings. */
unsigned tp_json_depth(const char *text, size_t n);

#endif
