/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_dispatch.c - Clients, their requests and the order of answers
 *
 * Theory of operation
 *
 * A request becomes a call. One with an `id` is executed at once and answered
 * whenever it is done. One without waits until its predecessors without `id`
 * were answered, as nothing else tells the client which answer is whose; that
 * holds for input that is no request at all, too.
 *
 *   torpor_execute, api_client_bad -> (queue) -> execute: form, negotiation, command, role,
 *   arguments -> handler ... api_reply | api_error -> message -> next in turn, from the loop
 *
 * Messages go to the client from the loop, never from inside a call of the
 * library; connections of this library (direct) take them at once, as they
 * only append to a buffer. A call outlives its client: it is then answered
 * into nothing.
 */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_text.h"
#include "engine/api.h"
#include "engine/api_priv.h"
#include "engine/engine_hooks.h"

TP_LOG_SOURCE("api");

/* --- messages --- */

/* Texts may quote what came from outside, cut in the middle of a character. */
static json_t *text_json(const char *text)
{
	char copy[TP_TEXT_SIZE];

	snprintf(copy, sizeof(copy), "%s", text);
	tp_text_clean(copy);
	return json_string(copy);
}

json_t *api_error_message(const struct tp_error *err, json_t *data_owned, const json_t *id)
{
	json_t *e = json_object(), *message = json_object();

	tp_json_set_str(e, "class", tp_error_class(err));
	tp_json_set(e, "desc", text_json(err->text));
	if (data_owned)
		tp_json_set(e, "data", data_owned);
	tp_json_set(message, "error", e);
	if (id)
		tp_json_set(message, "id", json_incref((json_t *)id));
	return message;
}

json_t *api_greeting(void)
{
	static const char *const parts[] = { "major", "minor", "micro" };
	json_t *version = json_object();
	const char *at = torpor_version();
	char package[64], *end;

	for (size_t i = 0; i < TP_N(parts); i++) {
		tp_json_set(version, parts[i], json_integer((json_int_t)strtol(at, &end, 10)));
		at = *end == '.' ? end + 1 : end;
	}
	snprintf(package, sizeof(package), "torpor %s", torpor_version());
	return json_pack("{s:{s:{s:o, s:s}, s:[]}}", "QMP", "version", "qemu", version, "package", package,
			 "capabilities");
}

/* --- clients --- */

static void client_release(struct torpor_client *c)
{
	json_decref(c->outbox);
	free(c);
}

/* Hands over what waits; the client may be freed by its own callback. */
static void client_flush(struct torpor_client *c)
{
	json_t *box, *message;
	size_t i;

	c->flushing = true;
	while (!c->dead && json_array_size(c->outbox) > 0) {
		box = TP_STEAL(c->outbox);
		json_array_foreach(box, i, message)
			if (!c->dead)
				c->fn(c->arg, message);
		json_decref(box);
	}
	c->flushing = false;
	if (c->dead)
		client_release(c);
}

static void call_execute(struct api_call *call);

static void client_next_in_turn(struct torpor_client *c)
{
	struct api_call *call = c->queue;

	if (c->turn || !call)
		return;
	c->queue = call->behind;
	if (!c->queue)
		c->queue_end = &c->queue;
	c->turn = call;
	call_execute(call);
}

static void client_kicked(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct torpor_client *c = w->data;

	(void)loop;
	(void)revents;
	client_next_in_turn(c);
	client_flush(c);
}

static void client_kick(struct torpor_client *c)
{
	ev_feed_event(engine_loop(c->t), &c->kick, EV_CUSTOM);
}

void api_client_send(struct torpor_client *c, json_t *message_owned)
{
	if (c->direct) {
		c->fn(c->arg, message_owned);
		json_decref(message_owned);
		return;
	}
	if (!c->outbox)
		c->outbox = json_array();
	if (json_array_append_new(c->outbox, message_owned) < 0)
		tp_err("no memory for a message to a client");
	client_kick(c);
}

static struct torpor_client *client_new(struct torpor *t, enum torpor_role role,
					torpor_message_fn fn, void *arg)
{
	struct api_state *api = engine_api(t);
	struct torpor_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->t = t;
	c->role = role;
	c->fn = fn;
	c->arg = arg;
	c->queue_end = &c->queue;
	c->filter.progress = true;
	ev_init(&c->kick, client_kicked);
	c->kick.data = c;
	c->next = api->clients;
	c->prev = &api->clients;
	if (c->next)
		c->next->prev = &c->next;
	api->clients = c;
	return c;
}

struct torpor_client *torpor_client_new(struct torpor *t, enum torpor_role role,
					torpor_message_fn fn, void *arg)
{
	struct torpor_client *c = client_new(t, role, fn, arg);

	if (c)
		c->negotiated = true;
	return c;
}

struct torpor_client *api_client_new(struct torpor *t, enum torpor_role role, torpor_message_fn fn,
				     void *arg)
{
	struct torpor_client *c = client_new(t, role, fn, arg);

	if (c) {
		c->direct = true;
		c->wants_events = true;
	}
	return c;
}

void torpor_client_events(struct torpor_client *c, bool on)
{
	c->wants_events = on;
}

static void call_free(struct api_call *call)
{
	for (size_t i = 0; i < call->nfds; i++)
		tp_close(&call->fds[i]);
	*call->prev = call->next;
	if (call->next)
		call->next->prev = call->prev;
	json_decref(call->args);
	json_decref(call->request);
	free(call);
}

void torpor_client_free(struct torpor_client *c)
{
	struct api_call *call, *next;

	if (!c)
		return;
	for (call = c->queue; call; call = next) {
		next = call->behind;
		call_free(call);
	}
	/* What is being executed is answered into nothing. */
	for (call = engine_api(c->t)->calls; call; call = call->next)
		if (call->client == c)
			call->client = NULL;
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	ev_clear_pending(engine_loop(c->t), &c->kick);
	api_fds_free(c);
	api_filter_free(&c->filter);
	c->dead = true;
	if (!c->flushing)
		client_release(c);
}

/* --- calls --- */

struct torpor *api_engine(const struct api_call *call)
{
	return call->t;
}

const json_t *api_args(const struct api_call *call)
{
	return call->args;
}

enum torpor_role api_role(const struct api_call *call)
{
	return call->role;
}

struct torpor_client *api_client(const struct api_call *call)
{
	return call->client;
}

static void call_end(struct api_call *call, json_t *message_owned)
{
	struct torpor_client *c = call->client;
	bool in_turn = call->in_turn;

	call_free(call);
	if (!c) {
		json_decref(message_owned);
		return;
	}
	c->outstanding--;
	if (in_turn) {
		c->turn = NULL;
		if (c->queue)
			client_kick(c);
	}
	api_client_send(c, message_owned);
}

void api_reply(struct api_call *call, json_t *result_owned)
{
	const json_t *id = json_object_get(call->request, "id");
	json_t *message = json_object();

	tp_json_set(message, "return", result_owned ? result_owned : json_object());
	if (id)
		tp_json_set(message, "id", json_incref((json_t *)id));
	call_end(call, message);
}

static void call_fail(struct api_call *call, const struct tp_error *err, json_t *data_owned)
{
	call_end(call, api_error_message(err, data_owned, json_object_get(call->request, "id")));
}

void api_error(struct api_call *call, const struct tp_error *err, json_t *data_owned)
{
	json_t *data = data_owned ? data_owned : json_object();

	if (!json_object_get(data, "retry"))
		tp_json_set_str(data, "retry", api_class_retry(tp_error_class(err)));
	call_fail(call, err, data);
}

/* --- execution --- */

#define plain_error(err, ...) tp_fail_class(err, TP_EARG, "GenericError", __VA_ARGS__)

/* The form of a request, as QEMU checks it. */
static bool check_form(const json_t *request, struct tp_error *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)request, key, value) {
		if (strcmp(key, "execute") == 0) {
			if (!json_is_string(value))
				return plain_error(err, "QMP input member '%s' must be a string", key);
		} else if (strcmp(key, "arguments") == 0) {
			if (!json_is_object(value))
				return plain_error(err, "QMP input member '%s' must be an object", key);
		} else if (strcmp(key, "id") != 0) {
			return plain_error(err, "QMP input member '%.64s' is unexpected", key);
		}
	}
	if (!json_object_get(request, "execute"))
		return plain_error(err, "QMP input lacks member 'execute'");
	return true;
}

static bool find_command(struct api_call *call, struct tp_error *err)
{
	const char *name = tp_json_str(call->request, "execute");

	if (!call->client->negotiated && strcmp(name, "qmp_capabilities") != 0)
		return tp_fail_class(err, TP_EARG, "CommandNotFound",
				     "Expecting capabilities negotiation with 'qmp_capabilities'");
	call->cmd = api_command_find(name);
	return call->cmd || tp_fail_class(err, TP_EARG, "CommandNotFound",
					  "The command %.64s has not been found", name);
}

static void call_execute(struct api_call *call)
{
	struct tp_error err = call->bad;
	const struct api_command *cmd;
	json_t *data = NULL;

	if (err.code != TP_OK || !check_form(call->request, &err) || !find_command(call, &err)) {
		call_fail(call, &err, NULL);
		return;
	}
	cmd = call->cmd;
	if (call->role < cmd->role) {
		tp_fail_class(&err, TP_ESTATE, "PermissionDenied",
			      "%s needs the role \"%s\"; this connection has \"%s\"", cmd->name,
			      api_role_name(cmd->role), api_role_name(call->role));
		api_error(call, &err, json_pack("{s:s}", "role", api_role_name(cmd->role)));
		return;
	}
	if (!api_check_args(cmd, call->args, &err, &data)) {
		api_error(call, &err, data);
		return;
	}
	tp_debug("command=%s role=%s", cmd->name, api_role_name(call->role));
	cmd->handler(call);
}

/* A new call; NULL: no memory, which the client is told. */
static struct api_call *call_new(struct torpor_client *c, const json_t *request, int *fds, size_t nfds)
{
	struct api_state *api = engine_api(c->t);
	struct api_call *call = calloc(1, sizeof(*call));
	struct tp_error err = TP_ERROR_INIT;

	if (!call) {
		tp_fail_nomem(&err);
		while (nfds > 0)
			tp_close(&fds[--nfds]);
		api_client_send(c, api_error_message(&err, NULL, json_object_get(request, "id")));
		return NULL;
	}
	call->t = c->t;
	call->client = c;
	call->role = c->role;
	call->request = json_incref((json_t *)request);
	call->args = json_incref(json_object_get(request, "arguments"));
	if (!call->args)
		call->args = json_object();
	for (size_t i = 0; i < nfds; i++) {
		if (call->nfds < TP_N(call->fds))
			call->fds[call->nfds++] = TP_STEAL_FD(fds[i]);
		else
			tp_close(&fds[i]);
	}
	call->next = api->calls;
	call->prev = &api->calls;
	if (call->next)
		call->next->prev = &call->next;
	api->calls = call;
	c->outstanding++;
	return call;
}

static void call_begin(struct api_call *call)
{
	struct torpor_client *c = call->client;

	call->in_turn = !json_object_get(call->request, "id");
	if (!call->in_turn) {
		call_execute(call);
	} else if (!c->turn && !c->queue) {
		c->turn = call;
		call_execute(call);
	} else {
		*c->queue_end = call;
		c->queue_end = &call->behind;
	}
}

void torpor_execute(struct torpor_client *c, const json_t *request, int *fds, size_t nfds)
{
	struct api_call *call = call_new(c, request, fds, nfds);

	if (!call)
		return;
	if (!json_is_object(request))
		plain_error(&call->bad, "QMP input must be a JSON object");
	call_begin(call);
}

void api_client_bad(struct torpor_client *c, const struct tp_error *err)
{
	struct api_call *call = call_new(c, NULL, NULL, 0);

	if (!call)
		return;
	call->bad = *err;
	call_begin(call);
}

/* --- the engine's part --- */

struct api_state *api_state_new(struct torpor *t)
{
	struct api_state *api = calloc(1, sizeof(*api));

	if (api)
		api->t = t;
	return api;
}

void api_state_free(struct api_state *api)
{
	if (!api)
		return;
	api_sessions_free(api);
	while (api->clients)
		torpor_client_free(api->clients);
	while (api->calls)
		call_free(api->calls);
	api_progress_free(api);
	json_decref(api->schema);
	free(api);
}
