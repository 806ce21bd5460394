/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tp_error.h - Errors as values: no heap, nothing to free, assignment stores one
 *
 * Rules: `struct tp_error *err` is the last parameter; functions return bool or
 * a pointer besides; err is untouched on success and may be NULL; who receives
 * an error does not look into it to decide, he uses the return value. An error
 * that is already set is kept: the first one wins, cleanup cannot hide it.
 * Texts are one phrase, outermost context first, no newline, no full stop, and
 * name the object (VM, file, command).
 */
#ifndef TP_ERROR_H
#define TP_ERROR_H

#include <stdbool.h>

enum tp_code {
	TP_OK, TP_ESYS, TP_EQMP, TP_EPROTO, TP_ETIMEOUT, TP_ECANCELLED,
	TP_ESTATE, TP_EUNSUPPORTED, TP_ECORRUPT, TP_ELIMIT, TP_ENOMEM, TP_EARG,
};

#define TP_CLASS_SIZE 32
#define TP_TEXT_SIZE 400

struct tp_error {
	enum tp_code code;		/* what a program may decide on; stable */
	int sys;			/* errno, or 0 */
	char class_[TP_CLASS_SIZE];	/* error class of the wire, or "": derived from code */
	char text[TP_TEXT_SIZE];
};

#define TP_ERROR_INIT { .code = TP_OK }

/* All return false, so that a failure is one statement. */
bool tp_fail(struct tp_error *err, enum tp_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The text is followed by ": strerror(sys)". ENOMEM gives code TP_ENOMEM. */
bool tp_fail_sys(struct tp_error *err, int sys, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* With the wire's error class ("NotFound", "InsufficientSpace", ...; interface.md 2). */
bool tp_fail_class(struct tp_error *err, enum tp_code code, const char *class_, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
bool tp_fail_nomem(struct tp_error *err);
/* Puts "context: " in front of an error that is set. */
bool tp_prefix(struct tp_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The wire's class: class_ when set, else by code (TP_ESYS IOError, TP_EQMP QemuError, ...). */
const char *tp_error_class(const struct tp_error *err);
void tp_error_clear(struct tp_error *err);

#endif
