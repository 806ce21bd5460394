/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_host.c - Commands about the connection and the engine itself
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "engine/api.h"
#include "engine/api_priv.h"
#include "engine/engine_hooks.h"

static void __attribute__((format(printf, 3, 4)))
refuse(struct api_call *call, const char *class_, const char *fmt, ...)
{
	struct tp_error err = TP_ERROR_INIT;
	char text[TP_TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tp_fail_class(&err, TP_EARG, class_, "%s", text);
	api_error(call, &err, NULL);
}

/* --- negotiation and introspection --- */

void api_qmp_capabilities(struct api_call *call)
{
	struct torpor_client *c = api_client(call);

	if (c->negotiated) {
		refuse(call, "CommandNotFound",
		       "Capabilities negotiation is already complete, command ignored");
		return;
	}
	if (json_array_size(json_object_get(api_args(call), "enable")) > 0) {
		refuse(call, "GenericError", "Capability oob not available");
		return;
	}
	c->negotiated = true;
	api_reply(call, NULL);
}

void api_query_version(struct api_call *call)
{
	json_t *info = engine_version_info(api_engine(call));

	if (!info)
		info = json_object();
	tp_json_set_str(info, "torpor", torpor_version());
	tp_json_set(info, "api", json_integer(TORPOR_API));
	api_reply(call, info);
}

void api_query_commands(struct api_call *call)
{
	json_t *list = json_array();

	for (const struct api_command *cmd = api_commands; cmd->name; cmd++)
		json_array_append_new(list, json_pack("{s:s}", "name", cmd->name));
	api_reply(call, list);
}

void api_query_qmp_schema(struct api_call *call)
{
	struct api_state *api = engine_api(api_engine(call));

	if (!api->schema)
		api->schema = api_schema_qapi();
	api_reply(call, json_incref(api->schema));
}

void api_query_host(struct api_call *call)
{
	api_reply(call, engine_host_info(api_engine(call)));
}

/* --- descriptors by name --- */

void api_fds_free(struct torpor_client *c)
{
	const char *name;
	json_t *number;

	json_object_foreach(c->fds, name, number) {
		int fd = (int)json_integer_value(number);

		tp_close(&fd);
	}
	json_decref(c->fds);
	c->fds = NULL;
}

/* Takes the descriptor out of the table; -1: no such name. */
static int take_fd(struct torpor_client *c, const char *name)
{
	const json_t *number = json_object_get(c->fds, name);
	int fd = number ? (int)json_integer_value(number) : -1;

	json_object_del(c->fds, name);
	return fd;
}

int api_take_fd(struct api_call *call, const char *name, struct tp_error *err)
{
	int fd = call->client ? take_fd(call->client, name) : -1;

	if (fd < 0)
		tp_fail_class(err, TP_EARG, "NotFound", "no file descriptor is named \"%.64s\"; send it "
			      "with getfd on this connection first", name);
	return fd;
}

void api_getfd(struct api_call *call)
{
	struct torpor_client *c = api_client(call);
	const char *name = tp_json_str(api_args(call), "fdname");
	int old;

	if (isdigit((unsigned char)*name) || !*name) {
		refuse(call, "GenericError", "Parameter 'fdname' expects a name not starting with a digit");
		return;
	}
	if (call->nfds != 1) {
		refuse(call, "GenericError", call->nfds ? "More than one file descriptor supplied via SCM_RIGHTS"
							: "No file descriptor supplied via SCM_RIGHTS");
		return;
	}
	if (!c->fds)
		c->fds = json_object();
	if (!json_object_get(c->fds, name) && json_object_size(c->fds) >= API_FDS_MAX) {
		refuse(call, "GenericError", "File descriptor '%.64s' not taken: too many are open; close "
		       "some with closefd", name);
		return;
	}
	old = take_fd(c, name);
	tp_close(&old);
	if (!tp_json_set(c->fds, name, json_integer(call->fds[0]))) {
		refuse(call, "GenericError", "no memory for the file descriptor '%.64s'", name);
		return;
	}
	call->fds[0] = -1;
	api_reply(call, NULL);
}

void api_closefd(struct api_call *call)
{
	const char *name = tp_json_str(api_args(call), "fdname");
	int fd = take_fd(api_client(call), name);

	if (fd < 0) {
		refuse(call, "GenericError", "File descriptor named '%.64s' not found", name);
		return;
	}
	tp_close(&fd);
	api_reply(call, NULL);
}
