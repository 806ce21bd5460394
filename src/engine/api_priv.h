/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_priv.h - What the files of the API share: schema rows, clients, calls, sessions
 */
#ifndef API_PRIV_H
#define API_PRIV_H

#include <ev.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/tp_fs.h"
#include "base/tp_sock.h"
#include "engine/api.h"
#include "engine/api_state.h"

#define API_REQUEST_MAX (1u << 20)	/* bytes of one request */
#define API_REQUEST_DEPTH 64		/* levels of nesting in one */
#define API_REPLY_MAX (7u << 20)	/* bytes of one reply */
#define API_OUT_MAX (16u << 20)		/* bytes that may wait for one connection */
#define API_OUT_EVENTS_MAX (8u << 20)	/* above it events are left out and counted */
#define API_OUTSTANDING_MAX 64		/* requests of one connection that are not answered yet */
#define API_FDS_MAX 64			/* names made by getfd, one connection */
#define API_FILTER_MAX 1024		/* names in one event-filter */
#define API_PROGRESS_INTERVAL 1.0	/* seconds between progress events of one operation */

/* --- schema rows (api_schema_*.c); every table ends with a row without name --- */

/*
 * type: "str", "int", "number", "bool", "any", "null", "object" (members not checked here), "name",
 * "path" (absolute), "size" (bytes), "seconds", "time" (RFC 3339), or the name of a type; "[T]" is a
 * list of T and "{T}" an object that maps names to T.
 */
struct api_member {
	const char *name;
	const char *type;
	bool optional;
	const char *doc;
	bool ranged;			/* min and max count */
	double min, max;
	const char *unit;		/* where the type does not say it */
	const char *since;		/* NULL: the first version */
};

enum api_kind { API_STRUCT, API_ENUM, API_ALTERNATE };

struct api_type {
	const char *name;
	enum api_kind kind;
	bool open;			/* a struct whose members are checked elsewhere (spec.c) */
	const char *doc;
	const struct api_member *members;	/* of an enum: name and doc; of an alternate: type and doc */
	const char *since;
};

struct api_event_type {
	const char *name;
	const char *doc;
	const struct api_member *members;
	const char *since;
};

struct api_class {
	const char *name;
	const char *retry;		/* "now", "later", "never" */
	const char *doc;
};

#define REQUIRED(n, t, d) { .name = (n), .type = (t), .doc = (d) }
#define OPTIONAL(n, t, d) { .name = (n), .type = (t), .optional = true, .doc = (d) }
#define OPTIONAL_RANGE(n, t, low, high, u, d) { .name = (n), .type = (t), .optional = true, \
	.ranged = true, .min = (low), .max = (high), .unit = (u), .doc = (d) }
#define VALUE(n, d) { .name = (n), .doc = (d) }		/* of an enum */
#define END_ROWS { .name = NULL }

extern const struct api_member api_operation_args[];	/* wait, timeout, ... */
extern const struct api_command api_commands[];
extern const struct api_type api_types_args[], api_types_spec[], api_types_results[],
	api_types_events[];
extern const struct api_event_type api_events[];
extern const struct api_class api_classes[];

const struct api_type *api_type_find(const char *name);
const struct api_event_type *api_event_find(const char *name);
const char *api_class_retry(const char *class_);
const char *api_role_name(enum torpor_role role);
/* Types that are built in: their JSON type in QAPI's words ("string", "int", ...); NULL: none. */
const char *api_builtin_json(const char *type);
/* "[T]" or "{T}": T into inner[64]; the bracket, or 0. */
char api_container(const char *type, char inner[64]);

/* --- clients and calls (api_dispatch.c) --- */

struct api_call {
	struct torpor *t;
	struct torpor_client *client;	/* NULL: gone */
	struct api_call *next, **prev;	/* all calls of the engine */
	struct api_call *behind;	/* the next one in its client's queue */
	const struct api_command *cmd;	/* NULL until it was found */
	json_t *request;		/* object; NULL: the input was none */
	json_t *args;
	struct tp_error bad;		/* set: not executed, answered with it */
	enum torpor_role role;
	bool in_turn;
	int fds[TP_MAX_FDS];
	size_t nfds;
};

struct api_filter {
	json_t *events;			/* object used as a set; NULL: all but QEMU_EVENT */
	json_t *vms;			/* NULL: all */
	bool progress;
};

struct torpor_client {
	struct torpor *t;
	struct torpor_client *next, **prev;
	enum torpor_role role;
	torpor_message_fn fn;
	void *arg;
	bool direct;			/* a connection: messages are handed over at once */
	bool negotiated;
	bool wants_events;
	bool flushing, dead;
	unsigned outstanding;
	struct api_call *turn;		/* the one without id that is being executed */
	struct api_call *queue, **queue_end;
	json_t *outbox;
	struct ev_timer kick;		/* never started: fed to the loop */
	struct api_filter filter;
	json_t *fds;			/* name: descriptor */
	uint64_t seq, lost;
};

/* A client that negotiates and gets its messages at once, also from inside torpor_execute. */
struct torpor_client *api_client_new(struct torpor *t, enum torpor_role role, torpor_message_fn fn,
				     void *arg);
/* Input that is no request: answered with this error, in turn. */
void api_client_bad(struct torpor_client *c, const struct tp_error *err);
void api_client_send(struct torpor_client *c, json_t *message_owned);
json_t *api_greeting(void);
json_t *api_error_message(const struct tp_error *err, json_t *data_owned, const json_t *id);

/* --- descriptors by name and event filters (api_host.c, api_event.c) --- */

void api_fds_free(struct torpor_client *c);
void api_filter_free(struct api_filter *f);
/* Tells a client how many events it missed, once its backlog is gone. */
void api_event_tell_lost(struct torpor_client *c);

/* --- api_event.c --- */

struct api_progress;			/* last progress event of each operation */
void api_progress_free(struct api_state *api);

/* --- api_session.c --- */

struct api_session;
/* Bytes that wait for the connection whose client's arg this is. */
size_t api_session_backlog(const struct api_session *s);
/* Sends what the sockets take at once, closes them. */
void api_sessions_free(struct api_state *api);

struct api_state {
	struct torpor *t;
	struct torpor_client *clients;
	struct api_call *calls;
	struct api_session *sessions;
	size_t nsessions;
	struct api_progress *progress;
	json_t *schema;			/* query-qmp-schema, once asked for */
};

#endif
