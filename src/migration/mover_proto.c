/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_proto.c - Messages between the engine and torpor-mover: sending, receiving, errors
 *
 * A packet is a message; the kernel keeps the borders, so there is no framing
 * and a bad message costs no more than itself.
 */
#include "migration/mover_proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_sock.h"

static bool connection_lost(int e)
{
	return e == EPIPE || e == ECONNRESET || e == ENOTCONN || e == ESHUTDOWN;
}

enum mover_io mover_proto_send(int sock, const json_t *message, const int *fds, size_t nfds,
			       struct tp_error *err)
{
	tp_autofree char *text = json_dumps(message, JSON_COMPACT);
	size_t len = text ? strlen(text) : 0;
	ssize_t n;

	if (!text) {
		tp_fail_nomem(err);
		return MOVER_IO_BAD;
	}
	if (len > MOVER_MESSAGE_MAX) {
		tp_fail(err, TP_ELIMIT, "message of %zu bytes to the mover is longer than %d", len,
			MOVER_MESSAGE_MAX);
		return MOVER_IO_BAD;
	}
	do
		n = tp_send_fds(sock, text, len, fds, nfds);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return MOVER_IO_OK;
	if (errno == EAGAIN)
		return MOVER_IO_AGAIN;
	if (connection_lost(errno))
		return MOVER_IO_END;
	tp_fail_sys(err, errno, "send on the mover's control socket");
	return MOVER_IO_BAD;
}

static void close_all(int *fds, size_t *nfds)
{
	for (size_t i = 0; i < *nfds; i++)
		tp_close(&fds[i]);
	*nfds = 0;
}

/* n bytes at text, or -1 and errno, as one object. */
static enum mover_io take_message(const char *text, ssize_t n, json_t **message,
				  struct tp_error *err)
{
	json_t *value;

	if (n == 0 || (n < 0 && connection_lost(errno)))
		return MOVER_IO_END;
	if (n < 0 && errno == EAGAIN)
		return MOVER_IO_AGAIN;
	if (n < 0 && errno == EMSGSIZE)
		tp_fail(err, TP_ELIMIT, "mover message is longer than %d bytes", MOVER_MESSAGE_MAX);
	else if (n < 0)
		tp_fail_sys(err, errno, "receive on the mover's control socket");
	if (n < 0)
		return MOVER_IO_BAD;
	value = tp_json_parse(text, (size_t)n, MOVER_DEPTH_MAX, err);
	if (!value) {
		tp_prefix(err, "mover message");
		return MOVER_IO_BAD;
	}
	if (!json_is_object(value)) {
		tp_fail(err, TP_EPROTO, "mover message is not a JSON object");
		json_decref(value);
		return MOVER_IO_BAD;
	}
	*message = value;
	return MOVER_IO_OK;
}

enum mover_io mover_proto_receive(int sock, json_t **message, int *fds, size_t *nfds,
				  struct tp_error *err)
{
	tp_autofree char *text = malloc(MOVER_MESSAGE_MAX);
	size_t got = *nfds;
	enum mover_io answer;
	ssize_t n;

	*nfds = 0;
	if (!text) {
		tp_fail_nomem(err);
		return MOVER_IO_BAD;
	}
	do {
		size_t room = got;

		n = tp_recv_fds(sock, text, MOVER_MESSAGE_MAX, fds, &room);
		*nfds = n >= 0 ? room : 0;
	} while (n < 0 && errno == EINTR);
	answer = take_message(text, n, message, err);
	if (answer != MOVER_IO_OK)
		close_all(fds, nfds);
	return answer;
}

json_t *mover_proto_error(const struct tp_error *e)
{
	json_t *value = json_pack("{s:s, s:s}", "class", tp_error_class(e), "desc", e->text);

	/* A text cut in the middle of a character is not JSON: the class says enough. */
	if (!value)
		value = json_pack("{s:s, s:s}", "class", tp_error_class(e), "desc", "failed");
	if (value && e->sys)
		tp_json_set(value, "errno", json_integer(e->sys));
	return value ? json_pack("{s:o}", "error", value) : NULL;
}

static enum tp_code code_of_class(const char *class_)
{
	static const struct {
		const char *class_;
		enum tp_code code;
	} codes[] = {
		{ "Corrupt", TP_ECORRUPT }, { "QemuError", TP_EQMP }, { "Timeout", TP_ETIMEOUT },
		{ "Cancelled", TP_ECANCELLED }, { "Unsupported", TP_EUNSUPPORTED },
		{ "GenericError", TP_EARG },
	};

	for (size_t i = 0; i < TP_N(codes); i++)
		if (!strcmp(codes[i].class_, class_))
			return codes[i].code;
	return TP_ESYS;
}

bool mover_proto_fail(struct tp_error *err, const json_t *value)
{
	const char *class_ = tp_json_str(value, "class");
	const char *desc = tp_json_str(value, "desc");
	struct tp_error e = TP_ERROR_INIT;

	if (!class_ || strlen(class_) >= TP_CLASS_SIZE)
		class_ = "IOError";
	tp_fail_class(&e, code_of_class(class_), class_, "%s", desc ? desc : "mover failed");
	for (char *p = e.text; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
	e.sys = (int)tp_json_int(value, "errno", 0);
	if (err && err->code == TP_OK)
		*err = e;
	return false;
}
