/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_spec.h - Members of a VM's spec that people write with units */
#ifndef CLI_SPEC_H
#define CLI_SPEC_H

#include <jansson.h>

#include "base/tp_error.h"
#include "cli_verb.h"

/* kind: CLI_SIZE or CLI_DURATION; ended by a row without path. */
struct cli_spec_unit {
	const char *path;
	enum cli_kind kind;
};
extern const struct cli_spec_unit cli_spec_units[];

/*
 * New: the number that text (no JSON) means for the member at path, in bytes or seconds; a text where the
 * member has no unit. NULL: err.
 */
json_t *cli_spec_value(const char *path, const char *text, struct tp_error *err);

#endif
