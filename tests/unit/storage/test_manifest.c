/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_manifest.c - Each member's type and bounds */
#include "pool_test.h"

static const char full[] =
	"{'format': 1, 'image': 'web1-20261130T170537Z-0a1b2c', 'uuid': '" UUID_HEX "', 'vm': 'web1',"
	" 'uid': '7b0c1e52-16d5-4e0e-9d0c-2b8d9a5a5f10', 'generation': 3, 'kind': 'hibernation',"
	" 'created': '2026-11-30T17:05:37.123Z', 'torpor': '0.1.0', 'layout': 'stream',"
	" 'file': 'memory.zst', 'bytes': 8192, 'raw-bytes': 9000, 'footer': '0123456789abcdef',"
	" 'qemu': {'version': {'major': 7, 'minor': 2, 'micro': 22}, 'package': ''},"
	" 'machine': 'pc-q35-7.2', 'cpu': {'model': 'qemu64', 'props': {'sse3': true}},"
	" 'launch': {'binary': '/usr/bin/qemu-system-x86_64', 'args': ['-M', 'q35', ''],"
	"  'disks': {'d0': {'file': '/d.qcow2', 'format': 'qcow2', 'read-only': false, 'options': {}}}},"
	" 'vmgenid': null, 'run-state': 'paused', 'capabilities': ['events'],"
	" 'ram': {'bytes': 1073741824, 'blocks': [{'id': 'pc.ram', 'bytes': 1073741824}]},"
	" 'disks': {'d0': {'boot': 'b', 'file': '/d.qcow2', 'format': 'qcow2', 'kind': 'file',"
	"   'qcow2': {}, 'chain': [{'file': '/b.raw', 'format': 'raw'}]},"
	"  '#block123': {'boot': 'b', 'file': 'nbd://h', 'format': 'raw', 'unverifiable': 'x', 'chain': []}},"
	" 'agent': true, 'hotplug': [], 'keep': false, 'warnings': [], 'x-later': [[1]]}";

static json_t *parse(const char *text)
{
	char *copy = strdup(text);
	json_t *v;

	for (char *c = copy; *c; c++) {
		if (*c == '\'')
			*c = '"';
	}
	v = json_loads(copy, JSON_DECODE_ANY, NULL);
	if (!v)
		fail_msg("test text: %s", text);
	free(copy);
	return v;
}

static void full_one_passes(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *m = parse(full);

	(void)state;
	assert_ok(manifest_check(m, &err), &err);
	json_decref(m);
	m = manifest_for(VM, ID, "0123456789abcdef");
	assert_ok(manifest_check(m, &err), &err);
	json_decref(m);
	assert_false(manifest_check(NULL, &err));
	assert_failed(&err, "Corrupt", "not an object");
}

static void each_required_member_is_missed(void **state)
{
	static const char *const required[] = {
		"format", "image", "uuid", "vm", "uid", "kind", "created", "layout", "file", "bytes",
		"raw-bytes", "footer", "qemu", "run-state", "ram", "disks",
	};
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	for (size_t i = 0; i < TP_N(required); i++) {
		json_t *m = parse(full);

		json_object_del(m, required[i]);
		assert_false(manifest_check(m, &err));
		assert_contains(err.text, required[i]);
		assert_failed(&err, "Corrupt", "missing");
		json_decref(m);
	}
}

/* No member of any type where another is wanted: no member but the unknown takes all seven. */
static void wrong_types_are_refused(void **state)
{
	static const char *const values[] = { "null", "true", "7", "7.5", "'text'", "[]", "{}", "-1" };
	json_t *m = parse(full);
	const char *key;
	json_t *ignored;

	(void)state;
	json_object_foreach(m, key, ignored) {
		unsigned passed = 0;

		for (size_t i = 0; i < TP_N(values); i++) {
			struct tp_error err = TP_ERROR_INIT;
			json_t *changed = json_deep_copy(m);

			tp_json_set(changed, key, parse(values[i]));
			if (manifest_check(changed, &err)) {
				passed++;
			} else if (strcmp(key, "format") != 0) {
				assert_contains(err.text, key);
			}
			json_decref(changed);
		}
		if (strcmp(key, "x-later") == 0)
			assert_int_equal(passed, TP_N(values));
		else if (passed > 2)
			fail_msg("%s takes %u types", key, passed);
	}
	json_decref(m);
}

static const struct { const char *path, *value, *class_, *part; } bad[] = {
	{ "format", "2", "Unsupported", "newer format" },
	{ "format", "0", "Corrupt", "format" },
	{ "layout", "'mapped'", "Unsupported", "mapped" },
	{ "file", "'../../etc/passwd'", "Corrupt", "file" },
	{ "image", "'../x-20261130T170537Z-0a1b2c'", "Corrupt", "image" },
	{ "vm", "'a/b'", "Corrupt", "vm" },
	{ "uid", "''", "Corrupt", "uid" },
	{ "uuid", "'00'", "Corrupt", "uuid" },
	{ "footer", "'0123456789ABCDEF'", "Corrupt", "footer" },
	{ "kind", "'dream'", "Corrupt", "kind" },
	{ "run-state", "'inmigrate'", "Corrupt", "run-state" },
	{ "created", "'yesterday'", "Corrupt", "created" },
	{ "bytes", "-1", "Corrupt", "bytes" },
	{ "qemu.version.major", "'7'", "Corrupt", "qemu.version.major" },
	{ "qemu.version", "null", "Corrupt", "qemu.version: missing" },
	{ "launch.binary", "null", "Corrupt", "launch.binary" },
	{ "launch.args", "['-M', 7]", "Corrupt", "launch.args" },
	{ "launch.args", "{}", "Corrupt", "launch.args" },
	{ "launch.disks", "{'a/b': {}}", "Corrupt", "launch.disks.a/b" },
	{ "launch.disks.d0.format", "'vmdk'", "Corrupt", "launch.disks.d0.format" },
	{ "launch.disks.d0.file", "7", "Corrupt", "launch.disks.d0.file" },
	{ "cpu.model", "null", "Corrupt", "cpu.model" },
	{ "ram.blocks", "[{'id': 7, 'bytes': 1}]", "Corrupt", "ram.blocks.id" },
	{ "ram.blocks", "[null]", "Corrupt", "ram.blocks" },
	{ "disks", "{'': {}}", "Corrupt", "disks" },
	{ "disks.d0", "{}", "Corrupt", "disks.d0.file" },
	{ "disks.d0.chain", "[7]", "Corrupt", "disks.d0.chain.0" },
	{ "disks.d0.chain", "[{'file': '/b', 'format': 'raw', 'missing': 'gone'}]", "Corrupt", "missing" },
	{ "disks.d0.data", "{'file': '/b', 'format': 'raw', 'missing': 'gone'}", "Corrupt", "missing" },
	{ "disks.d0.missing", "'gone'", "Corrupt", "disks.d0.missing" },
};

static void bad_values_are_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < TP_N(bad); i++) {
		struct tp_error err = TP_ERROR_INIT;
		const char *dot = strrchr(bad[i].path, '.');
		json_t *m = parse(full), *to = m;
		char path[128];

		if (dot) {
			snprintf(path, sizeof(path), "%.*s", (int)(dot - bad[i].path), bad[i].path);
			to = tp_json_path(m, path);
		}
		assert_true(tp_json_set(to, dot ? dot + 1 : bad[i].path, parse(bad[i].value)));
		if (manifest_check(m, &err))
			fail_msg("%s = %s was accepted", bad[i].path, bad[i].value);
		assert_failed(&err, bad[i].class_, bad[i].part);
		json_decref(m);
	}
}

static void sizes_are_bounded(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *m = parse(full), *args = json_array(), *chain = json_array(), *disks = json_object();
	char *text = malloc(200001), name[16];

	(void)state;
	for (int i = 0; i < 5000; i++)
		json_array_append_new(args, json_string("x"));
	tp_json_set(tp_json_path(m, "launch"), "args", args);
	assert_false(manifest_check(m, &err));
	assert_failed(&err, "Corrupt", "launch.args: too long");
	json_array_clear(args);
	memset(text, 'x', 200000);
	text[200000] = 0;
	json_array_append_new(args, json_string(text));
	assert_false(manifest_check(m, &err));
	assert_failed(&err, "Corrupt", "launch.args: too long");
	json_array_clear(args);
	json_array_append_new(args, json_stringn("a\0b", 3));
	assert_false(manifest_check(m, &err));
	assert_failed(&err, "Corrupt", "NUL");
	json_array_clear(args);
	for (int i = 0; i < 65; i++)
		json_array_append_new(chain, parse("{'file': '/b', 'format': 'raw'}"));
	tp_json_set(tp_json_path(m, "disks.d0"), "chain", chain);
	assert_false(manifest_check(m, &err));
	assert_failed(&err, "Corrupt", "backing chain too long");
	json_array_clear(chain);
	assert_ok(manifest_check(m, &err), &err);
	for (int i = 0; i < 1025; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		tp_json_set(disks, name, parse("{'file': '/b', 'format': 'raw'}"));
	}
	tp_json_set(tp_json_path(m, "launch"), "disks", disks);
	assert_false(manifest_check(m, &err));
	assert_failed(&err, "Corrupt", "too many");
	free(text);
	json_decref(m);
}

#define SET(blocks, ranges) "{'page-size': 4096, 'blocks': " blocks ", 'ranges': " ranges "}"

static const struct { const char *set, *part; } sets[] = {
	{ SET("['pc.ram']", "[[0, 0, 262144], [0, 5, 1]]"), NULL },
	{ SET("[]", "[]"), NULL },
	{ SET("['pc.ram']", "[[0, 0, 262145]]"), "0 is not in RAM block pc.ram" },
	{ SET("['pc.ram', 'vga.vram']", "[[0, 1, 1], [1, 0, 1]]"), "1 is not in RAM block vga.vram" },
	{ SET("['pc.ram']", "[[1, 0, 1]]"), "not a range" },
	{ "null", "not a set" }, { "[]", "not a set" }, { "{}", "not a set" },
};

/* It is advice: without it, or with one that does not fit, the image is as good. */
static void an_unfit_working_set_is_taken_out(void **state)
{
	(void)state;
	for (size_t i = 0; i < TP_N(sets); i++) {
		struct tp_error err = TP_ERROR_INIT;
		json_t *m = parse(full);

		tp_json_set(m, "working-set", parse(sets[i].set));
		assert_ok(manifest_check(m, &err), &err);
		assert_int_equal(manifest_trim(m, &err), !sets[i].part);
		assert_int_equal(!json_object_get(m, "working-set"), !!sets[i].part);
		if (sets[i].part) {
			assert_contains(err.text, "working-set: ");
			assert_failed(&err, "Corrupt", sets[i].part);
		}
		json_decref(m);
	}
}

static void a_working_set_needs_the_list_of_blocks(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	json_t *m = parse(full);

	(void)state;
	assert_true(manifest_trim(m, &err));
	tp_json_set(m, "working-set", parse(SET("['pc.ram']", "[[0, 0, 1]]")));
	json_object_del(json_object_get(m, "ram"), "blocks");
	assert_ok(manifest_check(m, &err), &err);
	assert_false(manifest_trim(m, &err));
	assert_failed(&err, "Corrupt", "no RAM blocks");
	assert_null(json_object_get(m, "working-set"));
	json_decref(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_one_passes),
		cmocka_unit_test(each_required_member_is_missed),
		cmocka_unit_test(wrong_types_are_refused),
		cmocka_unit_test(bad_values_are_named),
		cmocka_unit_test(sizes_are_bounded),
		cmocka_unit_test(an_unfit_working_set_is_taken_out),
		cmocka_unit_test(a_working_set_needs_the_list_of_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
