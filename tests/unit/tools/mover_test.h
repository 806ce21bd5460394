/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_test.h - What the tests of torpor-mover share */
#ifndef MOVER_TEST_H
#define MOVER_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "fake/fake_mover_peer.h"
#include "migration/mover_proto.h"

#define assert_text(text, part) \
	do { \
		const char *text_ = (text); \
		if (!text_ || !strstr(text_, part)) \
			fail_msg("\"%s\" lacks \"%s\"", text_ ? text_ : "(null)", part); \
	} while (0)

#define assert_exit(status_, code) \
	do { \
		int s_ = (status_); \
		if (!WIFEXITED(s_) || WEXITSTATUS(s_) != (code)) \
			fail_msg("wait status 0x%x, expected exit %d", (unsigned)s_, code); \
	} while (0)

/*
 * Under valgrind there is nothing to gain: it does not look into the program that is started, does
 * not know pidfd_open(2), and could not work in the sandbox.
 */
static inline void not_under_valgrind(void **state)
{
	(void)state;
	skip();
}

static inline int run_mover_tests(const char *name, const struct CMUnitTest *tests, size_t n)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(not_under_valgrind) };
	const char *valgrind = getenv("VALGRIND");
	bool skipped = valgrind && *valgrind;

	return _cmocka_run_group_tests(name, skipped ? none : tests, skipped ? 1 : n, NULL, NULL);
}

/* {"job", "protocol", "vm", "op", "fds"} merged with more (taken). fds: names by comma. */
static inline json_t *job_request(const char *job, const char *names, json_t *more_owned)
{
	json_t *r = json_pack("{s:s, s:i, s:s, s:s, s:[]}", "job", job, "protocol", MOVER_PROTOCOL,
			      "vm", "test", "op", "op-1", "fds");

	while (*names) {
		size_t n = strcspn(names, ",");

		json_array_append_new(json_object_get(r, "fds"), json_stringn(names, n));
		names += n + (names[n] == ',');
	}
	if (more_owned)
		json_object_update(r, more_owned);
	json_decref(more_owned);
	return r;
}

/* Starts a mover with this request. */
static inline void start_job(struct mover_peer *p, const char *job, const char *names,
			     const int *fds, size_t nfds, json_t *more_owned)
{
	mover_peer_start(p);
	mover_peer_send(p, job_request(job, names, more_owned), fds, nfds);
}

/* An error of this class and text comes as the last message, then the end with this status. */
static inline void assert_job_error(struct mover_peer *p, const char *class_, const char *text,
				    int status)
{
	tp_autojson json_t *e = mover_peer_expect(p, "error");
	tp_autojson json_t *none = NULL;

	assert_non_null(e);
	assert_string_equal(tp_json_str(e, "class"), class_);
	assert_text(tp_json_str(e, "desc"), text);
	none = mover_peer_receive(p);
	assert_null(none);
	assert_exit(mover_peer_wait(p), status);
}

static inline void assert_hello(struct mover_peer *p)
{
	tp_autojson json_t *hello = mover_peer_expect(p, "hello");

	assert_non_null(hello);
	assert_int_equal(tp_json_int(hello, "protocol", 0), MOVER_PROTOCOL);
	assert_int_equal(tp_json_int(hello, "pid", 0), p->pid);
	assert_string_equal(tp_json_str(hello, "version"), TP_VERSION);
}

#endif
