/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_monitor.h - A scripted QEMU monitor inside the test program
 *
 * It lives on the test's own event loop. The script is a list of lines that are
 * taken in order: what to say, when to wait, which command to expect. A command
 * that the script does not expect, a script line not used, a descriptor at the
 * wrong place: each is a problem that fake_monitor_problem tells.
 */
#ifndef FAKE_MONITOR_H
#define FAKE_MONITOR_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

struct fake_monitor;

/* *client_fd is what goes to qmp_client_new. */
struct fake_monitor *fake_monitor_new(struct ev_loop *loop, int *client_fd);
void fake_monitor_free(struct fake_monitor *m);

/* At most so many bytes are written at once; 0: as many as fit. */
void fake_monitor_tear(struct fake_monitor *m, size_t bytes);
/* A standing answer: this command is answered with this JSON whenever it comes, beside the script. */
void fake_monitor_on(struct fake_monitor *m, const char *command, const char *reply);
/* Reads no more, or again. */
void fake_monitor_read(struct fake_monitor *m, bool on);
/* Says something at once, also out of the script's turn. */
void fake_monitor_say_now(struct fake_monitor *m, const char *text);
void fake_monitor_event_now(struct fake_monitor *m, const char *name, const char *data);

/* ---- the script; each call adds a line ---- */

/* The greeting, then expects qmp_capabilities and says {}. */
void fake_greet(struct fake_monitor *m, bool oob);
void fake_greeting_only(struct fake_monitor *m, bool oob);
/* Waits for a command. args: its arguments as JSON must equal this; NULL: any. */
void fake_expect(struct fake_monitor *m, const char *command, const char *args);
/* The same, and one descriptor must come with its first byte, with nothing else unanswered. */
void fake_expect_fd(struct fake_monitor *m, const char *command, const char *args);
/* The same, sent by exec-oob. */
void fake_expect_oob(struct fake_monitor *m, const char *command, const char *args);
/* "$id" in the text is the id of the last expected command, "$2" that of the third (from $0). */
void fake_say(struct fake_monitor *m, const char *text);
void fake_say_bytes(struct fake_monitor *m, const void *data, size_t n);
void fake_return(struct fake_monitor *m, const char *value);
void fake_error(struct fake_monitor *m, const char *class_, const char *desc);
void fake_event(struct fake_monitor *m, const char *name, const char *data);	/* data may be NULL */
/* A reply to the last expected command: a string of so many bytes. */
void fake_return_big(struct fake_monitor *m, size_t bytes);
void fake_flood(struct fake_monitor *m, unsigned events);
void fake_delay(struct fake_monitor *m, double seconds);
void fake_eof(struct fake_monitor *m);

/* NULL: the script was followed to its end and nothing else came. */
const char *fake_monitor_problem(const struct fake_monitor *m);
unsigned fake_monitor_received(const struct fake_monitor *m);
/* The most commands that were unanswered at one time. */
unsigned fake_monitor_most_in_flight(const struct fake_monitor *m);

#endif
