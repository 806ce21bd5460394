/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_cmds.c - The table of commands that torpor sends
 *
 * The limits are those of a QEMU that is slow but well: its main loop may be
 * busy for seconds after a load, during a switchover, or while it drains
 * requests to slow storage. A silent QEMU is noticed earlier by those who have
 * a deadline of their own.
 */
#include "qmp/qmp_cmds.h"

#include "base/tp_cleanup.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* Reply sizes. */
#define SMALL KIB(64)	/* {} or a few members */
#define MEDIUM MIB(1)	/* lists that grow with the machine */
#define LARGE MIB(16)	/* lists that grow with the disks and their chains, schemas */

/* Seconds. */
#define PROMPT 30.0	/* only the main loop is needed */
#define DRAIN 60.0	/* waits for requests in flight, activates disks, ends QEMU */

#define CMD(text, size, time) .name = (text), .reply_max = (size), .limit = (time)

static const struct qmp_cmd_info qmp_table[QMP_CMD_N] = {
	[QMP_CAPABILITIES] = { CMD("qmp_capabilities", SMALL, 10.0) },
	[QMP_QUERY_VERSION] = { CMD("query-version", SMALL, PROMPT) },
	[QMP_QUERY_SCHEMA] = { CMD("query-qmp-schema", MIB(4), PROMPT) },
	[QMP_QUERY_COMMANDS] = { CMD("query-commands", MEDIUM, PROMPT) },
	[QMP_QUERY_STATUS] = { CMD("query-status", SMALL, DRAIN) },
	[QMP_QUERY_MACHINES] = { CMD("query-machines", MEDIUM, PROMPT) },
	[QMP_QUERY_CPU_MODEL_EXPANSION] = { CMD("query-cpu-model-expansion", MEDIUM, PROMPT) },
	[QMP_QUERY_NAMED_BLOCK_NODES] = { CMD("query-named-block-nodes", LARGE, DRAIN) },
	[QMP_QUERY_BLOCK] = { CMD("query-block", LARGE, DRAIN) },
	[QMP_QUERY_BLOCK_JOBS] = { CMD("query-block-jobs", MEDIUM, PROMPT) },
	[QMP_QUERY_JOBS] = { CMD("query-jobs", MEDIUM, PROMPT) },
	[QMP_QUERY_BLOCK_EXPORTS] = { CMD("query-block-exports", MEDIUM, PROMPT) },
	[QMP_QUERY_BLOCKSTATS] = { CMD("query-blockstats", LARGE, PROMPT) },
	[QMP_QUERY_MIGRATE] = { CMD("query-migrate", MEDIUM, DRAIN) },
	[QMP_QUERY_MIGRATE_CAPABILITIES] = { CMD("query-migrate-capabilities", SMALL, PROMPT) },
	[QMP_QUERY_MIGRATE_PARAMETERS] = { CMD("query-migrate-parameters", MEDIUM, PROMPT) },
	[QMP_QUERY_MEMORY_SIZE_SUMMARY] = { CMD("query-memory-size-summary", SMALL, PROMPT) },
	[QMP_QUERY_MEMORY_DEVICES] = { CMD("query-memory-devices", MEDIUM, PROMPT) },
	[QMP_QUERY_MEMDEV] = { CMD("query-memdev", MEDIUM, PROMPT) },
	[QMP_QUERY_BALLOON] = { CMD("query-balloon", SMALL, PROMPT) },
	[QMP_QUERY_DUMP] = { CMD("query-dump", SMALL, PROMPT) },
	[QMP_QUERY_CHARDEV] = { CMD("query-chardev", MEDIUM, PROMPT) },
	[QMP_QUERY_FDSETS] = { CMD("query-fdsets", MEDIUM, PROMPT) },
	[QMP_QUERY_VM_GENERATION_ID] = { CMD("query-vm-generation-id", SMALL, PROMPT) },
	[QMP_QUERY_CURRENT_MACHINE] = { CMD("query-current-machine", SMALL, PROMPT) },
	[QMP_QUERY_CPUS_FAST] = { CMD("query-cpus-fast", MEDIUM, PROMPT) },
	[QMP_QOM_GET] = { CMD("qom-get", MEDIUM, PROMPT) },
	[QMP_QOM_LIST] = { CMD("qom-list", MEDIUM, PROMPT) },
	[QMP_QUERY_PCI] = { CMD("query-pci", LARGE, PROMPT) },
	[QMP_STOP] = { CMD("stop", SMALL, DRAIN) },
	[QMP_CONT] = { CMD("cont", SMALL, DRAIN) },
	[QMP_SYSTEM_RESET] = { CMD("system_reset", SMALL, PROMPT) },
	[QMP_SYSTEM_POWERDOWN] = { CMD("system_powerdown", SMALL, PROMPT) },
	[QMP_SYSTEM_WAKEUP] = { CMD("system_wakeup", SMALL, PROMPT) },
	[QMP_QUIT] = { CMD("quit", SMALL, DRAIN) },
	[QMP_SET_ACTION] = { CMD("set-action", SMALL, PROMPT) },
	[QMP_ANNOUNCE_SELF] = { CMD("announce-self", SMALL, PROMPT) },
	[QMP_GETFD] = { CMD("getfd", SMALL, PROMPT) },
	[QMP_CLOSEFD] = { CMD("closefd", SMALL, PROMPT) },
	[QMP_MIGRATE] = { CMD("migrate", SMALL, DRAIN) },
	[QMP_MIGRATE_INCOMING] = { CMD("migrate-incoming", SMALL, DRAIN) },
	[QMP_MIGRATE_CANCEL] = { CMD("migrate_cancel", SMALL, DRAIN) },
	[QMP_MIGRATE_SET_CAPABILITIES] = { CMD("migrate-set-capabilities", SMALL, PROMPT) },
	[QMP_MIGRATE_SET_PARAMETERS] = { CMD("migrate-set-parameters", SMALL, PROMPT) },
	[QMP_MIGRATE_PAUSE] = { CMD("migrate-pause", SMALL, PROMPT), .oob = true },
	[QMP_MIGRATE_RECOVER] = { CMD("migrate-recover", SMALL, PROMPT), .oob = true },
	[QMP_BLOCKDEV_SET_ACTIVE] = { CMD("blockdev-set-active", SMALL, DRAIN), .optional = true },
	[QMP_HUMAN_MONITOR] = { CMD("human-monitor-command", MEDIUM, PROMPT) },
	/* Whatever the user puts in there may be a password. */
	[QMP_USER] = { CMD("", LARGE, DRAIN), .secret = true },
};

const struct qmp_cmd_info *qmp_cmd_info(enum qmp_cmd cmd)
{
	return (size_t)cmd < TP_N(qmp_table) ? &qmp_table[cmd] : NULL;
}

#define GA(text, time) .name = (text), .limit = (time)

/*
 * Freezing waits for the guest's file systems and its hooks; one that was given
 * up too early leaves a guest that freezes later. Suspending has no reply on
 * success: the limit is only how long an error is waited for.
 */
static const struct qga_cmd_info qga_table[QGA_CMD_N] = {
	[QGA_PING] = { GA("guest-ping", 5.0) },
	[QGA_INFO] = { GA("guest-info", 10.0) },
	[QGA_GET_OSINFO] = { GA("guest-get-osinfo", 10.0) },
	[QGA_GET_TIME] = { GA("guest-get-time", 10.0) },
	[QGA_SET_TIME] = { GA("guest-set-time", 30.0) },
	[QGA_SHUTDOWN] = { GA("guest-shutdown", 60.0), .no_reply = true },
	[QGA_SUSPEND_DISK] = { GA("guest-suspend-disk", 60.0), .no_reply = true },
	[QGA_SUSPEND_RAM] = { GA("guest-suspend-ram", 60.0), .no_reply = true },
	[QGA_FSFREEZE_STATUS] = { GA("guest-fsfreeze-status", 10.0) },
	[QGA_FSFREEZE_FREEZE] = { GA("guest-fsfreeze-freeze", 600.0) },
	[QGA_FSFREEZE_THAW] = { GA("guest-fsfreeze-thaw", 300.0) },
	[QGA_FILE_OPEN] = { GA("guest-file-open", 10.0) },
	[QGA_FILE_READ] = { GA("guest-file-read", 10.0) },
	[QGA_FILE_CLOSE] = { GA("guest-file-close", 10.0) },
	[QGA_SYNC_DELIMITED] = { GA("guest-sync-delimited", 5.0) },
};

const struct qga_cmd_info *qga_cmd_info(enum qga_cmd cmd)
{
	return (size_t)cmd < TP_N(qga_table) ? &qga_table[cmd] : NULL;
}
