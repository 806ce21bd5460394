/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qmp_cmds.h - Every command that torpor sends to QEMU and to the guest agent
 *
 * Nothing else names a command by a string. Each has the largest reply that is
 * believed (bytes) and the time within which QEMU answers when nothing is
 * wrong (seconds; a step's own limit may be shorter). A new command is a new
 * row; a test checks every row against the recorded schemas in tests/data.
 */
#ifndef QMP_CMDS_H
#define QMP_CMDS_H

#include <stdbool.h>
#include <stddef.h>

enum qmp_cmd {
	QMP_CAPABILITIES,		/* qmp_capabilities */
	QMP_QUERY_VERSION, QMP_QUERY_SCHEMA, QMP_QUERY_COMMANDS,
	QMP_QUERY_STATUS, QMP_QUERY_MACHINES, QMP_QUERY_CPU_MODEL_EXPANSION,
	QMP_QUERY_NAMED_BLOCK_NODES, QMP_QUERY_BLOCK, QMP_QUERY_BLOCK_JOBS, QMP_QUERY_JOBS,
	QMP_QUERY_BLOCK_EXPORTS, QMP_QUERY_BLOCKSTATS,
	QMP_QUERY_MIGRATE, QMP_QUERY_MIGRATE_CAPABILITIES, QMP_QUERY_MIGRATE_PARAMETERS,
	QMP_QUERY_MEMORY_SIZE_SUMMARY, QMP_QUERY_MEMORY_DEVICES, QMP_QUERY_MEMDEV,
	QMP_QUERY_BALLOON, QMP_QUERY_DUMP, QMP_QUERY_CHARDEV, QMP_QUERY_FDSETS,
	QMP_QUERY_VM_GENERATION_ID, QMP_QUERY_CURRENT_MACHINE, QMP_QUERY_CPUS_FAST,
	QMP_QOM_GET, QMP_QOM_LIST, QMP_QUERY_PCI,
	QMP_STOP, QMP_CONT, QMP_SYSTEM_RESET, QMP_SYSTEM_POWERDOWN, QMP_SYSTEM_WAKEUP, QMP_QUIT,
	QMP_SET_ACTION, QMP_ANNOUNCE_SELF,
	QMP_GETFD, QMP_CLOSEFD,
	QMP_MIGRATE, QMP_MIGRATE_INCOMING, QMP_MIGRATE_CANCEL,
	QMP_MIGRATE_SET_CAPABILITIES, QMP_MIGRATE_SET_PARAMETERS,
	QMP_MIGRATE_PAUSE, QMP_MIGRATE_RECOVER,		/* out of band: the main loop may be stuck */
	QMP_BLOCKDEV_SET_ACTIVE,
	QMP_HUMAN_MONITOR,		/* human-monitor-command: `info ramblock` only */
	QMP_USER,			/* vm-monitor: the user's own command, named in the arguments */
	QMP_CMD_N
};

struct qmp_cmd_info {
	const char *name;		/* "" for QMP_USER */
	size_t reply_max;
	double limit;
	bool oob;			/* sent by exec-oob where the session has it */
	bool secret;			/* arguments and reply are masked in traces */
	bool optional;			/* not in every supported QEMU: look it up in the schema first */
};
/* NULL for what is no command. */
const struct qmp_cmd_info *qmp_cmd_info(enum qmp_cmd cmd);

enum qga_cmd {
	QGA_PING, QGA_INFO, QGA_GET_OSINFO, QGA_GET_TIME, QGA_SET_TIME, QGA_SHUTDOWN,
	QGA_SUSPEND_DISK, QGA_SUSPEND_RAM,
	QGA_FSFREEZE_STATUS, QGA_FSFREEZE_FREEZE, QGA_FSFREEZE_THAW,
	QGA_FILE_OPEN, QGA_FILE_READ, QGA_FILE_CLOSE,
	QGA_SYNC_DELIMITED,		/* sent by qga_client itself, by nobody else */
	QGA_CMD_N
};
struct qga_cmd_info {
	const char *name;
	double limit;
	bool no_reply;			/* success-response false: success is told by QEMU's events */
};
/* NULL for what is no command. */
const struct qga_cmd_info *qga_cmd_info(enum qga_cmd cmd);

#endif
