/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* selector.c - Terms of a selector, taken apart in one place for the check and for the match */
#include "engine/selector.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"

struct term {
	char text[SELECTOR_TERM_MAX + 1];
	const char *key, *value;	/* in text; value NULL: the label is there, whatever it is */
	bool differs;
};

/* The term at *selector, which moves behind it; false: it is none. */
static bool next_term(const char **selector, struct term *t)
{
	size_t n = strcspn(*selector, ",");
	char *eq;

	if (n > SELECTOR_TERM_MAX)
		return false;
	snprintf(t->text, sizeof(t->text), "%.*s", (int)n, *selector);
	/* A comma at the end promises another term. */
	*selector += n + ((*selector)[n] == ',' && (*selector)[n + 1] != '\0');
	eq = strchr(t->text, '=');
	t->differs = eq && eq > t->text && eq[-1] == '!';
	t->key = t->text;
	t->value = eq ? eq + 1 : NULL;
	if (eq)
		*(t->differs ? eq - 1 : eq) = '\0';
	return t->key[0] != '\0';
}

bool selector_check(const char *selector, struct tp_error *err)
{
	const char *rest = selector;
	struct term t;

	do {
		const char *at = rest;

		if (!next_term(&rest, &t) || *rest == ',')
			return tp_fail_class(err, TP_EARG, "GenericError", "selector \"%.100s\": \"%.*s\" is not "
					     "KEY=VALUE, KEY!=VALUE or KEY", selector, (int)strcspn(at, ",") > 60 ?
					     60 : (int)strcspn(at, ","), at);
	} while (*rest);
	return true;
}

bool selector_matches(const char *selector, const json_t *labels)
{
	struct term t;

	while (selector && *selector) {
		const char *is;

		if (!next_term(&selector, &t))
			return false;
		is = tp_json_str(labels, t.key);
		if (t.value ? (is && strcmp(is, t.value) == 0) == t.differs : !is)
			return false;
	}
	return true;
}
