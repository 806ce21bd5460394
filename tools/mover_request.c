/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_request.c - The engine's first message to torpor-mover: one job and its descriptors */
#include "mover_request.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "migration/mover_proto.h"

static bool refuse(struct tp_error *err, const char *what)
{
	return tp_fail(err, TP_EARG, "mover request: %s", what);
}

static bool check_names(struct mover_request *r, struct tp_error *err)
{
	const json_t *names = json_object_get(r->root, "fds");

	if (names && !json_is_array(names))
		return refuse(err, "\"fds\" is not an array");
	if (json_array_size(names) != r->nfds)
		return tp_fail(err, TP_EARG, "mover request: \"fds\" names %zu descriptors, %zu "
			       "came", json_array_size(names), r->nfds);
	for (size_t i = 0; i < r->nfds; i++) {
		r->names[i] = json_string_value(json_array_get(names, i));
		if (!r->names[i])
			return refuse(err, "\"fds\" holds something else than names");
		for (size_t k = 0; k < i; k++)
			if (!strcmp(r->names[k], r->names[i]))
				return refuse(err, "\"fds\" names a descriptor twice");
	}
	return true;
}

static bool check_common(struct mover_request *r, struct tp_error *err)
{
	const char *job = tp_json_str(r->root, "job");
	int64_t protocol = tp_json_int(r->root, "protocol", -1);

	if (!job)
		return refuse(err, "no \"job\"");
	r->job = job;
	if (protocol != MOVER_PROTOCOL)
		return tp_fail_class(err, TP_EUNSUPPORTED, "Unsupported",
				     "mover speaks protocol %d, the request is of %lld",
				     MOVER_PROTOCOL, (long long)protocol);
	return check_names(r, err);
}

bool mover_request_receive(int sock, struct mover_request *r, struct tp_error *err)
{
	r->nfds = TP_MAX_FDS;
	switch (mover_proto_receive(sock, &r->root, r->fds, &r->nfds, err)) {
	case MOVER_IO_OK:
		return check_common(r, err);
	case MOVER_IO_BAD:
		return false;
	default:
		return tp_fail(err, TP_ECANCELLED, "no request came");
	}
}

void mover_request_free(struct mover_request *r)
{
	for (size_t i = 0; i < r->nfds; i++)
		tp_close(&r->fds[i]);
	json_decref(r->root);
	r->root = NULL;
	r->job = "";
	r->nfds = 0;
}

int mover_request_fd(const struct mover_request *r, const char *name)
{
	for (size_t i = 0; i < r->nfds; i++)
		if (!strcmp(r->names[i], name))
			return r->fds[i];
	return -1;
}

bool mover_request_expect(const struct mover_request *r, const char *const *names,
			  struct tp_error *err)
{
	size_t n = 0;

	for (size_t i = 0; names[i]; i++) {
		const char *name = names[i] + (names[i][0] == '?');
		bool there = mover_request_fd(r, name) >= 0;

		n += there;
		if (!there && name == names[i])
			return tp_fail(err, TP_EARG, "mover request: job %s needs descriptor "
				       "\"%s\"", r->job, name);
	}
	if (n != r->nfds)
		return tp_fail(err, TP_EARG, "mover request: job %s takes %zu descriptors, %zu "
			       "came", r->job, n, r->nfds);
	return true;
}

bool mover_request_number(const struct mover_request *r, const char *key, uint64_t otherwise,
			  uint64_t max, uint64_t *value, struct tp_error *err)
{
	const json_t *v = json_object_get(r->root, key);

	if (!v) {
		*value = otherwise;
		return true;
	}
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
	    (uint64_t)json_integer_value(v) > max)
		return tp_fail(err, TP_EARG, "mover request: \"%s\" is no number from 0 to %llu",
			       key, (unsigned long long)max);
	*value = (uint64_t)json_integer_value(v);
	return true;
}

bool mover_request_bool(const struct mover_request *r, const char *key, bool otherwise,
			bool *value, struct tp_error *err)
{
	const json_t *v = json_object_get(r->root, key);

	if (v && !json_is_boolean(v))
		return tp_fail(err, TP_EARG, "mover request: \"%s\" is neither true nor false",
			       key);
	*value = v ? json_is_true(v) : otherwise;
	return true;
}

bool mover_is_stream(int fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
}

bool mover_request_stream(const struct mover_request *r, int *fd, struct tp_error *err)
{
	int sock = mover_request_fd(r, "stream");

	if (!mover_is_stream(sock))
		return refuse(err, "\"stream\" is no stream socket");
	*fd = sock;
	return true;
}

bool mover_request_file(const struct mover_request *r, const char *name, bool writable, int *fd,
			struct tp_error *err)
{
	int file = mover_request_fd(r, name);
	int mode = fcntl(file, F_GETFL);
	struct stat st;

	if (mode < 0 || fstat(file, &st) < 0)
		return tp_fail_sys(err, errno, "mover request: \"%s\"", name);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return tp_fail(err, TP_EARG, "mover request: \"%s\" is neither a file nor a block device",
			       name);
	mode &= O_ACCMODE;
	if (writable ? mode != O_RDWR : mode == O_WRONLY)
		return tp_fail(err, TP_EARG, "mover request: \"%s\" cannot be %s", name,
			       writable ? "written" : "read");
	*fd = file;
	return true;
}
