/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mig_info.c - query-migrate and MIGRATION events in words of ours; capabilities and parameters
 *
 * All functions are pure. Replies come from a QEMU that a guest may have taken
 * over: members may be missing, of another type, or absurd. That never fails,
 * the member then counts as absent.
 */
#include "migration/mig_info.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"

/*
 * MigrationStatus as of QEMU 7.2 to 10.x. What is missing here counts as "in progress": a new
 * intermediate status must not abort a good migration.
 */
static const struct {
	const char *status;
	enum mig_phase phase;
} statuses[] = {
	{ "none", MIG_NONE },
	{ "setup", MIG_RUNNING },
	{ "active", MIG_RUNNING },
	{ "wait-unplug", MIG_RUNNING },
	{ "device", MIG_RUNNING },
	{ "colo", MIG_RUNNING },
	{ "pre-switchover", MIG_PRE_SWITCHOVER },
	{ "cancelling", MIG_CANCELLING },
	{ "postcopy-active", MIG_POSTCOPY },
	{ "postcopy-device", MIG_POSTCOPY },
	{ "postcopy-paused", MIG_POSTCOPY_PAUSED },
	{ "postcopy-recover-setup", MIG_POSTCOPY_RECOVER },
	{ "postcopy-recover", MIG_POSTCOPY_RECOVER },
	{ "completed", MIG_COMPLETED },
	{ "cancelled", MIG_CANCELLED },
	{ "failed", MIG_FAILED },
};

static const char *const stopped_members[] = { "downtime-limit", "max-bandwidth" };

enum mig_phase mig_phase_of(const char *status)
{
	if (!status)
		return MIG_NONE;
	for (size_t i = 0; i < TP_N(statuses); i++)
		if (!strcmp(statuses[i].status, status))
			return statuses[i].phase;
	return MIG_RUNNING;
}

bool mig_phase_over(enum mig_phase p)
{
	return p == MIG_NONE || p == MIG_COMPLETED || p == MIG_CANCELLED || p == MIG_FAILED;
}

static uint64_t counter(const json_t *object, const char *key)
{
	int64_t v = tp_json_int(object, key, 0);

	return v < 0 ? 0 : (uint64_t)v;
}

/* Cuts text to the buffer, and control characters to '?': it ends in messages of one line. */
static void copy_text(char *out, size_t size, const char *text)
{
	size_t n = 0;

	for (; text && text[n] && n + 1 < size; n++)
		out[n] = (unsigned char)text[n] < ' ' || text[n] == 0x7f ? '?' : text[n];
	/* Not in the middle of a character of several bytes. */
	if (text && text[n])
		while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--;
	out[n] = 0;
}

void mig_info_parse(const json_t *query_migrate_reply, struct mig_info *info)
{
	const char *status = tp_json_str(query_migrate_reply, "status");
	const json_t *ram = json_object_get(query_migrate_reply, "ram");

	memset(info, 0, sizeof(*info));
	info->phase = mig_phase_of(status);
	copy_text(info->status, sizeof(info->status), status);
	info->transferred = counter(ram, "transferred");
	info->total = counter(ram, "total");
	info->remaining = counter(ram, "remaining");
	copy_text(info->error, sizeof(info->error), tp_json_str(query_migrate_reply, "error-desc"));
}

json_t *mig_blockers(const json_t *query_migrate_reply)
{
	const json_t *reasons = json_object_get(query_migrate_reply, "blocked-reasons");
	json_t *copy = json_array();
	json_t *reason;
	size_t i;

	json_array_foreach(reasons, i, reason) {
		if (json_is_string(reason) && json_array_append(copy, reason) < 0) {
			json_decref(copy);
			return NULL;
		}
	}
	return copy;
}

static bool listed(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(*list, name))
			return true;
	return false;
}

static bool offered(const json_t *caps_reply, const char *name)
{
	json_t *cap;
	size_t i;

	json_array_foreach(caps_reply, i, cap) {
		const char *have = tp_json_str(cap, "capability");

		if (have && !strcmp(have, name))
			return true;
	}
	return false;
}

/*
 * {"capabilities": [...]}: each one of the reply as it is there, or, with `on`, those that are not as
 * that says. QEMU reads its monitor a byte at a time: the whole list would take it 5 to 10 ms.
 */
static json_t *caps_as(const json_t *caps_reply, const char *const *on)
{
	tp_autojson json_t *list = json_array();
	json_t *cap;
	size_t i;

	json_array_foreach(caps_reply, i, cap) {
		const char *name = tp_json_str(cap, "capability");
		bool is = tp_json_bool(cap, "state", false), state = is;

		if (name && on)
			state = listed(name, on);
		if (!name || (on && state == is && json_is_boolean(json_object_get(cap, "state"))))
			continue;
		if (json_array_append_new(list, json_pack("{s:s, s:b}", "capability", name,
							  "state", state)) < 0)
			return NULL;
	}
	return list ? json_pack("{s:O}", "capabilities", list) : NULL;
}

json_t *mig_caps_arguments(const json_t *caps_reply, const char *const *on, struct tp_error *err)
{
	json_t *arguments;

	for (const char *const *name = on; *name; name++) {
		if (!offered(caps_reply, *name)) {
			tp_fail(err, TP_EUNSUPPORTED, "QEMU has no migration capability \"%s\"",
				*name);
			return NULL;
		}
	}
	arguments = caps_as(caps_reply, on);
	if (!arguments)
		tp_fail_nomem(err);
	return arguments;
}

json_t *mig_caps_restore(const json_t *caps_reply)
{
	return caps_as(caps_reply, NULL);
}

json_t *mig_caps_enabled(const json_t *caps_reply)
{
	json_t *names = json_array();
	json_t *cap;
	size_t i;

	json_array_foreach(caps_reply, i, cap) {
		const char *name = tp_json_str(cap, "capability");

		if (name && tp_json_bool(cap, "state", false) &&
		    json_array_append_new(names, json_string(name)) < 0) {
			json_decref(names);
			return NULL;
		}
	}
	return names;
}

bool mig_caps_are(const json_t *caps_reply, const char *const *on)
{
	json_t *cap;
	size_t i;

	for (const char *const *name = on; *name; name++)
		if (!offered(caps_reply, *name))
			return false;
	json_array_foreach(caps_reply, i, cap) {
		const char *name = tp_json_str(cap, "capability");

		if (!name || listed(name, on) != tp_json_bool(cap, "state", false))
			return false;
	}
	return true;
}

json_t *mig_params_stopped(void)
{
	json_t *params = json_object();

	for (size_t i = 0; i < TP_N(stopped_members); i++) {
		if (!tp_json_set(params, stopped_members[i], json_integer(0))) {
			json_decref(params);
			return NULL;
		}
	}
	return params;
}

json_t *mig_params_restore(const json_t *params_reply)
{
	json_t *params = json_object();

	for (size_t i = 0; i < TP_N(stopped_members); i++) {
		json_t *value = json_object_get(params_reply, stopped_members[i]);

		/* A QEMU that does not tell the member cannot have been changed in it. */
		if (value && !tp_json_set(params, stopped_members[i], json_deep_copy(value))) {
			json_decref(params);
			return NULL;
		}
	}
	return params;
}
