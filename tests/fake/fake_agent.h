/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fake_agent.h - A guest agent inside the test program, with the habits of the real one
 *
 * Commands are executed in the order they are read, also those whose sender has
 * long given up; a 0xFF byte drops a partial command and costs one error reply;
 * guest-sync-delimited answers with a 0xFF in front. It can be hung (reads
 * nothing), be busy with a command for as long as the test wants, and say any
 * bytes at any time.
 */
#ifndef FAKE_AGENT_H
#define FAKE_AGENT_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

struct fake_agent;

/* *client_fd is what goes to qga_client_new. */
struct fake_agent *fake_agent_new(struct ev_loop *loop, int *client_fd);
void fake_agent_free(struct fake_agent *a);
/* The whole answer to a command, e.g. {"return": 1}; NULL: none at all. Without: CommandNotFound. */
void fake_agent_on(struct fake_agent *a, const char *command, const char *answer);
/* Bytes said right before the answer to the next sync. */
void fake_agent_before_sync(struct fake_agent *a, const void *data, size_t n);
void fake_agent_hang(struct fake_agent *a, bool hung);
/* The next command of this name is begun and answered only after fake_agent_release. */
void fake_agent_hold(struct fake_agent *a, const char *command);
bool fake_agent_is_holding(const struct fake_agent *a);
void fake_agent_release(struct fake_agent *a);
void fake_agent_tear(struct fake_agent *a, size_t bytes);
void fake_agent_say(struct fake_agent *a, const void *data, size_t n);
/* Closes once all output is written. */
void fake_agent_eof(struct fake_agent *a);
/* How often a command was executed; "guest-sync-delimited" counts, too. */
unsigned fake_agent_count(const struct fake_agent *a, const char *command);
/* Something came that is no JSON command; else NULL. */
const char *fake_agent_problem(const struct fake_agent *a);

#endif
