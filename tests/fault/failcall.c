/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * failcall.c - File calls that fail, come late, never come back, or do half of their work
 *
 * FAILCALL names a file of FAULT_RULES rules, which is mapped by each program with the library in it:
 * a rule works from when `armed` is set, counts the calls of all of them, and works in a sandbox
 * that lets nobody open a file. tests/real/lib/faultlib.py writes them.
 */
#include "fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FAULT_RULES 8
#define HANG_LOOK_NS 10000000

enum action { FAIL = 1, DELAY, HANG, SHORT, ANSWER };

struct rule {
	_Atomic uint32_t armed;
	_Atomic int32_t nth;		/* counts down to 0, and further: the strikes */
	uint32_t times;			/* strikes one after the other; 0: all from then on */
	uint32_t action;
	int64_t value;			/* errno, milliseconds, bytes, answer */
	_Atomic uint32_t hits;
	char call[28];			/* "*": any that changes something */
	char part[192];			/* of the path; several between '|' */
	char hit[256];			/* call and path of the last hit */
};

static struct rule *rules;

static void __attribute__((constructor)) begin(void)
{
	size_t size = 0;

	rules = fault_map("FAILCALL", &size);
	if (size < FAULT_RULES * sizeof(*rules))
		rules = NULL;
}

static bool changes(const char *call)
{
	static const char *const asking[] = { "open", "lstat", "fstatvfs", "fstatfs" };

	for (size_t i = 0; i < sizeof(asking) / sizeof(asking[0]); i++) {
		if (strcmp(call, asking[i]) == 0)
			return false;
	}
	return true;
}

static bool is_call(const struct rule *r, const char *call)
{
	return strcmp(r->call, "*") == 0 ? changes(call) : strcmp(r->call, call) == 0;
}

static bool on_path(const struct rule *r, const char *path)
{
	const char *part = r->part;
	char one[sizeof(r->part)];
	size_t n;

	for (;; part += n + 1) {
		n = strcspn(part, "|");
		snprintf(one, sizeof(one), "%.*s", (int)n, part);
		if (path[0] && strstr(path, one))
			return true;
		if (!part[n])
			return false;
	}
}

static bool strikes(struct rule *r, const char *call, const char *path)
{
	int32_t left;

	if (!atomic_load(&r->armed) || !is_call(r, call) || !on_path(r, path))
		return false;
	left = atomic_fetch_sub(&r->nth, 1);
	if (left > 1 || (r->times && left <= 1 - (int32_t)r->times))
		return false;
	snprintf(r->hit, sizeof(r->hit), "%s %.200s", call, path);
	atomic_fetch_add(&r->hits, 1);
	return true;
}

static void sleep_ns(int64_t ns)
{
	struct timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static void obey(struct rule *r, struct fault *f)
{
	switch (r->action) {
	case FAIL:
		f->error = (int)r->value;
		break;
	case DELAY:
		sleep_ns(r->value * 1000000);
		break;
	case HANG:
		while (atomic_load(&r->armed))
			sleep_ns(HANG_LOOK_NS);
		break;
	case SHORT:
		f->limit = r->value;
		break;
	case ANSWER:
		f->value = r->value;
		break;
	default:
		break;
	}
}

struct fault fault_of(const char *call, const char *path)
{
	struct fault f = { .limit = -1, .value = -1 };
	int saved = errno;

	for (size_t i = 0; rules && i < FAULT_RULES; i++) {
		if (strikes(&rules[i], call, path))
			obey(&rules[i], &f);
	}
	errno = saved;
	return f;
}
