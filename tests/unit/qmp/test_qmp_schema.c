/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_qmp_schema.c - Everything that torpor sends, against the schemas of both QEMUs
 *
 * tests/data holds what query-qmp-schema of each supported QEMU returned. Each
 * row of the command table must be known there, and the arguments below are
 * checked: whoever sends a command with arguments of a new shape adds a line.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "qmp/qmp_cmds.h"
#include "qmp/qmp_schema.h"

enum { OLD, NEW, VERSIONS };

static const char *const file_names[VERSIONS] = { "qmp-schema-7.2.json", "qmp-schema-10.0.json" };

static struct qmp_schema *schemas[VERSIONS];

struct example {
	enum qmp_cmd cmd;
	const char *args;	/* NULL: none */
	bool newer;		/* sent only where the schema has it: 7.2 must not, 10.0 must */
};

static const struct example examples[] = {
	{ QMP_CAPABILITIES, NULL, false },
	{ QMP_CAPABILITIES, "{\"enable\": [\"oob\"]}", false },
	{ QMP_QUERY_VERSION, NULL, false },
	{ QMP_QUERY_SCHEMA, NULL, false },
	{ QMP_QUERY_COMMANDS, NULL, false },
	{ QMP_QUERY_STATUS, NULL, false },
	{ QMP_QUERY_MACHINES, NULL, false },
	{ QMP_QUERY_CPU_MODEL_EXPANSION, "{\"type\": \"full\", \"model\": {\"name\": \"qemu64\"}}",
	  false },
	{ QMP_QUERY_CPU_MODEL_EXPANSION, "{\"type\": \"static\", \"model\": {\"name\": \"max\", "
	  "\"props\": {\"la57\": false}}}", false },
	{ QMP_QUERY_NAMED_BLOCK_NODES, NULL, false },
	{ QMP_QUERY_NAMED_BLOCK_NODES, "{\"flat\": true}", false },
	{ QMP_QUERY_BLOCK, NULL, false },
	{ QMP_QUERY_BLOCK_JOBS, NULL, false },
	{ QMP_QUERY_JOBS, NULL, false },
	{ QMP_QUERY_BLOCK_EXPORTS, NULL, false },
	{ QMP_QUERY_BLOCKSTATS, NULL, false },
	{ QMP_QUERY_BLOCKSTATS, "{\"query-nodes\": true}", false },
	{ QMP_QUERY_MIGRATE, NULL, false },
	{ QMP_QUERY_MIGRATE_CAPABILITIES, NULL, false },
	{ QMP_QUERY_MIGRATE_PARAMETERS, NULL, false },
	{ QMP_QUERY_MEMORY_SIZE_SUMMARY, NULL, false },
	{ QMP_QUERY_MEMORY_DEVICES, NULL, false },
	{ QMP_QUERY_MEMDEV, NULL, false },
	{ QMP_QUERY_BALLOON, NULL, false },
	{ QMP_QUERY_DUMP, NULL, false },
	{ QMP_QUERY_CHARDEV, NULL, false },
	{ QMP_QUERY_FDSETS, NULL, false },
	{ QMP_QUERY_VM_GENERATION_ID, NULL, false },
	{ QMP_QUERY_CURRENT_MACHINE, NULL, false },
	{ QMP_QUERY_CPUS_FAST, NULL, false },
	{ QMP_QOM_GET, "{\"path\": \"/machine\", \"property\": \"type\"}", false },
	{ QMP_QOM_LIST, "{\"path\": \"/machine/peripheral\"}", false },
	{ QMP_QUERY_PCI, NULL, false },
	{ QMP_STOP, NULL, false },
	{ QMP_CONT, NULL, false },
	{ QMP_SYSTEM_RESET, NULL, false },
	{ QMP_SYSTEM_POWERDOWN, NULL, false },
	{ QMP_SYSTEM_WAKEUP, NULL, false },
	{ QMP_QUIT, NULL, false },
	{ QMP_SET_ACTION, "{\"shutdown\": \"pause\"}", false },
	{ QMP_SET_ACTION, "{\"shutdown\": \"poweroff\"}", false },
	{ QMP_SET_ACTION, "{\"reboot\": \"reset\", \"panic\": \"pause\", \"watchdog\": \"pause\"}",
	  false },
	{ QMP_ANNOUNCE_SELF, "{\"initial\": 50, \"max\": 550, \"rounds\": 5, \"step\": 50}", false },
	{ QMP_GETFD, "{\"fdname\": \"torpor-save\"}", false },
	{ QMP_CLOSEFD, "{\"fdname\": \"torpor-save\"}", false },
	{ QMP_MIGRATE, "{\"uri\": \"fd:torpor-save\"}", false },
	{ QMP_MIGRATE, "{\"uri\": \"unix:/x\", \"detach\": true, \"resume\": false}", false },
	{ QMP_MIGRATE_INCOMING, "{\"uri\": \"fd:torpor-load\"}", false },
	{ QMP_MIGRATE_INCOMING, "{\"uri\": \"fd:torpor-load\", \"exit-on-error\": false}", true },
	{ QMP_MIGRATE_CANCEL, NULL, false },
	{ QMP_MIGRATE_SET_CAPABILITIES, "{\"capabilities\": ["
	  "{\"capability\": \"return-path\", \"state\": true},"
	  "{\"capability\": \"events\", \"state\": true},"
	  "{\"capability\": \"late-block-activate\", \"state\": true},"
	  "{\"capability\": \"background-snapshot\", \"state\": false},"
	  "{\"capability\": \"xbzrle\", \"state\": false},"
	  "{\"capability\": \"rdma-pin-all\", \"state\": false},"
	  "{\"capability\": \"auto-converge\", \"state\": false},"
	  "{\"capability\": \"zero-blocks\", \"state\": false},"
	  "{\"capability\": \"postcopy-ram\", \"state\": false},"
	  "{\"capability\": \"postcopy-blocktime\", \"state\": false},"
	  "{\"capability\": \"postcopy-preempt\", \"state\": false},"
	  "{\"capability\": \"x-colo\", \"state\": false},"
	  "{\"capability\": \"release-ram\", \"state\": false},"
	  "{\"capability\": \"pause-before-switchover\", \"state\": false},"
	  "{\"capability\": \"multifd\", \"state\": false},"
	  "{\"capability\": \"dirty-bitmaps\", \"state\": false},"
	  "{\"capability\": \"x-ignore-shared\", \"state\": false},"
	  "{\"capability\": \"validate-uuid\", \"state\": false}]}", false },
	{ QMP_MIGRATE_SET_CAPABILITIES, "{\"capabilities\": ["
	  "{\"capability\": \"mapped-ram\", \"state\": false},"
	  "{\"capability\": \"switchover-ack\", \"state\": false},"
	  "{\"capability\": \"dirty-limit\", \"state\": false}]}", true },
	{ QMP_MIGRATE_SET_PARAMETERS, "{\"max-bandwidth\": 0, \"downtime-limit\": 0}", false },
	{ QMP_MIGRATE_PAUSE, NULL, false },
	{ QMP_MIGRATE_RECOVER, "{\"uri\": \"unix:/run/x.sock\"}", false },
	{ QMP_BLOCKDEV_SET_ACTIVE, "{\"active\": true}", true },
	{ QMP_BLOCKDEV_SET_ACTIVE, "{\"node-name\": \"disk0\", \"active\": true}", true },
	{ QMP_HUMAN_MONITOR, "{\"command-line\": \"info ramblock\"}", false },
};

/* The bare list, or the reply that it came in. */
static struct qmp_schema *load(const char *name)
{
	tp_autojson json_t *file = NULL;
	struct tp_error err = TP_ERROR_INIT;
	struct qmp_schema *s;
	json_error_t why;
	char path[80];

	snprintf(path, sizeof(path), "tests/data/%s", name);
	file = json_load_file(path, 0, &why);
	if (!file) {
		fprintf(stderr, "%s: %s\n", path, why.text);
		return NULL;
	}
	s = qmp_schema_new(json_is_object(file) ? json_object_get(file, "return") : file, &err);
	if (!s)
		fprintf(stderr, "%s: %s\n", path, err.text);
	return s;
}

static int load_all(void **state)
{
	(void)state;
	for (int v = 0; v < VERSIONS; v++) {
		schemas[v] = load(file_names[v]);
		if (!schemas[v])
			return -1;
	}
	return 0;
}

static int free_all(void **state)
{
	(void)state;
	for (int v = 0; v < VERSIONS; v++)
		qmp_schema_free(schemas[v]);
	return 0;
}

static void every_row_is_a_command_of_both(void **state)
{
	(void)state;
	for (int cmd = 0; cmd < QMP_CMD_N; cmd++) {
		const struct qmp_cmd_info *info = qmp_cmd_info((enum qmp_cmd)cmd);

		assert_non_null(info);
		assert_non_null(info->name);
		assert_true(info->limit >= 1 && info->limit <= 600);
		assert_true(info->reply_max >= 1024 && info->reply_max <= 16u << 20);
		if (cmd == QMP_USER) {
			assert_string_equal(info->name, "");
			assert_true(info->secret);
			continue;
		}
		for (int v = 0; v < VERSIONS; v++) {
			bool has = qmp_schema_has_command(schemas[v], info->name);

			if (!has && !(info->optional && v == OLD))
				fail_msg("%s is not in %s", info->name, file_names[v]);
			if (has && info->oob != qmp_schema_is_oob(schemas[v], info->name))
				fail_msg("%s: oob differs in %s", info->name, file_names[v]);
		}
	}
	assert_null(qmp_cmd_info(QMP_CMD_N));
}

static void every_agent_row_is_filled(void **state)
{
	(void)state;
	for (int cmd = 0; cmd < QGA_CMD_N; cmd++) {
		const struct qga_cmd_info *info = qga_cmd_info((enum qga_cmd)cmd);

		assert_non_null(info);
		assert_non_null(info->name);
		assert_int_equal(strncmp(info->name, "guest-", 6), 0);
		assert_true(info->limit >= 1 && info->limit <= 600);
	}
	assert_true(qga_cmd_info(QGA_SUSPEND_DISK)->no_reply);
	assert_true(qga_cmd_info(QGA_SHUTDOWN)->no_reply);
	assert_false(qga_cmd_info(QGA_FSFREEZE_FREEZE)->no_reply);
	assert_null(qga_cmd_info(QGA_CMD_N));
}

static void check_example(const struct example *e)
{
	const char *name = qmp_cmd_info(e->cmd)->name;
	tp_autojson json_t *args = e->args ? json_loads(e->args, 0, NULL) : NULL;

	if (e->args && !args)
		fail_msg("%s: no JSON: %s", name, e->args);
	for (int v = 0; v < VERSIONS; v++) {
		struct tp_error err = TP_ERROR_INIT;
		bool ok = qmp_schema_check(schemas[v], name, args, &err);

		if (ok != (v == NEW || !e->newer))
			fail_msg("%s %s: %s: %s", name, e->args ? e->args : "", file_names[v],
				 ok ? "is not newer" : err.text);
	}
}

static void every_command_has_examples_that_fit(void **state)
{
	bool seen[QMP_CMD_N] = { [QMP_USER] = true };

	(void)state;
	for (size_t i = 0; i < TP_N(examples); i++) {
		seen[examples[i].cmd] = true;
		check_example(&examples[i]);
	}
	for (int cmd = 0; cmd < QMP_CMD_N; cmd++)
		if (!seen[cmd])
			fail_msg("%s has no example", qmp_cmd_info((enum qmp_cmd)cmd)->name);
}

static void refused(const char *command, const char *args, const char *words)
{
	tp_autojson json_t *value = json_loads(args, 0, NULL);

	assert_non_null(value);
	for (int v = 0; v < VERSIONS; v++) {
		struct tp_error err = TP_ERROR_INIT;

		assert_false(qmp_schema_check(schemas[v], command, value, &err));
		if (!strstr(err.text, words))
			fail_msg("%s", err.text);
	}
}

static void wrong_arguments_are_refused(void **state)
{
	(void)state;
	refused("no-such-command", "{}", "no command");
	refused("stop", "{\"x\": 1}", "no member 'x'");
	refused("getfd", "{}", "lacks 'fdname'");
	refused("getfd", "{\"fdname\": 5}", "must be of type string");
	refused("migrate-incoming", "{\"uri\": true}", "string");
	refused("migrate-set-parameters", "{\"downtime-limit\": \"0\"}", "int");
	refused("migrate-set-parameters", "{\"downtime-limit\": 0.5}", "int");
	refused("migrate", "{\"uri\": \"x\", \"detach\": 1}", "boolean");
	refused("set-action", "{\"shutdown\": \"explode\"}", "cannot be 'explode'");
	refused("set-action", "{\"shutdown\": 1}", "string");
	refused("migrate-set-capabilities", "{\"capabilities\": {}}", "list");
	refused("migrate-set-capabilities", "{\"capabilities\": [1]}", "object");
	refused("migrate-set-capabilities", "{\"capabilities\": [{\"capability\": \"warp\", "
		"\"state\": true}]}", "cannot be 'warp'");
	refused("migrate-set-capabilities", "{\"capabilities\": [{\"capability\": \"events\"}]}",
		"lacks 'state'");
	/* Unions: the tag's branch, and no other. */
	refused("blockdev-add", "{\"driver\": \"file\"}", "lacks 'filename'");
	refused("blockdev-add", "{\"driver\": \"file\", \"filename\": \"x\", \"host\": \"y\"}", "'host'");
	refused("blockdev-add", "{\"driver\": \"raw\", \"file\": 5}", "none of the types");
}

static void unions_and_alternates_are_followed(void **state)
{
	tp_autojson json_t *args = json_loads("{\"driver\": \"qcow2\", \"node-name\": \"n\", \"file\": "
		"{\"driver\": \"file\", \"filename\": \"x\"}, \"backing\": null}", 0, NULL);
	struct tp_error err = TP_ERROR_INIT;

	(void)state;
	for (int v = 0; v < VERSIONS; v++) {
		if (!qmp_schema_check(schemas[v], "blockdev-add", args, &err))
			fail_msg("%s", err.text);
		assert_true(qmp_schema_has_arg(schemas[v], "blockdev-add", "filename"));
		assert_true(qmp_schema_has_arg(schemas[v], "blockdev-add", "file.filename"));
		assert_false(qmp_schema_has_arg(schemas[v], "blockdev-add", "file.nonsense"));
		assert_false(qmp_schema_has_arg(schemas[v], "blockdev-add", "driver.x"));
		assert_false(qmp_schema_has_arg(schemas[v], "blockdev-add", ""));
		assert_true(qmp_schema_has_value(schemas[v], "blockdev-add", "driver", "qcow2"));
		assert_false(qmp_schema_has_value(schemas[v], "blockdev-add", "driver", "warp"));
		assert_false(qmp_schema_has_value(schemas[v], "blockdev-add", "filename", "x"));
		assert_true(qmp_schema_has_event(schemas[v], "STOP"));
		assert_false(qmp_schema_has_event(schemas[v], "stop"));
		assert_false(qmp_schema_has_command(schemas[v], "STOP"));
	}
}

static void features_of_both(void **state)
{
	struct qmp_features f;

	(void)state;
	qmp_features_of(schemas[OLD], &f);
	assert_true(f.return_path && f.late_block_activate && f.background_snapshot
		    && f.vm_generation_id);
	assert_false(f.exit_on_error);
	assert_false(f.set_active);
	assert_false(f.file_uri);
	qmp_features_of(schemas[NEW], &f);
	assert_true(f.return_path && f.late_block_activate && f.background_snapshot
		    && f.vm_generation_id && f.exit_on_error && f.set_active && f.file_uri);
}

static void names_outlive_the_schema(void **state)
{
	struct qmp_schema *s = load(file_names[NEW]);
	struct qmp_names *n = qmp_names_new(s, NULL);

	(void)state;
	assert_non_null(n);
	qmp_schema_free(s);
	assert_true(qmp_names_has(n, "stop"));
	assert_true(qmp_names_has(n, "blockdev-set-active"));
	assert_true(qmp_names_has(n, "BLOCK_JOB_COMPLETED"));
	assert_false(qmp_names_has(n, "sto"));
	assert_false(qmp_names_has(n, "top"));
	assert_false(qmp_names_has(n, "query-qmp"));
	assert_false(qmp_names_has(n, ""));
	assert_false(qmp_names_has(n, "stop\ncont"));
	qmp_names_free(n);
	qmp_names_free(NULL);
}

/* A VM in the daemon may cost what its names cost, not what its schema does. */
static void little_memory_is_kept(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
	(void)state;
	skip();
#else
	size_t before = mallinfo2().uordblks, with;
	struct qmp_schema *s = load(file_names[NEW]);
	struct qmp_names *n;
	size_t after;

	(void)state;
	with = mallinfo2().uordblks;
	n = qmp_names_new(s, NULL);
	qmp_schema_free(s);
	after = mallinfo2().uordblks;
	/* While it is there: a few megabytes; afterwards: the names. */
	assert_true(with - before < 8u << 20);
	assert_true(after - before < 64u << 10);
	qmp_names_free(n);
#endif
}

static void what_is_no_schema_is_refused(void **state)
{
	static const char *const texts[] = {
		"[]", "{}", "5", "[1, null, {}, {\"name\": 5}]",
		"[{\"name\": \"query-qmp-schema\", \"meta-type\": \"event\"}]",
	};

	(void)state;
	for (size_t i = 0; i < TP_N(texts); i++) {
		tp_autojson json_t *value = json_loads(texts[i], JSON_DECODE_ANY, NULL);
		struct tp_error err = TP_ERROR_INIT;

		assert_non_null(value);
		assert_null(qmp_schema_new(value, &err));
		assert_int_equal(err.code, TP_EPROTO);
	}
	qmp_schema_free(NULL);
}

/* Types that refer to themselves: each walk ends. */
static void circular_types_end(void **state)
{
	static const char text[] = "["
		"{\"name\": \"query-qmp-schema\", \"meta-type\": \"command\", \"arg-type\": \"a\"},"
		"{\"name\": \"list\", \"meta-type\": \"array\", \"element-type\": \"list\"},"
		"{\"name\": \"alt\", \"meta-type\": \"alternate\", \"members\": [{\"type\": \"alt\"}]},"
		"{\"name\": \"a\", \"meta-type\": \"object\", \"tag\": \"t\", \"members\": ["
		"{\"name\": \"self\", \"type\": \"a\", \"default\": null},"
		"{\"name\": \"list\", \"type\": \"list\", \"default\": null},"
		"{\"name\": \"alt\", \"type\": \"alt\", \"default\": null},"
		"{\"name\": \"none\", \"type\": \"missing\", \"default\": null},"
		"{\"name\": \"t\", \"type\": \"a\", \"default\": null}],"
		"\"variants\": [{\"case\": \"x\", \"type\": \"a\"}, 5, {}]}]";
	static const char *const bad[] = {
		"{\"alt\": 1}", "{\"none\": 1}", "{\"self\": 1}", "{\"list\": 1}", "{\"list\": [1]}",
	};
	tp_autojson json_t *value = json_loads(text, 0, NULL);
	struct qmp_schema *s = qmp_schema_new(value, NULL);

	(void)state;
	assert_non_null(s);
	assert_true(qmp_schema_has_arg(s, "query-qmp-schema", "self.self.self.alt"));
	assert_false(qmp_schema_has_arg(s, "query-qmp-schema", "list.x"));
	assert_false(qmp_schema_has_arg(s, "query-qmp-schema", "alt.x"));
	assert_false(qmp_schema_has_value(s, "query-qmp-schema", "list", "x"));
	for (size_t i = 0; i < TP_N(bad); i++) {
		tp_autojson json_t *args = json_loads(bad[i], 0, NULL);

		assert_non_null(args);
		assert_false(qmp_schema_check(s, "query-qmp-schema", args, NULL));
	}
	qmp_schema_free(s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_a_command_of_both),
		cmocka_unit_test(every_agent_row_is_filled),
		cmocka_unit_test(every_command_has_examples_that_fit),
		cmocka_unit_test(wrong_arguments_are_refused),
		cmocka_unit_test(unions_and_alternates_are_followed),
		cmocka_unit_test(features_of_both),
		cmocka_unit_test(names_outlive_the_schema),
		cmocka_unit_test(little_memory_is_kept),
		cmocka_unit_test(what_is_no_schema_is_refused),
		cmocka_unit_test(circular_types_end),
	};

	return cmocka_run_group_tests_name("qmp_schema", tests, load_all, free_all);
}
