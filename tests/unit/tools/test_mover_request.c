/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_mover_request.c - The mover on bad requests: one error, one exit status, no hang */
#include "mover_test.h"

static void send_text(struct mover_peer *p, const char *text, size_t n)
{
	assert_int_equal(send(p->control, text, n, MSG_NOSIGNAL), n);
}

static void bad_text(const char *text, size_t n, const char *class_, const char *part)
{
	struct mover_peer p;

	mover_peer_start(&p);
	send_text(&p, text, n);
	assert_job_error(&p, class_, part, MOVER_EXIT_ERROR);
	mover_peer_free(&p);
}

static void not_a_request(void **state)
{
	static const char deep[] = "{\"job\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}";
	static const struct {
		const char *text, *class_, *part;
	} bad[] = {
		{ "hello?", "GenericError", "mover message" },
		{ "{\"job\": ", "GenericError", "mover message" },
		{ "[]", "GenericError", "object" },
		{ "{}", "GenericError", "no \"job\"" },
		{ "{\"job\": 7}", "GenericError", "no \"job\"" },
		{ deep, "GenericError", "mover message" },
		{ "{\"job\": \"load\"}", "Unsupported", "protocol" },
		{ "{\"job\": \"load\", \"protocol\": 2}", "Unsupported", "protocol" },
		{ "{\"job\": \"load\", \"protocol\": \"1\"}", "Unsupported", "protocol" },
		{ "{\"job\": \"page-serve\", \"protocol\": 1}", "Unsupported", "page-serve" },
		{ "{\"job\": \"load\", \"protocol\": 1, \"fds\": 1}", "GenericError", "array" },
		{ "{\"job\": \"load\", \"protocol\": 1, \"fds\": [\"image\"]}", "GenericError", "0 came" },
		{ "{\"job\": \"load\", \"protocol\": 1}", "GenericError", "needs descriptor \"stream\"" },
		{ "{\"job\": \"verify\", \"protocol\": 1, \"fds\": []}", "GenericError", "\"image\"" },
	};

	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++)
		bad_text(bad[i].text, strlen(bad[i].text), bad[i].class_, bad[i].part);
}

static void too_long(void **state)
{
	char *text = malloc(70000);

	(void)state;
	assert_non_null(text);
	memset(text, ' ', 70000);
	memcpy(text, "{\"job\": \"verify\", \"protocol\": 1}", 32);
	bad_text(text, 70000, "GenericError", "longer than 65536");
	free(text);
}

static void wrong_descriptors(void **state)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int two[2] = { null, null };
	struct mover_peer p;

	(void)state;
	start_job(&p, "verify", "image,image", two, 2, NULL);
	assert_job_error(&p, "GenericError", "twice", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	start_job(&p, "verify", "image,other", two, 2, NULL);
	assert_job_error(&p, "GenericError", "takes 1 descriptors, 2 came", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	start_job(&p, "verify", "image", two, 2, NULL);
	assert_job_error(&p, "GenericError", "names 1 descriptors, 2 came", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	/* The right names for the wrong things: found once in the sandbox. */
	start_job(&p, "verify", "image", two, 1, NULL);
	assert_hello(&p);
	assert_job_error(&p, "GenericError", "neither a file", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	start_job(&p, "load", "stream,image", two, 2, NULL);
	assert_hello(&p);
	assert_job_error(&p, "GenericError", "stream socket", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	close(null);
}

static void wrong_members(void **state)
{
	int image = memfd_create("image", MFD_CLOEXEC);
	struct mover_peer p;

	(void)state;
	start_job(&p, "verify", "image", &image, 1, json_pack("{s:i}", "threads", 65));
	assert_hello(&p);
	assert_job_error(&p, "GenericError", "threads", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	start_job(&p, "verify", "image", &image, 1, json_pack("{s:s}", "threads", "two"));
	assert_hello(&p);
	assert_job_error(&p, "GenericError", "threads", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	start_job(&p, "verify", "image", &image, 1, json_pack("{s:s}", "cgroup", "/nonexistent"));
	assert_job_error(&p, "IOError", "/nonexistent/cgroup.procs", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	start_job(&p, "verify", "image", &image, 1, json_pack("{s:s}", "fault", "made-up"));
	assert_job_error(&p, "GenericError", "fault", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	close(image);
}

static void no_request_at_all(void **state)
{
	struct mover_peer p;

	(void)state;
	mover_peer_start(&p);
	mover_peer_close(&p);
	assert_exit(mover_peer_wait(&p), MOVER_EXIT_ERROR);
	mover_peer_free(&p);
}

#ifndef TP_FAULTS
static void faults_are_not_built_in(void **state)
{
	int image = memfd_create("image", MFD_CLOEXEC);
	struct mover_peer p;

	(void)state;
	start_job(&p, "selftest-sandbox", "", NULL, 0, json_pack("{s:s}", "attempt", "open"));
	assert_job_error(&p, "Unsupported", "selftest-sandbox", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	start_job(&p, "verify", "image", &image, 1, json_pack("{s:s}", "fault", "die-after-hello"));
	assert_job_error(&p, "GenericError", "without fault points", MOVER_EXIT_ERROR);
	mover_peer_free(&p);
	close(image);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_a_request),
		cmocka_unit_test(too_long),
		cmocka_unit_test(wrong_descriptors),
		cmocka_unit_test(wrong_members),
		cmocka_unit_test(no_request_at_all),
#ifndef TP_FAULTS
		cmocka_unit_test(faults_are_not_built_in),
#endif
	};

	return run_mover_tests("mover_request", tests, TP_N(tests));
}
