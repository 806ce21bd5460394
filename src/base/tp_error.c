/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tp_error.c - Errors as values
 *
 * Texts quote guests, images and QEMU, and go into JSON and onto terminals:
 * whatever is put into an error leaves as one line of valid UTF-8.
 */
#include "tp_error.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tp_text.h"

static bool is_set(const struct tp_error *err)
{
	return err->code != TP_OK;
}

static bool fail_va(struct tp_error *err, enum tp_code code, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));

static bool fail_va(struct tp_error *err, enum tp_code code, const char *fmt, va_list ap)
{
	if (!err || is_set(err))
		return false;
	tp_error_clear(err);
	err->code = code;
	if (vsnprintf(err->text, sizeof(err->text), fmt, ap) < 0)
		strcpy(err->text, "error without a text");
	tp_text_clean(err->text);
	return false;
}

bool tp_fail(struct tp_error *err, enum tp_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fail_va(err, code, fmt, ap);
	va_end(ap);
	return false;
}

bool tp_fail_sys(struct tp_error *err, int sys, const char *fmt, ...)
{
	char buf[64], reason[80];
	size_t len, room;
	va_list ap;

	if (!err || is_set(err))
		return false;
	va_start(ap, fmt);
	fail_va(err, sys == ENOMEM ? TP_ENOMEM : TP_ESYS, fmt, ap);
	va_end(ap);
	err->sys = sys;
	snprintf(reason, sizeof(reason), ": %s", strerror_r(sys, buf, sizeof(buf)));
	/* A long text gives way to the reason. */
	room = sizeof(err->text) - 1 - strlen(reason);
	len = strlen(err->text);
	if (len > room)
		len = room;
	strcpy(err->text + len, reason);
	tp_text_clean(err->text);
	return false;
}

bool tp_fail_class(struct tp_error *err, enum tp_code code, const char *class_, const char *fmt, ...)
{
	va_list ap;

	if (!err || is_set(err))
		return false;
	va_start(ap, fmt);
	fail_va(err, code, fmt, ap);
	va_end(ap);
	snprintf(err->class_, sizeof(err->class_), "%s", class_ ? class_ : "");
	tp_text_clean(err->class_);
	return false;
}

bool tp_fail_nomem(struct tp_error *err)
{
	if (err && !is_set(err)) {
		tp_fail(err, TP_ENOMEM, "out of memory");
		err->sys = ENOMEM;
	}
	return false;
}

bool tp_prefix(struct tp_error *err, const char *fmt, ...)
{
	char text[TP_TEXT_SIZE];
	size_t len, keep;
	va_list ap;

	if (!err || !is_set(err))
		return false;
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = 0;
	va_end(ap);
	len = strlen(text);
	if (len > sizeof(text) - 3)
		len = sizeof(text) - 3;
	memcpy(text + len, ": ", 3);
	len += 2;
	/* What does not fit is lost at the end: the outermost context names the object. */
	keep = strlen(err->text);
	if (keep > sizeof(text) - 1 - len)
		keep = sizeof(text) - 1 - len;
	memcpy(text + len, err->text, keep);
	text[len + keep] = 0;
	tp_text_clean(text);
	memcpy(err->text, text, sizeof(text));
	return false;
}

const char *tp_error_class(const struct tp_error *err)
{
	static const char *const classes[] = {
		[TP_OK] = "",
		[TP_ESYS] = "IOError",
		[TP_EQMP] = "QemuError",
		[TP_EPROTO] = "GenericError",
		[TP_ETIMEOUT] = "Timeout",
		[TP_ECANCELLED] = "Cancelled",
		[TP_ESTATE] = "InvalidState",
		[TP_EUNSUPPORTED] = "Unsupported",
		[TP_ECORRUPT] = "Corrupt",
		[TP_ELIMIT] = "GenericError",
		[TP_ENOMEM] = "GenericError",
		[TP_EARG] = "GenericError",
	};

	if (err->class_[0])
		return err->class_;
	if ((size_t)err->code >= sizeof(classes) / sizeof(classes[0]))
		return "GenericError";
	return classes[err->code];
}

void tp_error_clear(struct tp_error *err)
{
	if (err)
		*err = (struct tp_error)TP_ERROR_INIT;
}
