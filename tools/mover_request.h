/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_request.h - The engine's first message to torpor-mover: one job and its descriptors */
#ifndef MOVER_REQUEST_H
#define MOVER_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "base/tp_sock.h"

struct mover_request {
	json_t *root;			/* the whole message */
	const char *job;		/* borrowed from root; "" until it is known */
	const char *names[TP_MAX_FDS];	/* borrowed from root */
	int fds[TP_MAX_FDS];		/* owned; -1 once closed or handed over */
	size_t nfds;
};

#define MOVER_REQUEST_INIT { .job = "" }

/* Receives and checks what all jobs have in common. */
bool mover_request_receive(int sock, struct mover_request *r, struct tp_error *err);
void mover_request_free(struct mover_request *r);
/* The descriptor of that name, still owned by r, or -1. */
int mover_request_fd(const struct mover_request *r, const char *name);
/* The descriptors are exactly those of the NULL-terminated list; one of name "?x" may be missing. */
bool mover_request_expect(const struct mover_request *r, const char *const *names,
			  struct tp_error *err);
/* A whole number from 0 to max; absent: otherwise. */
bool mover_request_number(const struct mover_request *r, const char *key, uint64_t otherwise,
			  uint64_t max, uint64_t *value, struct tp_error *err);
bool mover_request_bool(const struct mover_request *r, const char *key, bool otherwise,
			bool *value, struct tp_error *err);
bool mover_is_stream(int fd);
/* fd "stream" is a connected stream socket; that of a file or block device. */
bool mover_request_stream(const struct mover_request *r, int *fd, struct tp_error *err);
bool mover_request_file(const struct mover_request *r, const char *name, bool writable, int *fd,
			struct tp_error *err);

#endif
