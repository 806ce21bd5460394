/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_test.h - A scripted daemon for each test of the client, and what the client printed */
#ifndef CLI_TEST_H
#define CLI_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/tp_cleanup.h"
#include "fake/fake_torpord.h"

static inline int setup(void **state)
{
	static struct fake_torpord d;

	fake_torpord_open(&d);
	*state = &d;
	return 0;
}

static inline int teardown(void **state)
{
	fake_torpord_close(*state);
	return 0;
}

static inline void out_is(struct fake_torpord *d, const char *text)
{
	tp_autofree char *out = fake_torpord_out(d);

	assert_string_equal(out, text);
}

static inline void out_has(struct fake_torpord *d, const char *text)
{
	tp_autofree char *out = fake_torpord_out(d);

	if (!strstr(out, text))
		fail_msg("\"%s\" is not in \"%s\"", text, out);
}

static inline void out_lacks(struct fake_torpord *d, const char *text)
{
	tp_autofree char *out = fake_torpord_out(d);

	if (strstr(out, text))
		fail_msg("\"%s\" is in \"%s\"", text, out);
}

static inline void err_is(struct fake_torpord *d, const char *text)
{
	tp_autofree char *err = fake_torpord_err(d);

	assert_string_equal(err, text);
}

static inline void err_has(struct fake_torpord *d, const char *text)
{
	tp_autofree char *err = fake_torpord_err(d);

	if (!strstr(err, text))
		fail_msg("\"%s\" is not in \"%s\"", text, err);
}

#endif
