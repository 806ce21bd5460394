/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_monitor.c - A scripted QEMU monitor inside the test program */
#include "fake/fake_monitor.h"

#include <ctype.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_buf.h"
#include "base/tp_cleanup.h"
#include "fake/fake_wire.h"

#define MAX_LINES 1024
#define MAX_COMMANDS 4096
#define MAX_STANDING 64
#define FLOOD_TURN 100		/* events put into the output at once */

enum kind { SAY, EXPECT, FLOOD, DELAY, END };

struct line {
	enum kind kind;
	char *text;		/* SAY: bytes; EXPECT: the command */
	size_t n;		/* SAY: bytes; FLOOD: events */
	bool literal;		/* SAY: no substitution */
	char *args;		/* EXPECT */
	bool fd, oob;		/* EXPECT */
	double seconds;		/* DELAY */
};

struct received {
	char *name, *id, *args;
	bool oob, fd, alone, answered;
};

struct fake_monitor {
	struct fake_wire wire;
	struct ev_timer delay;
	bool delaying;
	struct tp_buf in;
	size_t fd_at, fds_in;	/* of the command that is being read */
	bool fd_seen;
	struct line lines[MAX_LINES];
	unsigned nlines, next_line;
	struct received got[MAX_COMMANDS];
	unsigned ngot, next_got;
	unsigned expected[MAX_COMMANDS], nexpected;
	unsigned most_in_flight;
	struct { char *command, *reply; } standing[MAX_STANDING];
	unsigned nstanding;
	char problem[512];
};

static void problem(struct fake_monitor *m, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void problem(struct fake_monitor *m, const char *fmt, ...)
{
	va_list ap;

	if (m->problem[0])
		return;
	va_start(ap, fmt);
	vsnprintf(m->problem, sizeof(m->problem), fmt, ap);
	va_end(ap);
}

static char *copy(const char *text)
{
	char *made = text ? strdup(text) : NULL;

	if (text && !made)
		abort();
	return made;
}

static unsigned in_flight(const struct fake_monitor *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->ngot; i++)
		n += !m->got[i].answered;
	return n;
}

/* ---- saying ---- */

/* Which command "$id" or "$N" at text means; *used: length of the mark. -1: none. */
static int mark_at(const struct fake_monitor *m, const char *text, size_t *used)
{
	char *end;
	unsigned long n;

	if (strncmp(text, "$id", 3) == 0) {
		*used = 3;
		return m->nexpected ? (int)m->expected[m->nexpected - 1] : -1;
	}
	if (!isdigit((unsigned char)text[1]))
		return -1;
	n = strtoul(text + 1, &end, 10);
	*used = (size_t)(end - text);
	return n < m->nexpected ? (int)m->expected[n] : -1;
}

static void say(struct fake_monitor *m, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "$"), used = 0;
		int which;

		fake_wire_say(&m->wire, text, n);
		text += n;
		if (!*text)
			break;
		which = mark_at(m, text, &used);
		if (which < 0) {
			fake_wire_say(&m->wire, text, 1);
			text++;
			continue;
		}
		fake_wire_say(&m->wire, m->got[which].id, strlen(m->got[which].id));
		m->got[which].answered = true;
		text += used;
	}
}

static void flood(struct fake_monitor *m, struct line *line)
{
	static const char event[] = "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, "
		"\"event\": \"RTC_CHANGE\", \"data\": {\"offset\": 1, \"qom-path\": \"/machine\"}}\r\n";

	for (int i = 0; i < FLOOD_TURN && line->n > 0; i++, line->n--)
		fake_wire_say(&m->wire, event, sizeof(event) - 1);
}

/* ---- the script ---- */

/* True: the line is done. */
static bool expect(struct fake_monitor *m, const struct line *line)
{
	const struct received *got;

	if (m->next_got == m->ngot)
		return false;
	got = &m->got[m->next_got];
	if (strcmp(got->name, line->text) != 0)
		problem(m, "expected %s, got %s", line->text, got->name);
	if (line->args && strcmp(got->args, line->args) != 0)
		problem(m, "%s: expected arguments %s, got %s", line->text, line->args, got->args);
	if (line->fd != got->fd)
		problem(m, "%s: descriptor %s", line->text, got->fd ? "not expected" : "missing");
	if (line->fd && !got->alone)
		problem(m, "%s: sent with a descriptor while others were unanswered", line->text);
	if (line->oob != got->oob)
		problem(m, "%s: %s out of band", line->text, got->oob ? "not expected" : "expected");
	m->expected[m->nexpected++] = m->next_got++;
	return true;
}

static bool run_line(struct fake_monitor *m, struct line *line)
{
	switch (line->kind) {
	case SAY:
		if (line->literal)
			fake_wire_say(&m->wire, line->text, line->n);
		else
			say(m, line->text);
		return true;
	case EXPECT:
		return expect(m, line);
	case FLOOD:
		flood(m, line);
		return line->n == 0;
	case DELAY:
		m->delaying = true;
		ev_now_update(m->wire.loop);
		ev_timer_set(&m->delay, line->seconds, 0.);
		ev_timer_start(m->wire.loop, &m->delay);
		return true;
	case END:
		fake_wire_close(&m->wire);
		return true;
	}
	return true;
}

static void advance(struct fake_monitor *m)
{
	while (!m->delaying && m->next_line < m->nlines && m->wire.out.len == 0) {
		if (!run_line(m, &m->lines[m->next_line]))
			return;
		m->next_line++;
	}
}

static void on_drained(void *arg)
{
	advance(arg);
}

static void on_delay(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct fake_monitor *m = w->data;

	(void)loop;
	(void)revents;
	m->delaying = false;
	advance(m);
}

/* ---- listening ---- */

static bool answer_standing(struct fake_monitor *m, struct received *got)
{
	tp_autobuf struct tp_buf text = TP_BUF_INIT(0);

	for (unsigned i = 0; i < m->nstanding; i++) {
		if (strcmp(m->standing[i].command, got->name) != 0)
			continue;
		if (!tp_buf_printf(&text, "{\"return\": %s, \"id\": %s}\r\n", m->standing[i].reply,
				   got->id))
			abort();
		fake_wire_say(&m->wire, text.data, text.len);
		return true;
	}
	return false;
}

static void forget_received(struct received *got)
{
	free(got->name);
	free(got->id);
	free(got->args);
	memset(got, 0, sizeof(*got));
}

static void got_command(struct fake_monitor *m, const json_t *object)
{
	struct received *got = &m->got[m->ngot];
	const json_t *name = json_object_get(object, "execute"), *args;

	if (m->ngot == MAX_COMMANDS)
		abort();
	for (unsigned i = 0; i < m->ngot; i++)
		if (!m->got[i].answered && m->got[i].fd)
			problem(m, "a command came while %s was unanswered", m->got[i].name);
	got->oob = !name;
	if (!name)
		name = json_object_get(object, "exec-oob");
	args = json_object_get(object, "arguments");
	got->name = copy(name ? json_string_value(name) : "(none)");
	got->id = json_dumps(json_object_get(object, "id"), JSON_ENCODE_ANY);
	got->args = args ? json_dumps(args, JSON_COMPACT | JSON_SORT_KEYS) : copy("{}");
	got->fd = m->fd_seen;
	got->alone = in_flight(m) == 0;
	if (m->fd_seen && (m->fd_at != 0 || m->fds_in != 1))
		problem(m, "%s: %zu descriptors, at byte %zu", got->name, m->fds_in, m->fd_at);
	if (!got->id)
		problem(m, "%s: no id", got->name);
	if (!got->id || answer_standing(m, got)) {
		forget_received(got);
		return;
	}
	m->ngot++;
	if (in_flight(m) > m->most_in_flight)
		m->most_in_flight = in_flight(m);
}

static void on_byte(void *arg, unsigned char c, size_t nfds)
{
	struct fake_monitor *m = arg;
	json_error_t why;
	json_t *object;

	if (nfds) {
		m->fd_seen = true;
		m->fd_at = m->in.len;
		m->fds_in += nfds;
	}
	if (c != '\n') {
		if (!tp_buf_add(&m->in, &c, 1))
			abort();
		return;
	}
	object = json_loadb(m->in.data ? m->in.data : "", m->in.len, 0, &why);
	if (object)
		got_command(m, object);
	else
		problem(m, "not JSON: %s: %s", why.text, m->in.data);
	json_decref(object);
	tp_buf_drop(&m->in, m->in.len);
	m->fd_seen = false;
	m->fds_in = 0;
	advance(m);
}

/* ---- for the test ---- */

struct fake_monitor *fake_monitor_new(struct ev_loop *loop, int *client_fd)
{
	struct fake_monitor *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->wire.byte = on_byte;
	m->wire.drained = on_drained;
	m->wire.arg = m;
	fake_wire_open(&m->wire, loop, client_fd);
	ev_init(&m->delay, on_delay);
	m->delay.data = m;
	return m;
}

void fake_monitor_free(struct fake_monitor *m)
{
	if (!m)
		return;
	ev_timer_stop(m->wire.loop, &m->delay);
	fake_wire_close(&m->wire);
	for (unsigned i = 0; i < m->nlines; i++) {
		free(m->lines[i].text);
		free(m->lines[i].args);
	}
	for (unsigned i = 0; i < m->ngot; i++)
		forget_received(&m->got[i]);
	for (unsigned i = 0; i < m->nstanding; i++) {
		free(m->standing[i].command);
		free(m->standing[i].reply);
	}
	tp_buf_free(&m->in);
	free(m);
}

void fake_monitor_tear(struct fake_monitor *m, size_t bytes)
{
	m->wire.tear = bytes;
}

void fake_monitor_on(struct fake_monitor *m, const char *command, const char *reply)
{
	if (m->nstanding == MAX_STANDING)
		abort();
	m->standing[m->nstanding].command = copy(command);
	m->standing[m->nstanding++].reply = copy(reply);
}

void fake_monitor_read(struct fake_monitor *m, bool on)
{
	fake_wire_read(&m->wire, on);
}

void fake_monitor_say_now(struct fake_monitor *m, const char *text)
{
	say(m, text);
}

static struct line *add_line(struct fake_monitor *m, enum kind kind)
{
	struct line *line = &m->lines[m->nlines];

	if (m->nlines == MAX_LINES)
		abort();
	m->nlines++;
	line->kind = kind;
	/* The script may begin with something to say: the first turn of the loop does it. */
	if (m->wire.fd >= 0)
		ev_io_start(m->wire.loop, &m->wire.writer);
	return line;
}

void fake_say(struct fake_monitor *m, const char *text)
{
	add_line(m, SAY)->text = copy(text);
}

void fake_say_bytes(struct fake_monitor *m, const void *data, size_t n)
{
	struct line *line = add_line(m, SAY);

	line->text = malloc(n + 1);
	if (!line->text)
		abort();
	memcpy(line->text, data, n);
	line->n = n;
	line->literal = true;
}

static char *event_text(const char *name, const char *data)
{
	tp_autobuf struct tp_buf text = TP_BUF_INIT(0);

	if (!tp_buf_printf(&text, "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, "
			   "\"event\": \"%s\"%s%s}\r\n", name, data ? ", \"data\": " : "",
			   data ? data : ""))
		abort();
	return tp_buf_steal(&text);
}

void fake_monitor_event_now(struct fake_monitor *m, const char *name, const char *data)
{
	tp_autofree char *text = event_text(name, data);

	fake_wire_say(&m->wire, text, strlen(text));
}

void fake_event(struct fake_monitor *m, const char *name, const char *data)
{
	add_line(m, SAY)->text = event_text(name, data);
}

static struct line *add_expect(struct fake_monitor *m, const char *command, const char *args)
{
	struct line *line = add_line(m, EXPECT);
	json_t *value = args ? json_loads(args, 0, NULL) : NULL;

	if (args && !value)
		abort();
	line->text = copy(command);
	line->args = value ? json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	json_decref(value);
	return line;
}

void fake_expect(struct fake_monitor *m, const char *command, const char *args)
{
	add_expect(m, command, args);
}

void fake_expect_fd(struct fake_monitor *m, const char *command, const char *args)
{
	add_expect(m, command, args)->fd = true;
}

void fake_expect_oob(struct fake_monitor *m, const char *command, const char *args)
{
	add_expect(m, command, args)->oob = true;
}

void fake_return(struct fake_monitor *m, const char *value)
{
	tp_autobuf struct tp_buf text = TP_BUF_INIT(0);

	if (!tp_buf_printf(&text, "{\"return\": %s, \"id\": $id}\r\n", value))
		abort();
	fake_say(m, text.data);
}

void fake_error(struct fake_monitor *m, const char *class_, const char *desc)
{
	tp_autobuf struct tp_buf text = TP_BUF_INIT(0);

	if (!tp_buf_printf(&text, "{\"id\": $id, \"error\": {\"class\": \"%s\", \"desc\": \"%s\"}}\r\n",
			   class_, desc))
		abort();
	fake_say(m, text.data);
}

void fake_return_big(struct fake_monitor *m, size_t bytes)
{
	static const char head[] = "{\"id\": $id, \"return\": \"", tail[] = "\"}";
	struct line *line;
	char *fill = malloc(bytes + 1);

	if (!fill)
		abort();
	memset(fill, 'x', bytes);
	fill[bytes] = 0;
	fake_say(m, head);
	line = add_line(m, SAY);
	line->text = fill;
	line->n = bytes;
	line->literal = true;
	fake_say(m, tail);
}

void fake_flood(struct fake_monitor *m, unsigned events)
{
	add_line(m, FLOOD)->n = events;
}

void fake_delay(struct fake_monitor *m, double seconds)
{
	add_line(m, DELAY)->seconds = seconds;
}

void fake_eof(struct fake_monitor *m)
{
	add_line(m, END);
}

void fake_greeting_only(struct fake_monitor *m, bool oob)
{
	fake_say(m, oob ? "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 2, \"minor\": 0, \"major\": 10}, "
		 "\"package\": \"\"}, \"capabilities\": [\"oob\"]}}\r\n"
		 : "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, "
		 "\"package\": \"\"}, \"capabilities\": []}}\r\n");
}

void fake_greet(struct fake_monitor *m, bool oob)
{
	fake_greeting_only(m, oob);
	fake_expect(m, "qmp_capabilities", oob ? "{\"enable\": [\"oob\"]}" : "{}");
	fake_return(m, "{}");
}

const char *fake_monitor_problem(const struct fake_monitor *m)
{
	static char text[256];

	if (m->problem[0])
		return m->problem;
	if (m->next_line < m->nlines) {
		snprintf(text, sizeof(text), "script line %u of %u was not used (%s)", m->next_line + 1,
			 m->nlines, m->lines[m->next_line].text ? m->lines[m->next_line].text : "");
		return text;
	}
	if (m->next_got < m->ngot) {
		snprintf(text, sizeof(text), "%s was not expected", m->got[m->next_got].name);
		return text;
	}
	return NULL;
}

unsigned fake_monitor_received(const struct fake_monitor *m)
{
	return m->ngot;
}

unsigned fake_monitor_most_in_flight(const struct fake_monitor *m)
{
	return m->most_in_flight;
}
