/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_mover_proto.c - Messages between engine and mover: whole, bounded, with descriptors, errors */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "migration/mover_proto.h"

static int pair[2];

static int setup(void **state)
{
	(void)state;
	return tp_socketpair(SOCK_SEQPACKET, pair, NULL) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	tp_close(&pair[0]);
	tp_close(&pair[1]);
	return 0;
}

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void messages_keep_their_borders(void **state)
{
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	for (int i = 0; i < 3; i++) {
		tp_autojson json_t *m = json_pack("{s:i}", "n", i);

		assert_int_equal(mover_proto_send(pair[0], m, NULL, 0, &err), MOVER_IO_OK);
	}
	for (int i = 0; i < 3; i++) {
		tp_autojson json_t *m = NULL;
		size_t nfds = 0;

		assert_int_equal(mover_proto_receive(pair[1], &m, NULL, &nfds, &err), MOVER_IO_OK);
		assert_int_equal(tp_json_int(m, "n", -1), i);
	}
}

static void descriptors_come_along(void **state)
{
	int files[2] = { memfd_create("a", MFD_CLOEXEC), memfd_create("b", MFD_CLOEXEC) }, got[4];
	tp_autojson json_t *out = json_object(), *in = NULL;
	struct tp_error err = TP_ERROR_INIT;
	size_t nfds = 4;
	struct stat a, b;

	(void)state;
	assert_int_equal(mover_proto_send(pair[0], out, files, 2, &err), MOVER_IO_OK);
	assert_int_equal(mover_proto_receive(pair[1], &in, got, &nfds, &err), MOVER_IO_OK);
	assert_int_equal(nfds, 2);
	assert_int_equal(fstat(files[1], &a), 0);
	assert_int_equal(fstat(got[1], &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	for (int i = 0; i < 2; i++) {
		close(files[i]);
		close(got[i]);
	}
}

/* Descriptors of a message that is refused, or that nobody wants, are not left open. */
static void unwanted_descriptors_are_closed(void **state)
{
	int file = memfd_create("a", MFD_CLOEXEC), got[4];
	tp_autojson json_t *out = json_object(), *in = NULL, *none = NULL;
	struct tp_error err = TP_ERROR_INIT;
	unsigned before = open_fds();
	size_t nfds = 0;

	(void)state;
	assert_int_equal(mover_proto_send(pair[0], out, &file, 1, &err), MOVER_IO_OK);
	assert_int_equal(mover_proto_receive(pair[1], &in, NULL, &nfds, &err), MOVER_IO_OK);
	assert_int_equal(nfds, 0);
	assert_int_equal(tp_send_fds(pair[0], "no json", 7, &file, 1), 7);
	nfds = 4;
	assert_int_equal(mover_proto_receive(pair[1], &none, got, &nfds, &err), MOVER_IO_BAD);
	assert_int_equal(nfds, 0);
	assert_int_equal(open_fds(), before);
	close(file);
}

static void too_long_and_bad_messages(void **state)
{
	static const char *const bad[] = { "x", "[1]", "7", "{\"a\":1}{}", "{\"a\":\"\xff\"}" };
	char *text = malloc(MOVER_MESSAGE_MAX + 1);
	tp_autojson json_t *longest = NULL, *in = NULL;
	struct tp_error err = TP_ERROR_INIT;
	size_t nfds = 0;

	(void)state;
	assert_non_null(text);
	memset(text, 'x', MOVER_MESSAGE_MAX);
	text[MOVER_MESSAGE_MAX - 8] = 0;	/* {"a":""} */
	longest = json_pack("{s:s}", "a", text);
	assert_int_equal(mover_proto_send(pair[0], longest, NULL, 0, &err), MOVER_IO_OK);
	assert_int_equal(mover_proto_receive(pair[1], &in, NULL, &nfds, &err), MOVER_IO_OK);
	assert_true(json_equal(in, longest));
	text[MOVER_MESSAGE_MAX - 8] = 'x';
	text[MOVER_MESSAGE_MAX - 7] = 0;
	json_object_set_new(longest, "a", json_string(text));
	assert_int_equal(mover_proto_send(pair[0], longest, NULL, 0, &err), MOVER_IO_BAD);
	assert_int_equal(err.code, TP_ELIMIT);
	for (size_t i = 0; i < TP_N(bad); i++) {
		json_t *none = NULL;

		tp_error_clear(&err);
		assert_int_equal(send(pair[0], bad[i], strlen(bad[i]), 0), strlen(bad[i]));
		assert_int_equal(mover_proto_receive(pair[1], &none, NULL, &nfds, &err),
				 MOVER_IO_BAD);
		assert_null(none);
		assert_int_not_equal(err.code, TP_OK);
	}
	memset(text, ' ', MOVER_MESSAGE_MAX + 1);
	tp_error_clear(&err);
	assert_int_equal(send(pair[0], text, MOVER_MESSAGE_MAX + 1, 0), MOVER_MESSAGE_MAX + 1);
	json_decref(in);
	in = NULL;
	assert_int_equal(mover_proto_receive(pair[1], &in, NULL, &nfds, &err), MOVER_IO_BAD);
	assert_int_equal(err.code, TP_ELIMIT);
	free(text);
}

static void ends_and_full_sockets(void **state)
{
	tp_autojson json_t *m = json_pack("{s:i}", "n", 1), *in = NULL;
	struct tp_error err = TP_ERROR_INIT;
	enum mover_io io = MOVER_IO_OK;
	size_t nfds = 0;

	(void)state;
	tp_set_nonblock(pair[0], true);
	tp_set_nonblock(pair[1], true);
	assert_int_equal(mover_proto_receive(pair[1], &in, NULL, &nfds, &err), MOVER_IO_AGAIN);
	for (int i = 0; i < 100000 && io == MOVER_IO_OK; i++)
		io = mover_proto_send(pair[0], m, NULL, 0, &err);
	assert_int_equal(io, MOVER_IO_AGAIN);
	tp_close(&pair[1]);
	assert_int_equal(mover_proto_send(pair[0], m, NULL, 0, &err), MOVER_IO_END);
	assert_int_equal(mover_proto_receive(pair[0], &in, NULL, &nfds, &err), MOVER_IO_END);
	assert_int_equal(err.code, TP_OK);
}

static void errors_travel(void **state)
{
	static const struct {
		const char *class_;
		enum tp_code code;
	} classes[] = {
		{ "Corrupt", TP_ECORRUPT }, { "QemuError", TP_EQMP }, { "Unsupported", TP_EUNSUPPORTED },
		{ "GenericError", TP_EARG }, { "Cancelled", TP_ECANCELLED },
		{ "InsufficientSpace", TP_ESYS }, { "IOError", TP_ESYS },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(classes); i++) {
		struct tp_error sent = TP_ERROR_INIT, got = TP_ERROR_INIT;
		tp_autojson json_t *message = NULL;

		tp_fail_class(&sent, classes[i].code, classes[i].class_, "image \"%s\"", "x");
		sent.sys = ENOSPC;
		message = mover_proto_error(&sent);
		assert_false(mover_proto_fail(&got, json_object_get(message, "error")));
		assert_int_equal(got.code, classes[i].code);
		assert_string_equal(tp_error_class(&got), classes[i].class_);
		assert_string_equal(got.text, "image \"x\"");
		assert_int_equal(got.sys, ENOSPC);
	}
}

static void odd_errors_are_errors(void **state)
{
	static const char *const odd[] = { "null", "{}", "[]", "{\"class\": 1, \"desc\": {}}",
		"{\"class\": \"AClassNameThatIsMuchLongerThanAnyOfOurs\", \"desc\": \"a\\nb\"}" };
	struct tp_error first = TP_ERROR_INIT;

	(void)state;
	for (size_t i = 0; i < TP_N(odd); i++) {
		tp_autojson json_t *value = json_loads(odd[i], JSON_DECODE_ANY, NULL);
		struct tp_error got = TP_ERROR_INIT;

		assert_false(mover_proto_fail(&got, value));
		assert_string_equal(tp_error_class(&got), "IOError");
		assert_true(got.text[0] && !strchr(got.text, '\n'));
	}
	tp_fail(&first, TP_ECORRUPT, "first");
	mover_proto_fail(&first, NULL);
	assert_string_equal(first.text, "first");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(messages_keep_their_borders, setup, teardown),
		cmocka_unit_test_setup_teardown(descriptors_come_along, setup, teardown),
		cmocka_unit_test_setup_teardown(unwanted_descriptors_are_closed, setup, teardown),
		cmocka_unit_test_setup_teardown(too_long_and_bad_messages, setup, teardown),
		cmocka_unit_test_setup_teardown(ends_and_full_sockets, setup, teardown),
		cmocka_unit_test(errors_travel),
		cmocka_unit_test(odd_errors_are_errors),
	};

	return cmocka_run_group_tests_name("mover_proto", tests, NULL, NULL);
}
