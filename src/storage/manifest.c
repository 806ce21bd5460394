/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * manifest.c - What a manifest says, checked
 *
 * A manifest is read from a pool that others may have written to, so each member that torpor uses
 * has its type and bound here, in tables; what is not in them is kept and ignored. The text of an
 * error names the member by its path ("launch.disks.d0.file"). Objects below are visited to a fixed
 * depth: nothing here follows the nesting of the input.
 */
#include "manifest.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_fs.h"
#include "base/tp_json.h"
#include "base/tp_time.h"
#include "fingerprint.h"
#include "image_peek.h"
#include "page_set.h"
#include "pool.h"

#define MANIFEST_FORMAT 1
#define TEXT_MAX 4096			/* a path, a version, a machine */
#define ARG_MAX_BYTES 131072		/* MAX_ARG_STRLEN of Linux */
#define ARGS_MAX 4096
#define DISKS_MAX 1024
#define NODE_NAME_MAX 255
#define RAM_BLOCKS_MAX 1024
#define LIST_MAX 4096
#define WHERE_MAX 160

typedef bool (*check_fn)(const json_t *value, const char *where, struct tp_error *err);

struct member {
	const char *key;
	bool required;		/* else it may be absent or null */
	check_fn check;
};

static bool bad(struct tp_error *err, const char *where, const char *what)
{
	return tp_fail(err, TP_ECORRUPT, "manifest: %s: %s", where, what);
}

static bool check_members(const json_t *object, const struct member *members, size_t n,
			  const char *where, struct tp_error *err)
{
	char path[WHERE_MAX];

	if (!json_is_object(object))
		return bad(err, where[0] ? where : "all of it", "not an object");
	for (size_t i = 0; i < n; i++) {
		const json_t *value = json_object_get(object, members[i].key);

		snprintf(path, sizeof(path), "%s%s%s", where, where[0] ? "." : "", members[i].key);
		if (!value || json_is_null(value)) {
			if (members[i].required)
				return bad(err, path, "missing");
			continue;
		}
		if (!members[i].check(value, path, err))
			return false;
	}
	return true;
}

/* ---- values ---- */

static bool is_bool(const json_t *v, const char *where, struct tp_error *err)
{
	return json_is_boolean(v) || bad(err, where, "not a boolean");
}

static bool is_count(const json_t *v, const char *where, struct tp_error *err)
{
	return (json_is_integer(v) && json_integer_value(v) >= 0) ||
	       bad(err, where, "not a count");
}

static bool is_object(const json_t *v, const char *where, struct tp_error *err)
{
	return json_is_object(v) || bad(err, where, "not an object");
}

static bool is_list(const json_t *v, const char *where, struct tp_error *err)
{
	if (!json_is_array(v))
		return bad(err, where, "not a list");
	return json_array_size(v) <= LIST_MAX || bad(err, where, "too long");
}

static bool is_text_of(const json_t *v, size_t max, const char *where, struct tp_error *err)
{
	if (!json_is_string(v))
		return bad(err, where, "not a string");
	if (json_string_length(v) > max)
		return bad(err, where, "too long");
	return strlen(json_string_value(v)) == json_string_length(v) ||
	       bad(err, where, "holds a NUL");
}

static bool is_text(const json_t *v, const char *where, struct tp_error *err)
{
	return is_text_of(v, TEXT_MAX, where, err) &&
	       (json_string_length(v) > 0 || bad(err, where, "empty"));
}

/* QEMU's package is often the empty string, and so is a machine that the stream does not name. */
static bool is_any_text(const json_t *v, const char *where, struct tp_error *err)
{
	return is_text_of(v, TEXT_MAX, where, err);
}

static bool is_name(const json_t *v, const char *where, struct tp_error *err)
{
	return is_text(v, where, err) &&
	       (tp_name_ok(json_string_value(v)) || bad(err, where, "not a name"));
}

static bool is_hex_of(const json_t *v, size_t digits, const char *where, struct tp_error *err)
{
	const char *text = json_string_value(v);

	return (text && json_string_length(v) == digits &&
		strspn(text, "0123456789abcdef") == digits) ||
	       bad(err, where, "not a number in hex");
}

static bool is_uuid(const json_t *v, const char *where, struct tp_error *err)
{
	return is_hex_of(v, 32, where, err);
}

static bool is_checksum(const json_t *v, const char *where, struct tp_error *err)
{
	return is_hex_of(v, 16, where, err);
}

static bool is_one_of(const json_t *v, const char *const *words, size_t n, const char *where,
		      struct tp_error *err)
{
	const char *text = json_string_value(v);

	for (size_t i = 0; text && i < n; i++) {
		if (strcmp(text, words[i]) == 0)
			return true;
	}
	return bad(err, where, "not a known word");
}

static bool is_kind(const json_t *v, const char *where, struct tp_error *err)
{
	static const char *const words[] = { "hibernation", "checkpoint", "kept" };

	return is_one_of(v, words, TP_N(words), where, err);
}

/* QAPI's RunState as far as a VM can be saved in it. */
static bool is_run_state(const json_t *v, const char *where, struct tp_error *err)
{
	static const char *const words[] = {
		"running", "paused", "suspended", "io-error", "guest-panicked", "watchdog",
		"prelaunch", "debug", "save-vm",
	};

	return is_one_of(v, words, TP_N(words), where, err);
}

static bool is_layout(const json_t *v, const char *where, struct tp_error *err)
{
	if (!is_text(v, where, err))
		return false;
	return strcmp(json_string_value(v), "stream") == 0 ||
	       tp_fail(err, TP_EUNSUPPORTED, "manifest: %s: \"%s\" is not known to this version", where,
		       json_string_value(v));
}

/* No other name is ever opened, so no other is accepted. */
static bool is_file(const json_t *v, const char *where, struct tp_error *err)
{
	static const char *const words[] = { "memory.zst" };

	return is_one_of(v, words, TP_N(words), where, err);
}

static bool is_time(const json_t *v, const char *where, struct tp_error *err)
{
	uint64_t us;

	return is_text(v, where, err) &&
	       (tp_time_parse(json_string_value(v), &us) || bad(err, where, "not a time"));
}

static bool is_image_id(const json_t *v, const char *where, struct tp_error *err)
{
	return is_text(v, where, err) &&
	       (pool_image_id_ok(json_string_value(v)) || bad(err, where, "not an image id"));
}

static bool is_format(const json_t *v, const char *where, struct tp_error *err)
{
	static const char *const words[] = { "qcow2", "raw" };

	return is_one_of(v, words, TP_N(words), where, err);
}

static bool is_texts(const json_t *v, size_t max, size_t longest, const char *where,
		     struct tp_error *err)
{
	if (!json_is_array(v))
		return bad(err, where, "not a list");
	if (json_array_size(v) > max)
		return bad(err, where, "too long");
	for (size_t i = 0; i < json_array_size(v); i++) {
		if (!is_text_of(json_array_get(v, i), longest, where, err))
			return false;
	}
	return true;
}

static bool is_args(const json_t *v, const char *where, struct tp_error *err)
{
	return is_texts(v, ARGS_MAX, ARG_MAX_BYTES, where, err);
}

static bool is_words(const json_t *v, const char *where, struct tp_error *err)
{
	return is_texts(v, LIST_MAX, TEXT_MAX, where, err);
}

/* ---- objects ---- */

static bool is_version(const json_t *v, const char *where, struct tp_error *err)
{
	static const struct member members[] = {
		{ "major", true, is_count }, { "minor", true, is_count }, { "micro", false, is_count },
	};

	return check_members(v, members, TP_N(members), where, err);
}

static bool is_qemu(const json_t *v, const char *where, struct tp_error *err)
{
	static const struct member members[] = {
		{ "version", true, is_version }, { "package", false, is_any_text },
	};

	return check_members(v, members, TP_N(members), where, err);
}

static bool is_cpu(const json_t *v, const char *where, struct tp_error *err)
{
	static const struct member members[] = {
		{ "model", true, is_text }, { "props", false, is_object },
	};

	return check_members(v, members, TP_N(members), where, err);
}

/* Each member of an object of named things; *name says what a name is. */
static bool each(const json_t *v, bool (*name_ok)(const char *name), check_fn check,
		 const char *where, struct tp_error *err)
{
	char path[WHERE_MAX];
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return bad(err, where, "not an object");
	if (json_object_size(v) > DISKS_MAX)
		return bad(err, where, "too many members");
	json_object_foreach((json_t *)(uintptr_t)v, key, value) {
		snprintf(path, sizeof(path), "%s.%s", where, key);
		if (!name_ok(key))
			return bad(err, path, "not a name");
		if (!check(value, path, err))
			return false;
	}
	return true;
}

static bool is_disk(const json_t *v, const char *where, struct tp_error *err)
{
	static const struct member members[] = {
		{ "file", true, is_text }, { "format", true, is_format },
		{ "read-only", false, is_bool }, { "options", false, is_object },
	};

	return check_members(v, members, TP_N(members), where, err);
}

static bool is_disks(const json_t *v, const char *where, struct tp_error *err)
{
	return each(v, tp_name_ok, is_disk, where, err);
}

static bool is_launch(const json_t *v, const char *where, struct tp_error *err)
{
	static const struct member members[] = {
		{ "binary", true, is_text }, { "args", true, is_args }, { "disks", false, is_disks },
	};

	return check_members(v, members, TP_N(members), where, err);
}

static bool is_ram_block(const json_t *v, const char *where, struct tp_error *err)
{
	static const struct member members[] = {
		{ "id", true, is_text }, { "bytes", true, is_count },
	};

	return check_members(v, members, TP_N(members), where, err);
}

static bool is_ram_blocks(const json_t *v, const char *where, struct tp_error *err)
{
	if (!json_is_array(v))
		return bad(err, where, "not a list");
	if (json_array_size(v) > RAM_BLOCKS_MAX)
		return bad(err, where, "too long");
	for (size_t i = 0; i < json_array_size(v); i++) {
		if (!is_ram_block(json_array_get(v, i), where, err))
			return false;
	}
	return true;
}

static bool is_ram(const json_t *v, const char *where, struct tp_error *err)
{
	static const struct member members[] = {
		{ "bytes", true, is_count }, { "blocks", false, is_ram_blocks },
	};

	return check_members(v, members, TP_N(members), where, err);
}

/* ---- fingerprints ---- */

static bool is_absent(const json_t *v, const char *where, struct tp_error *err)
{
	(void)v;
	return bad(err, where, "a disk with missing files cannot be recorded");
}

/* One file of a disk: what fingerprint_compare() does not find the same is a difference anyway. */
static const struct member print_members[] = {
	{ "file", true, is_text }, { "format", true, is_text }, { "kind", false, is_text },
	{ "missing", false, is_absent }, { "unverifiable", false, is_text },
	{ "qcow2", false, is_object }, { "device", false, is_object },
};

static bool is_print_file(const json_t *v, const char *where, struct tp_error *err)
{
	return check_members(v, print_members, TP_N(print_members), where, err);
}

static bool is_print(const json_t *v, const char *where, struct tp_error *err)
{
	static const struct member members[] = {
		{ "boot", true, is_text }, { "chain", true, is_list }, { "data", false, is_print_file },
	};
	const json_t *chain = json_object_get(v, "chain");
	char path[WHERE_MAX];

	if (!is_print_file(v, where, err) || !check_members(v, members, TP_N(members), where, err))
		return false;
	if (json_array_size(chain) > FINGERPRINT_CHAIN_MAX)
		return bad(err, where, "backing chain too long");
	for (size_t i = 0; i < json_array_size(chain); i++) {
		const json_t *file = json_array_get(chain, i), *data = json_object_get(file, "data");

		snprintf(path, sizeof(path), "%s.chain.%zu", where, i);
		if (!is_print_file(file, path, err) || (data && !is_print_file(data, path, err)))
			return false;
	}
	return true;
}

/* QEMU's own node names may hold '#'. */
static bool node_name_ok(const char *name)
{
	size_t n = strlen(name);

	for (const char *c = name; *c; c++) {
		if (*c < ' ' || *c > '~')
			return false;
	}
	return n > 0 && n <= NODE_NAME_MAX;
}

static bool is_prints(const json_t *v, const char *where, struct tp_error *err)
{
	return each(v, node_name_ok, is_print, where, err);
}

/* ---- the whole ---- */

static bool is_format_number(const json_t *v, const char *where, struct tp_error *err)
{
	if (!json_is_integer(v) || json_integer_value(v) < MANIFEST_FORMAT)
		return bad(err, where, "not a number of a format");
	return json_integer_value(v) == MANIFEST_FORMAT ||
	       tp_fail(err, TP_EUNSUPPORTED, "manifest: newer format %lld",
		       (long long)json_integer_value(v));
}

bool manifest_check(const json_t *manifest, struct tp_error *err)
{
	static const struct member members[] = {
		{ "format", true, is_format_number },	/* first: what follows is of this format */
		{ "image", true, is_image_id },
		{ "uuid", true, is_uuid },
		{ "vm", true, is_name },
		{ "uid", true, is_name },
		{ "generation", false, is_count },
		{ "kind", true, is_kind },
		{ "created", true, is_time },
		{ "torpor", false, is_text },
		{ "layout", true, is_layout },
		{ "file", true, is_file },
		{ "bytes", true, is_count },
		{ "raw-bytes", true, is_count },
		{ "footer", true, is_checksum },
		{ "qemu", true, is_qemu },
		{ "machine", false, is_any_text },
		{ "cpu", false, is_cpu },
		{ "launch", false, is_launch },
		{ "vmgenid", false, is_any_text },
		{ "run-state", true, is_run_state },
		{ "capabilities", false, is_words },
		{ "ram", true, is_ram },
		{ "disks", true, is_prints },
		{ "nvram", false, is_prints },
		{ "agent", false, is_bool },
		{ "hotplug", false, is_list },
		{ "keep", false, is_bool },
		{ "warnings", false, is_list },
	};

	return check_members(manifest, members, TP_N(members), "", err);
}

bool manifest_trim(json_t *manifest, struct tp_error *err)
{
	const json_t *set = json_object_get(manifest, "working-set"), *ram = tp_json_path(manifest, "ram.blocks");

	if (!set || (json_is_array(ram) ? page_set_check(set, ram, err) :
		     tp_fail(err, TP_ECORRUPT, "no RAM blocks are listed")))
		return true;
	json_object_del(manifest, "working-set");
	return tp_prefix(err, "manifest: working-set");
}

bool manifest_matches(const json_t *manifest, const struct image_peek *file, struct tp_error *err)
{
	char footer[17], uuid[33];
	const char *differs = NULL;

	snprintf(footer, sizeof(footer), "%016llx", (unsigned long long)file->footer_checksum);
	for (size_t i = 0; i < sizeof(file->uuid); i++)
		snprintf(uuid + 2 * i, 3, "%02x", file->uuid[i]);
	if (strcmp(footer, tp_json_str(manifest, "footer")) != 0)
		differs = "footer";
	else if (strcmp(uuid, tp_json_str(manifest, "uuid")) != 0)
		differs = "uuid";
	else if ((uint64_t)tp_json_int(manifest, "bytes", 0) != file->file_bytes)
		differs = "bytes";
	else if ((uint64_t)tp_json_int(manifest, "raw-bytes", 0) != file->raw_bytes)
		differs = "raw-bytes";
	return !differs || tp_fail(err, TP_ECORRUPT, "memory.zst is not the file that the manifest names: %s",
				   differs);
}
