/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* guestd.h - what the parts of guestd share: console, time, commands */
#ifndef GUESTD_H
#define GUESTD_H

#include <stdbool.h>
#include <stdint.h>

#define LINE_BYTES 1024

/* Random, made at start or told on the console, kept nowhere but in the memory of this process. */
extern _Atomic uint64_t nonce;

/* Writes one line to the console, whole: lines of several threads never mix. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* Sleeps by the clock that stands still while the machine is saved. */
void nap_ns(int64_t ns);

double seconds(int clock);

/* A whole number from 0 to max, or -1 if the text (which may be NULL) is not one. */
long parse_number(const char *text, long max);

/* Starts a thread that nobody joins; a failure is said on the console. */
void start_thread(void *(*function)(void *), void *arg);

/*
 * Commands. word[0] is the name, the others are the arguments, NULL from the first that is not
 * given. Each answers with one line, OK or ERR and its name.
 */
void cmd_fill(char **word);
void cmd_verify(char **word);
void cmd_touch(char **word);
void cmd_dirty(char **word);
void cmd_write(char **word);
void cmd_read(char **word);
void cmd_sync(char **word);
void cmd_seq(char **word);

#endif
