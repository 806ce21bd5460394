/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torpor.h - The engine as a library: puts QEMU virtual machines to sleep and wakes them
 *
 * The host program hands in its libev loop; requests, replies and events are the
 * JSON of torpor's wire protocol (docs/schema.md), as jansson values. All
 * functions are called from the loop's thread; callbacks come from the loop,
 * never from inside a call. The library blocks, handles and raises no signal,
 * writes nothing to stderr and never exits. The default loop may be used, but
 * then libev reaps the children's exit statuses and torpor reports them as
 * unknown: prefer ev_loop_new().
 */
#ifndef TORPOR_H
#define TORPOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden visibility: what stands here is what it shows. */
#pragma GCC visibility push(default)

struct ev_loop;
struct torpor;
struct torpor_client;

#define TORPOR_API 1

#define TORPOR_ERROR_SIZE 512

struct torpor_pool {
	const char *name, *path;
	unsigned long long quota;	/* bytes; 0: none */
};

/* `size` is sizeof(struct torpor_options) of the caller's header; members are added at the end. All is
 * copied: nothing here need outlive torpor_new. */
struct torpor_options {
	size_t size;
	const char *state_dir;		/* absolute; made if missing; locked */
	const char *runtime_dir;	/* absolute; sockets of VMs; lives until the next boot */
	const char *mover_path;		/* torpor-mover; NULL: beside the program, else libexecdir */
	const struct torpor_pool *pools;
	size_t npools;
	const char *host_name;		/* NULL: gethostname */
};

/* Opens the state directory, recovers what a former engine left, adopts running VMs. NULL: error is
 * one sentence in error[TORPOR_ERROR_SIZE] (may be NULL). */
struct torpor *torpor_new(struct ev_loop *loop, const struct torpor_options *options, char *error);

enum torpor_role { TORPOR_ROLE_NONE, TORPOR_ROLE_READ, TORPOR_ROLE_OPERATE, TORPOR_ROLE_ADMIN };

/*
 * A client of the host program itself: no greeting and no negotiation. Replies and events come in
 * the order in which the state changed. message is complete ({"return"...}, {"error"...} or
 * {"event"...}), borrowed. Free clients before their engine.
 */
typedef void (*torpor_message_fn)(void *arg, const json_t *message);
struct torpor_client *torpor_client_new(struct torpor *t, enum torpor_role role,
					torpor_message_fn fn, void *arg);
void torpor_client_free(struct torpor_client *c);
/*
 * Executes a request {"execute", "arguments"?, "id"?} (borrowed; not to be changed before its
 * answer); its answer comes by fn, exactly once. Requests without "id" are executed strictly in
 * turn. fds (may be NULL): descriptors that came with it, taken; nfds of them (getfd).
 */
void torpor_execute(struct torpor_client *c, const json_t *request, int *fds, size_t nfds);
/* Whether clients get events: 0 none (default), 1 as set by event-filter, at first all. */
void torpor_client_events(struct torpor_client *c, bool on);

/*
 * Serves the wire protocol on a connected UNIX stream socket: greeting, negotiation, framing,
 * limits, descriptors that come with getfd, events, and the end of it. fd is taken, also on
 * failure. peer names the other side in the log. closed (may be NULL) is called from the loop,
 * once, when the connection is over; not by torpor_free, which closes all that are left, having
 * sent what their sockets take at once. False: no memory, or fd is no socket.
 */
bool torpor_serve(struct torpor *t, int fd, enum torpor_role role, const char *peer,
		  void (*closed)(void *arg), void *arg);
/* Connections that torpor_serve has at present. */
size_t torpor_connections(const struct torpor *t);

/*
 * Orderly end: operations before their commit point are cancelled and rolled back within `limit`
 * seconds, later ones are left to recovery; VMs stay. done comes from the loop; then torpor_free.
 */
void torpor_shutdown(struct torpor *t, double limit, void (*done)(void *arg), void *arg);
void torpor_free(struct torpor *t);	/* at once; as if the process had been killed */

/* The introspection of query-qmp-schema, commands, events, types with docs: a new value. */
json_t *torpor_schema(void);
const char *torpor_version(void);
/* level: 0 error .. 4 trace. The sink is process-wide. */
void torpor_set_log(void (*fn)(void *arg, int level, const char *source, const char *text), void *arg,
		    int level);
/* One line for each VM and operation to the log (level info). */
void torpor_log_state(struct torpor *t);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
