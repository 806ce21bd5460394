/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_torpord.c - A scripted daemon for tests of the client: the real program on the other side */
#include "fake/fake_torpord.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"

#define LOOK_MS 2
#define WORDS_MAX 30
#define TEXT_MAX (4u << 20)

_Noreturn static void give_up(struct fake_torpord *d, const char *what, const char *more)
{
	tp_autofree char *err = d->err >= 0 ? fake_torpord_err(d) : NULL;

	fprintf(stderr, "fake torpord: %s: %s; the client said: %s\n", what, more ? more : "", err ? err : "");
	if (d->client > 0)
		kill(d->client, SIGKILL);
	abort();
}

static json_t *parse(struct fake_torpord *d, const char *text)
{
	tp_autofree char *copy = strdup(text);
	struct tp_error err = TP_ERROR_INIT;
	json_t *value;

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	value = tp_json_parse(copy, strlen(copy), 64, &err);
	if (!value)
		give_up(d, "the script is no JSON", text);
	return value;
}

void fake_torpord_open(struct fake_torpord *d)
{
	struct tp_error err = TP_ERROR_INIT;

	*d = (struct fake_torpord){ .conn = -1, .out = -1, .err = -1, .input = -1, .in = TP_BUF_INIT(TEXT_MAX) };
	snprintf(d->dir, sizeof(d->dir), "/tmp/torpor-test-XXXXXX");
	if (!mkdtemp(d->dir))
		abort();
	snprintf(d->path, sizeof(d->path), "%s/sock", d->dir);
	d->listener = tp_listen_unix(d->path, 0600, &err);
	if (d->listener < 0)
		give_up(d, "listen", err.text);
}

void fake_torpord_hang_up(struct fake_torpord *d)
{
	tp_close(&d->conn);
	tp_buf_free(&d->in);
}

void fake_torpord_close(struct fake_torpord *d)
{
	if (d->client > 0) {
		kill(d->client, SIGKILL);
		waitpid(d->client, NULL, 0);
	}
	fake_torpord_hang_up(d);
	tp_close(&d->listener);
	tp_close(&d->out);
	tp_close(&d->err);
	tp_close(&d->input);
	json_decref(d->request);
	unlink(d->path);
	rmdir(d->dir);
}

/* --- the client --- */

static void exec_client(const struct fake_torpord *d, const char *const words[], int input)
{
	const char *build = getenv("TORPOR_BUILD");
	char program[4096];
	char *argv[WORDS_MAX + 2] = { (char []){ "torpor" } };

	for (size_t i = 0; words[i] && i < WORDS_MAX; i++)
		argv[i + 1] = (char *)words[i];
	snprintf(program, sizeof(program), "%s/torpor", build ? build : "build");
	setenv("TORPOR_SOCKET", d->path, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_DFL);
	dup2(input, 0);
	dup2(d->out, 1);
	dup2(d->err, 2);
	execv(program, argv);
	_exit(127);
}

void fake_torpord_run(struct fake_torpord *d, const char *const words[])
{
	int input[2];

	tp_close(&d->out);
	tp_close(&d->err);
	tp_close(&d->input);
	d->out = memfd_create("out", MFD_CLOEXEC);
	d->err = memfd_create("err", MFD_CLOEXEC);
	/* Both are appended to and read meanwhile. */
	fcntl(d->out, F_SETFL, O_APPEND);
	fcntl(d->err, F_SETFL, O_APPEND);
	if (d->out < 0 || d->err < 0 || pipe2(input, O_CLOEXEC) != 0)
		abort();
	d->client = fork();
	if (d->client == 0)
		exec_client(d, words, input[0]);
	close(input[0]);
	d->input = input[1];
}

int fake_torpord_status(struct fake_torpord *d)
{
	double until = tp_now_mono() + FAKE_TORPORD_LIMIT;
	int status;

	/* Not by a pidfd, which valgrind does not know. */
	while (waitpid(d->client, &status, WNOHANG) != d->client) {
		if (tp_now_mono() > until)
			give_up(d, "the client does not end", NULL);
		poll(NULL, 0, LOOK_MS);
	}
	d->client = 0;
	fake_torpord_hang_up(d);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static char *content(int fd)
{
	struct stat st;
	char *text;

	if (fstat(fd, &st) != 0 || st.st_size > TEXT_MAX)
		abort();
	text = calloc((size_t)st.st_size + 1, 1);
	if (!text || pread(fd, text, (size_t)st.st_size, 0) < 0)
		abort();
	return text;
}

char *fake_torpord_out(struct fake_torpord *d)
{
	return content(d->out);
}

char *fake_torpord_err(struct fake_torpord *d)
{
	return content(d->err);
}

/* --- the wire --- */

static void wait_readable(struct fake_torpord *d, int fd, double until)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	double left = until - tp_now_mono();

	if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) < 1)
		give_up(d, "nothing came from the client", NULL);
}

void fake_torpord_say(struct fake_torpord *d, const void *data, size_t n)
{
	const char *p = data;

	/* The client may have left: what is checked then is its end. */
	while (n > 0) {
		ssize_t sent = send(d->conn, p, n, MSG_NOSIGNAL);

		if (sent <= 0)
			return;
		p += sent;
		n -= (size_t)sent;
	}
}

static void say_json(struct fake_torpord *d, json_t *message_owned)
{
	tp_autojson json_t *message = message_owned;
	tp_autofree char *text = json_dumps(message, JSON_COMPACT);

	fake_torpord_say(d, text, strlen(text));
	fake_torpord_say(d, "\r\n", 2);
}

static json_t *next_request(struct fake_torpord *d)
{
	double until = tp_now_mono() + FAKE_TORPORD_LIMIT;
	struct tp_error err = TP_ERROR_INIT;
	char part[4096], *end;
	json_t *request;
	ssize_t n;

	while (!d->in.data || !(end = strchr(d->in.data, '\n'))) {
		wait_readable(d, d->conn, until);
		n = recv(d->conn, part, sizeof(part), 0);
		if (n <= 0 || !tp_buf_add(&d->in, part, (size_t)n))
			give_up(d, "the client hung up", NULL);
	}
	request = tp_json_parse(d->in.data, (size_t)(end - d->in.data), 64, &err);
	if (!request)
		give_up(d, "the request is no JSON", d->in.data);
	tp_buf_drop(&d->in, (size_t)(end - d->in.data) + 1);
	return request;
}

void fake_torpord_expect(struct fake_torpord *d, const char *command, const char *arguments)
{
	tp_autojson json_t *want = arguments ? parse(d, arguments) : NULL;
	tp_autofree char *text = NULL;
	const json_t *is;

	json_decref(d->request);
	d->request = next_request(d);
	text = json_dumps(d->request, JSON_COMPACT);
	is = json_object_get(d->request, "arguments");
	if (strcmp(tp_json_str(d->request, "execute"), command) != 0)
		give_up(d, command, text);
	if (want && !json_equal(want, is) && !(json_object_size(want) == 0 && !is))
		give_up(d, arguments, text);
}

void fake_torpord_answer(struct fake_torpord *d, const json_t *request, const char *member, const char *value)
{
	say_json(d, json_pack("{s:o, s:O*}", member, parse(d, value), "id", json_object_get(request, "id")));
}

void fake_torpord_return(struct fake_torpord *d, const char *value)
{
	fake_torpord_answer(d, d->request, "return", value);
}

void fake_torpord_error(struct fake_torpord *d, const char *error)
{
	fake_torpord_answer(d, d->request, "error", error);
}

void fake_torpord_event(struct fake_torpord *d, const char *event, const char *data)
{
	say_json(d, json_pack("{s:s, s:o, s:{s:i, s:i}}", "event", event, "data", parse(d, data), "timestamp",
			      "seconds", 1796050000, "microseconds", 0));
}

void fake_torpord_accept(struct fake_torpord *d)
{
	wait_readable(d, d->listener, tp_now_mono() + FAKE_TORPORD_LIMIT);
	fake_torpord_hang_up(d);
	d->conn = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
	if (d->conn < 0)
		give_up(d, "accept", NULL);
	say_json(d, parse(d, "{'QMP': {'version': {'qemu': {'major': 0, 'minor': 1, 'micro': 0},"
			     "'package': 'torpor'}, 'capabilities': []}}"));
	fake_torpord_expect(d, "qmp_capabilities", "{}");
	fake_torpord_return(d, "{}");
}
