/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_agent.c - A guest agent inside the test program, with the habits of the real one */
#include "fake/fake_agent.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "fake/fake_wire.h"

#define MAX_COMMANDS 32
#define SYNC "guest-sync-delimited"

struct fake_agent {
	struct fake_wire wire;
	struct tp_buf in;	/* the command that is being read */
	struct tp_buf held;	/* bytes that came while a command was held */
	struct tp_buf before_sync;
	char hold[64], held_answer[512];
	bool holding, hung;
	struct { char name[64]; char *answer; unsigned count; bool known; } commands[MAX_COMMANDS];
	unsigned ncommands;
	char problem[256];
};

static unsigned slot_of(struct fake_agent *a, const char *name)
{
	for (unsigned i = 0; i < a->ncommands; i++)
		if (strcmp(a->commands[i].name, name) == 0)
			return i;
	if (a->ncommands == MAX_COMMANDS)
		abort();
	snprintf(a->commands[a->ncommands].name, sizeof(a->commands[0].name), "%s", name);
	return a->ncommands++;
}

static void say_text(struct fake_agent *a, const char *text)
{
	fake_wire_say(&a->wire, text, strlen(text));
}

static void answer_sync(struct fake_agent *a, const json_t *object)
{
	const json_t *args = json_object_get(object, "arguments");
	char text[64];

	fake_wire_say(&a->wire, a->before_sync.data, a->before_sync.len);
	tp_buf_free(&a->before_sync);
	snprintf(text, sizeof(text), "\xff{\"return\": %lld}\n",
		 (long long)json_integer_value(json_object_get(args, "id")));
	say_text(a, text);
}

static void execute(struct fake_agent *a, const json_t *object)
{
	const char *name = json_string_value(json_object_get(object, "execute"));
	unsigned slot = slot_of(a, name ? name : "(none)");
	char text[512];

	a->commands[slot].count++;
	if (a->commands[slot].known)
		snprintf(text, sizeof(text), "%s%s", a->commands[slot].answer ? a->commands[slot].answer
			 : "", a->commands[slot].answer ? "\n" : "");
	else
		snprintf(text, sizeof(text), "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": "
			 "\"The command %.64s has not been found\"}}\n", name ? name : "");
	if (name && strcmp(name, SYNC) == 0) {
		answer_sync(a, object);
	} else if (name && strcmp(name, a->hold) == 0) {
		a->hold[0] = 0;
		a->holding = true;
		snprintf(a->held_answer, sizeof(a->held_answer), "%s", text);
	} else {
		say_text(a, text);
	}
}

static void reset(struct fake_agent *a)
{
	char text[300];

	/* The real one quotes what it drops. */
	if (a->in.len)
		snprintf(text, sizeof(text), "{\"error\": {\"class\": \"GenericError\", \"desc\": "
			 "\"JSON parse error, stray 'xyz\\uFFFD'\"}}\n");
	else
		snprintf(text, sizeof(text), "{\"error\": {\"class\": \"GenericError\", \"desc\": "
			 "\"JSON parse error, stray '\\uFFFD'\"}}\n");
	tp_buf_drop(&a->in, a->in.len);
	say_text(a, text);
}

static void take_byte(struct fake_agent *a, unsigned char c)
{
	json_t *object;

	if (c == 0xff) {
		reset(a);
		return;
	}
	if (c != '\n') {
		if (!tp_buf_add(&a->in, &c, 1))
			abort();
		return;
	}
	object = json_loadb(a->in.data ? a->in.data : "", a->in.len, 0, NULL);
	if (object)
		execute(a, object);
	else
		snprintf(a->problem, sizeof(a->problem), "not JSON: %.200s", a->in.data);
	json_decref(object);
	tp_buf_drop(&a->in, a->in.len);
}

static void on_byte(void *arg, unsigned char c, size_t nfds)
{
	struct fake_agent *a = arg;

	if (nfds)
		snprintf(a->problem, sizeof(a->problem), "a descriptor came");
	if (!a->holding) {
		take_byte(a, c);
	} else if (!tp_buf_add(&a->held, &c, 1)) {
		abort();
	}
}

struct fake_agent *fake_agent_new(struct ev_loop *loop, int *client_fd)
{
	struct fake_agent *a = calloc(1, sizeof(*a));

	if (!a)
		abort();
	a->wire.byte = on_byte;
	a->wire.arg = a;
	fake_wire_open(&a->wire, loop, client_fd);
	return a;
}

void fake_agent_free(struct fake_agent *a)
{
	if (!a)
		return;
	fake_wire_close(&a->wire);
	for (unsigned i = 0; i < a->ncommands; i++)
		free(a->commands[i].answer);
	tp_buf_free(&a->in);
	tp_buf_free(&a->held);
	tp_buf_free(&a->before_sync);
	free(a);
}

void fake_agent_on(struct fake_agent *a, const char *command, const char *answer)
{
	unsigned slot = slot_of(a, command);

	free(a->commands[slot].answer);
	a->commands[slot].answer = answer ? strdup(answer) : NULL;
	a->commands[slot].known = true;
}

void fake_agent_before_sync(struct fake_agent *a, const void *data, size_t n)
{
	if (!tp_buf_add(&a->before_sync, data, n))
		abort();
}

void fake_agent_hang(struct fake_agent *a, bool hung)
{
	a->hung = hung;
	fake_wire_read(&a->wire, !hung);
}

void fake_agent_hold(struct fake_agent *a, const char *command)
{
	snprintf(a->hold, sizeof(a->hold), "%s", command);
}

bool fake_agent_is_holding(const struct fake_agent *a)
{
	return a->holding;
}

void fake_agent_release(struct fake_agent *a)
{
	tp_autobuf struct tp_buf bytes = a->held;

	a->held = (struct tp_buf)TP_BUF_INIT(0);
	a->holding = false;
	say_text(a, a->held_answer);
	for (size_t i = 0; i < bytes.len; i++)
		on_byte(a, (unsigned char)bytes.data[i], 0);
}

void fake_agent_tear(struct fake_agent *a, size_t bytes)
{
	a->wire.tear = bytes;
}

void fake_agent_say(struct fake_agent *a, const void *data, size_t n)
{
	fake_wire_say(&a->wire, data, n);
}

void fake_agent_eof(struct fake_agent *a)
{
	if (a->wire.out.len)
		a->wire.eof_after_out = true;
	else
		fake_wire_close(&a->wire);
}

unsigned fake_agent_count(const struct fake_agent *a, const char *command)
{
	for (unsigned i = 0; i < a->ncommands; i++)
		if (strcmp(a->commands[i].name, command) == 0)
			return a->commands[i].count;
	return 0;
}

const char *fake_agent_problem(const struct fake_agent *a)
{
	return a->problem[0] ? a->problem : NULL;
}
