/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* selector.h - Which VMs are meant: KEY=VALUE,KEY!=VALUE,KEY on their labels, all terms at once */
#ifndef SELECTOR_H
#define SELECTOR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/tp_error.h"

#define SELECTOR_TERM_MAX 512	/* bytes of one term */

/* GenericError where a term is empty, has no key or is too long. */
bool selector_check(const char *selector, struct tp_error *err);
/* selector: checked before; NULL selects all. labels: an object of texts, or NULL. */
bool selector_matches(const char *selector, const json_t *labels);

#endif
